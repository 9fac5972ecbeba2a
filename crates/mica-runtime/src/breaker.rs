//! A breaker for each cluster: one whose server does not answer costs a probe now and then, and no worker.

use std::time::Duration;

use tokio::time::Instant;

/// When a cluster counts as unreachable, and how often it is tried then.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Failures in a row that open the breaker.
    pub failures: u32,
    /// The first pause; each one that ends in vain is followed by one twice as long.
    pub first_pause: Duration,
    pub longest_pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            failures: 5,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
        }
    }
}

/// What a cluster's requests say about its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// It answered, whatever it said.
    Answered,
    /// It could not be reached, or did not answer in time.
    Unreachable,
}

/// What to do with a cluster's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Go on.
    Closed,
    /// Hold everything until then, and then let one try.
    Open { until: Instant },
    /// One is trying.
    Probing,
}

/// Where one cluster's breaker stands.
#[derive(Debug)]
pub struct Breaker {
    limits: Limits,
    failures: u32,
    pause: Duration,
    verdict: Verdict,
}

impl Breaker {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            failures: 0,
            pause: limits.first_pause,
            verdict: Verdict::Closed,
        }
    }

    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Notes how a request went. The new verdict, if it is another.
    pub fn report(&mut self, report: Report, now: Instant) -> Option<Verdict> {
        let before = self.verdict;
        match (report, before) {
            (Report::Answered, _) => {
                self.failures = 0;
                self.pause = self.limits.first_pause;
                self.verdict = Verdict::Closed;
            }
            (Report::Unreachable, Verdict::Closed) => {
                self.failures += 1;
                if self.failures >= self.limits.failures {
                    self.open(now);
                }
            }
            (Report::Unreachable, Verdict::Probing) => {
                self.pause = (self.pause * 2).min(self.limits.longest_pause);
                self.open(now);
            }
            // A request that began before it opened.
            (Report::Unreachable, Verdict::Open { .. }) => {}
        }
        (self.verdict != before).then_some(self.verdict)
    }

    /// Whether the pause is over: then one request may try.
    pub fn probe(&mut self, now: Instant) -> bool {
        match self.verdict {
            Verdict::Open { until } if until <= now => {
                self.verdict = Verdict::Probing;
                true
            }
            _ => false,
        }
    }

    fn open(&mut self, now: Instant) {
        self.verdict = Verdict::Open {
            until: now + self.pause,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::Report::{Answered, Unreachable};
    use super::*;

    #[test]
    fn a_dead_cluster_is_tried_ever_more_seldom_and_an_answer_closes_it() {
        let mut now = Instant::now();
        let mut breaker = Breaker::new(Limits::default());
        for _ in 0..4 {
            assert_eq!(breaker.report(Unreachable, now), None);
        }
        assert_eq!(breaker.report(Answered, now), None, "one answer begins the count anew");
        for _ in 0..4 {
            assert_eq!(breaker.report(Unreachable, now), None);
        }
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let pause = Duration::from_secs(seconds);
            let opened = breaker.report(Unreachable, now);
            assert_eq!(opened, Some(Verdict::Open { until: now + pause }));
            assert_eq!(breaker.report(Unreachable, now), None, "a request that was under way");
            assert!(!breaker.probe(now));
            now += pause;
            assert!(breaker.probe(now) && !breaker.probe(now), "one tries");
        }
        assert_eq!(breaker.report(Answered, now), Some(Verdict::Closed));
        assert_eq!(breaker.report(Unreachable, now), None);
        assert_eq!(breaker.verdict(), Verdict::Closed);
    }
}
