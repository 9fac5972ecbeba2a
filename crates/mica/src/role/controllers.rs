//! `mica run controllers`: the controllers of any number of servers, over their APIs.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use mica_controllers::control_plane::{Home, Settings};
use mica_controllers::{Api, Options};
use mica_runtime::ownership::All;
use mica_runtime::provider::Registrations;
use mica_runtime::{Access, Fleet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::ControllersArgs;
use crate::exit::Usage;
use crate::up::signal::Signals;
use crate::{config, output, trace};

/// The service that registrations name.
const SERVICE: &str = "controllers";
/// The width of lines in PEM.
const PEM_LINE: usize = 64;

pub async fn run(arguments: ControllersArgs) -> anyhow::Result<()> {
    let log = arguments.log.as_deref().unwrap_or("info");
    let tracing = trace::init(log, arguments.log_format.unwrap_or_default(), None)?;
    let chosen = config::controllers(&arguments.controllers)?;
    let root_ca = arguments.root_ca_file.as_deref().map(read).transpose()?;
    let shared = match &arguments.server_kubeconfig {
        Some(file) => Some(home(load(file).await?)?),
        None => None,
    };
    let mut servers = Vec::new();
    for file in &arguments.kubeconfig {
        let config = load(file).await?;
        let options = Options {
            controllers: chosen.clone(),
            root_ca: root_ca.clone().or_else(|| pem(&config)),
            control_planes: Some(match &shared {
                Some(home) => Settings::new(home.clone()).elsewhere(),
                None => Settings::new(home(config.clone())?),
            }),
        };
        servers.push((config, options));
    }
    let mut signals = Signals::listen()?;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    for (config, options) in servers {
        let url = config.cluster_url.to_string();
        // What a server trusts says nothing about others, and control planes are the affair of the servers that follow them.
        let others = Options {
            root_ca: root_ca.clone(),
            control_planes: None,
            ..options.clone()
        };
        if let Some(registrations) = registered(&arguments, &config)? {
            let fleet = Fleet::new(Arc::new(All::new()));
            fleet.add(registrations)?;
            let stop = stop.clone();
            tasks.spawn(async move {
                mica_controllers::run_fleet(&fleet, others, stop).await;
                fleet.stop().await;
            });
        }
        let whom = match &arguments.registration {
            Some(name) => format!("registration {name} of {}", url.trim_end_matches('/')),
            None => {
                let client = kube::Client::try_from(config).with_context(|| format!("reaching {url}"))?;
                tasks.spawn(mica_controllers::run(client, options, stop.clone()));
                url.trim_end_matches('/').to_owned()
            }
        };
        let _ = output::print(&format!("Controllers run for {whom}\n"));
    }
    signals.first().await;
    stop.cancel();
    signals.exit_on_second();
    tasks.close();
    tasks.wait().await;
    tracing.flush().await;
    Ok(())
}

/// The control planes that are registered for controllers and that this process may serve: one that is named, by itself, or
/// all that may be served together. Planes of the server itself have its controllers already.
fn registered(arguments: &ControllersArgs, config: &kube::Config) -> anyhow::Result<Option<Registrations>> {
    if !arguments.registrations && arguments.registration.is_none() {
        return Ok(None);
    }
    let all = Registrations::new(Access::from_config(config.clone())?).service(SERVICE);
    Ok(Some(match &arguments.registration {
        Some(name) => all.only(name),
        None => all.mode("Shared").except_planes_of(config.cluster_url.to_string()),
    }))
}

/// The server of a kubeconfig, as control planes are made on it.
fn home(config: kube::Config) -> anyhow::Result<Home> {
    let url = config.cluster_url.to_string();
    Ok(Home {
        ca: pem(&config),
        api: Api::new(kube::Client::try_from(config).with_context(|| format!("reaching {url}"))?),
        url: url.trim_end_matches('/').to_owned(),
    })
}

fn read(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file);
    Ok(text.map_err(|error| Usage(format!("{}: {error}", file.display())))?)
}

async fn load(file: &Path) -> anyhow::Result<kube::Config> {
    let bad = |error: &dyn std::fmt::Display| Usage(format!("{}: {error}", file.display()));
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| bad(&error))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| bad(&error))?;
    // Requests have deadlines of their own, and watches last.
    config.read_timeout = None;
    config.write_timeout = None;
    Ok(config)
}

/// What a kubeconfig trusts.
fn pem(config: &kube::Config) -> Option<String> {
    let block = |certificate: &Vec<u8>| {
        let text = STANDARD.encode(certificate);
        let lines: Vec<&str> = (0..text.len())
            .step_by(PEM_LINE)
            .map(|at| &text[at..text.len().min(at + PEM_LINE)])
            .collect();
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            lines.join("\n")
        )
    };
    Some(config.root_cert.as_ref()?.iter().map(block).collect())
}
