//! `mica up`: from settings to a serving process, and back down again.
//!
//! The order is what makes failures clear: cheap refusals (settings, directory, port) come before anything is opened, and
//! nothing is announced before requests would succeed.

mod admin;
pub mod backend;
mod controllers;
mod hold;
pub mod port;
pub mod running;
pub mod signal;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use mica_server::http::ListenOptions;
use mica_server::metrics::Registry;
use mica_server::pki::{Authority, Issued, PkiDir, Renewal, admin_kubeconfig, serving_names, write_private};
use mica_server::serve::Server;
use mica_server::tls::{ClientRoots, ServingCertificates, certified_key};

use crate::cli::UpArgs;
use crate::config::{ListenAddress, Settings};
use crate::{output, trace};
use running::{Parts, Running};

pub use admin::to_json as check_to_json;
pub use backend::{open_embedded, store_dir};
pub use hold::DataDir;

/// The name in the authority's certificate.
const AUTHORITY_NAME: &str = "mica-ca";
const KUBECONFIG: &str = "admin.kubeconfig";

pub fn run(arguments: Box<UpArgs>) -> anyhow::Result<()> {
    let settings = Settings::load(*arguments)?;
    running::block_on(serve(settings))
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let file = settings.log_file.as_deref();
    let tracing = trace::init_to(file, &settings.log, settings.log_format, settings.otlp.as_ref())?;
    running::until_stopped(Box::pin(start(&settings)), settings.drain_timeout).await?;
    tracing.flush().await;
    Ok(())
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
    let registry = Arc::new(Registry::new());
    store.measure(&registry);
    let server = backend::open_server(settings, store.store(), &pki.authority, &registry).await?;
    let certificates = Arc::new(pki.certificates(&server)?);
    let roots = Arc::new(ClientRoots::new(&[pki.authority.certificate().clone()])?);
    let kubeconfig = home.path().join(KUBECONFIG);
    let (authority, identity) = (pki.authority.clone(), home.identity());
    let running = Running::begin(Parts {
        home: Some(home),
        tcp,
        store,
        server,
        metrics: registry.clone(),
        certificates: certificates.clone(),
        roots,
        listen: ListenOptions {
            drain_deadline: settings.drain_timeout,
            max_connections: settings.limits.connections,
            connections_per_address: settings.limits.connections_per_address,
            tls: settings.transport.tls.clone(),
            ..ListenOptions::default()
        },
        hsts: settings.transport.hsts.clone(),
    });
    running
        .tasks
        .spawn(pki.renewal(certificates).run(running.drain.clone()));
    controllers::start(settings, &running, &registry, (&authority, &url), identity).await?;
    announce(&running, &url, &kubeconfig).await?;
    Ok(running)
}

/// Says once, on the standard output, that the server can be used and how.
async fn announce(running: &Running, url: &str, kubeconfig: &Path) -> anyhow::Result<()> {
    running.check_ready().await?;
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
        server.directory.reserve_hosts(self.hosts.clone());
        let serving = ServingCertificates::new(certified_key(&self.serving)?);
        Ok(serving.with_hosts(self.authority.clone(), server.known_hosts()))
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
