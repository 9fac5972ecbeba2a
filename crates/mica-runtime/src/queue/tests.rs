//! What the queue promises, with a clock that the tests turn.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn request(cluster: &str, name: &str) -> Request {
    Request::new(ClusterName::new(cluster), Some("ns"), name)
}

/// Lanes with a clock that the test turns.
struct Bench {
    lanes: Lanes,
    now: Instant,
}

impl Bench {
    fn new(per_cluster: usize) -> Self {
        let limits = Limits {
            per_cluster,
            backoff: Backoff {
                jitter: 0.0,
                ..Backoff::default()
            },
        };
        Self {
            lanes: Lanes::new(limits),
            now: Instant::now(),
        }
    }

    fn add(&mut self, cluster: &str, name: &str, priority: Priority) {
        self.lanes.add(request(cluster, name), priority, self.now);
    }

    /// The next item, as `cluster/name`, or nothing.
    fn take(&mut self) -> String {
        match self.lanes.take(self.now) {
            Next::Work(work) => format!("{}/{}", work.request.cluster, work.request.name),
            Next::At(due) => format!("in {:?}", due - self.now),
            Next::Nothing => String::new(),
        }
    }

    fn done(&mut self, cluster: &str, name: &str, outcome: Outcome) {
        self.lanes.done(&request(cluster, name), outcome, self.now);
    }

    /// Everything in order, each done before the next is taken.
    fn drain(&mut self) -> Vec<String> {
        let mut order = Vec::new();
        while let Next::Work(work) = self.lanes.take(self.now) {
            order.push(format!("{}/{}", work.request.cluster, work.request.name));
            self.lanes.done(&work.request, Outcome::Done, self.now);
        }
        order
    }
}

use Priority::{High, Low, Normal};

#[test]
fn an_object_is_there_once_and_with_one_worker_at_a_time() {
    let mut queue = Bench::new(9);
    queue.add("a", "x", Normal);
    queue.add("a", "x", Normal);
    assert_eq!(
        (queue.lanes.depth(), queue.take().as_str(), queue.take().as_str()),
        (1, "a/x", "")
    );
    queue.add("a", "x", Normal);
    queue.add("a", "x", Low);
    assert_eq!(queue.take(), "", "a worker has it");
    queue.done("a", "x", Outcome::Done);
    assert_eq!((queue.take().as_str(), queue.take().as_str()), ("a/x", ""));
    queue.done("a", "x", Outcome::Done);
    assert_eq!((queue.take().as_str(), queue.lanes.depth()), ("", 0));
}

#[test]
fn clusters_take_turns_however_much_one_adds() {
    let mut queue = Bench::new(9);
    for i in 0..1000 {
        queue.add("storm", &i.to_string(), Normal);
    }
    queue.add("quiet", "x", Normal);
    queue.add("calm", "y", Normal);
    let order = queue.drain();
    assert_eq!(order[..4], ["storm/0", "quiet/x", "calm/y", "storm/1"]);
    assert_eq!(order.len(), 1002);
}

#[test]
fn the_urgent_goes_first_and_the_rest_is_never_starved() {
    let mut queue = Bench::new(9);
    queue.add("a", "first", Low);
    queue.add("a", "second", Low);
    for i in 0..20 {
        queue.add("b", &format!("n{i}"), Normal);
    }
    queue.add("a", "changed", High);
    queue.add("a", "second", Normal);
    let order = queue.drain();
    assert_eq!(
        order[..3],
        ["a/changed", "b/n0", "a/second"],
        "what was added again has its higher priority"
    );
    assert_eq!(
        order[LOW_TURN as usize - 1],
        "a/first",
        "one turn in {LOW_TURN} is for the lowest"
    );
    assert_eq!(order.len(), 23);
}

#[test]
fn what_failed_waits_twice_as_long_each_time_and_success_forgets_that() {
    let mut queue = Bench::new(9);
    queue.add("a", "x", Normal);
    for wait in [5, 10, 20] {
        assert_eq!(queue.take(), "a/x");
        queue.done("a", "x", Outcome::Failed);
        assert_eq!(queue.take(), format!("in {wait}ms"));
        queue.now += Duration::from_millis(wait);
    }
    assert_eq!(queue.take(), "a/x");
    queue.done("a", "x", Outcome::Again(Duration::from_secs(60)));
    assert_eq!(queue.take(), "in 60s");
    queue.add("a", "x", Normal);
    assert_eq!(queue.take(), "a/x", "a change does not wait");
    queue.done("a", "x", Outcome::Failed);
    assert_eq!(queue.take(), "in 5ms");
}

#[test]
fn the_earliest_of_several_times_counts() {
    let mut queue = Bench::new(9);
    let later = |queue: &mut Bench, seconds| {
        queue
            .lanes
            .add_after(request("a", "x"), Duration::from_secs(seconds), queue.now);
    };
    later(&mut queue, 30);
    later(&mut queue, 10);
    later(&mut queue, 20);
    assert_eq!(queue.take(), "in 10s");
    queue.now += Duration::from_secs(10);
    assert_eq!(queue.take(), "a/x");
    later(&mut queue, 5);
    queue.done("a", "x", Outcome::Again(Duration::from_secs(7)));
    assert_eq!(queue.take(), "in 5s");
    queue.now += Duration::from_secs(60);
    assert_eq!(
        (queue.take().as_str(), queue.take().as_str()),
        ("a/x", ""),
        "the void times are gone"
    );
}

#[test]
fn a_cluster_has_no_more_workers_than_its_cap_and_none_while_it_is_held() {
    let mut queue = Bench::new(2);
    for name in ["1", "2", "3"] {
        queue.add("a", name, Normal);
    }
    assert_eq!([queue.take(), queue.take(), queue.take()], ["a/1", "a/2", ""]);
    queue.add("b", "1", Normal);
    assert_eq!(queue.take(), "b/1");
    queue.lanes.hold(&ClusterName::new("a"));
    queue.done("a", "1", Outcome::Done);
    assert_eq!(queue.take(), "");
    queue.lanes.release(&ClusterName::new("a"));
    assert_eq!(queue.take(), "a/3");
}

#[test]
fn nothing_is_left_of_a_cluster_that_is_gone() {
    let mut queue = Bench::new(9);
    for name in ["ready", "running"] {
        queue.add("a", name, High);
    }
    queue
        .lanes
        .add_after(request("a", "later"), Duration::from_secs(1), queue.now);
    queue.add("b", "x", Normal);
    assert_eq!(queue.take(), "a/ready");
    queue.lanes.purge(&ClusterName::new("a"));
    queue.done("a", "ready", Outcome::Failed);
    assert_eq!(
        (queue.take().as_str(), queue.take().as_str(), queue.lanes.depth()),
        ("b/x", "", 0)
    );
}

#[test]
fn what_a_worker_has_of_a_cluster_that_went_and_came_again_is_nobody_elses() {
    let mut queue = Bench::new(1);
    queue.add("a", "x", Normal);
    assert_eq!(queue.take(), "a/x");
    queue.lanes.purge(&ClusterName::new("a"));
    queue.add("a", "x", Normal);
    queue.add("a", "y", Normal);
    assert_eq!(queue.take(), "", "the first worker still has it, and the cap counts it");
    queue.done("a", "x", Outcome::Failed);
    assert_eq!([queue.take(), queue.take()], ["a/y", ""]);
    queue.done("a", "y", Outcome::Done);
    assert_eq!(queue.take(), "a/x");
    queue.done("a", "x", Outcome::Done);
    assert_eq!((queue.take().as_str(), queue.lanes.depth()), ("", 0));
}

#[test]
fn times_that_are_void_do_not_pile_up() {
    let mut queue = Bench::new(9);
    for round in 0..10_000 {
        queue.lanes.add_after(
            request("a", &(round % 10).to_string()),
            Duration::from_secs(3600),
            queue.now,
        );
        queue.lanes.purge(&ClusterName::new("a"));
    }
    assert!(queue.lanes.times() < 2048, "{}", queue.lanes.times());
}

proptest! {
    /// Whatever is added, delayed, failed and purged: nothing is with two workers, nothing that was added is lost, and caps hold.
    #[test]
    fn every_added_object_is_done_by_one_worker_at_a_time(steps in prop::collection::vec((0u8..6, 0usize..4, 0usize..5), 0..400)) {
        let mut queue = Bench::new(2);
        let mut running: HashSet<Request> = HashSet::new();
        let mut wanted: HashSet<Request> = HashSet::new();
        // What workers had when its cluster was purged.
        let mut over: HashSet<Request> = HashSet::new();
        for (step, cluster, name) in steps {
            let one = request(&cluster.to_string(), &name.to_string());
            match step {
                0 | 1 => {
                    queue.lanes.add(one.clone(), [Low, Normal, High][name % 3], queue.now);
                    wanted.insert(one);
                }
                2 => {
                    queue.lanes.add_after(one.clone(), Duration::from_millis(10), queue.now);
                    wanted.insert(one);
                }
                3 => if let Next::Work(work) = queue.lanes.take(queue.now) {
                    prop_assert!(running.insert(work.request.clone()), "{} is with two workers", work.request);
                    wanted.remove(&work.request);
                    let mut counts: HashMap<&ClusterName, usize> = HashMap::new();
                    running.iter().for_each(|one| *counts.entry(&one.cluster).or_default() += 1);
                    prop_assert!(counts.values().all(|count| *count <= 2));
                },
                4 => if let Some(one) = running.iter().next().cloned() {
                    running.remove(&one);
                    let outcome = if name == 0 { Outcome::Failed } else { Outcome::Done };
                    queue.lanes.done(&one, outcome, queue.now);
                    if !over.remove(&one) && outcome == Outcome::Failed { wanted.insert(one); }
                },
                _ => {
                    queue.now += Duration::from_millis(name as u64 * 7);
                    if name == 4 {
                        let gone = ClusterName::new(cluster.to_string());
                        queue.lanes.purge(&gone);
                        wanted.retain(|one| one.cluster != gone);
                        over.extend(running.iter().filter(|one| one.cluster == gone).cloned());
                    }
                }
            }
        }
        for one in running.drain() {
            queue.lanes.done(&one, Outcome::Done, queue.now);
        }
        queue.now += Duration::from_secs(2000);
        while let Next::Work(work) = queue.lanes.take(queue.now) {
            wanted.remove(&work.request);
            queue.lanes.done(&work.request, Outcome::Done, queue.now);
        }
        prop_assert!(wanted.is_empty(), "lost: {wanted:?}");
        prop_assert_eq!(queue.lanes.depth(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_wake_when_something_is_due() {
    let queue = Arc::new(Queue::new(Limits::default()));
    queue.add_after(request("a", "later"), Duration::from_secs(30));
    let start = Instant::now();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.take().await.request }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.add(request("b", "now"), Normal);
    assert_eq!(waiting.await.unwrap(), request("b", "now"));
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert_eq!(queue.take().await.request, request("a", "later"));
    assert_eq!(start.elapsed(), Duration::from_secs(30));
}

#[tokio::test]
async fn no_wake_up_is_lost_among_many_workers() {
    let queue = Arc::new(Queue::new(Limits::default()));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    let work = queue.take().await;
                    tokio::task::yield_now().await;
                    queue.done(&work.request, Outcome::Done);
                }
            })
        })
        .collect();
    for i in 0..800 {
        queue.add(request(&(i % 10).to_string(), &i.to_string()), Normal);
        if i % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(queue.depth(), 0);
}
