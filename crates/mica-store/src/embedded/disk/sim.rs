//! A disk in memory that fails on command, for tests of what the store does then.
//!
//! It keeps, for each file, what is durable and what was only written, and for the directory, which names are durable.
//! [`SimDisk::crash`] turns the power off: what was not synced is lost, kept or torn by sectors as a seed decides, and a
//! new disk holds what is left. Faults are planned by counting: the nth write or sync from now on fails or is the last.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Disk, DiskFile, LockError, LockGuard};

/// What survives a loss of power in one piece.
const SECTOR: usize = 512;

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    files: BTreeMap<FileId, FileState>,
    next_file: FileId,
    faults: Faults,
    capacity: Option<u64>,
    syncs: u64,
    off: bool,
    locked: bool,
    random: StdRng,
}

type FileId = u64;

#[derive(Default, Clone)]
struct FileState {
    written: Vec<u8>,
    durable: Vec<u8>,
    /// Parts written since the last sync.
    dirty: Vec<(usize, usize)>,
}

/// What to do wrong. Counts are of operations from the moment the faults are set; 0 is the next one.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    /// This sync (of a file or of the names) and everything after it finds the power off.
    pub power_off_at_sync: Option<u64>,
    /// Like `power_off_at_sync`, but the sync itself still does its work.
    pub power_off_after_sync: Option<u64>,
    /// This sync fails; what it should have made durable may be or not.
    pub fail_sync: Option<u64>,
    /// This write fails after a part of it.
    pub fail_write: Option<u64>,
    /// How long every sync takes.
    pub sync_delay: Duration,
}

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        let state = State {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            files: BTreeMap::new(),
            next_file: 0,
            faults: Faults::default(),
            capacity: None,
            syncs: 0,
            off: false,
            locked: false,
            random: StdRng::seed_from_u64(seed),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Limits the bytes of all files together.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.state.lock().capacity = capacity;
    }

    pub fn used(&self) -> u64 {
        self.state.lock().used()
    }

    /// How many syncs were asked for so far.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Whether a planned loss of power has happened.
    pub fn is_off(&self) -> bool {
        self.state.lock().off
    }

    /// Turns the power off, and gives the disk as it is found afterwards. This one answers with errors from now on.
    pub fn crash(&self) -> Self {
        let mut state = self.state.lock();
        state.off = true;
        let survivor = Self::new(state.random.random());
        {
            let mut next = survivor.state.lock();
            next.next_file = state.next_file;
            next.capacity = state.capacity;
            // Renames that were not synced are lost or kept together; a file that lost its name is gone.
            let keep_names = state.random.random_bool(0.5);
            let names = if keep_names {
                state.names.clone()
            } else {
                state.durable_names.clone()
            };
            for (name, id) in names {
                let Some(file) = state.files.get(&id).cloned() else {
                    continue;
                };
                let left = file.after_power_loss(&mut state.random);
                next.files.insert(
                    id,
                    FileState {
                        written: left.clone(),
                        durable: left,
                        dirty: Vec::new(),
                    },
                );
                next.names.insert(name.clone(), id);
                next.durable_names.insert(name, id);
            }
        }
        survivor
    }

    /// Changes bytes of a file behind the store's back.
    pub fn damage(&self, name: &str, offset: u64, change: impl FnOnce(&mut [u8])) {
        let mut state = self.state.lock();
        let id = state.names[name];
        let file = state.files.get_mut(&id).expect("a name has a file");
        change(&mut file.written[offset as usize..]);
        file.durable.clone_from(&file.written);
    }

    /// The bytes of a file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        state.files[&state.names[name]].written.clone()
    }
}

impl FileState {
    /// What was synced, and of what was not a random selection of sectors.
    fn after_power_loss(&self, random: &mut StdRng) -> Vec<u8> {
        let mut left = self.durable.clone();
        let survival = *[0.0, 0.5, 1.0].get(random.random_range(0..3)).expect("one of three");
        for (start, end) in &self.dirty {
            let mut at = *start;
            while at < *end {
                let sector_end = ((at / SECTOR + 1) * SECTOR).min(*end).min(self.written.len());
                if at < sector_end && random.random_bool(survival) {
                    if left.len() < sector_end {
                        left.resize(sector_end, 0);
                    }
                    left[at..sector_end].copy_from_slice(&self.written[at..sector_end]);
                }
                at = (at / SECTOR + 1) * SECTOR;
            }
        }
        left
    }

    fn sync(&mut self) {
        self.durable.resize(self.written.len(), 0);
        for (start, end) in self.dirty.drain(..) {
            let part = start.min(self.written.len())..end.min(self.written.len());
            self.durable[part.clone()].copy_from_slice(&self.written[part]);
        }
    }
}

impl State {
    fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.files.get(id))
            .map(|file| file.written.len() as u64)
            .sum()
    }

    fn check_power(&self) -> io::Result<()> {
        if self.off {
            Err(io::Error::other("the power is off"))
        } else {
            Ok(())
        }
    }

    /// Counts a sync; says whether it should still do its work and what to answer.
    fn begin_sync(&mut self) -> (bool, io::Result<()>) {
        if let Err(error) = self.check_power() {
            return (false, Err(error));
        }
        self.syncs += 1;
        let now = |count: &mut Option<u64>| match count {
            Some(0) => {
                *count = None;
                true
            }
            Some(more) => {
                *more -= 1;
                false
            }
            None => false,
        };
        if now(&mut self.faults.power_off_at_sync) {
            self.off = true;
            return (false, self.check_power());
        }
        if now(&mut self.faults.fail_sync) {
            let happened = self.random.random_bool(0.5);
            return (happened, Err(io::Error::other("the sync failed")));
        }
        if now(&mut self.faults.power_off_after_sync) {
            self.off = true;
            return (true, self.check_power());
        }
        (true, Ok(()))
    }
}

struct SimFile {
    disk: SimDisk,
    id: FileId,
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&mut State, FileId) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        state.check_power()?;
        act(&mut state, self.id)
    }
}

impl DiskFile for SimFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|state, id| {
            let written = &state.files[&id].written;
            let start = usize::try_from(offset).map_err(io::Error::other)?;
            let part = written
                .get(start..start + bytes.len())
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            bytes.copy_from_slice(part);
            Ok(())
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|state, id| {
            let start = usize::try_from(offset).map_err(io::Error::other)?;
            let grows = (start + bytes.len()).saturating_sub(state.files[&id].written.len()) as u64;
            if state.capacity.is_some_and(|capacity| state.used() + grows > capacity) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let failing = state.faults.fail_write == Some(0);
            state.faults.fail_write = state.faults.fail_write.and_then(|count| count.checked_sub(1));
            let done = if failing {
                state.random.random_range(0..bytes.len())
            } else {
                bytes.len()
            };
            let file = state.files.get_mut(&id).expect("an open file has a state");
            if file.written.len() < start + done {
                file.written.resize(start + done, 0);
            }
            file.written[start..start + done].copy_from_slice(&bytes[..done]);
            file.dirty.push((start, start + done));
            if failing {
                Err(io::Error::other("the write failed"))
            } else {
                Ok(())
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        let delay = self.disk.state.lock().faults.sync_delay;
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let mut state = self.disk.state.lock();
        let (works, answer) = state.begin_sync();
        if works && let Some(file) = state.files.get_mut(&self.id) {
            file.sync();
        }
        answer
    }

    fn length(&self) -> io::Result<u64> {
        self.with(|state, id| Ok(state.files[&id].written.len() as u64))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.with(|state, id| {
            let length = usize::try_from(length).map_err(io::Error::other)?;
            let file = state.files.get_mut(&id).expect("an open file has a state");
            file.written.resize(length, 0);
            // A file system may make a cut durable at any time; the harder case is that it does so at once.
            file.durable.truncate(length);
            Ok(())
        })
    }
}

impl Disk for SimDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.check_power()?;
        let id = state.next_file;
        state.next_file += 1;
        state.files.insert(id, FileState::default());
        state.names.insert(name.to_owned(), id);
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state.lock();
        state.check_power()?;
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        let id = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        state
            .names
            .remove(name)
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.check_power()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let (works, answer) = state.begin_sync();
        if works {
            state.durable_names = state.names.clone();
        }
        answer
    }

    fn free_space(&self) -> io::Result<u64> {
        let state = self.state.lock();
        state.check_power()?;
        Ok(state
            .capacity
            .map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used())))
    }

    fn lock(&self) -> Result<LockGuard, LockError> {
        let mut state = self.state.lock();
        state.check_power()?;
        if state.locked {
            return Err(LockError::Held { holder: None });
        }
        state.locked = true;
        Ok(Box::new(SimLock(self.clone())))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

struct SimLock(SimDisk);

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.state.lock().locked = false;
    }
}
