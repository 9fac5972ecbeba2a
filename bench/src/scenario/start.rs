//! From the start of the process to the first 200 of `/readyz`, on an empty directory; the median of several. Also of the pair
//! of programs that a test environment starts, as it starts them.

use anyhow::Result;

use super::memory::MIB;
use super::{Bench, Subject};
use crate::process::settled;
use crate::reference::{Disk, Reference};
use crate::report::Measurement;

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let mut times = Vec::new();
    let mut memory = 0;
    for round in 0..bench.sizes.starts {
        let running = subject.start(&bench.scratch).await?;
        times.push(running.ready_after.as_secs_f64() * 1e3);
        if round + 1 == bench.sizes.starts {
            memory = settled(&running.pids()).await;
        }
        running.stop().await?;
    }
    report(median("start", subject, times));
    let detail = "resident memory of all its processes".to_owned();
    let idle = Measurement::new("idle-memory", subject.name(), memory as f64 / MIB, "MiB");
    report(Measurement { detail, ..idle });
    Ok(())
}

/// etcd and kube-apiserver, or what stands in for them, with the flags of a test environment.
pub async fn pair(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..bench.sizes.starts {
        let directory = tempfile::tempdir_in(&bench.scratch)?;
        let Some(binaries) = subject.pair(directory.path())? else {
            return Ok(());
        };
        let started = Reference::start(&binaries, directory.path(), Disk::Unsynced).await?;
        times.push(started.pair_ready_after.as_secs_f64() * 1e3);
        started.stop().await?;
    }
    report(median("pair", subject, times));
    Ok(())
}

fn median(scenario: &'static str, subject: &Subject, mut times: Vec<f64>) -> Measurement {
    times.sort_by(f64::total_cmp);
    let (fastest, slowest) = (times[0], times[times.len() - 1]);
    Measurement {
        detail: format!("{} starts, {fastest:.0} to {slowest:.0} ms", times.len()),
        ..Measurement::new(scenario, subject.name(), times[times.len() / 2], "ms")
    }
}
