//! Runs controllers on one server: what is seen goes to all of them, and each has workers on a queue of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use mica_runtime::Request;
use mica_runtime::queue::{Backoff, Limits, Outcome, Priority, Queue, Work};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::Refusal;
use crate::follow::Listener;
use crate::kinds::Catalog;
use crate::meta::{Notice, Object, Seen, What};
use crate::place::Place;
use crate::select::Name;
use crate::turn::Turn;

/// Items that wait in a queue before nothing more is read from the server: its watch goes on where it was.
const FULL: usize = 50_000;
/// How often a full queue is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The most time for one item. A namespace with very many objects takes the longest.
const PATIENCE: Duration = Duration::from_secs(300);
/// Items of one plane with workers at once, so that a busy plane leaves some to the others.
const PER_PLANE: usize = 8;
/// The longest pause between tries of what fails.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// Failures in a row that are nobody's concern: races with others, and servers that start.
const QUIET_FAILURES: u32 = 4;

/// A controller: hears what happens, and does what waits in its queue.
#[async_trait]
pub trait Controller: Send + Sync + 'static {
    fn name(&self) -> Name;
    fn queue(&self) -> &Queue;
    /// How many items are done at once.
    fn workers(&self) -> usize;
    /// Whether it wants to hear of objects of a kind. Where each kind has a watch of its own, those that nobody wants have
    /// none.
    fn wants(&self, _what: &What) -> bool {
        true
    }
    /// Puts what is to be done about it into the queue. Must not wait.
    fn hear(&self, notice: &Notice);
    async fn work(&self, request: &Request) -> Result<Outcome, Refusal>;
    /// Hears what no notice tells (other servers, say), for as long as the workers run.
    async fn listen(&self) {
        std::future::pending::<()>().await;
    }
}

/// How long what is made in several steps is left to settle before dependents look at it: one look instead of one for each
/// step, and well within a second.
const SETTLE: Duration = Duration::from_millis(100);

/// Puts into a queue what depends on something that changed. What was there before anybody looked changes no more.
pub fn look_soon(queue: &Queue, request: Request, priority: Priority) {
    match priority {
        Priority::Low => queue.add(request, priority),
        _ => queue.add_after(request, SETTLE),
    }
}

/// A queue for a controller.
pub fn queue() -> Queue {
    let backoff = Backoff {
        most: LONGEST_BACKOFF,
        ..Backoff::default()
    };
    Queue::new(Limits {
        per_cluster: PER_PLANE,
        backoff,
    })
}

/// An item that is about something of root.
pub fn in_root(namespace: Option<&str>, name: &str) -> Request {
    Request::new(Place::root().cluster().clone(), namespace, name)
}

/// Puts what an object of root is about into a queue.
pub fn hear_in_root(queue: &Queue, notice: &Notice, about: impl FnOnce(&Object) -> Option<Request>) {
    let (Seen::Present(object) | Seen::Gone(object)) = &notice.seen else {
        return;
    };
    if object.place == Place::root()
        && let Some(request) = about(object)
    {
        queue.add(request, notice.priority);
    }
}

/// The time, as conditions have it.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub struct Engine {
    pub controllers: Vec<Arc<dyn Controller>>,
    pub catalog: Arc<Catalog>,
    pub turn: Turn,
}

impl Engine {
    /// Starts the workers of every controller.
    pub fn start(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        for controller in &self.controllers {
            let (listening, end) = (controller.clone(), stop.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = end.cancelled() => {}
                    () = listening.listen() => {}
                }
            });
            for _ in 0..controller.workers() {
                let (controller, turn, stop) = (controller.clone(), self.turn.clone(), stop.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = work(&*controller, &turn) => {}
                    }
                });
            }
        }
    }

    fn is_full(&self) -> bool {
        self.controllers.iter().any(|one| one.queue().depth() > FULL)
    }
}

impl Listener for Engine {
    fn wants(&self, what: &What) -> bool {
        // What is served is known from these.
        let defines = what.is("apiextensions.k8s.io", "customresourcedefinitions")
            || what.is("apiregistration.k8s.io", "apiservices");
        defines || self.controllers.iter().any(|controller| controller.wants(what))
    }

    fn hear(&self, notice: &Notice) {
        match &notice.seen {
            Seen::Present(object) | Seen::Gone(object)
                if object.is("apiextensions.k8s.io", "customresourcedefinitions")
                    || object.is("apiregistration.k8s.io", "apiservices") =>
            {
                self.catalog.forget(&object.place);
            }
            Seen::PlaneGone(place) => {
                self.catalog.forget(place);
                for controller in &self.controllers {
                    controller.queue().purge(place.cluster());
                }
            }
            _ => {}
        }
        // Whoever works does what this replica only hears of: when its turn comes, what happens then is more urgent.
        let heard = Notice {
            seen: notice.seen.clone(),
            priority: if self.turn.is_ours() {
                notice.priority
            } else {
                Priority::Low
            },
        };
        for controller in &self.controllers {
            controller.hear(&heard);
        }
    }

    async fn room(&self) {
        while self.is_full() {
            if self.turn.is_ours() {
                tokio::time::sleep(LOOK).await;
            } else {
                self.turn.comes().await;
            }
        }
    }
}

/// Does one item after the other, while it is this replica's turn.
async fn work(controller: &dyn Controller, turn: &Turn) {
    loop {
        turn.comes().await;
        let work = controller.queue().take().await;
        let outcome = match turn.begin() {
            None => Outcome::Again(Duration::ZERO),
            Some(tenure) => tokio::select! {
                biased;
                // Another replica does it anew.
                () = tenure.lost() => Outcome::Again(Duration::ZERO),
                outcome = attempt(controller, &work) => outcome,
            },
        };
        controller.queue().done(&work.request, outcome);
    }
}

async fn attempt(controller: &dyn Controller, work: &Work) -> Outcome {
    let doing = AssertUnwindSafe(controller.work(&work.request)).catch_unwind();
    match tokio::time::timeout(PATIENCE, doing).await {
        Ok(Ok(Ok(outcome))) => return outcome,
        Ok(Ok(Err(refusal))) => {
            tell(controller.name(), &work.request, work.failures, &refusal);
            return after(&work.request, &refusal);
        }
        Ok(Err(_panic)) => {
            tracing::error!(controller = %controller.name(), item = %work.request, "a controller panicked");
        }
        Err(_elapsed) => tell(controller.name(), &work.request, work.failures, &Refusal::Late),
    }
    Outcome::Failed
}

/// What becomes of an item that failed. A plane that has moved is the affair of its new server, and if it comes back everything
/// in it is told again.
fn after(item: &Request, refusal: &Refusal) -> Outcome {
    match refusal.is_moved() && !item.cluster.is_local() {
        true => Outcome::Done,
        false => Outcome::Failed,
    }
}

/// Whether somebody should look at what keeps failing.
fn is_news(failures: u32, refusal: &Refusal) -> bool {
    failures >= QUIET_FAILURES && !refusal.is_arriving() && !refusal.is_moved()
}

fn tell(controller: Name, item: &Request, failures: u32, refusal: &Refusal) {
    let cause = std::error::Error::source(refusal)
        .map(ToString::to_string)
        .unwrap_or_default();
    if is_news(failures, refusal) {
        tracing::warn!(%controller, %item, failures, %refusal, cause, "a controller fails; it tries again");
    } else {
        tracing::debug!(%controller, %item, failures, %refusal, cause, "a controller failed; it tries again");
    }
}

#[cfg(test)]
mod tests {
    use mica_runtime::ClusterName;

    use super::*;

    #[test]
    fn what_keeps_failing_is_told_unless_its_plane_is_elsewhere_or_on_its_way() {
        let refused = |code: u16, reason: &str| Refusal::Status {
            code,
            reason: reason.to_owned(),
            message: String::new(),
        };
        for (refusal, told) in [
            (refused(500, "InternalError"), true),
            (refused(503, "ServiceUnavailable"), true),
            (refused(403, "PlaneSuspended"), true),
            (refused(503, "PlaneArriving"), false),
            (refused(421, "PlaneMoved"), false),
            (Refusal::Late, true),
        ] {
            assert_eq!(is_news(QUIET_FAILURES, &refusal), told, "{refusal:?}");
            assert!(!is_news(0, &refusal), "{refusal:?}");
        }
        let item = |cluster: ClusterName| Request::new(cluster, None, "a");
        for (cluster, reason, again) in [
            (ClusterName::new("p"), "PlaneMoved", false),
            (ClusterName::new("p"), "PlaneArriving", true),
            // What root's controllers want of a plane is not over because it has moved.
            (ClusterName::local(), "PlaneMoved", true),
        ] {
            let outcome = after(&item(cluster), &refused(421, reason));
            assert_eq!(matches!(outcome, Outcome::Failed), again, "{reason}");
        }
    }
}
