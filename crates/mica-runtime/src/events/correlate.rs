//! Which events are written: the first of its kind, now and then a series of it, and no floods.
//!
//! Knows no server and no clock. What it remembers is bounded: the oldest is forgotten first.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::{Said, Severity};
use crate::request::ClusterName;

/// A repetition after so long is a new event.
const SERIES_ENDS: Duration = Duration::from_secs(6 * 60);
/// How often the count of a series is written.
const SERIES_WRITTEN: Duration = Duration::from_secs(10);
/// So many notes under one reason are told one by one; later ones are combined.
const NOTES_APART: usize = 10;
const NOTES_FORGOTTEN: Duration = Duration::from_secs(10 * 60);
/// What may be written about one object at once, and how often once more after that.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(5 * 60);
/// How much is remembered of each sort.
pub(super) const MOST_KNOWN: usize = 4096;

const COMBINED: &str = "(combined from similar events): ";

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Subject {
    cluster: ClusterName,
    controller: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Group {
    subject: Subject,
    severity: Severity,
    reason: String,
    action: String,
    related: String,
}

/// One series. Combined events have no note in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    group: Group,
    note: Option<String>,
}

struct Notes {
    told: Vec<String>,
    last: Instant,
}

struct Bucket {
    left: u32,
    last: Instant,
}

struct Series {
    name: String,
    count: i32,
    last: Instant,
    written: Instant,
    /// One write at a time: a series must not be written before its first event is.
    writing: bool,
}

/// What to do about an event.
#[derive(PartialEq, Debug)]
pub(super) enum Verdict {
    /// It is the first.
    Create { key: Key, name: String, note: String },
    /// It repeats one that has this name.
    Repeat { key: Key, name: String, count: i32 },
    /// It is counted, and told with the next.
    Fold,
    /// Too much is said about the object.
    Drop,
}

#[derive(Default)]
pub(super) struct Correlator {
    series: HashMap<Key, Series>,
    notes: HashMap<Group, Notes>,
    buckets: HashMap<Subject, Bucket>,
}

impl Correlator {
    /// `fresh` names the event if it is a new one.
    pub(super) fn hear(&mut self, said: &Said, fresh: impl FnOnce() -> String, now: Instant) -> Verdict {
        let group = group(said);
        let key = Key {
            note: (!self.combine(&group, &said.event.note, now)).then(|| said.event.note.clone()),
            group,
        };
        if let Some(series) = self.series.get_mut(&key)
            && now.duration_since(series.last) < SERIES_ENDS
        {
            series.count += 1;
            series.last = now;
            let due = series.count == 2 || now.duration_since(series.written) >= SERIES_WRITTEN;
            if series.writing || !due {
                return Verdict::Fold;
            }
            let (name, count) = (series.name.clone(), series.count);
            if !self.allowed(&key.group.subject, now) {
                return Verdict::Drop;
            }
            if let Some(series) = self.series.get_mut(&key) {
                series.writing = true;
                series.written = now;
            }
            return Verdict::Repeat { key, name, count };
        }
        if !self.allowed(&key.group.subject, now) {
            return Verdict::Drop;
        }
        let name = fresh();
        make_room(&mut self.series, |series| series.last);
        let series = Series {
            name: name.clone(),
            count: 1,
            last: now,
            written: now,
            writing: true,
        };
        self.series.insert(key.clone(), series);
        let note = match &key.note {
            Some(note) => note.clone(),
            None => format!("{COMBINED}{}", said.event.note),
        };
        Verdict::Create { key, name, note }
    }

    /// A write is through. One that failed is forgotten: what comes next is the first.
    pub(super) fn wrote(&mut self, key: &Key, result: Result<(), ()>) {
        match result {
            Ok(()) => {
                if let Some(series) = self.series.get_mut(key) {
                    series.writing = false;
                }
            }
            Err(()) => {
                self.series.remove(key);
            }
        }
    }

    /// Whether so many notes were told under one reason that this one is not told apart.
    fn combine(&mut self, group: &Group, note: &str, now: Instant) -> bool {
        if !self.notes.contains_key(group) {
            make_room(&mut self.notes, |notes| notes.last);
        }
        let notes = self.notes.entry(group.clone()).or_insert_with(|| Notes {
            told: Vec::new(),
            last: now,
        });
        if now.duration_since(notes.last) >= NOTES_FORGOTTEN {
            notes.told.clear();
        }
        notes.last = now;
        if notes.told.iter().any(|told| told == note) {
            return false;
        }
        if notes.told.len() >= NOTES_APART {
            return true;
        }
        notes.told.push(note.to_owned());
        false
    }

    fn allowed(&mut self, subject: &Subject, now: Instant) -> bool {
        if !self.buckets.contains_key(subject) {
            make_room(&mut self.buckets, |bucket| bucket.last);
        }
        let bucket = self
            .buckets
            .entry(subject.clone())
            .or_insert(Bucket { left: BURST, last: now });
        let refills = now.duration_since(bucket.last).as_secs() / REFILL.as_secs();
        if refills > 0 {
            let refills = u32::try_from(refills).unwrap_or(u32::MAX);
            bucket.left = bucket.left.saturating_add(refills).min(BURST);
            bucket.last += REFILL * refills;
        }
        let allowed = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        allowed
    }
}

fn group(said: &Said) -> Group {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let regarding = &said.regarding;
    Group {
        subject: Subject {
            cluster: said.cluster.clone(),
            controller: (*said.controller).to_owned(),
            kind: text(&regarding.kind),
            namespace: text(&regarding.namespace),
            name: text(&regarding.name),
            uid: text(&regarding.uid),
        },
        severity: said.event.severity,
        reason: said.event.reason.clone(),
        action: said.event.action.clone(),
        related: said.event.related.as_ref().map_or_else(String::new, |related| {
            format!(
                "{}/{}/{}",
                text(&related.kind),
                text(&related.namespace),
                text(&related.name)
            )
        }),
    }
}

/// Forgets the older half when there is no room: seldom, so that the search for it does not count.
fn make_room<K: Clone + Eq + Hash, V>(known: &mut HashMap<K, V>, last: impl Fn(&V) -> Instant) {
    if known.len() < MOST_KNOWN {
        return;
    }
    let mut times: Vec<_> = known.values().map(&last).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    known.retain(|_, value| last(value) > median);
}

#[cfg(test)]
mod tests;
