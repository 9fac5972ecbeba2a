//! What fairness counts, by upstream's names.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::level::{Bounds, Levels};
use super::seats::Refusal;
use crate::metrics::{Collect, Counter, Family, Gauge, Histogram, Label, Registry, Series, Text};

const FLOW: &[Label] = &[Label::Open("priority_level"), Label::Open("flow_schema")];
const REASON: &[Label] = &[
    Label::Open("priority_level"),
    Label::Open("flow_schema"),
    Label::Closed("reason"),
];
const WAITED: &[Label] = &[
    Label::Open("priority_level"),
    Label::Open("flow_schema"),
    Label::Closed("execute"),
];

/// Upstream's buckets of waiting.
const WAITS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

pub struct Metrics {
    dispatched: Arc<Family<Counter>>,
    rejected: Arc<Family<Counter>>,
    queued: Arc<Family<Gauge>>,
    executing: Arc<Family<Gauge>>,
    seats: Arc<Family<Gauge>>,
    waited: Arc<Family<Histogram>>,
    levels: Arc<LevelLimits>,
}

/// The numbers of one flow schema.
pub struct FlowMetrics {
    level: String,
    schema: String,
    dispatched: Arc<Series<Counter>>,
    queued: Arc<Series<Gauge>>,
    executing: Arc<Series<Gauge>>,
    seats: Arc<Series<Gauge>>,
    all: Arc<Metrics>,
}

/// Why a request was rejected, in upstream's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    Refused(Refusal),
    TimedOut,
    Cancelled,
}

impl Metrics {
    pub fn new(registry: &Registry, seats: u32) -> Arc<Self> {
        let counter = |name, help, labels| registry.register(Arc::new(Family::<Counter>::new(name, help, labels)));
        let gauge = |name, help| registry.register(Arc::new(Family::<Gauge>::new(name, help, FLOW)));
        Arc::new(Self {
            dispatched: counter(
                "apiserver_flowcontrol_dispatched_requests_total",
                "Requests that fairness let go on.",
                FLOW,
            ),
            rejected: counter(
                "apiserver_flowcontrol_rejected_requests_total",
                "Requests that fairness refused, by reason.",
                REASON,
            ),
            queued: gauge(
                "apiserver_flowcontrol_current_inqueue_requests",
                "Requests that wait for a seat.",
            ),
            executing: gauge(
                "apiserver_flowcontrol_current_executing_requests",
                "Requests that have a seat.",
            ),
            seats: gauge(
                "apiserver_flowcontrol_current_executing_seats",
                "Seats that are in use.",
            ),
            waited: registry.register(Arc::new(Family::histogram(
                "apiserver_flowcontrol_request_wait_duration_seconds",
                "How long requests that had to wait for a seat did so.",
                WAITED,
                WAITS,
            ))),
            levels: registry.register(Arc::new(LevelLimits {
                seats,
                shown: Mutex::default(),
            })),
        })
    }

    /// Tells what root's levels have. No other plane's: their levels are too many, and their tenants' to name.
    pub fn show_levels(&self, levels: &Arc<Levels>) {
        *self.levels.shown.lock() = levels.clone();
    }

    pub fn of(self: &Arc<Self>, level: &str, schema: &str) -> FlowMetrics {
        FlowMetrics {
            level: level.to_owned(),
            schema: schema.to_owned(),
            dispatched: self.dispatched.series(&[level, schema]),
            queued: self.queued.series(&[level, schema]),
            executing: self.executing.series(&[level, schema]),
            seats: self.seats.series(&[level, schema]),
            all: self.clone(),
        }
    }
}

/// The bounds of root's levels if root is alone.
struct LevelLimits {
    seats: u32,
    shown: Mutex<Arc<Levels>>,
}

impl Collect for LevelLimits {
    fn collect(&self, text: &mut Text) {
        let levels = self.shown.lock().clone();
        show_limits(&levels, self.seats, text);
    }
}

/// What each level has of so many seats.
pub fn show_limits(levels: &Levels, seats: u32, text: &mut Text) {
    let bounds: Vec<Bounds> = (0..levels.all.len()).map(|at| levels.bounds(at, seats)).collect();
    let mut show = |name, help, value: fn(&Bounds) -> u32| {
        text.family(name, help, "gauge");
        for (level, bounds) in levels.all.iter().zip(&bounds) {
            text.sample(name, &[("priority_level", &level.name)], f64::from(value(bounds)));
        }
    };
    show(
        "apiserver_flowcontrol_nominal_limit_seats",
        "Seats that are a level's own, if its plane is alone.",
        |bounds| bounds.nominal,
    );
    show(
        "apiserver_flowcontrol_lower_limit_seats",
        "Seats that others leave to a level, if its plane is alone.",
        |bounds| bounds.reserved,
    );
    show(
        "apiserver_flowcontrol_upper_limit_seats",
        "Seats that a level may have while others are idle, if its plane is alone.",
        |bounds| bounds.most,
    );
}

impl FlowMetrics {
    pub fn seated(&self, width: u32) {
        self.dispatched.value.inc();
        self.executing.value.inc();
        self.seats.value.add(i64::from(width));
    }

    pub fn left(&self, width: u32) {
        self.executing.value.dec();
        self.seats.value.add(-i64::from(width));
    }

    pub fn waits(&self) {
        self.queued.value.inc();
    }

    pub fn waited(&self, time: Duration, got: &Result<(), Rejected>) {
        self.queued.value.dec();
        let execute = if got.is_ok() { "true" } else { "false" };
        let labels = [self.level.as_str(), self.schema.as_str(), execute];
        self.all
            .waited
            .with(&labels, |waited| waited.observe(time.as_secs_f64()));
        if let Err(why) = got {
            self.rejected(*why);
        }
    }

    pub fn rejected(&self, why: Rejected) {
        let reason = match why {
            Rejected::Refused(Refusal::NoSeat) => "concurrency-limit",
            Rejected::Refused(Refusal::QueueFull) => "queue-full",
            Rejected::TimedOut => "time-out",
            Rejected::Cancelled => "cancelled",
        };
        let labels = [self.level.as_str(), self.schema.as_str(), reason];
        self.all.rejected.with(&labels, Counter::inc);
    }
}
