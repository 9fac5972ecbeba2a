//! The same thirty definitions in thousands of planes: what a plane that is used costs beyond what it stores.
//!
//! The server is started again once everything is stored. Until a plane is asked for something, its definitions are stored
//! data and no more; the first request makes it know them. So memory before and after those first requests differs by
//! exactly what is asked here, once other things are out of the way. Definitions of other planes are read one by one, which
//! fills the server's bounded cache of records. Thousands of other planes are used, one by one as those that are measured:
//! that makes the one compiled copy, and fills the caches of lists and of the store's index with what such requests leave
//! there; what they held before was of other sizes, and memory would still grow while it is replaced. What the allocator
//! keeps of freed memory, for each thread and in all, changes by more than all that: it is told to keep none.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use super::definition::{DEFINITIONS, SERVED_WITHIN};
use super::memory::MIB;
use super::planes::{CRDS, crd, create, post_all};
use super::{Bench, OBJECT_NUMBER, Subject, Template};
use crate::endpoint::Endpoint;
use crate::load::new_histogram;
use crate::process::settled;
use crate::report::Measurement;
use crate::subject::Freed;
use crate::wire::{Body, Connection};

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let (count, warm) = (bench.sizes.sharing, bench.sizes.warm);
    let running = subject.start(&bench.scratch).await?;
    let bodies: Vec<_> = (0..CRDS).map(|n| (DEFINITIONS, crd(n))).collect();
    for (prefix, planes) in [("warm", warm), ("s", count)] {
        create(bench, &running, prefix, planes).await?;
        post_all(bench, &running, prefix, planes, &bodies).await?;
        // Nothing may be left to do for a definition when the server ends.
        for kind in 0..CRDS {
            use_each(&running.endpoint, prefix, planes, kind, Patience::UntilServed).await?;
        }
    }
    let running = subject.restart(running, Freed::GivenBack).await?;
    let stored = settled(&running.pids()).await;
    for kind in 0..CRDS {
        use_each(&running.endpoint, "warm", 1, kind, Patience::None).await?;
    }
    for kind in 0..CRDS {
        let definition = format!("{DEFINITIONS}/things{kind}.bench.example.com");
        read_each(&running.endpoint, "warm", warm.min(READ), &definition, Patience::None).await?;
    }
    use_each(&running.endpoint, "warm", warm, CRDS - 1, Patience::None).await?;
    let before = settled(&running.pids()).await;
    let latency = use_each(&running.endpoint, "s", count, CRDS - 1, Patience::None).await?;
    let after = settled(&running.pids()).await;

    let each = after.saturating_sub(before) as f64 / count as f64;
    let detail = format!(
        "{count} planes with the same {CRDS} definitions; {:.0} MiB in all, of which caches, the compiled copy and the {warm} planes before them {:.0} MiB",
        after as f64 / MIB,
        before.saturating_sub(stored) as f64 / MIB,
    );
    let memory = Measurement::new("shared-definitions", subject.name(), each, "bytes/plane");
    report(Measurement { detail, ..memory });
    let p99 = latency.value_at_quantile(0.99) as f64 / 1e6;
    let first = Measurement::new("shared-first-request", subject.name(), p99, "ms (p99)");
    report(
        Measurement {
            operations: count,
            detail: "a list of a custom resource".to_owned(),
            ..first
        }
        .with_latency(&latency),
    );
    running.stop().await
}

/// Planes whose definitions are read one by one, thirty each: more than the cache of records holds.
const READ: u64 = 500;

/// Whether a kind that is not served yet is asked for again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    UntilServed,
}

/// Lists one kind in planes 0 to n-1, one after the other, and says how long each took.
async fn use_each(
    endpoint: &Endpoint,
    prefix: &str,
    planes: u64,
    kind: u64,
    patience: Patience,
) -> Result<Histogram<u64>> {
    let list = format!("/apis/bench.example.com/v1/namespaces/default/things{kind}");
    read_each(endpoint, prefix, planes, &list, patience).await
}

/// Reads a path in planes 0 to n-1, one after the other, and says how long each took.
async fn read_each(
    endpoint: &Endpoint,
    prefix: &str,
    planes: u64,
    path: &str,
    patience: Patience,
) -> Result<Histogram<u64>> {
    let path = format!("/clusters/{prefix}{OBJECT_NUMBER}/control-plane{path}");
    let template = Template::new(endpoint.request("GET", &path, b""));
    let mut connection = Connection::open(endpoint).await?;
    let mut request = Vec::new();
    let mut latency = new_histogram();
    for plane in 0..planes {
        template.write(plane, 0, &mut request);
        let began = Instant::now();
        loop {
            let sent = Instant::now();
            let reply = connection.exchange(&request, Body::Skip).await?;
            if reply.status == 200 {
                latency.saturating_record(sent.elapsed().as_nanos() as u64);
                break;
            }
            let again = patience == Patience::UntilServed && began.elapsed() < SERVED_WITHIN;
            anyhow::ensure!(
                again && reply.status == 404,
                "{path} of {prefix} {plane}: {} {}",
                reply.status,
                String::from_utf8_lossy(&reply.body)
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(latency)
}
