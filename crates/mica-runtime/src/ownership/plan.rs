//! What a replica does about slots, given what it sees.

use std::collections::{BTreeMap, BTreeSet};

use super::rendezvous::{Peer, SLOTS, Slot, wanted_holder};

/// Counts the holders that a slot has had: what was begun under an earlier one may not be written.
pub type Epoch = u64;

/// Who holds a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub replica: String,
    pub epoch: Epoch,
}

/// The table of holders, as it was read. A free slot keeps its epoch, with an empty name.
pub type Table = BTreeMap<Slot, Holder>;

/// What is to be done with a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Write into the table that this replica holds it.
    Claim(Slot),
    /// Take no more work of it, and free it in the table when the last is through.
    Release(Slot),
}

/// What `me` does next.
///
/// It claims what it should hold and nobody who is alive holds, and releases what another should hold. What another that is
/// alive holds is left to it, whoever should have it: it will release it when it sees the same.
pub fn next_moves(me: &str, table: &Table, alive: &[Peer]) -> Vec<Move> {
    let names: BTreeSet<&str> = alive.iter().map(|peer| peer.name.as_str()).collect();
    if !names.contains(me) {
        return Vec::new();
    }
    let moves = (0..SLOTS).filter_map(|slot| {
        let holder = table.get(&slot).map_or("", |holder| holder.replica.as_str());
        let mine = wanted_holder(slot, alive).is_some_and(|peer| peer.name == me);
        if holder == me {
            (!mine).then_some(Move::Release(slot))
        } else {
            (mine && !names.contains(holder)).then_some(Move::Claim(slot))
        }
    });
    moves.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peers(names: &[&str]) -> Vec<Peer> {
        let peer = |name: &&str| Peer {
            name: (*name).to_owned(),
            weight: 1.0,
        };
        names.iter().map(peer).collect()
    }

    /// Writes moves into the table as a replica would that releases at once.
    fn apply(table: &mut Table, me: &str, moves: &[Move]) {
        for step in moves {
            let (slot, replica) = match step {
                Move::Claim(slot) => (*slot, me),
                Move::Release(slot) => (*slot, ""),
            };
            let epoch = table.get(&slot).map_or(0, |holder| holder.epoch) + u64::from(!replica.is_empty());
            let replica = replica.to_owned();
            table.insert(slot, Holder { replica, epoch });
        }
    }

    fn held_by(me: &str) -> Table {
        let mut table = Table::new();
        let moves = next_moves(me, &table, &peers(&[me]));
        apply(&mut table, me, &moves);
        table
    }

    #[test]
    fn a_single_replica_claims_everything_and_then_rests() {
        let (mut table, alive) = (Table::new(), peers(&["a"]));
        let moves = next_moves("a", &table, &alive);
        assert_eq!(moves.len(), usize::from(SLOTS));
        apply(&mut table, "a", &moves);
        assert!(next_moves("a", &table, &alive).is_empty());
    }

    #[test]
    fn a_new_replica_waits_until_the_old_one_lets_go() {
        let mut table = held_by("a");
        let both = peers(&["a", "b"]);
        assert!(next_moves("b", &table, &both).is_empty(), "a is alive and holds all");
        let released = next_moves("a", &table, &both);
        assert!(released.iter().all(|step| matches!(step, Move::Release(_))));
        apply(&mut table, "a", &released);
        let claimed = next_moves("b", &table, &both);
        assert_eq!(claimed.len(), released.len());
        apply(&mut table, "b", &claimed);
        assert!(
            table
                .values()
                .filter(|holder| holder.replica == "b")
                .all(|holder| holder.epoch == 2)
        );
        for me in ["a", "b"] {
            assert!(next_moves(me, &table, &both).is_empty(), "{me} rests");
        }
    }

    #[test]
    fn the_slots_of_the_dead_are_taken_and_who_counts_itself_dead_does_nothing() {
        let table = held_by("gone");
        let moves = next_moves("a", &table, &peers(&["a"]));
        assert_eq!(moves.len(), usize::from(SLOTS));
        assert!(next_moves("a", &table, &peers(&["b"])).is_empty());
    }

    proptest! {
        /// Replicas come and go, and each acts on what it sees, which may be old; the table changes by compare and swap. Once
        /// all see the same, all slots are held by those who should.
        #[test]
        fn whatever_was_seen_the_end_is_right(steps in prop::collection::vec((0usize..4, 0u8..16, any::<bool>()), 0..40)) {
            let names = ["a", "b", "c", "d"];
            let mut table = Table::new();
            for (me, seen, stale) in steps {
                let alive: Vec<&str> = names.into_iter().enumerate()
                    .filter(|(i, _)| seen >> i & 1 == 1).map(|(_, name)| name).collect();
                let moves = next_moves(names[me], &table, &peers(&alive));
                if !stale {
                    apply(&mut table, names[me], &moves);
                }
            }
            let alive = peers(&names);
            for _ in 0..2 {
                for me in names {
                    let moves = next_moves(me, &table, &alive);
                    apply(&mut table, me, &moves);
                }
            }
            for slot in 0..SLOTS {
                prop_assert_eq!(&table[&slot].replica, &wanted_holder(slot, &alive).unwrap().name);
            }
        }
    }
}
