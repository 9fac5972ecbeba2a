//! What strict field validation reports: unknown and duplicate fields with their paths, in document order.

use std::fmt::Write;

use super::cursor::Cursor;
use super::text::quote;

/// Upstream stops counting here.
const MAX_REPORTS: usize = 100;

/// Collects reports while a decoder walks a document.
#[derive(Default)]
pub(super) struct Strict {
    path: Vec<Step>,
    reports: Vec<String>,
    keys: Keys,
}

/// Whether keys of maps stand in paths. Where they do not, several places may have one path, and each is told.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Keys {
    #[default]
    Shown,
    Hidden,
}

/// One step of the path; keys are kept as offsets and read again only for a report.
enum Step {
    Field(&'static str),
    Key(usize),
    Index(usize),
}

impl Strict {
    pub(super) fn without_keys() -> Self {
        Strict {
            keys: Keys::Hidden,
            ..Strict::default()
        }
    }

    pub(super) fn push_field(&mut self, name: &'static str) {
        self.path.push(Step::Field(name));
    }

    /// `at` is the offset of the key in the document.
    pub(super) fn push_key(&mut self, at: usize) {
        self.path.push(Step::Key(at));
    }

    pub(super) fn push_index(&mut self, index: usize) {
        self.path.push(Step::Index(index));
    }

    pub(super) fn pop(&mut self) {
        self.path.pop();
    }

    pub(super) fn duplicate(&mut self, document: &Cursor<'_>, field: &str) {
        self.report("duplicate", document, field);
    }

    pub(super) fn unknown(&mut self, document: &Cursor<'_>, field: &str) {
        self.report("unknown", document, field);
    }

    pub(super) fn into_reports(self) -> Vec<String> {
        self.reports
    }

    fn report(&mut self, what: &str, document: &Cursor<'_>, field: &str) {
        if self.reports.len() >= MAX_REPORTS {
            return;
        }
        let mut path = String::new();
        for (at, step) in self.path.iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            match step {
                Step::Index(index) => write!(path, "[{index}]"),
                Step::Field(name) => write!(path, "{dot}{name}"),
                Step::Key(_) if self.keys == Keys::Hidden => Ok(()),
                Step::Key(offset) => write!(path, "{dot}{}", document.at_offset(*offset).key()),
            }
            .expect("writing to a string cannot fail");
        }
        if !self.path.is_empty() {
            path.push('.');
        }
        path.push_str(field);
        let report = format!("{what} field {}", quote(&path));
        if self.keys == Keys::Hidden || !self.reports.contains(&report) {
            self.reports.push(report);
        }
    }
}
