//! One process of controllers over very many planes: engaging them, what it takes while they are idle, how soon it hears of
//! a change, also while another plane storms, and what it reads again when its credentials are exchanged.
//!
//! The process is `measured_fleet`, an example of the runtime, so that it is what an author of controllers would run.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::memory::MIB;
use super::planes::create;
use super::requests::configmaps;
use super::{Bench, Limit, OBJECT_NUMBER, Subject, Template, call};
use crate::load::Source;
use crate::process::settled;
use crate::report::Measurement;
use crate::subject::Running;
use crate::wire::{Body, Connection};

/// Kinds that the process watches in every plane.
const KINDS: u64 = 3;
/// Those, and the planes themselves.
const FOLLOWED: [&str; 4] = ["configmaps", "secrets", "serviceaccounts", "planes"];
/// Between two changes, each in another plane.
const PAUSE: Duration = Duration::from_millis(5);
/// Changes in one plane, as fast as they are taken.
const STORM: u64 = 10_000;
/// How long nothing comes once everything has come.
const CALM: Duration = Duration::from_secs(1);
/// How long the process may take to engage all, or to answer.
const PATIENCE: Duration = Duration::from_secs(120);

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let planes = bench.sizes.engaged;
    create(bench, &running, "f", planes).await?;
    let mut fleet = Fleet::start(&running, planes).await?;
    let seconds = fleet.next().await?["engaged"].as_f64().context("no time of engaging")?;
    let connections = fleet.sockets()?;
    let resident = settled(&[fleet.pid]).await;
    let detail = format!("{planes} planes, {KINDS} kinds, {connections} sockets");
    let name = subject.name();
    report(Measurement {
        detail: detail.clone(),
        ..Measurement::new("fleet-engage", name, seconds * 1e3, "ms")
    });
    report(Measurement {
        detail,
        ..Measurement::new("fleet-memory", name, resident as f64 / MIB, "MiB")
    });
    changes(&running, planes, "warm", bench.sizes.warm_up).await?;
    fleet.report().await?;
    let alone = changes(&running, planes, "alone", bench.sizes.measured).await?;
    let quiet = fleet.report().await?;
    report(Measurement {
        operations: alone,
        detail: format!("{} of {alone} changes reconciled, p50 {:.2} ms", quiet.count, quiet.p50),
        ..Measurement::new("fleet-change", name, quiet.p99, "ms p99")
    });
    let stormy = storm(bench, &running, planes, &mut fleet).await?;
    report(Measurement {
        detail: format!("p99 {:.2} ms, alone {:.2} ms", stormy.p99, quiet.p99),
        ..Measurement::new("fleet-storm", name, stormy.p99 / quiet.p99, "times the p99 alone")
    });
    report(rotation(bench, subject, &running, &mut fleet).await?);
    fleet.stop().await?;
    running.stop().await
}

/// A process of controllers.
struct Fleet {
    pid: u32,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

struct Reconciled {
    count: u64,
    p50: f64,
    p99: f64,
}

impl Fleet {
    async fn start(running: &Running, planes: u64) -> Result<Self> {
        let program = program()?;
        let directory = running.directory().context("our server has a directory")?;
        let mut child = Command::new(&program)
            .arg(directory.join("admin.kubeconfig"))
            .arg(planes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            pid: child.id().context("a started process has a pid")?,
            input: child.stdin.take().context("its input is ours")?,
            output: BufReader::new(child.stdout.take().context("its output is ours")?).lines(),
            child,
        })
    }

    async fn next(&mut self) -> Result<Value> {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        let line = line
            .context("the fleet does not answer")??
            .context("the fleet has ended")?;
        serde_json::from_str(&line).with_context(|| format!("the fleet says {line:?}"))
    }

    async fn ask(&mut self, line: &str) -> Result<Value> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        self.next().await
    }

    /// What was reconciled since this was last asked.
    async fn report(&mut self) -> Result<Reconciled> {
        let said = self.ask("").await?;
        Ok(Reconciled {
            count: said["count"].as_u64().unwrap_or_default(),
            p50: said["p50"].as_f64().unwrap_or_default(),
            p99: said["p99"].as_f64().unwrap_or_default(),
        })
    }

    /// Waits until nothing more is reconciled; what was.
    async fn calm(&mut self) -> Result<u64> {
        let mut all = 0;
        loop {
            tokio::time::sleep(CALM).await;
            match self.report().await?.count {
                0 => return Ok(all),
                some => all += some,
            }
        }
    }

    fn sockets(&self) -> Result<usize> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.pid))?;
        let is_socket = |path: PathBuf| path.to_string_lossy().starts_with("socket:");
        Ok(files
            .flatten()
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .filter(|path| is_socket(path.clone()))
            .count())
    }

    async fn stop(mut self) -> Result<()> {
        drop(self.input);
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .context("the fleet does not end")??;
        Ok(())
    }
}

/// Beside the bench itself, where `cargo build --examples` puts it.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.parent().unwrap_or(Path::new(".")).join("examples/measured_fleet");
    anyhow::ensure!(
        program.exists(),
        "{} is missing: cargo build --release -p mica-runtime --example measured_fleet",
        program.display()
    );
    Ok(program)
}

/// Changes one plane after the other, now and then; says how many were changed. `prefix` begins the names of what is made.
async fn changes(running: &Running, planes: u64, prefix: &str, time: Duration) -> Result<u64> {
    let mut connection = Connection::open(&running.endpoint).await?;
    let (end, mut made) = (Instant::now() + time, 0);
    while Instant::now() < end {
        // Far apart, so that no plane is changed twice in a row.
        let plane = (made * 7919) % planes;
        let endpoint = running.endpoint.at(&format!("/clusters/f{plane:08}/control-plane"));
        let name = format!("{prefix}{made}");
        let reply = connection
            .exchange(
                &endpoint.request("POST", &configmaps("default"), &stamped(&name)),
                Body::Skip,
            )
            .await?;
        anyhow::ensure!(reply.status == 201, "a change was answered {}", reply.status);
        made += 1;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(made)
}

fn stamped(name: &str) -> Vec<u8> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","annotations":{{"bench.mica.dev/at":"{now}"}}}}}}"#
    )
    .into_bytes()
}

/// Changes as before, while one plane is written to as fast as it takes it.
async fn storm(bench: &Bench, running: &Running, planes: u64, fleet: &mut Fleet) -> Result<Reconciled> {
    let loud = running.endpoint.at("/clusters/f00000000/control-plane");
    let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"storm-{OBJECT_NUMBER}"}}}}"#);
    let template = Template::new(loud.request("POST", &configmaps("default"), body.as_bytes()));
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| template.write(n, n, request));
    let storming = bench.load(running, bench.sizes.connections, Limit::Count(STORM), source);
    let others = changes(running, planes, "storm", bench.sizes.measured);
    let (stormed, changed) = tokio::join!(storming, others);
    stormed?;
    changed?;
    fleet.report().await
}

/// Gives the process other credentials, which every plane must see, and goes on with changes: what it lists because of that.
async fn rotation(bench: &Bench, subject: &Subject, running: &Running, fleet: &mut Fleet) -> Result<Measurement> {
    let planes = bench.sizes.engaged;
    let (kubeconfig, user) = other_credentials(running).await?;
    fleet.calm().await?;
    let before = lists(running).await?;
    anyhow::ensure!(
        before > 0,
        "the server has counted no list, and the process began with some"
    );
    let said = fleet.ask(&format!("rotate {}", kubeconfig.display())).await?;
    anyhow::ensure!(
        said["users"] == json!({&user: planes}),
        "after the exchange planes see {}",
        said["users"]
    );
    let made = changes(running, planes, "rotated", bench.sizes.warm_up).await?;
    let heard = fleet.calm().await?;
    anyhow::ensure!(
        heard == made,
        "{heard} of {made} changes were heard of after the exchange"
    );
    let relists = lists(running).await?.saturating_sub(before);
    let seconds = said["seconds"].as_f64().unwrap_or_default();
    Ok(Measurement {
        operations: planes,
        detail: format!(
            "{planes} planes have seen the new ones after {seconds:.1} s; {heard} of {made} changes reconciled since"
        ),
        ..Measurement::new("fleet-rotation", subject.name(), relists as f64, "relists")
    })
}

/// A kubeconfig with a token instead of a certificate, and whose it is.
async fn other_credentials(running: &Running) -> Result<(PathBuf, String)> {
    let endpoint = &running.endpoint;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    call(endpoint, "POST", accounts, br#"{"metadata":{"name":"rotated"}}"#).await?;
    let binding = json!({
        "metadata": {"name": "rotated"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "rotated"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    call(endpoint, "POST", bindings, binding.to_string().as_bytes()).await?;
    let token = call(
        endpoint,
        "POST",
        &format!("{accounts}/rotated/token"),
        br#"{"spec":{}}"#,
    )
    .await?;
    let directory = running.directory().context("our server has a directory")?;
    let text = std::fs::read_to_string(directory.join("admin.kubeconfig"))?;
    let mut kubeconfig: Value = serde_saphyr::from_str(&text)?;
    kubeconfig["users"][0]["user"] = json!({"token": token["status"]["token"]});
    let file = directory.join("rotated.kubeconfig");
    std::fs::write(&file, kubeconfig.to_string())?;
    Ok((file, "system:serviceaccount:default:rotated".to_owned()))
}

/// How often the server was asked for a list of what the process follows.
async fn lists(running: &Running) -> Result<u64> {
    let mut connection = Connection::open(&running.endpoint).await?;
    let request = running.endpoint.request("GET", "/metrics", b"");
    let reply = connection.exchange(&request, Body::Keep).await?;
    anyhow::ensure!(reply.status == 200, "metrics were answered {}", reply.status);
    let text = String::from_utf8_lossy(&reply.body);
    let counted = text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{verb=\"LIST\""))
        .filter(|line| {
            FOLLOWED
                .iter()
                .any(|kind| line.contains(&format!("resource=\"{kind}\"")))
        });
    Ok(counted
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum())
}
