//! Reading everything to see whether it is whole, while the store is used.

use super::EmbeddedStore;
use super::format::records_of;
use super::index::View;
use super::read::{Damage, Engine};
use super::scan::{Extent, FrameScanner};
use super::segment::{Loader, SegmentMap};
use crate::key::{Key, KeyRange};
use crate::store::{ReadError, Revision};

/// Problems that are told at most; there may be more.
const PROBLEMS: usize = 100;
const PAGE: usize = 512;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    pub segments: u64,
    pub log_bytes: u64,
    /// Records in the log, also of superseded versions.
    pub log_records: u64,
    /// Keys with a value.
    pub keys: u64,
    /// Older versions that can still be read.
    pub old_versions: u64,
    pub index_bytes: u64,
    /// One sentence each, with file and offset where there is one. Empty if all is well.
    pub problems: Vec<String>,
}

impl CheckReport {
    fn problem(&mut self, what: String) {
        if self.problems.len() < PROBLEMS {
            self.problems.push(what);
        }
    }
}

impl EmbeddedStore {
    /// Verifies every frame and record of the log, and that the index and the log agree. Blocks.
    ///
    /// An error means that it could not be done; what it finds wrong is in the report.
    pub fn check(&self) -> Result<CheckReport, ReadError> {
        let engine = &self.inner.engine;
        // Where the log ended before the look at the index: everything up to there is in both.
        let end = self.inner.signals.log_size().end;
        let (view, segments) = engine.view()?;
        let mut report = CheckReport {
            index_bytes: engine.index.disk_bytes(),
            ..CheckReport::default()
        };
        check_log(engine, &segments, end, &mut report);
        let loader = engine.loader(&segments);
        check_current(&view, &loader, &mut report)?;
        check_history(&view, &loader, engine.compacted(), &mut report)?;
        for key in view.each_by_resource() {
            let key = key?;
            if !view.knows(&key)? {
                report.problem(format!(
                    "the index lists {key:?} under its resource but has no version of it"
                ));
            }
        }
        Ok(report)
    }
}

fn check_log(engine: &Engine, segments: &SegmentMap, end: Option<(u32, u64)>, report: &mut CheckReport) {
    let disk = &**engine.segments.disk();
    for (number, segment) in segments {
        let length = match (segments.get(&(number + 1)), end) {
            (Some(next), _) => next.header.previous_length,
            (None, Some((last, length))) if last == *number => length,
            // Begun after the look at the log's end.
            (None, _) => continue,
        };
        report.segments += 1;
        report.log_bytes += length;
        let mut scan = || -> Result<(), Damage> {
            let mut scanner = FrameScanner::new(segment, disk, Extent::Known(length), 0)?;
            while let Some((offset, frame)) = scanner.next_frame()? {
                for record in records_of(frame, *number, offset) {
                    match record {
                        Ok(_) => report.log_records += 1,
                        Err(at) => {
                            report.problem(format!(
                                "{} at offset {at}: a damaged record",
                                disk.describe(&segment.name)
                            ));
                        }
                    }
                }
            }
            Ok(())
        };
        if let Err(damage) = scan() {
            report.problem(damage.text());
        }
    }
}

fn check_current(view: &View, loader: &Loader<'_>, report: &mut CheckReport) -> Result<(), ReadError> {
    let mut after: Option<Key> = None;
    loop {
        let (page, next) = view.list(&KeyRange::All, view.revision(), after.as_ref(), PAGE)?;
        for (key, entry) in &page {
            report.keys += 1;
            if let Err(damage) = loader.load(key.as_str(), entry) {
                report.problem(format!("{key:?}: {}", damage.text()));
            }
            if !view.is_listed(key)? {
                report.problem(format!("the index does not list {key:?} under its resource"));
            }
        }
        after = page.into_iter().next_back().map(|(key, _)| key);
        if next.is_none() {
            return Ok(());
        }
    }
}

fn check_history(
    view: &View,
    loader: &Loader<'_>,
    compacted: Revision,
    report: &mut CheckReport,
) -> Result<(), ReadError> {
    let mut after = None;
    loop {
        let cursor = after.as_ref().map(|(key, revision)| (key, *revision));
        let versions = view.old_versions_after(cursor, PAGE)?;
        let Some(last) = versions.last() else { return Ok(()) };
        after = Some((last.key.clone(), last.entry.revision));
        for version in &versions {
            report.old_versions += 1;
            // What only a replay brought back may be gone from the log; nobody can ask for it.
            let needed = version.end.revision > compacted;
            if let Err(damage) = loader.load(version.key.as_str(), &version.entry)
                && needed
            {
                report.problem(format!(
                    "{:?} at revision {}: {}",
                    version.key,
                    version.entry.revision,
                    damage.text()
                ));
            }
        }
    }
}
