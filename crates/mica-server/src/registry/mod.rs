//! One pipeline for every kind: reads that fall through to the base layer, writes that are prepared, validated, compared
//! and committed, lists and watches that send stored bytes.
//!
//! Every public function takes a [`Grant`]: nothing here asks who may.

mod admit;
mod allot;
mod along;
mod apply;
mod belong;
mod change;
mod charge;
mod convert;
mod delete;
mod face;
mod form;
mod issue;
mod itself;
mod list;
pub mod owner;
mod read;
mod room;
mod rules;
mod scan;
mod select;
mod step;
mod token;
mod watch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use mica_store::{Compare, Key, Revision, Store};

use crate::admission::{Admissions, Plugins, PodAccounts};
use crate::authz::{Authorizer, Grant, Target};
use crate::budget::stored::Holdings;
use crate::custom::Definitions;
use crate::error::ApiError;
use crate::plane::side::SideWrites;
use crate::plane::{Own, Plane};
use crate::scheme::Served;
use crate::stored::Stored;

pub use allot::ServiceOptions;
pub use apply::ApplyRequest;
pub(crate) use apply::refuse;
pub use convert::{Convert, NoWebhooks, converts_by_webhook};
pub use delete::{Deleted, Warnings};
pub(crate) use form::{Unpresentable, restated, to_stored};
pub use form::{served_value, stored_value};
pub use issue::TokenSecrets;
pub use list::{ListPage, Listing};
pub(crate) use rules::{check_name, settle_metadata, uid_conflict};
pub use scan::{Extent, Scan};
pub use select::Selection;
pub use watch::{BOOKMARK_INTERVAL, EventType, WatchItem, WatchStart};
pub use write::{Managers, PatchRequest, Patched, View, WriteRequest, Written};

/// The registry of a server: its store, and what writes to some kinds carry along.
#[derive(Clone)]
pub struct Registry {
    store: Arc<dyn Store>,
    side: Arc<dyn SideWrites>,
    convert: Arc<dyn Convert>,
    authorizer: Arc<Authorizer>,
    admission: Option<Arc<Admissions>>,
    accounts: PodAccounts,
    token_secrets: Option<Arc<TokenSecrets>>,
    plugins: Arc<Plugins>,
    turns: Arc<charge::Turns>,
    holdings: Option<Arc<Holdings>>,
    /// Root's definitions, where organizations and projects are served.
    tenancy: Option<Arc<Definitions>>,
    events: convert::Events,
    bookmark_interval: Duration,
    services: ServiceOptions,
}

/// What is at a key: the plane's own record, the base layer's object under it, or nothing.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Key,
    /// The revision of the plane's own record, a hiding mark included.
    own: Option<Revision>,
    /// Whether the object is the base layer's.
    from_base: bool,
    pub stored: Option<Stored>,
}

impl Entry {
    /// The comparisons that make a write fail if this is no longer what is there.
    fn unchanged(&self, plane: &Plane) -> Vec<Compare> {
        let mut compares = vec![match self.own {
            Some(revision) => Compare::Unchanged(self.key.clone(), revision),
            None => Compare::Absent(self.key.clone()),
        }];
        if self.from_base {
            compares.push(plane.base_fence());
        }
        compares.push(plane.fence());
        compares
    }
}

impl Registry {
    pub fn new(
        store: Arc<dyn Store>,
        side: Arc<dyn SideWrites>,
        convert: Arc<dyn Convert>,
        authorizer: Arc<Authorizer>,
    ) -> Self {
        Self {
            store,
            side,
            convert,
            authorizer,
            admission: None,
            holdings: None,
            tenancy: None,
            accounts: PodAccounts::default(),
            token_secrets: None,
            plugins: Arc::default(),
            turns: Arc::default(),
            events: convert::events(),
            bookmark_interval: watch::BOOKMARK_INTERVAL,
            services: ServiceOptions::default(),
        }
    }

    /// Asks planes' webhooks and policies about writes.
    #[must_use]
    pub fn with_admission(mut self, admission: Arc<Admissions>) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Holds planes to what they may hold.
    #[must_use]
    pub fn with_holdings(mut self, holdings: Arc<Holdings>) -> Self {
        self.holdings = Some(holdings);
        self
    }

    /// Holds organizations and projects to their rules.
    #[must_use]
    pub fn with_tenancy(mut self, definitions: Arc<Definitions>) -> Self {
        self.tenancy = Some(definitions);
        self
    }

    /// Says whether new pods get a service account.
    #[must_use]
    pub fn with_accounts(mut self, accounts: PodAccounts) -> Self {
        self.accounts = accounts;
        self
    }

    /// Says which of the built-in plugins run.
    #[must_use]
    pub fn with_plugins(mut self, plugins: Plugins) -> Self {
        self.plugins = Arc::new(plugins);
        self
    }

    pub(crate) fn plugins(&self) -> &Plugins {
        &self.plugins
    }

    pub(crate) fn accounts(&self) -> PodAccounts {
        self.accounts
    }

    pub(crate) fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    pub(crate) fn admission(&self) -> Option<&Admissions> {
        self.admission.as_deref()
    }

    /// Sends bookmarks this often.
    #[must_use]
    pub fn with_bookmarks_every(mut self, interval: Duration) -> Self {
        self.bookmark_interval = interval;
        self
    }

    /// Gives services addresses and ports of these ranges.
    #[must_use]
    pub fn with_services(mut self, services: ServiceOptions) -> Self {
        self.services = services;
        self
    }

    /// How often a quiet watch that asked for bookmarks gets one.
    pub fn bookmark_interval(&self) -> Duration {
        self.bookmark_interval
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What is at the object's key now.
    async fn entry(
        &self,
        plane: &Plane,
        served: &Served,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Entry, ApiError> {
        let key = plane.keys().object(&served.storage, namespace, name);
        let record = self.store.get(&key).await?;
        let own = record.as_ref().map(|record| record.revision);
        let (stored, from_base) = match record {
            Some(record) => match plane.read(&key, &record)? {
                Own::Based(stored) => (Some(stored), true),
                own => (own.object(), false),
            },
            None => {
                let stored = plane.base.get(&served.storage, key.rest(), &plane.birth);
                let from_base = stored.is_some();
                (stored, from_base)
            }
        };
        Ok(Entry {
            key,
            own,
            from_base,
            stored,
        })
    }

    /// A cluster-scoped object of a built-in kind, as stored.
    pub(crate) async fn stored(&self, plane: &Plane, served: &Served, name: &str) -> Result<Option<Stored>, ApiError> {
        Ok(self.entry(plane, served, None, name).await?.stored)
    }

    /// The newest object, as clients see it.
    async fn current(&self, target: &Target) -> Result<Stored, ApiError> {
        let entry = self.target_entry(target).await?;
        let stored = entry
            .stored
            .ok_or_else(|| ApiError::not_found(&target.served.name, target.object()))?;
        self.present(&target.plane, &target.served, target.definition.as_ref(), stored)
            .await
    }
}

/// Refuses what the plane's state refuses.
fn check_state(grant: &Grant) -> Result<(), ApiError> {
    crate::plane::check_state(grant)
}
