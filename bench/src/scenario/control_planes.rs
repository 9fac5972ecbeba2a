//! Control planes as objects: how soon one can be used, how many become ready in a second, and what they cost at rest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bench, Limit, OBJECT_NUMBER, Subject, Template};
use crate::load::{Source, new_histogram};
use crate::process::processor_time;
use crate::report::Measurement;
use crate::subject::Running;
use crate::wire::{Body, Connection};

const CONTROL_PLANES: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplanes";
/// How many are made one after the other.
const ALONE: u64 = 100;
/// How long a server is left alone before it is at rest, and how long it is looked at then.
const CALM: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(300);

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    one(subject, &running, report).await?;
    many(bench, subject, &running, report).await?;
    running.stop().await
}

fn template(running: &Running, prefix: &str, method: &str) -> Template {
    let name = format!("{prefix}{OBJECT_NUMBER}");
    if method == "GET" {
        return Template::new(
            running
                .endpoint
                .request("GET", &format!("{CONTROL_PLANES}/{name}"), b""),
        );
    }
    let body = format!(
        r#"{{"apiVersion":"controlplane.kplane.dev/v1alpha1","kind":"ControlPlane","metadata":{{"name":"{name}"}},"spec":{{}}}}"#
    );
    Template::new(running.endpoint.request(method, CONTROL_PLANES, body.as_bytes()))
}

/// Asks for a control plane until it is ready.
async fn until_ready(connection: &mut Connection, request: &[u8]) -> Result<()> {
    let began = Instant::now();
    loop {
        let reply = connection.exchange(request, Body::Keep).await?;
        let object: Value = serde_json::from_slice(&reply.body).context("a ControlPlane is JSON")?;
        if object["status"]["phase"] == "Ready" {
            return Ok(());
        }
        anyhow::ensure!(
            began.elapsed() < PATIENCE,
            "a ControlPlane does not become ready: {object}"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// From the request for one to its being ready, with nothing else to do.
async fn one(subject: &Subject, running: &Running, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let (make, look) = (template(running, "one", "POST"), template(running, "one", "GET"));
    let mut connection = Connection::open(&running.endpoint).await?;
    let mut request = Vec::new();
    let mut latency = new_histogram();
    for n in 0..ALONE {
        make.write(n, n, &mut request);
        let sent = Instant::now();
        let reply = connection.exchange(&request, Body::Keep).await?;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        anyhow::ensure!(reply.status == 201, "{}: {text}", reply.status);
        look.write(n, n, &mut request);
        until_ready(&mut connection, &request).await?;
        latency.saturating_record(sent.elapsed().as_nanos() as u64);
    }
    let p99 = latency.value_at_quantile(0.99) as f64 / 1e6;
    let measurement = Measurement::new("control-plane", subject.name(), p99, "ms (p99)");
    report(
        Measurement {
            operations: ALONE,
            ..measurement
        }
        .with_latency(&latency),
    );
    Ok(())
}

async fn many(bench: &Bench, subject: &Subject, running: &Running, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let count = bench.sizes.deleted;
    let make = template(running, "cp", "POST");
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| make.write(n, n, request));
    let began = Instant::now();
    let loaded = bench
        .load(running, bench.sizes.connections, Limit::Count(count), source)
        .await?;
    anyhow::ensure!(
        loaded.outcome.errors == 0,
        "could not create control planes: {:?}",
        loaded.outcome.first_error
    );
    let asked = began.elapsed();
    let look = template(running, "cp", "GET");
    let mut connection = Connection::open(&running.endpoint).await?;
    let mut request = Vec::new();
    for n in 0..count {
        look.write(n, n, &mut request);
        until_ready(&mut connection, &request).await?;
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    report(Measurement {
        detail: format!(
            "{count} control planes, all asked for after {:.1} s",
            asked.as_secs_f64()
        ),
        operations: count,
        ..Measurement::new("control-planes", subject.name(), rate, "control planes/s")
    });
    // Whatever was put off is done after a while; then nothing is.
    tokio::time::sleep(CALM).await;
    let before = processor_time(&running.pids());
    tokio::time::sleep(REST).await;
    let used = processor_time(&running.pids()).saturating_sub(before);
    let each_second = used.as_secs_f64() * 1e3 / REST.as_secs_f64();
    report(Measurement {
        detail: format!("{} control planes", count + ALONE),
        ..Measurement::new("control-planes-rest", subject.name(), each_second, "ms of processor/s")
    });
    Ok(())
}
