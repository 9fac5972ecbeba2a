//! The numbers of the process: memory, processor time, files. Empty where `/proc` is not there.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Collect, Text};

/// Linux counts in these, whatever the kernel's own tick: the value of `USER_HZ` on every architecture we build for.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) struct Process {
    started: f64,
}

impl Process {
    pub(super) fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: since_epoch.as_secs_f64(),
        }
    }
}

impl Collect for Process {
    fn collect(&self, text: &mut Text) {
        let mut gauge = |name: &str, help: &str, kind: &str, value: f64| {
            text.family(name, help, kind);
            text.sample(name, &[], value);
        };
        gauge(
            "process_start_time_seconds",
            "Start of the process, in seconds of the Unix epoch.",
            "gauge",
            self.started,
        );
        if let Some(bytes) = resident_bytes() {
            gauge(
                "process_resident_memory_bytes",
                "Resident memory, in bytes.",
                "gauge",
                bytes,
            );
        }
        if let Some(seconds) = processor_seconds() {
            gauge(
                "process_cpu_seconds_total",
                "Processor time spent, in seconds.",
                "counter",
                seconds,
            );
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            gauge(
                "process_open_fds",
                "Open file descriptors.",
                "gauge",
                files.count() as f64,
            );
        }
    }
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The command name may hold spaces: fields count from its closing bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |i: usize| fields.get(i)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}
