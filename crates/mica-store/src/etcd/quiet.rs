//! When each plane last changed, as far as this process has watched.
//!
//! This is what lets a watch or an exact list of a quiet plane go on from a revision that is long compacted: nothing
//! happened in the plane since, so nothing was lost. Memory is bounded: planes whose last change is older than `floor` are
//! forgotten together, and from then on nothing is claimed about revisions before `floor`.

use std::collections::HashMap;

use mica_api::PlaneId;
use parking_lot::Mutex;

use crate::store::Revision;

/// About 12 MiB.
const MAX_PLANES: usize = 1 << 18;

pub struct Quiet {
    state: Mutex<State>,
    max_planes: usize,
}

struct State {
    /// Every change after this revision was seen.
    floor: Revision,
    changed: HashMap<PlaneId, Revision>,
}

impl Quiet {
    /// Will be told every change after `floor`.
    pub fn new(floor: Revision) -> Self {
        Self::bounded(floor, MAX_PLANES)
    }

    fn bounded(floor: Revision, max_planes: usize) -> Self {
        Self {
            state: Mutex::new(State {
                floor,
                changed: HashMap::new(),
            }),
            max_planes,
        }
    }

    /// Takes note of changes. Revisions never decrease from one call to the next.
    pub fn changed(&self, planes: impl IntoIterator<Item = (PlaneId, Revision)>) {
        let mut state = self.state.lock();
        for (plane, revision) in planes {
            state.changed.insert(plane, revision);
        }
        if state.changed.len() > self.max_planes {
            state.forget_older_half();
        }
    }

    /// Changes up to `floor` were missed.
    pub fn reset(&self, floor: Revision) {
        *self.state.lock() = State {
            floor,
            changed: HashMap::new(),
        };
    }

    /// Whether the plane has certainly not changed after `revision`, as far as changes have been told.
    pub fn unchanged_since(&self, plane: PlaneId, revision: Revision) -> bool {
        let state = self.state.lock();
        revision >= state.floor && state.changed.get(&plane).is_none_or(|changed| *changed <= revision)
    }
}

impl State {
    fn forget_older_half(&mut self) {
        let mut revisions: Vec<_> = self.changed.values().copied().collect();
        let middle = revisions.len() / 2;
        let (_, median, _) = revisions.select_nth_unstable(middle);
        let median = *median;
        self.floor = self.floor.max(median);
        self.changed.retain(|_, revision| *revision > median);
        self.changed.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(number: u64) -> PlaneId {
        PlaneId::from_random(number)
    }

    #[test]
    fn a_plane_is_quiet_from_its_last_change_on() {
        let quiet = Quiet::new(Revision(10));
        quiet.changed([(plane(1), Revision(20))]);
        assert!(!quiet.unchanged_since(plane(1), Revision(19)));
        assert!(quiet.unchanged_since(plane(1), Revision(20)));
        assert!(quiet.unchanged_since(plane(2), Revision(10)));
        assert!(
            !quiet.unchanged_since(plane(2), Revision(9)),
            "nothing is known from before the floor"
        );
    }

    #[test]
    fn forgetting_planes_never_makes_them_look_quieter() {
        let quiet = Quiet::bounded(Revision(0), 100);
        for number in 1..=1000 {
            quiet.changed([(plane(number), Revision(number))]);
        }
        assert!(quiet.state.lock().changed.len() <= 100);
        for number in 1..=1000 {
            assert!(!quiet.unchanged_since(plane(number), Revision(number - 1)), "{number}");
        }
        assert!(quiet.unchanged_since(plane(1000), Revision(1000)));
    }
}
