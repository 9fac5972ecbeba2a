//! Who leads, by one lease: decides without a clock or a server of its own.
//!
//! Invariant: of all that use the same lease, at most one leads at any moment. It leads for `renew` from when it *sent* what won or
//! renewed the lease; others wait for as long as the lease lasts from when they *saw* it change, which is later and longer.

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::Epoch;
use super::lease::{Record, Timing};

pub(super) struct Election {
    me: String,
    timing: Timing,
    seen: Option<Seen>,
    leads: Option<Leads>,
}

struct Seen {
    record: Record,
    version: String,
    /// When it was first seen like this, by our own clock.
    at: Instant,
}

#[derive(Clone, Copy)]
struct Leads {
    epoch: Epoch,
    until: Instant,
}

/// A write that is to be sent.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) record: Record,
    /// The version that it replaces; `None` makes the lease.
    pub(super) version: Option<String>,
    pub(super) sent: Instant,
}

impl Election {
    pub(super) fn new(me: String, timing: Timing) -> Self {
        Self {
            me,
            timing,
            seen: None,
            leads: None,
        }
    }

    /// The epoch that we lead, if we do.
    pub(super) fn leads(&self, now: Instant) -> Option<Epoch> {
        self.leads.filter(|leads| now < leads.until).map(|leads| leads.epoch)
    }

    /// Until when we lead unless we renew.
    pub(super) fn until(&self) -> Option<Instant> {
        self.leads.map(|leads| leads.until)
    }

    /// The lease was read; `None` if there is none.
    pub(super) fn saw(&mut self, lease: Option<(Record, String)>, now: Instant) {
        self.expire(now);
        let Some((record, version)) = lease else {
            self.seen = None;
            return;
        };
        if record.holder != self.me {
            self.leads = None;
        }
        if self.seen.as_ref().is_none_or(|seen| seen.version != version) {
            self.seen = Some(Seen {
                record,
                version,
                at: now,
            });
        }
    }

    /// What to write now, if anything is to be.
    pub(super) fn attempt(&mut self, wall: Timestamp, now: Instant) -> Option<Attempt> {
        self.expire(now);
        let (transitions, acquired, version) = match &self.seen {
            None => (0, wall, None),
            Some(seen) => {
                let before = &seen.record;
                let kept = self.leads.is_some() && before.holder == self.me;
                let free = before.holder.is_empty() || before.holder == self.me || now >= seen.at + before.lasts;
                if !free {
                    return None;
                }
                let acquired = before.acquired.filter(|_| kept).unwrap_or(wall);
                let transitions = before.transitions.saturating_add(i32::from(!kept));
                (transitions, acquired, Some(seen.version.clone()))
            }
        };
        Some(Attempt {
            record: Record {
                holder: self.me.clone(),
                lasts: self.timing.lease,
                acquired: Some(acquired),
                renewed: Some(wall),
                transitions,
            },
            version,
            sent: now,
        })
    }

    /// An attempt was written, and the lease has this version now.
    pub(super) fn won(&mut self, attempt: Attempt, version: String, now: Instant) {
        let until = attempt.sent + self.timing.renew;
        let epoch = epoch_of(attempt.record.transitions);
        // Whoever was late once has lost, even if the lease says otherwise by now: somebody may have had it in between.
        let late = self
            .leads
            .is_some_and(|leads| now >= leads.until && leads.epoch == epoch);
        // What was written may also be that nobody leads.
        let ours = attempt.record.holder == self.me;
        self.leads = (ours && !late && now < until).then_some(Leads { epoch, until });
        self.seen = Some(Seen {
            record: attempt.record,
            version,
            at: now,
        });
    }

    /// An attempt failed because another was first: the lease must be read again.
    pub(super) fn lost(&mut self) {
        self.seen = None;
    }

    /// What gives the lease away at once, if it is ours.
    pub(super) fn release(&mut self, wall: Timestamp, now: Instant) -> Option<Attempt> {
        let transitions = self.seen.as_ref().filter(|_| self.leads(now).is_some());
        let (transitions, version) = transitions.map(|seen| (seen.record.transitions, seen.version.clone()))?;
        self.leads = None;
        Some(Attempt {
            record: Record {
                holder: String::new(),
                lasts: std::time::Duration::from_secs(1),
                acquired: Some(wall),
                renewed: Some(wall),
                transitions,
            },
            version: Some(version),
            sent: now,
        })
    }

    /// Leading that ran out is over for good: the next time is another epoch.
    fn expire(&mut self, now: Instant) {
        if self.leads(now).is_none() {
            self.leads = None;
        }
    }
}

fn epoch_of(transitions: i32) -> Epoch {
    u64::try_from(transitions).unwrap_or_default() + 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// A lease on a server that compares and swaps.
    #[derive(Default)]
    struct Server {
        lease: Option<Record>,
        version: u64,
    }

    impl Server {
        fn read(&self) -> Option<(Record, String)> {
            self.lease.clone().map(|lease| (lease, self.version.to_string()))
        }

        fn write(&mut self, attempt: &Attempt) -> Option<String> {
            let current = self.lease.as_ref().map(|_| self.version.to_string());
            if attempt.version != current {
                return None;
            }
            self.version += 1;
            self.lease = Some(attempt.record.clone());
            Some(self.version.to_string())
        }
    }

    fn turn(election: &mut Election, server: &mut Server, now: Instant) -> Option<Epoch> {
        election.saw(server.read(), now);
        if let Some(attempt) = election.attempt(Timestamp::UNIX_EPOCH, now) {
            match server.write(&attempt) {
                Some(version) => election.won(attempt, version, now),
                None => election.lost(),
            }
        }
        election.leads(now)
    }

    fn election(me: &str) -> Election {
        Election::new(me.to_owned(), Timing::default())
    }

    #[test]
    fn one_leads_and_another_takes_over_when_the_lease_has_run_out() {
        let (start, mut server) = (Instant::now(), Server::default());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let (mut a, mut b) = (election("a"), election("b"));
        assert_eq!(turn(&mut a, &mut server, at(0)), Some(1));
        assert_eq!(turn(&mut b, &mut server, at(1)), None);
        assert_eq!(
            turn(&mut a, &mut server, at(2)),
            Some(1),
            "renewed under the same epoch"
        );
        assert_eq!(turn(&mut b, &mut server, at(3)), None);
        assert_eq!(a.leads(at(11)), Some(1));
        assert_eq!(a.leads(at(12)), None, "it stops by itself, 10 s after its last renewal");
        assert_eq!(
            turn(&mut b, &mut server, at(17)),
            None,
            "15 s from when the change was seen"
        );
        assert_eq!(turn(&mut b, &mut server, at(18)), Some(2));
        assert_eq!(turn(&mut a, &mut server, at(18)), None);
        let lease = server.lease.clone().unwrap();
        assert_eq!((lease.holder.as_str(), lease.transitions), ("b", 1));
    }

    #[test]
    fn a_lease_that_is_released_is_taken_at_once() {
        let (now, mut server) = (Instant::now(), Server::default());
        let (mut a, mut b) = (election("a"), election("b"));
        turn(&mut a, &mut server, now);
        let release = a.release(Timestamp::UNIX_EPOCH, now).unwrap();
        assert_eq!(release.record.lasts, Duration::from_secs(1));
        assert_eq!(a.leads(now), None, "before it is even sent");
        let version = server.write(&release).unwrap();
        a.won(release, version, now);
        assert_eq!(a.leads(now), None, "nor when it is written");
        assert_eq!(turn(&mut b, &mut server, now), Some(2));
        assert!(a.release(Timestamp::UNIX_EPOCH, now).is_none());
    }

    #[test]
    fn who_finds_its_own_name_waits_for_nobody_and_leads_under_another_epoch() {
        let (now, mut server) = (Instant::now(), Server::default());
        assert_eq!(turn(&mut election("a"), &mut server, now), Some(1));
        // Killed, and started again under the same name.
        assert_eq!(turn(&mut election("a"), &mut server, now), Some(2));
    }

    #[test]
    fn who_was_late_leads_again_only_under_another_epoch() {
        let (start, mut server) = (Instant::now(), Server::default());
        let mut a = election("a");
        turn(&mut a, &mut server, start);
        let sent = start + Duration::from_secs(9);
        let attempt = a.attempt(Timestamp::UNIX_EPOCH, sent).unwrap();
        let version = server.write(&attempt).unwrap();
        let answered = start + Duration::from_secs(11);
        a.won(attempt, version, answered);
        assert_eq!(a.leads(answered), None, "it did not lead for a moment");
        assert_eq!(turn(&mut a, &mut server, answered), Some(2));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Pass(u64),
        Read(usize),
        Send(usize),
        Arrive(usize),
        Answer(usize),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..6000).prop_map(Step::Pass),
            (0usize..3).prop_map(Step::Read),
            (0usize..3).prop_map(Step::Send),
            (0usize..3).prop_map(Step::Arrive),
            (0usize..3).prop_map(Step::Answer),
            (0usize..3).prop_map(Step::Release),
        ]
    }

    proptest! {
        /// Reads and writes are delayed, lost and answered late, in any order: nobody leads beside another, and every new leader
        /// has a higher epoch.
        #[test]
        fn at_most_one_leads_whatever_is_late(steps in prop::collection::vec(step(), 0..200)) {
            let mut now = Instant::now();
            let mut server = Server::default();
            let mut all: Vec<_> = ["a", "b", "c"].into_iter().map(election).collect();
            let mut sent: Vec<Option<Attempt>> = vec![None; 3];
            let mut answers: Vec<Option<(Attempt, Option<String>)>> = vec![None; 3];
            let mut last = (usize::MAX, 0);
            for step in steps {
                match step {
                    Step::Pass(millis) => now += Duration::from_millis(millis),
                    Step::Read(i) => all[i].saw(server.read(), now),
                    Step::Send(i) => sent[i] = all[i].attempt(Timestamp::UNIX_EPOCH, now),
                    Step::Release(i) => if let Some(attempt) = all[i].release(Timestamp::UNIX_EPOCH, now) {
                        sent[i] = Some(attempt);
                    },
                    Step::Arrive(i) => if let Some(attempt) = sent[i].take() {
                        let version = server.write(&attempt);
                        answers[i] = Some((attempt, version));
                    },
                    Step::Answer(i) => match answers[i].take() {
                        Some((attempt, Some(version))) => all[i].won(attempt, version, now),
                        Some((_, None)) => all[i].lost(),
                        None => {}
                    },
                }
                let leaders: Vec<_> = (0..3).filter_map(|i| Some((i, all[i].leads(now)?))).collect();
                prop_assert!(leaders.len() <= 1, "{leaders:?}");
                if let Some(leader) = leaders.first() {
                    prop_assert!(*leader == last || leader.1 > last.1, "{last:?} then {leader:?}");
                    last = *leader;
                }
            }
        }
    }
}
