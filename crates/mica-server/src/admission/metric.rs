//! What is counted about webhooks, under upstream's names.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Label::{Closed, Open};
use crate::metrics::{Counter, Family, Histogram, Label, Registry};

const LABELS: &[Label] = &[Open("name"), Closed("type"), Closed("operation"), Closed("rejected")];
const FAIL_OPEN: &[Label] = &[Open("name"), Closed("type")];
const BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// Which of the two kinds of webhooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    Admit,
    Validating,
}

impl Type {
    fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validating => "validating",
        }
    }
}

pub(super) struct AdmissionMetrics {
    durations: Arc<Family<Histogram>>,
    opened: Arc<Family<Counter>>,
}

impl AdmissionMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            durations: registry.register(Arc::new(Family::histogram(
                "apiserver_admission_webhook_admission_duration_seconds",
                "Admission webhook latency, for each webhook by name, type, operation and whether it said no",
                LABELS,
                BOUNDS,
            ))),
            opened: registry.register(Arc::new(Family::new(
                "apiserver_admission_webhook_fail_open_count",
                "Admission webhooks that failed and were ignored, by name and type",
                FAIL_OPEN,
            ))),
        }
    }

    pub(super) fn observe(&self, name: &str, of: Type, operation: &str, rejected: bool, elapsed: Duration) {
        let rejected = if rejected { "true" } else { "false" };
        let values = [name, of.as_str(), operation, rejected];
        self.durations
            .with(&values, |histogram| histogram.observe(elapsed.as_secs_f64()));
    }

    pub(super) fn failed_open(&self, name: &str, of: Type) {
        self.opened.with(&[name, of.as_str()], Counter::inc);
    }
}
