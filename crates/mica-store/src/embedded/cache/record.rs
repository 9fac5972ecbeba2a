//! Single records by key, in parts with a lock and a share of the memory each.
//!
//! A part that is full gives up what was not asked for since it was last looked at (the clock algorithm).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;
use mica_api::PlaneId;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::key::Key;
use crate::store::{Record, Revision};

/// So many that readers seldom meet.
const PARTS: usize = 64;
/// What a record costs beside its key and value.
const OVERHEAD: usize = 160;

pub(super) struct Records {
    parts: Vec<Mutex<Part>>,
    part_bytes: usize,
}

#[derive(Default)]
struct Part {
    /// Slots by the hash of their keys. Of two keys with one hash the later is kept.
    by_hash: HashMap<u64, usize, BuildHasherDefault<Same>>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Where the search for something to give up goes on.
    hand: usize,
    bytes: usize,
    /// The newest revision that touched this part: who read at an older one puts nothing in.
    touched: Revision,
}

struct Slot {
    hash: u64,
    key: Key,
    /// `None` while a change of it is becoming visible.
    record: Option<Record>,
    used: bool,
}

impl Slot {
    fn bytes(&self) -> usize {
        weight(&self.key, self.record.as_ref().map_or(0, |record| record.value.len()))
    }
}

fn weight(key: &Key, value: usize) -> usize {
    OVERHEAD + key.as_str().len() + value
}

/// The key is a hash already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl Records {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            part_bytes: bytes / PARTS,
        }
    }

    fn part(&self, key: &Key) -> (u64, &Mutex<Part>) {
        let hash = xxh3_64(key.as_str().as_bytes());
        // The map uses the other end of the hash.
        (hash, &self.parts[(hash >> 32) as usize % PARTS])
    }

    pub(super) fn get(&self, key: &Key) -> Option<Record> {
        let (hash, part) = self.part(key);
        let mut part = part.lock();
        let slot = part.find(hash, key)?;
        slot.used = true;
        slot.record.clone()
    }

    pub(super) fn keep(&self, key: &Key, record: &Record, seen: Revision) {
        if weight(key, record.value.len()) > self.part_bytes / 4 {
            return;
        }
        let (hash, part) = self.part(key);
        let mut part = part.lock();
        if part.touched <= seen {
            part.insert(hash, key, record.clone(), self.part_bytes);
        }
    }

    pub(super) fn forget(&self, key: &Key, revision: Revision) {
        let (hash, part) = self.part(key);
        let mut part = part.lock();
        part.touched = part.touched.max(revision);
        if let Some(slot) = part.find(hash, key) {
            let freed = slot.record.take().map_or(0, |record| record.value.len());
            part.bytes -= freed;
        }
    }

    /// The new value of a key that was forgotten for it; `None` if the key is gone.
    pub(super) fn renew(&self, key: &Key, value: Option<&Bytes>, revision: Revision) {
        let (hash, part) = self.part(key);
        let mut part = part.lock();
        let Some(slot) = part.find(hash, key) else { return };
        match value {
            Some(value) if weight(key, value.len()) <= self.part_bytes / 4 => {
                let before = slot.record.replace(Record {
                    value: value.clone(),
                    revision,
                });
                part.bytes += value.len();
                part.bytes -= before.map_or(0, |record| record.value.len());
                part.shrink(self.part_bytes);
            }
            _ => part.remove(hash),
        }
    }

    /// Takes out everything of some planes.
    pub(super) fn forget_planes(&self, planes: &HashSet<PlaneId>, revision: Revision) {
        for part in &self.parts {
            let mut part = part.lock();
            part.touched = part.touched.max(revision);
            let theirs: Vec<_> = part
                .slots
                .iter()
                .flatten()
                .filter(|slot| planes.contains(&slot.key.plane()))
                .map(|slot| slot.hash)
                .collect();
            for hash in theirs {
                part.remove(hash);
            }
        }
    }

    pub(super) fn close(&self) {
        for part in &self.parts {
            *part.lock() = Part {
                touched: Revision(u64::MAX),
                ..Part::default()
            };
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.lock().bytes).sum()
    }
}

impl Part {
    fn find(&mut self, hash: u64, key: &Key) -> Option<&mut Slot> {
        let slot = *self.by_hash.get(&hash)?;
        self.slots[slot].as_mut().filter(|slot| slot.key == *key)
    }

    fn insert(&mut self, hash: u64, key: &Key, record: Record, most: usize) {
        self.remove(hash);
        let slot = Slot {
            hash,
            key: key.clone(),
            record: Some(record),
            used: false,
        };
        self.bytes += slot.bytes();
        self.shrink(most);
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[place] = Some(slot);
        self.by_hash.insert(hash, place);
    }

    fn remove(&mut self, hash: u64) {
        if let Some(place) = self.by_hash.remove(&hash) {
            let slot = self.slots[place].take().expect("a slot in the map is taken");
            self.bytes -= slot.bytes();
            self.free.push(place);
        }
    }

    /// Gives up what was not used lately until the rest fits.
    fn shrink(&mut self, most: usize) {
        while self.bytes > most && !self.by_hash.is_empty() {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[self.hand] else {
                continue;
            };
            if !std::mem::take(&mut slot.used) {
                let hash = slot.hash;
                self.remove(hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mica_api::GroupResource;

    use super::*;
    use crate::key::PlaneKeys;

    fn key(name: &str) -> Key {
        PlaneKeys::new(PlaneId::ROOT).object(&GroupResource::new("", "things"), Some("ns"), name)
    }

    fn record(value: &[u8], revision: u64) -> Record {
        Record {
            value: Bytes::copy_from_slice(value),
            revision: Revision(revision),
        }
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let records = Records::new(1 << 20);
        records.forget(&key("a"), Revision(5));
        records.keep(&key("a"), &record(b"old", 3), Revision(4));
        assert_eq!(records.get(&key("a")), None);
        records.keep(&key("a"), &record(b"new", 5), Revision(5));
        assert_eq!(records.get(&key("a")), Some(record(b"new", 5)));
    }

    #[test]
    fn only_what_was_there_is_renewed_and_nothing_is_found_meanwhile() {
        let records = Records::new(1 << 20);
        records.keep(&key("a"), &record(b"1", 1), Revision(1));
        for key in [key("a"), key("b")] {
            records.forget(&key, Revision(2));
            assert_eq!(records.get(&key), None);
            records.renew(&key, Some(&Bytes::from_static(b"22")), Revision(2));
        }
        assert_eq!(records.get(&key("a")), Some(record(b"22", 2)));
        assert_eq!(records.get(&key("b")), None);
        records.forget(&key("a"), Revision(3));
        records.renew(&key("a"), None, Revision(3));
        assert_eq!((records.get(&key("a")), records.bytes()), (None, 0));
    }

    #[test]
    fn memory_stays_within_the_budget_and_what_is_used_stays() {
        let budget = 1 << 20;
        let records = Records::new(budget);
        let used = key("used");
        records.keep(&used, &record(&[7; 100], 1), Revision(1));
        for i in 0..20_000 {
            records.keep(&key(&i.to_string()), &record(&[0; 100], 1), Revision(1));
            assert!(records.get(&used).is_some(), "lost after {i}");
        }
        assert!(records.bytes() <= budget && records.bytes() > budget / 2);
        records.keep(&key("huge"), &record(&vec![0; budget], 1), Revision(1));
        assert_eq!(records.get(&key("huge")), None);
        let counted: usize = records
            .parts
            .iter()
            .map(|part| part.lock().slots.iter().flatten().map(Slot::bytes).sum::<usize>())
            .sum();
        assert_eq!(counted, records.bytes());
    }

    #[test]
    fn records_of_dropped_planes_are_taken_out() {
        let records = Records::new(1 << 20);
        let plane = PlaneId::from_random(1);
        let theirs = PlaneKeys::new(plane).object(&GroupResource::new("", "things"), None, "x");
        records.keep(&theirs, &record(b"1", 1), Revision(1));
        records.keep(&key("a"), &record(b"1", 1), Revision(1));
        records.forget_planes(&HashSet::from([plane]), Revision(2));
        records.keep(&theirs, &record(b"1", 1), Revision(1));
        assert_eq!(records.get(&theirs), None);
        assert!(records.get(&key("a")).is_some());
    }
}
