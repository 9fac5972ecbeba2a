//! Admission: what a plane's webhooks and policies, and the plugins that are built in, say about writes.
//!
//! What a plane is configured with is loaded when the plane is written to, compiled once, and shared by content with every
//! plane that says the same ([`Set`]); an idle plane has nothing here, and a plane without webhooks and policies shares the
//! empty set. One task follows the configuration of all planes and forgets what changed. A request meets its plane's set in
//! a [`Gate`], which holds no lock while it calls: what a webhook takes, it takes from its own plane's requests.

mod call;
pub mod check;
mod gate;
mod load;
mod metric;
mod mutate;
mod owner;
mod param;
mod permit;
mod plugin;
mod policy;
mod security;
mod switch;
mod view;

use std::num::NonZero;
use std::sync::Arc;

use mica_api::{GroupResource, PlaneId};
use mica_machinery::admission::{Binding, MutatingPolicy, ValidatingPolicy, Webhook};
use mica_store::{Change, Event, Store};
use tokio::sync::Semaphore;

use crate::authz::Authorizer;
use crate::custom::Definitions;
use crate::egress::{ClientConfig, Egress};
use crate::error::ApiError;
use crate::metrics;
use crate::plane::Plane;
use crate::plane::cache::{Followed, PLANES};
use crate::plane::class::Class;
pub(crate) use gate::{Doing, Gate, Subject};
use load::{Shared, Wanted};
use metric::AdmissionMetrics;
pub use plugin::PodAccounts;
pub use switch::{Plugin, Plugins};

const GROUP: &str = "admissionregistration.k8s.io";
const MUTATING_HOOKS: &str = "mutatingwebhookconfigurations";
const VALIDATING_HOOKS: &str = "validatingwebhookconfigurations";
const MUTATING_POLICIES: &str = "mutatingadmissionpolicies";
const MUTATING_BINDINGS: &str = "mutatingadmissionpolicybindings";
const VALIDATING_POLICIES: &str = "validatingadmissionpolicies";
const VALIDATING_BINDINGS: &str = "validatingadmissionpolicybindings";
const QUOTAS: &str = "resourcequotas";
const CONFIGURATION: [&str; 6] = [
    MUTATING_HOOKS,
    VALIDATING_HOOKS,
    MUTATING_POLICIES,
    MUTATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_BINDINGS,
];

/// Whose configuration is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// The plane's own.
    Plane,
    /// Root's for planes of a class: tenants neither see nor change it.
    Platform,
}

impl Home {
    /// Before what is told of a policy or a webhook.
    pub(super) fn named(self) -> &'static str {
        match self {
            Self::Plane => "",
            Self::Platform => "platform ",
        }
    }
}

/// Which planes' requests an object of root's configuration is asked about: `*`, or names of classes with commas between.
/// What has it is not asked about root's own.
const PLANE_CLASSES: &str = "mica.dev/plane-classes";

/// What one plane, and every plane like it, is configured with. In the order in which it is asked.
#[derive(Debug, Default)]
pub struct Set {
    mutating_hooks: Vec<Arc<Hooks>>,
    validating_hooks: Vec<Arc<Hooks>>,
    mutating_policies: Vec<(Arc<MutatingPolicy>, Vec<Arc<Binding>>)>,
    validating_policies: Vec<(Arc<ValidatingPolicy>, Vec<Arc<Binding>>)>,
}

impl Set {
    fn is_empty(&self) -> bool {
        self.mutating_hooks.is_empty()
            && self.validating_hooks.is_empty()
            && self.mutating_policies.is_empty()
            && self.validating_policies.is_empty()
    }
}

/// What is known of a plane.
#[derive(Clone, Debug)]
struct Loaded {
    set: Arc<Set>,
    /// What root has for planes of its class.
    platform: Arc<Set>,
    class: Arc<Class>,
    quotas: Quotas,
}

/// Whose admission is known: a plane's, or what root has for planes of a class.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Of {
    Plane(PlaneId),
    Class(Arc<str>),
}

/// Whether any namespace of a plane has a quota. What they say is read when it counts: it changes with every write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quotas {
    None,
    Some,
}

/// The webhooks of one configuration.
#[derive(Debug)]
pub struct Hooks(Vec<Hook>);

/// A webhook and where it is called.
#[derive(Debug)]
pub struct Hook {
    rules: Webhook,
    client: Result<ClientConfig, String>,
}

/// The admission of all planes.
pub struct Admissions {
    store: Arc<dyn Store>,
    definitions: Arc<Definitions>,
    egress: Egress,
    authorizer: Arc<Authorizer>,
    planes: Followed<Of, Loaded>,
    shared: Shared,
    empty: Arc<Set>,
    metrics: AdmissionMetrics,
    /// Turns for evaluations that take a processor for long.
    heavy: Semaphore,
}

impl Admissions {
    pub fn new(
        store: Arc<dyn Store>,
        definitions: Arc<Definitions>,
        egress: Egress,
        authorizer: Arc<Authorizer>,
        metrics: &metrics::Registry,
    ) -> Self {
        Self {
            store,
            definitions,
            egress,
            authorizer,
            planes: Followed::new(PLANES),
            shared: Shared::default(),
            empty: Arc::default(),
            metrics: AdmissionMetrics::new(metrics),
            heavy: Semaphore::new(std::thread::available_parallelism().map_or(1, NonZero::get)),
        }
    }

    /// What is asked about a plane's requests, in the order in which it is asked: the platform has the last word.
    async fn of(&self, plane: &Plane) -> Result<Vec<(Home, Arc<Set>)>, ApiError> {
        let loaded = self.loaded(plane).await?;
        let both = [(Home::Plane, loaded.set), (Home::Platform, loaded.platform)];
        Ok(both.into_iter().filter(|(_, set)| !set.is_empty()).collect())
    }

    /// Whether any namespace of a plane has a quota.
    pub(crate) async fn has_quotas(&self, plane: &Plane) -> Result<bool, ApiError> {
        Ok(self.loaded(plane).await?.quotas == Quotas::Some)
    }

    async fn loaded(&self, plane: &Plane) -> Result<Loaded, ApiError> {
        // Mostly it is known: that must not cost the room of a load.
        if let Some(loaded) = self.planes.known(&Of::Plane(plane.id)) {
            if loaded.class.name == plane.class.name {
                return Ok(loaded);
            }
            // The plane went to another class.
            self.forget(plane.id);
        }
        let loaded = self.planes.get(&Of::Plane(plane.id), self.load(plane)).await?;
        match loaded {
            Some(loaded) if loaded.class.name == plane.class.name => Ok(loaded),
            _ => Ok(self.load(plane).await?.expect("a load gives something")),
        }
    }

    async fn load(&self, plane: &Plane) -> Result<Option<Loaded>, ApiError> {
        let of = if plane.is_root() { Wanted::Root } else { Wanted::Own };
        let (set, quotas) = futures::try_join!(
            Box::pin(self.shared.load(&*self.store, plane, of)),
            Box::pin(load::quotas(&*self.store, plane))
        )?;
        Ok(Some(Loaded {
            set: set.unwrap_or_else(|| self.empty.clone()),
            platform: match plane.is_root() {
                true => self.empty.clone(),
                false => self.platform(&plane.class).await?,
            },
            class: plane.class.clone(),
            quotas,
        }))
    }

    /// What root has for planes of a class.
    async fn platform(&self, class: &Arc<Class>) -> Result<Arc<Set>, ApiError> {
        let root = self.authorizer.root();
        let load = async {
            let wanted = Wanted::Class(&class.name);
            let set = Box::pin(self.shared.load(&*self.store, &root, wanted)).await?;
            Ok::<_, ApiError>(Some(Loaded {
                set: set.unwrap_or_else(|| self.empty.clone()),
                platform: self.empty.clone(),
                class: class.clone(),
                quotas: Quotas::None,
            }))
        };
        let loaded = self.planes.get(&Of::Class(class.name.as_str().into()), load).await?;
        Ok(loaded.expect("a load gives something").set)
    }

    /// Forgets what is loaded of a plane. What root has may be all planes'.
    pub fn forget(&self, plane: PlaneId) {
        match plane {
            PlaneId::ROOT => self.planes.forget_all(),
            plane => self.planes.forget(&Of::Plane(plane)),
        }
    }

    /// Whether writes of a resource may change what is known of planes.
    pub fn is_followed(group: &str, plural: &str) -> bool {
        (group == GROUP && CONFIGURATION.contains(&plural)) || (group.is_empty() && plural == QUOTAS)
    }

    /// Forgets planes as their configuration changes, on whatever server that happens. Ends when the store closes.
    ///
    /// Nothing is cached while this does not run.
    pub async fn follow(&self) {
        let configuration = CONFIGURATION.map(|plural| GroupResource::new(GROUP, plural));
        let mut resources = configuration.to_vec();
        resources.push(GroupResource::new("", QUOTAS));
        let forget = |plane| self.forget(plane);
        let matters = |event: &Event| !is_charge(event);
        self.planes
            .follow_those(
                &*self.store,
                &resources,
                "webhooks, policies and quotas",
                matters,
                forget,
            )
            .await;
    }
}

/// Whether an event is a change of a quota that was there before and stays: every write that is charged makes one.
fn is_charge(event: &Event) -> bool {
    let stays = event.previous.is_some() && matches!(event.change, Change::Put(_));
    stays && event.key.group_resource() == GroupResource::new("", QUOTAS)
}
