//! Projects and control planes by the ten thousand: made over the API, and ready when their controllers say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::memory::MIB;
use super::{Bench, Limit, OBJECT_NUMBER, Subject, Template, call};
use crate::load::{Source, new_histogram};
use crate::process::{processor_time, settled};
use crate::report::Measurement;
use crate::subject::Running;
use crate::wire::{Body, Connection};

const ORGANIZATIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/organizations";
const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";
const CONTROL_PLANES: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplanes";
/// Between two looks at what is not ready yet.
const LOOK: Duration = Duration::from_millis(2);
/// Connections that look whether objects are ready.
const ASKERS: usize = 4;
/// Objects that are made one after the other, each when the last was ready.
const ALONE: u64 = 100;
/// How long a server is left alone before it is at rest, and how long it is looked at then.
const CALM: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(10);
/// How often the projects of an organization are listed.
const LISTS: u64 = 20;

pub async fn projects(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let organization = r#"{"apiVersion":"resourcemanager.miloapis.com/v1alpha1","kind":"Organization","metadata":{"name":"bench"},"spec":{"type":"Standard"}}"#;
    call(&running.endpoint, "POST", ORGANIZATIONS, organization.as_bytes()).await?;
    // Projects are made in the view of their organization, and seen in root.
    let made_in = format!("{ORGANIZATIONS}/bench/control-plane{PROJECTS}");
    let kind = Kind {
        one: "project",
        many: "projects",
        made_in: &made_in,
        collection: PROJECTS,
        body: |name| {
            format!(
                r#"{{"apiVersion":"resourcemanager.miloapis.com/v1alpha1","kind":"Project","metadata":{{"name":"{name}"}},"spec":{{"ownerRef":{{"kind":"Organization","name":"bench"}}}}}}"#
            )
        },
    };
    if bench.wants("projects") {
        kind.measure(bench, subject, &running, report).await?;
        list(subject, &running, &made_in, report).await?;
    }
    if bench.wants("project-density") {
        density(bench, subject, &running, &kind, report).await?;
    }
    running.stop().await
}

/// The first fifth also fills what is bounded (planes used lately, what the store read lately), so the others show what a
/// project costs. Both are reported.
async fn density(
    bench: &Bench,
    subject: &Subject,
    running: &Running,
    kind: &Kind<'_>,
    report: &mut impl FnMut(Measurement),
) -> Result<()> {
    let first = bench.sizes.planes / 5;
    let others = bench.sizes.planes - first;
    let each = |before: u64, after: u64, count: u64| after.saturating_sub(before) as f64 / count.max(1) as f64;
    let idle = settled(&running.pids()).await;
    kind.make(bench, running, "d", first).await?;
    let filled = settled(&running.pids()).await;
    kind.make(bench, running, "e", others).await?;
    let after = settled(&running.pids()).await;
    let detail = format!(
        "{others} projects after {first} others, {:.0} MiB in all",
        after as f64 / MIB
    );
    let memory = Measurement::new(
        "project-density",
        subject.name(),
        each(filled, after, others),
        "bytes/project",
    );
    report(Measurement { detail, ..memory });
    let detail = format!("the first {first}, with all that they fill");
    let first = each(idle, filled, first);
    let memory = Measurement::new("project-density-first", subject.name(), first, "bytes/project");
    report(Measurement { detail, ..memory });
    Ok(())
}

pub async fn control_planes(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let kind = Kind {
        one: "control-plane",
        many: "control-planes",
        made_in: CONTROL_PLANES,
        collection: CONTROL_PLANES,
        body: |name| {
            format!(
                r#"{{"apiVersion":"controlplane.kplane.dev/v1alpha1","kind":"ControlPlane","metadata":{{"name":"{name}"}},"spec":{{}}}}"#
            )
        },
    };
    kind.measure(bench, subject, &running, report).await?;
    // Whatever was put off is done after a while; then nothing is.
    tokio::time::sleep(CALM).await;
    let before = processor_time(&running.pids());
    tokio::time::sleep(REST).await;
    let used = processor_time(&running.pids()).saturating_sub(before);
    let each_second = used.as_secs_f64() * 1e3 / REST.as_secs_f64();
    report(Measurement::new(
        "control-planes-rest",
        subject.name(),
        each_second,
        "ms of processor/s",
    ));
    running.stop().await
}

/// What is made, and has a condition Ready.
struct Kind<'a> {
    /// What measurements of one alone and of many are called.
    one: &'static str,
    many: &'static str,
    made_in: &'a str,
    collection: &'a str,
    body: fn(&str) -> String,
}

impl Kind<'_> {
    async fn measure(
        &self,
        bench: &Bench,
        subject: &Subject,
        running: &Running,
        report: &mut impl FnMut(Measurement),
    ) -> Result<()> {
        self.make(bench, running, "warm", ALONE).await?;
        let mut latency = new_histogram();
        for number in 0..ALONE {
            let name = format!("alone{number:08}");
            let began = Instant::now();
            call(&running.endpoint, "POST", self.made_in, (self.body)(&name).as_bytes()).await?;
            self.ready(running, "alone", number..number + 1).await?;
            latency.saturating_record(began.elapsed().as_nanos() as u64);
        }
        let p99 = latency.value_at_quantile(0.99) as f64 / 1e6;
        let alone = Measurement {
            operations: ALONE,
            ..Measurement::new(self.one, subject.name(), p99, "ms (p99)")
        };
        report(alone.with_latency(&latency));
        let count = bench.sizes.engaged;
        let began = Instant::now();
        let asked = self.make(bench, running, "b", count).await?;
        let rate = count as f64 / began.elapsed().as_secs_f64();
        report(Measurement {
            detail: format!("{count}, all asked for after {:.1} s", asked.as_secs_f64()),
            operations: count,
            ..Measurement::new(self.many, subject.name(), rate, "ready/s")
        });
        Ok(())
    }

    /// Makes so many and waits until the last is ready. Says how long it took to ask for them.
    async fn make(&self, bench: &Bench, running: &Running, prefix: &str, count: u64) -> Result<Duration> {
        let body = (self.body)(&format!("{prefix}{OBJECT_NUMBER}"));
        let template = Template::new(running.endpoint.request("POST", self.made_in, body.as_bytes()));
        let source: Source = Arc::new(move |n, request: &mut Vec<u8>| template.write(n, n, request));
        let began = Instant::now();
        let loaded = bench
            .load(running, bench.sizes.connections, Limit::Count(count), source)
            .await?;
        anyhow::ensure!(
            loaded.outcome.errors == 0,
            "could not make {}: {:?}",
            self.many,
            loaded.outcome.first_error
        );
        let asked = began.elapsed();
        self.ready(running, prefix, 0..count).await?;
        Ok(asked)
    }

    /// Waits until each of the numbered objects is ready.
    async fn ready(&self, running: &Running, prefix: &str, numbers: std::ops::Range<u64>) -> Result<()> {
        let path = format!("{}/{prefix}{OBJECT_NUMBER}", self.collection);
        let template = Arc::new(Template::new(running.endpoint.request("GET", &path, b"")));
        let next = Arc::new(AtomicU64::new(numbers.start));
        let askers = (0..ASKERS.min((numbers.end - numbers.start) as usize)).map(|_| {
            let (template, next, endpoint) = (template.clone(), next.clone(), running.endpoint.clone());
            tokio::spawn(async move {
                let mut connection = Connection::open(&endpoint).await?;
                let mut request = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return anyhow::Ok(());
                    }
                    template.write(number, 0, &mut request);
                    while !is_ready(&connection.exchange(&request, Body::Keep).await?.body)? {
                        tokio::time::sleep(LOOK).await;
                    }
                }
            })
        });
        for asker in askers.collect::<Vec<_>>() {
            asker.await??;
        }
        Ok(())
    }
}

fn is_ready(object: &[u8]) -> Result<bool> {
    let object: Value = serde_json::from_slice(object).context("an object is JSON")?;
    let conditions = object["status"]["conditions"].as_array();
    Ok(conditions.is_some_and(|conditions| {
        let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        conditions.iter().any(ready)
    }))
}

/// The projects of the organization, at its own address.
async fn list(subject: &Subject, running: &Running, path: &str, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let request = running.endpoint.request("GET", path, b"");
    let mut connection = Connection::open(&running.endpoint).await?;
    let mut latency = new_histogram();
    let mut bytes = 0;
    for _ in 0..LISTS {
        let began = Instant::now();
        let reply = connection.exchange(&request, Body::Keep).await?;
        latency.saturating_record(began.elapsed().as_nanos() as u64);
        anyhow::ensure!(reply.status == 200, "the projects of an organization: {}", reply.status);
        bytes = reply.body.len();
    }
    let median = latency.value_at_quantile(0.5) as f64 / 1e6;
    let measurement = Measurement {
        detail: format!("{:.1} MiB", bytes as f64 / MIB),
        operations: LISTS,
        ..Measurement::new("project-list", subject.name(), median, "ms (p50)")
    };
    report(measurement.with_latency(&latency));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_a_true_condition_is_ready() {
        let object = |status: &str| {
            format!(r#"{{"status":{{"conditions":[{{"type":"Ready","status":"{status}"}}]}}}}"#).into_bytes()
        };
        assert!(super::is_ready(&object("True")).unwrap());
        assert!(!super::is_ready(&object("False")).unwrap());
        assert!(!super::is_ready(b"{}").unwrap());
        assert!(super::is_ready(b"oops").is_err());
    }
}
