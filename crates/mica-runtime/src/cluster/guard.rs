//! What every request of a cluster's client passes.
//!
//! A request is refused here, before anything is sent, if the cluster is gone, does not answer, or is not this replica's to
//! change. Its outcome is told to the cluster's breaker. While that is open, one task asks now and then whether the server
//! is back; nothing else is sent.

use std::error::Error;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Instant;
use tower::BoxError;

use super::access::SendError;
use super::pool::{AnswerBody, within};
use super::{Cluster, Health};
use crate::breaker::{Report, Verdict};
use crate::ownership::Epoch;
use crate::request::ClusterName;

/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// What a probe asks for: every API server has it, and it costs nothing.
const PROBE_PATH: &str = "/version";

/// A request was not sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    #[error("cluster {0:?} is gone")]
    Gone(ClusterName),
    #[error("cluster {0:?} is not this replica's to change any more")]
    NotOwned(ClusterName),
    #[error("cluster {0:?} does not answer, and is not asked until it does")]
    Unreachable(ClusterName),
}

impl Refused {
    /// Whether an error of a client or watcher is one of these.
    pub fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(refused) = error.downcast_ref() {
                return Some(refused);
            }
            next = error.source();
        }
        None
    }
}

/// Sends a request of a client that was made under `epoch`.
pub(super) async fn send(
    cluster: Cluster,
    epoch: Option<Epoch>,
    request: Request<Body>,
) -> Result<Response<AnswerBody>, BoxError> {
    let name = cluster.name();
    if cluster.lifetime().is_cancelled() {
        return Err(Refused::Gone(name.clone()).into());
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !reads && (epoch.is_none() || cluster.held() != epoch) {
        return Err(Refused::NotOwned(name.clone()).into());
    }
    if cluster.inner.breaker.lock().verdict() != Verdict::Closed {
        return Err(Refused::Unreachable(name.clone()).into());
    }
    let method = request.method().clone();
    let access = cluster.inner.access.load_full();
    let answer = tokio::select! {
        biased;
        () = cluster.lifetime().cancelled() => return Err(Refused::Gone(name.clone()).into()),
        answer = access.send(request) => answer,
    };
    if let Some(observer) = cluster.inner.observer.upgrade() {
        let code = answer.as_ref().ok().map(Response::status);
        observer.answered(&cluster, &method, code);
    }
    note(&cluster, &answer);
    answer.map_err(BoxError::from)
}

/// Tells the breaker and the health how a request went.
fn note(cluster: &Cluster, answer: &Result<Response<AnswerBody>, SendError>) {
    let (report, health) = match answer {
        Ok(response) if response.status() == StatusCode::UNAUTHORIZED => {
            let message = "401 Unauthorized".to_owned();
            (Some(Report::Answered), Some(Health::Unauthorized { message }))
        }
        Ok(_) => (Some(Report::Answered), Some(Health::Reachable)),
        Err(error @ SendError::Credentials(_)) => {
            let message = chain(error);
            (None, Some(Health::Unauthorized { message }))
        }
        Err(SendError::Unreachable(_)) => (Some(Report::Unreachable), None),
    };
    let verdict = report.and_then(|report| cluster.inner.breaker.lock().report(report, Instant::now()));
    let health = match (verdict, answer) {
        (Some(Verdict::Open { .. }), Err(error)) => {
            let message = chain(error);
            Some(Health::Unreachable { message })
        }
        _ => health,
    };
    if let Some(health) = health {
        cluster.set_health(health);
    }
    match verdict {
        Some(Verdict::Open { until }) => {
            tracing::warn!(cluster = %cluster.name(), health = %cluster.health(), "held: the cluster does not answer");
            cluster.reach_changed();
            tokio::spawn(probe(cluster.clone(), until));
        }
        Some(Verdict::Closed) => cluster.reach_changed(),
        Some(Verdict::Probing) | None => {}
    }
}

/// Asks a cluster that does not answer, ever more seldom, until it does or is gone.
async fn probe(cluster: Cluster, mut until: Instant) {
    let lifetime = cluster.lifetime().clone();
    loop {
        tokio::select! {
            () = lifetime.cancelled() => return,
            () = tokio::time::sleep_until(until) => {}
        }
        let asked = tokio::select! {
            () = lifetime.cancelled() => return,
            asked = ask(&cluster) => asked,
        };
        let mut breaker = cluster.inner.breaker.lock();
        // Only this task probes, so the breaker is open here unless a request that was under way has closed it.
        if !breaker.probe(Instant::now()) {
            return;
        }
        let report = match asked {
            Ok(()) => Report::Answered,
            Err(_) => Report::Unreachable,
        };
        match breaker.report(report, Instant::now()) {
            Some(Verdict::Open { until: next }) => until = next,
            _ => {
                drop(breaker);
                tracing::info!(cluster = %cluster.name(), "released: the cluster answers again");
                cluster.set_health(Health::Reachable);
                cluster.reach_changed();
                return;
            }
        }
    }
}

async fn ask(cluster: &Cluster) -> Result<(), BoxError> {
    // Dead clusters must not take connections and time from those that live.
    let _turn = cluster.inner.probes.acquire().await?;
    let request = Request::get(PROBE_PATH).body(Body::empty())?;
    let access = cluster.inner.access.load_full();
    let answer = async { Ok(access.send(request).await?) };
    within(PROBE_TIMEOUT, answer).await.map(drop)
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += ": ";
        text += &cause.to_string();
        next = cause.source();
    }
    text
}
