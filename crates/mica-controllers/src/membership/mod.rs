//! Says of each membership whether it holds, and repeats what its readers may not look up themselves.
//!
//! Watches memberships, and organizations: what is repeated of them changes with them. What roles give is decided by whoever
//! serves them; until then they are pending.

mod apply;
mod observe;
mod plan;

use async_trait::async_trait;
use mica_api::tenancy::{API_VERSION, GROUP, MEMBERSHIPS, ORGANIZATIONS, organization_namespace};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Priority, Queue};

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::meta::Notice;
use crate::place::{self, Place};
use crate::select::Name;

const WORKERS: usize = 4;

pub struct Memberships {
    api: Api,
    queue: Queue,
}

impl Memberships {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
        }
    }

    /// Looks at every membership of an organization: it has changed.
    async fn look_at_all(&self, request: &Request) -> Result<(), Refusal> {
        let namespace = organization_namespace(&request.name);
        let path = place::collection(&Place::root(), API_VERSION, MEMBERSHIPS, Some(&namespace));
        for member in self.api.list_metadata(&path, "").await?.items {
            let one = Request::new(request.cluster.clone(), Some(&namespace), &member.metadata.name);
            self.queue.add(one, Priority::Low);
        }
        Ok(())
    }
}

#[async_trait]
impl Controller for Memberships {
    fn name(&self) -> Name {
        Name::Membership
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        engine::hear_in_root(&self.queue, notice, |object| {
            let ours = object.is(GROUP, MEMBERSHIPS) || object.is(GROUP, ORGANIZATIONS);
            ours.then(|| engine::in_root(object.meta.namespace.as_deref(), &object.meta.name))
        });
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        // What is in no namespace is an organization.
        let Some(namespace) = request.namespace.as_deref() else {
            self.look_at_all(request).await?;
            return Ok(Outcome::Done);
        };
        let Some(observed) = self.observe(namespace, &request.name).await? else {
            return Ok(Outcome::Done);
        };
        let now = engine::now();
        if let Some(status) = plan::plan(&observed, &now) {
            self.apply(&observed, namespace, status).await?;
        }
        Ok(Outcome::Done)
    }
}
