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
use crate::meta::Notice;
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
        engine::hear_in_root(&self.queue, notice, |object| {
            let name = if object.is(GROUP, ORGANIZATIONS) {
                &*object.meta.name
            } else if object.is("", "namespaces") {
                organization_of_namespace(&object.meta.name)?
            } else {
                return None;
            };
            Some(engine::in_root(None, name))
        });
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let Some(observed) = self.observe(&request.name).await? else {
            return Ok(Outcome::Done);
        };
        let now = engine::now();
        if let Some(step) = plan::plan(&observed, &now) {
            self.apply(&observed, step).await?;
        }
        Ok(Outcome::Done)
    }
}
