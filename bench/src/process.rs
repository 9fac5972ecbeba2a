//! The servers' processes: starting, asking the kernel what they use, ending them by their own pid.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Linux counts processor time in hundredths of a second for user space.
const TICK: Duration = Duration::from_millis(10);
const END_WITHIN: Duration = Duration::from_secs(60);

pub struct Process {
    child: Child,
    pub pid: u32,
    pub started: Instant,
}

impl Process {
    /// Starts a program with its messages in `log`. Dropping the handle kills it.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = std::fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .kill_on_drop(true);
        let started = Instant::now();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.as_std().get_program()))?;
        let pid = child.id().context("a started process has a pid")?;
        Ok(Self { child, pid, started })
    }

    /// Waits for the first line on stdout, which our servers print when they are ready, and says how long it took.
    pub async fn ready_line(&mut self, log: &Path, within: Duration) -> Result<Duration> {
        let stdout = self.child.stdout.take().context("stdout is read once")?;
        let mut lines = BufReader::new(stdout).lines();
        let Ok(Ok(Some(_))) = tokio::time::timeout(within, lines.next_line()).await else {
            bail!("the server did not become ready: {}", tail(log));
        };
        let took = self.started.elapsed();
        // Keep reading: a full pipe would stop the server.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(took)
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, as a service manager would, and waits.
    pub async fn stop(mut self) -> Result<()> {
        let asked = Command::new("kill").arg(self.pid.to_string()).status().await?;
        if asked.success() {
            tokio::time::timeout(END_WITHIN, self.child.wait())
                .await
                .context("the server does not end")??;
        }
        Ok(())
    }
}

pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

/// Resident memory of some processes together, in bytes.
pub fn resident(pids: &[u32]) -> u64 {
    let one = |pid: &u32| -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace()
            .nth(1)?
            .parse::<u64>()
            .ok()
            .map(|kib| kib * 1024)
    };
    pids.iter().filter_map(one).sum()
}

/// Processor time that some processes have used together, in user space and in the kernel.
pub fn processor_time(pids: &[u32]) -> Duration {
    let one = |pid: &u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name is in parentheses and may hold anything; fields are counted from behind it.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        Some(fields.next()?.parse::<u32>().ok()? + fields.next()?.parse::<u32>().ok()?)
    };
    pids.iter().filter_map(one).map(|ticks| TICK * ticks).sum()
}

/// Waits until memory has stopped changing: allocators give pages back some time after the work is done.
pub async fn settled(pids: &[u32]) -> u64 {
    const STEADY: u64 = 256 * 1024;
    let mut last = resident(pids);
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = resident(pids);
        if now.abs_diff(last) < STEADY {
            return now;
        }
        last = now;
    }
    last
}

/// Bytes that a directory takes on disk.
pub fn disk_usage(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => disk_usage(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
