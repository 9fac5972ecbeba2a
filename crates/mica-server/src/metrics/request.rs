//! What is counted about requests, under upstream's names.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use compact_str::CompactString;
use http::{Method, StatusCode};

use super::family::Label::{Closed, Open};
use super::family::hash;
use super::{
    Collect, Counter, Family, Gauge, Histogram, Label, Registry, Series, SpreadGauge, Text, exponential_buckets,
};
use crate::http::{Lasting, Observer};

/// How a request is counted. Only names that exist in discovery belong here: a path that nobody serves has empty labels.
#[derive(Clone, Debug, Default)]
pub struct RequestLabels {
    /// In capitals as upstream counts them: GET, LIST, WATCH, POST, PUT, PATCH, APPLY, DELETE, DELETECOLLECTION, CONNECT.
    pub verb: &'static str,
    /// `All` or empty.
    pub dry_run: &'static str,
    pub group: CompactString,
    pub version: CompactString,
    pub resource: CompactString,
    pub subresource: CompactString,
    /// `resource`, `namespace`, `cluster` or empty.
    pub scope: &'static str,
}

const COMPONENT: &str = "apiserver";

const TOTAL: &[Label] = &[
    Closed("verb"),
    Closed("dry_run"),
    Open("group"),
    Open("version"),
    Open("resource"),
    Open("subresource"),
    Closed("scope"),
    Closed("component"),
    Closed("code"),
];
const DURATION: &[Label] = &[
    Closed("verb"),
    Closed("dry_run"),
    Open("group"),
    Open("version"),
    Open("resource"),
    Open("subresource"),
    Closed("scope"),
    Closed("component"),
];
const PLAIN: &[Label] = &[
    Closed("verb"),
    Open("group"),
    Open("version"),
    Open("resource"),
    Open("subresource"),
    Closed("scope"),
    Closed("component"),
];
const TERMINATIONS: &[Label] = &[
    Closed("verb"),
    Open("group"),
    Open("version"),
    Open("resource"),
    Open("subresource"),
    Closed("scope"),
    Closed("component"),
    Closed("code"),
];

/// Upstream's, chosen for its latency objectives.
const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
static SIZES: [f64; 7] = exponential_buckets(1000.0, 10.0);

pub struct HttpMetrics {
    total: Family<Counter>,
    duration: Family<Histogram>,
    sizes: Family<Histogram>,
    long_running: Family<Gauge>,
    terminations: Family<Counter>,
    reading: SpreadGauge,
    mutating: SpreadGauge,
    /// What finished requests change, found by one hash of their labels.
    counted: papaya::HashMap<u64, Arc<Counted>>,
    handshake_errors: Family<Counter>,
}

impl HttpMetrics {
    pub fn new(registry: &Registry) -> Arc<Self> {
        let metrics = Arc::new(Self {
            total: Family::new(
                "apiserver_request_total",
                "Counter of requests by verb, dry run, group, version, resource, scope, component and response code.",
                TOTAL,
            ),
            duration: Family::histogram(
                "apiserver_request_duration_seconds",
                "Time to answer, in seconds, by verb, dry run, group, version, resource, subresource, scope and component.",
                DURATION,
                SECONDS,
            ),
            sizes: Family::histogram(
                "apiserver_response_sizes",
                "Size of answers, in bytes, by verb, group, version, resource, subresource, scope and component.",
                PLAIN,
                &SIZES,
            ),
            long_running: Family::new(
                "apiserver_longrunning_requests",
                "Open long-running requests by verb, group, version, resource, scope and component.",
                PLAIN,
            ),
            terminations: Family::new(
                "apiserver_request_terminations_total",
                "Requests that the server ended in self-defence.",
                TERMINATIONS,
            ),
            reading: SpreadGauge::default(),
            mutating: SpreadGauge::default(),
            counted: papaya::HashMap::new(),
            handshake_errors: Family::new(
                "apiserver_tls_handshake_errors_total",
                "Connections dropped because the TLS handshake failed.",
                &[],
            ),
        });
        metrics.handshake_errors.with(&[], |counter| counter.add(0));
        registry.register(metrics)
    }

    /// A request begins. It is in flight until the result, or what comes of it, is dropped.
    pub fn started(self: &Arc<Self>, method: &Method, at: Instant) -> Pending<'_> {
        let kind = match *method {
            Method::GET | Method::HEAD | Method::OPTIONS => RequestKind::ReadOnly,
            _ => RequestKind::Mutating,
        };
        Pending {
            guard: InFlight::new(&**self, kind),
            metrics: self,
            verb: verb_of(method),
            started: at,
        }
    }

    fn gauge(&self, kind: RequestKind) -> &SpreadGauge {
        match kind {
            RequestKind::ReadOnly => &self.reading,
            RequestKind::Mutating => &self.mutating,
        }
    }

    /// A request with these labels is over.
    fn count(&self, l: &RequestLabels, code: StatusCode, started: Instant, bytes: u64) {
        let values = [
            l.verb,
            l.dry_run,
            &l.group,
            &l.version,
            &l.resource,
            &l.subresource,
            l.scope,
            COMPONENT,
            code.as_str(),
        ];
        let key = hash(&values);
        let counted = self.counted.pin();
        if let Some(found) = counted.get(&key) {
            return found.count(started, bytes);
        }
        let sized = matches!(l.verb, "GET" | "LIST") && !l.resource.is_empty();
        let new = Arc::new(Counted {
            total: self.total.series(&values),
            duration: self.duration.series(&values[..8]),
            sizes: sized.then(|| self.sizes.series(&plain(l))),
        });
        new.count(started, bytes);
        if counted.len() < MAX_COUNTED {
            counted.insert(key, new);
        }
    }

    /// A request was given up at its deadline.
    pub fn timed_out(&self, labels: Option<&RequestLabels>) {
        if let Some(l) = labels {
            let values = [
                l.verb,
                &l.group,
                &l.version,
                &l.resource,
                &l.subresource,
                l.scope,
                COMPONENT,
                "504",
            ];
            self.terminations.with(&values, Counter::inc);
        }
    }

    pub fn handshake_failed(&self) {
        self.handshake_errors.with(&[], Counter::inc);
    }
}

/// Combinations of labels that are found by one look. Beyond it each number is looked for by itself.
const MAX_COUNTED: usize = 4096;

/// What a finished request changes.
struct Counted {
    total: Arc<Series<Counter>>,
    duration: Arc<Series<Histogram>>,
    sizes: Option<Arc<Series<Histogram>>>,
}

impl Counted {
    fn count(&self, started: Instant, bytes: u64) {
        self.total.value.inc();
        self.duration.value.observe(started.elapsed().as_secs_f64());
        if let Some(sizes) = &self.sizes {
            sizes.value.observe(bytes as f64);
        }
    }
}

fn verb_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

impl Collect for HttpMetrics {
    fn collect(&self, text: &mut Text) {
        self.total.collect(text);
        self.duration.collect(text);
        self.sizes.collect(text);
        self.long_running.collect(text);
        self.terminations.collect(text);
        let name = "apiserver_current_inflight_requests";
        text.family(
            name,
            "Requests being answered, long-running ones aside, by kind.",
            "gauge",
        );
        for (kind, gauge) in [("mutating", &self.mutating), ("readOnly", &self.reading)] {
            text.sample(name, &[("request_kind", kind)], gauge.get() as f64);
        }
        self.handshake_errors.collect(text);
    }
}

#[derive(Clone, Copy)]
enum RequestKind {
    ReadOnly,
    Mutating,
}

/// Counts a request as being answered while it lives.
struct InFlight<M: Deref<Target = HttpMetrics>> {
    metrics: M,
    kind: RequestKind,
}

impl<M: Deref<Target = HttpMetrics>> InFlight<M> {
    fn new(metrics: M, kind: RequestKind) -> Self {
        metrics.gauge(kind).add(1);
        Self { metrics, kind }
    }
}

impl<M: Deref<Target = HttpMetrics>> Drop for InFlight<M> {
    fn drop(&mut self) {
        self.metrics.gauge(self.kind).add(-1);
    }
}

/// A request that has no answer yet. Dropped without one, it was the client that went away: not counted.
pub struct Pending<'a> {
    guard: InFlight<&'a HttpMetrics>,
    metrics: &'a Arc<HttpMetrics>,
    verb: &'static str,
    started: Instant,
}

impl Pending<'_> {
    /// The whole answer is in hand: `bytes` of body.
    pub fn finish(self, labels: Option<&RequestLabels>, code: StatusCode, bytes: u64) {
        match labels {
            Some(labels) => self.metrics.count(labels, code, self.started, bytes),
            None => self.metrics.count(&self.unknown(), code, self.started, bytes),
        }
    }

    /// The head of the answer is known.
    pub fn answered(self, labels: Option<&RequestLabels>, code: StatusCode, lasting: Lasting) -> Answered {
        let labels = labels.cloned().unwrap_or_else(|| self.unknown());
        let held = match lasting {
            Lasting::Finite => Held::InFlight {
                _guard: InFlight::new(self.metrics.clone(), self.guard.kind),
            },
            Lasting::LongRunning => {
                self.metrics.long_running.with(&plain(&labels), Gauge::inc);
                Held::LongRunning
            }
        };
        Answered {
            metrics: self.metrics.clone(),
            labels,
            code,
            started: self.started,
            held,
        }
    }

    /// Nothing but the method is known of a request that nobody understood.
    fn unknown(&self) -> RequestLabels {
        RequestLabels {
            verb: self.verb,
            ..RequestLabels::default()
        }
    }
}

enum Held {
    InFlight { _guard: InFlight<Arc<HttpMetrics>> },
    LongRunning,
}

/// A request whose answer is being sent.
pub struct Answered {
    metrics: Arc<HttpMetrics>,
    labels: RequestLabels,
    code: StatusCode,
    started: Instant,
    held: Held,
}

impl Answered {
    /// The answer is out, or given up, after `bytes` of body.
    pub fn finish(self, bytes: u64) {
        if let Held::LongRunning = self.held {
            self.metrics.long_running.with(&plain(&self.labels), Gauge::dec);
        }
        self.metrics.count(&self.labels, self.code, self.started, bytes);
    }
}

impl Observer for Answered {
    fn ended(self: Box<Self>, sent: u64) {
        self.finish(sent);
    }
}

fn plain(l: &RequestLabels) -> [&str; 7] {
    [
        l.verb,
        &l.group,
        &l.version,
        &l.resource,
        &l.subresource,
        l.scope,
        COMPONENT,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(verb: &'static str) -> RequestLabels {
        RequestLabels {
            verb,
            version: "v1".into(),
            resource: "configmaps".into(),
            scope: "namespace",
            ..RequestLabels::default()
        }
    }

    #[test]
    fn a_request_is_in_flight_then_counted_once() {
        let registry = Registry::default();
        let metrics = HttpMetrics::new(&registry);
        let pending = metrics.started(&Method::GET, Instant::now());
        assert!(
            registry
                .encode()
                .contains("apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1\n")
        );
        pending
            .answered(Some(&labels("LIST")), StatusCode::OK, Lasting::Finite)
            .finish(5000);
        let text = registry.encode();
        assert!(text.contains("apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0\n"));
        assert!(text.contains(
            "apiserver_request_total{verb=\"LIST\",dry_run=\"\",group=\"\",version=\"v1\",resource=\"configmaps\",\
             subresource=\"\",scope=\"namespace\",component=\"apiserver\",code=\"200\"} 1\n"
        ));
        assert!(text.contains("scope=\"namespace\",component=\"apiserver\",le=\"10000\"} 1\n"));
    }

    #[test]
    fn a_watch_is_long_running_until_it_ends() {
        let registry = Registry::default();
        let metrics = HttpMetrics::new(&registry);
        let watch = metrics.started(&Method::GET, Instant::now()).answered(
            Some(&labels("WATCH")),
            StatusCode::OK,
            Lasting::LongRunning,
        );
        let gauge = |text: &str| {
            text.lines()
                .find(|line| line.starts_with("apiserver_longrunning_requests{"))
                .map(|line| line.ends_with(" 1"))
        };
        assert_eq!(gauge(&registry.encode()), Some(true));
        watch.finish(0);
        assert_eq!(gauge(&registry.encode()), Some(false));
    }
}
