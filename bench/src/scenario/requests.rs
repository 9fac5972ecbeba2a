//! Single requests at full speed: GET, create, update, LIST; and the bare log.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;

use super::{Bench, COUNTER, Limit, OBJECT_NUMBER, Subject, Template, fresh_namespace, remove_namespace};
use crate::endpoint::Endpoint;
use crate::floor::log::WriteAheadLog;
use crate::load::{Source, new_histogram};
use crate::report::Measurement;
use crate::subject::Running;

/// How many objects the listed namespace holds.
pub const LISTED: u64 = 10_000;
/// How many objects GET and update take in turn: enough that neighbours do not meet.
pub const IN_TURN: u64 = 1_000;
const LISTS_AT_ONCE: usize = 4;
/// The size of the JSON that is sent; servers add metadata to it.
const OBJECT_SIZE: usize = 1024;

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let small = prepare(bench, subject, &running, IN_TURN, &["get", "update"]).await?;
    let connections = bench.sizes.connections;
    if bench.wants("get") {
        let get = Template::new(running.endpoint.request("GET", &object_path(&small), b""));
        let source: Source = Arc::new(move |n, request: &mut Vec<u8>| get.write(n % IN_TURN, n, request));
        let loaded = bench.load(&running, connections, bench.timed(), source).await?;
        report(loaded.rate("get", subject, "requests/s"));
    }
    if bench.wants("update") {
        let put = Template::new(running.endpoint.request("PUT", &object_path(&small), &configmap()));
        let source: Source = Arc::new(move |n, request: &mut Vec<u8>| put.write(n % IN_TURN, n, request));
        let loaded = bench.load(&running, connections, bench.timed(), source).await?;
        report(loaded.rate("update", subject, "writes/s"));
    }
    if bench.wants("create") {
        let namespace = namespace_of(subject, &running.endpoint).await?;
        let source = creates(&running.endpoint, &configmaps(&namespace), &configmap());
        let loaded = bench.load(&running, connections, bench.timed(), source).await?;
        report(loaded.rate("create", subject, "writes/s"));
        remove_namespace(subject, &running.endpoint, &namespace).await;
    }
    if bench.wants("list") {
        let big = prepare(bench, subject, &running, LISTED, &["list"]).await?;
        let list = running.endpoint.request("GET", &configmaps(&big), b"");
        let source: Source = Arc::new(move |_, request: &mut Vec<u8>| request.extend_from_slice(&list));
        let loaded = bench.load(&running, LISTS_AT_ONCE, bench.timed(), source).await?;
        let per_list = loaded.outcome.bytes as f64 / loaded.outcome.latency.len().max(1) as f64 / 1e6;
        let detail = format!("{per_list:.1} MB each");
        report(Measurement {
            detail,
            ..loaded.rate("list", subject, "lists/s")
        });
        remove_namespace(subject, &running.endpoint, &big).await;
    }
    remove_namespace(subject, &running.endpoint, &small).await;
    running.stop().await
}

/// The bare log in this process: as many writers as connections, each waiting for the disk.
pub async fn log(bench: &Bench, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let directory = tempfile::tempdir_in(&bench.scratch)?;
    let log = WriteAheadLog::create(&directory.path().join("wal"))?;
    let record = Bytes::from(vec![b'x'; OBJECT_SIZE]);
    let began = Instant::now();
    let deadline = began + bench.sizes.measured;
    let writers = (0..bench.sizes.connections).map(|_| {
        let (log, record) = (log.clone(), record.clone());
        tokio::spawn(async move {
            let mut latency = new_histogram();
            while Instant::now() < deadline {
                let sent = Instant::now();
                log.append(record.clone()).await?;
                latency.saturating_record(sent.elapsed().as_nanos() as u64);
            }
            anyhow::Ok(latency)
        })
    });
    let mut latency = new_histogram();
    for writer in writers.collect::<Vec<_>>() {
        latency.add(writer.await??)?;
    }
    let rate = latency.len() as f64 / began.elapsed().as_secs_f64();
    let measurement = Measurement::new("log", Subject::Floor.name(), rate, "writes/s");
    report(
        Measurement {
            operations: latency.len(),
            ..measurement
        }
        .with_latency(&latency),
    );
    Ok(())
}

/// Makes a namespace with so many objects, if one of these scenarios is wanted.
async fn prepare(bench: &Bench, subject: &Subject, running: &Running, n: u64, of: &[&str]) -> Result<String> {
    let namespace = namespace_of(subject, &running.endpoint).await?;
    if of.iter().any(|scenario| bench.wants(scenario)) && !matches!(subject, Subject::Floor) {
        fill(bench, running, &configmaps(&namespace), &configmap(), n).await?;
    }
    Ok(namespace)
}

/// Creates objects 0 to n-1 in a collection, all of one [`Template`].
pub async fn fill(bench: &Bench, running: &Running, collection: &str, object: &[u8], n: u64) -> Result<()> {
    let source = creates(&running.endpoint, collection, object);
    let loaded = bench
        .load(running, bench.sizes.connections, Limit::Count(n), source)
        .await?;
    anyhow::ensure!(
        loaded.outcome.errors == 0,
        "could not fill: {:?}",
        loaded.outcome.first_error
    );
    Ok(())
}

/// The floor knows no namespaces, and takes every name.
async fn namespace_of(subject: &Subject, endpoint: &Endpoint) -> Result<String> {
    match subject {
        Subject::Floor => Ok("bench".to_owned()),
        _ => fresh_namespace(endpoint).await,
    }
}

fn creates(endpoint: &Endpoint, collection: &str, object: &[u8]) -> Source {
    let post = Template::new(endpoint.request("POST", collection, object));
    Arc::new(move |n, request: &mut Vec<u8>| post.write(n, n, request))
}

pub fn configmaps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

pub fn object_path(namespace: &str) -> String {
    format!("{}/c-{OBJECT_NUMBER}", configmaps(namespace))
}

/// The JSON of a configmap of exactly [`OBJECT_SIZE`] bytes, with a counter in `data.t`.
pub fn configmap() -> Vec<u8> {
    let head = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c-{OBJECT_NUMBER}","labels":{{"app":"bench"}}}},"data":{{"t":"{COUNTER}","v":""#
    );
    padded(head.into_bytes(), br#""}}"#)
}

/// Text between `head` and `tail` that makes the whole [`OBJECT_SIZE`] bytes long and does not compress away.
pub fn padded(head: Vec<u8>, tail: &[u8]) -> Vec<u8> {
    let mut body = head;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while body.len() + tail.len() < OBJECT_SIZE {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        body.push(b"abcdefghijklmnopqrstuvwxyz012345"[(state >> 59) as usize]);
    }
    body.extend_from_slice(tail);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configmap_is_json_of_the_size_that_we_claim() {
        let body = configmap();
        assert_eq!(body.len(), OBJECT_SIZE);
        let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(parsed["data"]["t"], COUNTER);
    }
}
