//! The index from an owner's uid to what it owns, so that a garbage collector need not remember every object.
//!
//! For each uid in an object's ownerReferences the object's plane holds one record without content, whose namespace is the
//! uid and whose name is the object's place. Records change in the transaction that changes the object, and belong to the
//! same plane: they are dropped with it.
//!
//! Invariant: an object that names an owner is in the index. The reverse is for readers to check, because objects also go
//! without their registry (a plane's content that nobody serves any more).

use std::collections::BTreeSet;
use std::time::Duration;

use mica_api::{GroupResource, PlaneId};
use mica_machinery::select::RawMeta;
use mica_store::{Key, KeyRange, PlaneKeys, Write};
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Group of the records that no API serves.
pub const INTERNAL_GROUP: &str = "mica.internal";

/// Longer uids stand in keys by their hash.
const MAX_UID: usize = 64;

/// Stands for the slashes of a place. No name and no namespace can hold it: they are path segments.
const SLASH: &str = "%";

/// Greater than whatever a part of a key begins with.
const LAST: &str = "\u{10FFFF}";

fn owned() -> GroupResource {
    GroupResource::new(INTERNAL_GROUP, "owned")
}

/// Whether a key is one of our own records and no object.
pub fn is_internal(key: &Key) -> bool {
    key.resource()
        .strip_prefix(INTERNAL_GROUP)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// What the index of one plane says of one owner.
pub fn owned_by(plane: PlaneId, uid: &str) -> KeyRange {
    PlaneKeys::new(plane).namespace(&owned(), &uid_part(uid))
}

/// The whole index of one plane.
pub fn index_of(plane: PlaneId) -> KeyRange {
    PlaneKeys::new(plane).resource(&owned())
}

/// The indexes of all planes, root included.
pub fn indexes() -> KeyRange {
    KeyRange::AllPlanes(owned())
}

/// A key after every record of a plane's index, and before those of the planes that follow.
pub fn end_of_index(plane: PlaneId) -> Key {
    PlaneKeys::new(plane).object(&owned(), Some(LAST), LAST)
}

/// A key after every key of a plane.
pub fn end_of_plane(plane: PlaneId) -> Key {
    PlaneKeys::new(plane).object(&GroupResource::new(LAST, LAST), None, LAST)
}

/// The object that a record of the index is about.
pub fn object_of(record: &Key) -> Option<Key> {
    Key::from_stored(&format!("{}/{}", record.plane(), record.name().replace(SLASH, "/")))
}

/// What keeps the index true when the object at `key` changes from the JSON `before` to `after`.
///
/// With a time to live all records are put again, so that they do not expire before their object.
pub fn index_writes(
    key: &Key,
    before: Option<&[u8]>,
    after: Option<&[u8]>,
    ttl: Option<Duration>,
) -> Result<Vec<Write>, ApiError> {
    let (before, after) = (owners(before)?, owners(after)?);
    let record = |uid: &String| {
        let place = key.as_str().split_once('/').map_or("", |(_, place)| place);
        PlaneKeys::new(key.plane()).object(&owned(), Some(uid), &place.replace('/', SLASH))
    };
    let gone = before.difference(&after).map(|uid| Write::Delete { key: record(uid) });
    let kept = after.iter().filter(|uid| ttl.is_some() || !before.contains(*uid));
    let put = kept.map(|uid| Write::Put {
        key: record(uid),
        value: bytes::Bytes::new(),
        ttl,
    });
    Ok(gone.chain(put).collect())
}

/// The owners' uids, as they stand in keys.
fn owners(json: Option<&[u8]>) -> Result<BTreeSet<String>, ApiError> {
    // Most objects have no owner: then a look for the word is all that this costs.
    let Some(json) = json.filter(|json| memchr::memmem::find(json, b"\"ownerReferences\"").is_some()) else {
        return Ok(BTreeSet::new());
    };
    let meta = RawMeta::parse(json).map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
    Ok(meta.owners.iter().map(|owner| uid_part(&owner.uid)).collect())
}

/// A uid as part of a key. It is the client's text: what does not look like a uid is hashed.
pub(crate) fn uid_part(uid: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.' || b == b':';
    if (1..=MAX_UID).contains(&uid.len()) && uid.bytes().all(plain) {
        return uid.to_owned();
    }
    let hash = Sha256::digest(uid);
    let hex: String = hash.iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    // No plain uid begins like this.
    format!("~{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane() -> PlaneKeys {
        PlaneKeys::new(PlaneId::from_random(7))
    }

    fn json(uids: &[&str]) -> Vec<u8> {
        let owners: Vec<_> = uids
            .iter()
            .map(|uid| serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid}))
            .collect();
        serde_json::json!({"metadata": {"name": "a", "ownerReferences": owners}})
            .to_string()
            .into_bytes()
    }

    fn show(writes: &[Write]) -> Vec<String> {
        let below = |key: &Key| key.as_str().split_once('/').map(|(_, below)| below.to_owned()).unwrap();
        writes
            .iter()
            .map(|write| match write {
                Write::Put { key, ttl, .. } => format!("put {} {ttl:?}", below(key)),
                Write::Delete { key } => format!("delete {}", below(key)),
                Write::DropPlane(_) => "drop".to_owned(),
            })
            .collect()
    }

    #[test]
    fn only_the_difference_is_written() {
        let key = plane().object(&GroupResource::new("", "configmaps"), Some("ns"), "a");
        let (one, both, none) = (json(&["u1"]), json(&["u1", "u2"]), json(&[]));
        let writes =
            |before: Option<&[u8]>, after: Option<&[u8]>, ttl| show(&index_writes(&key, before, after, ttl).unwrap());
        assert_eq!(
            writes(None, Some(&one), None),
            ["put mica.internal/owned/u1/%configmaps%ns%a None"]
        );
        assert_eq!(
            writes(Some(&one), Some(&both), None),
            ["put mica.internal/owned/u2/%configmaps%ns%a None"]
        );
        assert_eq!(
            writes(Some(&both), Some(&one), None),
            ["delete mica.internal/owned/u2/%configmaps%ns%a"]
        );
        assert_eq!(
            writes(Some(&one), None, None),
            ["delete mica.internal/owned/u1/%configmaps%ns%a"]
        );
        assert!(writes(Some(&one), Some(&one), None).is_empty());
        assert!(writes(None, Some(&none), None).is_empty());
        let hour = Some(Duration::from_secs(3600));
        assert_eq!(
            writes(Some(&one), Some(&one), hour),
            ["put mica.internal/owned/u1/%configmaps%ns%a Some(3600s)"]
        );
    }

    #[test]
    fn a_record_leads_back_to_its_object() {
        let roles = GroupResource::new("rbac.authorization.k8s.io", "clusterroles");
        for key in [
            plane().object(&GroupResource::new("", "configmaps"), Some("ns"), "a"),
            plane().object(&roles, None, "system:controller:x"),
        ] {
            let writes = index_writes(&key, None, Some(&json(&["u1"])), None).unwrap();
            let Write::Put { key: record, .. } = &writes[0] else {
                panic!("a put")
            };
            assert_eq!(object_of(record), Some(key));
            assert!(is_internal(record) && owned_by(record.plane(), "u1").contains(record));
            assert!(
                end_of_index(record.plane()) > *record && end_of_plane(record.plane()) > end_of_index(record.plane())
            );
        }
    }

    #[test]
    fn odd_uids_cannot_break_out_of_their_part_of_the_key() {
        let key = plane().object(&GroupResource::new("", "configmaps"), Some("ns"), "a");
        let long = "x".repeat(1000);
        for uid in ["", "a/b", "../..", "%", "~a", "ü", "a b", &long] {
            let writes = index_writes(&key, None, Some(&json(&[uid])), None).unwrap();
            let Write::Put { key: record, .. } = &writes[0] else {
                panic!("a put")
            };
            assert!(record.as_str().len() < 120, "{record:?}");
            assert_eq!(object_of(record).as_ref(), Some(&key), "{uid}");
            assert!(owned_by(key.plane(), uid).contains(record), "{uid}");
        }
    }
}
