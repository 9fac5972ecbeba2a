//! A job's status: which changes make sense.
//!
//! Most rules look only at what changed, so that a status which was bad before can still be written.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::job_policy::{count_indexes, read_interval, without_value};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{is_set, same};
use crate::kind::condition;
use crate::kind::workload::{non_negative, number};
use crate::object;
use crate::time::{Precision, Time};

/// A job as these rules ask about it.
struct Job<'a>(&'a Value);

impl<'a> Job<'a> {
    fn is(&self, r#type: &str) -> bool {
        condition::has(object::list(self.0, &["status", "conditions"]), r#type, "True")
    }

    fn finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn status(&self, field: &str) -> Option<&'a Value> {
        object::get(self.0, &["status", field]).filter(|value| !value.is_null())
    }

    fn text(&self, field: &str) -> &'a str {
        object::string(self.0, &["status", field])
    }

    fn count(&self, field: &str) -> i64 {
        number(self.0, &["status", field])
    }

    fn spec(&self, field: &str) -> Option<&'a Value> {
        object::get(self.0, &["spec", field]).filter(|value| !value.is_null())
    }
}

pub fn validate(new: &Value, old: &Value) -> ErrorList {
    let (new, old) = (&Job(new), &Job(old));
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let counts = ["active", "succeeded", "failed", "ready", "terminating"];
    non_negative(new.0, &["status"], &counts, &path, &mut errors);
    validate_uncounted(new, &path.child("uncountedTerminatedPods"), &mut errors);
    validate_end(new, old, &path, &mut errors);
    validate_indexes(new, old, &path, &mut errors);
    validate_counts(new, old, &path, &mut errors);
    validate_transition(new, old, &path, &mut errors);
    errors
}

fn changed(new: &Job<'_>, old: &Job<'_>, field: &str) -> bool {
    !same(new.status(field), old.status(field))
}

fn validate_uncounted(job: &Job<'_>, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"] {
        let pods = object::list(job.0, &["status", "uncountedTerminatedPods", list]);
        for (i, pod) in pods.iter().filter_map(Value::as_str).enumerate() {
            let path = path.child(list).index(i);
            if pod.is_empty() {
                errors.push(Error::invalid(&path, "", "must not be empty"));
            } else if !seen.insert(pod) {
                errors.push(Error::duplicate(&path, pod));
            }
        }
    }
}

/// Conditions that end a job, and the times that go with them.
fn validate_end(new: &Job<'_>, old: &Job<'_>, path: &Path, errors: &mut ErrorList) {
    let differs = |r#type: &str| new.is(r#type) != old.is(r#type);
    let (complete, failed) = (new.is("Complete"), new.is("Failed"));
    let conditions = path.child("conditions");
    let mut refuse = |when: bool, detail: &str| {
        if when {
            errors.push(without_value(&conditions, detail));
        }
    };
    refuse(
        complete && failed && (differs("Complete") || differs("Failed")),
        "cannot set Complete=True and Failed=true conditions",
    );
    refuse(
        complete && new.is("FailureTarget") && (differs("Complete") || differs("FailureTarget")),
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    let (start, end) = (new.text("startTime"), new.text("completionTime"));
    let end_path = path.child("completionTime");
    if differs("Complete") || changed(new, old, "completionTime") {
        if !end.is_empty() && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.push(Error::invalid(&end_path, end, detail));
        }
        if end.is_empty() && complete {
            let detail = "completionTime is required for Complete jobs";
            errors.push(Error::required(&end_path, detail));
        }
    }
    let read = |text| Time::parse(text, Precision::Second).ok();
    if (changed(new, old, "startTime") || changed(new, old, "completionTime"))
        && let (Some(start), Some(at)) = (read(start), read(end))
        && at < start
    {
        let detail = "must be equal to or after `startTime`";
        errors.push(Error::invalid(&end_path, end, detail));
    }
    let mut refuse = |when: bool, detail: &str| {
        if when {
            errors.push(without_value(&conditions, detail));
        }
    };
    refuse(
        failed && !new.is("FailureTarget") && (differs("Failed") || changed(new, old, "failedIndexes")),
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    refuse(
        complete && !new.is("SuccessCriteriaMet") && (differs("Complete") || differs("SuccessCriteriaMet")),
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    validate_finished(new, old, path, errors);
}

fn validate_finished(new: &Job<'_>, old: &Job<'_>, path: &Path, errors: &mut ErrorList) {
    if !new.finished() {
        return;
    }
    let ended = !old.finished();
    let active = new.count("active");
    if active > 0 && (ended || changed(new, old, "active")) {
        let detail = "active>0 is invalid for finished job";
        errors.push(Error::invalid(&path.child("active"), active, detail));
    }
    let nothing_to_do = new.spec("suspend") == Some(&json!(true)) && new.spec("completions") == Some(&json!(0));
    if new.text("startTime").is_empty() && (ended || changed(new, old, "startTime")) && !nothing_to_do {
        let detail = "startTime is required for finished job";
        errors.push(Error::required(&path.child("startTime"), detail));
    }
    let uncounted = ["succeeded", "failed"]
        .iter()
        .any(|list| !object::list(new.0, &["status", "uncountedTerminatedPods", list]).is_empty());
    if uncounted && (ended || changed(new, old, "uncountedTerminatedPods")) {
        let pods = new.status("uncountedTerminatedPods").unwrap_or(&Value::Null);
        let shown = crate::kind::internal::shown(pods, "io.k8s.api.batch.v1.UncountedTerminatedPods");
        errors.push(crate::kind::check::invalid_as(
            &path.child("uncountedTerminatedPods"),
            &shown,
            "must be empty for finished job",
        ));
    }
}

fn validate_indexes(new: &Job<'_>, old: &Job<'_>, path: &Path, errors: &mut ErrorList) {
    let completions = new.spec("completions").and_then(Value::as_i64);
    let (done, failed) = (
        new.text("completedIndexes"),
        new.status("failedIndexes").and_then(Value::as_str),
    );
    let (done_path, failed_path) = (path.child("completedIndexes"), path.child("failedIndexes"));
    let (done_changed, failed_changed) = (
        changed(new, old, "completedIndexes"),
        changed(new, old, "failedIndexes"),
    );
    let limited = new.spec("backoffLimitPerIndex").is_some();
    if let Some(completions) = completions {
        if done_changed && let Err(why) = count_indexes(done, completions) {
            let detail = format!("error parsing completedIndexes: {why}");
            errors.push(Error::invalid(&done_path, done, detail));
        }
        if let Some(failed) = failed.filter(|_| failed_changed && limited)
            && let Err(why) = count_indexes(failed, completions)
        {
            let detail = format!("error parsing failedIndexes: {why}");
            errors.push(Error::invalid(&failed_path, failed, detail));
        }
    }
    if done_changed && !done.is_empty() && new.spec("completionMode") != Some(&json!("Indexed")) {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(Error::invalid(&done_path, done, detail));
    }
    let Some(failed) = failed else { return };
    if failed_changed && !limited {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(Error::invalid(&failed_path, failed, detail));
    }
    if let Some(index) = completions
        .filter(|_| failed_changed || done_changed)
        .and_then(|completions| overlap(done, failed, completions))
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(Error::invalid(&failed_path, failed, detail));
    }
}

/// The first index that two texts both name.
fn overlap(a: &str, b: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',')
            .filter_map(|interval| read_interval(interval, completions).ok())
            .collect()
    };
    let b = read(b);
    let starts = read(a).into_iter().flat_map(|(from, to)| {
        b.iter()
            .filter(move |(f, t)| from <= *t && *f <= to)
            .map(move |(f, _)| from.max(*f))
    });
    starts.min()
}

fn validate_counts(new: &Job<'_>, old: &Job<'_>, path: &Path, errors: &mut ErrorList) {
    let terminating = new.count("terminating");
    if terminating > 0 && new.finished() && (!old.finished() || changed(new, old, "terminating")) {
        let detail = "terminating>0 is invalid for finished job";
        errors.push(Error::invalid(&path.child("terminating"), terminating, detail));
    }
    let ready = new.count("ready");
    if ready > new.count("active") && (changed(new, old, "ready") || changed(new, old, "active")) {
        let detail = "cannot set more ready pods than active";
        errors.push(Error::invalid(&path.child("ready"), ready, detail));
    }
    let met = new.is("SuccessCriteriaMet");
    for (wrong, detail) in [
        (
            met && new.is("Failed"),
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            met && new.is("FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            !met && new.is("Complete") && is_set(new.0, &["spec", "successPolicy"]),
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ] {
        if wrong {
            errors.push(without_value(&path.child("conditions"), detail));
        }
    }
}

/// What has happened stays so.
fn validate_transition(new: &Job<'_>, old: &Job<'_>, path: &Path, errors: &mut ErrorList) {
    let conditions = path.child("conditions");
    for r#type in ["Failed", "Complete", "FailureTarget"] {
        if old.is(r#type) && !new.is(r#type) {
            let detail = format!("cannot disable the terminal {type}=True condition");
            errors.push(without_value(&conditions, &detail));
        }
    }
    let indexed = new.spec("completionMode") == Some(&json!("Indexed"));
    let scaled = indexed && same(new.spec("completions"), new.spec("parallelism"));
    for (field, free) in [("failed", false), ("succeeded", scaled)] {
        let count = new.count(field);
        if count < old.count(field) && !free {
            let detail = format!("cannot decrease the {field} counter");
            errors.push(Error::invalid(&path.child(field), count, detail));
        }
    }
    let (end, end_before) = (new.text("completionTime"), old.text("completionTime"));
    if !end.is_empty() && !end_before.is_empty() && end != end_before {
        errors.push(Error::invalid(&path.child("completionTime"), end, "field is immutable"));
    }
    let resuming =
        old.is("Suspended") && condition::has(object::list(new.0, &["status", "conditions"]), "Suspended", "False");
    let suspended = new.spec("suspend") == Some(&json!(true));
    if !old.text("startTime").is_empty() && changed(new, old, "startTime") && !resuming && !suspended {
        let start = new.status("startTime").cloned().unwrap_or_default();
        let detail = "field is immutable for unsuspended job once set";
        errors.push(Error::invalid(&path.child("startTime"), start, detail));
    }
    let (met, met_before) = (new.is("SuccessCriteriaMet"), old.is("SuccessCriteriaMet"));
    if met_before && !met {
        let detail = "cannot disable the SuccessCriteriaMet=True condition";
        errors.push(without_value(&conditions, detail));
    }
    if old.is("Complete") && !met_before && met {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(without_value(&conditions, detail));
    }
}
