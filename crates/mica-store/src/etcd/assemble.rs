//! From etcd's watch answers to the signals of whole revisions.
//!
//! etcd may split a long answer, also inside a revision. An [`Assembler`] holds back a revision until it is complete, and
//! turns the many deletions of a dropped plane into the one signal that says so, without keeping them.
//!
//! Surprise: etcd looks up the previous value of an event only when it sends the event, and leaves it out if it has been
//! compacted by then. Such an answer has a gap that cannot be filled: [`Gap`].

use bytes::Bytes;
use mica_api::PlaneId;

use super::client::unsigned;
use super::layout::Layout;
use super::proto::{self, KeyValue};
use crate::key::{Key, KeyRange};
use crate::store::{Change, Event, Record, Revision, Signal};

/// History was compacted before etcd could send it.
#[derive(Debug, PartialEq, Eq)]
pub struct Gap;

pub struct Assembler {
    layout: Layout,
    /// Events of other keys are let go. Drops of planes are kept whatever the range.
    range: KeyRange,
    /// Signals of complete revisions, in order.
    done: Vec<Signal>,
    /// The last complete revision.
    complete: Revision,
    /// The revision that is being put together; zero if none is.
    open: Revision,
    events: Vec<Signal>,
    dropped: Vec<PlaneId>,
}

impl Assembler {
    /// Events up to and including `complete` are ignored, should any arrive.
    pub fn new(layout: Layout, range: KeyRange, complete: Revision) -> Self {
        Self {
            layout,
            range,
            done: Vec::new(),
            complete,
            open: Revision(0),
            events: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Adds the events of an answer.
    pub fn add(&mut self, answer: Vec<proto::Event>) -> Result<(), Gap> {
        for event in answer {
            let Some(kv) = event.kv else { continue };
            let revision = unsigned(kv.mod_revision);
            if revision <= self.complete {
                continue;
            }
            if revision > self.open {
                self.close();
                self.open = revision;
            }
            self.add_event(event.kind == proto::DELETE, kv, event.prev_kv, revision)?;
        }
        Ok(())
    }

    /// Says that the answer was not a fragment: its last revision is complete.
    pub fn close(&mut self) {
        if self.open == Revision(0) {
            return;
        }
        if !self.dropped.is_empty() {
            let dropped = std::mem::take(&mut self.dropped);
            self.events.retain(|signal| !is_deletion_in(signal, &dropped));
            self.events
                .extend(dropped.into_iter().map(|plane| Signal::Dropped(plane, self.open)));
        }
        self.done.append(&mut self.events);
        self.complete = self.open;
        self.open = Revision(0);
    }

    /// What is complete, and the revision up to which it is everything.
    pub fn take(&mut self) -> (Vec<Signal>, Revision) {
        (std::mem::take(&mut self.done), self.complete)
    }

    /// The last complete revision.
    pub fn complete(&self) -> Revision {
        self.complete
    }

    /// Whether a revision is still incomplete.
    pub fn is_open(&self) -> bool {
        self.open != Revision(0)
    }

    fn add_event(
        &mut self,
        deleted: bool,
        kv: KeyValue,
        previous: Option<KeyValue>,
        revision: Revision,
    ) -> Result<(), Gap> {
        let Some(key) = self.layout.parse_object(&kv.key) else {
            self.add_announcement(deleted, &kv);
            return Ok(());
        };
        if !self.range.contains(&key) || (deleted && self.dropped.contains(&key.plane())) {
            return Ok(());
        }
        let created = !deleted && kv.create_revision == kv.mod_revision;
        if previous.is_none() && !created {
            return Err(Gap);
        }
        let change = if deleted {
            Change::Delete
        } else {
            Change::Put(own(&kv.value))
        };
        let previous = previous.filter(|_| !created).map(|previous| Record {
            value: own(&previous.value),
            revision: unsigned(previous.mod_revision),
        });
        self.events
            .push(Signal::Event(Event::new(key, revision, change, previous).into()));
        Ok(())
    }

    /// Index entries are deleted only with their whole plane; a plane without any is named in a key's value.
    fn add_announcement(&mut self, deleted: bool, kv: &KeyValue) {
        if deleted {
            if let Some((plane, _)) = self.layout.parse_index_entry(&kv.key) {
                self.add_dropped(plane);
            }
        } else if kv.key == self.layout.dropped() {
            let text = String::from_utf8_lossy(&kv.value).into_owned();
            text.split(',')
                .filter_map(|id| PlaneId::parse(id).ok())
                .for_each(|plane| self.add_dropped(plane));
        }
    }

    fn add_dropped(&mut self, plane: PlaneId) {
        if !self.dropped.contains(&plane) {
            self.dropped.push(plane);
        }
    }
}

/// A copy of its own: events are kept for long, and would keep the whole answer they came in.
fn own(shared: &Bytes) -> Bytes {
    Bytes::copy_from_slice(shared)
}

fn is_deletion_in(signal: &Signal, planes: &[PlaneId]) -> bool {
    matches!(signal, Signal::Event(event) if event.change == Change::Delete && planes.contains(&event.key.plane()))
}

/// The planes that signals are about, with their revisions.
pub fn planes_of(signals: &[Signal]) -> impl Iterator<Item = (PlaneId, Revision)> {
    signals.iter().map(|signal| match signal {
        Signal::Event(event) => (Key::plane(&event.key), event.revision),
        Signal::Dropped(plane, revision) => (*plane, *revision),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PlaneKeys;
    use mica_api::GroupResource;

    fn layout() -> Layout {
        Layout::new("/mica")
    }

    fn key(plane: u64, name: &str) -> Key {
        PlaneKeys::new(PlaneId::from_random(plane)).object(&GroupResource::new("", "cm"), None, name)
    }

    fn put(key: &Key, revision: i64, created: i64) -> proto::Event {
        let kv = KeyValue {
            key: layout().object(key),
            create_revision: created,
            mod_revision: revision,
            version: 1,
            value: "v".into(),
        };
        let prev_kv = (created != revision).then(|| KeyValue {
            mod_revision: created,
            ..kv.clone()
        });
        proto::Event {
            kind: 0,
            kv: Some(kv),
            prev_kv,
        }
    }

    fn delete(stored: Bytes, revision: i64) -> proto::Event {
        let kv = KeyValue {
            key: stored,
            mod_revision: revision,
            ..KeyValue::default()
        };
        proto::Event {
            kind: proto::DELETE,
            prev_kv: Some(kv.clone()),
            kv: Some(kv),
        }
    }

    fn shown(signals: &[Signal]) -> Vec<String> {
        let show = |signal: &Signal| match signal {
            Signal::Event(event) => {
                let kind = if event.change == Change::Delete {
                    "delete"
                } else {
                    "put"
                };
                format!("{} {kind} {}", event.revision, event.key.name())
            }
            Signal::Dropped(plane, revision) => format!("{revision} dropped {plane}"),
        };
        signals.iter().map(show).collect()
    }

    #[test]
    fn a_revision_split_over_answers_comes_whole() {
        let mut assembler = Assembler::new(layout(), KeyRange::All, Revision(4));
        assembler
            .add(vec![put(&key(1, "a"), 5, 5), put(&key(1, "b"), 6, 6)])
            .unwrap();
        let (signals, complete) = assembler.take();
        assert_eq!((shown(&signals), complete), (vec!["5 put a".to_owned()], Revision(5)));
        assert!(assembler.is_open());
        assembler.add(vec![put(&key(1, "c"), 6, 5)]).unwrap();
        assembler.close();
        let (signals, complete) = assembler.take();
        assert_eq!(
            (shown(&signals), complete),
            (vec!["6 put b".to_owned(), "6 put c".to_owned()], Revision(6))
        );
    }

    #[test]
    fn what_was_seen_before_is_ignored() {
        let mut assembler = Assembler::new(layout(), KeyRange::All, Revision(5));
        assembler
            .add(vec![put(&key(1, "a"), 5, 5), put(&key(1, "b"), 6, 6)])
            .unwrap();
        assembler.close();
        assert_eq!(shown(&assembler.take().0), ["6 put b"]);
    }

    #[test]
    fn a_dropped_plane_is_one_signal_wherever_it_is_announced() {
        let plane = PlaneId::from_random(1);
        let entry = layout().index_entry(plane, &GroupResource::new("", "cm"));
        let (gone, kept) = (key(1, "a"), key(2, "b"));
        let events = [
            delete(layout().object(&gone), 5),
            delete(entry, 5),
            delete(layout().object(&kept), 5),
        ];
        for order in [[0, 1, 2], [1, 0, 2], [2, 0, 1]] {
            let mut assembler = Assembler::new(layout(), KeyRange::All, Revision(4));
            assembler
                .add(order.iter().map(|at| events[*at].clone()).collect())
                .unwrap();
            assembler.close();
            assert_eq!(
                shown(&assembler.take().0),
                ["5 delete b".to_owned(), format!("5 dropped {plane}")]
            );
        }
    }

    #[test]
    fn an_empty_plane_is_announced_by_name() {
        let (one, two) = (PlaneId::from_random(1), PlaneId::from_random(2));
        let kv = KeyValue {
            key: layout().dropped(),
            value: format!("{one},{two}").into(),
            mod_revision: 7,
            create_revision: 3,
            version: 2,
        };
        let mut assembler = Assembler::new(layout(), KeyRange::All, Revision(4));
        assembler
            .add(vec![proto::Event {
                kind: 0,
                kv: Some(kv),
                prev_kv: None,
            }])
            .unwrap();
        assembler.close();
        assert_eq!(
            shown(&assembler.take().0),
            [format!("7 dropped {one}"), format!("7 dropped {two}")]
        );
    }

    #[test]
    fn a_missing_previous_value_is_a_gap() {
        let mut update = put(&key(1, "a"), 6, 5);
        update.prev_kv = None;
        let mut deletion = delete(layout().object(&key(1, "a")), 6);
        deletion.prev_kv = None;
        for event in [update, deletion] {
            assert_eq!(
                Assembler::new(layout(), KeyRange::All, Revision(4)).add(vec![event]),
                Err(Gap)
            );
        }
    }
}
