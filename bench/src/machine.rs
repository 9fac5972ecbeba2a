//! What the numbers were measured on: without it they mean nothing.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

#[derive(Serialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_gib: f64,
    pub kernel: String,
    /// Median time of `fdatasync` after a 4-KiB write into a file filled beforehand, where the servers' data will be.
    pub sync_ms: f64,
    /// What else was running when the bench began.
    pub load_average: f64,
}

impl Machine {
    pub fn look(scratch: &Path) -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':')
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let kib = field(&read("/proc/meminfo"), "MemTotal")
            .split(' ')
            .next()
            .and_then(|n| n.parse::<f64>().ok());
        Ok(Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kib.unwrap_or_default() / (1 << 20) as f64,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            sync_ms: sync_time(scratch)?,
            load_average: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or_default(),
        })
    }

    pub fn line(&self) -> String {
        format!(
            "{} cores of {}, {:.0} GiB, Linux {}, fdatasync {:.2} ms, load average {:.2}",
            self.cores, self.processor, self.memory_gib, self.kernel, self.sync_ms, self.load_average
        )
    }
}

fn sync_time(scratch: &Path) -> Result<f64> {
    const BLOCK: [u8; 4096] = [1; 4096];
    const TIMES: u64 = 101;
    let file = tempfile::tempfile_in(scratch)?;
    file.write_all_at(&vec![0; BLOCK.len() * TIMES as usize], 0)?;
    file.sync_all()?;
    let mut times = Vec::new();
    for block in 0..TIMES {
        file.write_all_at(&BLOCK, block * BLOCK.len() as u64)?;
        let began = Instant::now();
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
