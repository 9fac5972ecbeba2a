//! How long an item that failed waits.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::request::Request;

/// Waiting times that double with every failure in a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
    /// Which part of a waiting time is left to chance, from 0 to 1: what failed together does not come back together.
    pub jitter: f64,
}

impl Default for Backoff {
    /// What controllers in Go have, with a little chance.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(5),
            most: Duration::from_secs(1000),
            jitter: 0.1,
        }
    }
}

impl Backoff {
    /// The wait after so many failures in a row. The same failure of the same object always waits as long.
    pub fn after(&self, failures: u32, request: &Request) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        let wait = doubled.min(self.most);
        let chance = xxh3_64(format!("{failures}/{request}").as_bytes()) as f64 / u64::MAX as f64;
        wait.mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ClusterName;

    #[test]
    fn waits_double_up_to_the_most_and_stay_within_their_chance() {
        let backoff = Backoff::default();
        let request = Request::new(ClusterName::new("a"), None, "x");
        for (failures, full) in [
            (1, 5),
            (2, 10),
            (3, 20),
            (8, 640),
            (18, 655_360),
            (19, 1_000_000),
            (u32::MAX, 1_000_000),
        ] {
            let (wait, full) = (backoff.after(failures, &request), Duration::from_millis(full));
            assert!(
                wait <= full && wait >= full.mul_f64(0.9),
                "{failures}: {wait:?} of {full:?}"
            );
            assert_eq!(wait, backoff.after(failures, &request));
        }
    }
}
