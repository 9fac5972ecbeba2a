//! Leads hosts to control planes: a host that an endpoint or a class gives a control plane becomes an address of its plane,
//! which its server then serves with a certificate of its own; where a class has a Gateway, the Gateway's route leads there.
//!
//! A plane that lives on a server of its own is served at its hosts there; that they are its own is said on the shared server.
//!
//! Only what a ControlPlane names is led anywhere. A plane that has a host keeps it until it lets go: the store lets no two
//! planes have one. Who waits for a host looks again when the plane that has it changes or goes.
//!
//! Most control planes name neither a class nor an endpoint: such a one is looked at once, and again when it is asked for
//! something else.

mod apply;
mod gateway;
mod observe;
mod plain;
mod plan;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use compact_str::CompactString;
use mica_api::control_plane::{CLASSES, CONTROL_PLANES, ENDPOINTS, GROUP};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Priority, Queue};
use parking_lot::Mutex;

use crate::api::{Api, Refusal};
use crate::control_plane::Home;
use crate::dedicated::Provider;
use crate::engine::{self, Controller};
use crate::inputs::{Input, Inputs};
use crate::meta::{Notice, Object, Seen, What};
use crate::place::Place;
use crate::select::Name;
use observe::Looked;
use plain::Plain;

pub use plan::{HOSTS, named_in};

const WORKERS: usize = 8;
const PLANES: &str = "planes";
/// The group and resource of Gateway API routes, and the name of their definition.
const ROUTES: (&str, &str) = ("gateway.networking.k8s.io", "httproutes");
const ROUTE_DEFINITION: &str = "httproutes.gateway.networking.k8s.io";

pub struct Routes {
    api: Api,
    /// The server that virtual control planes share.
    home: Home,
    /// Who runs servers for dedicated ones.
    providers: Vec<Arc<dyn Provider>>,
    queue: Queue,
    inputs: Inputs,
    /// Control planes that want nothing of this.
    plain: Plain,
    /// Control planes that want a host which a plane has, by that plane.
    waiting: Mutex<HashMap<CompactString, BTreeSet<CompactString>>>,
    /// Control planes that want a route where routes are not served.
    unserved: Mutex<BTreeSet<CompactString>>,
}

impl Routes {
    pub fn new(api: Api, home: Home, providers: Vec<Arc<dyn Provider>>) -> Self {
        Self {
            api,
            home,
            providers,
            queue: engine::queue(),
            inputs: Inputs::default(),
            plain: Plain::default(),
            waiting: Mutex::default(),
            unserved: Mutex::default(),
        }
    }

    /// The control planes that an object of the management plane is about.
    fn about(&self, object: &Object) -> Vec<CompactString> {
        let name = &object.meta.name;
        if object.is(GROUP, CONTROL_PLANES) {
            return vec![name.clone()];
        }
        for resource in [ENDPOINTS, CLASSES] {
            if object.is(GROUP, resource) {
                return self.inputs.dependents(&Input::new(resource, name));
            }
        }
        if object.is("mica.dev", PLANES) {
            let mut found = self.inputs.dependents(&Input::new(PLANES, name));
            found.extend(self.waiting.lock().remove(name).into_iter().flatten());
            return found;
        }
        if object.is(ROUTES.0, ROUTES.1) {
            let mut owners = object.meta.owner_references.iter();
            let owner = owners.find(|owner| owner.kind == "ControlPlane");
            return owner.map(|owner| owner.name.clone()).into_iter().collect();
        }
        if object.is("apiextensions.k8s.io", "customresourcedefinitions") && name == ROUTE_DEFINITION {
            return std::mem::take(&mut *self.unserved.lock()).into_iter().collect();
        }
        Vec::new()
    }

    fn look_at(&self, names: impl IntoIterator<Item = CompactString>, priority: Priority) {
        for name in names {
            let request = Request::new(Place::root().cluster().clone(), None, &name);
            engine::look_soon(&self.queue, request, priority);
        }
    }

    /// A plane has let go of a host, or is gone: whoever waits for one of its hosts tries again.
    fn let_go(&self, plane: &str) {
        let waiting = self.waiting.lock().remove(plane);
        self.look_at(waiting.into_iter().flatten(), Priority::Normal);
    }
}

#[async_trait]
impl Controller for Routes {
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
        let ours = [CONTROL_PLANES, ENDPOINTS, CLASSES];
        ours.iter().any(|resource| what.is(GROUP, resource))
            || what.is(ROUTES.0, ROUTES.1)
            || what.is("mica.dev", PLANES)
    }

    fn hear(&self, notice: &Notice) {
        if matches!(notice.seen, Seen::Restarted) {
            self.plain.clear();
        }
        if let Some(object) = self.inputs.heard(notice)
            && !(object.is(GROUP, CONTROL_PLANES) && self.plain.is_as_known(notice, &object.meta))
        {
            self.look_at(self.about(object), notice.priority);
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let (observed, own) = match Box::pin(self.observe(&request.name)).await? {
            Looked::At(observed, own) => (observed, own),
            // When its server is there, its ControlPlane says so and is looked at again.
            Looked::Plain | Looked::Away => return Ok(Outcome::Done),
            Looked::Gone => {
                for input in self.inputs.forget(&request.name) {
                    if input.resource() == PLANES {
                        self.let_go(input.name());
                    }
                }
                return Ok(Outcome::Done);
            }
        };
        let routed = self.keep_gateway(&observed).await?;
        let verdicts = self.keep_hosts(&observed, own.as_ref()).await?;
        let now = engine::now();
        if let Some(status) = plan::status(&observed, &routed, &verdicts, &now) {
            self.tell(&observed, &status).await?;
        }
        match routed {
            // Nothing tells when it would do better.
            gateway::Routed::Refused(_) => Ok(Outcome::Failed),
            _ => Ok(Outcome::Done),
        }
    }
}
