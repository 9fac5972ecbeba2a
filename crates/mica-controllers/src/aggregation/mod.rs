//! Cluster roles that collect the rules of others (`admin`, `edit`, `view`, and those that people make).
//!
//! Watches cluster roles. A change of any looks at all of its plane, once for many changes.

mod apply;
mod observe;
mod plan;

use std::time::Duration;

use async_trait::async_trait;
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::meta::{Notice, Seen};
use crate::place::Place;
use crate::select::Name;

const WORKERS: usize = 4;
const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const RESOURCE: &str = "clusterroles";
/// Roles come in groups: all of a group are waited for.
const SOON: Duration = Duration::from_millis(50);

pub struct Aggregation {
    api: Api,
    queue: Queue,
}

impl Aggregation {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
        }
    }
}

#[async_trait]
impl Controller for Aggregation {
    fn name(&self) -> Name {
        Name::Aggregation
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        if let Seen::Present(object) | Seen::Gone(object) = &notice.seen
            && object.is(GROUP, RESOURCE)
        {
            let all = Request::new(object.place.cluster().clone(), None, "");
            self.queue.add_after(all, SOON);
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let place = Place::of(&request.cluster);
        let roles = self.observe(&place).await?;
        for (role, rules) in plan::plan(&roles) {
            self.apply(&place, role, rules).await?;
        }
        Ok(Outcome::Done)
    }
}
