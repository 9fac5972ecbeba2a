//! What reconcilers log is in a span that says of which object, in which cluster.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Action, Cx, Manager, ReconcileError, Reconciler};
use mica_testkit::ControlPlanes;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::wait::eventually;

/// Who logs in this test.
const TARGET: &str = "span_test";

/// Notes in which span each event of the test was. All of it is on one thread.
#[derive(Default)]
struct Notes {
    spans: Mutex<Vec<String>>,
    entered: Mutex<Vec<u64>>,
    last: AtomicU64,
    found: Arc<Mutex<Vec<String>>>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() || metadata.target() == TARGET
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Fields(&mut text));
        self.spans.lock().push(text);
        Id::from_u64(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn event(&self, _: &Event<'_>) {
        let entered = self.entered.lock();
        let inner = entered.last().map(|id| self.spans.lock()[*id as usize - 1].clone());
        self.found.lock().extend(inner);
    }

    fn enter(&self, span: &Id) {
        self.entered.lock().push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.entered.lock().pop();
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}
}

struct Logs;

#[async_trait]
impl Reconciler for Logs {
    type Kind = ConfigMap;
    type Error = ReconcileError;

    async fn reconcile(&self, _: Cx<ConfigMap>) -> Result<Action, ReconcileError> {
        tracing::info!(target: TARGET, "looked at");
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn every_reconcile_is_a_span_with_its_object_and_cluster() {
    // With one subscriber alone, the thread that comes by a span first would answer for all threads whether anybody wants
    // it, and other tests' threads have none.
    let _another = tracing::Dispatch::new(Notes::default());
    let notes = Notes::default();
    let found = notes.found.clone();
    let _here = tracing::subscriber::set_default(notes);
    let planes = ControlPlanes::new(2).await;
    let server = Access::from_kubeconfig_yaml(&planes.server().kubeconfig()).unwrap();
    let manager = Manager::builder(server.clone())
        .provider(Planes::new(server))
        .build()
        .unwrap();
    manager.controller("logs").for_::<ConfigMap>().reconcile(Logs).unwrap();
    let of = |cluster: &str| {
        format!("reconcile controller=\"logs\" cluster={cluster} namespace=\"default\" name=kube-root-ca.crt attempt=")
    };
    let seen = eventually(async || {
        let found = found.lock();
        let has = |cluster: &str| found.iter().any(|span| span.starts_with(&of(cluster)));
        (has("plane-0") && has("plane-1")).then_some(())
    });
    manager.run_until(seen).await.unwrap();
}
