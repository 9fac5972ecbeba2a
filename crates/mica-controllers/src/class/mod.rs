//! Says of every class whether what it gives its control planes can be given: addons that there are, templates that make
//! URLs, services that have names.
//!
//! Whether a role is there depends on the control plane, and is told there. Watches classes, and the ConfigMaps that addons
//! may be in.

mod apply;
mod observe;
mod plan;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use compact_str::CompactString;
use mica_api::control_plane::{ADMIN_NAMESPACE, CLASSES, GROUP};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Priority, Queue};
use parking_lot::Mutex;

use crate::api::{Api, Refusal};
use crate::control_plane::Directory;
use crate::engine::{self, Controller};
use crate::meta::{Notice, Seen, What};
use crate::place::Place;
use crate::select::Name;

const WORKERS: usize = 2;
/// Who tells events.
const COMPONENT: &str = "control-plane-class-controller";

pub struct Classes {
    api: Api,
    /// Bundles of manifests on this machine.
    addons: Option<Arc<Directory>>,
    queue: Queue,
    /// Those that name addons which are not built in: they are looked at when ConfigMaps change. Platforms have a handful.
    with_addons: Mutex<BTreeSet<CompactString>>,
}

impl Classes {
    pub fn new(api: Api, addons: Option<PathBuf>) -> Self {
        Self {
            api,
            addons: addons.map(Directory::open),
            queue: engine::queue(),
            with_addons: Mutex::default(),
        }
    }

    /// Looks at the classes whose addons somebody may have changed.
    fn look_at_addons(&self, priority: Priority) {
        for name in self.with_addons.lock().iter() {
            self.look_at(name, priority);
        }
    }

    fn look_at(&self, name: &str, priority: Priority) {
        let request = Request::new(Place::root().cluster().clone(), None, name);
        self.queue.add(request, priority);
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

    fn wants(&self, what: &What) -> bool {
        what.is(GROUP, CLASSES) || what.is("", "configmaps")
    }

    fn hear(&self, notice: &Notice) {
        let (Seen::Present(object) | Seen::Gone(object)) = &notice.seen else {
            return;
        };
        if object.place != Place::root() {
            return;
        }
        if object.is(GROUP, CLASSES) {
            self.look_at(&object.meta.name, notice.priority);
        } else if object.is("", "configmaps") && object.meta.namespace.as_deref() == Some(ADMIN_NAMESPACE) {
            self.look_at_addons(notice.priority);
        }
    }

    async fn listen(&self) {
        let Some(directory) = &self.addons else {
            return;
        };
        loop {
            directory.changes().await;
            self.look_at_addons(Priority::Normal);
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let Some(observed) = self.observe(&request.name).await? else {
            self.with_addons.lock().remove(&*request.name);
            return Ok(Outcome::Done);
        };
        let now = engine::now();
        if let Some(status) = plan::plan(&observed, &now) {
            self.apply(&observed, &status).await?;
        }
        Ok(Outcome::Done)
    }
}
