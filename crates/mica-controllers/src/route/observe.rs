//! A control plane, its class and endpoint, its plane, and its route.

use mica_api::control_plane::{API_VERSION, CLASSES, CONTROL_PLANES, ControlPlaneSpec, ENDPOINTS};
use serde_json::Value;

use super::gateway::{self, Found};
use super::plain::Plainness;
use super::plan::Observed;
use super::{PLANES, Routes};
use crate::api::{Absent as _, Refusal};
use crate::endpoint::{self, read};
use crate::inputs::Input;
use crate::place::{self, Place};

/// What is found of a control plane.
pub enum Looked {
    Gone,
    /// Nothing leads to it by a host.
    Plain,
    At(Box<Observed>),
}

impl Routes {
    pub(super) async fn observe(&self, name: &str) -> Result<Looked, Refusal> {
        let Some(control_plane) = self.object(CONTROL_PLANES, name).await? else {
            return Ok(Looked::Gone);
        };
        let spec: ControlPlaneSpec = read(&control_plane["spec"]);
        if self.plain.note(&read(&control_plane["metadata"]), &spec) == Plainness::Plain {
            self.inputs.forget(name);
            return Ok(Looked::Plain);
        }
        let class = spec.class_ref.map(|one| one.name).unwrap_or_default();
        let named = spec.endpoint_ref.map(|one| one.name).unwrap_or_default();
        let path = endpoint::cluster_path(&control_plane);
        let mut inputs = vec![Input::new(PLANES, &path)];
        let of_class = (!class.is_empty()).then(|| Input::new(CLASSES, &class));
        inputs.extend(of_class);
        self.inputs.set(name, inputs.clone());
        let class = self.object(CLASSES, &class).await?;
        let wanted = class
            .as_ref()
            .and_then(|class| gateway::wanted(&control_plane, class, &self.home.url));
        // The endpoint that it names, or the one that is made for it.
        let endpoint = match &wanted {
            Some(wanted) if named.is_empty() => wanted.endpoint_name().to_owned(),
            _ => named,
        };
        if !endpoint.is_empty() {
            inputs.push(Input::new(ENDPOINTS, &endpoint));
            self.inputs.set(name, inputs);
        }
        let found = match &wanted {
            Some(wanted) => Some(self.route(wanted.route_path().as_str()).await?),
            None => None,
        };
        let plane = place::object(&Place::root(), "mica.dev/v1alpha1", PLANES, None, &path);
        Ok(Looked::At(Box::new(Observed {
            endpoint: self.object(ENDPOINTS, &endpoint).await?,
            plane: self.home.api.get(&plane).await.or_absent()?,
            server: self.home.url.clone(),
            gateway: wanted.zip(found),
            control_plane,
            class,
        })))
    }

    async fn object(&self, plural: &str, name: &str) -> Result<Option<Value>, Refusal> {
        if name.is_empty() {
            return Ok(None);
        }
        let path = place::object(&Place::root(), API_VERSION, plural, None, name);
        self.api.get(&path).await.or_object_absent()
    }

    async fn route(&self, path: &str) -> Result<Found, Refusal> {
        match self.api.get(path).await {
            Ok(found) => Ok(Found::Present(found)),
            Err(refusal) if refusal.is_object_not_found() => Ok(Found::Absent),
            Err(refusal) if refusal.is_kind_not_served() => Ok(Found::NotServed),
            Err(refusal) => Err(refusal),
        }
    }
}
