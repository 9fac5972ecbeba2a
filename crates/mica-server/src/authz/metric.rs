//! What is counted about decisions and about the webhooks among those who decide, under upstream's names.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Label::{Closed, Open};
use crate::metrics::{Counter, Family, Histogram, Label, Registry};

const DECISION: &[Label] = &[Closed("type"), Open("name"), Closed("decision")];
const ASKED: &[Label] = &[Open("name"), Closed("result")];
const MATCH: &[Label] = &[Closed("type"), Open("name")];
const RELOAD: &[Label] = &[Closed("status")];
const BOUNDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.5, 5.0, 10.0,
];
const WEBHOOK: &str = "Webhook";

pub(super) struct AuthzMetrics {
    decisions: Arc<Family<Counter>>,
    evaluations: Arc<Family<Counter>>,
    durations: Arc<Family<Histogram>>,
    opened: Arc<Family<Counter>>,
    excluded: Arc<Family<Counter>>,
    failed_conditions: Arc<Family<Counter>>,
    reloads: Arc<Family<Counter>>,
}

impl AuthzMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help, labels| registry.register(Arc::new(Family::new(name, help, labels)));
        Self {
            decisions: counter(
                "apiserver_authorization_decisions_total",
                "Decisions that ended the chain of authorizers, by the authorizer's type and name",
                DECISION,
            ),
            evaluations: counter(
                "apiserver_authorization_webhook_evaluations_total",
                "Calls of authorization webhooks, by name and result",
                ASKED,
            ),
            durations: registry.register(Arc::new(Family::histogram(
                "apiserver_authorization_webhook_duration_seconds",
                "Latency of authorization webhooks, by name and result",
                ASKED,
                BOUNDS,
            ))),
            opened: counter(
                "apiserver_authorization_webhook_evaluations_fail_open_total",
                "Authorization webhooks that failed and had no opinion for it, by name and result",
                ASKED,
            ),
            excluded: counter(
                "apiserver_authorization_match_condition_exclusions_total",
                "Requests that match conditions kept from an authorizer",
                MATCH,
            ),
            failed_conditions: counter(
                "apiserver_authorization_match_condition_evaluation_errors_total",
                "Match conditions of authorizers that failed",
                MATCH,
            ),
            reloads: counter(
                "apiserver_authorization_config_controller_automatic_reloads_total",
                "Changes of the authorization configuration's file, by whether they could be used",
                RELOAD,
            ),
        }
    }

    pub(super) fn decided(&self, kind: &str, name: &str, decision: &str) {
        self.decisions.with(&[kind, name, decision], Counter::inc);
    }

    pub(super) fn asked(&self, name: &str, result: &str, elapsed: Duration) {
        self.evaluations.with(&[name, result], Counter::inc);
        self.durations
            .with(&[name, result], |histogram| histogram.observe(elapsed.as_secs_f64()));
    }

    pub(super) fn failed_open(&self, name: &str, result: &str) {
        self.opened.with(&[name, result], Counter::inc);
    }

    pub(super) fn excluded(&self, name: &str) {
        self.excluded.with(&[WEBHOOK, name], Counter::inc);
    }

    pub(super) fn condition_failed(&self, name: &str) {
        self.failed_conditions.with(&[WEBHOOK, name], Counter::inc);
    }

    pub(super) fn reloaded(&self, status: &str) {
        self.reloads.with(&[status], Counter::inc);
    }
}
