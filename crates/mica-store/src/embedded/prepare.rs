//! Files made ahead of the log.
//!
//! Growing a file makes every sync wait for the file system's own journal, so the log writes only into files that were
//! filled with zeros and synced before. A thread keeps two such files ready: the spare, which is the next segment, and a
//! small reserve, which only writes that free space may use. When the disk is full there is no spare: puts are refused,
//! deletes and cleaning go on in the reserve. As soon as there is room again both are made, and puts go on too.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::disk::{Disk, DiskFile, is_full};

/// How long to wait before trying again when no file could be made.
const RETRY: Duration = Duration::from_millis(200);

/// A file of zeros under a name that is not a segment's yet.
pub(super) struct Prepared {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) capacity: u64,
}

/// Why a write wants room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Grow,
    /// Deletes and what else leads to space being freed: these may use the reserve.
    Reclaim,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RoomError {
    #[error("the disk is full")]
    Full,
    #[error("the log's next file could not be made")]
    Io(#[source] io::Error),
}

impl From<io::Error> for RoomError {
    fn from(error: io::Error) -> Self {
        if is_full(&error) { Self::Full } else { Self::Io(error) }
    }
}

/// Sizes of what is kept ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) reserve: u64,
    /// Room that a spare must leave free for the index and others.
    pub(super) keep_free: u64,
}

/// Keeps files ready, on a thread of its own.
pub(super) struct Preparer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    sizes: Sizes,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    spare: Option<Prepared>,
    reserve: Option<Prepared>,
    /// How large the next spare shall be.
    wanted: u64,
    /// Why the last attempt failed; `None` once one has succeeded.
    failed: Option<Failure>,
    made: u64,
    closing: bool,
}

#[derive(Clone)]
enum Failure {
    Full,
    Other(Arc<io::Error>),
}

impl Preparer {
    pub(super) fn start(disk: Arc<dyn Disk>, sizes: Sizes, wanted: u64) -> Self {
        let state = State {
            spare: None,
            reserve: None,
            wanted,
            failed: None,
            made: 0,
            closing: false,
        };
        let shared = Arc::new(Shared {
            disk,
            sizes,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let working = shared.clone();
        let thread = std::thread::Builder::new()
            .name("mica-log-ahead".to_owned())
            .spawn(move || working.run())
            .expect("a thread can be started");
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// A file of at least this size; waits for one that is being made.
    pub(super) fn take(&self, at_least: u64, purpose: Purpose) -> Result<Prepared, RoomError> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(spare) = state.spare.take_if(|spare| spare.capacity >= at_least) {
                self.shared.changed.notify_all();
                return Ok(spare);
            }
            if state.spare.is_some() {
                drop(state);
                let keep_free = if purpose == Purpose::Grow {
                    self.shared.sizes.keep_free
                } else {
                    0
                };
                self.shared.check_space(at_least + keep_free)?;
                return self.shared.prepare(at_least);
            }
            if let Some(failure) = state.failed.clone() {
                let reserve = state
                    .reserve
                    .take_if(|file| purpose == Purpose::Reclaim && file.capacity >= at_least);
                return match (reserve, failure) {
                    (Some(reserve), _) => {
                        self.shared.changed.notify_all();
                        Ok(reserve)
                    }
                    (None, Failure::Full) => Err(RoomError::Full),
                    (None, Failure::Other(error)) => Err(RoomError::Io(io::Error::new(error.kind(), error))),
                };
            }
            if state.closing {
                return Err(RoomError::Io(io::Error::other("the store is closing")));
            }
            self.shared.changed.wait(&mut state);
        }
    }

    /// Sets the size of the spares from the next one on.
    pub(super) fn want(&self, bytes: u64) {
        self.shared.state.lock().wanted = bytes;
    }

    /// Whether the last attempt to make a file failed for want of space.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.shared.state.lock().failed, Some(Failure::Full))
    }

    /// Tries again now if the last attempt failed, for callers that just freed space.
    pub(super) fn retry(&self) {
        self.shared.changed.notify_all();
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let state = self.shared.state.lock();
        for unused in [&state.spare, &state.reserve].into_iter().flatten() {
            let _ = self.shared.disk.remove(&unused.name);
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut failures = 0;
        let mut state = self.state.lock();
        while !state.closing {
            let bytes = match (&state.reserve, &state.spare) {
                (None, _) => self.sizes.reserve,
                (_, None) => state.wanted,
                (Some(_), Some(_)) => {
                    self.changed.wait(&mut state);
                    continue;
                }
            };
            let keep_free = if state.reserve.is_none() {
                0
            } else {
                self.sizes.keep_free
            };
            drop(state);
            let made = self.check_space(bytes + keep_free).and_then(|()| self.prepare(bytes));
            state = self.state.lock();
            match made {
                Ok(file) => {
                    failures = 0;
                    let place = if state.reserve.is_none() {
                        &mut state.reserve
                    } else {
                        &mut state.spare
                    };
                    *place = Some(file);
                    // A spare proves that there is room again; the reserve alone does not.
                    if state.spare.is_some() {
                        state.failed = None;
                    }
                    self.changed.notify_all();
                }
                Err(RoomError::Io(error)) if failures == 0 => {
                    // Once may be chance, and the committer is waiting.
                    tracing::warn!(%error, "a file for the log could not be prepared; trying again");
                    failures += 1;
                }
                Err(error) => {
                    let failure = match error {
                        RoomError::Full => Failure::Full,
                        RoomError::Io(error) => Failure::Other(Arc::new(error)),
                    };
                    state.failed = Some(failure);
                    self.changed.notify_all();
                    self.changed.wait_for(&mut state, RETRY);
                }
            }
        }
    }

    fn check_space(&self, bytes: u64) -> Result<(), RoomError> {
        if self.disk.free_space()? < bytes {
            Err(RoomError::Full)
        } else {
            Ok(())
        }
    }

    fn prepare(&self, bytes: u64) -> Result<Prepared, RoomError> {
        let number = {
            let mut state = self.state.lock();
            state.made += 1;
            state.made
        };
        prepare(&*self.disk, &format!("{SPARE}{number}"), bytes)
    }
}

/// Files with this beginning are left-overs when a store is opened.
pub(super) const SPARE: &str = "spare-";

/// Makes a file of zeros, all of it on the disk.
pub(super) fn prepare(disk: &dyn Disk, name: &str, bytes: u64) -> Result<Prepared, RoomError> {
    // Whole blocks: frames end at multiples of eight, and the file must reach there.
    let bytes = bytes.next_multiple_of(4096);
    let file = disk.create(name)?;
    let filled = fill(&*file, bytes);
    if let Err(error) = filled {
        let _ = disk.remove(name);
        return Err(error.into());
    }
    Ok(Prepared {
        name: name.to_owned(),
        file,
        capacity: bytes,
    })
}

fn fill(file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
    const CHUNK: u64 = 1 << 20;
    let zeros = vec![0; CHUNK.min(bytes) as usize];
    let mut done = 0;
    while done < bytes {
        let chunk = CHUNK.min(bytes - done);
        file.write_all_at(&zeros[..chunk as usize], done)?;
        done += chunk;
    }
    file.sync()
}
