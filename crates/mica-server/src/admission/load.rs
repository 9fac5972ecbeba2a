//! A plane's configuration, read from the store and compiled: once for everybody who has the same.

use std::collections::HashMap;
use std::sync::Arc;

use mica_api::GroupResource;
use mica_machinery::admission::{Binding, MutatingPolicy, ValidatingPolicy, Webhook};
use mica_store::{RangeQuery, Store};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::{
    CONFIGURATION, GROUP, Hook, Hooks, MUTATING_BINDINGS, MUTATING_HOOKS, MUTATING_POLICIES, PLANE_CLASSES, QUOTAS,
    Quotas, Set, VALIDATING_BINDINGS, VALIDATING_HOOKS, VALIDATING_POLICIES,
};
use crate::custom::Weakly;
use crate::egress::ClientConfig;
use crate::error::ApiError;
use crate::pages::Pages;
use crate::plane::Plane;
use crate::stored::Content;

/// Objects read at once: each may be large.
const PAGE: usize = 100;
/// Compiled at once: the rest of the server goes on meanwhile.
const COMPILATIONS: usize = 2;

type Hash = [u8; 32];

/// Everything compiled that somebody uses.
pub(super) struct Shared {
    parts: Arc<Parts>,
    sets: Weakly<Set>,
    compilations: Semaphore,
}

#[derive(Default)]
struct Parts {
    hooks: Weakly<Hooks>,
    mutating: Weakly<MutatingPolicy>,
    validating: Weakly<ValidatingPolicy>,
    bindings: Weakly<Binding>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            parts: Arc::default(),
            sets: Weakly::default(),
            compilations: Semaphore::new(COMPILATIONS),
        }
    }
}

/// What counts of an object of the configuration; all else of it is not looked at.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow)]
    webhooks: Option<&'a RawValue>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    annotations: HashMap<String, String>,
}

/// Which objects of a plane's configuration are wanted.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'c> {
    /// All: no annotation means anything in a plane.
    Own,
    /// Root's own.
    Root,
    /// Those of root that are for planes of a class.
    Class(&'c str),
}

impl Wanted<'_> {
    fn has(self, plural: &str, said: &Said<'_>) -> bool {
        // Policies do what their bindings say.
        if matches!(plural, MUTATING_POLICIES | VALIDATING_POLICIES) {
            return true;
        }
        let classes = said.metadata.annotations.get(PLANE_CLASSES);
        match self {
            Self::Own => true,
            Self::Root => classes.is_none(),
            Self::Class(class) => classes.is_some_and(|classes| {
                let mut named = classes.split(',').map(str::trim);
                named.any(|one| one == "*" || one == class)
            }),
        }
    }
}

/// One object of the configuration.
struct Read {
    plural: &'static str,
    name: String,
    hash: Hash,
    said: String,
}

impl Shared {
    /// The plane's set; `None` if nothing is configured.
    pub(super) async fn load(
        &self,
        store: &dyn Store,
        plane: &Plane,
        wanted: Wanted<'_>,
    ) -> Result<Option<Arc<Set>>, ApiError> {
        let reads = CONFIGURATION.map(|plural| read(store, plane, plural, wanted));
        let objects: Vec<Read> = futures::future::try_join_all(reads)
            .await?
            .into_iter()
            .flatten()
            .collect();
        if objects.is_empty() {
            return Ok(None);
        }
        let mut hasher = Sha256::new();
        objects.iter().for_each(|object| hasher.update(object.hash));
        let hash: Hash = hasher.finalize().into();
        if let Some(found) = self.sets.find(&hash) {
            return Ok(Some(found));
        }
        let _turn = self
            .compilations
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let parts = self.parts.clone();
        let made = tokio::task::spawn_blocking(move || compile(&parts, &objects));
        let made = made
            .await
            .map_err(|error| ApiError::internal("admission could not be compiled").because(error))??;
        Ok(Some(self.sets.get_or_insert(hash, || made)))
    }
}

/// Every object of one of the resources, in the order of their names.
async fn read(
    store: &dyn Store,
    plane: &Plane,
    plural: &'static str,
    wanted: Wanted<'_>,
) -> Result<Vec<Read>, ApiError> {
    let range = plane.keys().resource(&GroupResource::new(GROUP, plural));
    let mut objects = Vec::new();
    let mut pages = Pages::new(store, &range, PAGE);
    while let Some(page) = pages.next().await? {
        for (key, record) in &page {
            // No base layer has any of these.
            let Some(stored) = Content::read(record)?.object() else {
                continue;
            };
            let said: Said<'_> = serde_json::from_slice(stored.json()).map_err(damaged)?;
            if !wanted.has(plural, &said) {
                continue;
            }
            let said = said.webhooks.or(said.spec).map_or("null", RawValue::get).to_owned();
            let name = key.name().to_owned();
            let mut hasher = Sha256::new();
            hasher.update(format!("{plural}\0{name}\0{said}"));
            objects.push(Read {
                plural,
                name,
                hash: hasher.finalize().into(),
                said,
            });
        }
    }
    Ok(objects)
}

/// Whether a plane has quotas.
pub(super) async fn quotas(store: &dyn Store, plane: &Plane) -> Result<Quotas, ApiError> {
    let range = plane.keys().resource(&GroupResource::new("", QUOTAS));
    let query = RangeQuery {
        range: &range,
        at: None,
        after: None,
        limit: 1,
    };
    let none = store.range(query).await?.records.is_empty();
    Ok(if none { Quotas::None } else { Quotas::Some })
}

fn damaged(error: serde_json::Error) -> ApiError {
    ApiError::internal("stored data is damaged").because(error)
}

fn compile(parts: &Parts, objects: &[Read]) -> Result<Set, ApiError> {
    let mut set = Set::default();
    let (mut of_mutating, mut of_validating) = (Vec::new(), Vec::new());
    for object in objects {
        let field = match object.plural {
            MUTATING_HOOKS | VALIDATING_HOOKS => "webhooks",
            _ => "spec",
        };
        let said: Value = serde_json::from_str(&object.said).map_err(damaged)?;
        let value = serde_json::json!({"metadata": {"name": object.name}, field: said});
        let hooks = || parts.hooks.get_or_insert(object.hash, || hooks(&value));
        let binding = || parts.bindings.get_or_insert(object.hash, || Binding::new(&value));
        match object.plural {
            MUTATING_HOOKS => set.mutating_hooks.push(hooks()),
            VALIDATING_HOOKS => set.validating_hooks.push(hooks()),
            MUTATING_BINDINGS => of_mutating.push(binding()),
            VALIDATING_BINDINGS => of_validating.push(binding()),
            MUTATING_POLICIES => {
                let policy = || MutatingPolicy::new(&value);
                let policy = parts.mutating.get_or_insert(object.hash, policy);
                set.mutating_policies.push((policy, Vec::new()));
            }
            VALIDATING_POLICIES => {
                let policy = || ValidatingPolicy::new(&value);
                let policy = parts.validating.get_or_insert(object.hash, policy);
                set.validating_policies.push((policy, Vec::new()));
            }
            _ => {}
        }
    }
    // A policy that nothing binds does nothing, as does a binding of a policy that is not there.
    let bound = |bindings: &[Arc<Binding>], name: &str| -> Vec<Arc<Binding>> {
        let of = bindings.iter().filter(|binding| binding.policy == name);
        of.cloned().collect()
    };
    for (policy, bindings) in &mut set.mutating_policies {
        *bindings = bound(&of_mutating, &policy.frame.name);
    }
    for (policy, bindings) in &mut set.validating_policies {
        *bindings = bound(&of_validating, &policy.frame.name);
    }
    set.mutating_policies.retain(|(_, bindings)| !bindings.is_empty());
    set.validating_policies.retain(|(_, bindings)| !bindings.is_empty());
    Ok(set)
}

fn hooks(configuration: &Value) -> Hooks {
    let hooks = Webhook::all(configuration).into_iter().map(|rules| Hook {
        client: ClientConfig::from_value(&rules.client_config).map_err(|error| error.to_string()),
        rules,
    });
    Hooks(hooks.collect())
}
