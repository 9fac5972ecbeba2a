//! What is counted about audit, under upstream's names, and a word in the log about what was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mica_machinery::audit::Level;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::metrics::{Collect, Counter, Family, Label, Text};

/// How often the log speaks of lost events, for each place where they were to go.
const TELL_EVERY: Duration = Duration::from_secs(60);

pub struct Metrics {
    pub(super) events: Counter,
    levels: [Counter; 4],
    errors: Family<Counter>,
    dropped: Family<Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            events: Counter::default(),
            levels: Default::default(),
            errors: Family::new(
                "apiserver_audit_error_total",
                "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
                &[Label::Closed("plugin")],
            ),
            dropped: Family::new(
                "mica_audit_dropped_total",
                "Audit events that were lost, by where they were to go: log, webhook, or the webhooks of planes.",
                &[Label::Closed("sink")],
            ),
        }
    }
}

impl Metrics {
    pub(super) fn decided(&self, level: Level) {
        self.levels[level as usize].inc();
    }

    /// Counts what one place loses.
    pub(super) fn lost(self: &Arc<Self>, plugin: &'static str, sink: &'static str) -> Lost {
        Lost {
            metrics: self.clone(),
            plugin,
            sink,
            unheard: Arc::default(),
        }
    }

    /// The events that a place lost.
    pub fn dropped(&self, sink: &str) -> u64 {
        let mut count = 0;
        self.dropped.with(&[sink], |counter| count = counter.get());
        count
    }
}

impl Collect for Metrics {
    fn collect(&self, text: &mut Text) {
        const EVENTS: &str = "apiserver_audit_event_total";
        text.family(
            EVENTS,
            "Counter of audit events generated and sent to the audit backend.",
            "counter",
        );
        text.sample(EVENTS, &[], self.events.get() as f64);
        const LEVELS: &str = "apiserver_audit_level_total";
        text.family(
            LEVELS,
            "Counter of policy levels for audit events (1 per request).",
            "counter",
        );
        for level in Level::ALL {
            let count = self.levels[level as usize].get();
            text.sample(LEVELS, &[("level", level.as_str())], count as f64);
        }
        // Always none: no request is refused because its event could not be kept.
        const REJECTED: &str = "apiserver_audit_requests_rejected_total";
        text.family(
            REJECTED,
            "Counter of apiserver requests rejected due to an error in audit logging backend.",
            "counter",
        );
        text.sample(REJECTED, &[], 0.0);
        self.errors.collect(text);
        self.dropped.collect(text);
    }
}

/// What one place loses.
#[derive(Clone)]
pub(super) struct Lost {
    metrics: Arc<Metrics>,
    plugin: &'static str,
    sink: &'static str,
    unheard: Arc<Unheard>,
}

/// Losses that the log has not spoken of.
#[derive(Default)]
struct Unheard {
    count: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Lost {
    /// There was no room for an event.
    pub(super) fn no_room(&self) {
        self.count(1, &"audit buffer queue blocked");
    }

    /// Events could not be delivered.
    pub(super) fn undelivered(&self, events: usize, why: &dyn std::fmt::Display) {
        self.count(events as u64, why);
    }

    fn count(&self, events: u64, why: &dyn std::fmt::Display) {
        self.metrics.errors.with(&[self.plugin], |counter| counter.add(events));
        self.metrics.dropped.with(&[self.sink], |counter| counter.add(events));
        self.unheard.count.fetch_add(events, Ordering::Relaxed);
        self.tell(why);
    }

    /// Says that something is wrong where events go, though none is lost yet.
    pub(super) fn tell(&self, why: &dyn std::fmt::Display) {
        let now = Instant::now();
        let mut told = self.unheard.told.lock();
        if told.is_some_and(|at| now.duration_since(at) < TELL_EVERY) {
            return;
        }
        *told = Some(now);
        let lost = self.unheard.count.swap(0, Ordering::Relaxed);
        tracing::error!(sink = self.sink, lost, %why, "audit events are not delivered");
    }
}
