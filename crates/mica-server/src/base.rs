//! The base layer: what every plane is born with, held once.
//!
//! A layer is immutable and named by the hash of its content. A plane names a layer and overlays its own keys: reads fall
//! through to the layer, a write copies, a delete leaves a mark. What differs between planes (uid, creationTimestamp,
//! resourceVersion) is put into the template when it is read, so a fresh plane needs nothing written into it.
//! `docs/design/base-layer.md` tells how planes move to newer layers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use mica_api::{GroupResource, PlaneId};
use mica_machinery::object;
use mica_store::{Record, Revision};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::scheme::Scheme;
use crate::stored::{self, Content, Stored};

/// Stands for a uid in templates; as long as one.
const UID: &str = "00000000-0000-0000-0000-000000000000";
/// Stands for a time in templates; as long as one.
const TIME: &str = "0001-02-03T04:05:06Z";

/// One layer.
#[derive(Debug, Default)]
pub struct BaseLayer {
    pub id: String,
    /// By storage resource, then by the rest of the key, in key order.
    templates: HashMap<GroupResource, BTreeMap<String, Template>>,
}

#[derive(Debug)]
struct Template {
    value: bytes::Bytes,
    /// Where in the value uids and times stand.
    uid_at: usize,
    time_at: usize,
}

/// What uids of base objects are made of, beside the object's place: drawn for root, and with its id for a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Seed {
    drawn: Uuid,
    plane: PlaneId,
}

impl Seed {
    pub fn random() -> Self {
        Self {
            drawn: Uuid::new_v4(),
            plane: PlaneId::ROOT,
        }
    }

    /// The seed of a plane of the same store.
    #[must_use]
    pub fn of_plane(self, plane: PlaneId) -> Self {
        Self { plane, ..self }
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.plane {
            PlaneId::ROOT => write!(f, "{}", self.drawn),
            plane => write!(f, "{}/{plane}", self.drawn),
        }
    }
}

impl From<Seed> for String {
    fn from(seed: Seed) -> Self {
        seed.to_string()
    }
}

impl TryFrom<String> for Seed {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let damaged = || format!("{text:?} is not a seed");
        let (drawn, plane) = match text.split_once('/') {
            Some((drawn, plane)) => (drawn, PlaneId::parse(plane).map_err(|_| damaged())?),
            None => (text.as_str(), PlaneId::ROOT),
        };
        let drawn = Uuid::parse_str(drawn).map_err(|_| damaged())?;
        let seed = Self { drawn, plane };
        // Uids are made of the text.
        if seed.to_string() == text {
            Ok(seed)
        } else {
            Err(damaged())
        }
    }
}

/// What makes a plane's copy of the layer its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// A fork keeps its origin's, so that uids stay.
    pub seed: Seed,
    pub created: jiff::Timestamp,
    /// The revision that base objects have.
    pub revision: Revision,
}

impl BaseLayer {
    /// Makes a layer of objects. Panics on one that the scheme does not serve: the list is ours.
    pub fn new(scheme: &Scheme, objects: &[Value]) -> Self {
        let id = Self::id_of(objects);
        let mut templates: HashMap<GroupResource, BTreeMap<String, Template>> = HashMap::new();
        for value in objects {
            let api_version = object::string(value, &["apiVersion"]);
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let kind = object::string(value, &["kind"]);
            let Some(served) = scheme.by_kind(group, version, kind) else {
                continue;
            };
            let rest = match object::namespace(value) {
                "" => object::name(value).to_owned(),
                namespace => format!("{namespace}/{}", object::name(value)),
            };
            let mut value = value.clone();
            object::set(&mut value, &["metadata", "uid"], UID);
            object::set(&mut value, &["metadata", "creationTimestamp"], TIME);
            for field in ["kind", "apiVersion"] {
                object::remove(&mut value, &[field]);
            }
            served.strategy().default(&mut value);
            let mut json = Vec::new();
            served.encode(&value, &mut json);
            let value = stored::pack(&json, UID, served.normaliser);
            let place = |text: &str| {
                memchr::memmem::find(&value, text.as_bytes()).expect("the template holds what was just put in")
            };
            let (uid_at, time_at) = (place(UID), place(TIME));
            templates
                .entry(served.storage.clone())
                .or_default()
                .insert(rest, Template { value, uid_at, time_at });
        }
        Self { id, templates }
    }

    /// The name of the layer that these objects make.
    pub fn id_of(objects: &[Value]) -> String {
        let mut hash = Sha256::new();
        for object in objects {
            hash.update(object.to_string());
            hash.update([0]);
        }
        hash.finalize()
            .iter()
            .take(10)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The object at a place, as the plane of `birth` has it.
    pub fn get(&self, resource: &GroupResource, rest: &str, birth: &Birth) -> Option<Stored> {
        let template = self.templates.get(resource)?.get(rest)?;
        Some(template.materialise(resource, rest, birth))
    }

    pub fn contains(&self, resource: &GroupResource, rest: &str) -> bool {
        self.templates
            .get(resource)
            .is_some_and(|templates| templates.contains_key(rest))
    }

    /// Whether two layers have the same at a place, or both have nothing.
    pub fn agrees(&self, other: &Self, resource: &GroupResource, rest: &str) -> bool {
        let value = |layer: &Self| Some(layer.templates.get(resource)?.get(rest)?.value.clone());
        value(self) == value(other)
    }

    /// The rests of the keys of a resource that come after `after` and begin with `prefix`, in key order.
    pub fn rests<'a>(
        &'a self,
        resource: &GroupResource,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> Box<dyn Iterator<Item = &'a str> + Send + 'a> {
        let Some(templates) = self.templates.get(resource) else {
            return Box::new(std::iter::empty());
        };
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let range = templates
            .range::<str, _>((start, Bound::Unbounded))
            .map(|(rest, _)| rest.as_str());
        Box::new(range.take_while(move |rest| rest.starts_with(prefix)))
    }
}

/// Every layer that planes of this store may name. Layers are few, and never change.
#[derive(Debug, Default)]
pub struct Layers(papaya::HashMap<String, Arc<BaseLayer>>);

impl Layers {
    pub fn get(&self, id: &str) -> Option<Arc<BaseLayer>> {
        self.0.pin().get(id).cloned()
    }

    pub fn insert(&self, layer: Arc<BaseLayer>) {
        self.0.pin().insert(layer.id.clone(), layer);
    }

    /// Whether any layer has an object here.
    pub fn contain(&self, resource: &GroupResource, rest: &str) -> bool {
        self.0.pin().values().any(|layer| layer.contains(resource, rest))
    }

    /// [`BaseLayer::rests`] of all layers together.
    pub fn rests(&self, resource: &GroupResource, prefix: &str, after: &str) -> BTreeSet<String> {
        let layers = self.0.pin();
        let rests = layers
            .values()
            .flat_map(|layer| layer.rests(resource, prefix, Some(after)));
        rests.map(ToOwned::to_owned).collect()
    }

    /// The places where not all layers have the same, in order.
    pub fn differences(&self) -> BTreeSet<(GroupResource, String)> {
        let layers: Vec<Arc<BaseLayer>> = self.0.pin().values().cloned().collect();
        let mut places = BTreeSet::new();
        for layer in &layers {
            for (resource, templates) in &layer.templates {
                for rest in templates
                    .keys()
                    .filter(|rest| layers.iter().any(|other| !other.agrees(layer, resource, rest)))
                {
                    places.insert((resource.clone(), rest.clone()));
                }
            }
        }
        places
    }
}

impl Template {
    fn materialise(&self, resource: &GroupResource, rest: &str, birth: &Birth) -> Stored {
        let mut value = bytes::BytesMut::from(&self.value[..]);
        let uid = uid(birth.seed, resource, rest);
        value[self.uid_at..self.uid_at + UID.len()].copy_from_slice(uid.as_bytes());
        let time = birth.created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        value[self.time_at..self.time_at + TIME.len()].copy_from_slice(time.as_bytes());
        let record = Record {
            value: value.freeze(),
            revision: birth.revision,
        };
        Content::read(&record)
            .ok()
            .and_then(Content::object)
            .expect("a template is a well-formed stored object")
    }
}

/// The uid of a base object in the plane with this seed.
pub(crate) fn uid(seed: Seed, resource: &GroupResource, rest: &str) -> String {
    let hash = Sha256::digest(format!("{seed}\0{}\0{rest}", resource.as_key()));
    let bytes: [u8; 16] = hash[..16].try_into().expect("a digest has 32 bytes");
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is stored, and what uids are made of, is this text.
    #[test]
    fn a_seed_is_the_text_that_it_was_read_from() {
        let drawn = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        for text in [drawn.to_owned(), format!("{drawn}/0123456789ab")] {
            let seed: Seed = serde_json::from_value(text.clone().into()).unwrap();
            assert_eq!(serde_json::to_value(seed).unwrap(), text);
        }
        let upper = drawn.to_uppercase();
        for text in ["", "x", &upper, &format!("{drawn}/"), &format!("{drawn}/root")] {
            assert!(Seed::try_from(text.to_owned()).is_err(), "{text:?}");
        }
        let root = Seed::try_from(drawn.to_owned()).unwrap();
        let plane = root.of_plane(PlaneId::parse("0123456789ab").unwrap());
        assert_eq!(plane.to_string(), format!("{drawn}/0123456789ab"));
    }
}
