//! What selectors, indexes and the garbage collector ask of an object, read from its stored bytes without building a tree.
//!
//! Reading stops at the end of `metadata`, which stored objects have near their beginning: what follows costs nothing
//! and is not checked.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::label::Labels;

/// Bytes that are no object.
#[derive(Debug, thiserror::Error)]
#[error("the stored object is not readable")]
pub struct RawError(#[source] serde_json::Error);

/// An object's metadata, borrowed from its bytes where nothing is escaped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RawMeta<'a> {
    pub name: Cow<'a, str>,
    pub namespace: Cow<'a, str>,
    pub uid: Cow<'a, str>,
    pub resource_version: Cow<'a, str>,
    pub creation_timestamp: Cow<'a, str>,
    /// Empty unless the object is being deleted.
    pub deletion_timestamp: Cow<'a, str>,
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub owners: Vec<RawOwner<'a>>,
    pub finalizers: Vec<Cow<'a, str>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RawOwner<'a> {
    pub api_version: Cow<'a, str>,
    pub kind: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub uid: Cow<'a, str>,
}

impl<'a> RawMeta<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RawError> {
        let mut meta = Self::default();
        let mut found = false;
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        match (ObjectSeed {
            meta: &mut meta,
            found: &mut found,
        })
        .deserialize(&mut deserializer)
        {
            // The seed ends the reading with an error once it has what it wants.
            Err(error) if !found => Err(RawError(error)),
            _ => Ok(meta),
        }
    }

    pub fn is_being_deleted(&self) -> bool {
        !self.deletion_timestamp.is_empty()
    }

    /// The value of a field that every kind can be selected by.
    pub fn field(&self, field: &str) -> Option<&str> {
        match field {
            "metadata.name" => Some(&self.name),
            "metadata.namespace" => Some(&self.namespace),
            _ => None,
        }
    }
}

impl Labels for RawMeta<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| &**value)
    }
}

/// The string at a path of member names in an object's bytes; `None` if there is none.
pub fn text_at<'a>(bytes: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    let mut found = None;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // The error that ends the reading early is no error.
    let _ = PathSeed {
        path,
        found: &mut found,
    }
    .deserialize(&mut deserializer);
    found
}

const DONE: &str = "done";

struct ObjectSeed<'m, 'a> {
    meta: &'m mut RawMeta<'a>,
    found: &'m mut bool,
}

impl<'a> DeserializeSeed<'a> for ObjectSeed<'_, 'a> {
    type Value = ();
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for ObjectSeed<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Text)? {
            if key == "metadata" {
                map.next_value_seed(MetaSeed(self.meta))?;
                *self.found = true;
                return Err(A::Error::custom(DONE));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

struct MetaSeed<'m, 'a>(&'m mut RawMeta<'a>);

impl<'a> DeserializeSeed<'a> for MetaSeed<'_, 'a> {
    type Value = ();
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for MetaSeed<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let meta = self.0;
        while let Some(key) = map.next_key_seed(Text)? {
            match &*key {
                "name" => meta.name = map.next_value_seed(Text)?,
                "namespace" => meta.namespace = map.next_value_seed(Text)?,
                "uid" => meta.uid = map.next_value_seed(Text)?,
                "resourceVersion" => meta.resource_version = map.next_value_seed(Text)?,
                "creationTimestamp" => meta.creation_timestamp = map.next_value_seed(Text)?,
                "deletionTimestamp" => meta.deletion_timestamp = map.next_value_seed(Text)?,
                "labels" => meta.labels = map.next_value_seed(Pairs)?,
                "ownerReferences" => meta.owners = map.next_value_seed(List(|| OwnerSeed))?,
                "finalizers" => meta.finalizers = map.next_value_seed(List(|| Text))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A string, borrowed if it can be; anything else is empty.
struct Text;

impl<'a> DeserializeSeed<'a> for Text {
    type Value = Cow<'a, str>;
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Cow<'a, str>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Text {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
}

struct Pairs;

impl<'a> DeserializeSeed<'a> for Pairs {
    type Value = Vec<(Cow<'a, str>, Cow<'a, str>)>;
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Pairs {
    type Value = Vec<(Cow<'a, str>, Cow<'a, str>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key_seed(Text)? {
            pairs.push((key, map.next_value_seed(Text)?));
        }
        Ok(pairs)
    }
}

/// A list whose elements are read by seeds that the function makes; null is empty.
struct List<F>(F);

impl<'a, S: DeserializeSeed<'a>, F: Fn() -> S> DeserializeSeed<'a> for List<F> {
    type Value = Vec<S::Value>;
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a, S: DeserializeSeed<'a>, F: Fn() -> S> Visitor<'a> for List<F> {
    type Value = Vec<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed((self.0)())? {
            items.push(item);
        }
        Ok(items)
    }
}

struct OwnerSeed;

impl<'a> DeserializeSeed<'a> for OwnerSeed {
    type Value = RawOwner<'a>;
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for OwnerSeed {
    type Value = RawOwner<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an owner reference")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut owner = RawOwner::default();
        while let Some(key) = map.next_key_seed(Text)? {
            match &*key {
                "apiVersion" => owner.api_version = map.next_value_seed(Text)?,
                "kind" => owner.kind = map.next_value_seed(Text)?,
                "name" => owner.name = map.next_value_seed(Text)?,
                "uid" => owner.uid = map.next_value_seed(Text)?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(owner)
    }
}

struct PathSeed<'p, 'a> {
    path: &'p [&'p str],
    found: &'p mut Option<Cow<'a, str>>,
}

impl<'a> DeserializeSeed<'a> for PathSeed<'_, 'a> {
    type Value = ();
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            *self.found = Some(deserializer.deserialize_str(Text)?);
            return Ok(());
        }
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for PathSeed<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Text)? {
            if key == self.path[0] {
                map.next_value_seed(PathSeed {
                    path: &self.path[1..],
                    found: self.found,
                })?;
                return Err(A::Error::custom(DONE));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}
