//! Walks a collection in key order: the plane's own records over its base layer, as of one revision.

use std::collections::VecDeque;
use std::sync::Arc;

use mica_store::{Key, KeyRange, Page, PlaneKeys, RangeQuery, Record, Revision};

use super::Registry;
use crate::custom::Definition;
use crate::custom::everywhere::Everywhere;
use crate::error::ApiError;
use crate::plane::Plane;
use crate::scheme::Served;
use crate::stored::{Content, Stored};
use crate::tenancy::index::Relation;

/// How many records are read from the store at once, at most: enough to amortise the call.
const PAGE: usize = 500;
/// How many are read first, when their size is not known: an object can have a megabyte and more.
const FIRST_PAGE: usize = 32;
/// About how many bytes are read at once from then on.
const PAGE_BYTES: usize = 2 << 20;
/// Places of base objects that are looked at one by one when objects are counted.
const COUNTED_PLACES: usize = 16;

/// The part of a collection that a request is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    Resource,
    Namespace(String),
    Object { namespace: Option<String>, name: String },
}

impl Extent {
    pub fn range(&self, keys: PlaneKeys, served: &Served) -> KeyRange {
        match self {
            Self::Resource => keys.resource(&served.storage),
            Self::Namespace(namespace) => keys.namespace(&served.storage, namespace),
            Self::Object { namespace, name } => KeyRange::One(keys.object(&served.storage, namespace.as_deref(), name)),
        }
    }
}

/// Which of the base layer's objects lie in a range, by the rests of their keys.
enum Under {
    Prefix(String),
    One(String),
}

/// An ordered walk. The first page pins the revision; later pages read the same one.
pub struct Scan {
    registry: Registry,
    /// The plane whose base layer is laid under; `None` for walks over all planes, which show own records only.
    plane: Option<Arc<Plane>>,
    served: Arc<Served>,
    /// What defines the resource, if it is a custom one.
    definition: Option<Definition>,
    /// What shows the objects of a custom resource over all planes.
    everywhere: Option<Arc<Everywhere>>,
    /// The index that leads to the objects, instead of the range they are in.
    relation: Option<(Relation, String)>,
    /// Whether most objects between two of the index are in the index too, for all that is known.
    dense: bool,
    range: KeyRange,
    under: Under,
    at: Option<Revision>,
    after: Option<Key>,
    buffer: VecDeque<(Key, Stored)>,
    started: bool,
    finished: bool,
    page: usize,
}

impl Scan {
    /// Walks one plane's collection, or the part of it that an extent names.
    pub fn of_plane(
        registry: Registry,
        plane: Arc<Plane>,
        served: Arc<Served>,
        extent: &Extent,
        at: Option<Revision>,
        after: Option<Key>,
    ) -> Self {
        let range = extent.range(plane.keys(), &served);
        let under = match extent {
            Extent::Resource => Under::Prefix(String::new()),
            Extent::Namespace(namespace) => Under::Prefix(format!("{namespace}/")),
            Extent::Object {
                namespace: Some(namespace),
                name,
            } => Under::One(format!("{namespace}/{name}")),
            Extent::Object { namespace: None, name } => Under::One(name.clone()),
        };
        Self::new(registry, Some(plane), served, range, under, at, after)
    }

    /// Walks a resource over all planes, root included: the caller leaves root out.
    pub fn of_all_planes(registry: Registry, served: Arc<Served>, at: Option<Revision>, after: Option<Key>) -> Self {
        let range = KeyRange::AllPlanes(served.storage.clone());
        Self::new(registry, None, served, range, Under::Prefix(String::new()), at, after)
    }

    fn new(
        registry: Registry,
        plane: Option<Arc<Plane>>,
        served: Arc<Served>,
        range: KeyRange,
        under: Under,
        at: Option<Revision>,
        after: Option<Key>,
    ) -> Self {
        let buffer = VecDeque::new();
        Self {
            registry,
            plane,
            served,
            definition: None,
            everywhere: None,
            relation: None,
            dense: false,
            range,
            under,
            at,
            after,
            buffer,
            started: false,
            finished: false,
            page: FIRST_PAGE,
        }
    }

    /// Walks objects of a custom resource.
    #[must_use]
    pub fn defined_by(mut self, definition: Option<&Definition>) -> Self {
        self.definition = definition.cloned();
        self
    }

    /// Walks objects of a custom resource over all planes.
    #[must_use]
    pub fn shown_by(mut self, everywhere: Option<&Arc<Everywhere>>) -> Self {
        self.everywhere = everywhere.cloned();
        self
    }

    /// Walks what is somebody's, by way of an index.
    #[must_use]
    pub fn by_relation(mut self, relation: Relation, whose: &str) -> Self {
        self.range = relation.range(whose);
        self.after = self.after.map(|after| relation.record(whose, &after));
        self.relation = Some((relation, whose.to_owned()));
        self.dense = relation.is_in_order();
        self.page = PAGE;
        self
    }

    /// Reads smaller pages: for walks that will stop after about this many.
    #[must_use]
    pub fn expecting(mut self, objects: usize) -> Self {
        self.page = objects.clamp(1, PAGE);
        self
    }

    /// Whether a webhook may have to convert what is read.
    pub fn converts(&self) -> bool {
        self.served.custom_kind().is_some_and(super::converts_by_webhook)
    }

    /// The revision whose state this walk shows. Reads the first page if that has not happened.
    pub async fn revision(&mut self) -> Result<Revision, ApiError> {
        if !self.started {
            self.fill().await?;
        }
        Ok(self.at.expect("the first page pins the revision"))
    }

    /// The next object, in key order.
    pub async fn next(&mut self) -> Result<Option<(Key, Stored)>, ApiError> {
        while self.buffer.is_empty() && !self.finished {
            self.fill().await?;
        }
        Ok(self.buffer.pop_front())
    }

    /// Whether anything follows. Custom objects are not read for that: a page must not fail because of the one after it.
    pub async fn has_more(&mut self) -> Result<bool, ApiError> {
        while self.buffer.is_empty() && !self.finished && self.served.custom_kind().is_none() {
            self.fill().await?;
        }
        Ok(!self.buffer.is_empty() || !self.finished)
    }

    /// The next object if it has been read already.
    pub fn try_next(&mut self) -> Option<(Key, Stored)> {
        self.buffer.pop_front()
    }

    /// How many objects follow a key, where that can be told without walking them.
    pub async fn count_after(&self, after: &Key) -> Result<Option<u64>, ApiError> {
        let (Some(plane), Some(at), Under::Prefix(prefix)) = (&self.plane, self.at, &self.under) else {
            return Ok(None);
        };
        if let Some((relation, whose)) = &self.relation {
            let after = relation.record(whose, after);
            let count = self.registry.store.count(&self.range, Some(at), Some(&after)).await?;
            return Ok(Some(count));
        }
        // Records and objects differ only where some layer has an object: a record may hide it, and it needs no record.
        let places = plane.layers.rests(&self.served.storage, prefix, after.rest());
        if places.len() > COUNTED_PLACES {
            return Ok(None);
        }
        let mut count = self.registry.store.count(&self.range, Some(at), Some(after)).await?;
        for rest in places {
            let key = plane_key(plane, &self.served, &rest);
            let query = RangeQuery {
                range: &KeyRange::One(key.clone()),
                at: Some(at),
                after: None,
                limit: 1,
            };
            let shown = match self.registry.store.range(query).await?.records.first() {
                Some((_, record)) => {
                    count = count.saturating_sub(1);
                    plane.read(&key, record)?.object().is_some()
                }
                None => plane.birth.revision <= at && plane.base.contains(&self.served.storage, &rest),
            };
            count += u64::from(shown);
        }
        Ok(Some(count))
    }

    /// Reads on until so many bytes are held, or everything is: what fails while this goes on fails whole.
    pub async fn read_ahead(&mut self, bytes: usize) -> Result<(), ApiError> {
        let mut held = 0;
        let mut counted = 0;
        while !self.finished && held < bytes {
            self.fill().await?;
            held += self
                .buffer
                .range(counted..)
                .map(|(_, stored)| stored.json().len())
                .sum::<usize>();
            counted = self.buffer.len();
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), ApiError> {
        let mut ready = std::mem::take(&mut self.buffer);
        let query = RangeQuery {
            range: &self.range,
            at: self.at,
            after: self.after.as_ref(),
            limit: self.page,
        };
        let mut page = self.registry.store.range(query).await?;
        self.started = true;
        self.at = Some(page.revision);
        self.finished = !page.more;
        let next = page.records.last().map(|(key, _)| key.clone());
        if let Some(relation) = self.relation.as_ref().map(|(relation, _)| *relation) {
            page.records = self.related(relation, &page).await?;
        }
        let after = self.after.take();
        let mut base = self.base_keys(after.as_ref(), page.revision);
        // While the store has more, base keys beyond the last record wait for the page that surrounds them.
        let last = next.filter(|_| page.more);
        self.page = fitting(&page.records);
        for (key, record) in page.records {
            while let Some(under) = base.front()
                && *under < key
            {
                let under = base.pop_front().expect("there is a front");
                self.push_base(under);
            }
            if base.front() == Some(&key) {
                base.pop_front();
            }
            let stored = match &self.plane {
                Some(plane) => plane.read(&key, &record)?.object(),
                None => Content::read(&record)?.object().map(Stored::in_store_order),
            };
            if let Some(stored) = stored {
                self.buffer.push_back((key, stored));
            }
        }
        if last.is_none() {
            for under in base {
                self.push_base(under);
            }
        }
        if self.served.custom_kind().is_some() {
            let items = std::mem::take(&mut self.buffer).into();
            let (plane, definition) = (self.plane.as_deref(), self.definition.as_ref());
            let shown = match &self.everywhere {
                Some(everywhere) => everywhere.show(&self.registry, items).await,
                None => self.registry.present_all(plane, &self.served, definition, items).await,
            };
            self.buffer = shown?.into();
        }
        ready.append(&mut self.buffer);
        self.buffer = ready;
        self.after = last;
        Ok(())
    }

    /// The objects that records of an index lead to, in the state that the page is of. Where most objects of the collection
    /// are wanted it is read on end, which costs less for each, and what was read lately is not read again.
    async fn related(&mut self, relation: Relation, page: &Page) -> Result<Vec<(Key, Record)>, ApiError> {
        let store = &self.registry.store;
        let mut wanted: VecDeque<Key> = page.records.iter().map(|(record, _)| relation.object(record)).collect();
        let mut found = Vec::with_capacity(wanted.len());
        let all = relation.all();
        let mut after = self.after.as_ref().map(|record| relation.object(record));
        while self.dense && !wanted.is_empty() {
            let query = RangeQuery {
                range: &all,
                at: Some(page.revision),
                after: after.as_ref(),
                limit: wanted.len(),
            };
            let run = store.range(query).await?;
            let (read, before) = (run.records.len(), found.len());
            after = run.records.last().map(|(key, _)| key.clone());
            for (key, record) in run.records {
                // Of what is gone nothing is shown.
                while wanted.front().is_some_and(|next| *next < key) {
                    wanted.pop_front();
                }
                if wanted.front() == Some(&key) {
                    wanted.pop_front();
                    found.push((key, record));
                }
            }
            if !run.more {
                wanted.clear();
            }
            self.dense = (found.len() - before) * 2 >= read;
        }
        let rest: Vec<Key> = wanted.into();
        let there = store.get_many(&rest, page.revision).await?;
        let there = rest.into_iter().zip(there);
        found.extend(there.filter_map(|(key, record)| Some((key, record?))));
        Ok(found)
    }

    /// Keys of base objects after `after`, in order.
    fn base_keys(&self, after: Option<&Key>, revision: Revision) -> VecDeque<Key> {
        let based = self.plane.as_ref().filter(|_| self.relation.is_none());
        let Some(plane) = based.filter(|plane| plane.birth.revision <= revision) else {
            return VecDeque::new();
        };
        let after = after.map(Key::rest);
        let (Under::Prefix(prefix) | Under::One(prefix)) = &self.under;
        let rests = plane.base.rests(&self.served.storage, prefix, after);
        rests
            .filter(|rest| matches!(self.under, Under::Prefix(_)) || rest == prefix)
            .map(|rest| plane_key(plane, &self.served, rest))
            .collect()
    }

    fn push_base(&mut self, key: Key) {
        let Some(plane) = &self.plane else { return };
        if let Some(stored) = plane.base.get(&self.served.storage, key.rest(), &plane.birth) {
            self.buffer.push_back((key, stored));
        }
    }
}

/// How many records like these make a page.
fn fitting(records: &[(Key, Record)]) -> usize {
    let bytes: usize = records.iter().map(|(_, record)| record.value.len()).sum();
    let each = bytes / records.len().max(1);
    (PAGE_BYTES / each.max(1)).clamp(1, PAGE)
}

fn plane_key(plane: &Plane, served: &Served, rest: &str) -> Key {
    match rest.split_once('/') {
        Some((namespace, name)) => plane.keys().object(&served.storage, Some(namespace), name),
        None => plane.keys().object(&served.storage, None, rest),
    }
}
