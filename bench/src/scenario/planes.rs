//! Planes by the hundred thousand: made, met for the first time, kept over a restart, deleted, loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::definition::DEFINITIONS;
use super::memory::MIB;
use super::requests::configmap;
use super::{Bench, Limit, OBJECT_NUMBER, Subject, Template};
use crate::endpoint::Endpoint;
use crate::load::{Source, new_histogram};
use crate::process::settled;
use crate::report::Measurement;
use crate::subject::{Freed, Running};
use crate::wire::{Body, Connection};

const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";
/// How many planes are met for the first time.
const MET: u64 = 1_000;
pub const CRDS: u64 = 30;
const OBJECTS: u64 = 200;

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let mut running = subject.start(&bench.scratch).await?;
    create(bench, &running, "warm", 100).await?;
    let before = settled(&running.pids()).await;
    let count = bench.sizes.planes;
    let loaded = create(bench, &running, "p", count).await?;
    let after = settled(&running.pids()).await;
    if bench.wants("planes") {
        report(Measurement {
            detail: format!("{count} planes"),
            ..loaded.rate("planes", subject, "planes/s")
        });
        let each = after.saturating_sub(before) as f64 / count as f64;
        let detail = format!("{:.0} MiB in all", after as f64 / MIB);
        report(Measurement {
            detail,
            ..Measurement::new("plane-memory", subject.name(), each, "bytes/plane")
        });
    }
    if bench.wants("first-request") {
        first_requests(subject, &running.endpoint, count, report).await?;
    }
    if bench.wants("restart") {
        running = subject.restart(running, Freed::Kept).await?;
        let took = running.ready_after.as_secs_f64() * 1e3;
        let detail = format!("{count} planes, {:.0} MiB", settled(&running.pids()).await as f64 / MIB);
        report(Measurement {
            detail,
            ..Measurement::new("restart", subject.name(), took, "ms")
        });
    }
    if bench.wants("delete-planes") {
        delete(bench, subject, &running, bench.sizes.deleted.min(count), report).await?;
    }
    running.stop().await
}

/// Creates planes 0 to n-1, with this in front of their numbers.
pub async fn create(bench: &Bench, running: &Running, prefix: &str, count: u64) -> Result<super::Loaded> {
    let body = format!(
        r#"{{"apiVersion":"mica.dev/v1alpha1","kind":"Plane","metadata":{{"name":"{prefix}{OBJECT_NUMBER}"}}}}"#
    );
    let template = Template::new(running.endpoint.request("POST", PLANES, body.as_bytes()));
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| template.write(n, n, request));
    let loaded = bench
        .load(running, bench.sizes.connections, Limit::Count(count), source)
        .await?;
    anyhow::ensure!(
        loaded.outcome.errors == 0,
        "could not create planes: {:?}",
        loaded.outcome.first_error
    );
    Ok(loaded)
}

/// One request each to planes that were never used, one after the other: what a user feels.
async fn first_requests(
    subject: &Subject,
    endpoint: &Endpoint,
    planes: u64,
    report: &mut impl FnMut(Measurement),
) -> Result<()> {
    let met = MET.min(planes);
    let path = format!("/clusters/p{OBJECT_NUMBER}/control-plane/api/v1/namespaces/default");
    let template = Template::new(endpoint.request("GET", &path, b""));
    let mut connection = Connection::open(endpoint).await?;
    let mut request = Vec::new();
    let mut latency = new_histogram();
    for n in 0..met {
        template.write(n * (planes / met), 0, &mut request);
        let sent = Instant::now();
        let reply = connection.exchange(&request, Body::Skip).await?;
        anyhow::ensure!(
            reply.status == 200,
            "{}: {}",
            reply.status,
            String::from_utf8_lossy(&reply.body)
        );
        latency.saturating_record(sent.elapsed().as_nanos() as u64);
    }
    let p99 = latency.value_at_quantile(0.99) as f64 / 1e6;
    let measurement = Measurement::new("first-request", subject.name(), p99, "ms (p99)");
    report(
        Measurement {
            operations: met,
            ..measurement
        }
        .with_latency(&latency),
    );
    Ok(())
}

async fn delete(
    bench: &Bench,
    subject: &Subject,
    running: &Running,
    count: u64,
    report: &mut impl FnMut(Measurement),
) -> Result<()> {
    let path = format!("{PLANES}/p{OBJECT_NUMBER}");
    let template = Template::new(running.endpoint.request("DELETE", &path, b""));
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| template.write(n, n, request));
    let began = Instant::now();
    let loaded = bench
        .load(running, bench.sizes.connections, Limit::Count(count), source)
        .await?;
    anyhow::ensure!(
        loaded.outcome.errors == 0,
        "could not delete planes: {:?}",
        loaded.outcome.first_error
    );
    let asked = began.elapsed();
    gone(running, &path, count).await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    let detail = format!("{count} planes, all asked for after {:.1} s", asked.as_secs_f64());
    report(Measurement {
        detail,
        operations: count,
        ..Measurement::new("delete-planes", subject.name(), took, "ms")
    });
    Ok(())
}

/// Waits until each of the numbered paths is 404.
async fn gone(running: &Running, path: &str, count: u64) -> Result<()> {
    let template = Arc::new(Template::new(running.endpoint.request("GET", path, b"")));
    let next = Arc::new(AtomicU64::new(0));
    let askers = (0..8).map(|_| {
        let (template, next, endpoint) = (template.clone(), next.clone(), running.endpoint.clone());
        tokio::spawn(async move {
            let mut connection = Connection::open(&endpoint).await?;
            let mut request = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                template.write(number, 0, &mut request);
                while connection.exchange(&request, Body::Skip).await?.status != 404 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        })
    });
    for asker in askers.collect::<Vec<_>>() {
        asker.await??;
    }
    Ok(())
}

/// What a plane costs that holds what a customer's plane holds.
pub async fn loaded(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    create(bench, &running, "warm", 10).await?;
    populate(bench, &running, "warm", 10).await?;
    let count = bench.sizes.loaded;
    let before = settled(&running.pids()).await;
    create(bench, &running, "l", count).await?;
    let sent = populate(bench, &running, "l", count).await?;
    let after = settled(&running.pids()).await;
    let each = after.saturating_sub(before) as f64 / count as f64;
    let detail = format!(
        "{count} planes; {CRDS} CRDs and {OBJECTS} objects each, {} bytes",
        sent / count
    );
    report(Measurement {
        detail,
        ..Measurement::new("loaded-planes", subject.name(), each, "bytes/plane")
    });
    running.stop().await
}

/// Puts CRDs and objects into planes 0 to n-1; returns the bytes of all bodies.
async fn populate(bench: &Bench, running: &Running, prefix: &str, planes: u64) -> Result<u64> {
    let bodies = (0..CRDS).map(|n| (DEFINITIONS, crd(n)));
    let objects = (0..OBJECTS).map(|n| {
        let name = format!("c-{n:08}");
        let body = String::from_utf8_lossy(&configmap()).replace(&format!("c-{OBJECT_NUMBER}"), &name);
        ("/api/v1/namespaces/default/configmaps", body)
    });
    let bodies: Vec<_> = bodies.chain(objects).collect();
    post_all(bench, running, prefix, planes, &bodies).await?;
    Ok(bodies.iter().map(|(_, body)| body.len() as u64).sum::<u64>() * planes)
}

/// Posts each of these bodies to its path in planes 0 to n-1.
pub async fn post_all(
    bench: &Bench,
    running: &Running,
    prefix: &str,
    planes: u64,
    bodies: &[(&str, String)],
) -> Result<()> {
    let plane = format!("/clusters/{prefix}{OBJECT_NUMBER}/control-plane");
    let post = |path: &str, body: &[u8]| running.endpoint.request("POST", &format!("{plane}{path}"), body);
    let templates: Vec<_> = bodies
        .iter()
        .map(|(path, body)| Template::new(post(path, body.as_bytes())))
        .collect();
    let per_plane = templates.len() as u64;
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| {
        templates[(n % per_plane) as usize].write(n / per_plane, n, request);
    });
    let limit = Limit::Count(per_plane * planes);
    let loaded = bench.load(running, bench.sizes.connections, limit, source).await?;
    anyhow::ensure!(
        loaded.outcome.errors == 0,
        "could not load planes: {:?}",
        loaded.outcome.first_error
    );
    Ok(())
}

/// The same thirty in every plane, as platforms install them.
pub fn crd(n: u64) -> String {
    let field =
        |name: &str| format!(r#""{name}":{{"type":"string","description":"What {name} means.","maxLength":100}}"#);
    let fields = ["region", "size", "owner", "tier", "network"].map(field).join(",");
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"things{n}.bench.example.com"}},"spec":{{"group":"bench.example.com","scope":"Namespaced","names":{{"plural":"things{n}","singular":"thing{n}","kind":"Thing{n}","listKind":"Thing{n}List"}},"versions":[{{"name":"v1","served":true,"storage":true,"subresources":{{"status":{{}}}},"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{fields}}}}},"status":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}}}]}}}}"#
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_crd_is_json_with_its_own_name() {
        let parsed: serde_json::Value = serde_json::from_str(&super::crd(7)).unwrap();
        assert_eq!(parsed["metadata"]["name"], "things7.bench.example.com");
        assert_eq!(parsed["spec"]["names"]["kind"], "Thing7");
    }
}
