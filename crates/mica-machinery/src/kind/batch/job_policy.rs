//! When a job fails and when it succeeds: completion modes, failure policies and success policies.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path, quote};
use crate::kind::check::{invalid_as, invalid_each, is_set, present};
use crate::kind::internal;
use crate::kind::workload::{non_negative, number};
use crate::{names, object};

/// Upstream's bounds.
const MAX_PARALLEL: i64 = 100_000;
const MAX_FAILED: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const MAX_PARALLEL_OF_MANY: i64 = 10_000;
const MAX_FAILED_OF_MANY: i64 = 10_000;
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_CONDITIONS: usize = 20;
const MAX_INDEXES_TEXT: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

pub fn validate_mode(spec: &Value, modes: &[&str], path: &Path, errors: &mut ErrorList) {
    let mode = present(spec, &["completionMode"]).and_then(Value::as_str);
    if let Some(mode) = mode.filter(|mode| !modes.contains(mode)) {
        errors.push(Error::not_supported(&path.child("completionMode"), mode, modes));
    }
    if mode == Some("Indexed") {
        validate_indexed(spec, path, errors);
    }
    if mode.is_none_or(|mode| mode == "NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = object::int(spec, &[field]) {
                errors.push(Error::invalid(
                    &path.child(field),
                    value,
                    "requires indexed completion mode",
                ));
            }
        }
    }
}

fn validate_indexed(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::int(spec, &[field]);
    let (completions, parallelism, failed) = (of("completions"), of("parallelism"), of("maxFailedIndexes"));
    let (parallel_path, failed_path) = (path.child("parallelism"), path.child("maxFailedIndexes"));
    if completions.is_none() {
        let detail = "when completion mode is Indexed";
        errors.push(Error::required(&path.child("completions"), detail));
    }
    if let Some(parallelism) = parallelism.filter(|count| *count > MAX_PARALLEL) {
        let detail = format!("must be less than or equal to {MAX_PARALLEL} when completion mode is Indexed");
        errors.push(Error::invalid(&parallel_path, parallelism, detail));
    }
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        let detail = "must be less than or equal to completions";
        errors.push(Error::invalid(&failed_path, failed, detail));
    }
    if let Some(failed) = failed.filter(|count| *count > MAX_FAILED) {
        let detail = format!("must be less than or equal to {MAX_FAILED}");
        errors.push(Error::invalid(&failed_path, failed, detail));
    }
    if completions.is_none_or(|count| count <= MANY_COMPLETIONS) || !is_set(spec, &["backoffLimitPerIndex"]) {
        return;
    }
    let when = format!("when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.push(Error::required(&failed_path, detail));
    }
    if let Some(parallelism) = parallelism.filter(|count| *count > MAX_PARALLEL_OF_MANY) {
        let detail = format!("must be less than or equal to {MAX_PARALLEL_OF_MANY} {when}");
        errors.push(Error::invalid(&parallel_path, parallelism, detail));
    }
    if let Some(failed) = failed.filter(|count| *count > MAX_FAILED_OF_MANY) {
        let detail = format!("must be less than or equal to {MAX_FAILED_OF_MANY} {when}");
        errors.push(Error::invalid(&failed_path, failed, detail));
    }
}

pub fn validate_policies(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(policy) = present(spec, &["podFailurePolicy"]) {
        validate_failure(spec, policy, &path.child("podFailurePolicy").child("rules"), errors);
    }
    if let Some(policy) = present(spec, &["successPolicy"]) {
        let path = path.child("successPolicy");
        if object::string(spec, &["completionMode"]) == "Indexed" {
            validate_success(spec, policy, &path.child("rules"), errors);
        } else {
            let shown = internal::shown(policy, "io.k8s.api.batch.v1.SuccessPolicy");
            errors.push(invalid_as(&path, &shown, "requires indexed completion mode"));
        }
    }
    if let Some(policy) = present(spec, &["podReplacementPolicy"]).and_then(Value::as_str) {
        let supported: &[&str] = if is_set(spec, &["podFailurePolicy"]) {
            &["Failed"]
        } else {
            &["Failed", "TerminatingOrFailed"]
        };
        if !supported.contains(&policy) {
            errors.push(Error::not_supported(
                &path.child("podReplacementPolicy"),
                policy,
                supported,
            ));
        }
    }
}

fn validate_failure(spec: &Value, policy: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = object::list(policy, &["rules"]);
    if rules.len() > MAX_RULES {
        errors.push(Error::too_many(path, rules.len(), MAX_RULES));
    }
    let containers: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| object::list(spec, &["template", "spec", list]))
        .map(|container| object::string(container, &["name"]))
        .collect();
    for (i, rule) in rules.iter().enumerate() {
        validate_rule(spec, rule, &containers, &path.index(i), errors);
    }
}

/// `["a" "b"]`, as Go prints a list of strings quoted.
fn go_list(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| quote(value)).collect();
    format!("[{}]", quoted.join(" "))
}

/// A required value out of a known set, where absence tells the set.
fn known(value: &str, supported: &[&str], path: &Path, errors: &mut ErrorList) {
    if value.is_empty() {
        errors.push(Error::required(path, format!("valid values: {}", go_list(supported))));
    } else if !supported.contains(&value) {
        errors.push(Error::not_supported(path, value, supported));
    }
}

fn validate_rule(spec: &Value, rule: &Value, containers: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let action = object::string(rule, &["action"]);
    if action == "FailIndex" {
        if !is_set(spec, &["backoffLimitPerIndex"]) {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.push(Error::invalid(&path.child("action"), action, detail));
        }
    } else {
        known(action, &ACTIONS, &path.child("action"), errors);
    }
    let (codes, conditions) = (
        present(rule, &["onExitCodes"]),
        object::list(rule, &["onPodConditions"]),
    );
    if let Some(codes) = codes {
        validate_exit_codes(codes, containers, &path.child("onExitCodes"), errors);
    }
    let at = path.child("onPodConditions");
    if conditions.len() > MAX_CONDITIONS {
        errors.push(Error::too_many(&at, conditions.len(), MAX_CONDITIONS));
    }
    for (j, pattern) in conditions.iter().enumerate() {
        let (path, r#type) = (at.index(j), object::string(pattern, &["type"]));
        errors.extend(invalid_each(&path.child("type"), r#type, names::qualified_name(r#type)));
        known(
            object::string(pattern, &["status"]),
            &STATUSES,
            &path.child("status"),
            errors,
        );
    }
    let detail = match (codes.is_some(), !conditions.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(without_value(path, detail));
}

/// An invalid value that upstream does not show.
pub fn without_value(path: &Path, detail: &str) -> Error {
    Error {
        value: None,
        ..Error::invalid(path, Value::Null, detail)
    }
}

fn validate_exit_codes(codes: &Value, containers: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let operator = object::string(codes, &["operator"]);
    known(operator, &OPERATORS, &path.child("operator"), errors);
    if let Some(name) = present(codes, &["containerName"]).and_then(Value::as_str)
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(Error::invalid(&path.child("containerName"), name, detail));
    }
    let (path, values) = (path.child("values"), object::list(codes, &["values"]));
    let shown = || codes.get("values").cloned().unwrap_or_default();
    if values.is_empty() {
        errors.push(Error::invalid(&path, shown(), "at least one value is required"));
    } else if values.len() > MAX_EXIT_CODES {
        errors.push(Error::too_many(&path, values.len(), MAX_EXIT_CODES));
    }
    let values: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = BTreeSet::new();
    for (j, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.push(Error::invalid(&path.index(j), 0, "must not be 0 for the In operator"));
        }
        if !seen.insert(*value) {
            errors.push(Error::duplicate(&path.index(j), *value));
        }
    }
    if !values.is_sorted() {
        errors.push(Error::invalid(&path, shown(), "must be ordered"));
    }
}

fn validate_success(spec: &Value, policy: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = object::list(policy, &["rules"]);
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(Error::required(path, detail));
    }
    if rules.len() > MAX_RULES {
        errors.push(Error::too_many(path, rules.len(), MAX_RULES));
    }
    let completions = number(spec, &["completions"]);
    for (i, rule) in rules.iter().enumerate() {
        validate_success_rule(rule, completions, &path.index(i), errors);
    }
}

fn validate_success_rule(rule: &Value, completions: i64, path: &Path, errors: &mut ErrorList) {
    let (count, indexes) = (
        object::int(rule, &["succeededCount"]),
        present(rule, &["succeededIndexes"]).and_then(Value::as_str),
    );
    if count.is_none() && indexes.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(Error::required(path, detail));
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        let path = path.child("succeededIndexes");
        if indexes.len() > MAX_INDEXES_TEXT {
            errors.push(Error::too_long(&path, MAX_INDEXES_TEXT));
        }
        match count_indexes(indexes, completions) {
            Ok(count) => total = count,
            Err(why) => {
                let detail = format!("error parsing succeededIndexes: {why}");
                errors.push(Error::invalid(&path, indexes, detail));
            }
        }
    }
    if let Some(count) = count {
        non_negative(rule, &[], &["succeededCount"], path, errors);
        let path = path.child("succeededCount");
        if count > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(Error::invalid(&path, count, detail));
        }
        if indexes.is_some() && count > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.push(Error::invalid(&path, count, detail));
        }
    }
}

/// How many indexes a text such as `1,3-5` names, all below the number of completions.
pub fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (from, to) = read_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= from) {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        total += to - from + 1;
        last = Some(to);
    }
    Ok(total)
}

pub fn read_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let read = |text: &str| -> Result<i64, String> {
        let quoted = quote(text);
        let index: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
        if index >= completions {
            return Err(format!("too large index: {quoted}"));
        }
        Ok(index)
    };
    let parts: Vec<&str> = interval.split('-').collect();
    match parts[..] {
        [only] => read(only).map(|index| (index, index)),
        [from, to] => {
            let (from, to) = (read(from)?, read(to)?);
            if from >= to {
                return Err(format!("non-increasing order, previous: {from}, current: {to}"));
            }
            Ok((from, to))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            quote(interval)
        )),
    }
}
