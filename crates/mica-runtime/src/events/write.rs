//! The one writer of events: a few at a time, each with a deadline, so that a cluster that does not answer delays no other.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::events::v1::{Event as Body, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::correlate::{Correlator, Key, Verdict};
use super::{LONGEST_NOTE, Said};
use crate::conditions::cut;
use crate::metrics::{EventFate, Metrics};

/// How many are sent at once.
const MOST_WRITING: usize = 16;
/// How long one may take.
const LONGEST_WRITE: Duration = Duration::from_secs(10);
/// How long what is left may take when the process stops.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Where events of cluster-wide objects are written, as upstream does.
const DEFAULT_NAMESPACE: &str = "default";

/// Writes what is recorded.
pub struct EventWriter {
    waiting: mpsc::Receiver<Said>,
    metrics: Metrics,
    correlator: Correlator,
}

impl EventWriter {
    pub(super) fn new(waiting: mpsc::Receiver<Said>, metrics: Metrics) -> Self {
        Self {
            waiting,
            metrics,
            correlator: Correlator::default(),
        }
    }

    /// Writes until it is stopped, and what was recorded before that.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut writing = FuturesUnordered::new();
        let mut deadline = None;
        loop {
            let room = writing.len() < MOST_WRITING;
            tokio::select! {
                () = stop.cancelled(), if deadline.is_none() => {
                    self.waiting.close();
                    deadline = Some(Instant::now() + LAST_WRITES);
                }
                () = until(deadline) => return,
                Some((key, result)) = writing.next() => self.wrote(&key, result),
                said = self.waiting.recv(), if room => match said {
                    Some(said) => writing.extend(self.hear(said)),
                    None => break,
                },
            }
        }
        let rest = async {
            while let Some((key, result)) = writing.next().await {
                self.wrote(&key, result);
            }
        };
        let _ = timeout(LAST_WRITES, rest).await;
    }

    /// What is to be sent for an event, if anything.
    fn hear(&mut self, said: Said) -> Option<impl Future<Output = (Key, Result<(), kube::Error>)> + use<>> {
        let now = Timestamp::now();
        let name = || {
            let object = said.regarding.name.as_deref().unwrap_or(&said.controller);
            format!("{object}.{:x}", now.as_nanosecond())
        };
        let (key, name, note, count) = match self.correlator.hear(&said, name, Instant::now()) {
            Verdict::Create { key, name, note } => (key, name, note, None),
            Verdict::Repeat { key, name, count } => (key, name, said.event.note.clone(), Some(count)),
            Verdict::Fold => {
                self.metrics.event(EventFate::Folded);
                return None;
            }
            Verdict::Drop => {
                self.metrics.event(EventFate::Dropped);
                return None;
            }
        };
        let series = count.map(|count| EventSeries {
            count,
            last_observed_time: MicroTime(now),
        });
        Some(async move {
            let sent = timeout(LONGEST_WRITE, send(&said, name, note, series, now)).await;
            let late = |_| Err(kube::Error::Service("the event took too long".into()));
            (key, sent.unwrap_or_else(late))
        })
    }

    fn wrote(&mut self, key: &Key, result: Result<(), kube::Error>) {
        let fate = match &result {
            Ok(()) => EventFate::Written,
            Err(err) => {
                tracing::debug!(error = err as &dyn std::error::Error, "an event was not written");
                EventFate::Failed
            }
        };
        self.metrics.event(fate);
        self.correlator.wrote(key, result.map_err(drop));
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn send(
    said: &Said,
    name: String,
    mut note: String,
    series: Option<EventSeries>,
    now: Timestamp,
) -> Result<(), kube::Error> {
    cut(&mut note, LONGEST_NOTE);
    let namespace = said.regarding.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let api: Api<Body> = Api::namespaced(said.client.clone(), namespace);
    if let Some(series) = &series {
        let patch = json!({ "series": series });
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            // It has expired meanwhile: it is written anew.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            done => return done.map(drop),
        }
    }
    let body = Body {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        reporting_controller: Some((*said.controller).to_owned()),
        reporting_instance: Some((*said.instance).to_owned()),
        action: Some(said.event.action.clone()),
        reason: Some(said.event.reason.clone()),
        regarding: Some((*said.regarding).clone()),
        related: said.event.related.clone(),
        note: Some(note),
        type_: Some(said.event.severity.as_str().to_owned()),
        series,
        ..Body::default()
    };
    api.create(&PostParams::default(), &body).await.map(drop)
}
