//! Planes that write far more than others, and when it is their turn.
//!
//! Who writes while a group is synced waits for that sync and then for its own: twice as long as on a disk at rest. A plane
//! that writes without a pause would do that to everybody. So while somebody who writes little is there, the groups of
//! [`Loud`] planes take only a small part of the time, and are so much larger. Nobody is held back for planes that are all
//! loud, or for root, which writes for all of them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use mica_api::PlaneId;

/// Transactions within one [`WINDOW`] that make a plane loud.
const MANY: u32 = 500;
const WINDOW: Duration = Duration::from_secs(1);
/// A plane of which fewer than this wait when it is its turn is loud no longer.
const FEW: usize = 4;
/// For how long a plane that writes little is taken to go on.
const THERE: Duration = Duration::from_secs(2);
/// How many times as long as a group of loud planes took the next one is put off: about one in a hundred of those who write
/// little meets one.
const REST: u32 = 64;
/// However slow the disk is, loud planes get on.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// Which planes are loud, and until when they wait.
#[derive(Default)]
pub(super) struct Loud {
    planes: HashSet<PlaneId>,
    /// What each plane wrote in the window that began then.
    window: Option<(Instant, HashMap<PlaneId, u32>)>,
    /// The last plane that writes little, and until when it is taken to be there.
    quiet: Option<(PlaneId, Instant)>,
    rests_until: Option<Instant>,
}

impl Loud {
    pub(super) fn is_loud(&self, plane: PlaneId) -> bool {
        self.planes.contains(&plane)
    }

    /// A transaction of a plane came.
    pub(super) fn came(&mut self, plane: PlaneId, now: Instant) {
        if plane == PlaneId::ROOT {
            return;
        }
        if let Some((began, counts)) = &self.window
            && now >= *began + WINDOW
        {
            self.planes.retain(|plane| counts.contains_key(plane));
            self.window = None;
        }
        let (_, counts) = self.window.get_or_insert_with(|| (now, HashMap::new()));
        let count = counts.entry(plane).or_default();
        *count += 1;
        if *count >= MANY && self.planes.insert(plane) {
            self.quiet = self.quiet.filter(|(quiet, _)| *quiet != plane);
        }
        if !self.planes.contains(&plane) {
            self.quiet = Some((plane, now + THERE));
        }
    }

    /// Until when loud planes wait, if they do now.
    pub(super) fn rests_until(&self, now: Instant) -> Option<Instant> {
        let until = self.rests_until.filter(|until| now < *until)?;
        let (_, there) = self.quiet?;
        (now < there).then_some(until)
    }

    /// It was the turn of a loud plane, and so many of its transactions waited.
    pub(super) fn took(&mut self, plane: PlaneId, count: usize) {
        if count < FEW {
            self.planes.remove(&plane);
        }
    }

    /// A group with transactions of loud planes was written by now.
    pub(super) fn wrote(&mut self, took: Duration, now: Instant) {
        self.rests_until = Some(now + (took * REST).min(LONGEST_REST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISY: &str = "aaaaaaaaaaaa";
    const QUIET: &str = "bbbbbbbbbbbb";
    const MILLI: Duration = Duration::from_millis(1);

    fn plane(id: &str) -> PlaneId {
        PlaneId::parse(id).unwrap()
    }

    fn writes_much(loud: &mut Loud, plane: PlaneId, now: Instant) {
        for _ in 0..MANY {
            loud.came(plane, now);
        }
    }

    #[test]
    fn a_loud_plane_rests_only_for_one_that_writes_little() {
        let (mut loud, now) = (Loud::default(), Instant::now());
        let (noisy, quiet) = (plane(NOISY), plane(QUIET));
        writes_much(&mut loud, noisy, now);
        assert!(loud.is_loud(noisy));
        loud.wrote(MILLI, now);
        assert_eq!(loud.rests_until(now), None, "it is alone");
        loud.came(quiet, now);
        assert_eq!(loud.rests_until(now), Some(now + REST * MILLI));
        assert_eq!(loud.rests_until(now + REST * MILLI), None, "it is its turn");
        loud.wrote(MILLI * 50, now);
        assert_eq!(loud.rests_until(now), Some(now + LONGEST_REST));
        writes_much(&mut loud, quiet, now);
        assert_eq!(loud.rests_until(now), None, "both are loud");
        let later = now + THERE;
        loud.came(plane("cccccccccccc"), now);
        loud.wrote(MILLI, later);
        assert_eq!(loud.rests_until(later), None, "the quiet one wrote long ago");
    }

    #[test]
    fn a_plane_is_loud_as_long_as_many_wait_for_its_turn() {
        let (mut loud, now) = (Loud::default(), Instant::now());
        let noisy = plane(NOISY);
        writes_much(&mut loud, noisy, now);
        loud.took(noisy, FEW);
        assert!(loud.is_loud(noisy));
        loud.came(noisy, now + WINDOW);
        assert!(loud.is_loud(noisy), "it wrote in the window before");
        loud.took(noisy, FEW - 1);
        assert!(!loud.is_loud(noisy));
        writes_much(&mut loud, noisy, now + WINDOW);
        loud.came(plane(QUIET), now + WINDOW * 2);
        loud.came(plane(QUIET), now + WINDOW * 3);
        assert!(!loud.is_loud(noisy), "it wrote nothing for a window");
    }

    #[test]
    fn root_is_never_loud_and_nobody_rests_for_it() {
        let (mut loud, now) = (Loud::default(), Instant::now());
        writes_much(&mut loud, PlaneId::ROOT, now);
        assert!(!loud.is_loud(PlaneId::ROOT));
        writes_much(&mut loud, plane(NOISY), now);
        loud.came(PlaneId::ROOT, now);
        loud.wrote(MILLI, now);
        assert_eq!(loud.rests_until(now), None);
    }
}
