//! Events as lines of a file, which is put aside when it is large.
//!
//! Names of old files are as upstream's (lumberjack's): `audit-2026-01-02T15-04-05.000.log`, with `.gz` where compressed.
//! Only the owner may read what is written here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::metrics::Lost;
use super::outbox::{Batch, Outbox};

/// How soon a line that could not be written is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Written at once at most: what comes meanwhile is the next batch.
pub(super) const BATCH: Batch = Batch {
    max_events: 4096,
    max_bytes: 256 << 10,
    // Long enough that a busy server writes some hundred together, too short for anybody to notice.
    max_wait: Duration::from_millis(20),
};
const STAMP: &str = "%Y-%m-%dT%H-%M-%S%.3f";
const MEGABYTE: u64 = 1 << 20;

/// Where the log is, and what becomes of old parts of it. Numbers are upstream's flags'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// `-` is the standard output.
    pub path: PathBuf,
    /// In days; 0 keeps parts however old they are.
    pub max_age: u32,
    /// Parts beside the one that is written; 0 keeps all.
    pub max_backups: usize,
    /// In megabytes; 0 never puts a part aside.
    pub max_size: u64,
    pub compress: bool,
    pub format: Format,
}

/// How an event is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    #[default]
    Json,
    /// Upstream's old line of text.
    Legacy,
}

impl LogOptions {
    /// Upstream's defaults.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            max_age: 366,
            max_backups: 100,
            max_size: 100,
            compress: false,
            format: Format::Json,
        }
    }
}

/// An open log.
pub(super) struct Log {
    options: LogOptions,
    out: Out,
    /// Lines that are written together. It is used again and again, by whatever thread writes.
    text: Vec<u8>,
}

enum Out {
    Stdout,
    File {
        file: File,
        size: u64,
    },
    /// It could not be opened again after it was put aside.
    Missing,
}

impl Log {
    pub(super) fn open(options: LogOptions) -> io::Result<Self> {
        if options.path == Path::new("-") {
            return Ok(Self {
                options,
                out: Out::Stdout,
                text: Vec::new(),
            });
        }
        if let Some(directory) = options.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let out = Out::open(&options.path)?;
        let text = Vec::new();
        Ok(Self { options, out, text })
    }

    /// Writes lines whole or not at all.
    fn write(&mut self, lines: &[Bytes]) -> io::Result<()> {
        self.text.clear();
        self.text.shrink_to(BATCH.max_bytes);
        lines.iter().for_each(|line| self.text.extend_from_slice(line));
        self.put_aside_before(self.text.len() as u64)?;
        let text = &self.text;
        match &mut self.out {
            Out::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            }
            Out::File { file, size } => match file.write_all(text) {
                Ok(()) => {
                    *size += text.len() as u64;
                    Ok(())
                }
                Err(error) => {
                    // Half a line would spoil the next: take back what was written. What is no plain file cannot.
                    let _ = file.set_len(*size);
                    Err(error)
                }
            },
            Out::Missing => Err(io::Error::other("the log is not open")),
        }
    }

    fn put_aside_before(&mut self, more: u64) -> io::Result<()> {
        let most = self.options.max_size * MEGABYTE;
        let full = match &self.out {
            Out::Stdout => false,
            Out::File { size, .. } => most > 0 && *size > 0 && size + more > most,
            Out::Missing => {
                self.out = Out::open(&self.options.path)?;
                false
            }
        };
        if full {
            self.out = Out::Missing;
            let now = Timestamp::now().to_zoned(TimeZone::UTC).datetime();
            let parts = Parts::of(&self.options.path);
            fs::rename(&self.options.path, parts.name(now))?;
            self.out = Out::open(&self.options.path)?;
            parts.tidy(&self.options, now);
        }
        Ok(())
    }
}

impl Out {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self::File { file, size })
    }
}

/// The parts of a log that were put aside.
struct Parts {
    directory: PathBuf,
    stem: String,
    extension: String,
}

impl Parts {
    fn of(path: &Path) -> Self {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let extension = text(path.extension());
        Self {
            directory: path.parent().unwrap_or(Path::new(".")).to_owned(),
            stem: format!("{}-", text(path.file_stem())),
            extension: if extension.is_empty() {
                extension
            } else {
                format!(".{extension}")
            },
        }
    }

    fn name(&self, at: DateTime) -> PathBuf {
        let stamp = at.strftime(STAMP);
        self.directory.join(format!("{}{stamp}{}", self.stem, self.extension))
    }

    /// When a file was put aside, if it was.
    fn stamp(&self, name: &str) -> Option<DateTime> {
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let stamp = name.strip_prefix(&self.stem)?.strip_suffix(&self.extension)?;
        DateTime::strptime(STAMP, stamp).ok()
    }

    /// Removes what is too old or too many, and compresses the rest if asked. What fails is left for the next time.
    fn tidy(&self, options: &LogOptions, now: DateTime) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        let mut found: Vec<(DateTime, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                Some((self.stamp(entry.file_name().to_str()?)?, entry.path()))
            })
            .collect();
        found.sort_by(|a, b| b.cmp(a));
        let oldest = (options.max_age > 0).then(|| {
            let age = SignedDuration::from_hours(24 * i64::from(options.max_age));
            now.saturating_sub(age)
        });
        for (i, (stamp, path)) in found.iter().enumerate() {
            let many = options.max_backups > 0 && i >= options.max_backups;
            let done = if many || oldest.is_some_and(|oldest| *stamp < oldest) {
                fs::remove_file(path)
            } else if options.compress && path.extension().is_none_or(|extension| extension != "gz") {
                compress(path)
            } else {
                Ok(())
            };
            if let Err(error) = done {
                tracing::warn!(path = %path.display(), %error, "an old audit log could not be tidied away");
            }
        }
    }
}

fn compress(path: &Path) -> io::Result<()> {
    let mut to = path.as_os_str().to_owned();
    to.push(".gz");
    let out = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&to)?;
    let mut encoder = GzEncoder::new(out, Compression::default());
    let written = io::copy(&mut File::open(path)?, &mut encoder).and_then(|_| encoder.finish());
    match written {
        Ok(_) => fs::remove_file(path),
        Err(error) => {
            let _ = fs::remove_file(&to);
            Err(error)
        }
    }
}

/// Writes what comes, for as long as something does. What cannot be written now is kept and tried again: the queue's bounds
/// decide how long that goes well.
pub(super) async fn run(outbox: Arc<Outbox>, mut log: Log, lost: Lost) {
    while let Some(mut taken) = outbox.next(&BATCH).await {
        loop {
            // A disk may hang: no thread that serves waits for it.
            let written = tokio::task::spawn_blocking(move || {
                let written = log.write(&taken.events);
                (log, taken, written)
            });
            let Ok((same, batch, written)) = written.await else {
                return;
            };
            (log, taken) = (same, batch);
            let Err(error) = written else { break };
            if outbox.is_closed() {
                taken.lose(&error);
                break;
            }
            lost.tell(&error);
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_full_log_is_put_aside_and_few_parts_are_kept_for_the_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/audit.log");
        let options = LogOptions {
            max_size: 1,
            max_backups: 2,
            compress: true,
            ..LogOptions::at(&path)
        };
        let old = Parts::of(&path).name("2001-02-03T04:05:06.789".parse().unwrap());
        let mut log = Log::open(options).unwrap();
        fs::write(&old, "old").unwrap();
        fs::write(path.with_file_name("audit-other.log"), "mine").unwrap();
        let line = Bytes::from(vec![b'x'; 700 << 10]);
        for _ in 0..4 {
            log.write(std::slice::from_ref(&line)).unwrap();
            // Parts are named by the millisecond.
            std::thread::sleep(Duration::from_millis(2));
        }
        let directory = path.parent().unwrap();
        let names = names(directory);
        assert_eq!(names.len(), 4, "{names:?}");
        assert_eq!(
            names.iter().filter(|name| name.ends_with(".log.gz")).count(),
            2,
            "{names:?}"
        );
        assert!(
            names.contains(&"audit-other.log".to_owned()) && !old.exists(),
            "{names:?}"
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(directory), mode(&path)), (0o700, 0o600));
        for name in names.iter().filter(|name| name.ends_with(".gz")) {
            assert_eq!(mode(&directory.join(name)), 0o600);
        }
    }

    #[test]
    fn a_log_goes_on_where_it_ended() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("audit.log");
        for line in ["one\n", "two\n"] {
            Log::open(LogOptions::at(&path)).unwrap().write(&[line.into()]).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn parts_that_are_too_old_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let options = LogOptions {
            max_age: 7,
            ..LogOptions::at(home.path().join("a.log"))
        };
        let parts = Parts::of(&options.path);
        for stamp in ["2026-01-01T00:00:00", "2026-01-09T00:00:00"] {
            fs::write(parts.name(stamp.parse().unwrap()), "x").unwrap();
        }
        parts.tidy(&options, "2026-01-10T00:00:00".parse().unwrap());
        assert_eq!(names(home.path()), ["a-2026-01-09T00-00-00.000.log"]);
    }
}
