//! Log lines in a file that stays small: it is put aside when it is large, and one such file is kept.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The largest file. Twice as much is kept at most.
const LARGEST: u64 = 16 << 20;

pub struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    largest: u64,
}

impl LogFile {
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with(path, LARGEST)
    }

    fn with(path: &Path, largest: u64) -> io::Result<Self> {
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            size,
            largest,
        })
    }

    /// What could not be put aside is written on: a log that is too large is better than none.
    fn put_aside(&mut self) {
        let mut aside = self.path.clone().into_os_string();
        aside.push(".1");
        if std::fs::rename(&self.path, aside).is_ok()
            && let Ok(file) = append(&self.path)
        {
            self.file = file;
        }
        self.size = 0;
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let more = line.len() as u64;
        if self.size > 0 && self.size + more > self.largest {
            self.put_aside();
        }
        self.file.write_all(line)?;
        self.size += more;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_put_aside_when_it_is_large_and_goes_on_where_it_was() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap_or_default();
        for line in ["one\n", "two\n"] {
            LogFile::with(&path, 10).unwrap().write_all(line.as_bytes()).unwrap();
        }
        let mut log = LogFile::with(&path, 10).unwrap();
        assert_eq!(read("log"), "one\ntwo\n");
        log.write_all(b"three\n").unwrap();
        assert_eq!(
            (read("log.1").as_str(), read("log").as_str()),
            ("one\ntwo\n", "three\n")
        );
        log.write_all(b"longer than all\n").unwrap();
        assert_eq!(
            (read("log.1").as_str(), read("log").as_str()),
            ("three\n", "longer than all\n")
        );
    }
}
