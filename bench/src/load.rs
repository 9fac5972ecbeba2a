//! A closed loop: so many connections, each sending its next request as soon as the last is answered.
//!
//! One thread per core with its own small runtime and its share of the connections, so that nothing is passed between
//! threads on the way. Requests are numbered; the caller's function writes request number n, so names are unique.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::endpoint::Endpoint;
use crate::wire::{Body, Connection};

/// Writes request number n into an empty buffer.
pub type Source = Arc<dyn Fn(u64, &mut Vec<u8>) + Send + Sync>;

/// A connection that fails this often in a row gives up: the server is gone.
const FAILURES_IN_A_ROW: u32 = 20;

#[derive(Clone, Copy)]
pub enum Limit {
    /// Warm up, then measure for this long.
    For { warm_up: Duration, measured: Duration },
    /// Send exactly this many, all measured.
    Count(u64),
}

pub struct Plan {
    pub endpoint: Endpoint,
    pub connections: usize,
    pub limit: Limit,
    pub source: Source,
}

/// What a loop measured. Times are in nanoseconds.
pub struct Outcome {
    pub latency: Histogram<u64>,
    pub elapsed: Duration,
    pub errors: u64,
    pub first_error: Option<String>,
    pub bytes: u64,
}

impl Outcome {
    pub fn rate(&self) -> f64 {
        self.latency.len() as f64 / self.elapsed.as_secs_f64()
    }
}

pub fn new_histogram() -> Histogram<u64> {
    // From 1 µs to 2 minutes with three digits.
    Histogram::new_with_bounds(1_000, 120_000_000_000, 3).expect("the bounds are valid")
}

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const STOPPED: u8 = 2;

struct Shared {
    plan: Plan,
    phase: AtomicU8,
    next: AtomicU64,
    last: u64,
}

/// Runs a plan. `at_start` and `at_end` are called at the edges of what is measured, to read the servers' clocks.
pub async fn run(plan: Plan, at_start: impl FnOnce(), at_end: impl FnOnce()) -> Result<Outcome> {
    let (phase, last) = match plan.limit {
        Limit::For { .. } => (WARMING, u64::MAX),
        Limit::Count(count) => (MEASURING, count),
    };
    let limit = plan.limit;
    let threads = std::thread::available_parallelism()
        .map_or(2, usize::from)
        .min(plan.connections);
    let shared = Arc::new(Shared {
        plan,
        phase: AtomicU8::new(phase),
        next: AtomicU64::new(0),
        last,
    });
    let began = Instant::now();
    if let Limit::Count(_) = limit {
        at_start();
        let joined = join(spawn(&shared, threads)).await?;
        at_end();
        return total(joined, began.elapsed());
    }
    let Limit::For { warm_up, measured } = limit else {
        unreachable!("the other limit returned above")
    };
    let workers = spawn(&shared, threads);
    tokio::time::sleep(warm_up).await;
    at_start();
    let began = Instant::now();
    shared.phase.store(MEASURING, Ordering::Relaxed);
    tokio::time::sleep(measured).await;
    shared.phase.store(STOPPED, Ordering::Relaxed);
    let elapsed = began.elapsed();
    at_end();
    total(join(workers).await?, elapsed)
}

type Worker = std::thread::JoinHandle<Result<Vec<Outcome>>>;

fn spawn(shared: &Arc<Shared>, threads: usize) -> Vec<Worker> {
    let connections = shared.plan.connections;
    let share = move |thread: usize| connections / threads + usize::from(thread < connections % threads);
    (0..threads)
        .map(|thread| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let tasks: Vec<_> = (0..share(thread))
                        .map(|_| tokio::spawn(worker(shared.clone())))
                        .collect();
                    let mut outcomes = Vec::new();
                    for task in tasks {
                        outcomes.push(task.await??);
                    }
                    anyhow::Ok(outcomes)
                })
            })
        })
        .collect()
}

async fn join(workers: Vec<Worker>) -> Result<Vec<Outcome>> {
    let joined = tokio::task::spawn_blocking(move || {
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| anyhow::anyhow!("a load thread panicked"))??);
        }
        anyhow::Ok(all)
    });
    joined.await?
}

fn total(parts: Vec<Outcome>, elapsed: Duration) -> Result<Outcome> {
    let mut total = Outcome {
        latency: new_histogram(),
        elapsed,
        errors: 0,
        first_error: None,
        bytes: 0,
    };
    for part in parts {
        total
            .latency
            .add(&part.latency)
            .context("histograms have the same bounds")?;
        total.errors += part.errors;
        total.bytes += part.bytes;
        total.first_error = total.first_error.or(part.first_error);
    }
    Ok(total)
}

async fn worker(shared: Arc<Shared>) -> Result<Outcome> {
    let mut outcome = Outcome {
        latency: new_histogram(),
        elapsed: Duration::ZERO,
        errors: 0,
        first_error: None,
        bytes: 0,
    };
    let mut connection = Connection::open(&shared.plan.endpoint).await?;
    let mut request = Vec::new();
    let mut failures = 0;
    loop {
        let phase = shared.phase.load(Ordering::Relaxed);
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if phase == STOPPED || number >= shared.last {
            return Ok(outcome);
        }
        request.clear();
        (shared.plan.source)(number, &mut request);
        let began = Instant::now();
        let problem = match connection.exchange(&request, Body::Skip).await {
            Ok(reply) if reply.status < 300 => {
                failures = 0;
                if phase == MEASURING && shared.phase.load(Ordering::Relaxed) == MEASURING {
                    outcome.latency.saturating_record(began.elapsed().as_nanos() as u64);
                    outcome.bytes += reply.length;
                }
                continue;
            }
            Ok(reply) => format!("{}: {}", reply.status, String::from_utf8_lossy(&reply.body)),
            Err(err) => {
                let text = format!("{err:#}");
                connection = Connection::open(&shared.plan.endpoint).await.context(text.clone())?;
                text
            }
        };
        outcome.errors += 1;
        failures += 1;
        anyhow::ensure!(failures < FAILURES_IN_A_ROW, "the server keeps failing: {problem}");
        outcome.first_error.get_or_insert(problem);
    }
}
