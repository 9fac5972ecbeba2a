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
mod param;
mod permit;
mod plugin;
mod policy;
mod view;

use std::sync::Arc;

use mica_api::{GroupResource, PlaneId};
use mica_machinery::admission::{Binding, MutatingPolicy, ValidatingPolicy, Webhook};
use mica_store::{Change, Event, Store};

use crate::authz::Authorizer;
use crate::custom::Definitions;
use crate::egress::{ClientConfig, Egress};
use crate::error::ApiError;
use crate::metrics;
use crate::plane::Plane;
use crate::plane::cache::Followed;
pub(crate) use gate::{Doing, Gate, Subject};
use load::Shared;
use metric::AdmissionMetrics;
pub use plugin::PodAccounts;

/// Planes whose configuration is kept loaded. An entry is a pointer.
const CACHED_PLANES: usize = 10_000;

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
    quotas: Quotas,
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
    planes: Followed<Loaded>,
    shared: Shared,
    empty: Arc<Set>,
    metrics: AdmissionMetrics,
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
            planes: Followed::new(CACHED_PLANES),
            shared: Shared::default(),
            empty: Arc::default(),
            metrics: AdmissionMetrics::new(metrics),
        }
    }

    /// What a plane is configured with.
    async fn of(&self, plane: &Plane) -> Result<Arc<Set>, ApiError> {
        Ok(self.loaded(plane).await?.set)
    }

    /// Whether any namespace of a plane has a quota.
    pub(crate) async fn has_quotas(&self, plane: &Plane) -> Result<bool, ApiError> {
        Ok(self.loaded(plane).await?.quotas == Quotas::Some)
    }

    async fn loaded(&self, plane: &Plane) -> Result<Loaded, ApiError> {
        // Mostly it is known: that must not cost the room of a load.
        if let Some(loaded) = self.planes.peek(plane.id.as_str()) {
            return Ok(loaded);
        }
        let loaded = self.planes.get(plane.id.as_str(), async {
            let (set, quotas) = futures::try_join!(
                Box::pin(self.shared.load(&*self.store, plane)),
                Box::pin(load::quotas(&*self.store, plane))
            )?;
            let set = set.unwrap_or_else(|| self.empty.clone());
            Ok::<_, ApiError>(Some(Loaded { set, quotas }))
        });
        Ok(loaded.await?.expect("a load gives something"))
    }

    /// Forgets what is loaded of a plane.
    pub fn forget(&self, plane: PlaneId) {
        self.planes.forget(plane.as_str());
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
