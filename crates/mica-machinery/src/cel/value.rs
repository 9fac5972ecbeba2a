//! Values at run time.
//!
//! Objects stay what they are, JSON that somebody else owns: a list or map holds a reference and its schema, and an element
//! becomes a value when an expression reads it. Only what an expression makes is owned.

use std::net::IpAddr;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use super::library::{authz, format::NamedFormat, semver::Version, time, time::Instant, url::Url};
use super::message;
use super::native::{self, Native};
use super::schema::{Kind, ListKind, Schema};
use super::types::Type;
use super::{escape, library};
use crate::codec::base64::{self, Alphabet};
use crate::object::go_type;
use crate::quantity::Quantity;

/// What a value takes beside its text.
const JSON_NODE: usize = 64;

/// How many bytes what an expression made may still take, roughly.
#[derive(Debug)]
pub struct Room(usize);

impl Default for Room {
    /// More than any object that is stored takes.
    fn default() -> Self {
        Self(64 << 20)
    }
}

impl Room {
    pub fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(bytes).ok_or("it is too large")?;
        Ok(())
    }
}

#[derive(Debug, Clone)]
pub enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Instant),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Val<'a>>>),
    Type(Type),
    Quantity(Arc<Quantity>, Origin),
    Ip(IpAddr),
    Cidr(library::ip::Cidr),
    Url(Arc<Url>),
    Semver(Arc<Version>),
    Format(&'static NamedFormat),
    Authz(Arc<authz::Value>),
    /// Data that no schema describes: it can only be compared.
    Preserved(&'a Value),
    /// An object that an expression made: its type's name and its fields.
    Object(Arc<str>, Map<'a>),
    /// What was in an optional, and why it is no value any more.
    Lost(Arc<str>),
    /// A variable whose fields are asked for one by one, by its name (`Activation::field`).
    Lazy(Arc<str>),
}

/// Where a quantity comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Text,
    /// A sum or a difference: upstream finds nothing equal to one.
    Reckoned,
}

/// A string, borrowed from the data or made by an expression.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Owned(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

/// A list and, where a schema says so, how its elements are told apart.
#[derive(Debug, Clone)]
pub struct List<'a> {
    items: Items<'a>,
    schema: Option<&'a Schema>,
}

#[derive(Debug, Clone)]
enum Items<'a> {
    Json(&'a [Value]),
    Owned(Arc<Vec<Val<'a>>>),
    /// Of a list with a schema that something was added to.
    Natives(Arc<Vec<Native<'a>>>),
    /// Two lists end to end: joining costs the same however long they are.
    Joined(Arc<(List<'a>, List<'a>)>, usize),
}

#[derive(Debug, Clone)]
pub enum Map<'a> {
    Json(&'a serde_json::Map<String, Value>, Option<&'a Schema>),
    Owned(Arc<Entries<'a>>),
}

/// A map that an expression made: the key as given, and the value.
pub type Entries<'a> = IndexMap<Key, (Val<'a>, Val<'a>)>;

/// Adds an entry to a map under construction; a later one of the same key replaces it.
pub fn put<'a>(entries: &mut Entries<'a>, key: Val<'a>, value: Val<'a>) {
    let at = Key::of(&key).or_else(|| {
        let mut unused = (entries.len()..).map(Key::Unique);
        unused.find(|at| !entries.contains_key(at))
    });
    if let Some(at) = at {
        entries.insert(at, (key, value));
    }
}

/// A map key. Numbers of different types are different keys, even if they are equal: it is looking for one that tries the
/// others ([`Map::find`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    /// By its bits.
    Double(u64),
    String(Arc<str>),
    /// Any other value that can be told from its like, by its type's name and its text.
    Value(String, String),
    /// What is like nothing else: lists, objects, and what is no number.
    Unique(usize),
}

impl<'a> Val<'a> {
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Owned(text.into()))
    }

    pub fn list(items: Vec<Val<'a>>) -> Self {
        Self::List(List::owned(items))
    }

    pub fn optional(value: Option<Val<'a>>) -> Self {
        Self::Optional(value.map(Arc::new))
    }

    /// JSON as it is, without a schema.
    pub fn dynamic(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::String(Text::Borrowed(text)),
            Value::Array(items) => Self::List(List {
                items: Items::Json(items),
                schema: None,
            }),
            Value::Object(map) => Self::Map(Map::Json(map, None)),
        }
    }

    /// JSON read by its schema: formats become times, durations and bytes.
    pub fn typed(value: &'a Value, schema: &'a Schema) -> Result<Self, String> {
        if value.is_null() {
            return match schema.nullable {
                true => Ok(Self::Null),
                false => Err("invalid data, got null for schema with nullable=false".to_owned()),
            };
        }
        let expected = |what: &str| Err(format!("invalid data, expected {what}, got {}", go_type(value)));
        match (schema.kind, value) {
            (Kind::IntOrString, Value::String(text)) => Ok(Self::String(Text::Borrowed(text))),
            (Kind::IntOrString, Value::Number(number)) if number.is_i64() => Ok(Self::dynamic(value)),
            (Kind::IntOrString, _) => {
                Err("invalid data, expected XIntOrString value to be either a string or integer".to_owned())
            }
            (Kind::Object, Value::Object(map)) => Ok(Self::Map(Map::Json(map, Some(schema)))),
            (Kind::Object, _) => {
                Err("invalid data, expected a map for the provided schema with type=object".to_owned())
            }
            (Kind::Array, Value::Array(_)) if schema.items.is_none() => {
                Err("invalid array type, expected Items with a non-empty Schema".to_owned())
            }
            (Kind::Array, Value::Array(items)) => Ok(Self::List(List {
                items: Items::Json(items),
                schema: Some(schema),
            })),
            (Kind::Array, _) => {
                Err("invalid data, expected an array for the provided schema with type=array".to_owned())
            }
            (Kind::String, Value::String(text)) => formatted(Text::Borrowed(text), &schema.format),
            (Kind::String, _) => expected("string"),
            (Kind::Number, Value::Number(number)) => Ok(Self::Double(number.as_f64().unwrap_or(f64::NAN))),
            (Kind::Number, _) => expected("float"),
            (Kind::Integer, Value::Number(number)) if number.is_i64() => Ok(Self::dynamic(value)),
            (Kind::Integer, _) => expected("int"),
            (Kind::Boolean, Value::Bool(value)) => Ok(Self::Bool(*value)),
            (Kind::Boolean, _) => expected("bool"),
            (Kind::Unknown, _) if schema.preserve_unknown => Ok(Self::Preserved(value)),
            (Kind::Unknown, _) => Err(
                "invalid type, expected object, array, number, integer, boolean or string, or no \
                 type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got "
                    .to_owned(),
            ),
        }
    }

    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Type(_) => Type::Type(None),
            Self::Quantity(..) => Type::object("kubernetes.Quantity"),
            Self::Ip(_) => Type::Opaque("net.IP".into(), Arc::new([])),
            Self::Cidr(_) => Type::Opaque("net.CIDR".into(), Arc::new([])),
            Self::Url(_) => Type::object("kubernetes.URL"),
            Self::Semver(_) => Type::object("kubernetes.Semver"),
            Self::Format(_) => Type::object("kubernetes.NamedFormat"),
            Self::Authz(value) => Type::object(value.type_name()),
            Self::Object(name, _) => Type::Struct(name.clone()),
            Self::Preserved(_) => Type::object("unknown"),
            Self::Lost(_) => Type::Error,
            Self::Lazy(name) => Type::Struct(name.clone()),
        }
    }

    /// What `size()` says, and what costs are reckoned by: 1 for what has no size.
    pub fn size(&self) -> u64 {
        match self {
            Self::String(text) => text.chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Object(name, _) if **name == *message::EMPTY => 1,
            Self::Map(map) | Self::Object(_, map) => map.len() as u64,
            Self::Ip(address) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Self::Cidr(cidr) => u64::from(cidr.bits).div_ceil(8),
            _ => 1,
        }
    }

    /// What is left of a value inside an optional that a name or a conditional stands for. Upstream takes it apart and puts
    /// it together again, which loses schemas, and most values that only Kubernetes has.
    pub(super) fn unwrapped(self) -> Self {
        match Native::of(self) {
            Native::Json(value) => Self::dynamic(value),
            Native::Made(value) => match native::lost(&value) {
                Some((what, text)) => Self::Lost(format!("unsupported conversion to ref.Val: ({what}){text}").into()),
                None => value,
            },
        }
    }

    /// The value, taken out of an optional; or why that has none any more.
    pub(super) fn taken_out(&self) -> Result<Self, String> {
        match self {
            Self::Lost(why) => Err(why.to_string()),
            value => Ok(value.clone()),
        }
    }

    /// Whether it is a list or map that an expression made.
    pub(super) fn is_made(&self) -> bool {
        match self {
            Self::List(list) => list.schema.is_none() && !list.is_json(),
            Self::Map(map) => map.json().is_none(),
            _ => false,
        }
    }

    /// The value as JSON, or why there is none.
    pub fn to_json(&self) -> Result<Value, String> {
        self.to_json_within(&mut Room::default())
    }

    /// The same where several values share the room. What shares its parts has all of them as JSON.
    pub fn to_json_within(&self, room: &mut Room) -> Result<Value, String> {
        let size = match self {
            Self::String(text) => text.len(),
            Self::Bytes(bytes) => bytes.len() * 2,
            Self::Preserved(value) => size_of(value),
            Self::List(List {
                items: Items::Json(items),
                ..
            }) => items.iter().map(size_of).sum(),
            Self::Map(Map::Json(map, _)) => size_of_members(map),
            _ => 0,
        };
        room.take(JSON_NODE + size)?;
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::from(*value),
            Self::Uint(value) => Value::from(*value),
            Self::Double(value) => serde_json::Number::from_f64(*value).map_or(Value::Null, Value::Number),
            Self::String(text) => Value::String(text.to_string()),
            Self::Bytes(bytes) => Value::String(base64::encode(bytes)),
            Self::Duration(nanos) => Value::String(time::format_duration(*nanos)),
            Self::Timestamp(instant) => Value::String(instant.to_string()),
            Self::Preserved(value) => (*value).clone(),
            Self::List(List {
                items: Items::Json(items),
                ..
            }) => Value::Array(items.to_vec()),
            Self::List(list) => {
                let items = list.iter().map(|item| item?.to_json_within(room));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Map(Map::Json(map, _)) => Value::Object((*map).clone()),
            Self::Map(Map::Owned(entries)) | Self::Object(_, Map::Owned(entries)) => {
                let mut map = serde_json::Map::new();
                for (key, value) in entries.values() {
                    let Self::String(key) = key else {
                        return Err("map keys must be strings".to_owned());
                    };
                    room.take(key.len())?;
                    map.insert(key.to_string(), value.to_json_within(room)?);
                }
                Value::Object(map)
            }
            Self::Optional(Some(value)) => value.to_json_within(room)?,
            Self::Quantity(quantity, _) => Value::String(quantity.to_string()),
            other => return Err(format!("unsupported type {}", other.type_of())),
        })
    }
}

fn size_of(value: &Value) -> usize {
    JSON_NODE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size_of).sum(),
            Value::Object(map) => size_of_members(map),
            _ => 0,
        }
}

fn size_of_members(map: &serde_json::Map<String, Value>) -> usize {
    map.iter().map(|(key, value)| key.len() + size_of(value)).sum()
}

pub(super) fn formatted<'a>(text: Text<'a>, format: &str) -> Result<Val<'a>, String> {
    match format {
        "duration" => time::parse_openapi_duration(&text).map(Val::Duration),
        "date" => time::parse_date(&text).map(Val::Timestamp),
        "date-time" => time::parse_openapi_datetime(&text).map(Val::Timestamp),
        "byte" => {
            // Not the alphabet that the format itself is checked by: `+` and `/` are good there, and fail here.
            let bytes = base64::decode(&text, Alphabet::Url);
            bytes
                .map(|bytes| Val::Bytes(bytes.into()))
                .map_err(|corrupt| format!("Invalid byte formatted string {}: {corrupt}", &*text))
        }
        _ => Ok(Val::String(text)),
    }
}

impl<'a> List<'a> {
    pub fn owned(items: Vec<Val<'a>>) -> Self {
        Self {
            items: Items::Owned(Arc::new(items)),
            schema: None,
        }
    }

    pub fn len(&self) -> usize {
        match &self.items {
            Items::Json(items) => items.len(),
            Items::Owned(items) => items.len(),
            Items::Natives(items) => items.len(),
            Items::Joined(_, length) => *length,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, index: usize) -> Option<Result<Val<'a>, String>> {
        if let Some(schema) = self.schema.and_then(|schema| schema.items.as_deref()) {
            return Some(self.native(index)?.and_then(|native| native.read(schema)));
        }
        match &self.items {
            Items::Json(items) => items.get(index).map(|item| Ok(Val::dynamic(item))),
            Items::Owned(items) => items.get(index).cloned().map(Ok),
            Items::Natives(items) => Some(Ok(match items.get(index)? {
                Native::Json(value) => Val::dynamic(value),
                Native::Made(value) => value.clone(),
            })),
            Items::Joined(parts, _) => match index.checked_sub(parts.0.len()) {
                None => parts.0.get(index),
                Some(rest) => parts.1.get(rest),
            },
        }
    }

    /// What is underneath an element.
    pub(super) fn native(&self, index: usize) -> Option<Result<Native<'a>, String>> {
        match &self.items {
            Items::Json(items) if self.schema.is_some() => items.get(index).map(|item| Ok(Native::Json(item))),
            Items::Natives(items) => items.get(index).cloned().map(Ok),
            Items::Joined(parts, _) if self.schema.is_some() => match index.checked_sub(parts.0.len()) {
                None => parts.0.native(index),
                Some(rest) => Some(parts.1.get(rest)?.map(Native::of)),
            },
            _ => Some(self.get(index)?.map(Native::of)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Val<'a>, String>> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// How elements are told apart, if the list came with a schema; its key fields, if it is a `map` list.
    pub fn kind(&self) -> Option<(ListKind, &'a [String])> {
        self.schema
            .map(|schema| (schema.list_kind, schema.list_keys.as_slice()))
    }

    pub(super) fn join(self, other: List<'a>) -> Self {
        if other.is_empty() && other.schema.is_none() {
            return self;
        }
        let length = self.len().saturating_add(other.len());
        let schema = self.schema;
        Self {
            items: Items::Joined(Arc::new((self, other)), length),
            schema,
        }
    }

    /// The same kind of list with these elements.
    pub(super) fn with_natives(&self, items: Vec<Native<'a>>) -> Self {
        Self {
            items: Items::Natives(Arc::new(items)),
            schema: self.schema,
        }
    }

    /// The same elements, to be read by a schema.
    pub(super) fn typed(self, schema: &'a Schema) -> Self {
        Self {
            schema: Some(schema),
            ..self
        }
    }

    pub(super) fn untyped(self) -> Self {
        Self { schema: None, ..self }
    }

    /// Adds to the end; in place if nobody else holds the list.
    pub(super) fn push(&mut self, item: Val<'a>) {
        if let Items::Owned(items) = &mut self.items {
            Arc::make_mut(items).push(item);
        }
    }

    pub(super) fn is_json(&self) -> bool {
        matches!(self.items, Items::Json(_))
    }

    pub(super) fn is_owned(&self) -> bool {
        matches!(self.items, Items::Owned(_))
    }
}

impl<'a> Map<'a> {
    pub fn owned(entries: Entries<'a>) -> Self {
        Self::Owned(Arc::new(entries))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Json(map, _) => map.len(),
            Self::Owned(entries) => entries.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn has_schema(&self) -> bool {
        matches!(self, Self::Json(_, Some(_)))
    }

    /// The value under `key`; `Ok(None)` if there is none.
    pub fn find(&self, key: &Val<'_>) -> Result<Option<Val<'a>>, String> {
        match self {
            Self::Owned(entries) => Ok(Key::find(entries, key).cloned()),
            Self::Json(map, schema) => {
                let Val::String(key) = key else {
                    return if schema.is_some() {
                        Err("no such overload".to_owned())
                    } else {
                        Ok(None)
                    };
                };
                find_json(map, *schema, key)
            }
        }
    }

    /// The schema of the field `name`, if a schema names it.
    pub(super) fn property(&self, name: &str) -> Option<&'a Schema> {
        match self {
            Self::Json(_, Some(schema)) => property(schema, name),
            _ => None,
        }
    }

    /// Keys as expressions see them: a field that no schema names is there as null.
    pub fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Self::Owned(entries) => entries.values().map(|(key, _)| key.clone()).collect(),
            Self::Json(map, None) => map.keys().map(|key| Val::String(Text::Borrowed(key))).collect(),
            Self::Json(map, Some(schema)) => {
                let object = schema.properties.is_some();
                let mut keys: Vec<_> = map
                    .keys()
                    .filter(|key| property(schema, key).is_some())
                    .map(|key| match object.then(|| escape::escape(key)).flatten() {
                        Some(escaped) if escaped != *key => Val::string(escaped),
                        _ => Val::String(Text::Borrowed(key)),
                    })
                    .collect();
                keys.resize(map.len(), Val::Null);
                keys
            }
        }
    }

    /// The JSON itself, if the map is that.
    pub(super) fn json(&self) -> Option<&'a serde_json::Map<String, Value>> {
        match self {
            Self::Json(map, _) => Some(map),
            Self::Owned(_) => None,
        }
    }
}

fn property<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    match &schema.properties {
        Some(properties) => properties.get(name).map(|schema| &**schema),
        None => schema.additional.as_deref(),
    }
}

fn find_json<'a>(
    map: &'a serde_json::Map<String, Value>,
    schema: Option<&'a Schema>,
    key: &str,
) -> Result<Option<Val<'a>>, String> {
    let Some(schema) = schema else {
        return Ok(map.get(key).map(Val::dynamic));
    };
    let object = schema.properties.is_some();
    let unescaped;
    let key = if object && key.contains("__") {
        let Some(name) = escape::unescape(key) else {
            return Ok(None);
        };
        unescaped = name;
        unescaped.as_str()
    } else {
        key
    };
    match (map.get(key), property(schema, key)) {
        // A null in an object is the same as an absent field.
        (Some(Value::Null), _) if object => Ok(None),
        (Some(value), Some(schema)) => Val::typed(value, schema).map(Some),
        _ => Ok(None),
    }
}

impl Key {
    /// `value` as a map key, if it can be one.
    pub fn of(value: &Val<'_>) -> Option<Self> {
        Some(match value {
            Val::Null => Self::Null,
            Val::Bool(value) => Self::Bool(*value),
            Val::Int(value) => Self::Int(*value),
            Val::Uint(value) => Self::Uint(*value),
            Val::Double(value) if value.is_nan() => return None,
            // There is one zero.
            Val::Double(value) => Self::Double((value + 0.0).to_bits()),
            Val::String(Text::Owned(text)) => Self::String(text.clone()),
            Val::String(Text::Borrowed(text)) => Self::String(Arc::from(*text)),
            Val::Duration(_) | Val::Type(_) | Val::Ip(_) | Val::Cidr(_) => {
                Self::Value(value.type_of().to_string(), format!("{value:?}"))
            }
            _ => return None,
        })
    }

    /// What a map holds under a key, or under a whole number that is equal to it. A double is found by itself alone.
    pub fn find<'e, 'a>(entries: &'e Entries<'a>, key: &Val<'_>) -> Option<&'e Val<'a>> {
        let exact = Self::of(key).and_then(|key| entries.get(&key));
        let found = exact.or_else(|| {
            let others = Self::whole(key).into_iter().flatten();
            others.filter_map(|key| entries.get(&key)).next()
        });
        found.map(|(_, value)| value)
    }

    /// The keys of whole numbers that are equal to a number, itself not among them.
    fn whole(value: &Val<'_>) -> Option<[Self; 2]> {
        let (int, uint) = match value {
            Val::Int(value) => (None, u64::try_from(*value).ok()),
            Val::Uint(value) => (i64::try_from(*value).ok(), None),
            Val::Double(value) => {
                let int = (value.fract() == 0.0 && *value > i64::MIN as f64 && *value < i64::MAX as f64)
                    .then_some(*value as i64);
                let uint = (value.fract() == 0.0 && *value >= 0.0 && *value < u64::MAX as f64).then_some(*value as u64);
                (int, uint)
            }
            _ => return None,
        };
        let int = int.map(Self::Int);
        let uint = uint.map(Self::Uint);
        let one = int.clone().or_else(|| uint.clone())?;
        Some([one.clone(), uint.unwrap_or(one)])
    }

    /// All keys of values that are equal to a constant: what upstream makes of a list of constants.
    pub fn alike(value: &Val<'_>) -> Vec<Self> {
        let double = match value {
            Val::Int(value) => Some(*value as f64),
            Val::Uint(value) => Some(*value as f64),
            _ => None,
        };
        let mut keys: Vec<_> = Self::of(value).into_iter().collect();
        keys.extend(Self::whole(value).into_iter().flatten());
        keys.extend(double.and_then(|value| Self::of(&Val::Double(value))));
        keys
    }
}

/// Values as they are written inside error messages.
impl std::fmt::Display for Val<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Double(value) => f.write_str(&library::convert::format_double(*value)),
            Self::String(text) => f.write_str(text),
            Self::Duration(nanos) => f.write_str(&crate::duration::format_go(*nanos)),
            Self::Timestamp(instant) => write!(f, "{instant}"),
            Self::Type(of) => f.write_str(of.runtime_name()),
            Self::Quantity(quantity, _) => write!(f, "{quantity}"),
            other => f.write_str(other.type_of().runtime_name()),
        }
    }
}
