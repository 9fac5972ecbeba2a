//! What is published of a definition's schema: nearly all of it in OpenAPI 3.0, and in Swagger what old kubectls bear.
//!
//! Surprises that are upstream's: a schema that is not structural is published as any object; so is, in Swagger, one that keeps
//! unknown fields at its root. A nullable value has no type in Swagger and is not required there.

use serde_json::{Map, Value, json};

use super::{CustomResource, kinds_of};
use crate::field::Path;
use crate::kind::extension::schema::has_invalid_type;
use crate::openapi::Describe;
use crate::openapi::schema::{Dialect, wrap};
use crate::schema::structural;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
/// A kind whose fields say what those of every kind mean.
const ANY_KIND: &str = "io.k8s.api.core.v1.ConfigMap";

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// The definitions of a resource's objects and lists, by name.
pub fn definitions(resource: &CustomResource, dialect: Dialect, describe: &dyn Describe) -> Map<String, Value> {
    let publisher = Publisher { dialect, describe };
    let mut object = publisher.object(resource);
    let mut list = publisher.list(resource);
    for (definition, kind) in [(&mut object, &resource.kind), (&mut list, &resource.list_kind)] {
        definition.extend([kinds_of(resource, kind)]);
        if !resource.selectable.is_empty() {
            let fields: Vec<Value> = resource
                .selectable
                .iter()
                .map(|path| json!({"fieldPath": path}))
                .collect();
            definition.insert("x-kubernetes-selectable-fields".to_owned(), fields.into());
        }
    }
    [
        (resource.type_name(&resource.kind), object.into()),
        (resource.type_name(&resource.list_kind), list.into()),
    ]
    .into_iter()
    .collect()
}

struct Publisher<'a> {
    dialect: Dialect,
    describe: &'a dyn Describe,
}

impl Publisher<'_> {
    fn object(&self, resource: &CustomResource) -> Map<String, Value> {
        let any = || Map::from_iter([("type".to_owned(), "object".into())]);
        let Some(schema) = resource.schema.as_deref().filter(|schema| is_structural(schema)) else {
            return any();
        };
        if self.dialect == Dialect::Swagger && (resource.preserves_unknown || is_true(schema, PRESERVE)) {
            return any();
        }
        let mut published = self.structural(schema);
        self.put_meta(&mut published);
        published
    }

    fn list(&self, resource: &CustomResource) -> Map<String, Value> {
        let more = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
        let mut list = Map::new();
        let mut put = |key: &str, value: Value| list.insert(key.to_owned(), value);
        put(
            "description",
            format!("{} is a list of {}", resource.list_kind, resource.kind).into(),
        );
        put("type", "object".into());
        put("required", json!(["items"]));
        let items = json!({
            "description": format!("List of {}. {more}", resource.plural),
            "type": "array",
            "items": self.dialect.reference(&resource.type_name(&resource.kind)),
        });
        let metadata = self.metadata("ListMeta", &format!("{META}.Status"));
        put("properties", json!({"items": items, "metadata": metadata}));
        self.put_type(&mut list);
        list
    }

    /// Gives an object what every kind has, whatever its schema says about it.
    fn put_meta(&self, schema: &mut Map<String, Value>) {
        let metadata = self.metadata("ObjectMeta", ANY_KIND);
        properties(schema).insert("metadata".to_owned(), metadata);
        self.put_type(schema);
    }

    fn put_type(&self, schema: &mut Map<String, Value>) {
        for field in ["apiVersion", "kind"] {
            let mut property = Map::from_iter([("type".to_owned(), "string".into())]);
            if let Some(text) = self.describe.of_field(ANY_KIND, field) {
                property.insert("description".to_owned(), text.into());
            }
            properties(schema).insert(field.to_owned(), property.into());
        }
    }

    /// A reference to metadata, with the description of another kind's.
    fn metadata(&self, name: &str, described_at: &str) -> Value {
        let mut property = Map::new();
        if let Value::Object(reference) = self.dialect.reference(&format!("{META}.{name}")) {
            property.extend(reference);
        }
        if let Some(text) = self.describe.of_field(described_at, "metadata") {
            property.insert("description".to_owned(), text.into());
        }
        wrap(property, self.dialect)
    }

    /// A schema outside of junctors.
    fn structural(&self, schema: &Value) -> Map<String, Value> {
        let mut out = words(schema);
        match self.dialect {
            Dialect::OpenApi3 => {
                put_junctors(&mut out, schema);
                unfold_int_or_string(&mut out, schema);
            }
            Dialect::Swagger => out = simplify(out, schema),
        }
        // Swagger says less of values that may be anything, or null.
        let is_swagger = self.dialect == Dialect::Swagger;
        let open = is_swagger && is_true(schema, PRESERVE);
        let bare = open || (is_swagger && is_true(schema, "nullable"));
        if let Some(items) = schema.get("items").filter(|items| items.is_object() && !bare) {
            out.insert("items".to_owned(), self.structural(items).into());
        }
        let fields = schema.get("properties").and_then(Value::as_object);
        if let Some(fields) = fields.filter(|fields| !fields.is_empty() && !bare) {
            let published: Map<String, Value> = fields
                .iter()
                .map(|(name, field)| (name.clone(), self.structural(field).into()))
                .collect();
            out.insert("properties".to_owned(), published.into());
        }
        match schema.get("additionalProperties") {
            Some(Value::Bool(allowed)) => drop(out.insert("additionalProperties".to_owned(), (*allowed).into())),
            Some(values @ Value::Object(_)) => {
                out.insert("additionalProperties".to_owned(), self.structural(values).into());
            }
            _ => {}
        }
        if is_true(schema, EMBEDDED) && !open {
            self.put_meta(&mut out);
            require(&mut out, &["kind", "apiVersion"]);
        }
        out
    }
}

/// Whether a schema is one that pruning and defaulting can go by; others are not published.
fn is_structural(schema: &Value) -> bool {
    !has_invalid_type(schema)
        && structural::unsupported(schema).is_none()
        && structural::errors(schema, &Path::default()).is_empty()
}

/// What a schema says about a value itself.
const WORDS: [&str; 30] = [
    "default",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "maximum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minimum",
    "minItems",
    "minLength",
    "minProperties",
    "multipleOf",
    "nullable",
    "pattern",
    "required",
    "title",
    "type",
    "uniqueItems",
    EMBEDDED,
    INT_OR_STRING,
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    PRESERVE,
    "x-kubernetes-validations",
];

/// Those of the words that say something: empty texts and lists do not, nor does what is false.
fn words(schema: &Value) -> Map<String, Value> {
    let says = |word: &str, value: &Value| match value {
        Value::Null => false,
        // Values, not words.
        _ if matches!(word, "default" | "example") => true,
        Value::Bool(flag) => *flag,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Number(_) | Value::Object(_) => true,
    };
    let known = WORDS.iter().filter_map(|word| Some((*word, schema.get(word)?)));
    known
        .filter(|(word, value)| says(word, value))
        .map(|(word, value)| (word.to_owned(), value.clone()))
        .collect()
}

fn put_junctors(out: &mut Map<String, Value>, schema: &Value) {
    for junctor in ["allOf", "anyOf", "oneOf"] {
        let parts = schema.get(junctor).and_then(Value::as_array);
        if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
            let parts: Vec<Value> = parts.iter().map(nested).collect();
            out.insert(junctor.to_owned(), parts.into());
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        out.insert("not".to_owned(), nested(not));
    }
}

/// A schema inside a junctor. What it says about additional properties is not published.
fn nested(schema: &Value) -> Value {
    let mut out = words(schema);
    put_junctors(&mut out, schema);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        out.insert("items".to_owned(), nested(items));
    }
    let fields = schema.get("properties").and_then(Value::as_object);
    if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
        let published: Map<String, Value> = fields
            .iter()
            .map(|(name, field)| (name.clone(), nested(field)))
            .collect();
        out.insert("properties".to_owned(), published.into());
    }
    out.into()
}

/// Says in junctors what int-or-string means, unless the schema does.
fn unfold_int_or_string(out: &mut Map<String, Value>, schema: &Value) {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let said = schema.get("anyOf") == Some(&either)
        || schema.get("allOf").and_then(|all| all.get(0)?.get("anyOf")) == Some(&either);
    if said || !is_true(schema, INT_OR_STRING) {
        return;
    }
    if !out.contains_key("anyOf") {
        out.insert("anyOf".to_owned(), either);
        return;
    }
    let all = out.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.insert(0, json!({"anyOf": either}));
    }
}

/// Leaves out what Swagger cannot say, and what old kubectls would take the wrong way.
fn simplify(mut out: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    out.remove("default");
    let nullable = out.remove("nullable").is_some();
    let preserves = is_true(schema, PRESERVE);
    let ty = out.get("type").and_then(Value::as_str);
    let no_items = nullable || preserves || !schema.get("items").is_some_and(Value::is_object);
    let untyped = nullable || (ty == Some("array") && no_items) || (ty == Some("object") && preserves);
    if untyped {
        out.remove("type");
    }
    let is_nullable = |schema: Option<&Value>| schema.is_some_and(|schema| is_true(schema, "nullable"));
    if is_nullable(schema.get("additionalProperties")) {
        out.remove("required");
    }
    if !nullable
        && !preserves
        && let Some(Value::Array(required)) = out.get_mut("required")
    {
        let field = |name: &Value| schema.get("properties")?.get(name.as_str()?);
        required.retain(|name| !is_nullable(field(name)));
        if required.is_empty() {
            out.remove("required");
        }
    }
    out
}

fn is_true(schema: &Value, word: &str) -> bool {
    schema.get(word) == Some(&Value::Bool(true))
}

fn properties(schema: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    properties
        .as_object_mut()
        .expect("properties are published as an object")
}

fn require(schema: &mut Map<String, Value>, names: &[&str]) {
    let required = schema.entry("required").or_insert_with(|| json!([]));
    let required = required.as_array_mut().expect("required is published as a list");
    for name in names {
        if !required.iter().any(|known| known == name) {
            required.push((*name).into());
        }
    }
}
