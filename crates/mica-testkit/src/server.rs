//! A server in this process: its store, its certificates, and its end.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mica_machinery::kind::Profile;
use mica_machinery::kind::bootstrap::Companions;
use mica_server::http::{Drain, Envelope, EnvelopeOptions, ListenOptions, Listener};
use mica_server::metrics::{HttpMetrics, Registry};
use mica_server::pki::{ADMIN_GROUP, Authority, Identity, Issued, Kubeconfig, serving_names};
use mica_server::seal::Sealing;
use mica_server::serve::Server;
use mica_server::start::{ServerOptions, Tenancy};
use mica_server::tls::{ClientRoots, ServingCertificates, certified_key};
#[cfg(feature = "kube")]
use mica_server::{
    authz::User,
    http::{InProcess, Peer},
};
use mica_store::{MemStore, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::kubectl::Kubectl;
use crate::plane::TestPlane;

/// A server that is ready. Dropping it ends it; [`TestServer::stop`] also waits for that.
pub struct TestServer {
    store: Arc<dyn Store>,
    server: Arc<Server>,
    #[cfg_attr(
        not(feature = "kube"),
        expect(dead_code, reason = "only clients in this process use it")
    )]
    envelope: Arc<Envelope<Arc<Server>>>,
    address: SocketAddr,
    authority: Arc<Authority>,
    admin: Issued,
    drain: CancellationToken,
    tasks: TaskTracker,
    serving: Option<JoinHandle<Drain>>,
}

/// How a server is to be, if not as [`TestServer::start`] makes it.
pub struct Builder {
    store: Arc<dyn Store>,
    options: ServerOptions,
    companions: Option<Companions>,
    listen: ListenOptions,
    authority: Option<Arc<Authority>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            store: Arc::new(MemStore::new()),
            options: ServerOptions {
                profile: Profile::Kubernetes,
                ..ServerOptions::default()
            },
            companions: None,
            listen: ListenOptions::default(),
            authority: None,
        }
    }
}

impl Builder {
    /// On this store, which other servers may share and which outlives this one.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// With the kinds of this profile in root, and in planes that do not choose.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.options.profile = profile;
        self
    }

    /// With organizations and projects in root.
    #[must_use]
    pub fn tenancy(mut self, tenancy: Tenancy) -> Self {
        self.options.tenancy = tenancy;
        self
    }

    /// With this in every namespace of what planes are born with: by default each has its service account and CA.
    #[must_use]
    pub fn companions(mut self, companions: Companions) -> Self {
        self.companions = Some(companions);
        self
    }

    /// With bookmarks this often, for tests that wait for one.
    #[must_use]
    pub fn bookmarks_every(mut self, interval: Duration) -> Self {
        self.options.bookmark_interval = interval;
        self
    }

    /// With these bounds on connections.
    #[must_use]
    pub fn listen(mut self, options: ListenOptions) -> Self {
        self.listen = options;
        self
    }

    /// With what the store holds hidden.
    #[must_use]
    pub fn encryption(mut self, sealing: Arc<Sealing>) -> Self {
        self.options.encryption = Some(sealing);
        self
    }

    /// With the authority of another server, so that who trusts the one trusts the other.
    #[must_use]
    pub fn authority(mut self, authority: Arc<Authority>) -> Self {
        self.authority = Some(authority);
        self
    }

    pub async fn start(self) -> TestServer {
        let now = SystemTime::now();
        let authority = self
            .authority
            .unwrap_or_else(|| Arc::new(Authority::generate("test-ca", now).expect("an authority")));
        let metrics = Arc::new(Registry::new());
        let options = ServerOptions {
            companions: self.companions.unwrap_or_else(|| Companions::Done {
                root_ca: authority.certificate_pem().to_owned(),
            }),
            authority: Some(authority.clone()),
            metrics: metrics.clone(),
            ..self.options
        };
        let server = Server::open(self.store.clone(), options)
            .await
            .expect("a server on the store");
        let (tasks, drain) = (TaskTracker::new(), CancellationToken::new());
        server.start_loops(&tasks, &drain);
        let main = authority
            .issue_serving("mica", &serving_names([]), now)
            .expect("a certificate");
        let certificates = ServingCertificates::new(certified_key(&main).expect("a key"))
            .with_hosts(authority.clone(), server.known_hosts());
        let roots = Arc::new(ClientRoots::new(&[authority.certificate().clone()]).expect("an authority"));
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(any, Arc::new(certificates), roots, self.listen)
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("an address");
        let envelope = Envelope::new(server.clone(), EnvelopeOptions::default(), HttpMetrics::new(&metrics));
        let envelope = Arc::new(envelope);
        let serving = tokio::spawn(listener.serve(envelope.clone(), drain.clone()));
        TestServer {
            store: self.store,
            server,
            envelope,
            address,
            admin: issue(&authority, "admin", Some(ADMIN_GROUP)),
            authority,
            drain,
            tasks,
            serving: Some(serving),
        }
    }
}

fn issue(authority: &Authority, name: &str, group: Option<&str>) -> Issued {
    let identity = Identity {
        name: name.to_owned(),
        group: group.map(str::to_owned),
    };
    authority
        .issue_client(&identity, SystemTime::now())
        .expect("a certificate")
}

impl TestServer {
    /// A server with every kind of Kubernetes, in memory.
    pub async fn start() -> Self {
        Builder::default().start().await
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `https://127.0.0.1:PORT`: root's address.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who signs the server's certificate, and those of its clients.
    pub fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The server itself, for tests that look behind its API.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The administrator's certificate.
    pub fn admin(&self) -> &Issued {
        &self.admin
    }

    /// A certificate for somebody else, in at most one group.
    pub fn user(&self, name: &str, group: Option<&str>) -> Issued {
        issue(&self.authority, name, group)
    }

    /// The administrator's kubeconfig for root.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for(&self.url(), &self.admin)
    }

    /// A kubeconfig for an address of this server and somebody's certificate.
    pub fn kubeconfig_for(&self, url: &str, user: &Issued) -> String {
        Kubeconfig {
            context: "test",
            user: "test",
            server: url,
            authority_pem: self.authority.certificate_pem(),
            certificate_pem: &user.certificate_pem,
            key_pem: &user.key_pem,
        }
        .to_yaml()
    }

    /// A client of root, as the administrator.
    #[cfg(feature = "kube")]
    pub async fn client(&self) -> kube::Client {
        client(&self.kubeconfig()).await
    }

    /// A client of any address of this server, as anybody.
    #[cfg(feature = "kube")]
    pub async fn client_for(&self, url: &str, user: &Issued) -> kube::Client {
        client(&self.kubeconfig_for(url, user)).await
    }

    /// A client of root without a connection, as anybody: what it may do is decided as for others.
    #[cfg(feature = "kube")]
    pub fn client_inside(&self, user: User) -> kube::Client {
        let inside = InProcess::new(self.envelope.clone(), Peer::in_process_as(user, self.drain.clone()));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let inside = inside.clone();
            async move { Box::pin(inside.call(request)).await }
        });
        kube::Client::new(service, "default")
    }

    /// `kubectl` for root, as the administrator.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig())
    }

    /// Makes a plane with the server's profile, ready to be used.
    pub async fn plane(&self, name: &str) -> TestPlane<'_> {
        TestPlane::make(self, name, None).await
    }

    /// Makes a plane with a profile of its own.
    pub async fn plane_of(&self, name: &str, profile: Profile) -> TestPlane<'_> {
        TestPlane::make(self, name, Some(profile)).await
    }

    /// Begins to stop; what is in flight goes on until it ends.
    pub fn begin_stop(&self) {
        self.drain.cancel();
    }

    /// Lets requests finish and says whether all did.
    pub async fn stop(mut self) -> Drain {
        self.drain.cancel();
        let serving = self.serving.take().expect("a server is stopped once");
        let drained = serving.await.expect("the listener ends");
        self.tasks.close();
        self.tasks.wait().await;
        drained
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.drain.cancel();
    }
}

#[cfg(feature = "kube")]
pub(crate) async fn client(kubeconfig: &str) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).expect("our own kubeconfig");
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .expect("our own kubeconfig");
    kube::Client::try_from(config).expect("a client")
}
