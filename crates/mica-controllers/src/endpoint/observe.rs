//! An endpoint, and the control plane whose requests are said to come by it.

use mica_api::control_plane::{API_VERSION, CONTROL_PLANES, ENDPOINTS, condition as types, gateway_endpoint};

use super::Endpoints;
use super::plan::{Observed, Routed};
use crate::api::{Absent as _, Refusal};
use crate::condition;
use crate::inputs::Input;
use crate::place::{self, Place};
use crate::route;

impl Endpoints {
    pub(super) async fn observe(&self, name: &str) -> Result<Option<Observed>, Refusal> {
        let root = Place::root();
        let path = place::object(&root, API_VERSION, ENDPOINTS, None, name);
        let Some(endpoint) = self.api.get(&path).await.or_object_absent()? else {
            return Ok(None);
        };
        let routed = condition::find(&endpoint["status"]["conditions"], types::ROUTED);
        let routed = match routed.and_then(route::named_in) {
            None => Routed::Nobody,
            Some(control_plane) => {
                self.inputs.set(name, vec![Input::new(CONTROL_PLANES, &control_plane)]);
                let path = place::object(&root, API_VERSION, CONTROL_PLANES, None, &control_plane);
                let found = self.api.get(&path).await.or_object_absent()?;
                let made = gateway_endpoint(&control_plane) == name;
                let names = found.is_some_and(|one| made || one["spec"]["endpointRef"]["name"] == name);
                if names { Routed::Named } else { Routed::Nobody }
            }
        };
        Ok(Some(Observed { endpoint, routed }))
    }
}
