//! The hub's memory of recent signals.
//!
//! Invariant: every signal after `floor` up to `position` is here, ordered by revision.

use std::collections::VecDeque;

use crate::store::{Revision, Signal};

use super::{Limits, revision_of, weight_of};

pub(super) struct Ring {
    signals: VecDeque<Signal>,
    bytes: usize,
    floor: Revision,
    position: Revision,
    closed: bool,
}

impl Ring {
    pub(super) fn new(position: Revision) -> Self {
        Self {
            signals: VecDeque::new(),
            bytes: 0,
            floor: position,
            position,
            closed: false,
        }
    }

    pub(super) fn push(&mut self, signal: Signal, limits: &Limits) {
        self.bytes += weight_of(&signal);
        self.signals.push_back(signal);
        while self.signals.len() > limits.ring || self.bytes > limits.ring_bytes {
            let Some(oldest) = self.signals.pop_front() else { break };
            self.bytes -= weight_of(&oldest);
            self.floor = revision_of(&oldest);
        }
    }

    pub(super) fn advance(&mut self, position: Revision) {
        self.position = position;
    }

    pub(super) fn forget(&mut self, position: Revision) {
        let closed = self.closed;
        *self = Self::new(position);
        self.closed = closed;
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn position(&self) -> Revision {
        self.position
    }

    /// Whether every signal after `after` is still here.
    pub(super) fn reaches_back_to(&self, after: Revision) -> bool {
        after >= self.floor
    }

    /// The signals after `after`, in order.
    pub(super) fn after(&self, after: Revision) -> impl Iterator<Item = &Signal> {
        let start = self.signals.partition_point(|signal| revision_of(signal) <= after);
        self.signals.range(start..)
    }
}
