//! Writing the index out: checkpoints, and merging its files.
//!
//! A checkpoint bounds what a restart replays and what the index keeps in memory. If it cannot be written, nothing is
//! lost: the log has everything. It is tried again, and meanwhile the store stops growing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::commit::{Job, Request};
use super::index::checkpoint::Checkpoint;
use super::read::{Damage, Engine};
use super::signal::{Signals, Stuck, Wake};

const RETRY: Duration = Duration::from_millis(500);

pub(super) struct Tender {
    engine: Arc<Engine>,
    signals: Arc<Signals>,
    requests: mpsc::Sender<Request>,
    directory: PathBuf,
    /// Sealed but not written yet, because that failed.
    unfinished: Option<Checkpoint>,
}

impl Tender {
    pub(super) fn new(
        engine: Arc<Engine>,
        signals: Arc<Signals>,
        requests: mpsc::Sender<Request>,
        directory: PathBuf,
    ) -> Self {
        Self {
            engine,
            signals,
            requests,
            directory,
            unfinished: None,
        }
    }

    pub(super) fn run(mut self) {
        while self.signals.wait_for_checkpoint_request() == Wake::Work {
            match guarded(|| self.checkpoint()) {
                Ok(()) => self.signals.checkpoint_done(),
                Err(damage) => {
                    tracing::error!(damage = damage.text(), "the index could not be written out");
                    self.signals
                        .checkpoint_failed(if damage.is_full() { Stuck::Full } else { Stuck::Failing });
                    self.signals.pause(RETRY);
                    continue;
                }
            }
            if let Err(damage) = guarded(|| self.engine.index.merge(|| self.signals.is_closing())) {
                tracing::error!(damage = damage.text(), "the index's files could not be merged");
            }
        }
    }

    fn checkpoint(&mut self) -> Result<(), Damage> {
        let checkpoint = match self.unfinished.take() {
            Some(unfinished) => unfinished,
            None => {
                let (reply, sealed) = std::sync::mpsc::channel();
                let sent = self.requests.blocking_send(Request::Job(Job::Seal(reply)));
                let Some(checkpoint) = sent.ok().and_then(|()| sealed.recv().ok()) else {
                    return Ok(());
                };
                checkpoint
            }
        };
        let written = self
            .engine
            .index
            .flush()
            .and_then(|()| self.engine.index.note(&checkpoint, &self.directory));
        if written.is_err() {
            self.unfinished = Some(checkpoint);
        }
        written
    }
}

/// The engine below panics on some kinds of damage; the thread has to outlive that, or writers would wait for it.
fn guarded(work: impl FnOnce() -> Result<(), Damage>) -> Result<(), Damage> {
    let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    worked.unwrap_or_else(|_| Err(Damage::Corrupt("the index's engine panicked".to_owned())))
}
