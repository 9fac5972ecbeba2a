//! Standing in for kube-apiserver: its flags, its certificates, every kind of Kubernetes as data, and its way to end.

mod access;
mod audit;
mod authentication;
mod backend;
mod certificate;
mod settings;
mod table;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mica_machinery::kind::Profile;
use mica_machinery::kind::bootstrap::Companions;
use mica_server::egress::{EgressOptions, Network};
use mica_server::http::ListenOptions;
use mica_server::metrics::Registry;
use mica_server::start::ServerOptions;
use mica_server::version::git_version;

use self::settings::Settings;
use super::flag::{Dialect, Flags, help};
use crate::authentication::follow_roots;
use crate::cli::LogFormat;
use crate::config::ListenAddress;
use crate::up::running::{Parts, Running, block_on, until_stopped};
use crate::up::{backend as store, port};
use crate::{exit, output, trace};

/// Test environments give a server 20 seconds to end before they kill it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

const HEAD: &str = "\
Mica in place of kube-apiserver: the API of Kubernetes, with every kind as plain data.

Usage:
  kube-apiserver [flags]
";

pub fn main(arguments: &[String]) -> ExitCode {
    let flags = match Flags::parse(table::FLAGS, Dialect::Pflag, arguments) {
        Ok(flags) => flags,
        Err(error) => return refuse(&error.to_string()),
    };
    if flags.is_on("help", false) {
        return print(&help(HEAD, table::FLAGS, table::MEANINGS));
    }
    if flags.last("version").is_some_and(|value| value != "false") {
        return print(&format!("Kubernetes {}\n", git_version()));
    }
    if !flags.rest.is_empty() {
        return refuse(&format!(
            "\"kube-apiserver\" does not take any arguments, got {:?}",
            flags.rest
        ));
    }
    match Settings::read(&flags) {
        Ok(settings) => match block_on(serve(settings)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&exit::one_line(&error)),
        },
        Err(problem) => fail(&problem),
    }
}

fn print(text: &str) -> ExitCode {
    exit::code(output::print(text).map_err(Into::into))
}

/// A command line that cannot be read, as cobra says it.
fn refuse(problem: &str) -> ExitCode {
    eprintln!("Error: {problem}");
    ExitCode::FAILURE
}

/// A server that cannot be started: the words by which people look for it in upstream's log.
fn fail(problem: &str) -> ExitCode {
    eprintln!("\"command failed\" err={}", mica_machinery::field::quote(problem));
    ExitCode::FAILURE
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let tracing = trace::init(settings.log, LogFormat::Text, None)?;
    if !settings.ignored.is_empty() {
        let named: Vec<String> = settings.ignored.iter().map(|name| format!("--{name}")).collect();
        tracing::info!("without effect here: {}", named.join(" "));
    }
    until_stopped(Box::pin(start(&settings)), DRAIN_TIMEOUT).await?;
    tracing.flush().await;
    Ok(())
}

/// Webhooks of a test environment are on this machine, also those of planes.
fn local_webhooks() -> EgressOptions {
    let networks = ["127.0.0.0/8", "::1/128"].map(|text| text.parse::<Network>().expect("a range"));
    EgressOptions {
        allow: networks.into_iter().collect(),
        ..EgressOptions::default()
    }
}

async fn start(settings: &Settings) -> anyhow::Result<Running> {
    let certificates = certificate::serving(settings)?;
    let roots = Arc::new(certificate::client_roots(settings)?);
    let tcp = port::bind(&ListenAddress {
        host: settings.listen.ip().to_string(),
        port: settings.listen.port(),
    })
    .await?;
    let (home, opened) = backend::open(settings).await?;
    let metrics = Arc::new(Registry::new());
    opened.measure(&metrics);
    let mut options = ServerOptions {
        profile: Profile::Kubernetes,
        companions: Companions::Absent,
        address: Some(SocketAddr::new(settings.advertise, settings.listen.port())),
        services: settings.services,
        authenticator: settings.authenticator.clone(),
        root_accounts: settings.root_accounts.open().map_err(anyhow::Error::msg)?,
        reload: settings.reload.clone(),
        client_ca: match &settings.client_ca {
            Some(file) => std::fs::read_to_string(file)?,
            None => String::new(),
        },
        metrics: metrics.clone(),
        egress: local_webhooks(),
        accounts: settings.accounts,
        audit: settings.audit.clone(),
        fairness: settings.fairness.clone(),
        encryption: settings.encryption.clone(),
        plugins: settings.plugins.clone(),
        authorization: settings.authorization.load()?,
        ..ServerOptions::default()
    };
    if let Some(file) = &settings.client_ca {
        follow_roots(&settings.reload, file, &roots).map_err(anyhow::Error::msg)?;
    }
    if let Some(issuer) = &settings.root_accounts.issuer {
        options.issuer.clone_from(issuer);
    }
    let server = store::open(opened.store(), options).await?;
    let running = Running::begin(Parts {
        home,
        tcp,
        store: opened,
        server,
        metrics,
        certificates,
        roots,
        listen: ListenOptions {
            drain_deadline: DRAIN_TIMEOUT,
            tls: settings.transport.tls.clone(),
            ..ListenOptions::default()
        },
        hsts: settings.transport.hsts.clone(),
    });
    running.check_ready().await?;
    tracing::info!("serving on https://{}", settings.listen);
    Ok(running)
}
