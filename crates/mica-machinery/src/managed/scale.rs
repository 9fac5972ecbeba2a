//! Managed fields of the Scale of an object: the object's own, seen as a Scale's, and brought back.
//!
//! A Scale is stored nowhere, so who manages its replicas stands in the object. On the way to the Scale every entry that
//! owns the object's replicas becomes one that owns the Scale's; on the way back, entries that no longer do lose them, and
//! new ones get an entry of their own. As upstream's `managedfields/scalehandler.go`, the loss of times included: an entry
//! that comes from a Scale has none.

use serde_json::Value;

use super::entry::{Entries, EntriesError, Entry, Manager};
use super::path::{Path, PathElement};
use super::set::Set;

/// The version that Scales are in.
const SCALE: &str = "autoscaling/v1";
const IN_SCALE: [&str; 2] = ["spec", "replicas"];

/// Where each version of a kind keeps its replicas.
#[derive(Clone, Debug, Default)]
pub struct ReplicasPaths(Vec<(String, Option<Path>)>);

impl ReplicasPaths {
    /// Adds a version with the names that lead to its replicas; `None` if it cannot be scaled.
    #[must_use]
    pub fn with(mut self, api_version: &str, names: Option<&[&str]>) -> Self {
        self.0.push((api_version.to_owned(), names.map(path)));
        self
    }

    /// `None` if there is no such version.
    fn of(&self, api_version: &str) -> Option<Option<&Path>> {
        let found = self.0.iter().find(|(version, _)| version == api_version);
        found.map(|(_, path)| path.as_ref())
    }
}

fn path(names: &[&str]) -> Path {
    names.iter().map(|name| PathElement::field(name)).collect()
}

fn only(path: &[PathElement]) -> Set {
    let mut set = Set::new();
    set.insert(path);
    set
}

/// The managers of an object's Scale, as the list stands in it; `None` if nobody manages replicas.
pub fn managers_of_scale(object: &[Value], paths: &ReplicasPaths) -> Result<Option<Value>, EntriesError> {
    let mut scale = Entries::default();
    for entry in Entries::from_list(object)?.0.into_values() {
        if let Some(Some(path)) = paths.of(&entry.api_version)
            && entry.fields.has(path)
        {
            let Manager {
                name,
                operation,
                subresource,
                ..
            } = &entry.manager;
            scale.put(Entry {
                manager: Manager::new(name, *operation, SCALE, subresource),
                api_version: SCALE.to_owned(),
                time: entry.time,
                fields: Set::of_fields(&[&IN_SCALE]),
            });
        }
    }
    Ok(scale.to_list())
}

/// The managers of an object of which `scale` are those of its Scale now, written in the version `api_version`.
pub fn managers_with_scale(
    object: &[Value],
    scale: &[Value],
    api_version: &str,
    paths: &ReplicasPaths,
) -> Result<Option<Value>, EntriesError> {
    let before = Entries::from_list(object)?;
    let mut scale = Entries::from_list(scale)?;
    let mut after = Entries::default();
    for entry in before.iter() {
        // An entry in a version that is gone goes too.
        let Some(path) = paths.of(&entry.api_version) else {
            continue;
        };
        let Some(path) = path.filter(|path| entry.fields.has(path)) else {
            after.put(entry.clone());
            continue;
        };
        // Updaters are told apart by version, so this finds appliers only: an updater always hands its replicas over.
        if scale.remove(&entry.manager).is_some() {
            after.put(entry.clone());
            continue;
        }
        let fields = entry.fields.difference(&only(path));
        if !fields.is_empty() {
            after.put(Entry {
                fields,
                ..entry.clone()
            });
        }
    }
    let own = paths
        .of(api_version)
        .flatten()
        .map(|path| only(path))
        .unwrap_or_default();
    let in_scale = path(&IN_SCALE);
    for entry in scale.0.into_values().filter(|entry| entry.fields.has(&in_scale)) {
        after.put(Entry {
            time: before.get(&entry.manager).and_then(|known| known.time.clone()),
            manager: entry.manager,
            api_version: api_version.to_owned(),
            fields: own.clone(),
        });
    }
    Ok(after.to_list())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths() -> ReplicasPaths {
        ReplicasPaths::default()
            .with("x.io/v1", Some(&["spec", "n"]))
            .with("x.io/v2", Some(&["spec", "pods", "count"]))
            .with("x.io/v3", None)
    }

    fn entry(manager: &str, operation: &str, version: &str, subresource: &str, time: &str, fields: Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": version,
            "fieldsType": "FieldsV1", "fieldsV1": fields});
        for (name, text) in [("subresource", subresource), ("time", time)] {
            if !text.is_empty() {
                entry[name] = text.into();
            }
        }
        entry
    }

    const TIME: &str = "2026-01-02T03:04:05Z";

    fn check(object: &[Value], scale: &[Value], expected_in_scale: Value, expected: Value) {
        let in_scale = managers_of_scale(object, &paths())
            .expect("entries")
            .unwrap_or_default();
        assert_eq!(in_scale, expected_in_scale, "seen in the scale");
        let after = managers_with_scale(object, scale, "x.io/v1", &paths()).expect("entries");
        assert_eq!(after.unwrap_or_default(), expected, "brought back");
    }

    fn replicas() -> Value {
        json!({"f:spec": {"f:replicas": {}}})
    }

    #[test]
    fn an_updater_takes_replicas_from_an_applier_and_has_no_time() {
        let applier = entry(
            "m1",
            "Apply",
            "x.io/v1",
            "",
            TIME,
            json!({"f:spec": {"f:a": {}, "f:n": {}}}),
        );
        check(
            &[applier],
            &[entry("u", "Update", SCALE, "scale", TIME, replicas())],
            json!([entry("m1", "Apply", SCALE, "", TIME, replicas())]),
            json!([
                entry("m1", "Apply", "x.io/v1", "", TIME, json!({"f:spec": {"f:a": {}}})),
                entry("u", "Update", "x.io/v1", "scale", "", json!({"f:spec": {"f:n": {}}})),
            ]),
        );
    }

    #[test]
    fn an_entry_that_owned_nothing_else_goes() {
        let applier = entry("m1", "Apply", "x.io/v1", "", TIME, json!({"f:spec": {"f:n": {}}}));
        check(
            &[applier],
            &[entry("u", "Update", SCALE, "scale", "", replicas())],
            json!([entry("m1", "Apply", SCALE, "", TIME, replicas())]),
            json!([entry(
                "u",
                "Update",
                "x.io/v1",
                "scale",
                "",
                json!({"f:spec": {"f:n": {}}})
            )]),
        );
    }

    #[test]
    fn an_applier_that_keeps_replicas_keeps_its_entry() {
        let applier = entry("m1", "Apply", "x.io/v1", "scale", TIME, json!({"f:spec": {"f:n": {}}}));
        let in_scale = entry("m1", "Apply", SCALE, "scale", TIME, replicas());
        check(
            std::slice::from_ref(&applier),
            std::slice::from_ref(&in_scale),
            json!([in_scale]),
            json!([applier]),
        );
    }

    #[test]
    fn an_updater_that_keeps_replicas_gets_an_entry_of_its_own() {
        let fields = json!({"f:spec": {".": {}, "f:a": {}, "f:n": {}}});
        let updater = entry("c", "Update", "x.io/v1", "", TIME, fields);
        let in_scale = entry("c", "Update", SCALE, "", TIME, replicas());
        check(
            &[updater],
            std::slice::from_ref(&in_scale),
            json!([in_scale]),
            json!([
                entry("c", "Update", "x.io/v1", "", "", json!({"f:spec": {"f:n": {}}})),
                entry(
                    "c",
                    "Update",
                    "x.io/v1",
                    "",
                    TIME,
                    json!({"f:spec": {".": {}, "f:a": {}}})
                ),
            ]),
        );
    }

    #[test]
    fn every_version_keeps_replicas_in_its_own_place() {
        let other = entry(
            "o",
            "Update",
            "x.io/v2",
            "",
            TIME,
            json!({"f:spec": {"f:pods": {"f:count": {}}}}),
        );
        let unscaled = entry("p", "Update", "x.io/v3", "", TIME, json!({"f:spec": {"f:n": {}}}));
        let gone = entry("q", "Update", "x.io/v0", "", TIME, json!({"f:spec": {"f:n": {}}}));
        check(
            &[other, unscaled.clone(), gone],
            &[entry("u", "Update", SCALE, "scale", "", replicas())],
            json!([entry("o", "Update", SCALE, "", TIME, replicas())]),
            json!([
                entry("u", "Update", "x.io/v1", "scale", "", json!({"f:spec": {"f:n": {}}})),
                unscaled,
            ]),
        );
    }

    #[test]
    fn what_a_scale_says_beside_replicas_is_nobodys() {
        let elsewhere = json!({"f:metadata": {"f:labels": {"f:a": {}}}});
        let labelled = entry("u", "Update", SCALE, "scale", "", elsewhere);
        check(&[], &[labelled], Value::Null, Value::Null);
    }

    #[test]
    fn broken_entries_are_told() {
        let broken = entry("m", "Neither", "x.io/v1", "", "", json!({}));
        assert!(managers_of_scale(std::slice::from_ref(&broken), &paths()).is_err());
        assert!(managers_with_scale(&[], &[broken], "x.io/v1", &paths()).is_err());
    }
}
