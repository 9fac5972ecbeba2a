//! What an expression knows about the data it reads: a structural schema, reduced to what types, sizes and values need.
//!
//! Anything with such a shape can supply one: custom resources from their structural schema (`Schema::from_openapi`),
//! built-in kinds by filling the fields in.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::escape::escape;

/// What a schema's `type` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    /// No type: only `x-kubernetes-preserve-unknown-fields` lets such values through.
    #[default]
    Unknown,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ListKind {
    #[default]
    Atomic,
    Set,
    Map,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Schema {
    pub kind: Kind,
    pub format: String,
    pub nullable: bool,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub properties: Option<BTreeMap<String, Arc<Schema>>>,
    pub additional: Option<Arc<Schema>>,
    pub items: Option<Arc<Schema>>,
    pub required: Vec<String>,
    pub list_kind: ListKind,
    /// Names of the key fields of a `map` list.
    pub list_keys: Vec<String>,
    pub max_items: Option<i64>,
    pub max_properties: Option<i64>,
    pub max_length: Option<i64>,
    /// Length in bytes of the longest string that `enum` allows, if there is an `enum`.
    pub longest_enum: Option<i64>,
    pub has_default: bool,
}

impl Schema {
    pub fn of(kind: Kind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    /// An object with these fields.
    pub fn object(fields: impl IntoIterator<Item = (&'static str, Schema)>) -> Self {
        let properties = fields
            .into_iter()
            .map(|(name, schema)| (name.to_owned(), Arc::new(schema)))
            .collect();
        Self {
            properties: Some(properties),
            ..Self::of(Kind::Object)
        }
    }

    /// Reads an OpenAPI v3 structural schema.
    pub fn from_openapi(schema: &Value) -> Self {
        let flag = |name: &str| schema[name].as_bool().unwrap_or(false);
        let text = |name: &str| schema[name].as_str().unwrap_or_default();
        let strings = |name: &str| -> Vec<String> {
            let list = schema[name].as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let below = |value: &Value| value.is_object().then(|| Arc::new(Self::from_openapi(value)));
        let kind = match text("type") {
            _ if flag("x-kubernetes-int-or-string") => Kind::IntOrString,
            "object" => Kind::Object,
            "array" => Kind::Array,
            "string" => Kind::String,
            "number" => Kind::Number,
            "integer" => Kind::Integer,
            "boolean" => Kind::Boolean,
            _ => Kind::Unknown,
        };
        let list_kind = match text("x-kubernetes-list-type") {
            "set" => ListKind::Set,
            "map" => ListKind::Map,
            _ => ListKind::Atomic,
        };
        let properties = schema["properties"].as_object().map(|properties| {
            properties
                .iter()
                .map(|(name, value)| (name.clone(), Arc::new(Self::from_openapi(value))))
                .collect()
        });
        let longest_enum = schema["enum"]
            .as_array()
            .filter(|values| !values.is_empty())
            .map(|values| {
                values
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|text| text.len() as i64)
                    .max()
                    .unwrap_or(0)
            });
        let list_keys = strings("x-kubernetes-list-map-keys");
        let read = Self {
            kind,
            format: text("format").to_owned(),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            properties,
            additional: below(&schema["additionalProperties"]),
            items: below(&schema["items"]),
            required: strings("required"),
            list_kind,
            list_keys: list_keys
                .iter()
                .map(|key| escape(key).unwrap_or_else(|| key.clone()))
                .collect(),
            max_items: schema["maxItems"].as_i64(),
            max_properties: schema["maxProperties"].as_i64(),
            max_length: schema["maxLength"].as_i64(),
            longest_enum,
            has_default: schema.get("default").is_some(),
        };
        if read.embedded_resource {
            read.with_type_and_object_meta()
        } else {
            read
        }
    }

    /// What reading values takes of it: nothing about sizes, and what is alike exists once. Most fields of a definition are
    /// alike then, and this stays for as long as the definition is served.
    pub fn for_values(&self) -> Arc<Self> {
        self.shared(&mut HashSet::new())
    }

    fn shared(&self, known: &mut HashSet<Arc<Self>>) -> Arc<Self> {
        let properties = self.properties.as_ref().map(|properties| {
            let shared = properties
                .iter()
                .map(|(name, schema)| (name.clone(), schema.shared(known)));
            shared.collect()
        });
        let schema = Self {
            kind: self.kind,
            format: self.format.clone(),
            nullable: self.nullable,
            preserve_unknown: self.preserve_unknown,
            properties,
            additional: self.additional.as_ref().map(|schema| schema.shared(known)),
            items: self.items.as_ref().map(|schema| schema.shared(known)),
            list_kind: self.list_kind,
            list_keys: self.list_keys.clone(),
            ..Self::default()
        };
        if let Some(shared) = known.get(&schema) {
            return shared.clone();
        }
        let shared = Arc::new(schema);
        known.insert(shared.clone());
        shared
    }

    /// The schema of a resource's root: `kind`, `apiVersion`, `metadata.name` and `metadata.generateName` can be read
    /// there whether or not the schema names them.
    pub fn with_type_and_object_meta(&self) -> Self {
        let is = |schema: Option<&Arc<Schema>>, kind| schema.is_some_and(|schema| schema.kind == kind);
        let field =
            |schema: &Schema, name: &str| schema.properties.as_ref().and_then(|fields| fields.get(name)).cloned();
        let metadata = field(self, "metadata").filter(|metadata| metadata.kind == Kind::Object);
        let named = |name| metadata.as_ref().and_then(|metadata| field(metadata, name));
        let complete = is(field(self, "kind").as_ref(), Kind::String)
            && is(field(self, "apiVersion").as_ref(), Kind::String)
            && is(named("name").as_ref(), Kind::String)
            && is(named("generateName").as_ref(), Kind::String);
        if complete {
            return self.clone();
        }
        let mut schema = self.clone();
        let properties = schema.properties.get_or_insert_default();
        let string = || Schema::of(Kind::String);
        properties.insert("kind".to_owned(), Arc::new(string()));
        properties.insert("apiVersion".to_owned(), Arc::new(string()));
        let metadata = Schema::object([("name", string()), ("generateName", string())]);
        properties.insert("metadata".to_owned(), Arc::new(metadata));
        schema
    }
}
