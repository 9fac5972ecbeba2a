//! What this replica holds: decides without a clock or a server of its own.
//!
//! Invariant: a slot is worked on only while its holder in the table is this replica under the same epoch, and this replica's
//! lease has not run out since it was claimed. Whoever was late once holds nothing, and claims anew under a higher epoch.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::super::plan::{Epoch, Holder, Move, Table, next_moves};
use super::super::rendezvous::{Peer, SLOTS, Slot};
use super::super::term::{Tenure, Term};

pub(super) struct Shares {
    me: String,
    handover: Duration,
    held: HashMap<Slot, Held>,
    /// Held no more, with work that was told to stop and has not yet: such a slot is not claimed again before.
    lingering: HashMap<Slot, Term>,
    /// When this replica must stop unless its lease is renewed.
    until: Option<Instant>,
    /// How often it was late: what was planned before is void.
    lapses: u64,
    /// Changes whenever answers do.
    version: u64,
}

struct Held {
    term: Term,
    leaving: Option<Leaving>,
}

struct Leaving {
    since: Instant,
    work: Work,
}

/// What there is still to do on a slot that is handed over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// What is under way may finish.
    Finishes,
    /// It took too long, and was told to stop.
    Stops,
    /// Nothing: it is, or will be, free in the table, and another may have it before we hear that.
    Done,
}

/// What is to be written into the table.
#[derive(Default, PartialEq, Debug)]
pub(super) struct Changes {
    pub(super) free: Vec<Slot>,
    pub(super) claim: Vec<(Slot, Epoch)>,
    lapses: u64,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.free.is_empty() && self.claim.is_empty()
    }

    pub(super) fn write_into(&self, me: &str, table: &mut Table) {
        for slot in &self.free {
            let holder = table.entry(*slot).or_insert_with(nobody);
            holder.replica.clear();
        }
        for (slot, epoch) in &self.claim {
            let holder = Holder {
                replica: me.to_owned(),
                epoch: *epoch,
            };
            table.insert(*slot, holder);
        }
    }
}

fn nobody() -> Holder {
    Holder {
        replica: String::new(),
        epoch: 0,
    }
}

impl Shares {
    pub(super) fn new(me: String, handover: Duration) -> Self {
        Self {
            me,
            handover,
            held: HashMap::new(),
            lingering: HashMap::new(),
            until: None,
            lapses: 0,
            version: 0,
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn owns(&self, slot: Slot, now: Instant) -> Option<Epoch> {
        self.valid(now)?;
        self.held.get(&slot)?.term.begins()
    }

    pub(super) fn holds(&self, slot: Slot, now: Instant) -> Option<Epoch> {
        self.valid(now)?;
        let held = self.held.get(&slot)?;
        let given = held.leaving.as_ref().is_some_and(|leaving| leaving.work == Work::Done);
        (!given).then(|| held.term.epoch())
    }

    pub(super) fn begin(&self, slot: Slot, now: Instant) -> Option<Tenure> {
        self.valid(now)?;
        self.held.get(&slot)?.term.begin()
    }

    /// Some while the lease has not run out.
    pub(super) fn valid(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// When something must be done though nothing happens: the lease runs out, or a slot's work must be told to stop.
    pub(super) fn due(&self) -> Option<Instant> {
        let told = self.held.values().filter_map(|held| held.leaving.as_ref());
        let stops = told
            .filter(|leaving| leaving.work == Work::Finishes)
            .map(|leaving| leaving.since + self.handover);
        stops.chain(self.until).min()
    }

    /// The lease was renewed by what was sent then.
    pub(super) fn renewed(&mut self, until: Instant, now: Instant) {
        self.expire(now);
        self.until = (now < until).then_some(until);
    }

    /// What ran out ends.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.valid(now).is_none() && self.until.take().is_some() {
            self.lapses += 1;
            self.version += 1;
            for (slot, held) in self.held.drain() {
                held.term.end();
                self.lingering.insert(slot, held.term);
            }
        }
        self.lingering.retain(|_, term| !term.is_through());
        for held in self.held.values_mut() {
            if let Some(leaving) = &mut held.leaving
                && leaving.work == Work::Finishes
                && now >= leaving.since + self.handover
            {
                leaving.work = Work::Stops;
                held.term.end();
                self.version += 1;
            }
        }
    }

    /// The table was read: what it does not give us is not ours.
    pub(super) fn follow(&mut self, table: &Table) {
        let me = &self.me;
        let lost = self.held.extract_if(|slot, held| {
            let holder = table.get(slot);
            holder.is_none_or(|holder| holder.replica != *me || holder.epoch != held.term.epoch())
        });
        for (slot, held) in lost {
            self.version += 1;
            held.term.end();
            self.lingering.insert(slot, held.term);
        }
    }

    /// What to do next: slots that another should have take no more work from now on; those that are through are freed.
    pub(super) fn plan(&mut self, table: &Table, alive: &[Peer], now: Instant) -> Changes {
        self.expire(now);
        let mut changes = Changes {
            lapses: self.lapses,
            ..Changes::default()
        };
        if self.valid(now).is_none() {
            return changes;
        }
        let mut released = [false; SLOTS as usize];
        let next = |slot: Slot| table.get(&slot).map_or(0, |holder| holder.epoch) + 1;
        for step in next_moves(&self.me, table, alive) {
            match step {
                Move::Claim(slot) => changes.claim.push((slot, next(slot))),
                Move::Release(slot) => {
                    released[usize::from(slot)] = true;
                    match self.held.get_mut(&slot) {
                        // Held in an earlier life, or when the lease had run out.
                        None => changes.free.push(slot),
                        Some(held) if held.leaving.is_none() => {
                            self.version += 1;
                            held.term.close();
                            held.leaving = Some(Leaving {
                                since: now,
                                work: Work::Finishes,
                            });
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        for (slot, holder) in table {
            let ours = holder.replica == self.me && !released[usize::from(*slot)];
            // Ours by the table, and not worked on: under a new epoch it can be.
            if ours && !self.held.contains_key(slot) {
                changes.claim.push((*slot, next(*slot)));
            }
        }
        changes.claim.retain(|(slot, _)| !self.lingering.contains_key(slot));
        for (slot, held) in &mut self.held {
            if let Some(leaving) = &mut held.leaving
                && held.term.is_through()
            {
                leaving.work = Work::Done;
                changes.free.push(*slot);
            }
        }
        changes
    }

    /// What was planned is in the table.
    pub(super) fn wrote(&mut self, changes: &Changes, now: Instant) {
        self.expire(now);
        if changes.lapses != self.lapses || self.valid(now).is_none() {
            return;
        }
        self.version += 1;
        for slot in &changes.free {
            self.held.remove(slot);
        }
        for (slot, epoch) in &changes.claim {
            let held = Held {
                term: Term::new(*epoch),
                leaving: None,
            };
            self.held.insert(*slot, held);
        }
    }

    /// How many slots are worked on, and how many are being handed over.
    pub(super) fn count(&self) -> (usize, usize) {
        let leaving = self.held.values().filter(|held| held.leaving.is_some()).count();
        (self.held.len() - leaving, leaving)
    }

    /// Until a slot that is being handed over is through, of those that are not.
    pub(super) fn through(&self) -> Vec<impl Future<Output = ()> + Send + 'static + use<>> {
        let leaving = self.held.values().filter(|held| held.leaving.is_some());
        let under_way = leaving.filter(|held| !held.term.is_through());
        under_way.map(|held| held.term.ended()).collect()
    }
}

#[cfg(test)]
mod tests;
