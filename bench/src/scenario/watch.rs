//! Events to many watchers: writers update objects as fast as the slowest watcher takes the events.
//!
//! The window between written and delivered is bounded, so that no server drops watchers for being slow: what is measured
//! is the fan-out, not the policy for laggards. Delay is from sending the write to the event's arrival, on a few watchers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::custom::MERGE_PATCH;
use super::definition::Custom;
use super::requests::{configmap, configmaps, fill, object_path};
use super::{Bench, COUNTER, Subject, Template, call, fresh_namespace, remove_namespace};
use crate::endpoint::Endpoint;
use crate::load::new_histogram;
use crate::process::processor_time;
use crate::report::Measurement;
use crate::subject::Running;
use crate::watching::{Look, Watches};
use crate::wire::{Body, Connection};

const WRITERS: usize = 2;
/// A multiple of the writers, so that each has its own.
const OBJECTS: u64 = 96;
/// Writes that the slowest watcher may be behind. kube-apiserver ends a watch that is some ten events behind; with a thousand
/// watchers even eight writes are thousands of events in flight, so the window does not limit the rate.
const WINDOW: u64 = 8;

struct Shared {
    began: Instant,
    delivered: Arc<Vec<AtomicU64>>,
    written: AtomicU64,
    stopped: AtomicBool,
}

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    let (collection, object) = (configmaps(&namespace), configmap());
    fill(bench, &running, &collection, &object, OBJECTS).await?;
    let put = running.endpoint.request("PUT", &object_path(&namespace), &object);
    let measured = fan_out(bench, &running, &collection, Template::new(put)).await;
    remove_namespace(subject, &running.endpoint, &namespace).await;
    report(measured?.measurement("watch", subject));
    running.stop().await
}

/// The same with custom resources of the same size, written by merge patches: see `custom`.
pub async fn custom(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    let small = Custom::small();
    small.install(&running.endpoint).await?;
    small.served(&running.endpoint, &namespace).await?;
    let collection = small.collection(&namespace);
    fill(bench, &running, &collection, &small.object, OBJECTS).await?;
    let path = small.object_path(&namespace);
    let patch = running
        .endpoint
        .typed_request("PATCH", &path, MERGE_PATCH, &small.object);
    let measured = fan_out(bench, &running, &collection, Template::new(patch)).await;
    small.clean_up(subject, &running.endpoint).await;
    remove_namespace(subject, &running.endpoint, &namespace).await;
    report(measured?.measurement("custom-watch", subject));
    running.stop().await
}

/// What came to all watchers while it was measured.
struct FanOut {
    watchers: usize,
    events: u64,
    elapsed: Duration,
    delays: Histogram<u64>,
    failure: Option<String>,
    server: Option<Duration>,
    client: Duration,
}

impl FanOut {
    fn measurement(self, scenario: &'static str, subject: &Subject) -> Measurement {
        let per_event = |time: Duration| time.as_secs_f64() * 1e6 / self.events.max(1) as f64;
        let rate = self.events as f64 / self.elapsed.as_secs_f64();
        Measurement {
            operations: self.events,
            errors: self.failure.iter().count() as u64,
            server_cpu_us: self.server.map(per_event),
            client_cpu_us: Some(per_event(self.client)),
            first_error: self.failure,
            detail: format!("{} watchers", self.watchers),
            ..Measurement::new(scenario, subject.name(), rate, "events/s")
        }
        .with_latency(&self.delays)
    }
}

/// Watches a collection and writes its objects, each write by `template`.
async fn fan_out(bench: &Bench, running: &Running, collection: &str, template: Template) -> Result<FanOut> {
    let began = Instant::now();
    let delays = Arc::new(Mutex::new(new_histogram()));
    let look = delays.clone();
    let look: Look = Arc::new(move |event: &[u8]| {
        if let Some(sent) = sent_at(event) {
            let delay = (began.elapsed().as_nanos() as u64).saturating_sub(sent);
            look.lock().expect("no reader panics").saturating_record(delay);
        }
    });
    let path = watch_path(&running.endpoint, collection).await?;
    let mut watches = Watches::open(&running.endpoint, &path, bench.sizes.watchers, Some(look)).await?;
    let delivered = watches.delivered.clone();
    let shared = Arc::new(Shared {
        began,
        delivered,
        written: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
    });
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
    delays.lock().expect("no reader panics").reset();
    let clocks = || (processor_time(&running.pids()), processor_time(&[std::process::id()]));
    let (before, clocks_before, measuring) = (shared.total(), clocks(), Instant::now());
    tokio::time::sleep(bench.sizes.measured).await;
    let (events, elapsed, clocks_after) = (shared.total() - before, measuring.elapsed(), clocks());
    let delays = delays.lock().expect("no reader panics").clone();
    let failure = watches.failure().await;

    shared.stopped.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await??;
    }
    Ok(FanOut {
        watchers: bench.sizes.watchers,
        events,
        elapsed,
        delays,
        failure,
        server: (!running.pids().is_empty()).then(|| clocks_after.0.saturating_sub(clocks_before.0)),
        client: clocks_after.1.saturating_sub(clocks_before.1),
    })
}

/// A watch of the collection from now on.
pub async fn watch_path(endpoint: &Endpoint, collection: &str) -> Result<String> {
    let list = call(endpoint, "GET", &format!("{collection}?limit=1"), b"").await?;
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .context("a list has a resourceVersion")?;
    Ok(format!(
        "{collection}?watch=1&resourceVersion={version}&timeoutSeconds=3600"
    ))
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

/// The time that the writer put into the field `t`.
fn sent_at(event: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(event, br#""t":""#)? + 5;
    std::str::from_utf8(event.get(at..at + COUNTER.len())?)
        .ok()?
        .parse()
        .ok()
}
