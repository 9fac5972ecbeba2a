//! The order of work: a lane for each cluster, and turns among the lanes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use crate::request::{ClusterName, Request};

/// One turn in so many goes to the lowest priority that waits.
pub const LOW_TURN: u64 = 8;

/// Void times that may be there before anybody looks for them.
const VOID_TIMES: usize = 1024;

/// How soon an item should be done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// What was there before anybody looked: initial lists and lists read again.
    Low,
    /// What changed.
    #[default]
    Normal,
    /// What somebody waits for.
    High,
}

const PRIORITIES: usize = 3;
const HIGHEST_FIRST: [usize; PRIORITIES] = [2, 1, 0];
const LOWEST_FIRST: [usize; PRIORITIES] = [0, 1, 2];

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Items of one cluster that workers have at once.
    pub per_cluster: usize,
    pub backoff: Backoff,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_cluster: usize::MAX,
            backoff: Backoff::default(),
        }
    }
}

/// What a worker found out about an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is as it should be.
    Done,
    /// It is as it should be, and is looked at again later.
    Again(Duration),
    /// It failed, and is tried again after its backoff.
    Failed,
}

/// An item that a worker has.
#[derive(Clone, PartialEq, Debug)]
pub struct Work {
    pub request: Request,
    pub priority: Priority,
    /// Failures in a row before this try.
    pub failures: u32,
    /// How long it was ready before a worker took it.
    pub waited: Duration,
}

/// What can be taken.
#[derive(PartialEq, Debug)]
pub enum Next {
    Work(Work),
    /// Nothing before then.
    At(Instant),
    Nothing,
}

/// All items and where they stand.
pub struct Lanes {
    limits: Limits,
    /// In order, so that those of one cluster stand together: when it goes, that costs what it had.
    items: BTreeMap<Request, Item>,
    lanes: HashMap<ClusterName, Lane>,
    /// For each priority the clusters that have something of it ready and may have it taken, in the order of their turns.
    turns: [VecDeque<ClusterName>; PRIORITIES],
    /// Items with a delay. One whose item says another time is void.
    delayed: BinaryHeap<Reverse<(Instant, u64, Request)>>,
    taken: u64,
    sequence: u64,
    ready: usize,
}

struct Item {
    stage: Stage,
    failures: u32,
}

enum Stage {
    Ready {
        priority: Priority,
        since: Instant,
    },
    Delayed {
        due: Instant,
    },
    /// With a worker; and what is to follow. What the worker says counts only in its time.
    Running {
        again: Option<Then>,
        time: Time,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Time {
    Now,
    /// The cluster was purged since it was taken.
    Over,
}

#[derive(Clone, Copy)]
enum Then {
    Now(Priority),
    At(Instant),
}

#[derive(Default)]
struct Lane {
    /// Ready items by priority. One whose item says another stage or priority is void.
    ready: [VecDeque<Request>; PRIORITIES],
    running: usize,
    held: bool,
    in_turn: [bool; PRIORITIES],
}

impl Lanes {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            items: BTreeMap::new(),
            lanes: HashMap::new(),
            turns: Default::default(),
            delayed: BinaryHeap::new(),
            taken: 0,
            sequence: 0,
            ready: 0,
        }
    }

    pub fn depth(&self) -> usize {
        self.ready
    }

    /// How many times are remembered, void ones too.
    #[cfg(test)]
    pub(super) fn times(&self) -> usize {
        self.delayed.len()
    }

    /// An item is to be done as soon as it is its turn. Of several priorities the highest counts.
    pub fn add(&mut self, request: Request, priority: Priority, now: Instant) {
        match self.items.get_mut(&request).map(|item| &mut item.stage) {
            Some(Stage::Running { again, .. }) => {
                let before = match again {
                    Some(Then::Now(before)) => *before,
                    _ => Priority::Low,
                };
                *again = Some(Then::Now(priority.max(before)));
            }
            Some(Stage::Ready { priority: before, .. }) if *before >= priority => {}
            Some(Stage::Ready { priority: before, .. }) => {
                *before = priority;
                self.enter(request, priority);
            }
            Some(stage @ Stage::Delayed { .. }) => {
                *stage = Stage::Ready { priority, since: now };
                self.ready += 1;
                self.enter(request, priority);
            }
            None => self.insert(request, priority, 0, now),
        }
    }

    /// An item is to be done later. If it is to be done sooner already, nothing changes.
    pub fn add_after(&mut self, request: Request, delay: Duration, now: Instant) {
        if delay.is_zero() {
            return self.add(request, Priority::Normal, now);
        }
        let at = now + delay;
        match self.items.get_mut(&request).map(|item| &mut item.stage) {
            Some(Stage::Ready { .. }) => {}
            Some(Stage::Running { again, .. }) => {
                *again = Some(match again {
                    Some(Then::Now(priority)) => Then::Now(*priority),
                    Some(Then::At(before)) => Then::At(at.min(*before)),
                    None => Then::At(at),
                });
            }
            Some(Stage::Delayed { due }) if *due <= at => {}
            _ => self.delay(request, at, None),
        }
    }

    /// The next item for a worker.
    pub fn take(&mut self, now: Instant) -> Next {
        self.wake(now);
        let order = if self.taken % LOW_TURN == LOW_TURN - 1 {
            LOWEST_FIRST
        } else {
            HIGHEST_FIRST
        };
        for level in order {
            while let Some(cluster) = self.turns[level].pop_front() {
                if let Some(work) = self.take_of(&cluster, level, now) {
                    self.taken += 1;
                    return Next::Work(work);
                }
            }
        }
        while let Some(Reverse((due, _, request))) = self.delayed.peek() {
            let stage = self.items.get(request).map(|item| &item.stage);
            if matches!(stage, Some(Stage::Delayed { due: counts }) if counts == due) {
                return Next::At(*due);
            }
            self.delayed.pop();
        }
        Next::Nothing
    }

    /// A worker is through with an item. If it was added meanwhile, it is ready again at once.
    pub fn done(&mut self, request: &Request, outcome: Outcome, now: Instant) {
        let Some(item) = self.items.get_mut(request) else {
            return;
        };
        let Stage::Running { again, time } = item.stage else {
            return;
        };
        let outcome = match time {
            Time::Now => outcome,
            Time::Over => Outcome::Done,
        };
        item.failures = match outcome {
            Outcome::Failed => item.failures.saturating_add(1),
            Outcome::Done | Outcome::Again(_) => 0,
        };
        let failures = item.failures;
        let asked = match outcome {
            Outcome::Done => None,
            Outcome::Again(delay) => Some(now + delay),
            Outcome::Failed => Some(now + self.limits.backoff.after(failures, request)),
        };
        let then = match (again, asked) {
            (Some(Then::At(one)), Some(other)) => Some(Then::At(one.min(other))),
            (Some(then), _) => Some(then),
            (None, asked) => asked.map(Then::At),
        };
        self.items.remove(request);
        if let Some(lane) = self.lanes.get_mut(&request.cluster) {
            lane.running -= 1;
        }
        match then {
            Some(Then::Now(priority)) => self.insert(request.clone(), priority, failures, now),
            Some(Then::At(at)) => self.delay(request.clone(), at, Some(failures)),
            None => {}
        }
        self.line_up(&request.cluster);
        self.tidy(&request.cluster);
    }

    /// Forgets everything of a cluster. What workers have they give back as always, and it is not done again for what they
    /// say.
    pub fn purge(&mut self, cluster: &ClusterName) {
        let first = Request {
            cluster: cluster.clone(),
            namespace: None,
            name: Default::default(),
        };
        let of_it = self
            .items
            .range(first..)
            .take_while(|(request, _)| request.cluster == *cluster);
        let gone: Vec<_> = of_it.map(|(request, _)| request.clone()).collect();
        for request in gone {
            match self.items.get_mut(&request).map(|item| &mut item.stage) {
                // It stays until it is given back: if the cluster comes again, nobody else may have it before.
                Some(Stage::Running { again, time }) => (*again, *time) = (None, Time::Over),
                Some(stage) => {
                    if matches!(stage, Stage::Ready { .. }) {
                        self.ready -= 1;
                    }
                    self.items.remove(&request);
                }
                None => {}
            }
        }
        let lane = self.lanes.remove(cluster).unwrap_or_default();
        for (turns, in_turn) in self.turns.iter_mut().zip(lane.in_turn) {
            if in_turn {
                turns.retain(|other| other != cluster);
            }
        }
        if lane.running > 0 {
            let rest = Lane {
                running: lane.running,
                ..Lane::default()
            };
            self.lanes.insert(cluster.clone(), rest);
        }
        self.drop_void();
    }

    /// Times that are void are passed over when they come. Here they are dropped before, once they are the larger part.
    fn drop_void(&mut self) {
        if self.delayed.len() > 2 * self.items.len() + VOID_TIMES {
            let items = &self.items;
            self.delayed.retain(|Reverse((at, _, request))| {
                let stage = items.get(request).map(|item| &item.stage);
                matches!(stage, Some(Stage::Delayed { due }) if due == at)
            });
        }
    }

    pub fn hold(&mut self, cluster: &ClusterName) {
        self.lanes.entry(cluster.clone()).or_default().held = true;
    }

    pub fn release(&mut self, cluster: &ClusterName) {
        if let Some(lane) = self.lanes.get_mut(cluster) {
            lane.held = false;
        }
        self.line_up(cluster);
        self.tidy(cluster);
    }

    /// What is due is ready.
    fn wake(&mut self, now: Instant) {
        while let Some(Reverse((due, ..))) = self.delayed.peek()
            && *due <= now
        {
            let Some(Reverse((at, _, request))) = self.delayed.pop() else {
                return;
            };
            let Some(item) = self.items.get_mut(&request) else {
                continue;
            };
            if matches!(item.stage, Stage::Delayed { due } if due == at) {
                let priority = Priority::Normal;
                item.stage = Stage::Ready { priority, since: at };
                self.ready += 1;
                self.enter(request, priority);
            }
        }
    }

    fn take_of(&mut self, cluster: &ClusterName, level: usize, now: Instant) -> Option<Work> {
        let lane = self.lanes.get_mut(cluster)?;
        lane.in_turn[level] = false;
        if lane.held || lane.running >= self.limits.per_cluster {
            return None;
        }
        while let Some(request) = lane.ready[level].pop_front() {
            let Some(item) = self.items.get_mut(&request) else {
                continue;
            };
            let Stage::Ready { priority, since } = item.stage else {
                continue;
            };
            if priority as usize != level {
                continue;
            }
            item.stage = Stage::Running {
                again: None,
                time: Time::Now,
            };
            lane.running += 1;
            self.ready -= 1;
            let failures = item.failures;
            self.line_up(cluster);
            return Some(Work {
                request,
                priority,
                failures,
                waited: now.saturating_duration_since(since),
            });
        }
        None
    }

    fn insert(&mut self, request: Request, priority: Priority, failures: u32, now: Instant) {
        let stage = Stage::Ready { priority, since: now };
        self.items.insert(request.clone(), Item { stage, failures });
        self.ready += 1;
        self.enter(request, priority);
    }

    /// `None` keeps the failures that are known.
    fn delay(&mut self, request: Request, due: Instant, failures: Option<u32>) {
        let known = self.items.get(&request).map_or(0, |item| item.failures);
        let item = Item {
            stage: Stage::Delayed { due },
            failures: failures.unwrap_or(known),
        };
        self.items.insert(request.clone(), item);
        self.sequence += 1;
        self.delayed.push(Reverse((due, self.sequence, request)));
        self.drop_void();
    }

    fn enter(&mut self, request: Request, priority: Priority) {
        let cluster = request.cluster.clone();
        let lane = self.lanes.entry(cluster.clone()).or_default();
        lane.ready[priority as usize].push_back(request);
        self.line_up(&cluster);
    }

    /// Gives a cluster its place among those that wait for a turn, if it may have one and has none yet.
    fn line_up(&mut self, cluster: &ClusterName) {
        let Some(lane) = self.lanes.get_mut(cluster) else {
            return;
        };
        if lane.held || lane.running >= self.limits.per_cluster {
            return;
        }
        for level in LOWEST_FIRST {
            if !lane.in_turn[level] && !lane.ready[level].is_empty() {
                lane.in_turn[level] = true;
                self.turns[level].push_back(cluster.clone());
            }
        }
    }

    /// A cluster of which nothing waits and nothing runs costs nothing.
    fn tidy(&mut self, cluster: &ClusterName) {
        let idle = |lane: &Lane| lane.running == 0 && !lane.held && lane.ready.iter().all(VecDeque::is_empty);
        if self.lanes.get(cluster).is_some_and(idle) {
            self.lanes.remove(cluster);
        }
    }
}
