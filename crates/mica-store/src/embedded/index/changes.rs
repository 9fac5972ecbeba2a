//! Finding changes in a view: what a watch missed since some revision.
//!
//! Changes are not kept as such; they follow from the versions of the keys in the range, so finding them costs a look at
//! all of those. The earliest come first, and only so many at a time.

use std::collections::BinaryHeap;

use mica_api::PlaneId;

use super::batch::from_by_resource;
use super::view::{Bounds, OldVersion, View, current_entry, old_version, prefix_bounds, resource_bounds};
use super::{Table, damaged};
use crate::embedded::format::{EndKind, Entry};
use crate::embedded::read::Damage;
use crate::key::{Key, KeyRange};
use crate::store::Revision;

/// A change found in the tables.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::embedded) struct Found {
    pub(in crate::embedded) revision: Revision,
    pub(in crate::embedded) change: FoundChange,
}

#[derive(PartialEq, Eq, Debug)]
pub(in crate::embedded) enum FoundChange {
    Put(Key, Entry),
    /// With the version that was deleted.
    Delete(Key, Entry),
    Dropped(PlaneId),
}

impl View {
    /// The earliest changes in a range after a revision, in order, at most `limit`; `None` after them if that is all.
    pub(in crate::embedded) fn changes(
        &self,
        range: &KeyRange,
        after: Revision,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<Revision>), Damage> {
        let mut earliest = Earliest {
            limit,
            after,
            found: BinaryHeap::new(),
            cut: false,
        };
        for (plane, revision) in self.all_dropped()? {
            if range.plane().is_none_or(|inner| inner == plane) {
                earliest.offer(revision, || FoundChange::Dropped(plane));
            }
        }
        match range {
            KeyRange::One(key) => self.changes_of(key, &mut earliest)?,
            KeyRange::AllPlanes(resource) => {
                for pair in self.scan(Table::ByResource, resource_bounds(resource.as_key(), None)) {
                    let key = from_by_resource(&pair?.0).ok_or_else(|| damaged(Table::ByResource))?;
                    self.changes_of(&key, &mut earliest)?;
                }
            }
            _ => {
                let bounds = range_bounds(range);
                for pair in self.scan(Table::Current, bounds.clone()) {
                    let (key, entry) = current_entry(&pair?)?;
                    earliest.offer(entry.revision, || FoundChange::Put(key, entry));
                }
                for pair in self.scan(Table::History, bounds) {
                    earliest.offer_version(old_version(&pair?)?);
                }
            }
        }
        let complete_to = if earliest.cut {
            earliest.found.peek().map(|found| found.revision)
        } else {
            None
        };
        Ok((earliest.found.into_sorted_vec(), complete_to))
    }

    fn changes_of(&self, key: &Key, earliest: &mut Earliest) -> Result<(), Damage> {
        if let Some(bytes) = self.get(Table::Current, key.as_str())? {
            let entry = Entry::decode(&bytes).ok_or_else(|| damaged(Table::Current))?;
            earliest.offer(entry.revision, || FoundChange::Put(key.clone(), entry));
        }
        for version in self.versions(key) {
            earliest.offer_version(version?);
        }
        Ok(())
    }

    /// The version that a change replaced or deleted.
    pub(in crate::embedded) fn superseded_by(&self, key: &Key, change: Revision) -> Result<Option<Entry>, Damage> {
        let Some(before) = change.0.checked_sub(1) else {
            return Ok(None);
        };
        let older = self.older_version(key, Revision(before))?;
        Ok(older
            .filter(|version| version.end.revision == change)
            .map(|version| version.entry))
    }

    /// Whether [`Self::changes`] would look at more than so many keys, about.
    pub(in crate::embedded) fn holds_more_than(&self, range: &KeyRange, many: usize) -> Result<bool, Damage> {
        let (table, bounds) = match range {
            KeyRange::One(_) => return Ok(many == 0),
            KeyRange::AllPlanes(resource) => (Table::ByResource, resource_bounds(resource.as_key(), None)),
            _ => (Table::Current, range_bounds(range)),
        };
        let further = self.scan(table, bounds).nth(many);
        further.transpose().map(|key| key.is_some())
    }
}

fn range_bounds(range: &KeyRange) -> Bounds {
    let prefix = range.prefix().expect("only ranges of adjoining keys are scanned");
    prefix_bounds(&prefix, None).expect("a range without a beginning is not empty")
}

/// Collects the changes with the smallest revisions.
struct Earliest {
    limit: usize,
    after: Revision,
    /// The greatest on top.
    found: BinaryHeap<Found>,
    cut: bool,
}

impl Earliest {
    fn offer(&mut self, revision: Revision, change: impl FnOnce() -> FoundChange) {
        if revision <= self.after {
            return;
        }
        if self.found.len() >= self.limit {
            self.cut = true;
            if self.found.peek().is_some_and(|greatest| greatest.revision < revision) {
                return;
            }
            self.found.pop();
        }
        self.found.push(Found {
            revision,
            change: change(),
        });
    }

    fn offer_version(&mut self, version: OldVersion) {
        let OldVersion { key, entry, end } = version;
        if end.kind == EndKind::Deleted {
            self.offer(end.revision, || FoundChange::Delete(key.clone(), entry));
        }
        self.offer(entry.revision, || FoundChange::Put(key, entry));
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Found {
    /// Every change has a revision of its own.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.revision.cmp(&other.revision)
    }
}
