//! Measures API servers: ours, a real kube-apiserver, anything with a kubeconfig, and the floors, all in one run.
//!
//! The load generator runs on the same machine, so it is built to cost little beside what it measures, and says what it cost.

mod endpoint;
mod floor;
mod load;
mod machine;
mod noise;
mod pki;
mod process;
mod reference;
mod report;
mod scenario;
mod subject;
mod watching;
mod wire;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use machine::Machine;
use reference::{Binaries, Disk, Reference};
use report::{Measurement, Report, goals, table};
use scenario::{Bench, SCENARIOS, Sizes};
use subject::Subject;

/// Each plane that shares definitions stores all thirty of them: more would measure the disk.
const MOST_SHARING: u64 = 10_000;

#[derive(Parser)]
#[command(
    about = "Measures Mica, a real kube-apiserver, other servers and the floors",
    version
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure everything that is named, one server after the other.
    Run(RunArgs),
    /// Name the scenarios.
    List,
    /// Start a real kube-apiserver with etcd, print one line when it is ready, and end on SIGTERM.
    Reference {
        #[arg(long)]
        data_dir: PathBuf,
        #[command(flatten)]
        binaries: ReferenceArgs,
    },
    /// Drive one plane until killed: what another is measured beside.
    #[command(hide = true)]
    Noise {
        #[arg(long)]
        kubeconfig: PathBuf,
        #[arg(long)]
        prefix: String,
        #[command(flatten)]
        volume: noise::Volume,
    },
    /// Serve as the floor: a bare TLS server over a bare log.
    #[command(hide = true)]
    Floor {
        #[arg(long)]
        data_dir: PathBuf,
    },
}

#[derive(Args)]
struct ReferenceArgs {
    /// A kube-apiserver binary.
    #[arg(long, env = "KUBE_APISERVER")]
    kube_apiserver: Option<PathBuf>,
    /// An etcd binary, for kube-apiserver.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
}

#[derive(Args)]
struct RunArgs {
    /// Our binary, a release build.
    #[arg(long)]
    mica: Option<PathBuf>,
    #[command(flatten)]
    reference: ReferenceArgs,
    /// Another server: NAME=KUBECONFIG. Only what can be seen from outside is measured.
    #[arg(long = "target", value_name = "NAME=KUBECONFIG", value_parser = named_kubeconfig)]
    targets: Vec<(String, PathBuf)>,
    /// Leave the floors out.
    #[arg(long)]
    no_floor: bool,
    /// Only these scenarios.
    #[arg(long, value_delimiter = ',', value_parser = scenario_name)]
    only: Vec<String>,
    /// Small and short: shows that everything works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Seconds that each timed scenario is measured.
    #[arg(long)]
    seconds: Option<u64>,
    #[arg(long)]
    connections: Option<usize>,
    /// How many planes are made; of those that share definitions, at most 10,000.
    #[arg(long)]
    planes: Option<u64>,
    #[arg(long)]
    idle_watches: Option<usize>,
    /// Where servers keep their data: on the disk that is to be measured.
    #[arg(long, default_value = "target/bench")]
    scratch: PathBuf,
    /// Where the JSON goes.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
}

fn named_kubeconfig(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("not NAME=KUBECONFIG")?;
    Ok((name.to_owned(), path.into()))
}

fn scenario_name(text: &str) -> Result<String, String> {
    let known = SCENARIOS.iter().any(|(name, _)| *name == text);
    if known {
        Ok(text.to_owned())
    } else {
        Err("no such scenario; `mica-bench list` names them".to_owned())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Run(args) => run(args).await,
        Command::List => {
            SCENARIOS.iter().for_each(|(name, what)| println!("{name:<18} {what}"));
            Ok(())
        }
        Command::Reference { data_dir, binaries } => serve_reference(&data_dir, binaries).await,
        Command::Noise {
            kubeconfig,
            prefix,
            volume,
        } => noise::make(&kubeconfig, &prefix, volume).await,
        Command::Floor { data_dir } => floor::server::serve(&data_dir).await,
    }
}

async fn serve_reference(directory: &Path, args: ReferenceArgs) -> Result<()> {
    let kube_apiserver = args.kube_apiserver.context("--kube-apiserver names the binary")?;
    let binaries = Binaries {
        kube_apiserver,
        etcd: args.etcd,
    };
    let started = Reference::start(&binaries, directory, Disk::Synced).await?;
    println!("ready: export KUBECONFIG={}", started.kubeconfig.display());
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    started.stop().await
}

async fn run(args: RunArgs) -> Result<()> {
    std::fs::create_dir_all(&args.scratch)?;
    let machine = Machine::look(&args.scratch)?;
    eprintln!("{}", machine.line());
    if machine.load_average > 0.5 {
        eprintln!("this machine is busy: only ratios between servers will mean something, if that");
    }
    let mut sizes = if args.quick { Sizes::QUICK } else { Sizes::FULL };
    sizes.measured = args.seconds.map_or(sizes.measured, std::time::Duration::from_secs);
    sizes.connections = args.connections.unwrap_or(sizes.connections);
    sizes.planes = args.planes.unwrap_or(sizes.planes);
    if let Some(planes) = args.planes {
        sizes.sharing = planes.min(MOST_SHARING);
        sizes.warm = sizes.sharing / 2;
    }
    sizes.idle_watches = args.idle_watches.unwrap_or(sizes.idle_watches);
    let subjects = subjects(&args);
    let bench = Bench {
        sizes,
        scratch: args.scratch.canonicalize()?,
        only: args.only,
    };

    let mut measurements: Vec<Measurement> = Vec::new();
    let mut failed = Vec::new();
    for subject in &subjects {
        let mut add = |measurement: Measurement| {
            eprintln!("  {}", measurement.line());
            measurements.push(measurement);
        };
        if let Err(err) = bench.measure(subject, &mut add).await {
            eprintln!("  {}: {err:#}", subject.name());
            failed.push(subject.name());
        }
    }
    measurements.sort_by_key(|m| scenario::rank(m.scenario));

    println!("{}\n\n{}", machine.line(), table(&measurements));
    // Goals are about full sizes; a quick run would flatter or slander.
    let goals = if args.quick { Vec::new() } else { goals(&measurements) };
    for goal in &goals {
        println!(
            "{}  {}: {}",
            if goal.met { "met   " } else { "MISSED" },
            goal.goal,
            goal.measured
        );
    }
    let taken = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
    std::fs::create_dir_all(&args.out)?;
    let path = args.out.join(format!("{taken}.json"));
    let report = Report {
        taken,
        machine: &machine,
        sizes: &bench.sizes,
        measurements: &measurements,
        goals,
    };
    std::fs::write(&path, serde_json::to_string_pretty(&report)?)?;
    println!("\nwritten to {}", path.display());
    anyhow::ensure!(
        failed.is_empty(),
        "not everything could be measured on {}",
        failed.join(", ")
    );
    Ok(())
}

fn subjects(args: &RunArgs) -> Vec<Subject> {
    let mut subjects = Vec::new();
    if !args.no_floor {
        subjects.push(Subject::Floor);
    }
    if let Some(binary) = &args.mica {
        subjects.push(Subject::Mica { binary: binary.clone() });
    }
    if let Some(kube_apiserver) = &args.reference.kube_apiserver {
        let (kube_apiserver, etcd) = (kube_apiserver.clone(), args.reference.etcd.clone());
        subjects.push(Subject::KubeApiserver(Binaries { kube_apiserver, etcd }));
    }
    let foreign = args.targets.iter().cloned();
    subjects.extend(foreign.map(|(name, kubeconfig)| Subject::Foreign { name, kubeconfig }));
    subjects
}
