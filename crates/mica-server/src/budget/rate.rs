//! A bucket of tokens: so many requests per second, and a second's worth at once.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    tokens: f64,
    most: f64,
    at: Instant,
}

impl Bucket {
    pub fn full(rate: u64, now: Instant) -> Self {
        Self {
            tokens: rate as f64,
            most: rate as f64,
            at: now,
        }
    }

    /// Takes a token, or says how long it takes until there is one.
    pub fn take(&mut self, rate: u64, now: Instant) -> Result<(), Duration> {
        self.fill(rate, now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - self.tokens) / self.most.max(1.0)))
        }
    }

    fn fill(&mut self, rate: u64, now: Instant) {
        self.most = rate as f64;
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + since * self.most).min(self.most);
        self.at = now;
    }

    /// Whether it is as if nothing had been taken.
    pub fn is_full(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= Duration::from_secs(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_its_rate_and_a_second_s_worth_at_once() {
        let mut bucket = Bucket::full(10, Instant::now());
        let taken = |bucket: &mut Bucket| (0..100).filter(|_| bucket.take(10, Instant::now()).is_ok()).count();
        assert_eq!(taken(&mut bucket), 10);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(taken(&mut bucket), 2);
        assert_eq!(bucket.take(10, Instant::now()).unwrap_err(), Duration::from_millis(50));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(&mut bucket), 10);
    }
}
