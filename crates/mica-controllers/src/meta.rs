//! What controllers see of an object: where it is, what it is, and what decides about its life.

use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;
use mica_runtime::queue::Priority;
use serde::{Deserialize, Serialize};

use crate::place::{self, Place};

/// What an object waits for before its dependents are gone, and before they are let go.
pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

/// The metadata of an object, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: CompactString,
    pub namespace: Option<CompactString>,
    pub uid: CompactString,
    pub resource_version: CompactString,
    /// Another number when something else is asked for; kinds without a spec have none.
    pub generation: i64,
    pub deletion_timestamp: Option<CompactString>,
    pub finalizers: Vec<CompactString>,
    pub owner_references: Vec<Owner>,
    pub annotations: Marks,
    pub labels: Tags,
}

/// The labels that controllers look at.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Tags {
    /// The operator of control planes keeps it.
    #[serde(rename = "controlplane.kplane.dev/managed")]
    pub managed: Option<CompactString>,
}

/// What an all-planes read says of an object beside what it says itself, and the annotations that controllers look at.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Marks {
    #[serde(rename = "mica.dev/plane")]
    pub plane: Option<CompactString>,
    #[serde(rename = "mica.dev/plane-id")]
    pub plane_id: Option<CompactString>,
    #[serde(rename = "mica.dev/api-version")]
    pub api_version: Option<CompactString>,
    #[serde(rename = "mica.dev/kind")]
    pub kind: Option<CompactString>,
    #[serde(rename = "mica.dev/resource")]
    pub resource: Option<CompactString>,
    #[serde(rename = "k8s.io/initial-events-end")]
    pub initial_events_end: Option<CompactString>,
    #[serde(rename = "kubernetes.io/service-account.name")]
    pub account: Option<CompactString>,
    #[serde(rename = "kubernetes.io/service-account.uid")]
    pub account_uid: Option<CompactString>,
    #[serde(rename = "controlplane.kplane.dev/control-plane")]
    pub control_plane: Option<CompactString>,
    #[serde(rename = "controlplane.kplane.dev/adopt")]
    pub adopt: Option<CompactString>,
}

/// An owner, as its dependent names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    pub api_version: CompactString,
    pub kind: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl Meta {
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|one| one == name)
    }

    /// Whether it goes when its dependents are gone.
    pub fn awaits_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(FOREGROUND)
    }

    /// Whether it goes when its dependents do not name it any more.
    pub fn orphans_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(ORPHAN)
    }

    /// Whether its owner with this uid waits for it.
    pub fn blocks(&self, owner: &str) -> bool {
        self.owner_references
            .iter()
            .any(|one| one.uid == owner && one.block_owner_deletion == Some(true))
    }
}

/// What an object is: enough to find it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct What {
    pub api_version: CompactString,
    pub kind: CompactString,
    /// The plural.
    pub resource: CompactString,
}

impl What {
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.resource == resource && self.group() == group
    }
}

/// An object that was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub place: Place,
    pub what: What,
    pub meta: Meta,
}

impl Object {
    /// Its address.
    pub fn path(&self) -> String {
        let namespace = self.meta.namespace.as_deref();
        place::object(
            &self.place,
            &self.what.api_version,
            &self.what.resource,
            namespace,
            &self.meta.name,
        )
    }

    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.what.is(group, resource)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

/// What is told to controllers, in the order of the log.
#[derive(Clone, Debug)]
pub enum Seen {
    /// It is there: new, changed, or found at the beginning.
    Present(Arc<Object>),
    /// It is gone; this is how it was last.
    Gone(Arc<Object>),
    /// Everything of a plane is gone.
    PlaneGone(Place),
    /// Changes may have been missed: everything is told again. What was concluded from changes does not hold any more.
    Restarted,
}

/// One thing that was seen.
#[derive(Clone, Debug)]
pub struct Notice {
    pub seen: Seen,
    /// What was there before anybody looked is less urgent than what changes.
    pub priority: Priority,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_whatever_else_it_holds() {
        let text = r#"{"name":"a","uid":"u1","labels":{"x":"y"},"annotations":{"mica.dev/plane":"p","other":"1"},
            "ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u2","blockOwnerDeletion":true}],
            "deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["foregroundDeletion"]}"#;
        let meta: Meta = serde_json::from_str(text).unwrap();
        assert!(meta.awaits_dependents() && !meta.orphans_dependents() && meta.blocks("u2") && !meta.blocks("u1"));
        assert_eq!(meta.annotations.plane.as_deref(), Some("p"));
        assert_eq!(
            serde_json::to_string(&meta.owner_references[0]).unwrap(),
            r#"{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u2","blockOwnerDeletion":true}"#
        );
    }
}
