//! The words of a schema, one place at a time: what is not supported, and what must go together.

use serde_json::Value;

use super::Demands;
use super::rule::{Cost, check_rules};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, present};
use crate::kind::internal;
use crate::schema::rule::RuleCompiler;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const META: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// Errors of a place and all inside it. Those of rules come last, and rules are only looked at where there are no others.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) schema: ErrorList,
    pub(super) rules: ErrorList,
}

impl Found {
    fn merge(&mut self, other: Found) {
        self.schema.extend(other.schema);
        self.rules.extend(other.rules);
    }
}

/// What a place inherits from those around it.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// Why there may be no default here.
    no_default: Option<String>,
    in_meta: bool,
    is_root: bool,
    /// The outermost list above whose items have no identity, so that there is no old value to compare with.
    pub(super) uncorrelatable: Option<Path>,
    pub(super) rules: RuleScope,
}

/// Whether rules are looked at here, and how often the place may be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RuleScope {
    /// Not at all: under a junctor, or the schema is broken.
    Off,
    At(Cardinality),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cardinality {
    AtMost(u64),
    Unbounded,
}

pub(super) struct Checker<'c> {
    pub(super) demands: Demands,
    pub(super) compiler: Option<&'c dyn RuleCompiler>,
    pub(super) cost: Cost,
}

/// Checks a whole schema. Without a compiler rules are not looked at.
pub(super) fn check(
    schema: &Value,
    path: &Path,
    demands: Demands,
    compiler: Option<&dyn RuleCompiler>,
) -> (ErrorList, Cost) {
    let mut checker = Checker {
        demands,
        compiler,
        cost: Cost::default(),
    };
    let context = Context {
        no_default: None,
        in_meta: false,
        is_root: true,
        uncorrelatable: None,
        rules: match compiler {
            Some(_) => RuleScope::At(Cardinality::AtMost(1)),
            None => RuleScope::Off,
        },
    };
    let mut found = checker.visit(schema, path, &context);
    found.schema.append(&mut found.rules);
    (found.schema, checker.cost)
}

impl Checker<'_> {
    fn visit(&mut self, schema: &Value, path: &Path, context: &Context) -> Found {
        let mut found = Found::default();
        self.check_words(schema, path, context, &mut found.schema);
        self.visit_members(schema, path, context, &mut found);
        self.visit_junctors(schema, path, context, &mut found);
        self.visit_items(schema, path, context, &mut found);
        for (name, dependency) in entries(schema, "dependencies").filter(|(_, schema)| schema.is_object()) {
            let path = path.child("dependencies").key(name);
            found.merge(self.visit(dependency, &path, &context.nested()));
        }
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let path = path.child("x-kubernetes-preserve-unknown-fields");
            found
                .schema
                .push(Error::invalid(&path, false, "must be true or undefined"));
        }
        self.check_topology(schema, path, &mut found.schema);
        check_map_list(schema, path, &mut found.schema);
        if self.demands.map_keys {
            found.schema.extend(map_key_errors(schema, path));
        }
        check_rules(self, schema, path, context, &mut found);
        found
    }

    fn check_words(&self, schema: &Value, path: &Path, context: &Context, errors: &mut ErrorList) {
        let ty = text(schema, "type");
        if self.demands.valid_types && !ty.is_empty() && !TYPES.contains(&ty) {
            errors.push(Error::not_supported(&path.child("type"), ty, &TYPES));
        }
        if let (Some(reason), Some(_)) = (&context.no_default, present(schema, &["default"])) {
            errors.push(Error::forbidden(
                &path.child("default"),
                format!("must not be set {reason}"),
            ));
        }
        for word in [
            "id",
            "additionalItems",
            "patternProperties",
            "definitions",
            "dependencies",
            "$ref",
        ] {
            let set = match word {
                "id" => !text(schema, word).is_empty(),
                "patternProperties" | "definitions" => entries(schema, word).next().is_some(),
                _ => present(schema, &[word]).is_some(),
            };
            if set {
                errors.push(Error::forbidden(&path.child(word), format!("{word} is not supported")));
            }
        }
        if ty == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            errors.push(Error::forbidden(&path.child("type"), detail));
        }
        if schema
            .get("items")
            .and_then(Value::as_array)
            .is_some_and(|items| !items.is_empty())
        {
            let detail = "items must be a schema object and not an array";
            errors.push(Error::forbidden(&path.child("items"), detail));
        }
        if context.in_meta && flag(schema, "x-kubernetes-embedded-resource") {
            let path = path.child("x-kubernetes-embedded-resource");
            errors.push(Error::forbidden(&path, "must not be used inside of resource meta"));
        }
        if flag(schema, "uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            errors.push(Error::forbidden(&path.child("uniqueItems"), detail));
        }
    }

    fn visit_members(&mut self, schema: &Value, path: &Path, context: &Context, found: &mut Found) {
        let inner = context.inner(schema);
        if let Some(additional) = present(schema, &["additionalProperties"]) {
            let path = path.child("additionalProperties");
            if *additional != Value::Bool(true) && entries(schema, "properties").next().is_some() {
                let detail = "additionalProperties and properties are mutual exclusive";
                found.schema.push(Error::forbidden(&path, detail));
            }
            let mut inner = inner.clone();
            if context.in_meta {
                inner.no_default = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            if additional.is_object() {
                found.merge(self.visit(additional, &path, &inner));
            }
        }
        let map_type = text(schema, "x-kubernetes-map-type");
        for (name, property) in entries(schema, "properties") {
            let mut inner = inner.clone();
            if !matches!(map_type, "" | "granular" | "atomic") {
                inner.uncorrelatable = inner.uncorrelatable.or_else(|| Some(path.clone()));
            }
            let is_resource = context.is_root || flag(schema, "x-kubernetes-embedded-resource");
            if is_resource && META.contains(&name) {
                inner.in_meta = true;
                if context.is_root {
                    inner.no_default = Some(format!("in top-level {name}"));
                }
            }
            found.merge(self.visit(property, &path.child("properties").key(name), &inner));
        }
    }

    fn visit_junctors(&mut self, schema: &Value, path: &Path, context: &Context, found: &mut Found) {
        let nested = context.nested();
        if let Some(not) = present(schema, &["not"]) {
            found.merge(self.visit(not, &path.child("not"), &nested));
        }
        for junctor in ["allOf", "oneOf", "anyOf"] {
            let parts = schema.get(junctor).and_then(Value::as_array).into_iter().flatten();
            for (at, part) in parts.enumerate() {
                found.merge(self.visit(part, &path.child(junctor).index(at), &nested));
            }
        }
        for (name, definition) in entries(schema, "definitions") {
            found.merge(self.visit(definition, &path.child("definitions").key(name), &nested));
        }
    }

    fn visit_items(&mut self, schema: &Value, path: &Path, context: &Context, found: &mut Found) {
        let mut inner = context.inner(schema);
        if text(schema, "x-kubernetes-list-type") != "map" {
            inner.uncorrelatable = inner.uncorrelatable.or_else(|| Some(path.clone()));
        }
        let path = path.child("items");
        match schema.get("items") {
            Some(items @ Value::Object(_)) => found.merge(self.visit(items, &path, &inner)),
            Some(Value::Array(list)) => {
                for (at, items) in list.iter().enumerate() {
                    found.merge(self.visit(items, &path.index(at), &inner));
                }
            }
            _ => {}
        }
    }

    /// How lists and maps merge, and the types that may say so.
    fn check_topology(&self, schema: &Value, path: &Path, errors: &mut ErrorList) {
        let type_path = path.child("type");
        let ty = text(schema, "type");
        let wrong_type = |detail: &str| {
            if ty.is_empty() {
                Error::required(&type_path, detail)
            } else {
                Error::invalid(&type_path, ty, detail)
            }
        };
        let said = |word: &str| present(schema, &[word]).and_then(Value::as_str);
        if let Some(map_type) = said("x-kubernetes-map-type") {
            if ty != "object" {
                errors.push(wrong_type("must be object if x-kubernetes-map-type is specified"));
            }
            if !matches!(map_type, "atomic" | "granular") {
                let path = path.child("x-kubernetes-map-type");
                errors.push(Error::not_supported(&path, map_type, &["atomic", "granular"]));
            }
        }
        let list_type = said("x-kubernetes-list-type");
        if list_type.is_some() && ty != "array" {
            errors.push(wrong_type("must be array if x-kubernetes-list-type is specified"));
        } else if self.demands.atomic_set_items && is_loose_set(schema) {
            let items = &schema["items"];
            let shown = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
            let word = if text(items, "type") == "array" {
                "x-kubernetes-list-type"
            } else {
                "x-kubernetes-map-type"
            };
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            errors.push(Error::invalid(&path.child("items").child(word), shown, detail));
        }
        let path = path.child("x-kubernetes-list-type");
        if let Some(list_type) = list_type.filter(|list_type| !matches!(*list_type, "atomic" | "set" | "map")) {
            errors.push(Error::not_supported(&path, list_type, &["atomic", "set", "map"]));
        }
        let has_keys = schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .is_some_and(|keys| !keys.is_empty());
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type.filter(|_| has_keys) {
            None if has_keys => errors.push(Error::required(&path, detail)),
            Some(list_type) if list_type != "map" => errors.push(Error::invalid(&path, list_type, detail)),
            _ => {}
        }
    }
}

impl Context {
    pub(super) fn is_resource_root(&self) -> bool {
        self.is_root
    }

    /// For a property, item or other member.
    fn inner(&self, schema: &Value) -> Context {
        Context {
            is_root: false,
            rules: self.rules.inner(schema),
            ..self.clone()
        }
    }

    /// For a schema under a junctor.
    fn nested(&self) -> Context {
        Context {
            is_root: false,
            rules: RuleScope::Off,
            ..self.clone()
        }
    }
}

impl RuleScope {
    fn inner(self, schema: &Value) -> RuleScope {
        let RuleScope::At(outer) = self else { return self };
        let limit = |word: &str| {
            let limit = schema.get(word).and_then(Value::as_i64);
            limit.map_or(Cardinality::Unbounded, |limit| {
                Cardinality::AtMost(u64::try_from(limit).unwrap_or(0))
            })
        };
        let own = match text(schema, "type") {
            "object" if present(schema, &["additionalProperties"]).is_some() => limit("maxProperties"),
            "array" => limit("maxItems"),
            _ => Cardinality::AtMost(1),
        };
        RuleScope::At(match (outer, own) {
            (Cardinality::AtMost(outer), Cardinality::AtMost(own)) => Cardinality::AtMost(outer.saturating_mul(own)),
            _ => Cardinality::Unbounded,
        })
    }
}

fn check_map_list(schema: &Value, path: &Path, errors: &mut ErrorList) {
    if text(schema, "x-kubernetes-list-type") != "map" {
        return;
    }
    let keys_path = path.child("x-kubernetes-list-map-keys");
    let keys = schema.get("x-kubernetes-list-map-keys").cloned().unwrap_or_default();
    let names: Vec<&str> = keys
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if names.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(Error::required(&keys_path, detail));
    }
    let items_path = path.child("items");
    let items = match schema.get("items") {
        None => {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            errors.push(Error::required(&items_path, detail));
            return;
        }
        Some(items @ Value::Object(_)) => items,
        // Several, or what is no schema at all: that is kept as null.
        Some(items) => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            errors.push(invalid_as(&items_path, &internal::shown_schemas(items), detail));
            return;
        }
    };
    let ty = text(items, "type");
    if ty != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(Error::invalid(&items_path.child("type"), ty, detail));
        return;
    }
    for (at, name) in names.iter().enumerate() {
        match items.get("properties").and_then(|properties| properties.get(name)) {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let path = items_path.child("properties").key(name).child("type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(Error::invalid(&path, ty, detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(Error::invalid(&keys_path, keys.clone(), detail));
            }
        }
        if names[..at].contains(name) {
            errors.push(Error::invalid(
                &keys_path,
                keys.clone(),
                "must not contain duplicate entries",
            ));
        }
    }
}

/// Items that tell each other apart are never null, and their keys are always there.
pub(super) fn map_key_errors(schema: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let list_type = text(schema, "x-kubernetes-list-type");
    let Some(items) = schema.get("items").filter(|items| items.is_object()) else {
        return errors;
    };
    if !matches!(list_type, "set" | "map") {
        return errors;
    }
    let path = path.child("items");
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(Error::forbidden(&path.child("nullable"), detail));
    }
    if list_type != "map" {
        return errors;
    }
    let list = |value: &Value, word: &str| -> Vec<String> {
        let items = value.get(word).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let required = list(items, "required");
    for key in list(schema, "x-kubernetes-list-map-keys") {
        let Some(property) = items.get("properties").and_then(|properties| properties.get(&key)) else {
            continue;
        };
        let path = path.child("properties").key(&key);
        if !required.contains(&key) && present(property, &["default"]).is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(Error::required(&path.child("default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(Error::forbidden(&path.child("nullable"), detail));
        }
    }
    errors
}

/// Whether a schema is a set whose items could merge.
pub(super) fn is_loose_set(schema: &Value) -> bool {
    let items = schema.get("items").filter(|items| items.is_object());
    let Some(items) = items.filter(|_| text(schema, "x-kubernetes-list-type") == "set") else {
        return false;
    };
    match text(items, "type") {
        "array" => !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic"),
        "object" => text(items, "x-kubernetes-map-type") != "atomic",
        _ => false,
    }
}

pub(super) fn has_invalid_type(schema: &Value) -> bool {
    let ty = text(schema, "type");
    !ty.is_empty() && !TYPES.contains(&ty)
}

pub(super) fn has_default(schema: &Value) -> bool {
    present(schema, &["default"]).is_some()
}

pub(super) fn has_extension(schema: &Value) -> bool {
    const WORDS: [&str; 6] = [
        "x-kubernetes-embedded-resource",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-validations",
    ];
    WORDS.iter().any(|word| present(schema, &[word]).is_some())
}

/// Whether a schema, or any inside it, is something.
pub(super) fn any(schema: &Value, is: &dyn Fn(&Value) -> bool) -> bool {
    if is(schema) {
        return true;
    }
    let maps = ["properties", "patternProperties", "definitions", "dependencies"];
    let in_maps = maps
        .iter()
        .flat_map(|word| entries(schema, word))
        .map(|(_, schema)| schema);
    let words = [
        "items",
        "additionalProperties",
        "additionalItems",
        "not",
        "allOf",
        "anyOf",
        "oneOf",
    ];
    let in_words = words
        .iter()
        .filter_map(|word| schema.get(word))
        .flat_map(|found| match found {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        });
    in_maps
        .chain(in_words)
        .filter(|schema| schema.is_object())
        .any(|schema| any(schema, is))
}

pub(super) fn text<'v>(schema: &'v Value, word: &str) -> &'v str {
    schema.get(word).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Value, word: &str) -> bool {
    schema.get(word).and_then(Value::as_bool).unwrap_or_default()
}

fn entries<'v>(schema: &'v Value, word: &str) -> impl Iterator<Item = (&'v str, &'v Value)> + use<'v> {
    let members = schema.get(word).and_then(Value::as_object).into_iter().flatten();
    members.map(|(name, value)| (name.as_str(), value))
}
