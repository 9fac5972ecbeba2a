//! Says of every registration where its control plane is and by what it is reached: all that services have to follow.
//!
//! Watches registrations and whatever they are resolved from: ControlPlanes, ControlPlaneEndpoints and Secrets. What was
//! published stays published until something else is known: an error of this moment changes nothing.

mod apply;
mod observe;
mod plan;

use async_trait::async_trait;
use compact_str::CompactString;
use mica_api::control_plane::{CONTROL_PLANES, ENDPOINTS, GROUP, REGISTRATIONS};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::inputs::{Input, Inputs};
use crate::meta::{Notice, Object, What};
use crate::select::Name;

const WORKERS: usize = 8;
/// Who tells events.
const COMPONENT: &str = "control-plane-registration-controller";
const SECRETS: &str = "secrets";

pub struct Registrations {
    api: Api,
    queue: Queue,
    inputs: Inputs,
}

impl Registrations {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
            inputs: Inputs::default(),
        }
    }

    /// The registrations that an object of the management plane is about.
    fn about(&self, object: &Object) -> Vec<CompactString> {
        let name = &object.meta.name;
        if object.is(GROUP, REGISTRATIONS) {
            return vec![name.clone()];
        }
        if object.is(GROUP, CONTROL_PLANES) {
            return self.inputs.dependents(&Input::new(CONTROL_PLANES, name));
        }
        if object.is(GROUP, ENDPOINTS) {
            return self.inputs.dependents(&Input::new(ENDPOINTS, name));
        }
        match &object.meta.namespace {
            Some(namespace) if object.is("", SECRETS) => {
                self.inputs.dependents(&Input::within(SECRETS, namespace, name))
            }
            _ => Vec::new(),
        }
    }
}

#[async_trait]
impl Controller for Registrations {
    fn name(&self) -> Name {
        Name::ControlPlaneRegistration
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn wants(&self, what: &What) -> bool {
        let ours = [REGISTRATIONS, CONTROL_PLANES, ENDPOINTS];
        ours.iter().any(|resource| what.is(GROUP, resource)) || what.is("", SECRETS)
    }

    fn hear(&self, notice: &Notice) {
        let Some(object) = self.inputs.heard(notice) else {
            return;
        };
        for name in self.about(object) {
            let request = Request::new(object.place.cluster().clone(), None, &name);
            match object.is(GROUP, CONTROL_PLANES) {
                true => engine::look_soon(&self.queue, request, notice.priority),
                false => self.queue.add(request, notice.priority),
            }
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
