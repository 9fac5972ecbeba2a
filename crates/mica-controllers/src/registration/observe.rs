//! A registration and all that it is resolved from.

use mica_api::control_plane::{
    API_VERSION, CONTROL_PLANES, ControlPlaneRegistrationSpec, ENDPOINTS, KUBECONFIG, REGISTRATIONS, SecretRef,
};
use serde_json::Value;

use super::plan::{Observed, Secret, secret_of};
use super::{Registrations, SECRETS};
use crate::api::{Absent as _, Refusal};
use crate::inputs::Input;
use crate::place::{self, Place};

impl Registrations {
    /// `None` if there is no such registration. Only an answer that something is not there counts as that: whatever else
    /// goes wrong is an error, and leaves the status as it is.
    pub(super) async fn observe(&self, name: &str) -> Result<Option<Observed>, Refusal> {
        let Some(registration) = self.object(REGISTRATIONS, name).await? else {
            return Ok(None);
        };
        let spec: ControlPlaneRegistrationSpec = crate::endpoint::read(&registration["spec"]);
        let endpoint = spec.endpoint_ref.as_ref().map_or("", |one| one.name.as_str());
        let mut inputs = vec![Input::new(CONTROL_PLANES, &spec.control_plane_ref.name)];
        if !endpoint.is_empty() {
            inputs.push(Input::new(ENDPOINTS, endpoint));
        }
        self.inputs.set(name, inputs.clone());
        let control_plane = self.object(CONTROL_PLANES, &spec.control_plane_ref.name).await?;
        let reference = control_plane.as_ref().and_then(|one| secret_of(&spec, one));
        if let Some(secret) = &reference {
            inputs.push(Input::within(SECRETS, &secret.namespace, &secret.name));
            self.inputs.set(name, inputs);
        }
        let secret = match &reference {
            Some(reference) => self.secret(reference).await?,
            None => Secret::Absent,
        };
        Ok(Some(Observed {
            endpoint: self.object(ENDPOINTS, endpoint).await?,
            registration,
            control_plane,
            secret,
        }))
    }

    async fn object(&self, plural: &str, name: &str) -> Result<Option<Value>, Refusal> {
        if name.is_empty() {
            return Ok(None);
        }
        let path = place::object(&Place::root(), API_VERSION, plural, None, name);
        self.api.get(&path).await.or_object_absent()
    }

    async fn secret(&self, reference: &SecretRef) -> Result<Secret, Refusal> {
        let path = place::object(
            &Place::root(),
            "v1",
            SECRETS,
            Some(&reference.namespace),
            &reference.name,
        );
        let found = self.api.get(&path).await.or_object_absent()?;
        Ok(match found {
            None => Secret::Absent,
            Some(secret) if secret["data"][KUBECONFIG].as_str().is_some_and(|text| !text.is_empty()) => Secret::Usable,
            Some(_) => Secret::Empty,
        })
    }
}
