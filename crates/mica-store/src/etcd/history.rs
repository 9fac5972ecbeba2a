//! Watches that begin before the hub's memory: a temporary etcd watch supplies what lies between.
//!
//! On an etcd whose progress can be believed, only the watched range and the announcements of dropped planes are asked for;
//! what several etcd watches bring is put in order whenever etcd says how far all of them are. Elsewhere a quiet range would
//! never say that it is complete, so everything is asked for and sifted here: any later event then shows how far it has come.
//!
//! Each has a connection of its own: a reader that stops reading fills that connection's window and nobody else's.

use std::sync::Arc;

use async_trait::async_trait;
use prost::Message;
use tokio::time::{Instant, sleep, sleep_until};

use super::Shared;
use super::assemble::Assembler;
use super::client::{Conversation, unsigned};
use super::endpoint::Pings;
use super::failure::Failure;
use super::layout::{Layout, Place, Span};
use super::progress::{ASK_AFTER, Progress, progress_request};
use super::proto::{Event, WatchResponse};
use super::pump::{Ended, check, hear, watch_request};
use crate::hub::{History, HistoryPage};
use crate::key::KeyRange;
use crate::store::{Revision, WatchError};

/// How often a broken connection is replaced before the reader is told to start over.
const MAX_BREAKS: usize = 5;
/// What a narrow watch may hold while it waits to learn how far it has come.
const MAX_UNORDERED: usize = 64 << 20;

pub struct EtcdHistory {
    shared: Arc<Shared>,
    range: KeyRange,
    open: Option<Open>,
    breaks: usize,
}

struct Open {
    conversation: Conversation,
    assembler: Assembler,
    mode: Mode,
    ask_at: Instant,
    /// Revisions up to here have been received, but not handed out yet.
    received: Option<Revision>,
}

enum Mode {
    /// One watch of everything: its events are in order.
    Everything,
    /// Several watches: their events are in order each, and complete only up to the progress of all.
    Narrow { unordered: Vec<Event>, bytes: usize },
}

impl EtcdHistory {
    pub fn new(shared: Arc<Shared>, range: KeyRange) -> Self {
        Self {
            shared,
            range,
            open: None,
            breaks: 0,
        }
    }

    async fn open(&self, after: Revision) -> Result<Open, Failure> {
        let client = &self.shared.client;
        let connection = client.endpoints.dial(self.breaks, Pings::Always).await?;
        let progress = client.progress_of(&connection).await?;
        let layout = &self.shared.layout;
        let (mode, spans) = match (progress, layout.place(&self.range, None)) {
            (Progress::Requested, Place::Contiguous(span)) => (
                Mode::Narrow {
                    unordered: Vec::new(),
                    bytes: 0,
                },
                narrow(layout, &self.range, span),
            ),
            _ => (Mode::Everything, vec![layout.whole()]),
        };
        let mut requests = spans.into_iter().map(|span| watch_request(span, after));
        let first = requests.next().expect("at least one span is watched");
        let conversation = client.converse(&connection, first).await?;
        for request in requests {
            conversation
                .say
                .try_send(request)
                .map_err(|_| Failure::lost("etcd closed the watch"))?;
        }
        let assembler = Assembler::new(layout.clone(), self.range.clone(), after);
        Ok(Open {
            conversation,
            assembler,
            mode,
            ask_at: Instant::now() + ASK_AFTER,
            received: None,
        })
    }

    /// Receives until something after `after` is complete.
    async fn advance(&mut self, after: Revision) -> Result<HistoryPage, Ended> {
        if self.open.is_none() {
            self.open = Some(self.open(after).await?);
        }
        let open = self.open.as_mut().expect("it was opened above");
        loop {
            if let Some(covered) = open.received {
                // As long as the state after `after` can be read, nothing after it was compacted before it was sent.
                if !self.shared.is_readable(after).await? {
                    return Err(Ended::HistoryLost("etcd compacted what was to come"));
                }
                open.received = None;
                return Ok(HistoryPage {
                    signals: open.assembler.take().0,
                    covered,
                });
            }
            tokio::select! {
                answer = hear(&mut open.conversation) => open.take_in(answer?, after)?,
                () = sleep_until(open.ask_at) => {
                    open.ask_at = Instant::now() + ASK_AFTER;
                    match open.mode {
                        Mode::Narrow { .. } => drop(open.conversation.say.try_send(progress_request())),
                        Mode::Everything => self.shared.beat().await,
                    }
                }
            }
        }
    }
}

/// The range itself and everything that could announce that a plane of it was dropped.
fn narrow(layout: &Layout, range: &KeyRange, span: Span) -> Vec<Span> {
    let index = range
        .plane()
        .map_or_else(|| layout.index(), |plane| layout.index_of(plane));
    vec![span, index, Span::only(layout.dropped())]
}

impl Open {
    fn take_in(&mut self, answer: WatchResponse, after: Revision) -> Result<(), Ended> {
        check(&answer)?;
        match &mut self.mode {
            Mode::Everything => {
                self.assembler.add(answer.events)?;
                if !answer.fragment {
                    self.assembler.close();
                }
                self.received = Some(self.assembler.complete()).filter(|complete| *complete > after);
            }
            Mode::Narrow { unordered, bytes } if !answer.events.is_empty() => {
                *bytes += answer.events.iter().map(Message::encoded_len).sum::<usize>();
                if *bytes > MAX_UNORDERED {
                    return Err(Ended::HistoryLost("too much happened to put it in order"));
                }
                unordered.extend(answer.events);
            }
            Mode::Narrow { unordered, bytes } if !answer.created => {
                let progress = answer.header.map_or(Revision(0), |header| unsigned(header.revision));
                *bytes = 0;
                let mut events = std::mem::take(unordered);
                events.sort_by_key(|event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision));
                self.assembler.add(events)?;
                self.assembler.close();
                self.received = Some(progress).filter(|progress| *progress > after);
            }
            Mode::Narrow { .. } => {}
        }
        Ok(())
    }
}

#[async_trait]
impl History for EtcdHistory {
    async fn page(&mut self, after: Revision) -> Result<HistoryPage, WatchError> {
        loop {
            match self.advance(after).await {
                Ok(page) => return Ok(page),
                Err(Ended::Broken(failure)) if self.breaks < MAX_BREAKS => {
                    tracing::debug!(%failure, "a watch of etcd's history was interrupted and will be resumed");
                    self.breaks += 1;
                    self.open = None;
                    sleep(ASK_AFTER).await;
                }
                Err(_) => return Err(WatchError::Lagged),
            }
        }
    }
}
