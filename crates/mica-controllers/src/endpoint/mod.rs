//! Says of every endpoint whether its URLs can be used, and what to do if not.
//!
//! Whether a host resolves is not asked: names are data here, and may be known elsewhere only. Where requests for a host go
//! is the affair of `route`; here only what it left on endpoints that nobody names any more is taken away.

mod apply;
mod observe;
mod plan;
pub mod template;
pub mod url;

use async_trait::async_trait;
use mica_api::control_plane::{
    CONTROL_PLANES, ControlPlaneEndpointSpec, ControlPlaneEndpointStatus, ENDPOINTS, GROUP, MANAGED_BY_ANNOTATION,
    condition as types, reason,
};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{Api, Refusal};
use crate::condition;
use crate::engine::{self, Controller};
use crate::event::{self, Severity, Told};
use crate::inputs::{Input, Inputs};
use crate::meta::{Notice, What};
use crate::select::Name;

const WORKERS: usize = 4;
/// Who tells events of endpoints.
pub const COMPONENT: &str = "control-plane-endpoint-controller";

/// On endpoints whose host is a route's of the Gateway API: their URLs are whole as they stand.
pub const GATEWAY_LABEL: &str = "controlplane.kplane.dev/gateway";

pub struct Endpoints {
    api: Api,
    queue: Queue,
    inputs: Inputs,
}

impl Endpoints {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
            inputs: Inputs::default(),
        }
    }
}

#[async_trait]
impl Controller for Endpoints {
    fn name(&self) -> Name {
        Name::ControlPlaneEndpoint
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn wants(&self, what: &What) -> bool {
        what.is(GROUP, ENDPOINTS) || what.is(GROUP, CONTROL_PLANES)
    }

    fn hear(&self, notice: &Notice) {
        let Some(object) = self.inputs.heard(notice) else {
            return;
        };
        let names = if object.is(GROUP, ENDPOINTS) {
            vec![object.meta.name.clone()]
        } else if object.is(GROUP, CONTROL_PLANES) {
            // Those that say that its requests come by them.
            self.inputs.dependents(&Input::new(CONTROL_PLANES, &object.meta.name))
        } else {
            return;
        };
        for name in names {
            let request = Request::new(object.place.cluster().clone(), None, &name);
            self.queue.add(request, notice.priority);
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let Some(observed) = self.observe(&request.name).await? else {
            self.inputs.forget(&request.name);
            return Ok(Outcome::Done);
        };
        let now = engine::now();
        if let Some(status) = plan::plan(&observed, &now) {
            self.apply(&observed, &status).await?;
        }
        Ok(Outcome::Done)
    }
}

/// A part of an object as it is meant; what cannot be read says nothing.
pub fn read<T: DeserializeOwned + Default>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

/// The path of a control plane: its own name if it says none.
pub fn cluster_path(control_plane: &Value) -> String {
    let said = control_plane["spec"]["virtual"]["clusterPath"].as_str();
    let said = said.filter(|path| !path.is_empty());
    let name = || control_plane["metadata"]["name"].as_str().unwrap_or_default();
    said.unwrap_or_else(name).to_owned()
}

/// Whether a control plane says that somebody else runs it.
pub fn is_anothers(control_plane: &Value) -> bool {
    let who = control_plane["metadata"]["annotations"][MANAGED_BY_ANNOTATION].as_str();
    who.is_some_and(|who| !who.is_empty())
}

/// Whether the host of an endpoint is a route's of the Gateway API.
pub fn is_routed_by_gateway(endpoint: &Value) -> bool {
    endpoint["metadata"]["labels"][GATEWAY_LABEL].is_string()
}

/// What is told of a status that changes: whether the URLs can be used, and where the host leads.
pub fn told(before: &Value, after: &Value) -> Vec<Told> {
    let (before, after) = (&before["conditions"], &after["conditions"]);
    let ready = event::transition(before, after, types::READY);
    // That one which is new has no URL yet is no news.
    let ready = ready.filter(|told| told.reason != reason::ENDPOINT_PENDING || event::was_true(before, types::READY));
    let (was, is) = (
        condition::find(before, types::ROUTED),
        condition::find(after, types::ROUTED),
    );
    let routed = match (was, is) {
        (Some(was), None) if was["status"] == "True" => Some(Told {
            kind: Severity::Normal,
            reason: reason::HOST_RELEASED.to_owned(),
            message: format!("no longer so: {}", was["message"].as_str().unwrap_or_default()),
        }),
        // The message says which host leads where: another one is another thing.
        (Some(was), Some(is)) if was["message"] != is["message"] => {
            event::transition(&Value::Null, after, types::ROUTED)
        }
        _ => event::transition(before, after, types::ROUTED),
    };
    ready.into_iter().chain(routed).collect()
}

/// The URLs of an endpoint, each with the field that says it: what a provider observed counts before what was asked for.
pub fn urls(endpoint: &Value) -> Vec<(&'static str, String)> {
    let said: ControlPlaneEndpointSpec = read(&endpoint["spec"]);
    let seen: ControlPlaneEndpointStatus = read(&endpoint["status"]);
    let of = |seen: String, at: &'static str, said: String, spec: &'static str| match seen.is_empty() {
        true => (spec, said),
        false => (at, seen),
    };
    let all = [
        of(seen.endpoint, "status.endpoint", said.endpoint, "spec.endpoint"),
        of(
            seen.external_endpoint,
            "status.externalEndpoint",
            said.external_endpoint,
            "spec.externalEndpoint",
        ),
        of(
            seen.join_endpoint,
            "status.joinEndpoint",
            said.join_endpoint,
            "spec.joinEndpoint",
        ),
    ];
    all.into_iter().filter(|(_, url)| !url.is_empty()).collect()
}
