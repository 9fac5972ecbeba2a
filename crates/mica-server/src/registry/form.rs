//! Objects between bytes and trees: as stored, as clients of a version see them, and back.
//!
//! Built-in objects are stored in one version, and what clients see is made of stored bytes. Custom objects are stored in
//! their definition's storage version of the time; those that were stored in another version than is asked for, or under
//! another schema, are converted, pruned and defaulted when they are read ([`Registry::present`]), and everything after
//! that sees them as if they were stored so.

use mica_machinery::facts::Shape;
use mica_machinery::kind::custom::CustomKind;
use mica_machinery::schema::Malformed;
use mica_machinery::{codec, meta, object};
use mica_store::{Record, Revision};
use serde_json::{Number, Value};

use super::Registry;
use super::rules::metadata_mut;
use crate::custom::Definition;
use crate::error::ApiError;
use crate::plane::Plane;
use crate::scheme::{Form, Served, join_version};
use crate::stored::{self, Content, Stored};

/// Marks bytes that no version's readers may take as they are.
const NORMALISED_BY_NONE: u64 = 0;

impl Registry {
    /// A stored object as clients of this resource see it.
    pub(crate) async fn present(
        &self,
        plane: &Plane,
        served: &Served,
        definition: Option<&Definition>,
        stored: Stored,
    ) -> Result<Stored, ApiError> {
        match Stale::of(served, definition, &stored) {
            None => Ok(stored),
            Some(stale) => {
                let objects = vec![stale.current(&stored)?];
                let mut converted = self.in_version(Some(plane), definition, stale.kind, objects).await?;
                let object = converted.pop().ok_or_else(lost)?;
                stale.repack(object, stored.revision)
            }
        }
    }

    /// The same for many at once: webhooks are asked once.
    pub(crate) async fn present_all<K: Send>(
        &self,
        plane: Option<&Plane>,
        served: &Served,
        definition: Option<&Definition>,
        mut items: Vec<(K, Stored)>,
    ) -> Result<Vec<(K, Stored)>, ApiError> {
        let mut trees = Vec::new();
        let mut places = Vec::new();
        for (at, (_, stored)) in items.iter().enumerate() {
            if let Some(stale) = Stale::of(served, definition, stored) {
                trees.push(stale.current(stored)?);
                places.push((at, stale));
            }
        }
        let Some((_, first)) = places.first() else {
            return Ok(items);
        };
        let converted = self.in_version(plane, definition, first.kind, trees).await?;
        if converted.len() != places.len() {
            return Err(lost());
        }
        for ((at, stale), object) in places.into_iter().zip(converted) {
            items[at].1 = stale.repack(object, items[at].1.revision)?;
        }
        Ok(items)
    }

    /// What is stored of an object that clients of a version wrote, and what they see of it.
    pub(super) async fn packed(
        &self,
        plane: &Plane,
        served: &Served,
        definition: Option<&Definition>,
        object: &mut Value,
    ) -> Result<Packed, ApiError> {
        let storage = match (served.custom_kind(), definition) {
            (Some(kind), Some(definition)) if kind.version != kind.storage_version => definition.storage(),
            _ => None,
        };
        let Some((storage, kind)) = storage.and_then(|storage| Some((storage, storage.custom_kind()?))) else {
            let value = pack(served, object);
            return Ok(Packed {
                shown: read_back(value.clone(), Revision(0))?,
                value,
            });
        };
        let mut bare = object.clone();
        meta::prepare_for_storage(metadata_mut(&mut bare));
        let mut converted = self.in_version(Some(plane), definition, kind, vec![bare]).await?;
        let mut stored = converted.pop().ok_or_else(lost)?;
        kind.schema
            .prepare(&mut stored, Malformed::Refuse)
            .map_err(|error| ApiError::internal_text(error.to_string()))?;
        // Its defaults are those of another version: no reader may take these bytes as they are.
        let value = pack_as(storage, &mut stored, NORMALISED_BY_NONE);
        // What the storage version cannot hold is lost, and the client sees that.
        let shown = read_back(value.clone(), Revision(0))?;
        let shown = self.present(plane, served, definition, shown).await?;
        Ok(Packed { value, shown })
    }
}

pub(super) fn lost() -> ApiError {
    ApiError::internal("a conversion lost an object")
}

/// The two forms of an object that is about to be stored: most often the same.
pub(super) struct Packed {
    /// What goes to the store.
    pub value: bytes::Bytes,
    /// What clients of the request's version see.
    shown: Stored,
}

impl Packed {
    /// The object as clients see it, at a revision.
    pub fn at(self, revision: Revision) -> Stored {
        self.shown.at(revision)
    }
}

/// A custom object that was stored in another version than is asked for, or under another schema.
struct Stale<'a> {
    served: &'a Served,
    kind: &'a CustomKind,
    definition: Option<&'a Definition>,
}

impl<'a> Stale<'a> {
    fn of(served: &'a Served, definition: Option<&'a Definition>, stored: &Stored) -> Option<Self> {
        let kind = served
            .custom_kind()
            .filter(|_| stored.normaliser != served.normaliser)?;
        Some(Self {
            served,
            kind,
            definition,
        })
    }

    /// The object in the version that it is stored in, under that version's schema of today: that one's defaults count.
    fn current(&self, stored: &Stored) -> Result<Value, ApiError> {
        let mut object = tree(stored)?;
        let api_version = object::string(&object, &["apiVersion"]);
        let mut versions = self.definition.into_iter().flat_map(Definition::versions);
        let own = versions.find(|version| version.api_version == api_version);
        if let Some(kind) = own.and_then(|version| version.custom_kind()) {
            kind.schema
                .prepare(&mut object, Malformed::Drop)
                .map_err(unpresentable)?;
            kind.schema.default(&mut object);
        }
        Ok(object)
    }

    /// An object in the version that is asked for, in its final form.
    fn repack(&self, mut object: Value, revision: Revision) -> Result<Stored, ApiError> {
        let prepared = self.kind.schema.prepare(&mut object, Malformed::Refuse);
        prepared.map_err(unpresentable)?;
        read_back(pack(self.served, &mut object), revision)
    }
}

/// Marks errors that are an object's: its definition of today cannot show it.
#[derive(Debug, thiserror::Error)]
#[error("a stored object cannot be shown")]
pub(crate) struct Unpresentable;

impl Unpresentable {
    pub fn is_why(error: &ApiError) -> bool {
        let marked = error.cause().map(<dyn std::error::Error + Send + Sync>::is::<Self>);
        marked == Some(true)
    }
}

fn unpresentable(error: mica_machinery::field::Error) -> ApiError {
    ApiError::internal_text(error.to_string()).because(Unpresentable)
}

/// An object as it is stored, called what clients of this resource expect: for those who only have to know that it is gone.
pub(crate) fn restated(served: &Served, stored: &Stored) -> Result<Stored, ApiError> {
    let mut object = tree(stored)?;
    object::set(&mut object, &["apiVersion"], served.api_version.as_str());
    read_back(pack(served, &mut object), stored.revision)
}

/// Whether an object is not as readers of this version want it.
pub(super) fn is_stale(served: &Served, stored: &Stored) -> bool {
    Stale::of(served, None, stored).is_some()
}

fn tree(stored: &Stored) -> Result<Value, ApiError> {
    serde_json::from_slice(stored.json()).map_err(|error| ApiError::internal("stored data is damaged").because(error))
}

/// A presented object as a tree, in the stored version, with kind, apiVersion and resourceVersion.
///
/// Objects that were normalised by an older table of facts are defaulted again.
pub fn stored_value(served: &Served, stored: &Stored) -> Result<Value, ApiError> {
    let mut value = tree(stored)?;
    if let Form::BuiltIn { row, .. } = served.form() {
        let (group, version, kind) = match &row.stored_as {
            Some(stored) => (stored.group, stored.version, stored.kind),
            None => (row.group, row.version, row.kind),
        };
        let map = object::object_mut(&mut value);
        map.insert("kind".to_owned(), kind.into());
        map.insert("apiVersion".to_owned(), join_version(group, version).into());
        if stored.normaliser != served.normaliser && served.stores_as_served() {
            served.strategy().default(&mut value);
        }
    } else {
        widen(&mut value);
    }
    if stored.revision != Revision(0) {
        object::set(
            &mut value,
            &["metadata", "resourceVersion"],
            stored.revision.to_string(),
        );
    }
    Ok(value)
}

/// Reads integers that are no `int64` as upstream does: as what they are printed from.
fn widen(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            if let Some(float) = number.as_u64().and_then(|number| Number::from_f64(number as f64)) {
                *number = float;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(widen),
        Value::Object(fields) => fields.values_mut().for_each(widen),
        _ => {}
    }
}

/// A presented object as a tree in the version that clients of this resource see.
pub fn served_value(served: &Served, stored: &Stored) -> Result<Value, ApiError> {
    let value = stored_value(served, stored)?;
    Ok(match served.face() {
        Some(stored) => {
            let mut value = (stored.from_stored)(value);
            let map = object::object_mut(&mut value);
            map.insert("kind".to_owned(), served.kind().into());
            map.insert("apiVersion".to_owned(), served.api_version.as_str().into());
            value
        }
        None => value,
    })
}

/// A presented object as the bytes that a client of this version would get.
pub(super) fn document(served: &Served, stored: &Stored) -> Result<bytes::Bytes, ApiError> {
    if served.stores_as_served() && stored.normaliser == served.normaliser {
        return Ok(stored.to_bytes(&served.head));
    }
    let mut json = Vec::new();
    served.encode(&served_value(served, stored)?, &mut json);
    Ok(json.into())
}

pub(crate) fn to_stored(served: &Served, object: Value) -> Value {
    match served.face() {
        Some(stored) => {
            let mut object = (stored.to_stored)(object);
            served.strategy().default(&mut object);
            object
        }
        None => object,
    }
}

/// The stored form of an object in its stored version. The object itself forgets what storing it would make it forget.
pub(super) fn pack(served: &Served, object: &mut Value) -> bytes::Bytes {
    pack_as(served, object, served.normaliser)
}

fn pack_as(served: &Served, object: &mut Value, normaliser: u64) -> bytes::Bytes {
    // Taken out and put back, not copied without: objects can be large.
    let unstored = meta::prepare_for_storage(metadata_mut(object));
    let value = match served.form() {
        Form::BuiltIn { stored_ty, .. } => {
            let map = object::object_mut(object);
            let implied = ["kind", "apiVersion"].map(|field| map.remove_entry(field));
            if served.forgets_empty() {
                codec::forget_empty(&Shape::Struct(*stored_ty), object);
            }
            let mut json = Vec::with_capacity(1024);
            codec::encode(*stored_ty, object, &mut json);
            let value = stored::pack(&json, object::string(object, &["metadata", "uid"]), normaliser);
            object::object_mut(object).extend(implied.into_iter().flatten());
            value
        }
        _ => {
            let (json, hole) = encode_custom(object);
            stored::pack_at(&json, hole, normaliser)
        }
    };
    object::object_mut(metadata_mut(object)).extend(unstored.into_iter().flatten());
    value
}

/// A custom object as upstream prints it, fields in the order of their names, and where its resourceVersion goes: right
/// before metadata's uid, which is the last field there.
fn encode_custom(object: &Value) -> (Vec<u8>, usize) {
    let mut json = Vec::with_capacity(1024);
    let mut hole = 0;
    members(object, &mut json, &mut |name, value, json| {
        if name == "metadata" {
            members(value, json, &mut |name, value, json| {
                if name == "uid" {
                    // What was just written is `,"uid":`.
                    hole = json.len() - r#","uid":"#.len();
                }
                codec::encode_untyped(value, json);
            });
        } else {
            codec::encode_untyped(value, json);
        }
    });
    (json, hole)
}

fn members(object: &Value, json: &mut Vec<u8>, value: &mut dyn FnMut(&str, &Value, &mut Vec<u8>)) {
    let mut fields: Vec<(&String, &Value)> = object.as_object().into_iter().flatten().collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    json.push(b'{');
    for (at, (name, field)) in fields.into_iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        codec::encode_untyped(&Value::String(name.clone()), json);
        json.push(b':');
        value(name, field, json);
    }
    json.push(b'}');
}

pub(super) fn read_back(value: bytes::Bytes, revision: Revision) -> Result<Stored, ApiError> {
    let content = Content::read(&Record { value, revision })?;
    Ok(content.object().expect("an object was just packed"))
}
