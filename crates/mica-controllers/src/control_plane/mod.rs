//! Runs control planes: each ControlPlane gets its plane, what is inside, credentials, addresses and registrations.

mod home;
mod settings;

use async_trait::async_trait;
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::meta::Notice;
use crate::select::Name;
pub use home::{Home, PLANE_API_VERSION};
pub use settings::{LIFETIME, SHORTEST_LIFETIME, Settings};

const WORKERS: usize = 16;

pub struct ControlPlanes {
    #[expect(dead_code, reason = "it is asked when there is something to do")]
    api: Api,
    #[expect(dead_code, reason = "it is asked when there is something to do")]
    settings: Settings,
    queue: Queue,
}

impl ControlPlanes {
    pub fn new(api: Api, settings: Settings) -> Self {
        Self {
            api,
            settings,
            queue: engine::queue(),
        }
    }
}

#[async_trait]
impl Controller for ControlPlanes {
    fn name(&self) -> Name {
        Name::ControlPlane
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
