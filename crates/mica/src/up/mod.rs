//! `mica up`: from settings to a serving process, and back down again.
//!
//! The order is what makes failures clear: cheap refusals (settings, directory, port) come before anything is opened, and
//! nothing is announced before requests would succeed.

mod admin;
mod backend;
mod hold;
mod port;
mod signal;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use mica_server::health::{Asks, Endpoint, Health};
use mica_server::http::{Drain, Envelope, EnvelopeOptions, ListenOptions, Listener};
use mica_server::metrics::{HttpMetrics, Registry};
use mica_server::pki::{Authority, Issued, PkiDir, Renewal, admin_kubeconfig, serving_names, write_private};
use mica_server::serve::Server;
use mica_server::tls::{ClientRoots, IsKnownHost, ServingCertificates, certified_key};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::UpArgs;
use crate::config::{ListenAddress, Settings};
use crate::{output, trace};
use admin::WithStore;

pub use admin::to_json as check_to_json;
pub use backend::{open_embedded, store_dir};
pub use hold::DataDir;

/// The name in the authority's certificate.
const AUTHORITY_NAME: &str = "mica-ca";
const KUBECONFIG: &str = "admin.kubeconfig";

pub fn run(arguments: Box<UpArgs>) -> anyhow::Result<()> {
    let settings = Settings::load(*arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting threads")?;
    let done = runtime.block_on(serve(settings));
    // What is still running belongs to nobody: a blocked task must not hold the process.
    runtime.shutdown_background();
    done
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let tracing = trace::init(&settings)?;
    raise_file_limit();
    let mut signals = signal::Signals::listen()?;
    let running = tokio::select! {
        started = start(&settings) => started?,
        // Nothing is promised to anybody yet: there is nothing to finish.
        () = signals.first() => return Ok(()),
    };
    signals.first().await;
    tracing::info!(
        "shutting down: requests in flight have {:?} to finish",
        settings.drain_timeout
    );
    signals.exit_on_second();
    running.stop().await?;
    tracing.flush().await;
    Ok(())
}

/// A server that serves.
struct Running {
    /// The data directory stays ours until the end.
    _home: DataDir,
    store: backend::OpenStore,
    drain: CancellationToken,
    /// Loops that run beside requests.
    tasks: TaskTracker,
    serving: JoinHandle<Drain>,
}

async fn start(settings: &Settings) -> anyhow::Result<Running> {
    let mut home = DataDir::take(&settings.data_dir)?;
    let tcp = port::bind(&settings.listen).await?;
    let listen = ListenAddress {
        port: tcp.local_addr()?.port(),
        ..settings.listen.clone()
    };
    let url = settings.advertise.clone().unwrap_or_else(|| {
        format!(
            "https://{}",
            ListenAddress {
                host: listen.reachable_host().to_owned(),
                port: listen.port
            }
        )
    });
    home.note(&url)?;

    let store = backend::open_store(settings, home.path()).await?;
    let pki = Pki::load(settings, &home, &store, &listen, &url).await?;
    let drain = CancellationToken::new();
    let registry = Arc::new(Registry::new());
    store.measure(&registry);
    let server = backend::open_server(settings, store.store(), pki.authority.certificate_pem(), &registry).await?;
    let stopping = drain.clone();
    server.health.add("shutdown", Asks::WhenReady, move || {
        let result = if stopping.is_cancelled() {
            Err("process is shutting down".to_owned())
        } else {
            Ok(())
        };
        std::future::ready(result)
    });
    let certificates = Arc::new(pki.certificates(&server)?);
    let roots = Arc::new(ClientRoots::new(&[pki.authority.certificate().clone()])?);
    let options = ListenOptions {
        drain_deadline: settings.drain_timeout,
        ..ListenOptions::default()
    };
    let listener = Listener::from_tcp(tcp, certificates.clone(), roots, options);
    let service = WithStore {
        server: server.clone(),
        store: store.clone(),
    };
    let envelope = Envelope::new(service, EnvelopeOptions::default(), HttpMetrics::new(&registry));
    let tasks = TaskTracker::new();
    server.start_loops(&tasks, &drain);
    tasks.spawn(pki.renewal(certificates).run(drain.clone()));
    let serving = tokio::spawn(listener.serve(Arc::new(envelope), drain.clone()));
    announce(&server.health, &url, &home).await?;
    Ok(Running {
        _home: home,
        store,
        drain,
        tasks,
        serving,
    })
}

impl Running {
    /// Lets requests finish, then the loops, then the store.
    async fn stop(self) -> anyhow::Result<()> {
        self.drain.cancel();
        if let Drain::CutOff { connections } = self.serving.await.context("the listener failed")? {
            tracing::warn!(
                connections,
                "connections were cut off: their requests did not finish in time"
            );
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.store.close().await;
        Ok(())
    }
}

/// Says once, on the standard output, that the server can be used and how.
async fn announce(health: &Health, url: &str, home: &DataDir) -> anyhow::Result<()> {
    let failing = health.failing(Endpoint::Readyz).await;
    if let Some((name, why)) = failing.first() {
        anyhow::bail!("the server is not ready: {name}: {why}");
    }
    let kubeconfig = home.path().join(KUBECONFIG);
    let line = format!(
        "Mica is ready at {url}. Try: kubectl --kubeconfig {} get namespaces\n",
        kubeconfig.display()
    );
    // Whoever started us may have closed the pipe: that is no reason to stop serving.
    let _ = output::print(&line);
    Ok(())
}

/// The server's certificates, made or found.
struct Pki {
    authority: Arc<Authority>,
    directory: PkiDir,
    hosts: Vec<String>,
    serving: Issued,
    kubeconfig: PathBuf,
    url: String,
}

impl Pki {
    async fn load(
        settings: &Settings,
        home: &DataDir,
        store: &backend::OpenStore,
        listen: &ListenAddress,
        url: &str,
    ) -> anyhow::Result<Self> {
        let now = SystemTime::now();
        let directory = PkiDir::open(home.path().join("pki"))?;
        let authority = Arc::new(store.authority(&directory, AUTHORITY_NAME, now).await?);
        let advertised = url
            .parse::<http::Uri>()
            .ok()
            .and_then(|url| url.host().map(str::to_owned));
        let names = settings
            .san
            .iter()
            .cloned()
            .chain([listen.host.clone()])
            .chain(advertised)
            .chain(host_name());
        let hosts = serving_names(names);
        let serving = directory.serving(&authority, &hosts, now)?;
        let kubeconfig = home.path().join(KUBECONFIG);
        let admin = directory.admin(&authority, now)?;
        write_private(
            &kubeconfig,
            admin_kubeconfig(url, authority.certificate_pem(), &admin).as_bytes(),
        )?;
        Ok(Self {
            authority,
            directory,
            hosts,
            serving,
            kubeconfig,
            url: url.to_owned(),
        })
    }

    /// What handshakes show: the server's own certificate, and one for each host that a plane claims.
    fn certificates(&self, server: &Arc<Server>) -> anyhow::Result<ServingCertificates> {
        let server = Arc::downgrade(server);
        let is_known: IsKnownHost = Box::new(move |host| {
            let server = server.clone();
            Box::pin(async move {
                match server.upgrade() {
                    Some(server) => backend::is_plane_host(&server, &host).await,
                    None => false,
                }
            })
        });
        Ok(ServingCertificates::new(certified_key(&self.serving)?).with_hosts(self.authority.clone(), is_known))
    }

    fn renewal(&self, certificates: Arc<ServingCertificates>) -> Renewal {
        Renewal {
            authority: self.authority.clone(),
            directory: self.directory.clone(),
            hosts: self.hosts.clone(),
            certificates,
            kubeconfig: self.kubeconfig.clone(),
            server: self.url.clone(),
        }
    }
}

fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // What DNS would not take, a certificate cannot hold.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

/// Lets the process open as many connections as the system allows it: shells hand down a small limit for old programs.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
}
