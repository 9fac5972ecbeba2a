//! Declared types: what a schema means to the checker and to the cost model.
//!
//! A schema without a type is not declared at all: neither is a field that has one, or a list or map of them. Sizes are
//! the largest and smallest that a request of the largest allowed size can hold, as upstream reckons them: they decide
//! which CRDs are refused as too expensive.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::escape::escape;
use super::schema::{Kind, Schema};
use super::types::Type;

/// The largest request, which bounds every list, map and string without a limit of its own.
pub const MAX_REQUEST_SIZE: i64 = 3 * 1024 * 1024;

const MAX_DURATION_SIZE: i64 = 32;
const MAX_DATETIME_SIZE: i64 = 32;
const MIN_DURATION_SIZE: i64 = 3;
const DATE_SIZE: i64 = 12;
const MIN_DATETIME_SIZE: i64 = 21;
const MIN_STRING_SIZE: i64 = 2;
const MIN_BOOL_SIZE: i64 = 4;
const MIN_NUMBER_SIZE: i64 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct DeclType {
    pub cel: Type,
    /// Fields by their escaped names, if this is an object.
    pub fields: Option<BTreeMap<String, Arc<DeclType>>>,
    pub key: Option<Arc<DeclType>>,
    pub element: Option<Arc<DeclType>>,
    pub max_elements: i64,
    /// Bytes that the smallest value takes in JSON.
    pub min_size: i64,
}

/// Where the schema stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The root of a resource: type and object metadata are always there.
    Root,
    Inside,
}

impl DeclType {
    /// The declared type of `schema`; objects are named `name`, and below it by their path.
    pub fn from_schema(schema: &Schema, place: Place, name: &str) -> Option<DeclType> {
        if schema.kind == Kind::IntOrString {
            let max = match schema.max_length {
                Some(length) => length.max(0).saturating_mul(4),
                None => MAX_REQUEST_SIZE - 2,
            };
            return Some(scalar(Type::Dyn, max, 1));
        }
        match (schema.kind, place) {
            (Kind::Object, Place::Root) => object(&schema.with_type_and_object_meta(), name),
            (Kind::Object, Place::Inside) => object(schema, name),
            (Kind::Array, _) => array(schema, name),
            (Kind::String, _) => Some(string(schema)),
            (Kind::Boolean, _) => Some(scalar(Type::Bool, 0, MIN_BOOL_SIZE)),
            (Kind::Number, _) => Some(scalar(Type::Double, 0, MIN_NUMBER_SIZE)),
            (Kind::Integer, _) => Some(scalar(Type::Int, 0, MIN_NUMBER_SIZE)),
            (Kind::IntOrString | Kind::Unknown, _) => None,
        }
    }

    /// A type of which nothing more is known to the cost model.
    pub fn opaque(of: Type) -> DeclType {
        scalar(of, MAX_REQUEST_SIZE, 0)
    }

    /// An object with these fields, by their escaped names.
    pub fn fields_of(name: &str, fields: BTreeMap<String, Arc<DeclType>>) -> DeclType {
        DeclType {
            fields: Some(fields),
            ..DeclType::opaque(Type::object(name))
        }
    }

    /// How often, at most, a value of this type occurs in one object.
    pub fn max_cardinality(&self) -> u64 {
        (MAX_REQUEST_SIZE / (self.min_size + 1)) as u64
    }

    /// The type below by one step of a path: a field, `@items`, `@values` or `@keys`.
    pub fn step(&self, name: &str) -> Option<&DeclType> {
        match name {
            "@items" | "@values" => self.element.as_deref(),
            "@keys" => self.key.as_deref(),
            field => self.fields.as_ref()?.get(field).map(|field| &**field),
        }
    }

    /// Calls `each` with every object type in here, by name.
    pub fn objects<'t>(&'t self, each: &mut dyn FnMut(&'t str, &'t DeclType)) {
        if let (Type::Struct(name), Some(fields)) = (&self.cel, &self.fields) {
            each(name, self);
            for field in fields.values() {
                field.objects(each);
            }
        }
        if let Some(element) = &self.element {
            element.objects(each);
        }
    }
}

fn place_of(schema: &Schema) -> Place {
    if schema.embedded_resource {
        Place::Root
    } else {
        Place::Inside
    }
}

fn object(schema: &Schema, name: &str) -> Option<DeclType> {
    if let Some(values) = &schema.additional {
        let values = DeclType::from_schema(values, place_of(values), &format!("{name}.@elem"))?;
        let max = match schema.max_properties {
            Some(max) => max.max(0),
            None => (MAX_REQUEST_SIZE - 2) / (values.min_size + 6),
        };
        let key = scalar(Type::String, 0, MIN_STRING_SIZE);
        return Some(DeclType {
            cel: Type::map(Type::String, values.cel.clone()),
            fields: None,
            key: Some(Arc::new(key)),
            element: Some(Arc::new(values)),
            max_elements: max,
            min_size: 2,
        });
    }
    let mut fields = BTreeMap::new();
    let mut min_size = 2;
    for (field, property) in schema.properties.iter().flatten() {
        let escaped = escape(field);
        let path = format!("{name}.{}", escaped.as_deref().unwrap_or(field));
        let Some(declared) = DeclType::from_schema(property, place_of(property), &path) else {
            continue;
        };
        if schema.required.contains(field) && !property.has_default {
            min_size += field.len() as i64 + declared.min_size + 4;
        }
        if let Some(escaped) = escaped {
            fields.insert(escaped, Arc::new(declared));
        }
    }
    Some(DeclType {
        cel: Type::object(name),
        fields: Some(fields),
        key: None,
        element: None,
        max_elements: 0,
        min_size,
    })
}

fn array(schema: &Schema, name: &str) -> Option<DeclType> {
    let items = schema.items.as_ref()?;
    let items = DeclType::from_schema(items, place_of(items), &format!("{name}.@idx"))?;
    let max = match schema.max_items {
        Some(max) => max.max(0),
        None => (MAX_REQUEST_SIZE - 2) / (items.min_size + 1),
    };
    Some(DeclType {
        cel: Type::list(items.cel.clone()),
        fields: None,
        key: None,
        element: Some(Arc::new(items)),
        max_elements: max,
        min_size: 2,
    })
}

fn string(schema: &Schema) -> DeclType {
    let unbounded = MAX_REQUEST_SIZE - 2;
    match schema.format.as_str() {
        "byte" => scalar(
            Type::Bytes,
            schema.max_length.map_or(unbounded, |length| length.max(0)),
            MIN_STRING_SIZE,
        ),
        "duration" => scalar(Type::Duration, MAX_DURATION_SIZE, MIN_DURATION_SIZE),
        "date" => scalar(Type::Timestamp, DATE_SIZE, DATE_SIZE),
        "date-time" => scalar(Type::Timestamp, MAX_DATETIME_SIZE, MIN_DATETIME_SIZE),
        _ => {
            // A character may take four bytes.
            let max = match (schema.max_length, schema.longest_enum) {
                (Some(length), _) => length.max(0).saturating_mul(4),
                (None, Some(longest)) => longest,
                (None, None) => unbounded,
            };
            scalar(Type::String, max, MIN_STRING_SIZE)
        }
    }
}

fn scalar(cel: Type, max_elements: i64, min_size: i64) -> DeclType {
    DeclType {
        cel,
        fields: None,
        key: None,
        element: None,
        max_elements,
        min_size,
    }
}
