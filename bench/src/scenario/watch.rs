//! Events to many watchers: writers update objects as fast as the slowest watcher takes the events.
//!
//! The window between written and delivered is bounded, so that no server drops watchers for being slow: what is measured
//! is the fan-out, not the policy for laggards. Delay is from sending the write to the event's arrival, on a few watchers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::requests::{configmap, fill, object_path};
use super::{Bench, COUNTER, Subject, Template, call, fresh_namespace};
use crate::endpoint::Endpoint;
use crate::load::new_histogram;
use crate::process::processor_time;
use crate::report::Measurement;
use crate::watching;
use crate::wire::{Body, Connection};

const WRITERS: usize = 2;
/// A multiple of the writers, so that each has its own.
const OBJECTS: u64 = 96;
/// Writes that the slowest watcher may be behind. kube-apiserver ends a watch that is some ten events behind; with a thousand
/// watchers even eight writes are thousands of events in flight, so the window does not limit the rate.
const WINDOW: u64 = 8;
/// One watcher in so many looks into its events.
const SAMPLED: usize = 100;

struct Shared {
    began: Instant,
    delivered: Arc<Vec<AtomicU64>>,
    written: AtomicU64,
    stopped: AtomicBool,
    latency: Mutex<Histogram<u64>>,
}

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    fill(bench, &running, &namespace, OBJECTS).await?;
    let watchers = bench.sizes.watchers;
    let path = watch_path(&running.endpoint, &namespace).await?;
    let shared = Arc::new(Shared {
        began: Instant::now(),
        delivered: Arc::new((0..watchers).map(|_| AtomicU64::new(0)).collect()),
        written: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        latency: Mutex::new(new_histogram()),
    });
    let mut readers = Vec::new();
    let watches = watching::open(&running.endpoint, &path, watchers).await?;
    for (index, watch) in watches.answers.into_iter().enumerate() {
        readers.push(tokio::spawn(read(shared.clone(), index, watch)));
    }
    let template = Template::new(running.endpoint.request("PUT", &object_path(&namespace), &configmap()));
    let template = Arc::new(template);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            tokio::spawn(write(
                shared.clone(),
                running.endpoint.clone(),
                template.clone(),
                writer as u64,
            ))
        })
        .collect();

    tokio::time::sleep(bench.sizes.warm_up).await;
    shared.latency.lock().expect("no reader panics").reset();
    let clocks = || (processor_time(&running.pids()), processor_time(&[std::process::id()]));
    let (before, clocks_before, began) = (shared.total(), clocks(), Instant::now());
    tokio::time::sleep(bench.sizes.measured).await;
    let (events, elapsed, clocks_after) = (shared.total() - before, began.elapsed(), clocks());
    let latency = shared.latency.lock().expect("no reader panics").clone();

    let (mut ended, mut why) = (0, None);
    for reader in readers {
        if reader.is_finished() {
            ended += 1;
            why.get_or_insert(reader.await?);
        } else {
            reader.abort();
        }
    }
    shared.stopped.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await??;
    }
    drop(watches.connections);
    let per_event = |time: Duration| time.as_secs_f64() * 1e6 / events.max(1) as f64;
    let measurement = Measurement {
        operations: events,
        errors: ended,
        first_error: why,
        server_cpu_us: (!running.pids().is_empty()).then(|| per_event(clocks_after.0.saturating_sub(clocks_before.0))),
        client_cpu_us: Some(per_event(clocks_after.1.saturating_sub(clocks_before.1))),
        detail: format!("{watchers} watchers"),
        ..Measurement::new(
            "watch",
            subject.name(),
            events as f64 / elapsed.as_secs_f64(),
            "events/s",
        )
    };
    report(measurement.with_latency(&latency));
    running.stop().await
}

/// A watch of the namespace from now on.
pub async fn watch_path(endpoint: &Endpoint, namespace: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let list = call(endpoint, "GET", &format!("{path}?limit=1"), b"").await?;
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .context("a list has a resourceVersion")?;
    Ok(format!("{path}?watch=1&resourceVersion={version}&timeoutSeconds=3600"))
}

impl Shared {
    fn total(&self) -> u64 {
        self.delivered.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn slowest(&self) -> u64 {
        self.delivered
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .min()
            .unwrap_or_default()
    }
}

async fn write(shared: Arc<Shared>, endpoint: Endpoint, template: Arc<Template>, writer: u64) -> Result<()> {
    let mut connection = Connection::open(&endpoint).await?;
    let mut request = Vec::new();
    let mut number = writer;
    while !shared.stopped.load(Ordering::Relaxed) {
        if shared.written.load(Ordering::Relaxed) >= shared.slowest() + WINDOW {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        // Writers step over each other's objects, so that no write waits for another.
        template.write(number % OBJECTS, shared.began.elapsed().as_nanos() as u64, &mut request);
        let reply = connection.exchange(&request, Body::Skip).await?;
        anyhow::ensure!(
            reply.status == 200,
            "{}: {}",
            reply.status,
            String::from_utf8_lossy(&reply.body)
        );
        shared.written.fetch_add(1, Ordering::Relaxed);
        number += WRITERS as u64;
    }
    Ok(())
}

async fn read(shared: Arc<Shared>, index: usize, watch: hyper::Response<hyper::body::Incoming>) -> String {
    let counts = shared.delivered.clone();
    if !index.is_multiple_of(SAMPLED) {
        return watching::count(watch, counts, index, |_| ()).await;
    }
    let mut line = Vec::new();
    let see = move |data: &[u8]| {
        let mut rest = data;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            line.extend_from_slice(&rest[..end]);
            if let Some(sent) = sent_at(&line) {
                let delay = (shared.began.elapsed().as_nanos() as u64).saturating_sub(sent);
                shared
                    .latency
                    .lock()
                    .expect("no reader panics")
                    .saturating_record(delay);
            }
            line.clear();
            rest = &rest[end + 1..];
        }
        line.extend_from_slice(rest);
    };
    watching::count(watch, counts, index, see).await
}

/// The time that the writer put into `data.t`.
fn sent_at(event: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(event, br#""t":""#)? + 5;
    std::str::from_utf8(event.get(at..at + COUNTER.len())?)
        .ok()?
        .parse()
        .ok()
}
