//! A random history, done to the store and to a model, then compared at every revision and from every start.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::*;

const STEPS: usize = 300;

/// What should be in the store, by the plainest means.
#[derive(Default)]
struct Model {
    /// Every version of every key; `None` is its absence.
    versions: BTreeMap<Key, BTreeMap<Revision, Option<Bytes>>>,
    /// Every change with what a watch says of it.
    changes: Vec<(Revision, Changed)>,
    compacted: Revision,
}

enum Changed {
    Key(Key, String),
    Plane(PlaneId),
}

impl Model {
    fn read(&self, key: &Key, at: Revision) -> Option<Record> {
        let (revision, value) = self.versions.get(key)?.range(..=at).next_back()?;
        Some(Record {
            value: value.clone()?,
            revision: *revision,
        })
    }

    fn list(&self, range: &KeyRange, at: Revision) -> Vec<(Key, Record)> {
        let inside = self.versions.keys().filter(|key| range.contains(key));
        inside
            .filter_map(|key| Some((key.clone(), self.read(key, at)?)))
            .collect()
    }

    fn apply(&mut self, writes: &[Write], committed: &Committed) {
        for (write, revision) in writes.iter().zip(&committed.revisions) {
            match write {
                Write::Put { key, value, .. } => self.set(key, *revision, Some(value.clone())),
                Write::Delete { key } if self.read(key, *revision).is_some() => self.set(key, *revision, None),
                Write::Delete { .. } => {}
                Write::DropPlane(plane) => {
                    for (_, versions) in self.versions.iter_mut().filter(|(key, _)| key.plane() == *plane) {
                        versions.insert(*revision, None);
                    }
                    self.changes.push((*revision, Changed::Plane(*plane)));
                }
            }
        }
    }

    fn set(&mut self, key: &Key, revision: Revision, value: Option<Bytes>) {
        let said = match &value {
            Some(value) => format!("{}={}@{revision}", key.name(), text(value)),
            None => format!("{}-@{revision}", key.name()),
        };
        self.versions.entry(key.clone()).or_default().insert(revision, value);
        self.changes.push((revision, Changed::Key(key.clone(), said)));
    }

    /// What a watch of a range says after a revision, and whether it ends there.
    fn watched(&self, range: &KeyRange, after: Revision) -> (Vec<String>, bool) {
        let mut said = Vec::new();
        for (revision, changed) in self.changes.iter().filter(|(revision, _)| *revision > after) {
            match changed {
                Changed::Key(key, text) if range.contains(key) => said.push(text.clone()),
                Changed::Plane(plane) if range.plane() == Some(*plane) => return (said, true),
                Changed::Plane(plane) if range.plane().is_none() => said.push(format!("!{plane}@{revision}")),
                Changed::Key(..) | Changed::Plane(_) => {}
            }
        }
        (said, false)
    }
}

struct World {
    bed: Bed,
    random: StdRng,
    planes: Vec<PlaneKeys>,
    model: Model,
}

pub(super) async fn random_operations_match_a_model(bed: Bed) {
    let planes = (0..3).map(|_| bed.new_plane()).collect();
    let random = StdRng::from_rng(&mut *bed.random.lock());
    let start = bed.revision().await;
    let mut world = World {
        bed,
        random,
        planes,
        model: Model::default(),
    };
    for step in 0..STEPS {
        match world.random.random_range(0..100) {
            0..93 => world.write().await,
            93..95 => world.drop_a_plane().await,
            95..97 if step > STEPS / 2 => world.compact(start).await,
            97 => world.advance().await,
            _ => world.read_something(start).await,
        }
    }
    for _ in 0..60 {
        world.read_something(start).await;
    }
    for _ in 0..30 {
        world.watch_something(start).await;
    }
}

impl World {
    fn some_key(&mut self, resource: GroupResource) -> Key {
        let plane = *self.planes.choose(&mut self.random).expect("there are planes");
        let namespace = *[None, Some("a"), Some("a-b")]
            .choose(&mut self.random)
            .expect("there are namespaces");
        plane.object(&resource, namespace, &format!("k{}", self.random.random_range(0..4)))
    }

    fn some_range(&mut self) -> KeyRange {
        let key = self.some_key(self.bed.things.clone());
        let plane = PlaneKeys::new(key.plane());
        match self.random.random_range(0..6) {
            0 => plane.all(),
            1 => plane.resource(&self.bed.things),
            2 => plane.resource(&self.bed.others),
            3 => plane.namespace(&self.bed.things, "a"),
            4 => KeyRange::AllPlanes(self.bed.things.clone()),
            _ => KeyRange::One(key),
        }
    }

    /// A transaction of one or two writes to different resources, with comparisons that may be wrong.
    async fn write(&mut self) {
        let mut resources = [self.bed.things.clone(), self.bed.others.clone()];
        resources.shuffle(&mut self.random);
        let count = self.random.random_range(1..=2);
        let (mut compares, mut writes) = (Vec::new(), Vec::new());
        for resource in resources.into_iter().take(count) {
            let key = self.some_key(resource);
            let current = self.model.read(&key, Revision(u64::MAX));
            match self.random.random_range(0..10) {
                0 => compares.push(Compare::Absent(key.clone())),
                1 => compares.push(Compare::Unchanged(key.clone(), Revision(1))),
                2 => {
                    // As it is, as it was once, or newer than it is.
                    let newest = self.model.changes.last().map_or(0, |(revision, _)| revision.0);
                    let since = self.random.random_range(0..newest + 3);
                    compares.push(Compare::UnchangedSince(key.clone(), Revision(since)));
                }
                3..7 => compares.push(match &current {
                    Some(record) => Compare::Unchanged(key.clone(), record.revision),
                    None => Compare::Absent(key.clone()),
                }),
                _ => {}
            }
            writes.push(match self.random.random_range(0..3) {
                0 => Write::Delete { key },
                _ => put(&key, &self.random.random::<u16>().to_string()),
            });
        }
        self.commit(compares, writes).await;
    }

    async fn commit(&mut self, compares: Vec<Compare>, writes: Vec<Write>) {
        let failed = compares.iter().position(|compare| {
            let current = self.model.read(compare.key(), Revision(u64::MAX));
            !compare.holds(current.map(|record| record.revision))
        });
        match (self.bed.commit(compares.clone(), writes.clone()).await, failed) {
            (Ok(committed), None) => self.model.apply(&writes, &committed),
            (Err(CommitError::Conflict { compare, current }), Some(index)) => {
                let found = self.model.read(compares[index].key(), Revision(u64::MAX));
                assert_eq!((compare, current), (index, found));
            }
            (outcome, failed) => panic!("{compares:?} {writes:?}: {outcome:?}, the model says {failed:?}"),
        }
    }

    async fn drop_a_plane(&mut self) {
        let index = self.random.random_range(0..self.planes.len());
        let doomed = std::mem::replace(&mut self.planes[index], self.bed.new_plane());
        self.commit(vec![], vec![Write::DropPlane(doomed.plane())]).await;
    }

    /// Skips a few revisions, where the store can.
    async fn advance(&mut self) {
        let to = Revision(self.bed.revision().await.0 + self.random.random_range(0..5));
        match within("an advance", self.bed.store.advance(to)).await {
            Ok(newest) => assert!(newest >= to, "{newest} is before {to}"),
            Err(AdvanceError::Unsupported) => {}
            Err(error) => panic!("{error}"),
        }
    }

    async fn compact(&mut self, start: Revision) {
        let at = self.some_revision(start);
        within("a compaction", self.bed.store.compact(at))
            .await
            .expect("the past can be compacted");
        self.model.compacted = self.model.compacted.max(at);
    }

    /// A revision that is not compacted.
    fn some_revision(&mut self, start: Revision) -> Revision {
        let newest = self.model.changes.last().map_or(start, |(revision, _)| *revision);
        let oldest = self.model.compacted.max(start);
        Revision(self.random.random_range(oldest.0..=newest.0.max(oldest.0)))
    }

    async fn read_something(&mut self, start: Revision) {
        let range = self.some_range();
        let at = self.some_revision(start);
        let limit = self.random.random_range(1..10);
        let listed = self.bed.list(&range, Some(at), limit).await;
        assert_eq!(
            listed,
            self.model.list(&range, at),
            "{range:?} at {at} in pages of {limit}"
        );
        let newest = self.bed.list(&range, None, limit).await;
        assert_eq!(newest, self.model.list(&range, Revision(u64::MAX)), "{range:?} now");
        if let KeyRange::One(key) = &range {
            assert_eq!(self.bed.get(key).await, self.model.read(key, Revision(u64::MAX)));
        }
    }

    async fn watch_something(&mut self, start: Revision) {
        let (range, after) = (self.some_range(), self.some_revision(start));
        let (expected, ends) = self.model.watched(&range, after);
        let mut watch = self.bed.watch(range.clone(), after).await;
        let mut said = Vec::new();
        while said.len() < expected.len() {
            let signal = next(&mut watch).await.expect("a watch that is read goes on");
            // Planes of others may be dropped in a shared store.
            let foreign = matches!(&signal, Signal::Dropped(plane, _)
                if !self.model.changes.iter().any(|(_, changed)| matches!(changed, Changed::Plane(ours) if ours == plane)));
            if !foreign {
                said.push(describe(&signal));
            }
        }
        // Backends where a transaction has one revision may order its events as they like.
        assert_eq!(by_revision(said), by_revision(expected), "{range:?} after {after}");
        if ends {
            assert!(
                matches!(next(&mut watch).await, Err(WatchError::Dropped)),
                "{range:?} after {after}"
            );
        }
    }
}

/// The events of each revision, sorted among themselves. Revisions have to be in order already.
fn by_revision(said: Vec<String>) -> Vec<(u64, Vec<String>)> {
    let mut grouped: Vec<(u64, Vec<String>)> = Vec::new();
    for text in said {
        let revision = text
            .rsplit('@')
            .next()
            .and_then(|digits| digits.parse().ok())
            .expect("a revision at the end");
        match grouped.last_mut() {
            Some((last, texts)) if *last == revision => texts.push(text),
            _ => grouped.push((revision, vec![text])),
        }
    }
    assert!(grouped.is_sorted_by(|a, b| a.0 < b.0), "{grouped:?}");
    grouped.iter_mut().for_each(|(_, texts)| texts.sort());
    grouped
}
