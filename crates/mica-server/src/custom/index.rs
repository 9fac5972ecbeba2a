//! Which planes serve a custom resource: an index for reads over all planes.
//!
//! For each version that a plane's definition serves root holds one record without content, whose namespace is the
//! definition's name and whose name is the version and the plane's id. Records change in the transaction that changes the
//! definition. They lie in root, so that those who serve one resource lie side by side however many planes there are.
//!
//! Invariant: a plane whose own definition serves a version is in the index. The reverse is for readers to check: a plane
//! that is dropped before it was whole leaves its records behind.

use std::collections::BTreeSet;

use mica_api::{GroupResource, PlaneId};
use mica_machinery::kind::custom::Standing;
use mica_store::{Key, KeyRange, PlaneKeys, Write};
use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::registry::owner::INTERNAL_GROUP;

fn serving() -> GroupResource {
    GroupResource::new(INTERNAL_GROUP, "serving")
}

/// The records of everybody who has a definition of this name.
pub fn servers(definition: &str) -> KeyRange {
    PlaneKeys::ROOT.namespace(&serving(), definition)
}

/// The plane that a record is about, if it is about this version.
pub fn server(record: &Key, version: &str) -> Option<PlaneId> {
    let (recorded, plane) = record.name().rsplit_once('.')?;
    (recorded == version).then(|| PlaneId::parse(plane).ok()).flatten()
}

/// What keeps the index true when the definition at `key` changes from the JSON `before` to `after`.
pub fn writes(key: &Key, before: Option<&[u8]>, after: Option<&[u8]>) -> Result<Vec<Write>, ApiError> {
    let (before, after) = (served(before)?, served(after)?);
    let record = |version: &String| {
        let name = format!("{version}.{}", key.plane());
        PlaneKeys::ROOT.object(&serving(), Some(key.name()), &name)
    };
    let gone = before.difference(&after);
    let gone = gone.map(|version| Write::Delete { key: record(version) });
    let put = after.difference(&before).map(|version| Write::Put {
        key: record(version),
        value: bytes::Bytes::new(),
        ttl: None,
    });
    Ok(gone.chain(put).collect())
}

/// As much of a definition as says what it serves.
#[derive(Deserialize)]
struct Definition {
    spec: Spec,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
struct Spec {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    served: bool,
}

/// The versions that a definition serves.
fn served(json: Option<&[u8]>) -> Result<BTreeSet<String>, ApiError> {
    let Some(json) = json else {
        return Ok(BTreeSet::new());
    };
    let definition: Definition =
        serde_json::from_slice(json).map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
    if Standing::of(&serde_json::json!({"status": definition.status})) == Standing::Waiting {
        return Ok(BTreeSet::new());
    }
    let versions = definition.spec.versions.into_iter();
    Ok(versions
        .filter(|version| version.served)
        .map(|version| version.name)
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(accepted: &str, versions: &[(&str, bool)]) -> Vec<u8> {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(name, served)| json!({"name": name, "served": served, "schema": {}}))
            .collect();
        let conditions = json!([{"type": "NamesAccepted", "status": accepted}]);
        json!({"spec": {"versions": versions}, "status": {"conditions": conditions}})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn only_what_changes_of_the_served_versions_is_written() {
        let plane = PlaneId::from_random(7);
        let key = PlaneKeys::new(plane).object(&super::super::definitions(), None, "widgets.x.io");
        let show = |before: Option<&[u8]>, after: Option<&[u8]>| -> Vec<String> {
            let writes = writes(&key, before, after).unwrap();
            let lines = writes.iter().map(|write| match write {
                Write::Put { key, .. } => {
                    assert!(servers("widgets.x.io").contains(key));
                    format!("put {}", key.rest())
                }
                Write::Delete { key } => format!("delete {}", key.rest()),
                Write::DropPlane(_) => "drop".to_owned(),
            });
            lines.collect()
        };
        let waiting = definition("False", &[("v1", true)]);
        let one = definition("True", &[("v1", true), ("v2", false)]);
        let two = definition("True", &[("v1", false), ("v2", true)]);
        assert!(show(None, Some(&waiting)).is_empty());
        assert_eq!(
            show(Some(&waiting), Some(&one)),
            [format!("put widgets.x.io/v1.{plane}")]
        );
        assert!(show(Some(&one), Some(&one)).is_empty());
        assert_eq!(
            show(Some(&one), Some(&two)),
            [
                format!("delete widgets.x.io/v1.{plane}"),
                format!("put widgets.x.io/v2.{plane}")
            ]
        );
        assert_eq!(show(Some(&two), None), [format!("delete widgets.x.io/v2.{plane}")]);
        let Write::Put { key, .. } = &writes(&key, None, Some(&one)).unwrap()[0] else {
            panic!("a put")
        };
        assert_eq!((server(key, "v1"), server(key, "v2")), (Some(plane), None));
    }
}
