//! Who takes part: replicas whose leases change, by our own clock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::super::Peer;

/// A lease that has not changed for so many times as long as it lasts is litter.
const LITTER: u32 = 20;

/// What a replica's lease says.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) replica: String,
    pub(super) version: String,
    pub(super) weight: f64,
    pub(super) lasts: Duration,
}

/// What was seen of each replica, and when.
pub(super) struct Members {
    known: HashMap<String, Known>,
    /// How long one is waited for that holds slots and has no lease.
    lease: Duration,
}

struct Known {
    /// `None`: it has no lease, and the table names it.
    version: Option<String>,
    weight: f64,
    lasts: Duration,
    /// When we first saw it like this.
    at: Instant,
}

impl Known {
    fn alive(&self, now: Instant) -> bool {
        now < self.at + self.lasts
    }
}

impl Members {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            known: HashMap::new(),
            lease,
        }
    }

    /// All leases were read, and the table that names these holders.
    pub(super) fn saw<'a>(&mut self, leases: Vec<Said>, holders: impl Iterator<Item = &'a str>, now: Instant) {
        let holders: HashSet<&str> = holders.filter(|holder| !holder.is_empty()).collect();
        let present: HashSet<String> = leases.iter().map(|said| said.replica.clone()).collect();
        for said in leases {
            let same = self
                .known
                .get(&said.replica)
                .filter(|known| known.version.as_ref() == Some(&said.version));
            let at = same.map_or(now, |known| known.at);
            let known = Known {
                version: Some(said.version),
                weight: said.weight,
                lasts: said.lasts.max(self.lease),
                at,
            };
            self.known.insert(said.replica, known);
        }
        self.known
            .retain(|name, _| present.contains(name) || holders.contains(name.as_str()));
        // A lease that somebody removed does not end the replica: its slots are left to it for as long as the lease could last.
        for holder in holders.into_iter().filter(|holder| !present.contains(*holder)) {
            let ghost = Known {
                version: None,
                weight: 0.0,
                lasts: self.lease,
                at: now,
            };
            let known = self.known.entry(holder.to_owned()).or_insert(ghost);
            if known.version.take().is_some() {
                *known = Known {
                    version: None,
                    weight: 0.0,
                    lasts: known.lasts,
                    at: now,
                };
            }
        }
    }

    /// Those that may hold slots now. One without a weight gets no more.
    pub(super) fn alive(&self, now: Instant) -> Vec<Peer> {
        let alive = self.known.iter().filter(|(_, known)| known.alive(now));
        alive
            .map(|(name, known)| Peer {
                name: name.clone(),
                weight: known.weight,
            })
            .collect()
    }

    /// Leases that were left behind long ago.
    pub(super) fn litter(&self, now: Instant) -> Vec<String> {
        let litter = self
            .known
            .iter()
            .filter(|(_, known)| known.version.is_some() && now >= known.at + known.lasts * LITTER);
        litter.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn said(replica: &str, version: u32) -> Said {
        Said {
            replica: replica.to_owned(),
            version: version.to_string(),
            weight: 1.0,
            lasts: LEASE,
        }
    }

    fn alive(members: &Members, now: Instant) -> Vec<(String, f64)> {
        let mut alive: Vec<_> = members
            .alive(now)
            .into_iter()
            .map(|peer| (peer.name, peer.weight))
            .collect();
        alive.sort_by(|a, b| a.0.cmp(&b.0));
        alive
    }

    #[test]
    fn a_replica_is_alive_while_its_lease_changes() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut members = Members::new(LEASE);
        members.saw(vec![said("a", 1), said("b", 1)], ["a", "b"].into_iter(), at(0));
        members.saw(vec![said("a", 2), said("b", 1)], ["a", "b"].into_iter(), at(10));
        assert_eq!(alive(&members, at(14)).len(), 2);
        assert_eq!(
            alive(&members, at(15)),
            [("a".to_owned(), 1.0)],
            "b is dead 15 s after it was seen"
        );
        assert!(alive(&members, at(25)).is_empty());
        assert_eq!(members.litter(at(300)), ["b"]);
        members.saw(vec![said("b", 2)], std::iter::empty(), at(301));
        assert_eq!(
            alive(&members, at(301)),
            [("b".to_owned(), 1.0)],
            "it is back, and a has gone"
        );
    }

    #[test]
    fn a_holder_without_a_lease_is_waited_for_once() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut members = Members::new(LEASE);
        members.saw(vec![said("a", 1)], ["a", "ghost"].into_iter(), at(0));
        let both = [("a".to_owned(), 1.0), ("ghost".to_owned(), 0.0)];
        assert_eq!(alive(&members, at(14)), both);
        members.saw(vec![said("b", 1)], ["a", "ghost", ""].into_iter(), at(14));
        let all = [("a".to_owned(), 0.0), ("b".to_owned(), 1.0), ("ghost".to_owned(), 0.0)];
        assert_eq!(
            alive(&members, at(14)),
            all,
            "a's lease was removed: it gets nothing more"
        );
        members.saw(vec![said("b", 2)], ["a", "ghost"].into_iter(), at(28));
        assert_eq!(
            alive(&members, at(29)),
            [("b".to_owned(), 1.0)],
            "the wait does not begin anew"
        );
    }
}
