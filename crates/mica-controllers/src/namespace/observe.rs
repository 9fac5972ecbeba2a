//! What a namespace that is being deleted holds; looking and deleting go together, one resource after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use mica_machinery::object;
use serde_json::Value;

use super::Namespaces;
use crate::api::{Absent as _, Refusal};
use crate::kinds::{Kinds, Scope, Served};
use crate::place::{self, Place};

/// Resources of one namespace that are emptied at once.
const RESOURCES: usize = 8;
/// Objects of a resource without deletecollection that are deleted at once.
const OBJECTS: usize = 16;

/// A namespace that is to be emptied.
pub struct Found {
    pub namespace: Value,
    /// What could be found out about what its plane serves, or why nothing.
    pub kinds: Result<Arc<Kinds>, String>,
}

impl Found {
    /// What may hold something in the namespace and can be deleted.
    fn deletable(&self) -> impl Iterator<Item = &Arc<Served>> {
        let all = self.kinds.as_ref().map_or(&[][..], |kinds| &kinds.preferred);
        all.iter()
            .filter(|served| served.scope == Scope::Namespaced && served.can("delete"))
    }
}

/// What is left of a resource after everything was deleted that can be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Left {
    pub objects: usize,
    /// How many objects wait for each finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// How long the longest grace period of pods takes, in seconds from the namespace's deletion on.
    pub grace: i64,
}

/// How the deletion of one resource went.
#[derive(Debug)]
pub struct Swept {
    pub served: Arc<Served>,
    pub left: Result<Left, String>,
}

impl Namespaces {
    /// The namespace, if it is being deleted and its content is still to go.
    pub(super) async fn observe(&self, place: &Place, name: &str) -> Result<Option<Found>, Refusal> {
        let path = place::object(place, "v1", "namespaces", None, name);
        let Some(namespace) = self.api.get(&path).await.or_absent()? else {
            return Ok(None);
        };
        let deleting = !object::string(&namespace, &["metadata", "deletionTimestamp"]).is_empty();
        if !deleting || object::list(&namespace, &["spec", "finalizers"]).is_empty() {
            return Ok(None);
        }
        let kinds = self.catalog.fresh(place).await.map_err(|refusal| refusal.to_string());
        Ok(Some(Found { namespace, kinds }))
    }

    /// Deletes what the namespace holds, and says what is left. Nothing else is touched while pods are left.
    pub(super) async fn sweep(&self, place: &Place, name: &str, found: &Found) -> Vec<Swept> {
        let is_pods = |served: &Arc<Served>| served.what.is("", "pods");
        let mut swept = Vec::new();
        if let Some(pods) = found.deletable().find(|served| is_pods(served)) {
            let left = self.empty(place, name, pods).await;
            let gone = left.as_ref().is_ok_and(|left| left.objects == 0);
            let left = left.map_err(|refusal| format!("failed to delete pods for namespace: {name}, err: {refusal}"));
            swept.push(Swept {
                served: pods.clone(),
                left,
            });
            if !gone {
                return swept;
            }
        }
        let rest: Vec<_> = found.deletable().filter(|served| !is_pods(served)).cloned().collect();
        let emptied = stream::iter(rest).map(|served| async move {
            let left = self.empty(place, name, &served).await;
            Swept {
                left: left.map_err(|refusal| refusal.to_string()),
                served,
            }
        });
        let emptied: Vec<Swept> = emptied.buffered(RESOURCES).collect().await;
        swept.extend(emptied);
        swept
    }

    async fn empty(&self, place: &Place, namespace: &str, served: &Served) -> Result<Left, Refusal> {
        let what = &served.what;
        let path = place::collection(place, &what.api_version, &what.resource, Some(namespace));
        // Most resources have nothing here: one small read says so.
        if served.can("list") && nothing(self.api.count(&path).await)? == 0 {
            return Ok(Left::default());
        }
        let grace = match what.is("", "pods") {
            true => self.pods_grace(&path).await?,
            false => 0,
        };
        if served.can("deletecollection") {
            self.api.delete_any(&path).await?;
        } else {
            self.delete_each(&path).await?;
        }
        if !served.can("list") {
            return Ok(Left::default());
        }
        let listed = self.api.list_metadata(&path, "").await?;
        let mut left = Left {
            objects: listed.items.len(),
            grace,
            ..Left::default()
        };
        for item in listed.items {
            for finalizer in item.metadata.finalizers {
                *left.finalizers.entry(finalizer.into()).or_default() += 1;
            }
        }
        Ok(left)
    }

    async fn delete_each(&self, path: &str) -> Result<(), Refusal> {
        let listed = self.api.list_metadata(path, "").await?;
        let deletions = stream::iter(listed.items).map(|item| async move {
            let path = format!("{path}/{}", item.metadata.name);
            self.api.delete_any(&path).await.or_absent().map(drop)
        });
        let done: Vec<Result<(), Refusal>> = deletions.buffer_unordered(OBJECTS).collect().await;
        done.into_iter().collect()
    }

    /// The longest grace period of pods that still run.
    async fn pods_grace(&self, path: &str) -> Result<i64, Refusal> {
        let pods = self.api.list(path, "").await?.items;
        let runs = |pod: &&Value| !["Succeeded", "Failed"].contains(&object::string(pod, &["status", "phase"]));
        let grace = |pod: &Value| object::int(pod, &["spec", "terminationGracePeriodSeconds"]);
        Ok(pods.iter().filter(runs).filter_map(grace).max().unwrap_or_default())
    }
}

/// A resource that discovery knows and the server does not any more has nothing.
fn nothing(count: Result<u64, Refusal>) -> Result<u64, Refusal> {
    match count {
        Err(refusal) if [404, 405].contains(&refusal.code()) => Ok(0),
        count => count,
    }
}

/// How long a namespace has been going.
pub fn going_for(namespace: &Value, now: Timestamp) -> i64 {
    let since: Option<Timestamp> = object::string(namespace, &["metadata", "deletionTimestamp"])
        .parse()
        .ok();
    since.map_or(0, |since| now.as_second() - since.as_second())
}
