//! Finalizers: an object that is deleted stays until what was made for it elsewhere is cleaned up.
//!
//! The paths are kept apart: an object that is not there any more, one that is being deleted and waits for us, one that is
//! being deleted and does not, and one that lives. A finalizer is never added to an object that is being deleted: the server
//! refuses that, and where it did not, nobody would take it off again.
//!
//! Every change compares the object's `resourceVersion` and `uid`: one that was deleted, or made anew under the same name, since
//! it was read is a conflict and not a surprise.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

/// A finalizer by its name, such as `example.com/cleanup`.
#[derive(Clone, Debug)]
pub struct Finalizer(Cow<'static, str>);

/// Where an object stands.
#[derive(Clone, PartialEq, Debug)]
pub enum Stage<K> {
    /// It is not there any more. What it left behind cannot be learned from it.
    Gone,
    /// It is being deleted and waits for us: clean up, then [`Finalizer::remove`].
    Cleanup(Arc<K>),
    /// It is being deleted and does not wait for us: leave it alone.
    Leaving(Arc<K>),
    /// It lives and does not carry the finalizer yet: [`Finalizer::add`], before anything is made that needs a cleanup.
    New(Arc<K>),
    /// It lives and carries the finalizer.
    Live(Arc<K>),
}

/// What a cleanup came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cleaned<T> {
    /// Nothing is left: the object may go.
    Done,
    /// It takes longer, and the finalizer stays.
    NotYet(T),
}

#[derive(Debug, thiserror::Error)]
pub enum FinalizerError {
    #[error("the object has changed since it was read")]
    Changed,
    #[error("the object is being deleted")]
    Deleting,
    #[error("the finalizer was not written")]
    Refused(#[source] kube::Error),
}

/// Kinds whose finalizers can be changed.
pub trait Finalized: Resource + Clone + DeserializeOwned + Debug + Send + Sync {}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + Sync> Finalized for K {}

impl Finalizer {
    /// The name needs a domain, so that no two controllers mean the same one.
    pub const fn new(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    pub fn named(name: String) -> Self {
        Self(Cow::Owned(name))
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Where an object stands; `None` is one that is not there.
    pub fn stage<K: Resource>(&self, object: Option<Arc<K>>) -> Stage<K> {
        let Some(object) = object else {
            return Stage::Gone;
        };
        let ours = object.finalizers().iter().any(|name| *name == *self.0);
        match (object.meta().deletion_timestamp.is_some(), ours) {
            (true, true) => Stage::Cleanup(object),
            (true, false) => Stage::Leaving(object),
            (false, false) => Stage::New(object),
            (false, true) => Stage::Live(object),
        }
    }

    /// Adds it, if it is not there. The object as it is then.
    pub async fn add<K: Finalized>(&self, api: &Api<K>, object: &K) -> Result<K, FinalizerError> {
        if object.meta().deletion_timestamp.is_some() {
            return Err(FinalizerError::Deleting);
        }
        let mut names = object.finalizers().to_vec();
        if names.iter().any(|name| *name == *self.0) {
            return Ok(object.clone());
        }
        names.push(self.0.clone().into_owned());
        write(api, object, &names).await.map_err(|err| match err {
            kube::Error::Api(status) if status.is_conflict() || status.is_not_found() => FinalizerError::Changed,
            other => FinalizerError::Refused(other),
        })
    }

    /// Takes it off, if it is there. An object that is gone already is fine.
    pub async fn remove<K: Finalized>(&self, api: &Api<K>, object: &K) -> Result<(), FinalizerError> {
        let mut names = object.finalizers().to_vec();
        names.retain(|name| *name != *self.0);
        if names.len() == object.finalizers().len() {
            return Ok(());
        }
        match write(api, object, &names).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(FinalizerError::Changed),
            Err(other) => Err(FinalizerError::Refused(other)),
        }
    }

    /// The whole pattern: an object that lives gets the finalizer and then `live`; one that waits for us gets `cleanup` and, when
    /// that is done, loses the finalizer. For all else there is nothing to do, and nothing is returned.
    pub async fn run<K, T, E, L, C>(
        &self,
        api: &Api<K>,
        object: Option<Arc<K>>,
        live: impl FnOnce(Arc<K>) -> L,
        cleanup: impl FnOnce(Arc<K>) -> C,
    ) -> Result<Option<T>, E>
    where
        K: Finalized,
        E: From<FinalizerError>,
        L: Future<Output = Result<T, E>>,
        C: Future<Output = Result<Cleaned<T>, E>>,
    {
        match self.stage(object) {
            Stage::Gone | Stage::Leaving(_) => Ok(None),
            Stage::New(object) => {
                let object = self.add(api, &object).await?;
                live(Arc::new(object)).await.map(Some)
            }
            Stage::Live(object) => live(object).await.map(Some),
            Stage::Cleanup(object) => match cleanup(object.clone()).await? {
                Cleaned::NotYet(value) => Ok(Some(value)),
                Cleaned::Done => {
                    self.remove(api, &object).await?;
                    Ok(None)
                }
            },
        }
    }
}

async fn write<K: Finalized>(api: &Api<K>, object: &K, names: &[String]) -> Result<K, kube::Error> {
    let meta = object.meta();
    let patch = json!({"metadata": {
        "resourceVersion": meta.resource_version,
        "uid": meta.uid,
        "finalizers": names,
    }});
    let name = meta.name.as_deref().unwrap_or_default();
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    const OURS: Finalizer = Finalizer::new("example.com/cleanup");

    fn object(finalizers: &[&str], deleting: Option<Timestamp>) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        object.metadata.deletion_timestamp = deleting.map(Time);
        Arc::new(object)
    }

    #[test]
    fn gone_deleted_and_live_are_told_apart() {
        let deleting = Some(Timestamp::UNIX_EPOCH);
        let (ours, others) = (&["a/b", "example.com/cleanup"][..], &["a/b"][..]);
        assert_eq!(OURS.stage::<ConfigMap>(None), Stage::Gone);
        let cases = [
            (object(ours, deleting), Stage::Cleanup as fn(_) -> _),
            (object(others, deleting), Stage::Leaving),
            (object(others, None), Stage::New),
            (object(ours, None), Stage::Live),
        ];
        for (object, stage) in cases {
            assert_eq!(OURS.stage(Some(object.clone())), stage(object));
        }
    }
}
