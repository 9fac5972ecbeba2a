//! Everything that the management plane says of a control plane.

use mica_api::control_plane::{
    API_VERSION, CLASSES, CONTROL_PLANES, ENDPOINTS, REGISTRATIONS, kubeconfig_secret, management_namespace,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ControlPlanes;
use super::plan::endpoint::{self, Source};
use super::plan::{Class, Novelty, Observed};
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

impl ControlPlanes {
    /// `None` if there is no such control plane, and then what was its goes with its owner; or if somebody else runs it.
    pub(super) async fn observe(&self, name: &str) -> Result<Option<Observed>, Refusal> {
        let root = Place::root();
        let path = place::object(&root, API_VERSION, CONTROL_PLANES, None, name);
        let Some(object) = self.api.get(&path).await.or_absent()? else {
            return Ok(None);
        };
        let mut at = Observed {
            spec: read(&object["spec"])?,
            status: read(&object["status"])?,
            object,
            ..Observed::default()
        };
        if at.is_anothers() {
            return Ok(None);
        }
        at.novelty = at.novelty();
        let registration = place::object(&root, API_VERSION, REGISTRATIONS, None, name);
        match at.novelty {
            Novelty::New => {
                at.class = self.class(&at).await?;
                // One in its way is somebody else's, and stays.
                if !at.class_spec().services.is_empty() {
                    at.registration = self.read(&registration).await?;
                }
            }
            Novelty::Known => {
                let namespace = management_namespace(name);
                let secret = place::object(&root, "v1", "secrets", Some(&namespace), &kubeconfig_secret(name));
                let namespace = place::object(&root, "v1", "namespaces", None, &namespace);
                (at.class, at.namespace, at.secret, at.registration) = futures::try_join!(
                    self.class(&at),
                    self.read(&namespace),
                    self.read(&secret),
                    self.read(&registration)
                )?;
            }
        }
        at.endpoint = match endpoint::source(&at) {
            Ok(Source::Reference(name) | Source::Gateway(name)) => {
                let path = place::object(&root, API_VERSION, ENDPOINTS, None, &name);
                self.read(&path).await?
            }
            _ => None,
        };
        Ok(Some(at))
    }

    async fn class(&self, at: &Observed) -> Result<Class, Refusal> {
        let named = at.spec.class_ref.as_ref().map_or("", |named| &named.name);
        if named.is_empty() {
            return Ok(Class::None);
        }
        let path = place::object(&Place::root(), API_VERSION, CLASSES, None, named);
        let name = named.to_owned();
        Ok(match self.read(&path).await? {
            None => Class::Missing(name),
            Some(class) => Class::Found {
                name,
                spec: Box::new(read(&class["spec"])?),
            },
        })
    }

    async fn read(&self, path: &str) -> Result<Option<Value>, Refusal> {
        self.api.get(path).await.or_absent()
    }
}

/// What a part of an object says; nothing if it is not there.
fn read<T: DeserializeOwned + Default>(value: &Value) -> Result<T, Refusal> {
    match value {
        Value::Null => Ok(T::default()),
        value => serde_json::from_value(value.clone()).map_err(Refusal::Unreadable),
    }
}
