//! What to do about a server next, decided without looking at anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::version::Build;

/// The pause before the first new try. It doubles with every failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A server that was ready for this long starts over with short pauses.
const STEADY: Duration = Duration::from_secs(60);

/// What a server was started as. Another one of these is another process; anything else waits for the next start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Run {
    #[serde(flatten)]
    pub build: Build,
    /// Which store it is on, secrets by their hash.
    #[serde(default)]
    pub store: String,
}

/// How things stand.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// What runs, as far as is known.
    pub running: Option<&'a Run>,
    /// What should; none if that is refused.
    pub wanted: Option<&'a Run>,
    pub failures: u32,
    /// Since the last one ended.
    pub rested: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing runs and nothing may.
    Refuse,
    /// Too early to try again.
    Rest(Duration),
    Start,
    /// What runs is another than what should.
    Stop,
    /// What runs is what should, or what there is while something else is refused.
    Watch,
}

pub fn plan(observed: &Observed<'_>) -> Step {
    match (observed.running, observed.wanted) {
        (Some(_), None) => Step::Watch,
        (Some(running), Some(wanted)) if running == wanted => Step::Watch,
        (Some(_), Some(_)) => Step::Stop,
        (None, None) => Step::Refuse,
        (None, Some(_)) => match pause(observed.failures).checked_sub(observed.rested) {
            Some(rest) if !rest.is_zero() => Step::Rest(rest),
            _ => Step::Start,
        },
    }
}

/// How long to wait after so many failures in a row.
pub fn pause(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}

/// Failures in a row when a server ends that was ready for so long.
pub fn failures_after(before: u32, ready_for: Option<Duration>) -> u32 {
    match ready_for {
        Some(time) if time >= STEADY => 1,
        _ => before.saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(version: &str, store: &str) -> Run {
        Run {
            build: Build {
                version: version.to_owned(),
                format: 1,
            },
            store: store.to_owned(),
        }
    }

    #[test]
    fn a_server_is_started_watched_exchanged_and_rested() {
        let (old, new, moved) = (run("1.0", ""), run("1.1", ""), run("1.0", "etcd://b"));
        let second = Duration::from_secs(1);
        for (running, wanted, failures, rested, step) in [
            (None, None, 0, second, Step::Refuse),
            (None, Some(&old), 0, Duration::ZERO, Step::Start),
            (None, Some(&old), 3, second, Step::Start),
            (None, Some(&old), 4, second, Step::Rest(second * 3 / 5)),
            (Some(&old), Some(&old), 5, Duration::ZERO, Step::Watch),
            (Some(&old), Some(&new), 0, second, Step::Stop),
            (Some(&old), Some(&moved), 0, second, Step::Stop),
            (Some(&old), None, 0, second, Step::Watch),
        ] {
            let observed = Observed {
                running,
                wanted,
                failures,
                rested,
            };
            assert_eq!(plan(&observed), step, "{observed:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_steady_time() {
        let millis: Vec<u128> = [0, 1, 2, 3, 9, 10, u32::MAX].map(|n| pause(n).as_millis()).to_vec();
        assert_eq!(millis, [0, 200, 400, 800, 51_200, 60_000, 60_000]);
        assert_eq!(failures_after(7, None), 8);
        assert_eq!(failures_after(7, Some(Duration::from_secs(1))), 8);
        assert_eq!(failures_after(7, Some(STEADY)), 1);
        assert_eq!(failures_after(u32::MAX, None), u32::MAX);
    }
}
