//! Which replica should hold a slot: the one with the highest score, so that a replica that comes or goes moves only its part.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::request::ClusterName;

/// How many parts the fleet is divided into: enough that a few dozen replicas have about as much each.
pub const SLOTS: u16 = 1024;

/// A part of the fleet.
pub type Slot = u16;

/// A replica that takes part.
#[derive(Clone, PartialEq, Debug)]
pub struct Peer {
    pub name: String,
    /// How much of the fleet it takes compared with others; one that has no weight takes nothing.
    pub weight: f64,
}

/// The slot that a cluster falls into.
pub fn slot_of(cluster: &ClusterName) -> Slot {
    (xxh3_64(cluster.as_str().as_bytes()) % u64::from(SLOTS)) as Slot
}

/// The replica that should hold a slot.
pub fn wanted_holder(slot: Slot, peers: &[Peer]) -> Option<&Peer> {
    let score = |peer: &Peer| {
        let hash = xxh3_64_with_seed(peer.name.as_bytes(), u64::from(slot));
        // In (0, 1), so that the logarithm is finite and below zero; a weight then counts as it says.
        let chance = (hash as f64 + 1.0) / (u64::MAX as f64 + 2.0);
        -peer.weight / chance.ln()
    };
    peers
        .iter()
        .filter(|peer| peer.weight > 0.0)
        .max_by(|a, b| score(a).total_cmp(&score(b)).then_with(|| b.name.cmp(&a.name)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn peer(name: &str, weight: f64) -> Peer {
        Peer {
            name: name.to_owned(),
            weight,
        }
    }

    fn shares(peers: &[Peer]) -> HashMap<String, usize> {
        let mut shares = HashMap::new();
        for slot in 0..SLOTS {
            let holder = wanted_holder(slot, peers).expect("somebody has a weight");
            *shares.entry(holder.name.clone()).or_default() += 1;
        }
        shares
    }

    #[test]
    fn replicas_share_by_their_weights() {
        let even = shares(&[peer("a", 1.0), peer("b", 1.0), peer("c", 1.0), peer("d", 1.0)]);
        assert!(even.values().all(|share| (200..=312).contains(share)), "{even:?}");
        let uneven = shares(&[peer("a", 3.0), peer("b", 1.0), peer("c", 0.0)]);
        assert!(
            (700..=836).contains(&uneven["a"]) && !uneven.contains_key("c"),
            "{uneven:?}"
        );
        assert_eq!(wanted_holder(0, &[]), None);
        assert_eq!(wanted_holder(0, &[peer("a", 0.0)]), None);
    }

    #[test]
    fn only_the_part_of_who_leaves_moves() {
        let all = [peer("a", 1.0), peer("b", 1.0), peer("c", 2.0)];
        for slot in 0..SLOTS {
            let before = wanted_holder(slot, &all).unwrap();
            let after = wanted_holder(slot, &all[..2]).unwrap();
            assert!(before.name == "c" || before == after, "slot {slot} moved");
        }
    }

    #[test]
    fn clusters_spread_over_the_slots() {
        let mut used = vec![0; usize::from(SLOTS)];
        for i in 0..100_000 {
            used[usize::from(slot_of(&ClusterName::new(format!("project-{i}"))))] += 1;
        }
        let (least, most) = (used.iter().min(), used.iter().max());
        assert!(
            used.iter().all(|count| (50..160).contains(count)),
            "from {least:?} to {most:?}"
        );
    }
}
