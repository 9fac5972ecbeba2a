//! A quiet plane beside a noisy one: what its requests take, alone and then while hundreds of clients drive the other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use tokio::io::AsyncReadExt as _;

use super::requests::{configmap, configmaps, fill, object_path};
use super::{Bench, Subject, Template, call};
use crate::endpoint::Endpoint;
use crate::load::new_histogram;
use crate::noise::{self, OBJECTS, Volume};
use crate::report::Measurement;
use crate::subject::Running;
use crate::wire::{Body, Connection};

/// Far more than a plane's part of the processors: each sends as soon as it is answered.
const VOLUME: Volume = Volume {
    clients: 200,
    watches: 300,
};
/// Between two requests of the quiet plane: it is nowhere near its own part.
const PAUSE: Duration = Duration::from_millis(5);
/// Objects in the quiet plane.
const QUIET_OBJECTS: u64 = 100;
/// Where it creates others: a list must not become longer from one measurement to the next.
const CREATED_IN: &str = "kube-system";
/// How often the noise begins and ends: what the machine does meanwhile falls on both alike.
const ROUNDS: u32 = 4;
const VERBS: [&str; 3] = ["GET", "create", "LIST"];

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let (quiet, noisy) = (plane(&running, "quiet").await?, plane(&running, "noisy").await?);
    for (endpoint, objects) in [(&quiet, QUIET_OBJECTS), (&noisy, OBJECTS)] {
        let collection = format!("{}{}", endpoint.prefix, configmaps("default"));
        fill(bench, &running, &collection, &configmap(), objects).await?;
    }
    let kubeconfig = running
        .directory()
        .context("our server has a directory")?
        .join("admin.kubeconfig");
    let mut number = QUIET_OBJECTS;
    let [mut idle, mut loaded] = [(); 2].map(|()| VERBS.map(|_| new_histogram()));
    let (warm_up, part) = (bench.sizes.warm_up, bench.sizes.measured / 2);
    let mut said = String::new();
    for _ in 0..ROUNDS {
        measure(&quiet, warm_up, &mut number, &mut VERBS.map(|_| new_histogram())).await?;
        measure(&quiet, part, &mut number, &mut idle).await?;
        let mut noise = noise::start(&kubeconfig, &noisy.prefix, VOLUME)?;
        measure(&quiet, warm_up, &mut number, &mut VERBS.map(|_| new_histogram())).await?;
        measure(&quiet, part, &mut number, &mut loaded).await?;
        noise.kill().await?;
        if let Some(mut output) = noise.stdout.take() {
            output.read_to_string(&mut said).await?;
        }
    }
    let last = said.lines().last().unwrap_or("nothing was answered");
    let p99 = |latency: &Histogram<u64>| latency.value_at_quantile(0.99) as f64 / 1e6;
    let (mut worst, mut detail) = (0.0_f64, Vec::new());
    for (verb, (idle, loaded)) in VERBS.iter().zip(idle.iter().zip(&loaded)) {
        let (before, after) = (p99(idle), p99(loaded));
        worst = worst.max(after / before);
        detail.push(format!("{verb} {before:.2} → {after:.2} ms"));
    }
    report(Measurement {
        operations: loaded.iter().map(Histogram::len).sum(),
        detail: format!("{}; the noise in its last second: {last}", detail.join(", ")),
        ..Measurement::new("noisy-neighbour", subject.name(), worst, "times idle p99")
    });
    running.stop().await
}

async fn plane(running: &Running, name: &str) -> Result<Endpoint> {
    let body = format!(r#"{{"apiVersion":"mica.dev/v1alpha1","kind":"Plane","metadata":{{"name":"{name}"}}}}"#);
    let planes = "/apis/mica.dev/v1alpha1/planes";
    call(&running.endpoint, "POST", planes, body.as_bytes()).await?;
    Ok(running.endpoint.at(&format!("/clusters/{name}/control-plane")))
}

/// One client that asks now and then, each verb in turn. `number` names what it creates.
async fn measure(
    quiet: &Endpoint,
    time: Duration,
    number: &mut u64,
    latency: &mut [Histogram<u64>; VERBS.len()],
) -> Result<()> {
    let get = Template::new(quiet.request("GET", &object_path("default"), b""));
    let post = Template::new(quiet.request("POST", &configmaps(CREATED_IN), &configmap()));
    let list = quiet.request("GET", &format!("{}?limit=100", configmaps("default")), b"");
    let mut connection = Connection::open(quiet).await?;
    let (end, mut request) = (Instant::now() + time, Vec::new());
    while Instant::now() < end {
        for (verb, latency) in latency.iter_mut().enumerate() {
            match verb {
                0 => get.write(*number % QUIET_OBJECTS, *number, &mut request),
                1 => {
                    post.write(*number, *number, &mut request);
                    *number += 1;
                }
                _ => list.clone_into(&mut request),
            }
            let began = Instant::now();
            let reply = connection.exchange(&request, Body::Skip).await?;
            latency.saturating_record(u64::try_from(began.elapsed().as_nanos())?);
            anyhow::ensure!(reply.status < 300, "the quiet plane was answered {}", reply.status);
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}
