//! Whether a plane asks for more than its turns.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a plane is loud after it last was. Connections do not move to and fro between two requests.
const LASTS: Duration = Duration::from_secs(1);

/// Whether a plane is loud now. Shared by all who serve it.
#[derive(Debug, Default)]
pub struct Loud {
    /// In milliseconds since [`epoch`]; zero while it is quiet.
    until: AtomicU64,
}

/// From when on time is counted.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

fn millis(at: Instant) -> u64 {
    at.saturating_duration_since(epoch()).as_millis() as u64
}

impl Loud {
    /// The plane is loud at this moment.
    pub fn mark(&self, now: Instant) {
        self.until.store(millis(now + LASTS), Ordering::Relaxed);
    }

    pub fn is_loud(&self) -> bool {
        // Nearly always quiet: then nobody looks at a clock.
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let loud = millis(Instant::now()) < until;
        if !loud {
            let _ = self
                .until
                .compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        loud
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_is_loud_for_a_while_and_then_quiet_again() {
        let loud = Loud::default();
        assert!(!loud.is_loud());
        loud.mark(Instant::now());
        assert!(loud.is_loud());
        let Some(long_ago) = Instant::now().checked_sub(2 * LASTS) else {
            return;
        };
        loud.mark(long_ago);
        assert!(!loud.is_loud() && loud.until.load(Ordering::Relaxed) == 0);
    }
}
