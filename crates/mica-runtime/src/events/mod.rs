//! Events about objects: what `kubectl describe` shows of what a controller did.
//!
//! Recording never waits and never fails: events go to a bounded queue, and one writer for all controllers and clusters sends
//! them. What repeats becomes a series, what differs only in its note is combined, and an object about which too much is said
//! is heard less ([`Correlator`](correlate::Correlator)). An event is a courtesy: where it cannot be written it is counted and forgotten.

mod correlate;
mod write;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tokio::sync::mpsc;

use crate::conditions::cut;
use crate::metrics::{EventFate, Metrics};
use crate::request::ClusterName;
pub use write::EventWriter;

/// How many events wait to be written; more are dropped.
pub const MOST_WAITING: usize = 1024;

/// Upstream's bounds.
pub const LONGEST_NOTE: usize = 1024;
pub const LONGEST_REASON: usize = 128;

/// What is done when nothing else is said.
const RECONCILING: &str = "Reconciling";

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Severity {
    /// As the field `type` of an event has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What is said about an object.
#[derive(Clone, Debug)]
pub struct Event {
    severity: Severity,
    reason: String,
    note: String,
    action: String,
    related: Option<ObjectReference>,
}

impl Event {
    /// `reason` is one PascalCase word, `note` a sentence.
    pub fn new(severity: Severity, reason: impl Into<String>, note: impl Into<String>) -> Self {
        let (mut reason, mut note) = (reason.into(), note.into());
        cut(&mut reason, LONGEST_REASON);
        cut(&mut note, LONGEST_NOTE);
        Self {
            severity,
            reason,
            note,
            action: RECONCILING.to_owned(),
            related: None,
        }
    }

    /// What was being done, as one PascalCase word.
    #[must_use]
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = action.into();
        cut(&mut self.action, LONGEST_REASON);
        self
    }

    /// Another object that it is about too.
    #[must_use]
    pub fn related(mut self, object: ObjectReference) -> Self {
        self.related = Some(object);
        self
    }
}

/// Where all events of a process go. A clone is the same place.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Said>,
    instance: Arc<str>,
    metrics: Metrics,
}

/// An event, and about what.
struct Said {
    cluster: ClusterName,
    client: kube::Client,
    controller: Arc<str>,
    instance: Arc<str>,
    regarding: Arc<ObjectReference>,
    event: Event,
}

impl Events {
    /// `instance` names this replica, such as its pod. Nothing is written unless the writer runs.
    pub fn new(instance: impl AsRef<str>, metrics: Metrics) -> (Self, EventWriter) {
        let (queue, waiting) = mpsc::channel(MOST_WAITING);
        let mut instance = instance.as_ref().to_owned();
        cut(&mut instance, LONGEST_REASON);
        let events = Self {
            queue,
            instance: instance.into(),
            metrics: metrics.clone(),
        };
        (events, EventWriter::new(waiting, metrics))
    }

    /// For events about one object of a cluster, which are written into that cluster.
    pub fn about<K: Resource>(
        &self,
        controller: &Arc<str>,
        cluster: ClusterName,
        client: kube::Client,
        object: &K,
        kind: &K::DynamicType,
    ) -> Recorder {
        self.about_reference(controller, cluster, client, object.object_ref(kind))
    }

    pub fn about_reference(
        &self,
        controller: &Arc<str>,
        cluster: ClusterName,
        client: kube::Client,
        regarding: ObjectReference,
    ) -> Recorder {
        Recorder {
            events: self.clone(),
            cluster,
            client,
            controller: controller.clone(),
            regarding: Arc::new(regarding),
        }
    }
}

/// Records events about one object.
#[derive(Clone)]
pub struct Recorder {
    events: Events,
    cluster: ClusterName,
    client: kube::Client,
    controller: Arc<str>,
    regarding: Arc<ObjectReference>,
}

impl Recorder {
    pub fn normal(&self, reason: &str, note: impl Into<String>) {
        self.record(Event::new(Severity::Normal, reason, note));
    }

    pub fn warning(&self, reason: &str, note: impl Into<String>) {
        self.record(Event::new(Severity::Warning, reason, note));
    }

    pub fn record(&self, event: Event) {
        let said = Said {
            cluster: self.cluster.clone(),
            client: self.client.clone(),
            controller: self.controller.clone(),
            instance: self.events.instance.clone(),
            regarding: self.regarding.clone(),
            event,
        };
        if self.events.queue.try_send(said).is_err() {
            self.events.metrics.event(EventFate::Dropped);
        }
    }
}
