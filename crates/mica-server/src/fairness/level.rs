//! How a plane divides its seats: its priority levels, as numbers.

use std::sync::Arc;

/// Queues of a level beyond which more make no difference: each costs a look when a seat is given away.
const MAX_QUEUES: u32 = 1024;

/// One priority level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Level {
    pub name: Arc<str>,
    pub shares: u32,
    /// The part of its seats, in percent, that others may use while it does not.
    pub lendable: u32,
    /// How far beyond its own it may go, in percent of them; `None`: as far as others lend.
    pub borrowing: Option<u32>,
    pub response: Response,
}

/// What happens to a request that finds no seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    Reject,
    Queue {
        queues: u32,
        hand: u32,
        length: u32,
    },
    /// The level has no bound of its own; that of its plane remains.
    Exempt,
}

impl Response {
    /// A queue of these sizes, within what we can serve.
    pub fn queue(queues: u32, hand: u32, length: u32) -> Self {
        Self::Queue {
            queues: queues.clamp(1, MAX_QUEUES),
            hand,
            length,
        }
    }
}

/// All levels of a plane.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Levels {
    pub all: Vec<Level>,
    shares: u64,
}

/// The bounds of a level, in seats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// What is its own by its shares.
    pub nominal: u32,
    /// What others must leave to it even while it is idle.
    pub reserved: u32,
    /// What it may use while others are idle.
    pub most: u32,
}

impl Levels {
    pub fn new(all: Vec<Level>) -> Self {
        let shares = all.iter().map(|level| u64::from(level.shares)).sum();
        Self { all, shares }
    }

    /// The bounds of a level in a plane that has so many seats.
    pub fn bounds(&self, level: usize, seats: u32) -> Bounds {
        let level = &self.all[level];
        let sum = self.shares.max(1);
        let parts = u64::from(seats) * u64::from(level.shares);
        let to_seats = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let nominal = parts.div_ceil(sum);
        // Rounded down, so that all reserves together never are more than there is.
        let reserved = parts * u64::from(100 - level.lendable.min(100)) / (sum * 100);
        let most = match (level.response, level.borrowing) {
            (Response::Exempt, _) | (_, None) => u64::from(seats),
            (_, Some(percent)) => (nominal + nominal * u64::from(percent) / 100).clamp(1, u64::from(seats.max(1))),
        };
        Bounds {
            nominal: to_seats(nominal),
            reserved: to_seats(reserved),
            most: to_seats(most),
        }
    }
}
