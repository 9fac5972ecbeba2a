//! Says that an organization can be used: its namespace is there.
//!
//! Watches organizations and their namespaces in root. An organization is made with its namespace; one whose namespace
//! somebody deleted gets another.

mod apply;
mod observe;
mod plan;

use async_trait::async_trait;
use mica_api::tenancy::{GROUP, ORGANIZATIONS, organization_of_namespace};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::meta::{Notice, Seen};
use crate::place::Place;
use crate::select::Name;

const WORKERS: usize = 4;

pub struct Organizations {
    api: Api,
    queue: Queue,
}

impl Organizations {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
        }
    }
}

#[async_trait]
impl Controller for Organizations {
    fn name(&self) -> Name {
        Name::Organization
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        let (Seen::Present(object) | Seen::Gone(object)) = &notice.seen else {
            return;
        };
        let about = if object.is(GROUP, ORGANIZATIONS) {
            Some(object.meta.name.as_str())
        } else if object.is("", "namespaces") {
            organization_of_namespace(&object.meta.name)
        } else {
            None
        };
        if let Some(name) = about.filter(|_| object.place == Place::root()) {
            let request = Request::new(object.place.cluster().clone(), None, name);
            self.queue.add(request, notice.priority);
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let Some(observed) = self.observe(&request.name).await? else {
            return Ok(Outcome::Done);
        };
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if let Some(step) = plan::plan(&observed, &now) {
            self.apply(&observed, step).await?;
        }
        Ok(Outcome::Done)
    }
}
