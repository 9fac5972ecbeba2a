//! Schemas of built-in types, made from the fact table by the rules of upstream's generator.
//!
//! Surprises that are upstream's: a struct that is no pointer has the default `{}` whether or not it may be left out; list
//! and map elements have the zero value as default; types that unmarshal themselves have none; and Swagger documents show
//! no default at all.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Describe;
use crate::facts::{Field, ListKind, MapKind, PatchStrategy, Shape, Type, facts};

/// Which OpenAPI a schema is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// OpenAPI 2.0, one document for everything.
    Swagger,
    /// OpenAPI 3.0, a document for each group and version.
    OpenApi3,
}

impl Dialect {
    /// `{"$ref": …}` to a type of the same document, or what says that it is text.
    pub fn reference(self, name: &str) -> Value {
        if name == TEXT {
            return json!({"type": "string"});
        }
        let place = match self {
            Dialect::Swagger => "#/definitions/",
            Dialect::OpenApi3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{place}{name}")})
    }
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// What stands for a type where an answer is text and no object.
pub const TEXT: &str = "string";

/// The type of patches' bodies, which is any JSON.
pub const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// The types that are not structs of the fact table: their names and schemas in OpenAPI 3.0 and in Swagger.
const SPECIAL: &[(&str, &str, &str)] = &[
    (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        r#"{"oneOf":[{"type":"string"},{"type":"number"}]}"#,
        r#"{"type":"string"}"#,
    ),
    (PATCH, r#"{"type":"object"}"#, r#"{"type":"object"}"#),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.Duration",
        r#"{"type":"string"}"#,
        r#"{"type":"string"}"#,
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        r#"{"type":"object"}"#,
        r#"{"type":"object"}"#,
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        r#"{"type":"string","format":"date-time"}"#,
        r#"{"type":"string","format":"date-time"}"#,
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        r#"{"type":"string","format":"date-time"}"#,
        r#"{"type":"string","format":"date-time"}"#,
    ),
    (
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        r#"{"type":"object"}"#,
        r#"{"type":"object"}"#,
    ),
    (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        r#"{"format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}]}"#,
        r#"{"type":"string","format":"int-or-string"}"#,
    ),
];

/// One type's schema, without what says which kinds it is.
pub fn definition(name: &str, dialect: Dialect, describe: &dyn Describe) -> Map<String, Value> {
    let mut schema = Map::new();
    if let Some(text) = describe.of_type(name) {
        schema.insert("description".to_owned(), text.into());
    }
    if let Some(ty) = facts().openapi(name) {
        let found = facts().ty(ty);
        describe_own(&mut schema, found, None);
        struct_schema(&mut schema, found, dialect, describe);
    } else if let Some((_, three, swagger)) = SPECIAL.iter().find(|(known, ..)| *known == name) {
        let text = if dialect == Dialect::OpenApi3 { three } else { swagger };
        let special: Map<String, Value> = serde_json::from_str(text).expect("the table above is JSON");
        schema.extend(special);
    }
    schema
}

/// The types that a type's schema refers to are added to `names`, and those that they refer to.
pub fn collect(name: &str, names: &mut BTreeSet<String>) {
    if name == TEXT || !names.insert(name.to_owned()) {
        return;
    }
    let Some(ty) = facts().openapi(name) else {
        return;
    };
    for field in &facts().ty(ty).fields {
        if let Some(inner) = referred(&field.shape) {
            collect(&inner, names);
        }
    }
    // The schema-or-something types refer to nothing in OpenAPI, although they hold schemas.
}

fn struct_schema(schema: &mut Map<String, Value>, ty: &Type, dialect: Dialect, describe: &dyn Describe) {
    schema.insert("type".to_owned(), "object".into());
    let required: Vec<&str> = ty
        .fields
        .iter()
        .filter(|f| f.printed.required)
        .map(|f| f.json)
        .collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    let mut properties = Map::new();
    for (at, field) in ty.fields.iter().enumerate() {
        properties.insert(field.json.to_owned(), property(ty, at, field, dialect, describe));
    }
    if !properties.is_empty() {
        schema.insert("properties".to_owned(), properties.into());
    }
    if ty.printed_atomic {
        schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    }
    let unions: Vec<Value> = facts()
        .unions(ty.id)
        .map(|union| {
            let members: Map<String, Value> = union
                .members
                .iter()
                .map(|(json, go)| ((*json).to_owned(), (*go).into()))
                .collect();
            let mut entry = json!({"fields-to-discriminateBy": members});
            if !union.discriminator.is_empty() {
                entry["discriminator"] = union.discriminator.into();
            }
            entry
        })
        .collect();
    if !unions.is_empty() {
        schema.insert("x-kubernetes-unions".to_owned(), unions.into());
    }
}

fn property(ty: &Type, at: usize, field: &Field, dialect: Dialect, describe: &dyn Describe) -> Value {
    let mut schema = Map::new();
    if let Some(text) = describe.of_field(ty.openapi, field.json) {
        schema.insert("description".to_owned(), text.into());
    }
    describe_own(&mut schema, ty, Some(at));
    let scalar = !matches!(field.shape, Shape::List(_) | Shape::StringList | Shape::Map(_));
    if scalar && field.printed.enumeration().next().is_some() {
        describe_values(&mut schema, field);
    }
    if let Some(default) = default(field).filter(|_| dialect == Dialect::OpenApi3) {
        schema.insert("default".to_owned(), default);
    }
    put_shape(&mut schema, field, &field.shape, 0, dialect);
    put_extensions(&mut schema, field);
    wrap(schema, dialect)
}

/// What our own kinds' facts say; upstream's texts come from elsewhere.
fn describe_own(schema: &mut Map<String, Value>, ty: &Type, field: Option<usize>) {
    if let Some(text) = facts().description(ty.id, field) {
        schema.insert("description".to_owned(), text.into());
    }
}

/// Adds the possible values to the description, and what they mean, as upstream's generator does.
fn describe_values(schema: &mut Map<String, Value>, field: &Field) {
    let mut text = match schema.get("description") {
        Some(Value::String(text)) => format!("{text}\n\n{}", "\n".repeat(field.printed.blank_lines)),
        _ => String::new(),
    };
    text.push_str("Possible enum values:");
    let mut lines: Vec<String> = field
        .printed
        .described_enumeration()
        .map(|(value, meaning)| format!("\n - `\"{value}\"` {meaning}"))
        .collect();
    lines.sort_unstable();
    for line in &lines {
        text.push_str(line.trim_end());
    }
    schema.insert("description".to_owned(), text.into());
}

fn put_shape(schema: &mut Map<String, Value>, field: &Field, shape: &Shape, level: usize, dialect: Dialect) {
    let mut put = |key: &str, value: Value| schema.insert(key.to_owned(), value);
    match shape {
        Shape::List(inner) => {
            put("type", "array".into());
            put("items", element(field, inner, level + 1, dialect));
        }
        Shape::StringList => {
            put("type", "array".into());
            put("items", element(field, &Shape::String, level + 1, dialect));
        }
        Shape::Map(inner) => {
            put("type", "object".into());
            put("additionalProperties", element(field, inner, level + 1, dialect));
        }
        _ => match scalar(shape, field.go_type(level)) {
            Some((r#type, format)) => {
                put("type", r#type.into());
                if !format.is_empty() {
                    put("format", format.into());
                }
                let values: Vec<&str> = field.printed.enumeration().collect();
                if !values.is_empty() {
                    put("enum", values.into());
                }
            }
            None => {
                let name = referred(shape).expect("a shape is a list, a map, a scalar or has a name");
                if let Value::Object(reference) = dialect.reference(&name) {
                    schema.extend(reference);
                }
            }
        },
    }
}

/// The schema of a list's items or a map's values.
fn element(field: &Field, shape: &Shape, level: usize, dialect: Dialect) -> Value {
    let mut schema = Map::new();
    if let Some(zero) = zero(shape).filter(|_| dialect == Dialect::OpenApi3) {
        schema.insert("default".to_owned(), zero);
    }
    put_shape(&mut schema, field, shape, level, dialect);
    wrap(schema, dialect)
}

/// In OpenAPI 3.0 nothing may stand beside a `$ref`, so that it goes into an `allOf` of its own.
pub fn wrap(mut schema: Map<String, Value>, dialect: Dialect) -> Value {
    if dialect == Dialect::OpenApi3
        && schema.len() > 1
        && let Some(target) = schema.remove("$ref")
    {
        schema.insert("allOf".to_owned(), json!([{"$ref": target}]));
    }
    schema.into()
}

fn put_extensions(schema: &mut Map<String, Value>, field: &Field) {
    let mut put = |key: &str, value: Value| schema.insert(format!("x-kubernetes-{key}"), value);
    if field.printed.list {
        match &field.list {
            ListKind::Atomic => put("list-type", "atomic".into()),
            ListKind::Set => put("list-type", "set".into()),
            ListKind::Map(keys) => {
                put("list-map-keys", keys.clone().into());
                put("list-type", "map".into())
            }
        };
    }
    match field.printed.map {
        Some(MapKind::Atomic) => drop(put("map-type", "atomic".into())),
        Some(MapKind::Granular) => drop(put("map-type", "granular".into())),
        None => {}
    }
    if !field.patch_key.is_empty() {
        put("patch-merge-key", field.patch_key.into());
    }
    let strategy = match field.patch_strategy {
        PatchStrategy::None => return,
        PatchStrategy::Merge => "merge",
        PatchStrategy::Replace => "replace",
        PatchStrategy::RetainKeys => "retainKeys",
        PatchStrategy::MergeRetainKeys => "merge,retainKeys",
    };
    put("patch-strategy", strategy.into());
}

fn default(field: &Field) -> Option<Value> {
    if let Some(marked) = field.default_value() {
        return Some(marked);
    }
    let omitted = field.omit_empty && !matches!(field.shape, Shape::Struct(_));
    zero(&field.shape).filter(|_| !field.pointer && !omitted)
}

/// The value that Go gives an unset variable of this shape, where OpenAPI says it.
fn zero(shape: &Shape) -> Option<Value> {
    match shape {
        Shape::String => Some("".into()),
        Shape::Bool => Some(false.into()),
        Shape::Struct(_) => Some(json!({})),
        _ => scalar(shape, "")
            .filter(|(r#type, _)| matches!(*r#type, "integer" | "number"))
            .map(|_| 0.into()),
    }
}

/// OpenAPI's type and format of what has no schema of its own.
fn scalar(shape: &Shape, go: &str) -> Option<(&'static str, &'static str)> {
    Some(match shape {
        Shape::String => ("string", ""),
        Shape::Bytes => ("string", "byte"),
        Shape::Bool => ("boolean", ""),
        // Go's int has 64 bits here, and 32 to upstream's generator.
        Shape::Int64 if go == "int" => ("integer", "int32"),
        Shape::Int32 | Shape::Uint16 => ("integer", "int32"),
        Shape::Int64 | Shape::Uint32 | Shape::Uint64 => ("integer", "int64"),
        Shape::Uint8 => ("integer", "byte"),
        Shape::Float32 => ("number", "float"),
        Shape::Float64 => ("number", "double"),
        _ => return None,
    })
}

/// The type that a shape refers to, itself or by its elements.
fn referred(shape: &Shape) -> Option<String> {
    let own = |package: &str, name: &str| Some(format!("{package}.{name}"));
    match shape {
        Shape::Struct(ty) => Some(facts().ty(*ty).openapi.to_owned()),
        Shape::List(inner) | Shape::Map(inner) => referred(inner),
        Shape::Time => own(META, "Time"),
        Shape::MicroTime => own(META, "MicroTime"),
        Shape::Duration => own(META, "Duration"),
        Shape::FieldsV1 => own(META, "FieldsV1"),
        Shape::Quantity => own("io.k8s.apimachinery.pkg.api.resource", "Quantity"),
        Shape::IntOrString => own("io.k8s.apimachinery.pkg.util.intstr", "IntOrString"),
        Shape::Raw => own("io.k8s.apimachinery.pkg.runtime", "RawExtension"),
        Shape::Json => own(EXTENSIONS, "JSON"),
        Shape::SchemaOrBool(_) => own(EXTENSIONS, "JSONSchemaPropsOrBool"),
        Shape::SchemaOrArray(_) => own(EXTENSIONS, "JSONSchemaPropsOrArray"),
        Shape::SchemaOrStringArray(_) => own(EXTENSIONS, "JSONSchemaPropsOrStringArray"),
        _ => None,
    }
}
