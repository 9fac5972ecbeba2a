//! Processes that this operator started, also if it was another run of it: waited for and signalled, and never a stranger.
//!
//! A process id is given again after its process has ended. So a process is held by a descriptor of it first, and only then
//! looked at: if it is the one that was meant, the descriptor is, whatever becomes of the id. Ours are told by when they began,
//! or, where nobody wrote that down, by holding the lock of the data directory that their command line names.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitStatus;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;

/// A process among all that this machine ever ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// When it began, in ticks of the kernel.
    pub began: u64,
    /// Which start of the machine that was.
    pub boot: String,
}

/// What is seen of a process id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    Nothing,
    /// It has ended, and its parent has not asked how.
    Ended,
    Running(Identity),
}

/// Whether a process that is seen is the one that was meant.
pub fn is_ours(meant: &Identity, seen: &Seen) -> bool {
    matches!(seen, Seen::Running(identity) if identity == meant)
}

/// A process that is ours.
pub struct Process {
    pub identity: Identity,
    descriptor: AsyncFd<OwnedFd>,
    /// If it is a child of this run of the operator, which then has to ask how it ended.
    child: Option<Child>,
}

/// How a process ended, as far as this run can know.
pub type Ended = Option<ExitStatus>;

impl Process {
    /// A child that was just started.
    pub fn of_child(child: Child) -> io::Result<Self> {
        let pid = child.id().ok_or_else(|| io::Error::other("it has ended"))?;
        let descriptor = open(pid)?;
        // It cannot be another's: nobody has asked yet how it ended.
        let identity = match look(pid) {
            Seen::Running(identity) => identity,
            _ => Identity {
                pid,
                began: 0,
                boot: boot(),
            },
        };
        Ok(Self {
            identity,
            descriptor,
            child: Some(child),
        })
    }

    /// The process that an earlier run of the operator wrote down, if it is still there.
    pub fn find(meant: &Identity) -> io::Result<Option<Self>> {
        let Some(descriptor) = open_if_there(meant.pid)? else {
            return Ok(None);
        };
        let ours = is_ours(meant, &look(meant.pid));
        Ok(ours.then(|| Self {
            identity: meant.clone(),
            descriptor,
            child: None,
        }))
    }

    /// The process that serves from a data directory, whoever started it: it holds the lock, wrote its id there, and was
    /// called with that directory.
    pub fn serving(lock: &Path, data: &Path) -> io::Result<Option<Self>> {
        let Some(pid) = holder(lock)? else { return Ok(None) };
        let Some(descriptor) = open_if_there(pid)? else {
            return Ok(None);
        };
        let called = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        match look(pid) {
            Seen::Running(identity) if serves(&called, data) => Ok(Some(Self {
                identity,
                descriptor,
                child: None,
            })),
            _ => Ok(None),
        }
    }

    /// Waits for its end. Can be given up and asked again.
    pub async fn ended(&mut self) -> Ended {
        // The descriptor of a process becomes readable when it ends, and stays so.
        let ended = self.descriptor.readable().await;
        if let Err(error) = ended {
            tracing::warn!(%error, pid = self.identity.pid, "a server cannot be waited for");
        }
        match &mut self.child {
            Some(child) => child.wait().await.ok(),
            None => None,
        }
    }

    /// Asks it to finish.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // One that has ended meanwhile needs no signal.
        if let Err(error) = pidfd_send_signal(self.descriptor.get_ref(), signal) {
            tracing::debug!(%error, pid = self.identity.pid, "a server was not signalled");
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of what may change its descriptor, which an OwnedFd cannot"
)]
fn open(pid: u32) -> io::Result<AsyncFd<OwnedFd>> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("no process has this id"))?;
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

fn open_if_there(pid: u32) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    match open(pid) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks at whatever has this id now.
pub fn look(pid: u32) -> Seen {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => match parse(&text) {
            Some((b'Z' | b'X', _)) => Seen::Ended,
            Some((_, began)) => Seen::Running(Identity {
                pid,
                began,
                boot: boot(),
            }),
            None => Seen::Nothing,
        },
        Err(_) => Seen::Nothing,
    }
}

/// The state and the beginning of a process, from its `stat`. Its name, in parentheses, may hold anything.
fn parse(stat: &str) -> Option<(u8, u64)> {
    /// Fields between the name and when it began.
    const BETWEEN: usize = 19;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.bytes().next()?;
    let began = fields.nth(BETWEEN - 1)?.parse().ok()?;
    Some((state, began))
}

fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// Who holds the lock of a data directory, as they wrote into it; nobody if it is free.
fn holder(lock: &Path) -> io::Result<Option<u32>> {
    let file = match File::open(lock) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        // Dropped at once: it was only asked.
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(parse_holder(&std::fs::read_to_string(lock)?)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// `process 12 (…)`.
fn parse_holder(text: &str) -> Option<u32> {
    text.strip_prefix("process ")?.split(' ').next()?.trim().parse().ok()
}

/// Whether a command line is that of a server on the data directory: others may hold its lock, too, to check a store say.
fn serves(called: &[u8], data: &Path) -> bool {
    let data = data.as_os_str().as_encoded_bytes();
    let arguments: Vec<&[u8]> = called.split(|byte| *byte == 0).collect();
    let on_data = |pair: &[&[u8]]| pair[0] == b"--data-dir" && pair[1] == data;
    arguments.get(1).is_some_and(|first| *first == b"up") && arguments.windows(2).any(on_data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_was_written_down_is_ours() {
        let identity = |began: u64, boot: &str| Identity {
            pid: 7,
            began,
            boot: boot.to_owned(),
        };
        let meant = identity(100, "a");
        for (seen, ours) in [
            (Seen::Nothing, false),
            (Seen::Ended, false),
            (Seen::Running(identity(100, "a")), true),
            (Seen::Running(identity(101, "a")), false),
            (Seen::Running(identity(100, "b")), false),
        ] {
            assert_eq!(is_ours(&meant, &seen), ours, "{seen:?}");
        }
    }

    #[test]
    fn what_the_kernel_says_of_a_process_is_read_whatever_its_name() {
        let fields = "S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 98";
        assert_eq!(parse(&format!("7 (mica) {fields}")), Some((b'S', 4711)));
        assert_eq!(parse(&format!("7 (a) Z (b) {fields}")), Some((b'S', 4711)));
        assert_eq!(parse("7 (mica) S 1"), None);
        assert_eq!(parse_holder("process 12 (https://127.0.0.1:1)\n"), Some(12));
        assert_eq!(parse_holder(""), None);
        let data = Path::new("/a/b");
        assert!(serves(b"mica\0up\0--data-dir\0/a/b\0--listen\0x\0", data));
        assert!(!serves(b"mica\0up\0--data-dir\0/a/b/c\0", data));
        assert!(!serves(b"mica\0store\0check\0--data-dir\0/a/b\0", data));
        assert!(!serves(b"", data));
    }

    #[tokio::test]
    async fn a_process_is_found_again_until_it_ends_and_a_stranger_is_not() {
        let child = tokio::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut child = Process::of_child(child).unwrap();
        let identity = child.identity.clone();
        let mut found = Process::find(&identity).unwrap().expect("it runs");
        let stranger = Identity {
            began: identity.began + 1,
            ..identity.clone()
        };
        assert!(Process::find(&stranger).unwrap().is_none());
        found.kill();
        assert!(found.ended().await.is_none());
        assert!(!child.ended().await.expect("it was our child").success());
        assert!(Process::find(&identity).unwrap().is_none());
    }

    #[tokio::test]
    async fn whoever_holds_a_lock_without_being_called_for_the_directory_is_a_stranger() {
        let home = tempfile::tempdir().unwrap();
        let lock = home.path().join("lock");
        assert!(Process::serving(&lock, home.path()).unwrap().is_none());
        std::fs::write(&lock, format!("process {} (x)\n", std::process::id())).unwrap();
        let held = File::options().write(true).open(&lock).unwrap();
        assert_eq!(holder(&lock).unwrap(), None);
        held.lock().unwrap();
        assert_eq!(holder(&lock).unwrap(), Some(std::process::id()));
        assert!(Process::serving(&lock, home.path()).unwrap().is_none());
    }
}
