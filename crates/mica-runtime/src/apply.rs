//! Server-side apply: a controller says what it wants of an object, and takes nothing else from others.
//!
//! What is applied is a whole intent: a field that an earlier intent had and this one lacks is removed, if no other manager
//! has it. So build the object from nothing each time, never from what was read.

use std::fmt::Debug;

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What to do where another manager has a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnConflict {
    /// Take it over: right for fields that are this controller's to decide.
    #[default]
    Force,
    /// Fail with 409.
    Fail,
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("what is applied needs a name")]
    Unnamed,
    #[error("the object cannot be written as JSON")]
    Unwritable(#[source] serde_json::Error),
    #[error("the server did not take it")]
    Refused(#[source] kube::Error),
}

/// Why an object cannot have an owner.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OwnError {
    #[error("the owner has no name or uid: it was not read from a server")]
    Unsaved,
    #[error(
        "the owner is in namespace {owner:?} and the object in {object:?}: garbage collection does not reach across"
    )]
    Elsewhere { owner: String, object: Option<String> },
    #[error("{kind} {name} controls the object already")]
    Controlled { kind: String, name: String },
}

/// Applies as one field manager.
#[derive(Clone, Debug)]
pub struct Applier {
    manager: String,
    on_conflict: OnConflict,
}

impl Applier {
    /// The manager's name is in every object's `managedFields`: use the controller's, and never change it.
    pub fn new(manager: impl Into<String>) -> Self {
        Self {
            manager: manager.into(),
            on_conflict: OnConflict::default(),
        }
    }

    #[must_use]
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Makes the object, or makes it as `intent` says. The object as it is then.
    pub async fn apply<K>(&self, api: &Api<K>, intent: &K) -> Result<K, ApplyError>
    where
        K: Resource + Serialize + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let (name, body) = body(intent)?;
        let patched = api.patch(name, &self.params(), &Patch::Apply(&body)).await;
        patched.map_err(ApplyError::Refused)
    }

    /// The same for the status alone. Of the object, only its name counts.
    pub async fn apply_status<K>(&self, api: &Api<K>, object: &K, status: impl Serialize) -> Result<K, ApplyError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let kind = K::DynamicType::default();
        let name = object.meta().name.as_deref().ok_or(ApplyError::Unnamed)?;
        let body = json!({
            "apiVersion": K::api_version(&kind),
            "kind": K::kind(&kind),
            "metadata": {"name": name},
            "status": serde_json::to_value(status).map_err(ApplyError::Unwritable)?,
        });
        let patched = api.patch_status(name, &self.params(), &Patch::Apply(&body)).await;
        patched.map_err(ApplyError::Refused)
    }

    fn params(&self) -> PatchParams {
        let params = PatchParams::apply(&self.manager);
        match self.on_conflict {
            OnConflict::Force => params.force(),
            OnConflict::Fail => params,
        }
    }
}

/// What is sent: with its type, and without what only a server sets.
fn body<K>(intent: &K) -> Result<(&str, Value), ApplyError>
where
    K: Resource + Serialize,
    K::DynamicType: Default,
{
    let kind = K::DynamicType::default();
    let name = intent.meta().name.as_deref().ok_or(ApplyError::Unnamed)?;
    let mut body = serde_json::to_value(intent).map_err(ApplyError::Unwritable)?;
    body["apiVersion"] = K::api_version(&kind).into();
    body["kind"] = K::kind(&kind).into();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        for field in ["managedFields", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
    }
    if let Some(object) = body.as_object_mut() {
        object.remove("status");
    }
    Ok((name, body))
}

/// Makes `owner` the object's controller: when it goes, the object goes.
pub fn own<O, K>(owner: &O, object: &mut K) -> Result<(), OwnError>
where
    O: Resource,
    O::DynamicType: Default,
    K: Resource,
{
    let reference = owner
        .controller_owner_ref(&O::DynamicType::default())
        .ok_or(OwnError::Unsaved)?;
    if let Some(namespace) = owner.namespace()
        && object.namespace().as_ref() != Some(&namespace)
    {
        return Err(OwnError::Elsewhere {
            owner: namespace,
            object: object.namespace(),
        });
    }
    let owners = object.owner_references_mut();
    let another = |other: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        other.controller == Some(true) && other.uid != reference.uid
    };
    if let Some(other) = owners.iter().find(another) {
        return Err(OwnError::Controlled {
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    owners.retain(|other| other.uid != reference.uid);
    owners.push(reference);
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};

    use super::*;

    fn named<K: Resource + Default>(namespace: Option<&str>, name: &str, uid: Option<&str>) -> K {
        let mut object = K::default();
        let meta = object.meta_mut();
        meta.name = Some(name.to_owned());
        meta.namespace = namespace.map(str::to_owned);
        meta.uid = uid.map(str::to_owned);
        object
    }

    #[test]
    fn an_object_has_one_controller_in_its_own_namespace() {
        let owner: ConfigMap = named(Some("x"), "owner", Some("1"));
        let mut object: Secret = named(Some("x"), "object", None);
        assert_eq!(own(&owner, &mut object), Ok(()));
        assert_eq!(own(&owner, &mut object), Ok(()), "again is the same");
        assert_eq!(object.owner_references().len(), 1);
        assert_eq!(object.owner_references()[0].controller, Some(true));
        let second: ConfigMap = named(Some("x"), "second", Some("2"));
        let taken = OwnError::Controlled {
            kind: "ConfigMap".to_owned(),
            name: "owner".to_owned(),
        };
        assert_eq!(own(&second, &mut object), Err(taken));
        let global: Namespace = named(None, "global", Some("3"));
        assert_eq!(own(&global, &mut named::<Secret>(Some("x"), "object", None)), Ok(()));
        let elsewhere = own(&owner, &mut named::<Secret>(Some("y"), "object", None));
        assert!(matches!(elsewhere, Err(OwnError::Elsewhere { .. })));
        let elsewhere = own(&owner, &mut named::<Namespace>(None, "object", None));
        assert!(matches!(elsewhere, Err(OwnError::Elsewhere { .. })));
        let unsaved: ConfigMap = named(Some("x"), "owner", None);
        assert_eq!(own(&unsaved, &mut object), Err(OwnError::Unsaved));
    }

    #[test]
    fn an_intent_has_its_type_and_nothing_of_the_servers() {
        let mut intent: ConfigMap = named(Some("x"), "a", None);
        intent.metadata.generation = Some(1);
        intent.metadata.managed_fields = Some(Vec::new());
        let (name, body) = body(&intent).unwrap();
        assert_eq!(name, "a");
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "x"},
        });
        assert_eq!(body, expected);
        assert!(matches!(super::body(&ConfigMap::default()), Err(ApplyError::Unnamed)));
    }
}
