//! `mica run controllers`: the controllers of any number of servers, over their APIs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use mica_controllers::control_plane::Home;
use mica_controllers::{Api, Options};
use mica_runtime::ownership::{All, Leader, Ownership, Standby, Timing};
use mica_runtime::provider::Registrations;
use mica_runtime::{Access, Fleet, Metrics};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::{ControllersArgs, LeaderArgs};
use crate::exit::Usage;
use crate::metric::Counted;
use crate::operator::{OperatorFile, OperatorSettings};
use crate::up::signal::Signals;
use crate::{config, output, trace};

/// The service that registrations name.
const SERVICE: &str = "controllers";
/// The width of lines in PEM.
const PEM_LINE: usize = 64;
/// A lease is renewed in time although tries are not made to the minute: client-go's factor.
const RETRY_JITTER: f64 = 1.2;
/// The usual Lease.
const LEASE: &str = "mica-controllers";

pub async fn run(arguments: ControllersArgs) -> anyhow::Result<()> {
    let log = arguments.log.as_deref().unwrap_or("info");
    let tracing = trace::init(log, arguments.log_format.unwrap_or_default(), None)?;
    let chosen = config::controllers(&arguments.controllers)?;
    let root_ca = arguments.root_ca_file.as_deref().map(read).transpose()?;
    let shared = match &arguments.server_kubeconfig {
        Some(file) => Some(home(load(file).await?)?),
        None => None,
    };
    let timing = timing(&arguments.leader)?;
    let operator = operator(&arguments, log)?;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let mut servers = Vec::new();
    for file in &arguments.kubeconfig {
        let config = load(file).await?;
        let control_planes = match &shared {
            Some(home) => operator.on(home.clone(), None, &tasks, &stop).elsewhere(),
            None => operator.on(home(config.clone())?, None, &tasks, &stop),
        };
        let options = Options {
            controllers: chosen.clone(),
            root_ca: root_ca.clone().or_else(|| pem(&config)),
            control_planes: Some(control_planes),
        };
        servers.push((config, options));
    }
    let metrics = Metrics::new();
    let settings = servers
        .iter()
        .filter_map(|(_, options)| options.control_planes.as_ref());
    let counted = Counted::new(settings.map(|settings| settings.census.clone()));
    metrics.register(|registry| registry.register_collector(Box::new(counted)));
    if let Some(address) = arguments.metrics_bind_address {
        listen(address, &metrics, &tasks, &stop)?;
    }
    let mut signals = Signals::listen()?;
    for (config, options) in servers {
        let url = config.cluster_url.to_string();
        let client = kube::Client::try_from(config.clone()).with_context(|| format!("reaching {url}"))?;
        let ownership = ownership(client.clone(), &arguments, timing);
        ownership.report_to(&metrics);
        // What a server trusts says nothing about others, and control planes are the affair of the servers that follow them.
        let others = Options {
            root_ca: root_ca.clone(),
            control_planes: None,
            ..options.clone()
        };
        if let Some(registrations) = registered(&arguments, &config)? {
            let fleet = Fleet::new(ownership.clone());
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
                let running = mica_controllers::run_owned(client, options, ownership.clone(), stop.clone());
                tasks.spawn(running);
                url.trim_end_matches('/').to_owned()
            }
        };
        let stop = stop.clone();
        tasks.spawn(async move { ownership.run(stop).await });
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

/// Serves what is counted, and says where.
fn listen(address: SocketAddr, metrics: &Metrics, tasks: &TaskTracker, stop: &CancellationToken) -> Result<(), Usage> {
    let bad = |error: std::io::Error| Usage(format!("metrics-bind-address: {address}: {error}"));
    let (address, serving) = metrics.listen(address, stop.clone()).map_err(bad)?;
    tasks.spawn(serving);
    let _ = output::print(&format!("Metrics are at http://{address}/metrics\n"));
    Ok(())
}

/// How control planes are run, if they are.
fn operator(arguments: &ControllersArgs, log: &str) -> Result<OperatorSettings, Usage> {
    let dedicated = arguments.operator.dedicated.clone().by_themselves(log)?;
    if dedicated.is_some() && arguments.kubeconfig.len() > 1 {
        let text = "dedicated-dir: control planes of several servers would share it: run a process for each";
        return Err(Usage(text.to_owned()));
    }
    OperatorFile::default().settings(arguments.operator.clone(), dedicated)
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

/// Which of several processes works for a server.
fn ownership(client: kube::Client, arguments: &ControllersArgs, timing: Timing) -> Arc<dyn Ownership> {
    let election = &arguments.leader;
    if !election.leader_elect {
        return Arc::new(All::new());
    }
    // Who serves one control plane does not stand by for who serves another.
    let usual = match &arguments.registration {
        Some(registration) => format!("{LEASE}-{registration}"),
        None => LEASE.to_owned(),
    };
    let name = election.leader_elect_resource_name.as_ref().unwrap_or(&usual);
    let namespace = &election.leader_elect_resource_namespace;
    let leader = Leader::new(client, namespace, name)
        .timing(timing)
        .standby(Standby::Warm);
    Arc::new(leader.build())
}

fn timing(arguments: &LeaderArgs) -> Result<Timing, Usage> {
    let timing = Timing {
        lease: config::duration("leader-elect-lease-duration", &arguments.leader_elect_lease_duration)?,
        renew: config::duration("leader-elect-renew-deadline", &arguments.leader_elect_renew_deadline)?,
        retry: config::duration("leader-elect-retry-period", &arguments.leader_elect_retry_period)?,
    };
    if timing.lease <= timing.renew {
        let text = "leader-elect-lease-duration: it must be greater than leader-elect-renew-deadline";
        return Err(Usage(text.to_owned()));
    }
    if timing.retry.is_zero() || timing.renew <= timing.retry.mul_f64(RETRY_JITTER) {
        let text = "leader-elect-renew-deadline: it must be greater than leader-elect-retry-period times 1.2";
        return Err(Usage(text.to_owned()));
    }
    Ok(timing)
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
