//! The one watch of this process: everything under the prefix, from etcd into the hub.
//!
//! Invariant: the hub is told every revision once and in order, whatever happens to connections: each session resumes after
//! the hub's position, and a revision is published only when it is complete. Where that is impossible (history was compacted
//! meanwhile, or etcd was set back to an old backup) all watches are ended, and the pump goes on from now.
//!
//! Surprise: a watch that starts at the very revision of a compaction is accepted by etcd, but deletions of that revision may
//! be gone. So while a session catches up, each answer is believed only if the state before it can still be read.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::assemble::{Assembler, Gap, planes_of};
use super::client::{Conversation, jitter, signed, unsigned};
use super::endpoint::Pings;
use super::failure::Failure;
use super::layout::Span;
use super::progress::{ASK_AFTER, Progress, progress_request};
use super::proto::{WatchCommand, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::key::KeyRange;
use crate::store::Revision;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LAST_BACKOFF: Duration = Duration::from_secs(2);

/// Why a session ended.
pub enum Ended {
    /// The connection broke or etcd ended the watch: resume.
    Broken(Failure),
    /// What comes next cannot be had any more.
    HistoryLost(&'static str),
    /// etcd is not in the state that we knew it in: nothing we remember is valid.
    Rewound,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure)
    }
}

impl From<Gap> for Ended {
    fn from(Gap: Gap) -> Self {
        Self::HistoryLost("etcd compacted events before it sent them")
    }
}

/// Told once, when the first session stands or has failed for good.
pub type Ready = tokio::sync::oneshot::Sender<Result<(), Failure>>;

pub struct Pump {
    shared: Arc<Shared>,
    /// The endpoint to dial first.
    target: usize,
    cluster: Option<u64>,
    ready: Option<Ready>,
    backoff: Duration,
}

/// A watch of everything that is under way.
struct Session {
    conversation: Conversation,
    progress: Progress,
    assembler: Assembler,
    /// The newest revision when the session began: up to here events come from etcd's history.
    history_until: Revision,
    /// When to ask how far the watch has come.
    ask_at: Option<Instant>,
}

impl Pump {
    pub fn new(shared: Arc<Shared>, ready: Ready) -> Self {
        Self {
            shared,
            target: 0,
            cluster: None,
            ready: Some(ready),
            backoff: FIRST_BACKOFF,
        }
    }

    pub async fn run(mut self) {
        loop {
            let ended = match self.open().await {
                Ok(session) => self.follow(session).await,
                Err(ended) => ended,
            };
            match ended {
                Ended::Broken(failure) => {
                    if let Some(ready) = self.ready.take_if(|_| matches!(failure, Failure::Denied(_))) {
                        let _ = ready.send(Err(failure));
                        return;
                    }
                    tracing::warn!(%failure, "the watch of etcd was interrupted and will be resumed");
                    if matches!(failure, Failure::LoggedOut(_)) {
                        // If this fails, so does the next session.
                        let _ = self.shared.client.log_in().await;
                    }
                    self.target += 1;
                    tokio::time::sleep(jitter(self.backoff)).await;
                    self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
                }
                Ended::HistoryLost(why) => self.start_over(why).await,
                Ended::Rewound => {
                    self.shared.known_entries.forget();
                    self.shared.forget_compacted();
                    self.shared.client.forget_seen();
                    self.start_over("etcd went back to an earlier state").await;
                }
            }
        }
    }

    async fn open(&mut self) -> Result<Session, Ended> {
        let shared = &self.shared;
        let connection = shared.client.endpoints.dial(self.target, Pings::Always).await?;
        self.target = connection.target;
        let progress = shared.client.progress_of(&connection).await?;
        // Over the same connection: the member must have come as far as the hub before it is asked for what follows.
        let (seen, position) = (shared.client.seen(), shared.hub.position());
        let newest = shared
            .client
            .range_over(&connection, shared.probe(0))
            .await?
            .header
            .unwrap_or_default();
        let same = *self.cluster.get_or_insert(newest.cluster_id) == newest.cluster_id;
        if !same || unsigned(newest.revision) < position.max(seen) {
            self.cluster = Some(newest.cluster_id);
            return Err(Ended::Rewound);
        }
        let first = watch_request(shared.layout.whole(), position);
        let mut conversation = shared.client.converse(&connection, first).await?;
        let answer = hear(&mut conversation).await?;
        check(&answer)?;
        self.backoff = FIRST_BACKOFF;
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Ok(()));
        }
        let assembler = Assembler::new(shared.layout.clone(), KeyRange::All, position);
        Ok(Session {
            conversation,
            progress,
            assembler,
            history_until: unsigned(newest.revision),
            ask_at: None,
        })
    }

    async fn follow(&self, mut session: Session) -> Ended {
        loop {
            let outcome = tokio::select! {
                answer = hear(&mut session.conversation) => match answer {
                    Ok(answer) => self.take_in(&mut session, answer).await,
                    Err(failure) => Err(failure.into()),
                },
                () = self.shared.client.news.notified(), if session.ask_at.is_none() => {
                    session.ask_at = Some(Instant::now() + ASK_AFTER);
                    Ok(())
                }
                () = until(session.ask_at) => {
                    self.ask(&mut session);
                    Ok(())
                }
            };
            if let Err(ended) = outcome {
                return ended;
            }
        }
    }

    async fn take_in(&self, session: &mut Session, answer: WatchResponse) -> Result<(), Ended> {
        check(&answer)?;
        let hub = &self.shared.hub;
        if answer.events.is_empty() {
            let revision = answer.header.map_or(Revision(0), |header| unsigned(header.revision));
            let believed = session.progress == Progress::Requested && !answer.created && !answer.fragment;
            if believed && !session.assembler.is_open() && revision > hub.position() {
                self.check_history(session).await?;
                hub.publish([], revision);
            }
            return Ok(());
        }
        session.assembler.add(answer.events)?;
        if !answer.fragment {
            session.assembler.close();
        }
        let (signals, complete) = session.assembler.take();
        if complete <= hub.position() {
            return Ok(());
        }
        self.check_history(session).await?;
        // Before they are published: whoever sees the hub's new position must find the changes up to it noted.
        self.shared.quiet.changed(planes_of(&signals));
        hub.publish(signals, complete);
        Ok(())
    }

    /// Makes sure, while events come from etcd's history, that nothing after the hub's position is missing from it.
    async fn check_history(&self, session: &Session) -> Result<(), Ended> {
        let position = self.shared.hub.position();
        if position < session.history_until && !self.shared.is_readable(position).await? {
            return Err(Ended::HistoryLost("etcd compacted what was to come"));
        }
        Ok(())
    }

    /// Finds out how far the watch has come, if that is of interest.
    fn ask(&self, session: &mut Session) {
        session.ask_at = None;
        let behind = self.shared.client.seen() > self.shared.hub.position();
        if !behind || self.shared.hub.live_watchers() == 0 {
            return;
        }
        match session.progress {
            // If there is no room the last request is not sent yet.
            Progress::Requested => drop(session.conversation.say.try_send(progress_request())),
            Progress::Heartbeat => {
                let shared = self.shared.clone();
                tokio::spawn(async move { shared.beat().await });
            }
        }
        session.ask_at = Some(Instant::now() + ASK_AFTER);
    }

    /// Ends all watches and goes on from the newest revision.
    async fn start_over(&self, why: &'static str) {
        tracing::warn!(why, "events were lost: all watches have to start over");
        loop {
            match self.shared.client.range(self.shared.probe(0)).await {
                Ok(answer) => {
                    let newest = answer.header.map_or(Revision(0), |header| unsigned(header.revision));
                    self.shared.quiet.reset(newest);
                    self.shared.hub.reset(newest);
                    return;
                }
                Err(failure) => {
                    tracing::warn!(%failure, "cannot learn etcd's newest revision");
                    tokio::time::sleep(jitter(LAST_BACKOFF)).await;
                }
            }
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A watch of everything in a span after a revision.
pub fn watch_request(span: Span, after: Revision) -> WatchRequest {
    let command = WatchCommand::Create(WatchCreateRequest {
        key: span.start,
        range_end: span.end,
        start_revision: signed(after).saturating_add(1),
        prev_kv: true,
        fragment: true,
    });
    WatchRequest { command: Some(command) }
}

/// The next answer. Dropping the future loses nothing.
pub async fn hear(conversation: &mut Conversation) -> Result<WatchResponse, Failure> {
    match conversation.hear.message().await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(Failure::lost("etcd closed the watch")),
        Err(status) => Err(Failure::from_status(status).0),
    }
}

/// Whether an answer is the end of the watch.
pub fn check(answer: &WatchResponse) -> Result<(), Ended> {
    let reason = &answer.cancel_reason;
    match answer.canceled {
        false => Ok(()),
        true if answer.compact_revision > 0 || reason.contains("compacted") => {
            Err(Ended::HistoryLost("etcd compacted what was to come"))
        }
        true if reason.contains("permission denied") => Err(Failure::Denied(reason.clone()).into()),
        true if reason.contains("auth token") || reason.contains("auth store") || reason.contains("user name") => {
            Err(Failure::LoggedOut(reason.clone().into()).into())
        }
        true => Err(Failure::lost(format!("etcd ended the watch: {reason}")).into()),
    }
}
