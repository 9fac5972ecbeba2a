//! Who sits, who waits, and who is next.
//!
//! The server has so many seats. A plane may have [`GREED`] times as many as are free: one alone has most of them, two have
//! as many each, and some are always left for one that comes new, even if nobody stands up. Inside a plane its own priority
//! levels divide what it may have, and inside a level queues take turns. Pure: no clock, no tasks.
//!
//! Invariant: whenever a call returns, nobody waits who could sit. Nothing is kept for a plane that nobody uses, except for
//! the [`REMEMBERED`] last ones.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use mica_api::PlaneId;

use super::deal::deal;
use super::level::{Levels, Response};

/// How many times the free seats a plane may have: n busy planes leave one part in 1 + 4n free.
const GREED: u64 = 4;

/// Who may wait for each seat that there is, in all: beyond that, answers would come too late to matter.
const WAITING_PER_SEAT: u32 = 20;

/// Planes without requests that are kept because they will likely have some soon.
const REMEMBERED: usize = 1024;

/// Planes that are looked at when a seat is free: more could wait only for their own levels, and hear when those change.
const LOOKED_AT: usize = 64;

/// A request for seats.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub plane: PlaneId,
    /// How the plane divides its seats now.
    pub levels: &'a Arc<Levels>,
    pub level: usize,
    /// Tells flows of the level apart.
    pub flow: u64,
    /// How many seats it takes.
    pub width: u32,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    Seated(Place),
    Waiting(Ticket),
    Refused(Refusal),
}

/// Why a request neither sits nor waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its level lets nobody wait.
    NoSeat,
    /// Its queue, or its plane's part of all queues, is full.
    QueueFull,
}

/// Seats taken: to be given back by [`Seats::leave`].
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Place {
    plane: PlaneId,
    level: Arc<str>,
    queue: Option<u32>,
    width: u32,
}

impl Place {
    pub fn width(&self) -> u32 {
        self.width
    }
}

/// A place in a queue.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Ticket {
    plane: PlaneId,
    level: Arc<str>,
    queue: u32,
    number: u64,
}

pub struct Seats<W> {
    seats: u32,
    used: u32,
    waiting: u32,
    planes: HashMap<PlaneId, PlaneSeats<W>>,
    /// Planes in which somebody waits: by seats in use, then by how long ago they were served.
    next: BTreeSet<(u32, u64, PlaneId)>,
    /// Counts whoever is seated or begins to wait.
    turn: u64,
}

struct PlaneSeats<W> {
    levels: Arc<Levels>,
    /// As in `levels`; after them those that are no longer there, until the last of their requests is.
    states: Vec<LevelSeats<W>>,
    used: u32,
    waiting: u32,
    served: u64,
}

struct LevelSeats<W> {
    name: Arc<str>,
    used: u32,
    waiting: u32,
    served: u64,
    /// The virtual time of the queue that was served last.
    time: u64,
    /// Those where somebody waits, or sits after having waited.
    queues: BTreeMap<u32, Queue<W>>,
}

struct Queue<W> {
    waiters: VecDeque<Waiter<W>>,
    used: u32,
    /// The seats that were given to it, counted from the virtual time at which it began.
    time: u64,
}

struct Waiter<W> {
    number: u64,
    width: u32,
    waker: W,
}

impl<W> Seats<W> {
    pub fn new(seats: u32) -> Self {
        Self {
            seats: seats.max(1),
            used: 0,
            waiting: 0,
            planes: HashMap::new(),
            next: BTreeSet::new(),
            turn: 0,
        }
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Seats a request, or queues it with what `waker` makes, or refuses it.
    pub fn enter(&mut self, ask: Ask<'_>, waker: impl FnOnce() -> W) -> Entry {
        self.turn += 1;
        let (seats, used, turn) = (self.seats, self.used, self.turn);
        if !self.planes.contains_key(&ask.plane) {
            self.forget_idle();
        }
        let plane = self.planes.entry(ask.plane).or_insert_with(|| PlaneSeats::new(&ask));
        plane.adopt(&ask);
        let may = share(seats, used, plane);
        let state = &plane.states[ask.level];
        let width = ask.width.clamp(1, may);
        if state.waiting == 0 && plane.fit(ask.level, width, may, seats.saturating_sub(used)) == Fit::Yes {
            let place = Place {
                plane: ask.plane,
                level: state.name.clone(),
                queue: None,
                width,
            };
            self.take(&place, turn);
            return Entry::Seated(place);
        }
        self.queue(ask, width, waker)
    }

    /// Seats without regard to any bound, but counted: for who must get in whatever happens.
    pub fn enter_always(&mut self, ask: Ask<'_>) -> Place {
        self.turn += 1;
        let turn = self.turn;
        let plane = self.planes.entry(ask.plane).or_insert_with(|| PlaneSeats::new(&ask));
        plane.adopt(&ask);
        let place = Place {
            plane: ask.plane,
            level: plane.states[ask.level].name.clone(),
            queue: None,
            width: 1,
        };
        self.take(&place, turn);
        place
    }

    fn queue(&mut self, ask: Ask<'_>, width: u32, waker: impl FnOnce() -> W) -> Entry {
        let most = self.seats.saturating_mul(WAITING_PER_SEAT);
        let left = most.saturating_sub(self.waiting);
        let plane = self.planes.get_mut(&ask.plane).expect("just entered");
        let crowded = u64::from(plane.waiting) >= u64::from(left) * GREED || left == 0;
        let response = ask.levels.all[ask.level].response;
        let state = &mut plane.states[ask.level];
        let (queue, length) = match response {
            Response::Reject => return Entry::Refused(Refusal::NoSeat),
            Response::Exempt => (0, u32::MAX),
            Response::Queue { queues, hand, length } => (state.shortest(deal(ask.flow, queues, hand)), length),
        };
        let length = length as usize;
        if crowded
            || state
                .queues
                .get(&queue)
                .is_some_and(|queue| queue.waiters.len() >= length)
        {
            return Entry::Refused(Refusal::QueueFull);
        }
        let time = state.time;
        let at = state.queues.entry(queue).or_insert_with(|| Queue::new(time));
        if at.waiters.is_empty() {
            at.time = at.time.max(time);
        }
        at.waiters.push_back(Waiter {
            number: self.turn,
            width,
            waker: waker(),
        });
        state.waiting += 1;
        let ticket = Ticket {
            plane: ask.plane,
            level: state.name.clone(),
            queue,
            number: self.turn,
        };
        self.waiting += 1;
        plane.waiting += 1;
        if plane.waiting == 1 {
            self.next.insert((plane.used, plane.served, ask.plane));
        }
        Entry::Waiting(ticket)
    }

    /// Gives seats back; returns who sits down now.
    pub fn leave(&mut self, place: &Place) -> Vec<(W, Place)> {
        let Some(plane) = self.planes.get_mut(&place.plane) else {
            return Vec::new();
        };
        let before = (plane.used, plane.served, place.plane);
        self.used -= place.width;
        plane.used -= place.width;
        if let Some(state) = plane.state(&place.level) {
            state.used -= place.width;
            if let Some(number) = place.queue {
                state.leave_queue(number, place.width);
            }
        }
        plane.drop_empty();
        if plane.waiting > 0 {
            let now = (plane.used, plane.served, place.plane);
            self.next.remove(&before);
            self.next.insert(now);
        }
        self.dispatch()
    }

    /// Takes one out of its queue who waits no longer; returns who sits down because of it.
    pub fn give_up(&mut self, ticket: &Ticket) -> Vec<(W, Place)> {
        let Some(plane) = self.planes.get_mut(&ticket.plane) else {
            return Vec::new();
        };
        let at = (plane.used, plane.served, ticket.plane);
        let Some(state) = plane.state(&ticket.level) else {
            return Vec::new();
        };
        let Some(queue) = state.queues.get_mut(&ticket.queue) else {
            return Vec::new();
        };
        let Some(found) = queue.waiters.iter().position(|waiter| waiter.number == ticket.number) else {
            return Vec::new();
        };
        queue.waiters.remove(found);
        state.waiting -= 1;
        state.leave_queue(ticket.queue, 0);
        plane.waiting -= 1;
        self.waiting -= 1;
        if plane.waiting == 0 {
            self.next.remove(&at);
        }
        plane.drop_empty();
        // It may have stood before one that is narrower.
        self.dispatch()
    }

    fn dispatch(&mut self) -> Vec<(W, Place)> {
        let mut seated = Vec::new();
        while self.waiting > 0 && self.used < self.seats {
            let Some(one) = self.seat_next() else { break };
            seated.push(one);
        }
        seated
    }

    fn seat_next(&mut self) -> Option<(W, Place)> {
        let (seats, used) = (self.seats, self.used);
        let order: Vec<PlaneId> = self.next.iter().take(LOOKED_AT).map(|(_, _, id)| *id).collect();
        for id in order {
            let plane = self.planes.get_mut(&id).expect("planes with waiters are kept");
            let may = share(seats, used, plane);
            // Planes are in the order of what they have: if this one may have no more, none of the others may.
            if plane.used > 0 && plane.used >= may {
                return None;
            }
            let before = (plane.used, plane.served, id);
            let Some((waker, place)) = plane.next(id, may, seats - used) else {
                continue;
            };
            plane.waiting -= 1;
            self.waiting -= 1;
            self.next.remove(&before);
            self.turn += 1;
            let turn = self.turn;
            self.take(&place, turn);
            let plane = &self.planes[&id];
            if plane.waiting > 0 {
                self.next.insert((plane.used, plane.served, id));
            }
            return Some((waker, place));
        }
        None
    }

    /// Counts seats as taken. The plane is not among `next`, or nobody waits in it, or it is put there again after.
    fn take(&mut self, place: &Place, turn: u64) {
        let plane = self.planes.get_mut(&place.plane).expect("just entered");
        let before = (plane.used, plane.served, place.plane);
        let listed = self.next.remove(&before);
        self.used += place.width;
        plane.used += place.width;
        plane.served = turn;
        let state = plane.state(&place.level).expect("just entered");
        state.used += place.width;
        state.served = turn;
        if listed {
            let plane = &self.planes[&place.plane];
            self.next.insert((plane.used, plane.served, place.plane));
        }
    }

    /// Forgets planes that have no request, once there are many.
    fn forget_idle(&mut self) {
        if self.planes.len() >= REMEMBERED {
            let enough = self.planes.len() / 2;
            let mut forgotten = 0;
            self.planes.retain(|_, plane| {
                let keep = plane.used > 0 || plane.waiting > 0 || forgotten >= enough;
                forgotten += usize::from(!keep);
                keep
            });
        }
    }
}

/// How many seats a plane may have while the others have what they have; at least one.
fn share<W>(seats: u32, used: u32, plane: &PlaneSeats<W>) -> u32 {
    let others = used.saturating_sub(plane.used);
    let left = u64::from(seats.saturating_sub(others));
    let share = u32::try_from(left * GREED / (1 + GREED)).unwrap_or(u32::MAX);
    share.max(1)
}

/// Whether a request can sit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    Yes,
    /// Its level has all that it may have.
    LevelFull,
    PlaneFull,
}

impl<W> PlaneSeats<W> {
    fn new(ask: &Ask<'_>) -> Self {
        Self {
            levels: ask.levels.clone(),
            states: ask
                .levels
                .all
                .iter()
                .map(|level| LevelSeats::new(&level.name))
                .collect(),
            used: 0,
            waiting: 0,
            served: 0,
        }
    }

    /// Divides by the levels that the plane has now. Who sits or waits in one that is gone keeps that place.
    fn adopt(&mut self, ask: &Ask<'_>) {
        if Arc::ptr_eq(&self.levels, ask.levels) {
            return;
        }
        let mut old = std::mem::take(&mut self.states);
        for level in &ask.levels.all {
            let kept = old.iter().position(|state| state.name == level.name);
            let state = kept.map_or_else(|| LevelSeats::new(&level.name), |at| old.swap_remove(at));
            self.states.push(state);
        }
        self.states.extend(old.into_iter().filter(|state| !state.is_empty()));
        self.levels = ask.levels.clone();
    }

    fn state(&mut self, name: &Arc<str>) -> Option<&mut LevelSeats<W>> {
        let same = |state: &&mut LevelSeats<W>| Arc::ptr_eq(&state.name, name) || state.name == *name;
        self.states.iter_mut().find(same)
    }

    /// Drops levels that are gone and empty.
    fn drop_empty(&mut self) {
        let current = self.levels.all.len();
        while self.states.len() > current && self.states.last().is_some_and(LevelSeats::is_empty) {
            self.states.pop();
        }
    }

    fn fit(&self, level: usize, width: u32, may: u32, free: u32) -> Fit {
        if width > free {
            return Fit::PlaneFull;
        }
        // However small the plane's part is, one request at a time goes on.
        if self.used == 0 {
            return Fit::Yes;
        }
        if self.used + width > may {
            return Fit::PlaneFull;
        }
        let current = self.levels.all.len();
        if level >= current || self.levels.all[level].response == Response::Exempt {
            return Fit::Yes;
        }
        let used = self.states[level].used;
        let bounds = self.levels.bounds(level, may);
        if used + width <= bounds.reserved {
            return Fit::Yes;
        }
        if used > 0 && used + width > bounds.most {
            return Fit::LevelFull;
        }
        let kept: u32 = (0..current)
            .filter(|other| *other != level)
            .map(|other| {
                let reserved = self.levels.bounds(other, may).reserved;
                reserved.saturating_sub(self.states[other].used)
            })
            .sum();
        if self.used + width + kept > may {
            Fit::LevelFull
        } else {
            Fit::Yes
        }
    }

    /// Takes out of the queues the one who is next in this plane, if there is room.
    fn next(&mut self, id: PlaneId, may: u32, free: u32) -> Option<(W, Place)> {
        let mut order: Vec<usize> = (0..self.states.len())
            .filter(|at| self.states[*at].waiting > 0)
            .collect();
        // Those without bounds first, then who has least of what is its own.
        order.sort_by_key(|at| {
            let Some(level) = self.levels.all.get(*at) else {
                return (0, 0, 0);
            };
            let state = &self.states[*at];
            match level.response {
                Response::Exempt => (0, 0, 0),
                _ => {
                    let nominal = self.levels.bounds(*at, may).nominal.max(1);
                    (1, u64::from(state.used) * 1000 / u64::from(nominal), state.served)
                }
            }
        });
        for at in order {
            let (queue, width) = self.states[at].head()?;
            let width = width.min(may);
            match self.fit(at, width, may, free) {
                Fit::LevelFull => {}
                // Others do not go past it for ever: it is next.
                Fit::PlaneFull => return None,
                Fit::Yes => {
                    let state = &mut self.states[at];
                    let waker = state.take(queue, width);
                    let place = Place {
                        plane: id,
                        level: state.name.clone(),
                        queue: Some(queue),
                        width,
                    };
                    return Some((waker, place));
                }
            }
        }
        None
    }
}

impl<W> LevelSeats<W> {
    fn new(name: &Arc<str>) -> Self {
        Self {
            name: name.clone(),
            used: 0,
            waiting: 0,
            served: 0,
            time: 0,
            queues: BTreeMap::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.used == 0 && self.waiting == 0
    }

    /// The one of these queues with least in it.
    fn shortest(&self, hand: impl Iterator<Item = u32>) -> u32 {
        let load = |queue: &u32| {
            self.queues.get(queue).map_or(0, |queue| {
                let waiting: u64 = queue.waiters.iter().map(|waiter| u64::from(waiter.width)).sum();
                waiting + u64::from(queue.used)
            })
        };
        hand.min_by_key(load).unwrap_or(0)
    }

    /// The queue whose turn it is, and how wide its first is.
    fn head(&self) -> Option<(u32, u32)> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.waiters.is_empty());
        let (number, queue) = waiting.min_by_key(|(_, queue)| (queue.used, queue.time))?;
        Some((*number, queue.waiters.front()?.width))
    }

    fn take(&mut self, number: u32, width: u32) -> W {
        let queue = self.queues.get_mut(&number).expect("the head is of a queue");
        let waiter = queue.waiters.pop_front().expect("the head is of a queue");
        self.time = self.time.max(queue.time);
        queue.time += u64::from(width);
        queue.used += width;
        self.waiting -= 1;
        waiter.waker
    }

    fn leave_queue(&mut self, number: u32, width: u32) {
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.used = queue.used.saturating_sub(width);
            if queue.used == 0 && queue.waiters.is_empty() && queue.time <= self.time {
                self.queues.remove(&number);
            }
        }
        if self.waiting == 0 && self.queues.values().all(|queue| queue.used == 0) {
            self.queues.clear();
        }
    }
}

impl<W> Queue<W> {
    fn new(time: u64) -> Self {
        Self {
            waiters: VecDeque::new(),
            used: 0,
            time,
        }
    }
}

#[cfg(test)]
mod tests;
