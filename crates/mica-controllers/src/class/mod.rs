//! Says of classes of control planes whether they can be used.

use async_trait::async_trait;
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::meta::Notice;
use crate::select::Name;

const WORKERS: usize = 4;

pub struct Classes {
    #[expect(dead_code, reason = "it is asked when there is something to do")]
    api: Api,
    queue: Queue,
}

impl Classes {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
        }
    }
}

#[async_trait]
impl Controller for Classes {
    fn name(&self) -> Name {
        Name::ControlPlaneClass
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, _notice: &Notice) {}

    async fn work(&self, _request: &Request) -> Result<Outcome, Refusal> {
        Ok(Outcome::Done)
    }
}
