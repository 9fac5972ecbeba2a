//! Runs: all records between two keys, in order, as they were when they were read and still are.
//!
//! A list reads its collection run by run. A change takes out the one run that it falls into, so that the next list reads
//! that part again and finds the others here. Runs never overlap.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use mica_api::PlaneId;

use crate::key::{Key, KeyRange};
use crate::store::{Record, Revision};

/// What a record of a run costs beside its key and value.
const RECORD_OVERHEAD: usize = 80;
const RUN_OVERHEAD: usize = 400;
/// Changes remembered, to tell whether a run was touched while it was read. Who took longer does not put it in.
const RECENT: usize = 4096;

/// A part of the order of keys: everything behind `after`, up to the end of a range.
pub(super) struct Span {
    /// A key, or the prefix itself, which is before all keys of the range.
    after: Arc<str>,
    /// The first text that is behind all keys of the range.
    end: Arc<str>,
}

impl Span {
    /// `None` for ranges that are not kept: those that cross collections.
    pub(super) fn of(range: &KeyRange, after: Option<&Key>) -> Option<Self> {
        if !matches!(range, KeyRange::Resource(..) | KeyRange::Namespace(..)) {
            return None;
        }
        let prefix = range.prefix()?;
        let end = format!("{}0", &prefix[..prefix.len() - 1]);
        let after = match after {
            Some(key) if key.as_str() >= end.as_str() => return None,
            Some(key) if key.as_str() > prefix.as_str() => key.shared(),
            _ => prefix.as_str().into(),
        };
        Some(Self { after, end: end.into() })
    }
}

pub(super) struct Runs {
    /// By what they begin behind.
    runs: BTreeMap<Arc<str>, Run>,
    /// The order in which runs are looked at when memory is needed, with the number of the run meant.
    queue: VecDeque<(Arc<str>, u64)>,
    numbers: u64,
    bytes: usize,
    most: usize,
    recent: VecDeque<(Revision, Touched)>,
    /// Changes up to here are no longer among the recent ones.
    forgotten: Revision,
}

struct Run {
    number: u64,
    /// The last text that belongs to the run.
    last: Arc<str>,
    /// The key that follows, within the range that the run was read for. The run goes when that key changes, so that
    /// this stays true.
    next: Option<Key>,
    records: Box<[(Key, Record)]>,
    /// The state at this revision and ever since.
    since: Revision,
    bytes: usize,
    used: bool,
}

enum Touched {
    Key(Key),
    Plane(PlaneId),
}

/// What was read of a span.
pub(in crate::embedded) struct Read<'a> {
    pub(in crate::embedded) records: &'a [(Key, Record)],
    /// The first record behind these, if the span has one.
    pub(in crate::embedded) next: Option<Key>,
    /// Memory that holds the values.
    pub(in crate::embedded) value_bytes: usize,
}

/// Where in a run a span lies.
struct Part<'a> {
    run: &'a Run,
    records: &'a [(Key, Record)],
}

impl Runs {
    pub(super) fn new(most: usize) -> Self {
        Self {
            runs: BTreeMap::new(),
            queue: VecDeque::new(),
            numbers: 0,
            bytes: 0,
            most,
            recent: VecDeque::new(),
            forgotten: Revision(0),
        }
    }

    /// The run that holds what comes right behind a text, if it shows the state at a revision.
    fn at(&self, after: &str, revision: Revision) -> Option<&Run> {
        let (_, run) = self
            .runs
            .range::<str, _>((Bound::Unbounded, Bound::Included(after)))
            .next_back()?;
        (*after < *run.last && run.since <= revision).then_some(run)
    }

    /// What a run holds of a span.
    fn part<'a>(run: &'a Run, after: &str, span: &Span) -> Part<'a> {
        let from = run.records.partition_point(|(key, _)| key.as_str() <= after);
        let records = &run.records[from..];
        let to = if *span.end < *run.last {
            records.partition_point(|(key, _)| *key.as_str() < *span.end)
        } else {
            records.len()
        };
        Part {
            run,
            records: &records[..to],
        }
    }

    /// Whether the span has records behind the run; `None` if that cannot be told.
    fn more_after(&self, run: &Run, span: &Span, revision: Revision) -> Option<bool> {
        let mut run = run;
        loop {
            if run.last >= span.end {
                return Some(false);
            }
            if let Some(next) = &run.next {
                return Some(*next.as_str() < *span.end);
            }
            let next = self.at(&run.last, revision)?;
            if let Some((first, _)) = next.records.first() {
                return Some(*first.as_str() < *span.end);
            }
            run = next;
        }
    }

    /// At most `limit` records of a span, and whether more follow.
    pub(super) fn page(&mut self, span: &Span, revision: Revision, limit: usize) -> Option<(Vec<(Key, Record)>, bool)> {
        let mut after = span.after.clone();
        loop {
            let part = Self::part(self.at(&after, revision)?, &after, span);
            let (begin, rest) = part.records.split_at(limit.min(part.records.len()));
            let more = if rest.is_empty() {
                self.more_after(part.run, span, revision)?
            } else {
                true
            };
            if !begin.is_empty() || !more {
                let records = begin.to_vec();
                self.use_run(&after);
                return Some((records, more));
            }
            after = part.run.last.clone();
        }
    }

    /// How many records a span holds, if all of it is here.
    pub(super) fn count(&self, span: &Span, revision: Revision) -> Option<u64> {
        let mut after: &str = &span.after;
        let mut count = 0;
        loop {
            let run = self.at(after, revision)?;
            count += Self::part(run, after, span).records.len() as u64;
            if run.last >= span.end {
                return Some(count);
            }
            after = &run.last;
        }
    }

    fn use_run(&mut self, after: &str) {
        let found = self
            .runs
            .range_mut::<str, _>((Bound::Unbounded, Bound::Included(after)))
            .next_back();
        if let Some((_, run)) = found {
            run.used = true;
        }
    }

    /// Keeps what a page holds of a span, if nothing touched that part since it was read.
    pub(super) fn keep(&mut self, span: &Span, read: &Read<'_>, seen: Revision) {
        let last = match read.records.last() {
            Some((key, _)) if read.next.is_some() => key.shared(),
            _ => span.end.clone(),
        };
        let keys: usize = read
            .records
            .iter()
            .map(|(key, _)| key.as_str().len() + RECORD_OVERHEAD)
            .sum();
        let bytes = RUN_OVERHEAD + read.value_bytes + keys;
        let relied_on = read.next.as_ref().map_or(&*last, |next| next.as_str());
        if bytes > self.most / 4 || self.touched_since(&span.after, relied_on, seen) {
            return;
        }
        self.forget_between(&span.after, &last);
        self.numbers += 1;
        let run = Run {
            number: self.numbers,
            last,
            next: read.next.clone(),
            records: read.records.into(),
            since: seen,
            bytes,
            used: false,
        };
        self.bytes += bytes;
        self.queue.push_back((span.after.clone(), run.number));
        self.runs.insert(span.after.clone(), run);
        self.shrink();
    }

    fn touched_since(&self, after: &str, last: &str, seen: Revision) -> bool {
        if seen < self.forgotten {
            return true;
        }
        let later = self.recent.iter().rev().take_while(|(revision, _)| *revision > seen);
        later.into_iter().any(|(_, touched)| match touched {
            Touched::Key(key) => key.as_str() > after && key.as_str() <= last,
            Touched::Plane(plane) => after.split('/').next() == Some(plane.as_str()),
        })
    }

    /// Takes out the run that a changed key falls into.
    pub(super) fn forget(&mut self, key: &Key, revision: Revision) {
        self.touch(revision, Touched::Key(key.clone()));
        let before = self
            .runs
            .range::<str, _>((Bound::Unbounded, Bound::Excluded(key.as_str())));
        // The run that holds the key, and the one before it, which may rely on the key.
        let concerned = before.rev().take(2);
        let touched = concerned.filter(|(_, run)| key.as_str() <= &*run.last || run.next.as_ref() == Some(key));
        let touched: Vec<_> = touched.map(|(after, _)| after.clone()).collect();
        for after in touched {
            self.remove(&after);
        }
    }

    pub(super) fn forget_plane(&mut self, plane: PlaneId, revision: Revision) {
        self.touch(revision, Touched::Plane(plane));
        self.forget_between(&format!("{plane}/"), &format!("{plane}0"));
    }

    /// Takes out every run that has something between two texts.
    fn forget_between(&mut self, after: &str, last: &str) {
        let before = self
            .runs
            .range::<str, _>((Bound::Unbounded, Bound::Excluded(after)))
            .next_back();
        let reaching = before
            .filter(|(_, run)| &*run.last > after)
            .map(|(after, _)| after.clone());
        let inside = self
            .runs
            .range::<str, _>((Bound::Included(after), Bound::Excluded(last)));
        let all: Vec<_> = reaching
            .into_iter()
            .chain(inside.map(|(after, _)| after.clone()))
            .collect();
        for after in all {
            self.remove(&after);
        }
    }

    fn touch(&mut self, revision: Revision, touched: Touched) {
        if self.recent.len() == RECENT
            && let Some((oldest, _)) = self.recent.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest);
        }
        self.recent.push_back((revision, touched));
    }

    fn remove(&mut self, after: &str) {
        if let Some(run) = self.runs.remove(after) {
            self.bytes -= run.bytes;
        }
    }

    /// Gives up what was not used lately until the rest fits.
    fn shrink(&mut self) {
        // Removed runs leave their places in the queue behind.
        while self.bytes > self.most || self.queue.len() > 2 * self.runs.len() + 64 {
            let Some((after, number)) = self.queue.pop_front() else {
                return;
            };
            let Some(run) = self.runs.get_mut(&after).filter(|run| run.number == number) else {
                continue;
            };
            if self.bytes <= self.most || std::mem::take(&mut run.used) {
                self.queue.push_back((after, number));
            } else {
                self.remove(&after);
            }
        }
    }

    pub(super) fn close(&mut self) {
        *self = Self::new(0);
        self.forgotten = Revision(u64::MAX);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
