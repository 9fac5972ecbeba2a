//! What standing still costs: idle watches, stored objects, and definitions of custom resources.

use anyhow::Result;

use super::definition::{Custom, FIELDS};
use super::planes::create;
use super::requests::{configmap, configmaps, fill};
use super::watch::watch_path;
use super::{Bench, Subject, fresh_namespace};
use crate::endpoint::Endpoint;
use crate::process::{disk_usage, resident, settled};
use crate::report::Measurement;
use crate::subject::Running;
use crate::watching::Watches;

/// More would need gigabytes in a server that keeps several goroutines for each.
const IDLE_WATCHES_OF_OTHERS: usize = 5_000;

pub async fn idle_watches(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let count = match subject {
        Subject::Mica { .. } => bench.sizes.idle_watches,
        _ => bench.sizes.idle_watches.min(IDLE_WATCHES_OF_OTHERS),
    };
    let running = subject.start(&bench.scratch).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    let path = watch_path(&running.endpoint, &configmaps(&namespace)).await?;
    // The first watch of a kind builds what all of them share.
    let first = Watches::open(&running.endpoint, &path, 1, None).await?;
    let before = settled(&running.pids()).await;
    let mut watches = Watches::open(&running.endpoint, &path, count, None).await?;
    let after = settled(&running.pids()).await;
    let each = after.saturating_sub(before) as f64 / count as f64;
    let detail = format!("{count} watches, {:.0} MiB in all", after as f64 / MIB);
    let first_error = watches.failure().await;
    let errors = first_error.iter().count() as u64;
    let measurement = Measurement::new("idle-watches", subject.name(), each, "bytes/watch");
    report(Measurement {
        detail,
        errors,
        first_error,
        ..measurement
    });
    drop((first, watches));
    running.stop().await
}

pub async fn objects(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let count = bench.sizes.objects;
    let running = subject.start(&bench.scratch).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    fill(bench, &running, &configmaps(&namespace), &configmap(), 100).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    let disk = || running.directory().map_or(0, disk_usage);
    let (memory_before, disk_before) = (settled(&running.pids()).await, disk());
    fill(bench, &running, &configmaps(&namespace), &configmap(), count).await?;
    let peak = resident(&running.pids());
    let (memory_after, disk_after) = (settled(&running.pids()).await, disk());
    let grown = |before: u64, after: u64| after.saturating_sub(before) as f64 / count as f64;
    let detail = format!(
        "{count} objects of 1 KiB; {:.0} MiB at the end of writing",
        peak as f64 / MIB
    );
    let memory = Measurement::new(
        "objects",
        subject.name(),
        grown(memory_before, memory_after),
        "bytes of memory",
    );
    report(Measurement { detail, ..memory });
    report(Measurement::new(
        "objects-disk",
        subject.name(),
        grown(disk_before, disk_after),
        "bytes of disk",
    ));
    running.stop().await
}

/// Everything that the objects bring is counted: their definition, what serves it, and what writing them leaves behind.
pub async fn custom_objects(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let count = bench.sizes.custom_objects;
    let running = subject.start(&bench.scratch).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    let idle = settled(&running.pids()).await;
    let small = Custom::small();
    small.install(&running.endpoint).await?;
    small.served(&running.endpoint, &namespace).await?;
    fill(bench, &running, &small.collection(&namespace), &small.object, count).await?;
    let peak = resident(&running.pids());
    let grown = settled(&running.pids()).await.saturating_sub(idle);
    let detail = format!(
        "{count} custom resources of 1 KiB, above {:.0} MiB when idle; {:.0} MiB at the end of writing",
        idle as f64 / MIB,
        peak as f64 / MIB
    );
    let memory = Measurement::new("custom-memory", subject.name(), grown as f64 / MIB, "MiB above idle");
    report(Measurement { detail, ..memory });
    running.stop().await
}

/// Definitions of which no two are alike, each used once: listed, and an object checked and thrown away.
///
/// The first hundred also fill what is bounded (recent changes kept for watches, records read lately, what the allocator
/// holds for the next request), so the second hundred show what a definition costs. Both are reported.
pub async fn definitions(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let count = bench.sizes.definitions;
    let running = subject.start(&bench.scratch).await?;
    let endpoint = plane_of(bench, subject, &running).await?;
    let namespace = fresh_namespace(&endpoint).await?;
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / count as f64 / 1024.0;
    let idle = settled(&running.pids()).await;
    load_definitions(&endpoint, &namespace, 0..count).await?;
    let filled = settled(&running.pids()).await;
    load_definitions(&endpoint, &namespace, count..2 * count).await?;
    let after = settled(&running.pids()).await;
    let detail = format!(
        "{count} definitions of {FIELDS} fields, {} bytes of JSON each, after {count} others; {:.0} MiB in all",
        Custom::wide(0).definition_size(),
        after as f64 / MIB
    );
    let memory = Measurement::new("definitions", subject.name(), each(filled, after), "KiB/definition");
    report(Measurement { detail, ..memory });
    let first = each(idle, filled);
    let memory = Measurement::new("definitions-first", subject.name(), first, "KiB/definition");
    let detail = format!("the first {count}, with all that they share");
    report(Measurement { detail, ..memory });
    running.stop().await
}

async fn load_definitions(endpoint: &Endpoint, namespace: &str, numbers: std::ops::Range<usize>) -> Result<()> {
    let kinds: Vec<_> = numbers.map(Custom::wide).collect();
    for kind in &kinds {
        kind.install(endpoint).await?;
    }
    for kind in &kinds {
        kind.served(endpoint, namespace).await?;
    }
    Ok(())
}

/// A plane of our server; another server is one plane.
async fn plane_of(bench: &Bench, subject: &Subject, running: &Running) -> Result<Endpoint> {
    let mut endpoint = running.endpoint.clone();
    if matches!(subject, Subject::Mica { .. }) {
        create(bench, running, "d", 1).await?;
        endpoint.prefix = format!("{}/clusters/d{:08}/control-plane", endpoint.prefix, 0);
    }
    Ok(endpoint)
}

pub const MIB: f64 = (1 << 20) as f64;
