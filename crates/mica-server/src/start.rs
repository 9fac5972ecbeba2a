//! Putting a server together on a store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mica_machinery::kind::Profile;
use mica_machinery::kind::bootstrap::{self, Companions};
use mica_store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::check::Checker;
use crate::admission::{Admissions, PodAccounts};
use crate::authn::Authenticator;
use crate::authn::account::Accounts;
use crate::authz::Authorizer;
use crate::conversion::Converter;
use crate::custom::Definitions;
use crate::custom::work::Worker;
use crate::egress::{Egress, EgressOptions};
use crate::error::ApiError;
use crate::health::{Asks, Health};
use crate::metrics;
use crate::objects::OBJECTS;
use crate::openapi::OpenApi;
use crate::plane::directory::Directory;
use crate::plane::drain::Drainer;
use crate::plane::kind::PLANES;
pub use crate::registry::BOOKMARK_INTERVAL;
use crate::registry::{Registry, ServiceOptions};
use crate::scheme::Scheme;
use crate::serve::Server;

/// How long a health check waits for the store: as long as upstream's does, and less than probers wait.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Who service account tokens are from where nobody said how the server is reached: what clusters have for themselves.
const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc";

/// What a server is made with.
pub struct ServerOptions {
    pub profile: Profile,
    /// What planes are born with beside what the server itself makes.
    pub companions: Companions,
    /// Where root says that this server is; `None` where nothing is said.
    pub address: Option<SocketAddr>,
    /// What services are given.
    pub services: ServiceOptions,
    /// Who is let in by what, beside certificates.
    pub authenticator: Authenticator,
    /// Who root's service account tokens say that they are from; planes add their path.
    pub issuer: String,
    pub metrics: Arc<metrics::Registry>,
    /// How often a quiet watch that asked for bookmarks gets one; [`BOOKMARK_INTERVAL`] unless a test is in a hurry.
    pub bookmark_interval: Duration,
    /// Where calls of webhooks may go.
    pub egress: EgressOptions,
    /// Whether new pods get a service account.
    pub accounts: PodAccounts,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            profile: Profile::Generic,
            companions: Companions::Absent,
            address: None,
            services: ServiceOptions::default(),
            authenticator: Authenticator::default(),
            issuer: DEFAULT_ISSUER.to_owned(),
            metrics: Arc::default(),
            bookmark_interval: BOOKMARK_INTERVAL,
            egress: EgressOptions::default(),
            accounts: PodAccounts::default(),
        }
    }
}

impl Server {
    /// Opens the server on a store, making root's records on first start.
    pub async fn open(store: Arc<dyn Store>, options: ServerOptions) -> Result<Arc<Self>, ApiError> {
        let root_scheme = Arc::new(Scheme::new(options.profile, &[&PLANES, &OBJECTS]));
        let plane_scheme = Arc::new(Scheme::new(options.profile, &[&OBJECTS]));
        let base = base_objects(&options);
        let directory = Directory::open(store.clone(), root_scheme.clone(), plane_scheme.clone(), &base).await?;
        let moved = directory.rebase(&directory.root()).await?;
        if moved.objects > 0 {
            tracing::info!(objects = moved.objects, "root has moved to a newer base layer");
        }
        let definitions = Arc::new(Definitions::new(store.clone()));
        let egress = Egress::new(options.egress);
        let converter = Converter::new(egress.clone(), &options.metrics);
        let accounts = Accounts::open(&*store, options.issuer).await?;
        let authorizer = Arc::new(Authorizer::new(store.clone(), directory.clone()));
        let admissions = Arc::new(Admissions::new(
            store.clone(),
            definitions.clone(),
            egress.clone(),
            authorizer.clone(),
            &options.metrics,
        ));
        let registry = Registry::new(
            store.clone(),
            directory.clone(),
            Arc::new(converter),
            authorizer.clone(),
        )
        .with_admission(admissions.clone())
        .with_accounts(options.accounts)
        .with_bookmarks_every(options.bookmark_interval)
        .with_services(options.services);
        if let Some(address) = options.address {
            registry.tell_address(&directory.root(), address).await?;
        }
        let health = Health::default();
        let probed = store.clone();
        health.add("etcd", Asks::Always, move || {
            let store = probed.clone();
            async move {
                match tokio::time::timeout(PROBE_TIMEOUT, store.status()).await {
                    Ok(status) => status.map(drop).map_err(|error| error.to_string()),
                    Err(_elapsed) => Err("the store did not answer in time".to_owned()),
                }
            }
        });
        Ok(Arc::new(Self {
            store,
            registry,
            directory,
            authenticator: options.authenticator,
            authorizer,
            accounts,
            health,
            metrics: options.metrics,
            definitions,
            openapi: OpenApi::new(&root_scheme, &plane_scheme),
            egress,
            admissions,
            // Type checks are upstream's controller manager's.
            checks_policies: matches!(options.companions, Companions::Done { .. }),
        }))
    }

    /// Starts the loops that run beside requests: following planes, definitions and admission, settling definitions and draining planes.
    pub fn start_loops(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        let (server, following) = (self.clone(), stop.clone());
        tasks.spawn(async move {
            let followed = futures::future::join4(
                server.directory.clone().follow(),
                server.definitions.follow(),
                server.authorizer.follow(),
                server.admissions.follow(),
            );
            tokio::select! {
                () = following.cancelled() => {}
                _ = followed => {}
            }
        });
        let drainer = Drainer::new(
            self.store.clone(),
            self.registry.clone(),
            self.directory.clone(),
            self.definitions.clone(),
            stop.clone(),
        );
        tasks.spawn(drainer.run());
        if self.checks_policies {
            let checker = Checker {
                store: self.store.clone(),
                registry: self.registry.clone(),
                directory: self.directory.clone(),
                definitions: self.definitions.clone(),
            };
            tasks.spawn(checker.run(stop.clone()));
        }
        let worker = Worker::new(
            self.store.clone(),
            self.registry.clone(),
            self.directory.clone(),
            self.definitions.clone(),
            stop.clone(),
        );
        tasks.spawn(worker.run());
    }
}

/// What every plane is born with. Times are the plane's own, so the ones here only stand in.
fn base_objects(options: &ServerOptions) -> Vec<serde_json::Value> {
    let created = "1970-01-01T00:00:00Z";
    bootstrap::objects(options.profile, options.services.range, &options.companions, created)
}
