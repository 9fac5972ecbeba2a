//! Runs control planes: each ControlPlane gets its plane, what is inside, credentials, addresses and registrations.
//!
//! Watches ControlPlanes, what they are made from (classes, endpoints, addons) and what they made (namespace, Secret,
//! registration) in the management plane; and on the server that virtual ones share the planes, and what is kept in them.
//! Who names a class or an endpoint is found by the server's index, so that one ControlPlane never costs a look at the
//! others. Nothing is kept here between two looks, and nothing is looked at by the clock but credentials before they expire.

mod addon;
mod bootstrap;
mod credential;
mod home;
mod observe;
pub mod plan;
mod provision;
mod reconcile;
mod remove;
mod role;
mod settings;
mod upgrade;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mica_api::control_plane::{
    ADMIN_NAMESPACE, CLASSES, CONTROL_PLANES, ENDPOINTS, GROUP, MANAGED_LABEL, NAME_LABEL, REGISTRATIONS,
};
use mica_runtime::queue::{Backoff, Limits, Outcome, Priority, Queue};
use mica_runtime::{ClusterName, Request};

use crate::api::{Api, Refusal};
use crate::echo::Echoes;
use crate::engine::{self, Controller};
use crate::follow::Listener;
use crate::follow::whole::Stream;
use crate::kinds::Catalog;
use crate::meta::{Notice, Object, Seen, What};
use crate::migration::Migrations;
use crate::place::Place;
use crate::select::Name;
pub(crate) use addon::Directory;
use addon::Library;
pub use home::{Home, PLANE_API_VERSION};
pub use role::{OPERATOR, operator_roles};
pub use settings::{LIFETIME, SHORTEST_LIFETIME, Settings, Whereabouts};

/// ControlPlanes that are worked on at once. All are of one management plane, so this is also how many of that.
const WORKERS: usize = 32;
/// How long to let changes of what is kept in planes gather before they are looked at: most are our own.
const SETTLE: Duration = Duration::from_secs(1);
/// Items that wait before nothing more is read from the shared server, and how often that is looked at.
const FULL: usize = 50_000;
const LOOK: Duration = Duration::from_millis(20);

pub struct ControlPlanes {
    /// The management plane.
    api: Api,
    settings: Settings,
    /// What the planes of the shared server serve.
    catalog: Catalog,
    library: Library,
    migrations: Migrations,
    waker: Waker,
}

/// What waits to be looked at.
#[derive(Clone)]
struct Waker {
    queue: Arc<Queue>,
    echoes: Arc<Echoes>,
}

impl ControlPlanes {
    pub fn new(api: Api, settings: Settings) -> Self {
        let counting = api.clone();
        settings.census.while_it_is(move || counting.is_in_turn());
        Self {
            catalog: Catalog::new(settings.home.api.clone()),
            library: Library::new(api.clone(), settings.addons.clone().map(Directory::open)),
            migrations: Migrations::new(settings.home.clone(), settings.providers.clone(), api.turn().clone()),
            api,
            settings,
            waker: Waker {
                queue: Arc::new(Queue::new(Limits {
                    per_cluster: WORKERS,
                    backoff: Backoff {
                        most: engine::LONGEST_BACKOFF,
                        ..Backoff::default()
                    },
                })),
                echoes: Arc::default(),
            },
        }
    }
}

impl Waker {
    /// Has a ControlPlane looked at.
    fn wake(&self, name: &str, priority: Priority) {
        let request = Request::new(ClusterName::local(), None, name);
        self.queue.add(request, priority);
    }

    /// Has a ControlPlane looked at because of what is heard of it, or of something that it made; not because of what it
    /// wrote itself.
    fn wake_for(&self, name: &str, object: &Object, priority: Priority) {
        let request = Request::new(ClusterName::local(), None, name);
        if self.echoes.is_news(&request, object) {
            self.queue.add(request, priority);
        }
    }

    /// Has those ControlPlanes looked at that name something: who they are is found out later, because it takes a request.
    fn wake_namers(&self, resource: &str, name: &str, priority: Priority) {
        let request = Request::new(ClusterName::local(), Some(resource), name);
        self.queue.add(request, priority);
    }
}

/// The ControlPlane that an object of the management plane says to belong to.
fn belongs_to(object: &Object) -> Option<&str> {
    let mut owners = object.meta.owner_references.iter();
    let owner = owners.find(|owner| owner.kind == "ControlPlane" && owner.api_version.starts_with(GROUP));
    match owner {
        Some(owner) => Some(&owner.name),
        None => object.meta.annotations.control_plane.as_deref(),
    }
}

#[async_trait]
impl Controller for ControlPlanes {
    fn name(&self) -> Name {
        Name::ControlPlane
    }

    fn queue(&self) -> &Queue {
        &self.waker.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn wants(&self, what: &What) -> bool {
        let beside = ["secrets", "configmaps", "namespaces"];
        what.group() == GROUP || beside.iter().any(|resource| what.is("", resource))
    }

    fn hear(&self, notice: &Notice) {
        let object = match &notice.seen {
            Seen::Present(object) | Seen::Gone(object) => object,
            Seen::Restarted => return self.waker.echoes.clear(),
            Seen::PlaneGone(_) => return,
        };
        if object.place != Place::root() {
            return;
        }
        let name = object.meta.name.as_str();
        if object.is(GROUP, CONTROL_PLANES) {
            if matches!(notice.seen, Seen::Gone(_)) {
                self.settings.census.forget(name);
            }
            self.waker.wake_for(name, object, notice.priority);
        } else if object.is(GROUP, CLASSES) {
            self.waker.wake_namers(CLASSES, name, notice.priority);
        } else if object.is(GROUP, ENDPOINTS) {
            self.waker.wake_namers(ENDPOINTS, name, notice.priority);
        } else if object.is("", "configmaps") && object.meta.namespace.as_deref() == Some(ADMIN_NAMESPACE) {
            self.waker.wake_namers(wake::ADDONS, name, notice.priority);
        } else if object.is(GROUP, REGISTRATIONS)
            || ((object.is("", "secrets") || object.is("", "configmaps") || object.is("", "namespaces"))
                && wake::is_managed_namespace(object))
        {
            let unmarked = || match object.is(GROUP, REGISTRATIONS) {
                // One that is in the way of what would be made by itself.
                true => Some(name),
                false => wake::by_namespace(object),
            };
            if let Some(owner) = belongs_to(object).or_else(unmarked) {
                self.waker.wake_for(owner, object, notice.priority);
            }
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let name = request.name.as_str();
        match request.namespace.as_deref() {
            None if request.cluster.is_local() => {
                let Waker { queue, echoes } = &self.waker;
                echoes.look(queue, request, Box::pin(self.reconcile(name))).await
            }
            None if !self.waker.echoes.has_news(request) => Ok(Outcome::Done),
            None => self.wake_owner(&Place::of(&request.cluster)).await,
            Some(resource) => self.wake_all(resource, name).await,
        }
    }

    /// Follows the server that virtual control planes share, which need not be the one that their objects are in; and the
    /// servers of dedicated ones.
    async fn listen(&self) {
        let api = &self.settings.home.api;
        let listener = self.waker.clone();
        let planes = Stream::root(api.clone()).labelled(NAME_LABEL);
        let inside = Stream::planes(api.clone()).labelled(MANAGED_LABEL);
        let changes = self.settings.providers.iter().map(|provider| provider.changes());
        let changes = changes.chain([self.migrations.changes()]);
        let providers = changes.map(|changes| self.hear_changes(changes));
        let providers = futures::future::join_all(providers);
        let addons = self.follow_addons();
        tokio::join!(planes.follow(&listener), inside.follow(&listener), providers, addons);
    }
}

/// Hears what happens on the shared server.
impl Listener for Waker {
    fn hear(&self, notice: &Notice) {
        let (object, gone) = match &notice.seen {
            Seen::Present(object) => (object, Gone::No),
            Seen::Gone(object) => (object, Gone::Yes),
            _ => return,
        };
        if object.place == Place::root() {
            if !object.is("mica.dev", "planes") {
                return;
            }
            if let Some(name) = object.meta.annotations.control_plane.as_deref() {
                self.wake_for(name, object, notice.priority);
            }
            // Somebody else may have waited for the name.
            if gone == Gone::Yes {
                self.wake_namers(wake::PLANES, &object.meta.name, notice.priority);
            }
            return;
        }
        let request = Request::new(object.place.cluster().clone(), None, wake::INSIDE);
        self.echoes.hear_early(&request, object);
        match gone {
            Gone::Yes => self.queue.add(request, notice.priority),
            Gone::No => self.queue.add_after(request, SETTLE),
        }
    }

    async fn room(&self) {
        while self.queue.depth() > FULL {
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    Yes,
    No,
}
