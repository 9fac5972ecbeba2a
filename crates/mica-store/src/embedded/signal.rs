//! How the committer and the background threads tell each other what there is to do.
//!
//! State, not messages: whoever looks late sees the same as who looked in time.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

pub(super) struct Signals {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    log: LogSize,
    checkpoint_due: bool,
    /// One was begun and is not written yet.
    checkpoint_running: bool,
    checkpoints: u64,
    index_stuck: Option<Stuck>,
    /// A compaction was announced whose left-overs are not removed yet.
    forget_due: bool,
    soonest_expiry: Option<u64>,
    closing: bool,
}

/// The log's size, and how much of it is still referred to.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LogSize {
    pub(super) bytes: u64,
    pub(super) live: u64,
    /// All bytes ever written, since this process opened the store.
    pub(super) written: u64,
    /// Segment and offset behind the last frame.
    pub(super) end: Option<(u32, u64)>,
}

/// Why the index cannot be written out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stuck {
    Full,
    Failing,
}

/// Why the background was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wake {
    Work,
    Closing,
}

impl Signals {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    fn change(&self, act: impl FnOnce(&mut State)) {
        act(&mut self.state.lock());
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        self.change(|state| state.closing = true);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Called after everything the committer does.
    pub(super) fn report(&self, log: LogSize, checkpoint_due: bool) {
        let mut state = self.state.lock();
        state.log = log;
        if checkpoint_due && !state.checkpoint_due {
            state.checkpoint_due = true;
            self.changed.notify_all();
        }
    }

    pub(super) fn log_size(&self) -> LogSize {
        self.state.lock().log
    }

    pub(super) fn compacted(&self) {
        self.change(|state| state.forget_due = true);
    }

    /// Whether left-overs of a compaction are to be removed; asking takes the task.
    pub(super) fn take_forget_due(&self) -> bool {
        std::mem::take(&mut self.state.lock().forget_due)
    }

    /// A key expires at this time, in milliseconds since 1970.
    pub(super) fn expires_at(&self, time: u64) {
        let mut state = self.state.lock();
        if state.soonest_expiry.is_none_or(|soonest| time < soonest) {
            state.soonest_expiry = Some(time);
            self.changed.notify_all();
        }
    }

    pub(super) fn soonest_expiry(&self) -> Option<u64> {
        self.state.lock().soonest_expiry
    }

    /// Forgets the soonest expiry before the keys are looked at: one noted meanwhile is not lost.
    pub(super) fn take_soonest_expiry(&self) -> Option<u64> {
        self.state.lock().soonest_expiry.take()
    }

    /// Waits until something is to be done, at most until a moment.
    pub(super) fn wait_for_work(&self, now_ms: impl Fn() -> u64, until: Instant) -> Wake {
        let mut state = self.state.lock();
        loop {
            if state.closing {
                return Wake::Closing;
            }
            let expiry = state
                .soonest_expiry
                .map(|time| Duration::from_millis(time.saturating_sub(now_ms())));
            if state.forget_due || expiry == Some(Duration::ZERO) || Instant::now() >= until {
                return Wake::Work;
            }
            let deadline = expiry.map_or(until, |wait| until.min(Instant::now() + wait));
            self.changed.wait_until(&mut state, deadline);
        }
    }

    /// Waits, but not once the store is closing.
    pub(super) fn pause(&self, time: Duration) -> Wake {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.closing && Instant::now() < until {
            self.changed.wait_until(&mut state, until);
        }
        if state.closing { Wake::Closing } else { Wake::Work }
    }

    /// Asks for a checkpoint of everything written so far; the number is reached when it is there.
    pub(super) fn request_checkpoint(&self) -> u64 {
        let mut state = self.state.lock();
        state.checkpoint_due = true;
        self.changed.notify_all();
        // One that is under way began before: only the one after it will do.
        state.checkpoints + 1 + u64::from(state.checkpoint_running)
    }

    /// Waits until a checkpoint is there, or until it is known not to come soon.
    pub(super) fn wait_for_checkpoint_number(&self, number: u64) -> Wake {
        let mut state = self.state.lock();
        while state.checkpoints < number && state.index_stuck.is_none() {
            if state.closing {
                return Wake::Closing;
            }
            state.checkpoint_due = true;
            self.changed.notify_all();
            self.changed.wait_for(&mut state, Duration::from_millis(100));
        }
        Wake::Work
    }

    /// Waits until a checkpoint is asked for; asking takes the task.
    pub(super) fn wait_for_checkpoint_request(&self) -> Wake {
        let mut state = self.state.lock();
        loop {
            if state.closing {
                return Wake::Closing;
            }
            if std::mem::take(&mut state.checkpoint_due) {
                state.checkpoint_running = true;
                return Wake::Work;
            }
            self.changed.wait(&mut state);
        }
    }

    pub(super) fn checkpoint_done(&self) {
        self.change(|state| {
            state.checkpoints += 1;
            state.checkpoint_running = false;
            state.index_stuck = None;
        });
    }

    pub(super) fn checkpoint_failed(&self, stuck: Stuck) {
        self.change(|state| {
            state.index_stuck = Some(stuck);
            state.checkpoint_due = true;
        });
    }

    /// Why the index cannot be written out, if it cannot.
    pub(super) fn index_stuck(&self) -> Option<Stuck> {
        self.state.lock().index_stuck
    }

    /// Waits for a checkpoint to end, or a little.
    pub(super) fn wait_for_checkpoint(&self) {
        let mut state = self.state.lock();
        self.changed.wait_for(&mut state, Duration::from_millis(10));
    }
}
