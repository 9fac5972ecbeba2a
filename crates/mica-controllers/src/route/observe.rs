//! A control plane, its class and endpoint, its plane, and its route.

use mica_api::control_plane::{API_VERSION, CLASSES, CONTROL_PLANES, ControlPlaneSpec, ENDPOINTS, Mode};
use serde_json::Value;

use super::gateway::{self, Found};
use super::plain::Plainness;
use super::plan::{self, Observed};
use super::{PLANES, Routes};
use crate::api::{Absent as _, Refusal};
use crate::control_plane::Home;
use crate::dedicated::Provisioned;
use crate::endpoint::{self, read};
use crate::inputs::Input;
use crate::place::{self, Place};

/// What is found of a control plane.
pub enum Looked {
    Gone,
    /// Nothing leads to it by a host.
    Plain,
    /// It lives on a server of its own that is not there yet, does not answer, or is not run here.
    Away,
    /// What there is, and the server of its own that it lives on.
    At(Box<Observed>, Option<Home>),
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
        let plane = Home::plane_object(&path);
        let shared = self.home.api.get(&plane).await.or_absent()?;
        let shared = shared.filter(|plane| plan::is_its(&control_plane, plane));
        let leaves = !control_plane["metadata"]["deletionTimestamp"].is_null();
        let (home, own) = match &shared {
            Some(shared) if plan::is_away(shared) && !leaves => {
                let Some(home) = self.own(name).await else {
                    return Ok(Looked::Away);
                };
                let found = home.api.get(&plane).await.or_absent()?;
                match found.filter(|plane| plan::is_its(&control_plane, plane)) {
                    Some(plane) => (Some(home), Some(plane)),
                    None => return Ok(Looked::Away),
                }
            }
            // Where it will be is not known yet.
            None if spec.mode == Mode::Dedicated && !leaves => return Ok(Looked::Away),
            _ => (None, None),
        };
        let server = home.as_ref().unwrap_or(&self.home).url.clone();
        let class = self.object(CLASSES, &class).await?;
        let wanted = class
            .as_ref()
            .and_then(|class| gateway::wanted(&control_plane, class, &server));
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
        let observed = Observed {
            endpoint: self.object(ENDPOINTS, &endpoint).await?,
            plane: shared,
            own,
            server,
            gateway: wanted.zip(found),
            control_plane,
            class,
        };
        Ok(Looked::At(Box::new(observed), home))
    }

    /// The server of its own that a control plane has, if it runs.
    async fn own(&self, name: &str) -> Option<Home> {
        for provider in &self.providers {
            if let Ok(Some(Provisioned::Running { home, .. })) = provider.find(name).await {
                return Some(home.in_turn(self.api.turn()));
            }
        }
        None
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
