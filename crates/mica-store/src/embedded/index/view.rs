//! Reading the index as it was at one moment.
//!
//! Everything here is about entries, places in the log; values are loaded elsewhere.

use std::ops::Bound;
use std::sync::Arc;

use lsm_tree::{AbstractTree, Guard, SeqNo};
use mica_api::PlaneId;

use super::batch::{by_resource, from_by_resource, history_key, split_history_key};
use super::{Index, Table, damaged};
use crate::embedded::format::{End, Entry};
use crate::embedded::read::Damage;
use crate::key::{Key, KeyRange};
use crate::store::{Revision, Usage};

/// The tables at one moment.
pub(in crate::embedded) struct View {
    index: Arc<Index>,
    sequence: SeqNo,
    revision: Revision,
    any_dropped: bool,
}

/// A version of a key that is not the newest any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::embedded) struct OldVersion {
    pub(in crate::embedded) key: Key,
    pub(in crate::embedded) entry: Entry,
    pub(in crate::embedded) end: End,
}

/// Some keys in order, and the one that follows if one does.
type Listed = (Vec<(Key, Entry)>, Option<Key>);
type Pair = (lsm_tree::Slice, lsm_tree::Slice);
pub(super) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl View {
    pub(super) fn new(index: Arc<Index>, sequence: SeqNo, revision: Revision, any_dropped: bool) -> Self {
        Self {
            index,
            sequence,
            revision,
            any_dropped,
        }
    }

    /// The revision whose state this is.
    pub(in crate::embedded) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn get(&self, table: Table, key: impl AsRef<[u8]>) -> Result<Option<lsm_tree::Slice>, Damage> {
        self.index
            .tree(table)
            .get(key, self.sequence)
            .map_err(|error| self.index.failed(error))
    }

    pub(super) fn scan(&self, table: Table, bounds: Bounds) -> impl Iterator<Item = Result<Pair, Damage>> + use<> {
        let iter = self.index.tree(table).range::<Vec<u8>, _>(bounds, self.sequence, None);
        let index = self.index.clone();
        iter.map(move |guard| guard.into_inner().map_err(|error| index.failed(error)))
    }

    fn number(&self, table: Table, key: &str) -> Result<Option<Revision>, Damage> {
        let Some(bytes) = self.get(table, key)? else {
            return Ok(None);
        };
        let number = bytes[..].try_into().map_err(|_| damaged(table))?;
        Ok(Some(Revision(u64::from_le_bytes(number))))
    }

    /// The last revision that changed something in a plane, as far as is known; zero if nothing ever did.
    pub(in crate::embedded) fn last_change(&self, plane: PlaneId) -> Result<Revision, Damage> {
        Ok(self.number(Table::Planes, plane.as_str())?.unwrap_or_default())
    }

    /// When a plane was dropped, if it was and is not swept yet.
    pub(in crate::embedded) fn dropped(&self, plane: PlaneId) -> Result<Option<Revision>, Damage> {
        if self.any_dropped {
            self.number(Table::Dropped, plane.as_str())
        } else {
            Ok(None)
        }
    }

    /// Every plane that was dropped and is not swept yet.
    pub(in crate::embedded) fn all_dropped(&self) -> Result<Vec<(PlaneId, Revision)>, Damage> {
        if !self.any_dropped {
            return Ok(Vec::new());
        }
        let mut planes = Vec::new();
        for pair in self.scan(Table::Dropped, (Bound::Unbounded, Bound::Unbounded)) {
            let (plane, revision) = pair?;
            let plane = std::str::from_utf8(&plane)
                .ok()
                .and_then(|text| PlaneId::parse(text).ok());
            let revision = revision[..]
                .try_into()
                .ok()
                .map(|bytes| Revision(u64::from_le_bytes(bytes)));
            planes.push(plane.zip(revision).ok_or_else(|| damaged(Table::Dropped))?);
        }
        Ok(planes)
    }

    /// The version of a key that was the newest at a revision.
    pub(in crate::embedded) fn version(&self, key: &Key, at: Revision) -> Result<Option<Entry>, Damage> {
        if self.dropped(key.plane())?.is_some_and(|dropped| dropped <= at) {
            return Ok(None);
        }
        self.stored_version(key, at)
    }

    /// Like [`View::version`], for a plane that is known not to be dropped.
    fn stored_version(&self, key: &Key, at: Revision) -> Result<Option<Entry>, Damage> {
        let current = self.get(Table::Current, key.as_str())?;
        let current = current
            .map(|bytes| Entry::decode(&bytes).ok_or_else(|| damaged(Table::Current)))
            .transpose()?;
        if current.is_some_and(|entry| entry.revision <= at) || at >= self.revision {
            return Ok(current);
        }
        let older = self.older_version(key, at)?;
        Ok(older
            .filter(|version| version.end.revision > at)
            .map(|version| version.entry))
    }

    /// The newest old version of a key with a revision of at most `at`.
    pub(super) fn older_version(&self, key: &Key, at: Revision) -> Result<Option<OldVersion>, Damage> {
        let first = history_key(key.as_str().as_bytes(), at);
        let last = history_key(key.as_str().as_bytes(), Revision(0));
        let mut versions = self.scan(Table::History, (Bound::Included(first), Bound::Included(last)));
        versions.next().map(|pair| old_version(&pair?)).transpose()
    }

    /// One page of a range as it was at a revision, and the key that follows if one does.
    pub(in crate::embedded) fn list(
        &self,
        range: &KeyRange,
        at: Revision,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Listed, Damage> {
        let mut page = Vec::with_capacity(limit.min(1024));
        let mut hidden = DroppedPlanes::new(self, at);
        let mut next = None;
        let mut take = |key: Key, entry: Entry| -> Result<bool, Damage> {
            if hidden.contains(&key)? {
                return Ok(true);
            }
            if page.len() == limit {
                next = Some(key);
                return Ok(false);
            }
            page.push((key, entry));
            Ok(true)
        };
        match range {
            KeyRange::One(key) => {
                if after.is_none_or(|after| key > after)
                    && let Some(entry) = self.stored_version(key, at)?
                {
                    take(key.clone(), entry)?;
                }
            }
            KeyRange::AllPlanes(resource) => {
                for pair in self.scan(Table::ByResource, resource_bounds(resource.as_key(), after)) {
                    let key = from_by_resource(&pair?.0).ok_or_else(|| damaged(Table::ByResource))?;
                    if let Some(entry) = self.stored_version(&key, at)?
                        && !take(key, entry)?
                    {
                        break;
                    }
                }
            }
            _ => self.each_version(range, at, after, &mut take)?,
        }
        Ok((page, next))
    }

    /// Calls `take` with what a range of adjoining keys held at a revision, in order, until it says stop.
    fn each_version(
        &self,
        range: &KeyRange,
        at: Revision,
        after: Option<&Key>,
        take: &mut impl FnMut(Key, Entry) -> Result<bool, Damage>,
    ) -> Result<(), Damage> {
        let prefix = range.prefix().expect("only ranges of adjoining keys are scanned");
        let Some(bounds) = prefix_bounds(&prefix, after.map(|key| Bound::Excluded(key.as_str().into()))) else {
            return Ok(());
        };
        let newest = self.scan(Table::Current, bounds).map(|pair| current_entry(&pair?));
        let mut newest = newest
            .filter(|found| found.as_ref().map_or(true, |(_, entry)| entry.revision <= at))
            .peekable();
        if at >= self.revision {
            for found in newest {
                let (key, entry) = found?;
                if !take(key, entry)? {
                    break;
                }
            }
            return Ok(());
        }
        let past_after = after.map(|key| Bound::Included([key.as_str().as_bytes(), &[1]].concat()));
        let Some(bounds) = prefix_bounds(&prefix, past_after) else {
            return Ok(());
        };
        let older = self.scan(Table::History, bounds).map(|pair| old_version(&pair?));
        let valid = |version: &OldVersion| version.entry.revision <= at && version.end.revision > at;
        let mut older = older.filter(|found| found.as_ref().map_or(true, valid)).peekable();
        loop {
            // Errors come first: they cannot be ordered.
            let from_older = match (newest.peek(), older.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) | (Some(Err(_)), _) => false,
                (None, Some(_)) | (_, Some(Err(_))) => true,
                (Some(Ok((newest, _))), Some(Ok(older))) => older.key < *newest,
            };
            let next = if from_older {
                older
                    .next()
                    .map(|found| found.map(|version| (version.key, version.entry)))
            } else {
                newest.next()
            };
            let (key, entry) = next.expect("it was peeked")?;
            if !take(key, entry)? {
                return Ok(());
            }
        }
    }

    /// How many records of a range follow a key at a revision.
    pub(in crate::embedded) fn count(
        &self,
        range: &KeyRange,
        at: Revision,
        after: Option<&Key>,
    ) -> Result<u64, Damage> {
        let mut count = 0;
        let mut hidden = DroppedPlanes::new(self, at);
        let mut take = |key: &Key| -> Result<bool, Damage> {
            if !hidden.contains(key)? {
                count += 1;
            }
            Ok(true)
        };
        match range {
            KeyRange::One(_) | KeyRange::AllPlanes(_) => {
                let (all, _) = self.list(range, at, after, usize::MAX)?;
                return Ok(all.len() as u64);
            }
            _ => self.each_version(range, at, after, &mut |key, _| take(&key))?,
        }
        Ok(count)
    }

    /// How many records a range holds, and their bytes.
    pub(in crate::embedded) fn usage(&self, range: &KeyRange) -> Result<Usage, Damage> {
        let mut usage = Usage::default();
        let mut hidden = DroppedPlanes::new(self, self.revision);
        let mut count = |key: &Key, entry: &Entry| -> Result<bool, Damage> {
            if !hidden.contains(key)? {
                usage.records += 1;
                usage.bytes += key.as_str().len() as u64 + u64::from(entry.value_len);
            }
            Ok(true)
        };
        match range {
            KeyRange::One(key) => {
                if let Some(entry) = self.stored_version(key, self.revision)? {
                    count(key, &entry)?;
                }
            }
            KeyRange::AllPlanes(resource) => {
                for pair in self.scan(Table::ByResource, resource_bounds(resource.as_key(), None)) {
                    let key = from_by_resource(&pair?.0).ok_or_else(|| damaged(Table::ByResource))?;
                    if let Some(entry) = self.stored_version(&key, self.revision)? {
                        count(&key, &entry)?;
                    }
                }
            }
            _ => self.each_version(range, self.revision, None, &mut |key, entry| count(&key, &entry))?,
        }
        Ok(usage)
    }

    /// The old versions of a key, newest first.
    pub(in crate::embedded) fn versions(&self, key: &Key) -> impl Iterator<Item = Result<OldVersion, Damage>> + use<> {
        let first = history_key(key.as_str().as_bytes(), Revision(u64::MAX));
        let last = history_key(key.as_str().as_bytes(), Revision(0));
        self.scan(Table::History, (Bound::Included(first), Bound::Included(last)))
            .map(|pair| old_version(&pair?))
    }

    /// Some old version of a key by its revision.
    pub(in crate::embedded) fn old_version(&self, key: &Key, revision: Revision) -> Result<Option<OldVersion>, Damage> {
        let bytes = history_key(key.as_str().as_bytes(), revision);
        let value = self.get(Table::History, &bytes)?;
        value
            .map(|value| old_version(&(lsm_tree::Slice::from(bytes), value)))
            .transpose()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.index.close_view(self.sequence);
    }
}

/// Which planes are gone at a revision, looked up once for a run of keys of the same plane.
struct DroppedPlanes<'a> {
    view: &'a View,
    at: Revision,
    last: Option<(PlaneId, bool)>,
}

impl<'a> DroppedPlanes<'a> {
    fn new(view: &'a View, at: Revision) -> Self {
        Self { view, at, last: None }
    }

    fn contains(&mut self, key: &Key) -> Result<bool, Damage> {
        if !self.view.any_dropped {
            return Ok(false);
        }
        let plane = key.plane();
        match self.last {
            Some((last, gone)) if last == plane => Ok(gone),
            _ => {
                let gone = self.view.dropped(plane)?.is_some_and(|dropped| dropped <= self.at);
                self.last = Some((plane, gone));
                Ok(gone)
            }
        }
    }
}

pub(super) fn current_entry((key, value): &Pair) -> Result<(Key, Entry), Damage> {
    let key = std::str::from_utf8(key).ok().and_then(Key::from_stored);
    key.zip(Entry::decode(value)).ok_or_else(|| damaged(Table::Current))
}

pub(super) fn old_version((key, value): &Pair) -> Result<OldVersion, Damage> {
    let parse = || {
        let (key, _) = split_history_key(key)?;
        let (entry, end) = value.split_at_checked(Entry::BYTES)?;
        Some(OldVersion {
            key: Key::from_stored(key)?,
            entry: Entry::decode(entry)?,
            end: End::decode(end)?,
        })
    };
    parse().ok_or_else(|| damaged(Table::History))
}

/// The keys that begin with a prefix, from a lower bound on if there is one. `None` if that leaves nothing.
pub(super) fn prefix_bounds(prefix: &str, lower: Option<Bound<Vec<u8>>>) -> Option<Bounds> {
    let upper = match prefix.as_bytes().split_last() {
        Some((last, start)) => Bound::Excluded([start, &[last + 1]].concat()),
        None => Bound::Unbounded,
    };
    let lower = match lower {
        Some(Bound::Excluded(bytes) | Bound::Included(bytes)) if bytes.as_slice() < prefix.as_bytes() => None,
        lower => lower,
    };
    if let (Some(Bound::Included(lower) | Bound::Excluded(lower)), Bound::Excluded(upper)) = (&lower, &upper)
        && lower >= upper
    {
        return None;
    }
    Some((lower.unwrap_or_else(|| Bound::Included(prefix.into())), upper))
}

/// The part of `by_resource` that holds a resource, from behind a key on that may be of another resource.
pub(super) fn resource_bounds(resource: &str, after: Option<&Key>) -> Bounds {
    let prefix = format!("{resource}/");
    let upper = Bound::Excluded(format!("{resource}0").into_bytes());
    let lower = match after {
        None => Bound::Included(prefix.into_bytes()),
        Some(key) if key.resource() == resource => Bound::Excluded(by_resource(key.as_str().as_bytes())),
        Some(key) => {
            let plane = key.plane();
            // All of this resource in that key's plane lies on one side of it. `0` is what follows the slash.
            let beyond = if key.as_str() < format!("{plane}/{prefix}").as_str() {
                '/'
            } else {
                '0'
            };
            Bound::Included(format!("{prefix}{plane}{beyond}").into_bytes())
        }
    };
    (lower, upper)
}
