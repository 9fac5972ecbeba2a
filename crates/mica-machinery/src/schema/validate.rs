//! Checks a value against a schema: every keyword, in the order and the words of kube-openapi's validator.
//!
//! Surprises that are upstream's: a null meets only the type and the enumeration; a list passes as a string that has a format;
//! under `allOf`, `anyOf`, `oneOf` and `not` nothing is forgiven for being unchanged.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::failure::{Kind, Outcome};
use super::format::Format;
use super::node::{Additional, Checks, Junctors, Node, Type, Types};
use super::{number, ratchet};
use crate::field::quote;

/// What a value is compared with to forgive what did not change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Old<'o> {
    /// The value that it replaces.
    Value(&'o Value),
    /// Nothing: it is new, or cannot be told.
    Unknown,
}

impl<'o> Old<'o> {
    fn from(value: Option<&'o Value>) -> Self {
        value.map_or(Self::Unknown, Self::Value)
    }

    fn value(self) -> Option<&'o Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unknown => None,
        }
    }
}

/// Checks the value of a resource, or of its `status` alone; `place` is empty at either root.
pub(crate) fn check(node: &Node, value: &Value, old: Option<&Value>) -> Outcome {
    let mut out = Outcome::default();
    check_place(node, value, Old::from(old), &mut String::new(), &mut out);
    out
}

/// Checks a value, and forgives what it finds if the value is as it was.
fn check_place(node: &Node, value: &Value, old: Old<'_>, place: &mut String, out: &mut Outcome) {
    let before = out.failures.len();
    check_value(node, value, old, place, out);
    if out.failures.len() > before
        && let Old::Value(old) = old
        && ratchet::unchanged(node, value, old)
    {
        out.failures.truncate(before);
    }
}

fn check_value(node: &Node, value: &Value, old: Old<'_>, place: &mut String, out: &mut Outcome) {
    let checks = node.checks.as_deref();
    let format = checks.and_then(|checks| checks.format.as_ref());
    let restricted = node.types != Types::Any || format.is_some();
    if value.is_null() {
        if restricted {
            check_type(node, format.map(|(name, _)| name.as_str()), value, place, out);
        } else {
            out.matches += 1;
        }
        check_enumeration(checks, value, place, out);
        return;
    }
    if restricted {
        check_type(node, format.map(|(name, _)| name.as_str()), value, place, out);
        out.matches += 1;
    }
    if let Some(junctors) = checks.and_then(|checks| checks.junctors.as_deref()) {
        check_junctors(junctors, value, place, out);
    }
    out.matches += 2;
    match value {
        Value::String(text) => {
            check_text(checks, text, place, out);
            out.matches += 1;
            if let Some((name, format)) = format.filter(|(_, format)| is_text_format(*format)) {
                if !format.accepts(text) {
                    let message = format!("{place} in body must be of type {name}: {}", quote(text));
                    out.fail(
                        place,
                        Kind::Type {
                            value: text.as_str().into(),
                            text: message,
                        },
                    );
                }
                out.matches += 1;
            }
        }
        Value::Number(found) => {
            number::check(node, found, place, out);
            out.matches += 1;
        }
        Value::Array(items) => {
            check_items(node, items, old, place, out);
            out.matches += 2;
        }
        _ => {}
    }
    check_enumeration(checks, value, place, out);
    out.matches += 1;
    if let Value::Object(members) = value {
        check_members(node, members, old, place, out);
        out.matches += 1;
    }
    out.matches += 1;
}

fn is_text_format(format: Format) -> bool {
    use Format::{Double, Float, Int32, Int64, Unknown};
    !matches!(format, Int32 | Int64 | Float | Double | Unknown)
}

fn check_type(node: &Node, format: Option<&str>, value: &Value, place: &str, out: &mut Outcome) {
    let types = node.types;
    let mut wrong = |wanted: &str, found: &str| {
        let text = format!("{place} in body must be of type {wanted}: {}", quote(found));
        out.fail(
            place,
            Kind::Type {
                value: found.into(),
                text,
            },
        );
    };
    let Some(ty) = Type::of(value) else {
        if types != Types::Any && !node.flags.nullable {
            wrong(node.type_name(), "null");
        } else {
            out.matches += 1;
        }
        return;
    };
    let is_whole = ty == Type::Number && value.as_f64().is_some_and(number::is_whole);
    let fits = types.contains(ty)
        || (is_whole && types.contains(Type::Integer))
        || (ty == Type::Integer && types.contains(Type::Number));
    let textual = matches!(ty, Type::String | Type::Array);
    if let Some(name) = format {
        let found = match ty {
            Type::Integer => "int64",
            Type::Number => "float64",
            _ => "",
        };
        let is_format = !found.is_empty() && found == name;
        if !(textual || fits || is_format) {
            wrong(name, found);
            return;
        }
        if textual && !types.contains(Type::Number) && !types.contains(Type::Integer) {
            out.matches += 1;
            return;
        }
    }
    if fits {
        out.matches += 1;
    } else {
        wrong(node.type_name(), ty.name());
    }
}

fn check_text(checks: Option<&Checks>, text: &str, place: &str, out: &mut Outcome) {
    let Some(checks) = checks else { return };
    let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let mut invalid = |message: String| {
        out.fail(
            place,
            Kind::Invalid {
                value: text.into(),
                text: message,
            },
        );
    };
    if let Some(max) = checks.max_length.filter(|max| length() > *max) {
        out.fail(place, Kind::TooLong(max));
    } else if let Some(min) = checks.min_length.filter(|min| length() < *min) {
        invalid(format!("{place} in body should be at least {min} chars long"));
    } else if let Some(pattern) = &checks.pattern {
        let source = pattern.source();
        match pattern.matches(text) {
            Ok(true) => {}
            Ok(false) => invalid(format!("{place} in body should match '{source}'")),
            Err(error) => invalid(format!(
                "{place} in body should match '{source}, but pattern is invalid: {error}'"
            )),
        }
    }
}

fn check_enumeration(checks: Option<&Checks>, value: &Value, place: &str, out: &mut Outcome) {
    let Some(checks) = checks.filter(|checks| !checks.enumeration.is_empty()) else {
        return;
    };
    if !checks.enumeration.iter().any(|allowed| converts_to(value, allowed)) {
        out.fail(
            place,
            Kind::Enumeration {
                value: value.clone(),
                allowed: checks.enumeration.to_vec(),
            },
        );
    }
}

/// Whether Go's conversion of a value to the type of another makes them equal.
fn converts_to(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) => false,
        (Value::Number(value), Value::Number(allowed)) => match (allowed.as_i64(), value.as_i64()) {
            (Some(allowed), Some(value)) => allowed == value,
            (Some(allowed), None) => value.as_f64().is_some_and(|value| value as i64 == allowed),
            (None, _) => value.as_f64() == allowed.as_f64(),
        },
        _ => value == allowed,
    }
}

fn check_items(node: &Node, items: &[Value], old: Old<'_>, place: &mut String, out: &mut Outcome) {
    if let Some(element) = &node.items {
        let known = ratchet::OldItems::of(node, old.value());
        let length = place.len();
        for (at, item) in items.iter().enumerate() {
            let _ = write!(place, "[{at}]");
            check_place(element, item, Old::from(known.get(item)), place, out);
            place.truncate(length);
        }
    }
    let Some(sizes) = node.checks.as_ref().and_then(|checks| checks.sizes.as_deref()) else {
        return;
    };
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(min) = sizes.min_items.filter(|min| size < *min) {
        let text = format!("{place} in body should have at least {min} items");
        out.fail(
            place,
            Kind::Invalid {
                value: size.into(),
                text,
            },
        );
    }
    if let Some(max) = sizes.max_items.filter(|max| size > *max) {
        out.fail(
            place,
            Kind::TooMany {
                actual: items.len(),
                max,
            },
        );
    }
    if sizes.unique_items && has_duplicates(items) {
        let text = format!("{place} in body shouldn't contain duplicates");
        out.fail(place, Kind::Invalid { value: "".into(), text });
    }
}

fn has_duplicates(items: &[Value]) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(items.len());
    !items.iter().all(|item| seen.insert(item.to_string()))
}

fn check_members(node: &Node, members: &Map<String, Value>, old: Old<'_>, place: &mut String, out: &mut Outcome) {
    let size = i64::try_from(members.len()).unwrap_or(i64::MAX);
    if let Some(sizes) = node.checks.as_ref().and_then(|checks| checks.sizes.as_deref()) {
        if let Some(min) = sizes.min_properties.filter(|min| size < *min) {
            let text = format!("{place} in body should have at least {min} properties");
            out.fail(
                place,
                Kind::Invalid {
                    value: size.into(),
                    text,
                },
            );
        }
        if let Some(max) = sizes.max_properties.filter(|max| size > *max) {
            out.fail(
                place,
                Kind::TooMany {
                    actual: members.len(),
                    max,
                },
            );
        }
    }
    let length = place.len();
    let others = || members.iter().filter(|(name, _)| !node.properties.contains(name));
    match &node.additional {
        Additional::None => {
            for (name, _) in others() {
                let text = format!("{place}.{name} in body is a forbidden property");
                out.fail(
                    place,
                    Kind::Invalid {
                        value: name.as_str().into(),
                        text,
                    },
                );
            }
        }
        Additional::Schema(schema) => {
            for (name, value) in others() {
                place.push('.');
                place.push_str(name);
                check_member(node, schema, name, value, old, place, out);
                place.truncate(length);
            }
        }
        Additional::Any | Additional::Unsaid => {}
    }
    for (name, schema) in node.properties.iter() {
        if let Some(value) = members.get(name.as_str()) {
            if length > 0 {
                place.push('.');
            }
            place.push_str(name);
            check_member(node, schema, name, value, old, place, out);
            place.truncate(length);
        }
    }
    for name in &node.required {
        if !members.contains_key(name.as_str()) {
            out.fail(&format!("{place}.{name}"), Kind::Required);
        }
    }
}

fn check_member(
    parent: &Node,
    schema: &Node,
    name: &str,
    value: &Value,
    old: Old<'_>,
    place: &mut String,
    out: &mut Outcome,
) {
    // Both versions of an object show the same apiVersion and kind, so those say nothing about a change.
    let type_meta = place.as_str() == name && matches!(name, "apiVersion" | "kind");
    let old = ratchet::old_member(parent, old.value(), name).filter(|_| !type_meta);
    check_place(schema, value, Old::from(old), place, out);
}

fn check_junctors(junctors: &Junctors, value: &Value, place: &mut String, out: &mut Outcome) {
    let mut check_one = |schema: &Node| {
        let mut result = Outcome::default();
        check_value(schema, value, Old::Unknown, place, &mut result);
        result
    };
    let mut found = Outcome::default();
    if !junctors.any_of.is_empty() {
        found.merge(any_of(&junctors.any_of, &mut check_one));
    }
    if !junctors.one_of.is_empty() {
        found.merge(one_of(&junctors.one_of, &mut check_one));
    }
    if !junctors.all_of.is_empty() {
        found.merge(all_of(&junctors.all_of, &mut check_one));
    }
    if let Some(not) = &junctors.not
        && check_one(not).is_valid()
    {
        found.fail("", Kind::Loose(" must not validate the schema (not)".to_owned()));
    }
    // The junctors' own texts lead with the place.
    for failure in &mut found.failures {
        if let Kind::Loose(text) = &mut failure.kind
            && text.starts_with(' ')
        {
            text.insert_str(0, &quote(place));
        }
    }
    out.merge(found);
}

fn any_of(schemas: &[Node], check: &mut dyn FnMut(&Node) -> Outcome) -> Outcome {
    let mut best: Option<Outcome> = None;
    for schema in schemas {
        let result = check(schema);
        if result.is_valid() {
            return result;
        }
        if best.as_ref().is_none_or(|best| result.matches > best.matches) {
            best = Some(result);
        }
    }
    let mut out = Outcome::default();
    out.fail("", Kind::Loose(" must validate at least one schema (anyOf)".to_owned()));
    out.merge(best.unwrap_or_default());
    out
}

fn one_of(schemas: &[Node], check: &mut dyn FnMut(&Node) -> Outcome) -> Outcome {
    let mut best: Option<Outcome> = None;
    let mut first = None;
    let mut valid = 0;
    for schema in schemas {
        let result = check(schema);
        if result.is_valid() {
            valid += 1;
            best = None;
            first = first.or(Some(result));
        } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
            best = Some(result);
        }
    }
    if valid == 1 {
        return first.unwrap_or_default();
    }
    let mut out = Outcome::default();
    let found = if valid == 0 {
        "Found none valid".to_owned()
    } else {
        format!("Found {valid} valid alternatives")
    };
    out.fail(
        "",
        Kind::Loose(format!(" must validate one and only one schema (oneOf). {found}")),
    );
    out.merge(best.unwrap_or_default());
    out
}

fn all_of(schemas: &[Node], check: &mut dyn FnMut(&Node) -> Outcome) -> Outcome {
    let mut out = Outcome::default();
    let mut valid = 0;
    for schema in schemas {
        let result = check(schema);
        valid += usize::from(result.is_valid());
        out.merge(result);
    }
    if valid != schemas.len() {
        let none = if valid == 0 { ". None validated" } else { "" };
        out.fail("", Kind::Loose(format!(" must validate all the schemas (allOf){none}")));
    }
    out
}
