//! Ends what lasts in a plane (its watches) when the plane stops taking requests.
//!
//! There is an entry for a plane while something in it lasts, and none for others.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use mica_api::PlaneId;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Dead entries are looked for when the number of entries is a multiple of this.
const SWEEP: usize = 256;

/// Cancelled when what holds it is to end.
pub type Ending = Arc<CancellationToken>;

#[derive(Default)]
pub struct Lasting(Mutex<HashMap<PlaneId, Weak<CancellationToken>>>);

impl Lasting {
    /// What is cancelled when watches of this plane end. It is to be held while one lasts.
    pub fn begin(&self, plane: PlaneId) -> Ending {
        let mut entries = self.0.lock();
        if let Some(found) = entries.get(&plane).and_then(Weak::upgrade) {
            return found;
        }
        let made = Ending::default();
        entries.insert(plane, Arc::downgrade(&made));
        if entries.len().is_multiple_of(SWEEP) {
            entries.retain(|_, entry| entry.strong_count() > 0);
        }
        made
    }

    /// Ends what lasts in a plane.
    pub fn end(&self, plane: PlaneId) {
        let ending = self.0.lock().remove(&plane).and_then(|entry| entry.upgrade());
        if let Some(ending) = ending {
            ending.cancel();
        }
    }

    /// Ends what lasts in any plane.
    pub fn end_all(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for ending in all.into_values().filter_map(|entry| entry.upgrade()) {
            ending.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_in_a_plane_ends_together_and_what_begins_later_does_not() {
        let lasting = Lasting::default();
        let (one, other) = (PlaneId::from_random(1), PlaneId::from_random(2));
        let (first, second, foreign) = (lasting.begin(one), lasting.begin(one), lasting.begin(other));
        lasting.end(one);
        assert!(first.is_cancelled() && second.is_cancelled() && !foreign.is_cancelled());
        assert!(!lasting.begin(one).is_cancelled());
        lasting.end_all();
        assert!(foreign.is_cancelled());
    }

    #[test]
    fn nothing_is_kept_for_planes_in_which_nothing_lasts() {
        let lasting = Lasting::default();
        for i in 0..SWEEP {
            drop(lasting.begin(PlaneId::from_random(i as u64)));
        }
        assert!(lasting.0.lock().len() <= 1);
    }
}
