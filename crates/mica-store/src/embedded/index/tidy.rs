//! Looks at a view that the background work needs: what can be forgotten, swept, expired or carried on.

use std::ops::Bound;

use mica_api::PlaneId;

use super::batch::{by_resource, from_by_resource, history_key, split_expiry_key};
use super::view::{OldVersion, View, current_entry, old_version, prefix_bounds};
use super::{Table, damaged};
use crate::embedded::format::Entry;
use crate::embedded::read::Damage;
use crate::key::Key;
use crate::store::Revision;

impl View {
    /// Whether a version of a key is known, and at this place.
    pub(in crate::embedded) fn refers_to(&self, key: &Key, entry: &Entry) -> Result<bool, Damage> {
        let current = self
            .get(Table::Current, key.as_str())?
            .and_then(|bytes| Entry::decode(&bytes));
        if current == Some(*entry) {
            return Ok(true);
        }
        Ok(self
            .old_version(key, entry.revision)?
            .is_some_and(|old| old.entry == *entry))
    }

    /// Old versions behind one of them, in the order of the table, at most `limit`.
    pub(in crate::embedded) fn old_versions_after(
        &self,
        after: Option<(&Key, Revision)>,
        limit: usize,
    ) -> Result<Vec<OldVersion>, Damage> {
        let lower = after.map_or(Bound::Unbounded, |(key, revision)| {
            Bound::Excluded(history_key(key.as_str().as_bytes(), revision))
        });
        self.scan(Table::History, (lower, Bound::Unbounded))
            .take(limit)
            .map(|pair| old_version(&pair?))
            .collect()
    }

    /// Keys of a plane in `current`, dropped or not, from behind a key on, at most `limit`.
    pub(in crate::embedded) fn current_of_plane(
        &self,
        plane: PlaneId,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<(Key, Entry)>, Damage> {
        let lower = after.map(|key| Bound::Excluded(key.as_str().into()));
        let Some(bounds) = prefix_bounds(&format!("{plane}/"), lower) else {
            return Ok(Vec::new());
        };
        self.scan(Table::Current, bounds)
            .take(limit)
            .map(|pair| current_entry(&pair?))
            .collect()
    }

    /// Old versions of a plane's keys, from behind one of them on, at most `limit`.
    pub(in crate::embedded) fn old_versions_of_plane(
        &self,
        plane: PlaneId,
        after: Option<(&Key, Revision)>,
        limit: usize,
    ) -> Result<Vec<OldVersion>, Damage> {
        let lower = after.map(|(key, revision)| Bound::Excluded(history_key(key.as_str().as_bytes(), revision)));
        let Some(bounds) = prefix_bounds(&format!("{plane}/"), lower) else {
            return Ok(Vec::new());
        };
        self.scan(Table::History, bounds)
            .take(limit)
            .map(|pair| old_version(&pair?))
            .collect()
    }

    /// Whether any version of a key is there.
    pub(in crate::embedded) fn knows(&self, key: &Key) -> Result<bool, Damage> {
        if self.get(Table::Current, key.as_str())?.is_some() {
            return Ok(true);
        }
        Ok(self.versions(key).next().transpose()?.is_some())
    }

    /// Whether a key is found by its resource.
    pub(in crate::embedded) fn is_listed(&self, key: &Key) -> Result<bool, Damage> {
        Ok(self
            .get(Table::ByResource, by_resource(key.as_str().as_bytes()))?
            .is_some())
    }

    /// Every key that is found by its resource.
    pub(in crate::embedded) fn each_by_resource(&self) -> impl Iterator<Item = Result<Key, Damage>> + use<> {
        let pairs = self.scan(Table::ByResource, (Bound::Unbounded, Bound::Unbounded));
        pairs.map(|pair| from_by_resource(&pair?.0).ok_or_else(|| damaged(Table::ByResource)))
    }

    /// What expires first from a time on: its time, the put's revision and its key.
    pub(in crate::embedded) fn expiries(&self, from: u64, limit: usize) -> Result<Vec<(u64, Revision, Key)>, Damage> {
        let lower = Bound::Included(from.to_be_bytes().to_vec());
        let pairs = self.scan(Table::Expiry, (lower, Bound::Unbounded)).take(limit);
        pairs
            .map(|pair| {
                let (time, key) = pair?;
                let parsed = split_expiry_key(&time).zip(std::str::from_utf8(&key).ok().and_then(Key::from_stored));
                let ((time, revision), key) = parsed.ok_or_else(|| damaged(Table::Expiry))?;
                Ok((time, revision, key))
            })
            .collect()
    }
}
