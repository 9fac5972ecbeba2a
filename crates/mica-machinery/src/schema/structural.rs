//! Whether a schema is structural: every place has one type, said outside of junctors, so that it can prune, default and merge.

use serde_json::{Value, json};

use super::pattern;
use crate::field::{Error, ErrorList, Path};

/// Where a schema stands, which decides what its type may be and how a missing one is reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// A schema with a word in it that structural schemas do not have at all: the text of the first.
pub fn unsupported(schema: &Value) -> Option<String> {
    const WORDS: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    for (word, name) in WORDS {
        if is_said(schema, word) || (word == "additionalItems" && schema.get(word).is_some_and(Value::is_boolean)) {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    let junctors = ["not", "allOf", "anyOf", "oneOf"];
    let mut nested = junctors.iter().flat_map(|junctor| parts(schema.get(junctor)));
    if let Some(found) = nested.find_map(unsupported) {
        return Some(found);
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if schema.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let inside = schema
        .get("items")
        .into_iter()
        .chain(properties(schema).map(|(_, property)| property));
    let inside = inside.chain(schema.get("additionalProperties").filter(|schema| schema.is_object()));
    inside.into_iter().find_map(unsupported)
}

/// What keeps a schema from being structural, sorted.
pub fn errors(schema: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    check(schema, Level::Root, path, &mut errors);
    check_complete(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

/// The `NonStructuralSchema` condition of a definition: status, reason and message; nothing if all schemas are structural.
pub fn condition(definition: &Value) -> Option<(&'static str, &'static str, String)> {
    let spec = definition.get("spec")?;
    let mut all = ErrorList::new();
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let path = Path::new("spec").child("preserveUnknownFields");
        all.push(Error::invalid(&path, true, "must be false"));
    }
    for (at, version) in parts(spec.get("versions")).enumerate() {
        let schema = version.get("schema").and_then(|schema| schema.get("openAPIV3Schema"));
        let Some(schema) = schema.filter(|schema| !schema.is_null()) else {
            continue;
        };
        if let Some(why) = unsupported(schema) {
            let name = text(version, "name");
            let message = format!("failed to check validation schema for version {name}: {why}");
            return Some(("Unknown", "StructuralError", message));
        }
        let path = Path::new("spec")
            .child("versions")
            .index(at)
            .child("schema")
            .child("openAPIV3Schema");
        all.extend(errors(schema, &path));
    }
    (!all.is_empty()).then(|| ("True", "Violations", crate::field::aggregate(&all)))
}

fn check(schema: &Value, level: Level, path: &Path, errors: &mut ErrorList) {
    let items = schema.get("items").filter(|items| items.is_object());
    if text(schema, "type") == "array" && items.is_none() {
        errors.push(Error::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = items {
        check(items, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in properties(schema) {
        check(property, Level::Field, &path.child("properties").key(name), errors);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|value| !value.is_null()) {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(Error::forbidden(&path, "must not be used at the root"));
        }
        if additional.is_object() {
            check(additional, Level::Field, &path, errors);
        }
    }
    if flag(schema, "x-kubernetes-int-or-string") {
        for word in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(schema, word) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(Error::invalid(&path.child(word), true, detail));
            }
        }
    }
    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    let skip = Skip {
        any_of: schema.get("anyOf") == Some(&int_or_string),
        first_all_of: schema.get("allOf").and_then(|all| all.get(0)?.get("anyOf")) == Some(&int_or_string),
    };
    check_junctors(schema, skip, level, path, errors);
    check_type(schema, level, path, errors);
    check_meta(schema, level, path, errors);
}

fn check_type(schema: &Value, level: Level, path: &Path, errors: &mut ErrorList) {
    let ty = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let type_path = path.child("type");
    let untyped = flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if ty.is_empty() {
            Error::required(&type_path, detail)
        } else {
            Error::invalid(&type_path, ty, detail)
        });
    } else if ty.is_empty() && !untyped {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(Error::required(&type_path, detail));
    }
    if embedded && schema.get("additionalProperties").is_some_and(|value| !value.is_null()) {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(Error::forbidden(&path.child("additionalProperties"), detail));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(Error::invalid(&type_path, ty, "must be object at the root"));
    }
}

/// What every resource has is not for the schema to say, but for restricting names.
fn check_meta(schema: &Value, level: Level, path: &Path, errors: &mut ErrorList) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let is_resource = level == Level::Root || embedded;
    let property = |name: &str| schema.get("properties").and_then(|properties| properties.get(name));
    let path_of = |name: &str| path.child("properties").key(name);
    for name in ["kind", "apiVersion"] {
        if let Some(found) = property(name).filter(|_| is_resource)
            && text(found, "type") != "string"
        {
            let path = path_of(name).child("type");
            errors.push(Error::invalid(&path, text(found, "type"), "must be string"));
        }
    }
    if let Some(metadata) = property("metadata") {
        let path = path_of("metadata");
        if is_resource && text(metadata, "type") != "object" {
            errors.push(Error::invalid(
                &path.child("type"),
                text(metadata, "type"),
                "must be object",
            ));
        }
        if level == Level::Root && !only_restricts_names(metadata) {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(Error::forbidden(&path, detail));
        }
    }
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && !preserves && properties(schema).next().is_none() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(Error::required(&path.child("properties"), detail));
    }
}

fn only_restricts_names(metadata: &Value) -> bool {
    let names_only = properties(metadata).all(|(name, _)| matches!(name, "name" | "generateName"));
    let words = metadata.as_object().into_iter().flatten();
    let mut others =
        words.filter(|(word, value)| !matches!(word.as_str(), "type" | "default" | "properties") && said(value));
    names_only && others.next().is_none()
}

/// The two ways in which junctors may speak of types: those of int-or-string.
#[derive(Clone, Copy)]
struct Skip {
    any_of: bool,
    first_all_of: bool,
}

const SKIP_NOTHING: Skip = Skip {
    any_of: false,
    first_all_of: false,
};

fn check_junctors(schema: &Value, skip: Skip, level: Level, path: &Path, errors: &mut ErrorList) {
    if !skip.any_of {
        for (at, part) in parts(schema.get("anyOf")).enumerate() {
            check_nested(part, SKIP_NOTHING, level, &path.child("anyOf").index(at), errors);
        }
    }
    for (at, part) in parts(schema.get("allOf")).enumerate() {
        let skip = Skip {
            any_of: skip.first_all_of && at == 0,
            first_all_of: false,
        };
        check_nested(part, skip, level, &path.child("allOf").index(at), errors);
    }
    for (at, part) in parts(schema.get("oneOf")).enumerate() {
        check_nested(part, SKIP_NOTHING, level, &path.child("oneOf").index(at), errors);
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        check_nested(not, SKIP_NOTHING, level, &path.child("not"), errors);
    }
    let source = text(schema, "pattern");
    if !source.is_empty()
        && let Err(why) = pattern::compile(source)
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(Error::invalid(&path.child("pattern"), source, detail));
    }
}

/// A schema under a junctor restricts values; it has no say in the structure.
fn check_nested(schema: &Value, skip: Skip, level: Level, path: &Path, errors: &mut ErrorList) {
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
    ];
    check_junctors(schema, skip, level, path, errors);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        check_nested(items, SKIP_NOTHING, level, &path.child("items"), errors);
    }
    for (name, property) in properties(schema) {
        let path = path.child("properties").key(name);
        check_nested(property, SKIP_NOTHING, Level::Field, &path, errors);
    }
    for (word, detail) in FORBIDDEN {
        let found = match word {
            "default" => schema.get(word).is_some_and(|value| !value.is_null()),
            "additionalProperties" => schema.get(word).is_some_and(|value| value.is_object() || value == true),
            _ => is_said(schema, word),
        };
        if found {
            errors.push(Error::forbidden(&path.child(word), detail));
        }
    }
    if is_said(schema, "x-kubernetes-validations") {
        let path = path.child("x-kubernetes-validations");
        errors.push(Error::forbidden(&path, "must be empty to be structural"));
    }
    if properties(schema).any(|(name, _)| name == "metadata") {
        let path = path.child("properties").key("metadata");
        errors.push(Error::forbidden(&path, "must not be specified in a nested context"));
    }
}

/// Whether what the root's junctors restrict is there in the structure. Upstream asks this of the root only.
fn check_complete(rules: &Value, structure: Option<&Value>, path: &Path, rules_path: &Path, errors: &mut ErrorList) {
    let mut nested =
        |rules: &Value, rules_path: Path| check_nested_complete(rules, structure, path, &rules_path, errors);
    if let Some(not) = rules.get("not").filter(|not| not.is_object()) {
        nested(not, rules_path.child("not"));
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (at, part) in parts(rules.get(junctor)).enumerate() {
            nested(part, rules_path.child(junctor).index(at));
        }
    }
}

fn check_nested_complete(
    rules: &Value,
    structure: Option<&Value>,
    path: &Path,
    rules_path: &Path,
    errors: &mut ErrorList,
) {
    let Some(schema) = structure else {
        errors.push(Error::required(path, format!("because it is defined in {rules_path}")));
        return;
    };
    check_complete(rules, structure, path, rules_path, errors);
    if let Some(items) = rules.get("items").filter(|items| items.is_object()) {
        let inner = schema.get("items").filter(|items| items.is_object());
        check_nested_complete(items, inner, &path.child("items"), &rules_path.child("items"), errors);
    }
    for (name, property) in properties(rules) {
        let inner = schema.get("properties").and_then(|properties| properties.get(name));
        let (path, rules_path) = (
            path.child("properties").key(name),
            rules_path.child("properties").key(name),
        );
        check_nested_complete(property, inner, &path, &rules_path, errors);
    }
}

fn text<'v>(schema: &'v Value, word: &str) -> &'v str {
    schema.get(word).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Value, word: &str) -> bool {
    schema.get(word).and_then(Value::as_bool).unwrap_or_default()
}

fn is_said(schema: &Value, word: &str) -> bool {
    schema.get(word).is_some_and(said)
}

/// Whether a word's value is more than Go's zero.
fn said(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(_) => true,
        Value::String(value) => !value.is_empty(),
        Value::Array(value) => !value.is_empty(),
        Value::Object(value) => !value.is_empty(),
    }
}

/// The schemas of a junctor; `not` has one.
fn parts(value: Option<&Value>) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Some(Value::Array(items)) => Box::new(items.iter()),
        Some(schema @ Value::Object(_)) => Box::new(std::iter::once(schema)),
        _ => Box::new(std::iter::empty()),
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    properties.map(|(name, property)| (name.as_str(), property))
}
