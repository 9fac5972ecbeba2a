//! Putting a server together on a store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use mica_machinery::kind::bootstrap::{self, Companions};
use mica_machinery::kind::network::range::ServiceRange;
use mica_machinery::kind::{Profile, Resource};
use mica_store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::check::Checker;
use crate::admission::{Admissions, Plugins, PodAccounts};
use crate::audit::{AuditOptions, Auditor};
use crate::authn::account::{Accounts, RootAccounts, secret};
use crate::authn::reload::Reload;
use crate::authn::{Authenticator, AuthnMetrics};
use crate::authz::{Authorizer, Chain};
use crate::budget::stored::Holdings;
use crate::budget::{self, Budgets};
use crate::conversion::Converter;
use crate::custom::Definitions;
use crate::custom::work::Worker;
use crate::egress::{Egress, EgressOptions};
use crate::error::ApiError;
use crate::fairness::{Dangling, Fairness, FairnessOptions};
use crate::health::{Asks, Health};
use crate::metrics;
use crate::objects::OBJECTS;
use crate::openapi::OpenApi;
use crate::pki::{Authority, PlaneAuthorities};
use crate::plane::class::PLANE_CLASSES;
use crate::plane::directory::Directory;
use crate::plane::drain::Drainer;
use crate::plane::kind::PLANES;
use crate::plane::limits::Limits;
use crate::plane::{Context, born};
pub use crate::registry::BOOKMARK_INTERVAL;
use crate::registry::{Registry, ServiceOptions, TokenSecrets};
use crate::scheme::Schemes;
use crate::seal::{SealedStore, Sealing};
use crate::serve::Server;
use crate::serve::pass::Passer;
use crate::sign::Signer;
pub use crate::tenancy::Tenancy;

/// How long a health check waits for the store: as long as upstream's does, and less than probers wait.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Who service account tokens are from where nobody said how the server is reached: what clusters have for themselves.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc";

/// What root serves of ours, and what planes do.
static ROOT_OWN: [&Resource; 3] = [&PLANES, &PLANE_CLASSES, &OBJECTS];
static PLANE_OWN: [&Resource; 1] = [&OBJECTS];

/// The schemes of a server whose root has this profile.
pub(crate) fn schemes(profile: Profile) -> Arc<Schemes> {
    Schemes::new(profile, &ROOT_OWN, &PLANE_OWN)
}

/// What a server is made with.
pub struct ServerOptions {
    /// That of root, and of planes that do not choose.
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
    /// What else is decided about root's service account tokens.
    pub root_accounts: RootAccounts,
    /// Who signs the certificates of clients, in PEM, as far as others are told.
    pub client_ca: String,
    /// Files that are read again when they change.
    pub reload: Reload,
    pub metrics: Arc<metrics::Registry>,
    /// How often a quiet watch that asked for bookmarks gets one; [`BOOKMARK_INTERVAL`] unless a test is in a hurry.
    pub bookmark_interval: Duration,
    /// Where calls of webhooks may go.
    pub egress: EgressOptions,
    /// Whether new pods get a service account.
    pub accounts: PodAccounts,
    /// How requests share the server.
    pub fairness: FairnessOptions,
    /// What bounds planes where neither they nor their classes say.
    pub limits: Limits,
    /// What is written down of requests, and where.
    pub audit: AuditOptions,
    /// The store's authority, which those of planes come from. Without it no signing request is answered.
    pub authority: Option<Arc<Authority>>,
    /// What of the store is hidden; nothing if none.
    pub encryption: Option<Arc<Sealing>>,
    /// Which of the built-in admission plugins run.
    pub plugins: Plugins,
    /// Who decides what is allowed.
    pub authorization: Chain,
    /// Whether root serves organizations and projects.
    pub tenancy: Tenancy,
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
            root_accounts: RootAccounts::default(),
            client_ca: String::new(),
            reload: Reload::default(),
            metrics: Arc::default(),
            bookmark_interval: BOOKMARK_INTERVAL,
            egress: EgressOptions::default(),
            accounts: PodAccounts::default(),
            fairness: FairnessOptions::default(),
            limits: budget::DEFAULT,
            audit: AuditOptions::default(),
            authority: None,
            encryption: None,
            plugins: Plugins::default(),
            authorization: Chain::default(),
            tenancy: Tenancy::default(),
        }
    }
}

impl Server {
    /// Opens the server on a store, making root's records on first start.
    pub async fn open(store: Arc<dyn Store>, options: ServerOptions) -> Result<Arc<Self>, ApiError> {
        let sealing = options.encryption;
        let store = match &sealing {
            Some(sealing) => Arc::new(SealedStore::new(store, sealing.clone())) as Arc<dyn Store>,
            None => store,
        };
        let schemes = schemes(options.profile);
        let (range, companions) = (options.services.range, options.companions.clone());
        let base = Box::new(move |profile, context| base_objects(profile, context, range, &companions));
        let directory = Directory::open(store.clone(), schemes.clone(), base).await?;
        let moved = directory.rebase(&directory.root()).await?;
        if moved.objects > 0 {
            tracing::info!(objects = moved.objects, "root has moved to a newer base layer");
        }
        let definitions = Arc::new(Definitions::new(store.clone()));
        let planes = directory.clone();
        let reach = Box::new(move |plane| planes.clone().reach(plane).boxed());
        let egress = Egress::reaching(options.egress, reach);
        let auditor = Auditor::open(options.audit, egress.clone(), &options.metrics)?;
        let converter = Converter::new(egress.clone(), &options.metrics);
        let passer = Passer::new(options.authority.clone());
        let authorities = match options.authority {
            Some(authority) => Some(Arc::new(PlaneAuthorities::new(secret(&*store).await?, authority))),
            None => None,
        };
        let accounts = Arc::new(Accounts::open(&*store, options.issuer, options.root_accounts).await?);
        let authorizer = Arc::new(Authorizer::new(
            store.clone(),
            directory.clone(),
            options.authorization,
            egress.clone(),
            &options.metrics,
        ));
        let admissions = Arc::new(Admissions::new(
            store.clone(),
            definitions.clone(),
            egress.clone(),
            authorizer.clone(),
            &options.metrics,
        ));
        let budgets = Budgets::new(options.limits);
        let registry = Registry::new(
            store.clone(),
            directory.clone(),
            Arc::new(converter),
            authorizer.clone(),
        )
        .with_admission(admissions.clone())
        .with_accounts(options.accounts)
        .with_holdings(Arc::new(Holdings::new(store.clone(), budgets.clone())))
        .with_plugins(options.plugins)
        .with_bookmarks_every(options.bookmark_interval)
        .with_services(options.services);
        // Where controllers of others run, they fill such Secrets.
        let registry = match &options.companions {
            Companions::Done { root_ca } => registry.with_token_secrets(TokenSecrets {
                accounts: accounts.clone(),
                root_ca: root_ca.clone(),
            }),
            Companions::Absent => registry,
        };
        let registry = match options.tenancy {
            Tenancy::Served => registry.with_tenancy(definitions.clone()),
            Tenancy::Absent => registry,
        };
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
        let fairness = Fairness::new(store.clone(), &options.fairness, &options.metrics);
        let server = Arc::new(Self {
            store,
            registry,
            directory,
            authenticator: options.authenticator,
            authn_metrics: AuthnMetrics::new(&options.metrics),
            reload: options.reload,
            authorizer,
            accounts,
            authorities,
            sealing,
            health,
            metrics: options.metrics,
            definitions,
            openapi: OpenApi::new(schemes.clone()),
            schemes,
            tenancy: options.tenancy,
            egress,
            admissions,
            fairness,
            budgets,
            auditor,
            // Type checks are upstream's controller manager's.
            checks_policies: matches!(options.companions, Companions::Done { .. }),
            passer,
        });
        let born = base_objects(options.profile, Context::Plane, range, &options.companions);
        Box::pin(server.restore_roles(born)).await?;
        Box::pin(server.publish_authentication(&options.client_ca)).await?;
        if server.tenancy == Tenancy::Served {
            Box::pin(server.install_tenancy()).await?;
        }
        Ok(server)
    }

    /// Starts the loops that run beside requests: following planes, definitions and admission, settling definitions and draining planes.
    pub fn start_loops(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        self.auditor.start();
        let (server, following) = (self.clone(), stop.clone());
        tasks.spawn(async move {
            let followed = futures::future::join5(
                server.directory.clone().follow(),
                server.definitions.follow(),
                server.authorizer.follow(),
                server.admissions.follow(),
                server.fairness.follow(),
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
        let dangling = Dangling {
            store: self.store.clone(),
            registry: self.registry.clone(),
            directory: self.directory.clone(),
        };
        tasks.spawn(dangling.run(stop.clone()));
        if self.checks_policies {
            let checker = Checker {
                store: self.store.clone(),
                registry: self.registry.clone(),
                directory: self.directory.clone(),
                definitions: self.definitions.clone(),
            };
            tasks.spawn(checker.run(stop.clone()));
        }
        tasks.spawn(self.reload.clone().run(stop.clone()));
        if let Some(sealing) = &self.sealing {
            tasks.spawn(sealing.clone().follow(stop.clone()));
        }
        if let Some(authorities) = &self.authorities {
            let signer = Signer {
                store: self.store.clone(),
                registry: self.registry.clone(),
                directory: self.directory.clone(),
                authorities: authorities.clone(),
                authorizer: self.authorizer.clone(),
            };
            tasks.spawn(signer.run(stop.clone()));
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
fn base_objects(
    profile: Profile,
    context: Context,
    range: ServiceRange,
    companions: &Companions,
) -> Vec<serde_json::Value> {
    let mut objects = bootstrap::objects(profile, range, companions, "1970-01-01T00:00:00Z");
    born::add(&mut objects, context, companions);
    objects
}
