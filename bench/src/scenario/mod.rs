//! The scenarios. Each starts the server that it needs, so that none measures what another left behind.

pub mod custom;
pub mod definition;
pub mod fleet;
pub mod memory;
pub mod namespaces;
pub mod neighbour;
pub mod planes;
pub mod requests;
pub mod sharing;
pub mod start;
pub mod tenancy;
pub mod watch;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::load::{self, Limit, Outcome, Plan, Source};
use crate::process::processor_time;
use crate::report::Measurement;
use crate::subject::{Running, Subject};
use crate::wire::{Body, Connection};

/// How big and how long everything is.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Sizes {
    pub warm_up: Duration,
    pub measured: Duration,
    pub connections: usize,
    pub watchers: usize,
    pub idle_watches: usize,
    pub planes: u64,
    pub deleted: u64,
    pub loaded: u64,
    pub objects: u64,
    pub custom_objects: u64,
    pub definitions: usize,
    /// Planes that one process of controllers engages; projects and control planes that are made.
    pub engaged: u64,
    /// Planes that have the same definitions.
    pub sharing: u64,
    /// Planes with those definitions that are used before: enough to fill a server's caches.
    pub warm: u64,
    /// Planes whose namespaces are deleted.
    pub emptied: u64,
    pub starts: usize,
}

impl Sizes {
    pub const FULL: Self = Self {
        warm_up: Duration::from_secs(3),
        measured: Duration::from_secs(10),
        connections: 32,
        watchers: 1_000,
        idle_watches: 100_000,
        planes: 100_000,
        deleted: 10_000,
        loaded: 100,
        objects: 100_000,
        custom_objects: 10_000,
        definitions: 100,
        engaged: 10_000,
        sharing: 10_000,
        warm: 5_000,
        emptied: 1_000,
        starts: 7,
    };
    /// Small enough for a minute or two: shows that everything works, not how fast it is.
    pub const QUICK: Self = Self {
        warm_up: Duration::from_millis(500),
        measured: Duration::from_secs(2),
        watchers: 100,
        idle_watches: 1_000,
        planes: 2_000,
        deleted: 500,
        loaded: 5,
        objects: 5_000,
        custom_objects: 500,
        definitions: 10,
        engaged: 200,
        sharing: 20,
        warm: 10,
        emptied: 20,
        starts: 3,
        ..Self::FULL
    };
}

pub struct Bench {
    pub sizes: Sizes,
    pub scratch: PathBuf,
    /// Which scenarios were asked for; empty means all.
    pub only: Vec<String>,
}

/// Everything that can be asked for by name, with what it measures.
pub const SCENARIOS: &[(&str, &str)] = &[
    ("get", "GET of 1-KiB configmaps, a thousand in turn"),
    ("create", "durable create of 1-KiB configmaps"),
    ("update", "durable update (PUT) of 1-KiB configmaps, a thousand in turn"),
    ("list", "LIST of 10,000 1-KiB configmaps, four at a time"),
    ("log", "appends to a bare write-ahead log (the floor of durable writes)"),
    ("watch", "events delivered to 1,000 watchers"),
    ("idle-watches", "resident memory per open idle watch"),
    ("objects", "memory and disk for 100,000 stored 1-KiB objects"),
    (
        "planes",
        "planes created per second, and resident memory per idle plane",
    ),
    ("first-request", "first request to a plane that nobody has used"),
    ("restart", "from start to ready with all those planes stored"),
    ("delete-planes", "10,000 planes from the first DELETE to the last 404"),
    ("namespace", "a namespace of 1,000 objects from its DELETE to its 404"),
    (
        "namespaces",
        "10,000 namespaces of 1,000 planes from the first DELETE to the end of the last",
    ),
    (
        "fleet",
        "a process of controllers over 10,000 planes: engaging them, its memory, how soon it hears of a change, new credentials",
    ),
    (
        "projects",
        "10,000 projects made and ready, one after the other, and listed by their organization",
    ),
    ("project-density", "resident memory per project, of 100,000"),
    (
        "control-planes",
        "10,000 ControlPlanes until the last is ready, one alone, and what they cost at rest",
    ),
    (
        "loaded-planes",
        "resident memory per plane with 30 CRDs and 200 objects",
    ),
    ("custom-write", "create and update of custom resources with 160 fields"),
    ("custom-apply", "server-side apply of custom resources with 160 fields"),
    (
        "custom-watch",
        "events of 1-KiB custom resources delivered to 1,000 watchers",
    ),
    ("custom-memory", "memory for 10,000 stored 1-KiB custom resources"),
    ("definitions", "memory per definition, of 100 distinct ones in a plane"),
    (
        "shared-definitions",
        "memory per used plane and its first request, with the same 30 definitions in 1,000 planes",
    ),
    (
        "noisy-neighbour",
        "p99 of a quiet plane while another is driven by 200 clients and 300 watches, against its p99 alone",
    ),
    ("start", "from start to ready on an empty directory"),
    (
        "pair",
        "etcd and kube-apiserver, or what stands in for them, from start to ready as a test environment runs them",
    ),
];

/// Where a measurement stands in the report: with the scenario that made it.
pub fn rank(measurement: &str) -> Option<usize> {
    let scenario = match measurement {
        "objects-disk" => "objects",
        "plane-memory" => "planes",
        "custom-create" | "custom-update" => "custom-write",
        "shared-first-request" => "shared-definitions",
        "fleet-engage" | "fleet-memory" | "fleet-change" | "fleet-storm" | "fleet-rotation" => "fleet",
        "project" | "project-list" => "projects",
        "control-plane" | "control-planes-rest" => "control-planes",
        "idle-memory" => "start",
        own => own,
    };
    SCENARIOS.iter().position(|(name, _)| *name == scenario)
}

impl Bench {
    pub fn wants(&self, scenario: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == scenario)
    }

    fn wants_any(&self, scenarios: &[&str]) -> bool {
        scenarios.iter().any(|scenario| self.wants(scenario))
    }

    /// Runs every wanted scenario that makes sense for this server.
    pub async fn measure(&self, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
        if self.wants("log") && matches!(subject, Subject::Floor) {
            requests::log(self, report).await?;
        }
        if self.wants_any(&["get", "create", "update", "list"]) {
            requests::run(self, subject, report).await?;
        }
        if matches!(subject, Subject::Floor) {
            return Ok(());
        }
        if self.wants("watch") {
            watch::run(self, subject, report).await?;
        }
        if self.wants_any(&["custom-write", "custom-apply"]) {
            custom::run(self, subject, report).await?;
        }
        if self.wants("custom-watch") {
            watch::custom(self, subject, report).await?;
        }
        if matches!(subject, Subject::Foreign { .. }) {
            return Ok(()); // The rest needs to see the server's process or to start it.
        }
        if self.wants("idle-watches") {
            memory::idle_watches(self, subject, report).await?;
        }
        if self.wants("objects") {
            memory::objects(self, subject, report).await?;
        }
        if self.wants("custom-memory") {
            memory::custom_objects(self, subject, report).await?;
        }
        if self.wants("definitions") {
            memory::definitions(self, subject, report).await?;
        }
        if matches!(subject, Subject::Mica { .. }) {
            if self.wants_any(&["planes", "first-request", "restart", "delete-planes"]) {
                planes::run(self, subject, report).await?;
            }
            if self.wants_any(&["namespace", "namespaces"]) {
                namespaces::run(self, subject, report).await?;
            }
            if self.wants("fleet") {
                fleet::run(self, subject, report).await?;
            }
            if self.wants_any(&["projects", "project-density"]) {
                tenancy::projects(self, subject, report).await?;
            }
            if self.wants("control-planes") {
                tenancy::control_planes(self, subject, report).await?;
            }
            if self.wants("loaded-planes") {
                planes::loaded(self, subject, report).await?;
            }
            if self.wants("shared-definitions") {
                sharing::run(self, subject, report).await?;
            }
            if self.wants("noisy-neighbour") {
                neighbour::run(self, subject, report).await?;
            }
        }
        if self.wants("start") {
            start::run(self, subject, report).await?;
        }
        if self.wants("pair") {
            start::pair(self, subject, report).await?;
        }
        Ok(())
    }

    fn timed(&self) -> Limit {
        Limit::For {
            warm_up: self.sizes.warm_up,
            measured: self.sizes.measured,
        }
    }

    /// Runs a closed loop and measures what both sides used of the processors.
    async fn load(&self, running: &Running, connections: usize, limit: Limit, source: Source) -> Result<Loaded> {
        let (own, pids) = ([std::process::id()], running.pids());
        let clocks = || (processor_time(&pids), processor_time(&own));
        let (before, after) = (Cell::new(None), Cell::new(None));
        let plan = Plan {
            endpoint: running.endpoint.clone(),
            connections,
            limit,
            source,
        };
        let outcome = load::run(plan, || before.set(Some(clocks())), || after.set(Some(clocks()))).await?;
        let (before, after) = before
            .get()
            .zip(after.get())
            .context("a finished load has both edges")?;
        let server = (!pids.is_empty()).then(|| after.0.saturating_sub(before.0));
        Ok(Loaded {
            outcome,
            server,
            client: after.1.saturating_sub(before.1),
        })
    }
}

/// A load's outcome with the processor time that servers and generator used for it.
pub struct Loaded {
    pub outcome: Outcome,
    pub server: Option<Duration>,
    pub client: Duration,
}

impl Loaded {
    /// As a rate, with its latency.
    pub fn rate(&self, scenario: &'static str, subject: &Subject, unit: &'static str) -> Measurement {
        let operations = self.outcome.latency.len();
        let per_operation = |time: Duration| time.as_secs_f64() * 1e6 / operations.max(1) as f64;
        Measurement {
            operations,
            errors: self.outcome.errors,
            first_error: self.outcome.first_error.clone(),
            server_cpu_us: self.server.map(per_operation),
            client_cpu_us: Some(per_operation(self.client)),
            ..Measurement::new(scenario, subject.name(), self.outcome.rate(), unit)
        }
        .with_latency(&self.outcome.latency)
    }
}

/// A request with places for numbers: `@@@@@@@@` becomes the object's number, `################` the counter.
pub struct Template {
    bytes: Vec<u8>,
    objects: Vec<usize>,
    counters: Vec<usize>,
}

pub const OBJECT_NUMBER: &str = "@@@@@@@@";
pub const COUNTER: &str = "################";

impl Template {
    pub fn new(bytes: Vec<u8>) -> Self {
        let places = |marker: &str| memchr::memmem::find_iter(&bytes, marker).collect::<Vec<_>>();
        let (objects, counters) = (places(OBJECT_NUMBER), places(COUNTER));
        Self {
            bytes,
            objects,
            counters,
        }
    }

    pub fn write(&self, object: u64, counter: u64, request: &mut Vec<u8>) {
        request.clear();
        request.extend_from_slice(&self.bytes);
        for at in &self.objects {
            write_digits(object, &mut request[*at..*at + OBJECT_NUMBER.len()]);
        }
        for at in &self.counters {
            write_digits(counter, &mut request[*at..*at + COUNTER.len()]);
        }
    }
}

fn write_digits(mut number: u64, place: &mut [u8]) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// One request outside of what is measured; anything but success is an error.
pub async fn call(endpoint: &Endpoint, method: &str, path: &str, body: &[u8]) -> Result<Value> {
    let mut connection = Connection::open(endpoint).await?;
    let reply = connection
        .exchange(&endpoint.request(method, path, body), Body::Keep)
        .await?;
    let text = String::from_utf8_lossy(&reply.body);
    anyhow::ensure!(reply.status < 300, "{method} {path}: {} {text}", reply.status);
    serde_json::from_str(&text).with_context(|| format!("{method} {path}: no JSON in {text:?}"))
}

/// Makes a namespace with a name that nobody else uses.
pub async fn fresh_namespace(endpoint: &Endpoint) -> Result<String> {
    let nanos = jiff::Timestamp::now().as_nanosecond();
    let name = format!("bench-{nanos:x}");
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
    call(endpoint, "POST", "/api/v1/namespaces", body.as_bytes()).await?;
    Ok(name)
}

/// Leaves a server that is not ours as it was; ours are thrown away.
pub async fn remove(subject: &Subject, endpoint: &Endpoint, path: &str) {
    if let Subject::Foreign { name, .. } = subject
        && let Err(err) = call(endpoint, "DELETE", path, b"").await
    {
        eprintln!("  {name}: could not clean up: {err:#}");
    }
}

/// Removes a namespace and, where nothing else empties it, the configmaps in it.
pub async fn remove_namespace(subject: &Subject, endpoint: &Endpoint, namespace: &str) {
    remove(subject, endpoint, &requests::configmaps(namespace)).await;
    remove(subject, endpoint, &format!("/api/v1/namespaces/{namespace}")).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_has_a_place_in_the_report() {
        for measurement in [
            "objects-disk",
            "plane-memory",
            "idle-memory",
            "custom-create",
            "custom-update",
        ] {
            assert!(rank(measurement).is_some(), "{measurement}");
        }
        assert_eq!(rank("shared-first-request"), rank("shared-definitions"));
    }

    #[test]
    fn a_template_takes_both_numbers_at_every_place() {
        let template = Template::new(b"PUT /c-@@@@@@@@ c-@@@@@@@@ t=################".to_vec());
        let mut request = b"left over".to_vec();
        template.write(42, 1_234_567, &mut request);
        assert_eq!(request, b"PUT /c-00000042 c-00000042 t=0000000001234567");
    }
}
