//! The changes to the index that follow from records of the log, and the tables' keys.

use lsm_tree::Slice;
use mica_api::PlaneId;

use super::Table;
use crate::embedded::format::{End, EndKind, Entry, Kind, LogRecord};
use crate::key::Key;
use crate::store::Revision;

/// Changes that become visible together.
#[derive(Default)]
pub(in crate::embedded) struct Batch {
    ops: Vec<Op>,
    step: u32,
    /// Last changes of planes. A group mostly changes one plane again and again, and only the last time counts.
    planes: Vec<(Slice, Revision)>,
    /// Planes dropped and planes swept, for the index's count of them.
    pub(super) drops: u64,
    pub(super) sweeps: u64,
}

pub(super) struct Op {
    pub(super) table: Table,
    pub(super) key: Slice,
    /// `None` removes the key.
    pub(super) value: Option<Slice>,
    /// Changes of different steps may touch the same key; the later one wins.
    pub(super) step: u32,
}

/// Whether a record is being applied as it is written, or again from the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::embedded) enum Origin {
    Written,
    Replayed,
}

impl Batch {
    pub(in crate::embedded) fn len(&self) -> usize {
        self.ops.len()
    }

    /// What a record changes. It depends on nothing but the record.
    pub(in crate::embedded) fn record(&mut self, record: &LogRecord<'_>, entry: &Entry, origin: Origin) {
        self.step += 1;
        match record.kind {
            Kind::Put => {
                self.insert(Table::Current, record.key, &entry.encode());
                if let Some(previous) = &record.previous {
                    self.supersede(record, previous, EndKind::Replaced);
                }
                // The record that first listed the key may be gone from the log when the index is rebuilt.
                if record.previous.is_none() || origin == Origin::Replayed {
                    self.insert(Table::ByResource, by_resource(record.key), &[]);
                }
                self.expiry(record);
                self.changed(record);
            }
            Kind::Delete => {
                self.remove(Table::Current, record.key);
                if let Some(previous) = &record.previous {
                    self.supersede(record, previous, EndKind::Deleted);
                }
                if origin == Origin::Replayed {
                    self.insert(Table::ByResource, by_resource(record.key), &[]);
                }
                self.changed(record);
            }
            Kind::Carried => {
                match &record.end {
                    None
                    | Some(End {
                        kind: EndKind::Dropped, ..
                    }) => {
                        self.insert(Table::Current, record.key, &entry.encode());
                    }
                    Some(end) => self.insert_history(record.key, entry, end),
                }
                // These are there already, unless the index is being rebuilt.
                if origin == Origin::Replayed {
                    self.insert(Table::ByResource, by_resource(record.key), &[]);
                    self.expiry(record);
                    self.still_dropped(record);
                }
            }
            Kind::DropPlane => {
                self.insert(Table::Dropped, record.key, &record.revision.0.to_le_bytes());
                self.changed(record);
                self.drops += 1;
            }
            Kind::Compact | Kind::Advance => {}
        }
    }

    fn supersede(&mut self, record: &LogRecord<'_>, previous: &Entry, kind: EndKind) {
        self.insert_history(
            record.key,
            previous,
            &End {
                revision: record.revision,
                kind,
            },
        );
    }

    fn insert_history(&mut self, key: &[u8], entry: &Entry, end: &End) {
        let mut value = [0; Entry::BYTES + End::BYTES];
        value[..Entry::BYTES].copy_from_slice(&entry.encode());
        value[Entry::BYTES..].copy_from_slice(&end.encode());
        self.insert(Table::History, history_key(key, entry.revision), &value);
    }

    fn expiry(&mut self, record: &LogRecord<'_>) {
        if let Some(expires) = record.expires {
            self.insert(Table::Expiry, expiry_key(expires, record.revision), record.key);
        }
    }

    fn changed(&mut self, record: &LogRecord<'_>) {
        let plane = plane_of(record.key);
        match self.planes.last_mut() {
            Some((last, revision)) if **last == *plane => *revision = record.revision,
            _ => self.planes.push((Slice::from(plane), record.revision)),
        }
    }

    /// Everything, in order.
    pub(super) fn take(&mut self) -> Vec<Op> {
        for (plane, revision) in std::mem::take(&mut self.planes) {
            self.step += 1;
            self.insert(Table::Planes, plane, &revision.0.to_le_bytes());
        }
        std::mem::take(&mut self.ops)
    }

    /// The record of the drop may be gone from the log before this copy of a key that the plane held.
    fn still_dropped(&mut self, record: &LogRecord<'_>) {
        if let Some(End {
            kind: EndKind::Dropped,
            revision,
        }) = record.end
        {
            self.insert(Table::Dropped, plane_of(record.key), &revision.0.to_le_bytes());
        }
    }

    /// Forgets a version that is not the newest any more.
    pub(in crate::embedded) fn forget_version(&mut self, key: &str, revision: Revision) {
        self.step += 1;
        self.remove(Table::History, history_key(key.as_bytes(), revision));
    }

    /// Forgets that a key ever was.
    pub(in crate::embedded) fn forget_key(&mut self, key: &str) {
        self.step += 1;
        self.remove(Table::ByResource, by_resource(key.as_bytes()));
    }

    /// Forgets the newest version of a key whose plane was dropped.
    pub(in crate::embedded) fn sweep_key(&mut self, key: &str) {
        self.step += 1;
        self.remove(Table::Current, key);
        self.remove(Table::ByResource, by_resource(key.as_bytes()));
    }

    /// Forgets a dropped plane of which nothing is left.
    pub(in crate::embedded) fn sweep_plane(&mut self, plane: PlaneId) {
        self.step += 1;
        self.remove(Table::Dropped, plane.as_str());
        self.remove(Table::Planes, plane.as_str());
        self.sweeps += 1;
    }

    pub(in crate::embedded) fn forget_expiry(&mut self, time: u64, revision: Revision) {
        self.step += 1;
        self.remove(Table::Expiry, expiry_key(time, revision));
    }

    fn insert(&mut self, table: Table, key: impl AsRef<[u8]>, value: &[u8]) {
        let (key, value) = (Slice::from(key.as_ref()), Some(Slice::from(value)));
        self.ops.push(Op {
            table,
            key,
            value,
            step: self.step,
        });
    }

    fn remove(&mut self, table: Table, key: impl AsRef<[u8]>) {
        self.ops.push(Op {
            table,
            key: Slice::from(key.as_ref()),
            value: None,
            step: self.step,
        });
    }
}

fn plane_of(key: &[u8]) -> &[u8] {
    key.split(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Versions of a key lie together, the newest first. A key never holds a NUL, so keys keep their order.
pub(super) fn history_key(key: &[u8], revision: Revision) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.len() + 9);
    bytes.extend_from_slice(key);
    bytes.push(0);
    bytes.extend_from_slice(&(!revision.0).to_be_bytes());
    bytes
}

pub(super) fn split_history_key(bytes: &[u8]) -> Option<(&str, Revision)> {
    let (key, revision) = bytes.split_at_checked(bytes.len().checked_sub(9)?)?;
    let revision = !u64::from_be_bytes(revision[1..].try_into().ok()?);
    Some((std::str::from_utf8(key).ok()?, Revision(revision)))
}

/// `plane/group/resource/rest` as `group/resource/plane/rest`. Keys of one resource keep their order.
pub(super) fn by_resource(key: &[u8]) -> Vec<u8> {
    let mut slashes = key
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| at);
    let (Some(plane_end), Some(_), Some(resource_end)) = (slashes.next(), slashes.next(), slashes.next()) else {
        return key.to_vec();
    };
    let mut bytes = Vec::with_capacity(key.len());
    bytes.extend_from_slice(&key[plane_end + 1..=resource_end]);
    bytes.extend_from_slice(&key[..=plane_end]);
    bytes.extend_from_slice(&key[resource_end + 1..]);
    bytes
}

/// The key that [`by_resource`] was made from.
pub(super) fn from_by_resource(bytes: &[u8]) -> Option<Key> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts = text.splitn(4, '/');
    let (group, resource, plane, rest) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Key::from_stored(&format!("{plane}/{group}/{resource}/{rest}"))
}

fn expiry_key(time: u64, revision: Revision) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&time.to_be_bytes());
    bytes[8..].copy_from_slice(&revision.0.to_be_bytes());
    bytes
}

pub(super) fn split_expiry_key(bytes: &[u8]) -> Option<(u64, Revision)> {
    let (time, revision) = bytes.split_at_checked(8)?;
    Some((
        u64::from_be_bytes(time.try_into().ok()?),
        Revision(u64::from_be_bytes(revision.try_into().ok()?)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_keys_give_back_what_they_were_made_from() {
        for text in [
            "root//configmaps/ns/a",
            "root/apps/deployments/ns/a",
            "0123456789ab/g/r/x",
        ] {
            assert_eq!(from_by_resource(&by_resource(text.as_bytes())).unwrap().as_str(), text);
            let history = history_key(text.as_bytes(), Revision(77));
            assert_eq!(split_history_key(&history), Some((text, Revision(77))));
        }
        assert_eq!(
            by_resource(b"root/apps/deployments/ns/a"),
            b"apps/deployments/root/ns/a"
        );
        assert_eq!(split_expiry_key(&expiry_key(5, Revision(6))), Some((5, Revision(6))));
    }

    #[test]
    fn versions_sort_by_key_and_then_newest_first() {
        let keys = ["a//b/c", "a//b/c-d", "a//b/c.d", "a//b/c/d", "a//b/cd"];
        let mut sorted: Vec<_> = keys
            .iter()
            .map(|key| history_key(key.as_bytes(), Revision(5)))
            .collect();
        sorted.sort();
        assert!(sorted.iter().map(|bytes| split_history_key(bytes).unwrap().0).eq(keys));
        assert!(history_key(b"k", Revision(9)) < history_key(b"k", Revision(8)));
    }
}
