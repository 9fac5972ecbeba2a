//! Turns at the processors: a plane that asks faster than it is answered waits its turn, so that others find them free.
//!
//! Seats bound what is under way, and most reads are over before anybody else could ask for their seat. What keeps a quiet
//! plane waiting then is the queue of the runtime itself: hundreds of connections of a noisy one, each with a request read.
//! So, while several planes are active, a plane begins only a few requests at once; the others wait here until the runtime
//! has gone through everything that was ready. One plane alone is never held up.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mica_api::PlaneId;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64;

use crate::plane::loud::Loud;

/// Planes are active together if both asked within one of these.
const WINDOW: Duration = Duration::from_millis(250);

/// For how many windows planes that were active together are taken to be.
const REMEMBERED: u64 = 8;

/// What a plane begins counts for this long, unless somebody waits: about what a few small requests take.
const BURST: Duration = Duration::from_micros(200);

/// Requests that a plane begins at once, for each processor.
const PER_PROCESSOR: usize = 2;

pub struct Pace {
    began: Instant,
    /// Which plane was first in a window, and which window: the upper 48 bits of the plane's hash, the lower 16 of the window.
    first: AtomicU64,
    /// The window up to which several planes are taken to be active.
    shared_until: AtomicU64,
    most: usize,
    waiting: Mutex<HashMap<PlaneId, Line>>,
    /// Whether somebody goes round.
    rounds: AtomicBool,
    /// Where they are gone: the threads of the first who waited, when no plane was loud yet, and never those that yield.
    runtime: OnceLock<Handle>,
}

/// Those of one plane.
struct Line {
    begun: usize,
    since: Instant,
    waiters: VecDeque<oneshot::Sender<()>>,
}

/// Planes of which it is known how many they began, from which on those are looked for that began none lately.
const SWEEP: usize = 1024;

impl Pace {
    pub fn new() -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self::of(processors * PER_PROCESSOR)
    }

    fn of(most: usize) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            first: AtomicU64::new(u64::MAX),
            shared_until: AtomicU64::new(0),
            most,
            waiting: Mutex::default(),
            rounds: AtomicBool::new(false),
            runtime: OnceLock::new(),
        })
    }

    /// Waits for the plane's turn.
    pub async fn turn(self: &Arc<Self>, plane: PlaneId, loud: &Loud, now: Instant) {
        if !self.is_shared(plane, now) {
            return;
        }
        let Some(turn) = self.line_up(plane, now) else { return };
        // Operators are not put aside.
        if plane != PlaneId::ROOT {
            loud.mark(now);
        }
        // Who goes round is gone only with the whole runtime.
        let _ = turn.await;
    }

    /// Notes that a plane asks; says whether others do too.
    fn is_shared(&self, plane: PlaneId, now: Instant) -> bool {
        let window = now.saturating_duration_since(self.began).as_millis() as u64 / WINDOW.as_millis() as u64 + 1;
        let mark = (xxh3_64(plane.as_str().as_bytes()) & !0xffff) | (window & 0xffff);
        let first = self.first.load(Ordering::Relaxed);
        if first != mark {
            if first & 0xffff == window & 0xffff {
                self.shared_until.store(window + REMEMBERED, Ordering::Relaxed);
            } else {
                self.first.store(mark, Ordering::Relaxed);
            }
        }
        self.shared_until.load(Ordering::Relaxed) >= window
    }

    fn line_up(self: &Arc<Self>, plane: PlaneId, now: Instant) -> Option<oneshot::Receiver<()>> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= SWEEP {
            waiting.retain(|_, line| !line.is_over(now));
        }
        let line = waiting.entry(plane).or_insert_with(|| Line {
            begun: 0,
            since: now,
            waiters: VecDeque::new(),
        });
        if line.waiters.is_empty() {
            if line.is_over(now) {
                (line.begun, line.since) = (0, now);
            }
            if line.begun < self.most {
                line.begun += 1;
                return None;
            }
        }
        let (sender, receiver) = oneshot::channel();
        line.waiters.push_back(sender);
        drop(waiting);
        if !self.rounds.swap(true, Ordering::AcqRel) {
            self.runtime.get_or_init(Handle::current).spawn(self.clone().go_round());
        }
        Some(receiver)
    }

    /// Calls the next of each plane, again and again while somebody waits. Between two rounds everything that is ready runs.
    async fn go_round(self: Arc<Self>) {
        loop {
            tokio::task::yield_now().await;
            if self.call_next(Instant::now()) == 0 {
                self.rounds.store(false, Ordering::Release);
                // One who came just now saw that somebody goes round.
                let missed = self.waiting.lock().values().any(|line| !line.waiters.is_empty());
                if !missed || self.rounds.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        }
    }

    /// One round; returns how many were called.
    fn call_next(&self, now: Instant) -> usize {
        let mut called = 0;
        let mut waiting = self.waiting.lock();
        for line in waiting.values_mut().filter(|line| !line.waiters.is_empty()) {
            (line.begun, line.since) = (0, now);
            while line.begun < self.most {
                let Some(next) = line.waiters.pop_front() else { break };
                // Who has gone takes nobody's turn.
                line.begun += usize::from(next.send(()).is_ok());
            }
            called += line.begun;
        }
        called
    }
}

impl Line {
    /// Whether what was begun counts no longer.
    fn is_over(&self, now: Instant) -> bool {
        self.waiters.is_empty() && now.saturating_duration_since(self.since) >= BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(n: u64) -> PlaneId {
        PlaneId::from_random(n)
    }

    #[test]
    fn a_plane_alone_is_never_held_up_and_two_are_active_together_for_a_while() {
        let pace = Pace::of(2);
        let at = |ms: u64| pace.began + Duration::from_millis(ms);
        assert!(!(0..1000).any(|n| pace.is_shared(plane(1), at(n))));
        assert!(!pace.is_shared(plane(2), at(1010)), "the first of its window");
        assert!(pace.is_shared(plane(1), at(1020)));
        assert!(pace.is_shared(plane(1), at(2500)));
        assert!(!pace.is_shared(plane(1), at(9000)), "the other has long been quiet");
    }

    #[tokio::test]
    async fn a_plane_begins_few_at_once_and_the_others_in_their_order() {
        let pace = Pace::of(2);
        let now = pace.began;
        assert!(pace.line_up(plane(1), now).is_none() && pace.line_up(plane(1), now).is_none());
        pace.rounds.store(true, Ordering::Release);
        let mut waiting: Vec<_> = (0..5).map(|_| pace.line_up(plane(1), now).unwrap()).collect();
        assert!(
            pace.line_up(plane(2), now).is_none(),
            "another plane has turns of its own"
        );
        drop(waiting.remove(1));
        assert_eq!(pace.call_next(now), 2);
        let called: Vec<bool> = waiting.iter_mut().map(|turn| turn.try_recv().is_ok()).collect();
        assert_eq!(called, [true, true, false, false], "who has gone is left out");
        assert_eq!((pace.call_next(now), pace.call_next(now)), (2, 0));
        assert!(pace.line_up(plane(1), now + BURST).is_none());
    }

    #[tokio::test]
    async fn everybody_gets_a_turn() {
        let pace = Pace::of(1);
        pace.shared_until.store(u64::MAX, Ordering::Relaxed);
        let turns = (0..200).map(|n| {
            let pace = pace.clone();
            tokio::spawn(async move { pace.turn(plane(n % 3), &Loud::default(), Instant::now()).await })
        });
        for turn in turns.collect::<Vec<_>>() {
            turn.await.unwrap();
        }
        assert!(pace.waiting.lock().values().all(|line| line.waiters.is_empty()));
    }
}
