//! What is counted about conversions, under upstream's names.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Label::Closed;
use crate::metrics::{Counter, Family, Histogram, Label, Registry};

const LABELS: &[Label] = &[Closed("result"), Closed("failure_type")];
const BOUNDS: &[f64] = &[
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
];

/// What went wrong with a conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    Call,
    MalformedResponse,
    PartialResponse,
    InvalidConvertedObject,
}

impl Failure {
    fn label(self) -> &'static str {
        match self {
            Self::Call => "conversion_webhook_call_failure",
            Self::MalformedResponse => "conversion_webhook_malformed_response_failure",
            Self::PartialResponse => "conversion_webhook_partial_response_failure",
            Self::InvalidConvertedObject => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

pub(super) struct ConversionMetrics {
    requests: Arc<Family<Counter>>,
    durations: Arc<Family<Histogram>>,
}

impl ConversionMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            requests: registry.register(Arc::new(Family::new(
                "apiserver_conversion_webhook_request_total",
                "Counter for conversion webhook requests with success/failure and failure error type",
                LABELS,
            ))),
            durations: registry.register(Arc::new(Family::histogram(
                "apiserver_conversion_webhook_duration_seconds",
                "Conversion webhook request latency",
                LABELS,
                BOUNDS,
            ))),
        }
    }

    pub(super) fn observe(&self, elapsed: Duration, failure: Option<Failure>) {
        let values = match failure {
            None => ["success", ""],
            Some(failure) => ["failure", failure.label()],
        };
        self.requests.with(&values, Counter::inc);
        self.durations
            .with(&values, |histogram| histogram.observe(elapsed.as_secs_f64()));
    }
}
