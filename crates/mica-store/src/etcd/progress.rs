//! How a watch learns that nothing happened.
//!
//! etcd answers a progress request with a revision up to which the watch has seen everything. Before 3.4.31 and 3.5.13 that
//! answer can overtake events, so there it is neither asked for nor believed; instead a heartbeat key is written, whose
//! event cannot overtake others. Writes cost, so they are made only while somebody waits, and not often.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Shared;
use super::client::{Client, Effect};
use super::endpoint::Connection;
use super::failure::Failure;
use super::proto::{PutRequest, Request, TxnRequest, WatchCommand, WatchProgressRequest, WatchRequest};

/// How long a watch may be behind before it asks: usually the missing events are on their way.
pub const ASK_AFTER: Duration = Duration::from_millis(100);
/// Heartbeats of one process are at least this far apart.
const BEAT_EVERY: Duration = Duration::from_millis(250);

/// The oldest etcd that has all we need (split watch answers, nested transactions, progress requests).
const OLDEST: Version = Version {
    major: 3,
    minor: 4,
    patch: 0,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Asked for, and believed.
    Requested,
    /// Told by the events of a key that we write.
    Heartbeat,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// Reads `3.5.16` or `3.6.0-rc.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut number = || {
            let part = parts.next()?;
            part[..part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len())]
                .parse()
                .ok()
        };
        Some(Self {
            major: number()?,
            minor: number()?,
            patch: number()?,
        })
    }

    pub fn is_too_old(self) -> bool {
        self < OLDEST
    }

    pub fn progress(self) -> Progress {
        let trusted = match (self.major, self.minor) {
            (3, 4) => self.patch >= 31,
            (3, 5) => self.patch >= 13,
            _ => !self.is_too_old(),
        };
        if trusted {
            Progress::Requested
        } else {
            Progress::Heartbeat
        }
    }
}

impl Client {
    /// What can be expected of the member behind a connection. One that does not tell its version is not trusted.
    pub async fn progress_of(&self, connection: &Connection) -> Result<Progress, Failure> {
        match self.version(connection).await {
            Ok(version) => Ok(Version::parse(&version).map_or(Progress::Heartbeat, Version::progress)),
            Err(Failure::Denied(_)) => Ok(Progress::Heartbeat),
            Err(failure) => Err(failure),
        }
    }
}

pub fn progress_request() -> WatchRequest {
    WatchRequest {
        command: Some(WatchCommand::Progress(WatchProgressRequest {})),
    }
}

/// When the last heartbeat was written by this process.
#[derive(Default)]
pub struct LastBeat(Mutex<Option<Instant>>);

impl LastBeat {
    fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let due = last.is_none_or(|last| last.elapsed() >= BEAT_EVERY);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

impl Shared {
    /// Writes the heartbeat key, unless that was done a moment ago. Failing is no harm: whoever waits asks again.
    pub async fn beat(&self) {
        if !self.last_beat.is_due() {
            return;
        }
        let put = PutRequest {
            key: self.layout.heartbeat(),
            ..PutRequest::default()
        };
        let request = TxnRequest {
            success: vec![Request::Put(put).into()],
            ..TxnRequest::default()
        };
        if let Err(failure) = self.client.txn(request, Effect::Write).await {
            tracing::debug!(%failure, "cannot write a heartbeat to etcd");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_believed_from_the_versions_that_fixed_it() {
        let progress = |text| Version::parse(text).unwrap().progress();
        for old in ["3.4.0", "3.4.23", "3.4.30", "3.5.0", "3.5.12"] {
            assert_eq!(progress(old), Progress::Heartbeat, "{old}");
        }
        for new in ["3.4.31", "3.5.13", "3.5.16", "3.6.0", "3.6.0-rc.1", "3.7.1", "4.0.0"] {
            assert_eq!(progress(new), Progress::Requested, "{new}");
        }
        assert!(Version::parse("3.3.27").unwrap().is_too_old());
        assert!(!Version::parse("3.4.0").unwrap().is_too_old());
        assert_eq!(Version::parse("unknown"), None);
    }
}
