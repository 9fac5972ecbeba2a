//! The numbers of one controller: its queue, its workers, and how its reconciles went.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Labels, family};

/// How a reconcile went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReconcileResult {
    Success,
    /// It is to be looked at again after a time that the reconciler said.
    RequeueAfter,
    Error,
    /// It failed, and trying again would not help.
    TerminalError,
    Panic,
    Timeout,
}

/// Those of controller-runtime.
const RECONCILE_SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

fn reconcile_seconds() -> Histogram {
    Histogram::new(RECONCILE_SECONDS.iter().copied())
}

/// Those of controller-runtime: from 10 ns, ten times as much each.
fn queue_seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 12))
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

pub(super) struct ControllerFamilies {
    reconciles: Family<Labels, Counter>,
    errors: Family<Labels, Counter>,
    terminal: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    timeouts: Family<Labels, Counter>,
    seconds: Histograms,
    active: Family<Labels, Gauge>,
    most: Family<Labels, Gauge>,
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    waited: Histograms,
    worked: Histograms,
}

impl ControllerFamilies {
    pub(super) fn register(r: &mut Registry) -> Self {
        let histograms = |r: &mut Registry, name: &str, help: &str, make: fn() -> Histogram| {
            let family = Histograms::new_with_constructor(make);
            r.register(name, help, family.clone());
            family
        };
        Self {
            reconciles: family(
                r,
                "controller_runtime_reconcile",
                "Total number of reconciliations per controller",
            ),
            errors: family(
                r,
                "controller_runtime_reconcile_errors",
                "Total number of reconciliation errors per controller",
            ),
            terminal: family(
                r,
                "controller_runtime_terminal_reconcile_errors",
                "Total number of terminal reconciliation errors per controller",
            ),
            panics: family(
                r,
                "controller_runtime_reconcile_panics",
                "Total number of reconciliation panics per controller",
            ),
            timeouts: family(
                r,
                "controller_runtime_reconcile_timeouts",
                "Total number of reconciliation timeouts per controller",
            ),
            seconds: histograms(
                r,
                "controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller",
                reconcile_seconds,
            ),
            active: family(
                r,
                "controller_runtime_active_workers",
                "Number of currently used workers per controller",
            ),
            most: family(
                r,
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller",
            ),
            adds: family(r, "workqueue_adds", "Total number of adds handled by workqueue"),
            retries: family(r, "workqueue_retries", "Total number of retries handled by workqueue"),
            waited: histograms(
                r,
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
                queue_seconds,
            ),
            worked: histograms(
                r,
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes",
                queue_seconds,
            ),
        }
    }

    pub(super) fn of(&self, name: &str) -> ControllerMetrics {
        let controller = vec![("controller", name.to_owned())];
        let queue = vec![("controller", name.to_owned()), ("name", name.to_owned())];
        let result = |result: &str| {
            let labels = vec![("controller", name.to_owned()), ("result", result.to_owned())];
            self.reconciles.get_or_create_owned(&labels)
        };
        ControllerMetrics(Arc::new(Inner {
            name: name.to_owned(),
            success: result("success"),
            requeue_after: result("requeue_after"),
            error: result("error"),
            errors: self.errors.get_or_create_owned(&controller),
            terminal: self.terminal.get_or_create_owned(&controller),
            panics: self.panics.get_or_create_owned(&controller),
            timeouts: self.timeouts.get_or_create_owned(&controller),
            seconds: self.seconds.get_or_create_owned(&controller),
            active: self.active.get_or_create_owned(&controller),
            most: self.most.get_or_create_owned(&controller),
            adds: self.adds.get_or_create_owned(&queue),
            retries: self.retries.get_or_create_owned(&queue),
            waited: self.waited.get_or_create_owned(&queue),
            worked: self.worked.get_or_create_owned(&queue),
            depth: RwLock::new(None),
            running: Mutex::default(),
        }))
    }
}

/// The numbers of one controller. A clone is the same numbers.
#[derive(Clone)]
pub struct ControllerMetrics(Arc<Inner>);

struct Inner {
    name: String,
    success: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    timeouts: Counter,
    seconds: Histogram,
    active: Gauge,
    most: Gauge,
    adds: Counter,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
    depth: RwLock<Option<Box<dyn Fn() -> usize + Send + Sync>>>,
    /// When each reconcile that is under way began: as many as there are workers.
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    next: u64,
    begun: HashMap<u64, Instant>,
}

/// How long the work that is under way has taken.
pub(super) struct Underway {
    pub(super) total: f64,
    pub(super) longest: f64,
}

impl ControllerMetrics {
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many may work at once.
    pub fn workers(&self, most: usize) {
        self.0.most.set(i64::try_from(most).unwrap_or(i64::MAX));
    }

    /// Where the queue's depth is read from, at each scrape.
    pub fn depth_from(&self, read: impl Fn() -> usize + Send + Sync + 'static) {
        *self.0.depth.write() = Some(Box::new(read));
    }

    /// Something was added to the queue.
    pub fn added(&self) {
        self.0.adds.inc();
    }

    /// Something that failed is to be tried again.
    pub fn retried(&self) {
        self.0.retries.inc();
    }

    /// A worker took an item that had waited this long.
    pub fn begin(&self, waited: Duration) -> Reconciling {
        self.0.waited.observe(waited.as_secs_f64());
        self.0.active.inc();
        let begun = Instant::now();
        let mut running = self.0.running.lock();
        let id = running.next;
        running.next += 1;
        running.begun.insert(id, begun);
        drop(running);
        Reconciling {
            of: self.clone(),
            id,
            begun,
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.0.depth.read().as_ref().map_or(0, |read| read())
    }

    pub(super) fn running(&self) -> Underway {
        let now = Instant::now();
        let running = self.0.running.lock();
        let seconds = running
            .begun
            .values()
            .map(|begun| now.saturating_duration_since(*begun).as_secs_f64());
        let (total, longest) = seconds.fold((0.0, 0.0), |(total, longest), one| {
            (total + one, f64::max(longest, one))
        });
        Underway { total, longest }
    }
}

impl fmt::Debug for ControllerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerMetrics").field(&self.0.name).finish()
    }
}

/// A reconcile that is under way. One that is dropped without a result was cancelled, and counts as none.
#[derive(Debug)]
pub struct Reconciling {
    of: ControllerMetrics,
    id: u64,
    begun: Instant,
}

impl Reconciling {
    pub fn finish(self, result: ReconcileResult) {
        let inner = &self.of.0;
        inner.seconds.observe(self.begun.elapsed().as_secs_f64());
        let of_its_own = match result {
            ReconcileResult::Success => {
                inner.success.inc();
                return;
            }
            ReconcileResult::RequeueAfter => {
                inner.requeue_after.inc();
                return;
            }
            ReconcileResult::Error => None,
            ReconcileResult::TerminalError => Some(&inner.terminal),
            ReconcileResult::Panic => Some(&inner.panics),
            ReconcileResult::Timeout => Some(&inner.timeouts),
        };
        if let Some(counter) = of_its_own {
            counter.inc();
        }
        inner.error.inc();
        inner.errors.inc();
    }
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        let inner = &self.of.0;
        inner.running.lock().begun.remove(&self.id);
        inner.active.dec();
        inner.worked.observe(self.begun.elapsed().as_secs_f64());
    }
}
