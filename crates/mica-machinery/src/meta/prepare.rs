//! What the server sets in metadata, clears from it, or keeps as it was.

use jiff::Timestamp;
use serde_json::Value;

use crate::object::{self, object_mut};
use crate::time::now_text;

/// Fields that only the server sets.
const SYSTEM_FIELDS: [&str; 5] = [
    "creationTimestamp",
    "uid",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

/// Names that begin so are cut to this length before the random part is added.
const GENERATED_PREFIX_MAX: usize = 58;
const RANDOM_LENGTH: usize = 5;
/// No vowels and nothing that looks like one.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The namespace in an object is not that of the request's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the namespace of the provided object does not match the namespace sent on the request")]
pub struct NamespaceMismatch;

/// Clears what a client may not decide on create.
pub fn wipe_system_fields(metadata: &mut Value) {
    let metadata = object_mut(metadata);
    for field in SYSTEM_FIELDS {
        metadata.remove(field);
    }
}

/// Sets what a new object gets from the server.
pub fn fill_system_fields(metadata: &mut Value, uid: &str, now: Timestamp) {
    let metadata = object_mut(metadata);
    metadata.insert("creationTimestamp".to_owned(), now_text(now).into());
    metadata.insert("uid".to_owned(), uid.into());
}

/// Gives an object that has only a generateName its name.
pub fn generate_name(metadata: &mut Value, random: impl FnMut() -> u64) {
    let prefix = object::string(metadata, &["generateName"]);
    if !prefix.is_empty() && object::string(metadata, &["name"]).is_empty() {
        let name = name_from_prefix(prefix, random);
        object_mut(metadata).insert("name".to_owned(), name.into());
    }
}

/// The prefix, cut if it is long, and five random characters.
pub fn name_from_prefix(prefix: &str, mut random: impl FnMut() -> u64) -> String {
    let mut name = prefix[..prefix.floor_char_boundary(GENERATED_PREFIX_MAX)].to_owned();
    let (mut bits, mut left) = (0, 0);
    let mut added = 0;
    while added < RANDOM_LENGTH {
        if left == 0 {
            (bits, left) = (random(), u64::BITS / 5);
        }
        // Five bits that name no character are skipped, so that all characters are equally likely.
        if let Some(c) = ALPHABET.get((bits & 31) as usize) {
            name.push(char::from(*c));
            added += 1;
        }
        bits >>= 5;
        left -= 1;
    }
    name
}

/// Makes the object's namespace that of the request: empty for cluster-scoped kinds.
pub fn ensure_namespace(metadata: &mut Value, namespace: &str) -> Result<(), NamespaceMismatch> {
    let own = object::string(metadata, &["namespace"]);
    if own == namespace {
        return Ok(());
    }
    if !own.is_empty() && !namespace.is_empty() {
        return Err(NamespaceMismatch);
    }
    let metadata = object_mut(metadata);
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    Ok(())
}

/// An update cannot set the generation; before the kind prepares it.
pub fn keep_generation(new: &mut Value, old: &Value) {
    object::copy(old, new, &["generation"]);
}

/// What an update cannot change stays as it was; after the kind has prepared it.
///
/// A different uid, and a deletion time on an object that has none, stay for validation to refuse.
pub fn keep_system_fields(new: &mut Value, old: &Value) {
    if object::string(new, &["uid"]).is_empty() {
        object::copy(old, new, &["uid"]);
    }
    for field in ["creationTimestamp", "deletionTimestamp"] {
        if !object::string(old, &[field]).is_empty() {
            object::copy(old, new, &[field]);
        }
    }
    if object::int(new, &["deletionGracePeriodSeconds"]).is_none() {
        object::copy(old, new, &["deletionGracePeriodSeconds"]);
    }
}

/// The generation after a write of a kind that counts it: one more if any of these fields, told by dotted paths, changed.
pub fn next_generation(new: &Value, old: Option<&Value>, fields: &[&str]) -> i64 {
    let Some(old) = old else { return 1 };
    let generation = object::int(old, &["metadata", "generation"]).unwrap_or_default();
    let changed = fields.iter().any(|field| {
        let path: Vec<&str> = field.split('.').collect();
        object::get(new, &path) != object::get(old, &path)
    });
    if changed { generation + 1 } else { generation }
}

/// Takes out what is not stored, for who wants to put it back.
pub fn prepare_for_storage(metadata: &mut Value) -> [Option<(String, Value)>; 2] {
    let metadata = object_mut(metadata);
    ["resourceVersion", "selfLink"].map(|field| metadata.remove_entry(field))
}
