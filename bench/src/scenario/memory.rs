//! What standing still costs: idle watches, and stored objects.

use anyhow::Result;

use super::requests::fill;
use super::watch::watch_path;
use super::{Bench, Subject, fresh_namespace};
use crate::process::{disk_usage, resident, settled};
use crate::report::Measurement;
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
    let path = watch_path(&running.endpoint, &namespace).await?;
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
    fill(bench, &running, &namespace, 100).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    let disk = || running.directory().map_or(0, disk_usage);
    let (memory_before, disk_before) = (settled(&running.pids()).await, disk());
    fill(bench, &running, &namespace, count).await?;
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

pub const MIB: f64 = (1 << 20) as f64;
