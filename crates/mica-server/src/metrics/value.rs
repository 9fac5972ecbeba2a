//! The numbers themselves: lock-free, because every request touches several.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn dec(&self) {
        self.add(-1);
    }

    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn set(&self, n: i64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A gauge that every request changes: each thread has a number of its own, so that processors do not fight over one.
#[derive(Default)]
pub struct SpreadGauge([OwnLine; PLACES]);

/// More threads than this share places.
const PLACES: usize = 16;

#[derive(Default)]
#[repr(align(128))]
struct OwnLine(Gauge);

impl SpreadGauge {
    pub fn add(&self, n: i64) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static PLACE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % PLACES;
        }
        self.0[PLACE.with(|place| *place)].0.add(n);
    }

    /// A place may be negative: what began on one thread can end on another.
    pub fn get(&self) -> i64 {
        self.0.iter().map(|line| line.0.get()).sum()
    }
}

pub struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last counts what is above them all. Not cumulative; reading adds up.
    counts: Box<[AtomicU64]>,
    /// The bits of an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    /// `bounds` must be sorted.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    pub fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        // The closure always returns `Some`, so the update cannot fail.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            Some((f64::from_bits(bits) + value).to_bits())
        });
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }

    /// Upper bounds with the number of observations at or below each; the last is infinity.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut total = 0;
        self.counts.iter().enumerate().map(move |(i, count)| {
            total += count.load(Ordering::Relaxed);
            (self.bounds.get(i).copied().unwrap_or(f64::INFINITY), total)
        })
    }
}

/// `N` bounds, each `factor` times the one before.
pub const fn exponential_buckets<const N: usize>(start: f64, factor: f64) -> [f64; N] {
    let mut bounds = [start; N];
    let mut i = 1;
    while i < N {
        bounds[i] = bounds[i - 1] * factor;
        i += 1;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_inside_it() {
        static BOUNDS: [f64; 3] = exponential_buckets(1.0, 10.0);
        let histogram = Histogram::new(&BOUNDS);
        for value in [0.5, 1.0, 10.0, 99.0, 1000.0] {
            histogram.observe(value);
        }
        let shown: Vec<(f64, u64)> = histogram.cumulative().collect();
        assert_eq!(shown, [(1.0, 2), (10.0, 3), (100.0, 4), (f64::INFINITY, 5)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 1110.5));
    }
}
