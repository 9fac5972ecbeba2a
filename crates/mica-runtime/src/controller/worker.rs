//! What a worker does with one request after the other.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use tracing::Instrument as _;

use super::FleetView;
use super::core::Core;
use crate::cluster::Cluster;
use crate::events::Events;
use crate::metrics::ReconcileResult;
use crate::ownership::Tenure;
use crate::queue::{Outcome, Work};
use crate::reconcile::{Action, Cx, Parts, ReconcileError, Reconciler};
use crate::request::Request;
use crate::source::Feed;

/// When work that could not begin, because the cluster is being handed over, is looked at again. The queue holds the
/// cluster as soon as it hears of that.
const NOT_OURS: Duration = Duration::from_secs(1);

/// What the workers of one controller share.
pub(super) struct Workshop<R: Reconciler> {
    pub(super) core: Arc<Core>,
    pub(super) name: Arc<str>,
    pub(super) reconciler: R,
    pub(super) feed: Arc<Feed<R::Kind>>,
    pub(super) fleet: FleetView,
    pub(super) events: Events,
    pub(super) timeout: Option<Duration>,
}

/// How a reconcile ended.
enum End {
    Ok(Action),
    Failed(ReconcileError),
    Panicked(String),
    TimedOut(Duration),
}

impl<R: Reconciler> Workshop<R> {
    /// Works until the controller is stopped; what is under way then is finished.
    pub(super) async fn work(self: Arc<Self>) {
        loop {
            let work = tokio::select! {
                biased;
                () = self.core.stop.cancelled() => return,
                work = self.core.queue.take() => work,
            };
            let request = work.request.clone();
            let outcome = self.attempt(work).await;
            self.core.queue.done(&request, outcome);
            // A reconcile that never waited has kept others from this thread, and there may be thousands like it.
            tokio::task::yield_now().await;
        }
    }

    async fn attempt(&self, work: Work) -> Outcome {
        // A cluster that went, or is not wanted any more, leaves nothing to do.
        let Some(cluster) = self.core.admits(&work.request) else {
            return Outcome::Done;
        };
        let Some(tenure) = self.fleet.ownership().begin(cluster.name()) else {
            return Outcome::Again(NOT_OURS);
        };
        let running = self.core.metrics.begin(work.waited);
        let request = work.request.clone();
        let span = tracing::info_span!(
            "reconcile",
            controller = &*self.name,
            cluster = %request.cluster,
            namespace = request.namespace.as_deref().unwrap_or_default(),
            name = %request.name,
            attempt = work.failures + 1,
        );
        let end = tokio::select! {
            biased;
            () = cluster.lifetime().cancelled() => return Outcome::Done,
            () = tenure.lost() => return Outcome::Again(NOT_OURS),
            end = self.look_and_run(work, &cluster, &tenure).instrument(span.clone()) => end,
        };
        let (result, outcome) = span.in_scope(|| self.judge(&end, &request, &cluster));
        running.finish(result);
        if outcome == Outcome::Failed {
            self.core.metrics.retried();
        }
        outcome
    }

    async fn look_and_run(&self, work: Work, cluster: &Cluster, tenure: &Tenure) -> End {
        let object = match self.feed.look_up(cluster, &work.request).await {
            Ok(object) => object,
            Err(error) => return End::Failed(error.into()),
        };
        let cx = Cx::new(Parts {
            controller: self.name.clone(),
            kind: self.feed.kind().clone(),
            object,
            request: work.request,
            cluster: cluster.clone(),
            tenure: tenure.clone(),
            fleet: self.fleet.clone(),
            events: self.events.clone(),
            priority: work.priority,
            failures: work.failures,
            stop: self.core.stop.clone(),
            client: OnceLock::new(),
        });
        self.run(cx).await
    }

    async fn run(&self, cx: Cx<R::Kind>) -> End {
        let reconciling = AssertUnwindSafe(async { self.reconciler.reconcile(cx).await }).catch_unwind();
        let result = match self.timeout {
            None => reconciling.await,
            Some(timeout) => match tokio::time::timeout(timeout, reconciling).await {
                Ok(result) => result,
                Err(_) => return End::TimedOut(timeout),
            },
        };
        match result {
            Ok(Ok(action)) => End::Ok(action),
            Ok(Err(error)) => End::Failed(error.into()),
            Err(panic) => End::Panicked(said(&*panic)),
        }
    }

    /// What is counted, logged, and done next.
    fn judge(&self, end: &End, request: &Request, cluster: &Cluster) -> (ReconcileResult, Outcome) {
        match end {
            End::Ok(Action::AwaitChange) => (ReconcileResult::Success, Outcome::Done),
            End::Ok(Action::Requeue(after)) => (ReconcileResult::RequeueAfter, Outcome::Again(*after)),
            End::Failed(ReconcileError::Terminal(_)) => {
                let error = failure(end);
                tracing::error!(%request, %error, "it failed, and will not be tried again until something changes");
                (ReconcileResult::TerminalError, Outcome::Done)
            }
            End::Failed(ReconcileError::After(delay, _)) => {
                let error = failure(end);
                tracing::warn!(%request, %error, ?delay, "it failed, and is tried again after its delay");
                (ReconcileResult::Error, Outcome::Again(*delay))
            }
            End::Failed(ReconcileError::Transient(_)) => {
                let error = failure(end);
                // Of a cluster that does not answer this says nothing new.
                if cluster.is_reachable() {
                    tracing::warn!(%request, %error, "it failed, and is tried again");
                }
                (ReconcileResult::Error, Outcome::Failed)
            }
            End::Panicked(said) => {
                tracing::error!(%request, panic = said, "the reconciler panicked");
                (ReconcileResult::Panic, Outcome::Failed)
            }
            End::TimedOut(after) => {
                tracing::warn!(%request, ?after, "the reconcile took too long");
                (ReconcileResult::Timeout, Outcome::Failed)
            }
        }
    }
}

fn failure(end: &End) -> String {
    match end {
        End::Failed(error) => error.to_string(),
        _ => String::new(),
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a word").to_owned()
}
