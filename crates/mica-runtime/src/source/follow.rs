//! The loop that keeps one list and watch going for as long as somebody wants it.
//!
//! Resuming is kube's `watcher`'s: a watch that was cut goes on after the last event or bookmark. What that leaves out is
//! here: a wait between tries that ends when somebody asks, a list anew when a server refuses the version before the
//! stream begins, and kinds that a server does not have (yet).

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::item::{Item, Object};
use crate::queue::Backoff;
use crate::request::Request;

/// Between tries. A server that is back is found within the longest, or at once when somebody says so.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(100),
    most: Duration::from_secs(30),
    jitter: 0.5,
};

/// What is done with what a stream tells. Called from one task.
pub(super) trait Sink<K>: Send + Sync {
    /// A list begins. What the last one told counts until this one is through.
    fn listing(&self);
    fn listed(&self, item: Item<K>);
    /// The list is through: what it did not show is gone.
    fn listed_all(&self);
    fn applied(&self, item: Item<K>);
    fn deleted(&self, item: Item<K>);
    /// The server does not have the kind.
    fn not_served(&self);
    /// Whether to ask again after the server has refused to answer, so many times in a row.
    fn goes_on(&self, _refusal: Refusal, _times: u32) -> bool {
        true
    }
}

/// What a server says to what it will not do, today or ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// 403.
    Forbidden,
    /// 404: of the kind, or of the address.
    Absent,
}

/// Why a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Stopped,
    /// The sink did not want to go on.
    Refused(Refusal),
}

/// How somebody else steers a stream.
#[derive(Default)]
pub(super) struct Steering {
    pub(super) stop: CancellationToken,
    /// The list is wanted once more.
    pub(super) relist: Notify,
    /// What failed may work now.
    pub(super) retry: Notify,
}

/// Lists and watches until stopped, or refused for good. `subject` names the stream: its cluster, and its kind as the name.
pub(super) async fn follow<K: Object>(
    api: Api<Item<K>>,
    config: watcher::Config,
    subject: &Request,
    sink: &impl Sink<K>,
    steering: &Steering,
) -> End {
    let mut failures = 0;
    loop {
        let mut stream = pin!(watcher(api.clone(), config.clone()));
        loop {
            let event = tokio::select! {
                biased;
                () = steering.stop.cancelled() => return End::Stopped,
                () = steering.relist.notified() => break,
                event = stream.next() => event,
            };
            match event {
                Some(Ok(event)) => {
                    // `Init` is said before anything is asked.
                    if !matches!(event, Event::Init) {
                        failures = 0;
                    }
                    pass(sink, event);
                }
                Some(Err(error)) => {
                    failures += 1;
                    let after = After::of(&error);
                    after.note(&error, subject, failures);
                    if let Some(refusal) = after.refusal()
                        && !sink.goes_on(refusal, failures)
                    {
                        return End::Refused(refusal);
                    }
                    if after == After::Absent {
                        sink.not_served();
                    }
                    let wait = RETRY.after(failures, subject);
                    tokio::select! {
                        biased;
                        () = steering.stop.cancelled() => return End::Stopped,
                        () = steering.retry.notified() => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                    if matches!(after, After::Expired | After::Absent) {
                        break;
                    }
                }
                None => break,
            }
        }
    }
}

fn pass<K>(sink: &impl Sink<K>, event: Event<Item<K>>) {
    match event {
        Event::Init => sink.listing(),
        Event::InitApply(item) => sink.listed(item),
        Event::InitDone => sink.listed_all(),
        Event::Apply(item) => sink.applied(item),
        Event::Delete(item) => sink.deleted(item),
    }
}

/// How a stream goes on after an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    /// From where it was.
    Resume,
    /// With a list: the version is refused. `watcher` knows this only of errors inside a stream.
    Expired,
    /// With a list, when there is something to list.
    Absent,
    /// From where it was, when it is allowed.
    Forbidden,
}

impl After {
    fn of(error: &watcher::Error) -> Self {
        use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
        match error {
            InitialListFailed(kube::Error::Api(status))
            | WatchStartFailed(kube::Error::Api(status))
            | WatchFailed(kube::Error::Api(status)) => match status.code {
                403 => Self::Forbidden,
                404 => Self::Absent,
                410 => Self::Expired,
                _ => Self::Resume,
            },
            _ => Self::Resume,
        }
    }

    fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Absent => Some(Refusal::Absent),
            Self::Forbidden => Some(Refusal::Forbidden),
            Self::Resume | Self::Expired => None,
        }
    }

    /// Says it once aloud, when it begins to be more than a hiccup.
    fn note(self, error: &watcher::Error, subject: &Request, failures: u32) {
        const ALOUD: u32 = 3;
        if matches!(self, Self::Resume | Self::Forbidden) && failures == ALOUD {
            tracing::warn!(cluster = %subject.cluster, kind = %subject.name, %error, "watching fails");
        } else {
            tracing::debug!(cluster = %subject.cluster, kind = %subject.name, %error, failures, "a watch is tried again");
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refused_version_and_a_missing_kind_begin_with_a_list_and_the_rest_resumes() {
        use watcher::Error::{InitialListFailed, NoResourceVersion, WatchStartFailed};
        let status = |code| {
            let mut status = Status::failure("", "");
            status.code = code;
            kube::Error::Api(status.boxed())
        };
        for (error, wanted) in [
            (WatchStartFailed(status(410)), After::Expired),
            (WatchStartFailed(status(404)), After::Absent),
            (InitialListFailed(status(404)), After::Absent),
            (InitialListFailed(status(403)), After::Forbidden),
            (WatchStartFailed(status(503)), After::Resume),
            (NoResourceVersion, After::Resume),
        ] {
            assert_eq!(After::of(&error), wanted, "{error}");
        }
    }
}
