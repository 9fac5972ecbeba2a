//! Namespaces that controllers empty: one with many objects, and many in many planes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::planes::{create, post_all};
use super::requests::configmap;
use super::{Bench, Limit, OBJECT_NUMBER, Subject, Template, call};
use crate::load::Source;
use crate::report::Measurement;
use crate::subject::Running;
use crate::wire::{Body, Connection};

/// Objects of the one namespace.
const OBJECTS: u64 = 1_000;
/// Namespaces of each of many planes.
const EACH: u64 = 10;
const NAMESPACES: &str = "/api/v1/namespaces";
/// All namespaces of all planes, but those that planes are born with.
const ALL: &str = "/clusters/*/control-plane/api/v1/namespaces?limit=1";
const LOOK: Duration = Duration::from_millis(5);

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    if bench.wants("namespace") {
        one(bench, subject, &running, report).await?;
    }
    if bench.wants("namespaces") {
        many(bench, subject, &running, report).await?;
    }
    running.stop().await
}

fn namespace(name: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#)
}

async fn one(bench: &Bench, subject: &Subject, running: &Running, report: &mut impl FnMut(Measurement)) -> Result<()> {
    create(bench, running, "n", 1).await?;
    let plane = "/clusters/n00000000/control-plane";
    let endpoint = &running.endpoint;
    call(
        endpoint,
        "POST",
        &format!("{plane}{NAMESPACES}"),
        namespace("full").as_bytes(),
    )
    .await?;
    let path = format!("{plane}{NAMESPACES}/full");
    let template = Template::new(endpoint.request("POST", &format!("{path}/configmaps"), &configmap()));
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| template.write(n, n, request));
    bench
        .load(running, bench.sizes.connections, Limit::Count(OBJECTS), source)
        .await?;
    let began = Instant::now();
    call(endpoint, "DELETE", &path, b"").await?;
    let request = endpoint.request("GET", &path, b"");
    let mut connection = Connection::open(endpoint).await?;
    while connection.exchange(&request, Body::Skip).await?.status != 404 {
        tokio::time::sleep(LOOK).await;
    }
    let took = began.elapsed().as_secs_f64() * 1e3;
    report(Measurement {
        detail: format!("{OBJECTS} objects of 1 KiB"),
        ..Measurement::new("namespace", subject.name(), took, "ms")
    });
    Ok(())
}

async fn many(bench: &Bench, subject: &Subject, running: &Running, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let planes = bench.sizes.emptied;
    create(bench, running, "m", planes).await?;
    let names: Vec<String> = (0..EACH).map(|n| format!("ns-{n}")).collect();
    let bodies: Vec<_> = names.iter().map(|name| (NAMESPACES, namespace(name))).collect();
    post_all(bench, running, "m", planes, &bodies).await?;
    let plane = format!("/clusters/m{OBJECT_NUMBER}/control-plane{NAMESPACES}");
    let delete = |name: &String| Template::new(running.endpoint.request("DELETE", &format!("{plane}/{name}"), b""));
    let templates: Vec<Template> = names.iter().map(delete).collect();
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| {
        templates[(n % EACH) as usize].write(n / EACH, n, request);
    });
    let count = planes * EACH;
    let began = Instant::now();
    let loaded = bench
        .load(running, bench.sizes.connections, Limit::Count(count), source)
        .await?;
    anyhow::ensure!(
        loaded.outcome.errors == 0,
        "could not delete namespaces: {:?}",
        loaded.outcome.first_error
    );
    let asked = began.elapsed();
    while !call(&running.endpoint, "GET", ALL, b"").await?["items"]
        .as_array()
        .is_some_and(Vec::is_empty)
    {
        tokio::time::sleep(LOOK).await;
    }
    let took = began.elapsed().as_secs_f64() * 1e3;
    let detail = format!(
        "{count} namespaces in {planes} planes, all asked for after {:.1} s",
        asked.as_secs_f64()
    );
    report(Measurement {
        detail,
        operations: count,
        ..Measurement::new("namespaces", subject.name(), took, "ms")
    });
    Ok(())
}
