//! A server that serves: what every way of starting one ends in, and the way down again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::HeaderValue;
use mica_server::authz::User;
use mica_server::health::{Asks, Endpoint};
use mica_server::http::{Drain, Envelope, EnvelopeOptions, InProcess, ListenOptions, Listener, Peer};
use mica_server::metrics::{HttpMetrics, Registry};
use mica_server::serve::Server;
use mica_server::tls::{ClientRoots, ServingCertificates, TlsOptions};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admin::WithStore;
use super::backend::OpenStore;
use super::hold::DataDir;
use super::signal::Signals;

/// How long the last audit events may take.
const AUDIT_PATIENCE: Duration = Duration::from_secs(10);

/// What a server is put together from.
pub struct Parts {
    /// The directory of a store of our own.
    pub home: Option<DataDir>,
    pub tcp: TcpListener,
    pub store: OpenStore,
    pub server: Arc<Server>,
    pub metrics: Arc<Registry>,
    pub certificates: Arc<ServingCertificates>,
    pub roots: Arc<ClientRoots>,
    pub listen: ListenOptions,
    /// The directives of `Strict-Transport-Security`, if it is to be sent.
    pub hsts: Option<HeaderValue>,
}

/// What connections offer, and what answers say of it.
#[derive(Clone, Default)]
pub struct Transport {
    pub tls: TlsOptions,
    pub hsts: Option<HeaderValue>,
}

pub struct Running {
    /// The data directory stays ours until the end.
    _home: Option<DataDir>,
    server: Arc<Server>,
    store: OpenStore,
    pub drain: CancellationToken,
    /// Loops that run beside requests.
    pub tasks: TaskTracker,
    /// The server as controllers in this process reach it.
    pub inside: InProcess<WithStore>,
    serving: JoinHandle<Drain>,
}

impl Running {
    /// Begins to answer.
    pub fn begin(parts: Parts) -> Self {
        let drain = CancellationToken::new();
        let stopping = drain.clone();
        parts.server.health.add("shutdown", Asks::WhenReady, move || {
            let result = if stopping.is_cancelled() {
                Err("process is shutting down".to_owned())
            } else {
                Ok(())
            };
            std::future::ready(result)
        });
        let listener = Listener::from_tcp(parts.tcp, parts.certificates, parts.roots, parts.listen);
        let enveloping = EnvelopeOptions {
            hsts: parts.hsts,
            ..EnvelopeOptions::default()
        };
        let service = WithStore {
            server: parts.server.clone(),
            store: parts.store.clone(),
        };
        let envelope = Envelope::new(service, enveloping, HttpMetrics::new(&parts.metrics));
        let tasks = TaskTracker::new();
        parts.server.start_loops(&tasks, &drain);
        let envelope = Arc::new(envelope);
        let controllers = Peer::in_process_as(User::controllers(), drain.clone());
        let inside = InProcess::new(envelope.clone(), controllers);
        let serving = tokio::spawn(listener.serve(envelope, drain.clone()));
        Self {
            _home: parts.home,
            server: parts.server,
            store: parts.store,
            drain,
            tasks,
            inside,
            serving,
        }
    }

    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Makes sure that requests succeed.
    pub async fn check_ready(&self) -> anyhow::Result<()> {
        let failing = self.server.health.failing(Endpoint::Readyz).await;
        if let Some((name, why)) = failing.first() {
            anyhow::bail!("the server is not ready: {name}: {why}");
        }
        Ok(())
    }

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
        self.server.auditor.close(AUDIT_PATIENCE).await;
        self.store.close().await;
        Ok(())
    }
}

/// Runs something that serves on threads of its own, to its end.
pub fn block_on(serve: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting threads")?;
    let done = runtime.block_on(serve);
    // What is still running belongs to nobody: a blocked task must not hold the process.
    runtime.shutdown_background();
    done
}

/// Starts a server and keeps it until somebody asks it to stop.
pub async fn until_stopped(
    start: impl Future<Output = anyhow::Result<Running>>,
    drain_timeout: Duration,
) -> anyhow::Result<()> {
    raise_file_limit();
    let mut signals = Signals::listen()?;
    let running = tokio::select! {
        started = start => started?,
        // Nothing is promised to anybody yet: there is nothing to finish.
        () = signals.first() => return Ok(()),
    };
    signals.first().await;
    tracing::info!("shutting down: requests in flight have {drain_timeout:?} to finish");
    signals.exit_on_second();
    running.stop().await
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
