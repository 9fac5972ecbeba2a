//! From the start of the process to the first 200 of `/readyz`, on an empty directory; the median of several.

use anyhow::Result;

use super::memory::MIB;
use super::{Bench, Subject};
use crate::process::settled;
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
    times.sort_by(f64::total_cmp);
    let (fastest, slowest) = (times[0], times[times.len() - 1]);
    let detail = format!("{} starts, {fastest:.0} to {slowest:.0} ms", times.len());
    report(Measurement {
        detail,
        ..Measurement::new("start", subject.name(), times[times.len() / 2], "ms")
    });
    let detail = "resident memory of all its processes".to_owned();
    let idle = Measurement::new("idle-memory", subject.name(), memory as f64 / MIB, "MiB");
    report(Measurement { detail, ..idle });
    Ok(())
}
