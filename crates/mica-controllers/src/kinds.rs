//! What a control plane serves, from its discovery.
//!
//! Planes with the same kinds share one reading of the document. What was found is kept for the planes that were asked about
//! last, and forgotten when their definitions change.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use compact_str::CompactString;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use serde::Deserialize;

use crate::api::{Absent as _, Api, Refusal};
use crate::meta::What;
use crate::place::Place;

/// Planes whose kinds are kept. Each holds a pointer.
const REMEMBERED: usize = 4096;
/// Different documents from which on those that nobody has are let go.
const SWEEP: usize = 64;

/// Where objects of a resource are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// A resource of a version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    pub what: What,
    pub version: CompactString,
    pub scope: Scope,
    verbs: Vec<CompactString>,
}

impl Served {
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| one == verb)
    }

    /// As upstream prints a group, version and resource.
    pub fn shown(&self) -> String {
        format!(
            "{}/{}, Resource={}",
            self.what.group(),
            self.version,
            self.what.resource
        )
    }

    /// One for tests.
    #[cfg(test)]
    pub fn sample(api_version: &str, resource: &str) -> Self {
        Self {
            what: What {
                api_version: api_version.into(),
                kind: resource.into(),
                resource: resource.into(),
            },
            version: api_version.rsplit('/').next().unwrap_or_default().into(),
            scope: Scope::Namespaced,
            verbs: vec!["list".into(), "delete".into(), "deletecollection".into()],
        }
    }
}

/// What a control plane serves.
#[derive(Debug, Default)]
pub struct Kinds {
    /// Each resource once, in the version that the server prefers.
    pub preferred: Vec<Arc<Served>>,
    all: HashMap<(CompactString, CompactString), Arc<Served>>,
    /// Group versions that could not be asked about, and why, sorted.
    pub failed: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMeta,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct GroupMeta {
    #[serde(default)]
    name: CompactString,
}

#[derive(Deserialize)]
struct Version {
    version: CompactString,
    #[serde(default)]
    resources: Vec<ResourceEntry>,
    #[serde(default)]
    freshness: CompactString,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceEntry {
    resource: CompactString,
    #[serde(default)]
    response_kind: ResponseKind,
    scope: CompactString,
    #[serde(default)]
    verbs: Vec<CompactString>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseKind {
    kind: CompactString,
}

impl Kinds {
    /// Reads the documents below `/api` and `/apis`.
    fn read(documents: &[&[u8]]) -> Result<Self, Refusal> {
        let mut kinds = Self::default();
        for document in documents.iter().filter(|document| !document.is_empty()) {
            let document: Document = serde_json::from_slice(document).map_err(Refusal::Unreadable)?;
            for group in document.items {
                kinds.add(group);
            }
        }
        kinds.failed.sort();
        Ok(kinds)
    }

    fn add(&mut self, group: Group) {
        let name = group.metadata.name;
        let mut seen: Vec<CompactString> = Vec::new();
        for version in group.versions {
            let api_version = match name.as_str() {
                "" => version.version.clone(),
                group => CompactString::from(format!("{group}/{}", version.version)),
            };
            if version.freshness == "Stale" {
                let why = format!("stale GroupVersion discovery: {api_version}");
                self.failed.push((api_version.to_string(), why));
            }
            for entry in version.resources {
                let served = Arc::new(Served {
                    what: What {
                        api_version: api_version.clone(),
                        kind: entry.response_kind.kind,
                        resource: entry.resource,
                    },
                    version: version.version.clone(),
                    scope: match entry.scope.as_str() {
                        "Namespaced" => Scope::Namespaced,
                        _ => Scope::Cluster,
                    },
                    verbs: entry.verbs,
                });
                let key = (api_version.clone(), served.what.kind.clone());
                // Where two resources have one kind, objects are of the one that lists them.
                if served.can("list") || !self.all.contains_key(&key) {
                    self.all.insert(key, served.clone());
                }
                if !seen.contains(&served.what.resource) {
                    seen.push(served.what.resource.clone());
                    self.preferred.push(served);
                }
            }
        }
    }

    pub fn find(&self, api_version: &str, kind: &str) -> Option<&Arc<Served>> {
        self.all.get(&(api_version.into(), kind.into()))
    }
}

/// The kinds of a server's planes.
pub struct Catalog {
    api: Api,
    recent: Cache<Place, Arc<Kinds>>,
    /// By the hash of what they were read from.
    shared: Mutex<HashMap<u64, Weak<Kinds>>>,
}

impl Catalog {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            recent: Cache::new(REMEMBERED),
            shared: Mutex::default(),
        }
    }

    /// What a plane served when it was last asked.
    pub async fn of(&self, place: &Place) -> Result<Arc<Kinds>, Refusal> {
        match self.recent.get(place) {
            Some(kinds) => Ok(kinds),
            None => self.fresh(place).await,
        }
    }

    /// What a plane serves now.
    pub async fn fresh(&self, place: &Place) -> Result<Arc<Kinds>, Refusal> {
        let prefix = place.prefix();
        let (core, groups) = (format!("{prefix}/api"), format!("{prefix}/apis"));
        let (core, groups) = futures::try_join!(self.api.groups(&core), self.api.groups(&groups))?;
        let hash = xxhash_rust::xxh3::xxh3_64(&groups) ^ xxhash_rust::xxh3::xxh3_64(&core).rotate_left(1);
        let known = self.shared.lock().get(&hash).and_then(Weak::upgrade);
        let kinds = match known {
            Some(kinds) => kinds,
            None => {
                let kinds = Arc::new(Kinds::read(&[&core, &groups])?);
                let mut shared = self.shared.lock();
                if shared.len() >= SWEEP {
                    shared.retain(|_, kinds| kinds.strong_count() > 0);
                }
                shared.insert(hash, Arc::downgrade(&kinds));
                kinds
            }
        };
        self.recent.insert(place.clone(), kinds.clone());
        Ok(kinds)
    }

    /// What serves a kind. One that is not known is asked for anew: it may have come meanwhile.
    pub async fn find(&self, place: &Place, api_version: &str, kind: &str) -> Result<Arc<Served>, Refusal> {
        if let Some(found) = self.of(place).await?.find(api_version, kind) {
            return Ok(found.clone());
        }
        let fresh = self.fresh(place).await.or_absent()?;
        let found = fresh.as_ref().and_then(|kinds| kinds.find(api_version, kind)).cloned();
        found.ok_or_else(|| Refusal::UnknownKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// A plane's kinds have changed, or it is gone.
    pub fn forget(&self, place: &Place) {
        self.recent.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &str = r#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[
        {"resource":"configmaps","responseKind":{"group":"","version":"v1","kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]},
        {"resource":"nodes","responseKind":{"kind":"Node"},"scope":"Cluster","verbs":["list"]}]}]}]}"#;
    const GROUPS: &str = r#"{"items":[{"metadata":{"name":"a.io"},"versions":[
        {"version":"v2","freshness":"Stale","resources":[{"resource":"xs","responseKind":{"kind":"X"},"scope":"Namespaced","verbs":["delete"]}]},
        {"version":"v1","resources":[{"resource":"xs","responseKind":{"kind":"X"},"scope":"Namespaced","verbs":[]},
            {"resource":"ys","responseKind":{"kind":"Y"},"scope":"Cluster","verbs":[]}]}]}]}"#;

    #[test]
    fn each_resource_is_there_once_in_its_preferred_version() {
        let kinds = Kinds::read(&[CORE.as_bytes(), GROUPS.as_bytes()]).unwrap();
        let shown: Vec<String> = kinds.preferred.iter().map(|one| one.shown()).collect();
        assert_eq!(
            shown,
            [
                "/v1, Resource=configmaps",
                "/v1, Resource=nodes",
                "a.io/v2, Resource=xs",
                "a.io/v1, Resource=ys"
            ]
        );
        assert_eq!(
            kinds.find("a.io/v1", "X").unwrap().what.resource,
            "xs",
            "other versions are found"
        );
        assert_eq!(kinds.find("v1", "X"), None);
        assert_eq!(
            kinds.failed,
            [("a.io/v2".to_owned(), "stale GroupVersion discovery: a.io/v2".to_owned())]
        );
    }
}
