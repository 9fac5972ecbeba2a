//! What an all-planes stream told of planes that are not engaged, kept within a bound until somebody claims it.
//!
//! Planes engage after their objects were listed (both come at once when a process starts), and change owners among
//! replicas that all read the same stream. What is kept here is whole or not kept at all: of a plane that had no room, or
//! that was engaged before and let go, it is only known that a list is needed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use compact_str::CompactString;

/// Objects that are kept for planes that nobody has engaged. Beyond this, engaging such a plane costs a list.
const OBJECTS: usize = 100_000;
/// Planes that are remembered as lost. Beyond this, every plane that is not engaged counts as lost.
const LOST: usize = 65_536;

/// An object's namespace and name.
pub(super) type Place = (Option<CompactString>, CompactString);

pub(super) struct Unclaimed<K> {
    planes: HashMap<CompactString, BTreeMap<Place, Arc<K>>>,
    objects: usize,
    lost: Lost,
    most: usize,
}

enum Lost {
    These(HashSet<CompactString>),
    All,
}

/// What is there of a plane.
#[derive(Debug, PartialEq)]
pub(super) enum Claim<K> {
    Whole(Vec<(Place, Arc<K>)>),
    /// Not everything: a list is needed.
    Lost,
}

impl<K> Default for Unclaimed<K> {
    fn default() -> Self {
        Self {
            planes: HashMap::new(),
            objects: 0,
            lost: Lost::These(HashSet::new()),
            most: OBJECTS,
        }
    }
}

impl<K> Unclaimed<K> {
    /// A list begins, and will tell everything anew.
    pub(super) fn clear(&mut self) {
        let most = self.most;
        *self = Self {
            most,
            ..Self::default()
        };
    }

    pub(super) fn hold(&mut self, plane: &CompactString, place: Place, object: Arc<K>) {
        if self.is_lost(plane) {
            return;
        }
        let held = self.planes.entry(plane.clone()).or_default();
        if held.insert(place, object).is_none() {
            self.objects += 1;
        }
        if self.objects > self.most {
            self.lose(plane);
        }
    }

    pub(super) fn remove(&mut self, plane: &CompactString, place: &Place) {
        let Some(held) = self.planes.get_mut(plane) else {
            return;
        };
        if held.remove(place).is_some() {
            self.objects -= 1;
        }
        if held.is_empty() {
            self.planes.remove(plane);
        }
    }

    /// Whether [`Unclaimed::claim`] would give something, or say that it is lost.
    pub(super) fn has(&self, plane: &CompactString) -> bool {
        self.planes.contains_key(plane) || self.is_lost(plane)
    }

    /// Gives out what is there of a plane. From now on it is not lost: whoever is told so lists.
    pub(super) fn claim(&mut self, plane: &CompactString) -> Claim<K> {
        let lost = match &mut self.lost {
            Lost::All => true,
            Lost::These(lost) => lost.remove(plane),
        };
        if lost {
            return Claim::Lost;
        }
        let held = self.planes.remove(plane).unwrap_or_default();
        self.objects -= held.len();
        Claim::Whole(held.into_iter().collect())
    }

    /// What is known of a plane is not whole, or will not stay so.
    pub(super) fn lose(&mut self, plane: &CompactString) {
        let held = self.planes.remove(plane).unwrap_or_default();
        self.objects -= held.len();
        let Lost::These(lost) = &mut self.lost else {
            return;
        };
        lost.insert(plane.clone());
        if lost.len() > LOST {
            self.lost = Lost::All;
            self.planes.clear();
            self.objects = 0;
        }
    }

    fn is_lost(&self, plane: &CompactString) -> bool {
        match &self.lost {
            Lost::These(lost) => lost.contains(plane),
            Lost::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        (None, name.into())
    }

    fn claimed(unclaimed: &mut Unclaimed<u32>, plane: &str) -> String {
        match unclaimed.claim(&plane.into()) {
            Claim::Lost => "lost".to_owned(),
            Claim::Whole(held) => held
                .iter()
                .map(|((_, name), object)| format!("{name}{object} "))
                .collect(),
        }
    }

    #[test]
    fn a_plane_is_given_out_once_as_it_is_by_then() {
        let mut unclaimed = Unclaimed::default();
        for (plane, name, object) in [("p", "a", 1), ("p", "b", 1), ("q", "a", 1), ("p", "a", 2)] {
            unclaimed.hold(&plane.into(), place(name), Arc::new(object));
        }
        unclaimed.remove(&"p".into(), &place("b"));
        unclaimed.remove(&"nobody".into(), &place("b"));
        assert_eq!((claimed(&mut unclaimed, "p").as_str(), unclaimed.objects), ("a2 ", 1));
        assert_eq!(
            claimed(&mut unclaimed, "p"),
            "",
            "there is nothing more, and nothing is missing"
        );
        unclaimed.remove(&"q".into(), &place("a"));
        assert!(unclaimed.planes.is_empty() && unclaimed.objects == 0);
    }

    #[test]
    fn what_had_no_room_or_was_let_go_is_lost_until_the_next_list() {
        let mut unclaimed = Unclaimed {
            most: 2,
            ..Unclaimed::default()
        };
        unclaimed.hold(&"small".into(), place("a"), Arc::new(1));
        for name in ["a", "b", "c"] {
            unclaimed.hold(&"large".into(), place(name), Arc::new(1));
        }
        unclaimed.lose(&"let go".into());
        unclaimed.hold(&"let go".into(), place("a"), Arc::new(1));
        assert!(
            ["small", "large", "let go"]
                .iter()
                .all(|plane| unclaimed.has(&(*plane).into()))
        );
        assert!(!unclaimed.has(&"empty".into()));
        for (plane, wanted) in [("small", "a1 "), ("large", "lost"), ("let go", "lost"), ("empty", "")] {
            assert_eq!(claimed(&mut unclaimed, plane), wanted, "{plane}");
        }
        unclaimed.lose(&"p".into());
        unclaimed.clear();
        assert_eq!(claimed(&mut unclaimed, "p"), "");
    }

    #[test]
    fn the_memory_of_lost_planes_is_bounded_too() {
        let mut unclaimed = Unclaimed::default();
        unclaimed.hold(&"kept".into(), place("a"), Arc::new(1));
        for plane in 0..=LOST {
            unclaimed.lose(&format!("{plane}").into());
        }
        assert_eq!(claimed(&mut unclaimed, "kept"), "lost");
        assert!(unclaimed.has(&"never seen".into()));
        unclaimed.hold(&"kept".into(), place("a"), Arc::new(1));
        assert_eq!(unclaimed.objects, 0);
    }
}
