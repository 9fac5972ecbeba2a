//! Jobs: their generated selectors, and what of them may change.

use serde_json::{Value, json};

use super::cronjob::label_warning;
use super::{job_policy, job_status};
use crate::duration;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{immutable, invalid_as, is_set, list_mut, present, same, set_default, set_default_pointer};
use crate::kind::column::{age, since};
use crate::kind::plain::{Plain, Status};
use crate::kind::pod::{self, default_template, validate_template};
use crate::kind::workload::{
    container_cells, immutable_selector, non_negative, number, selector_cell, selector_shown, validate_match,
};
use crate::kind::{MetadataCheck, WriteContext, condition, internal};
use crate::meta::GarbagePolicy;
use crate::object;
use crate::select::{LabelSelector, Tolerance, label_selector_errors};
use crate::time::{Precision, Time};

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const OLD_UID_LABEL: &str = "controller-uid";
const OLD_NAME_LABEL: &str = "job-name";
const MODES: [&str; 2] = ["NonIndexed", "Indexed"];
const MAX_MANAGED_BY: usize = 63;
const ORPHANED: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

pub const JOB: Plain = Plain {
    default,
    prepare,
    validate: |_, object| validate_job(object),
    validate_update: |_, new, old| {
        let mut errors = validate_job(new);
        errors.extend(validate_change(new, old));
        errors
    },
    metadata_check: MetadataCheck::Both,
    status: Status::Apart,
    validate_status: job_status::validate,
    cells,
    generation: &["spec"],
    selectable: &["status.successful"],
    selector_error: |label| format!("field label {} not supported for Job", crate::field::quote(label)),
    warnings,
    garbage: (GarbagePolicy::OrphanDependents, Some(ORPHANED)),
    ..Plain::new("batch/jobs", "io.k8s.api.batch.v1.Job")
};

/// A job's template has no defaults of jobs, only of pods.
pub(super) fn default_in_template(spec: &mut Value) {
    default_template(spec, &["template"]);
    default_patterns(spec);
}

fn default_patterns(spec: &mut Value) {
    for rule in list_mut(spec, &["podFailurePolicy", "rules"]) {
        for pattern in list_mut(rule, &["onPodConditions"]) {
            set_default(pattern, &["status"], "True");
        }
    }
}

fn default(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        default_in_template(spec);
    }
    if !is_set(object, &["spec", "completions"]) && !is_set(object, &["spec", "parallelism"]) {
        object::set(object, &["spec", "completions"], 1);
    }
    set_default_pointer(object, &["spec", "parallelism"], 1);
    let limit = if is_set(object, &["spec", "backoffLimitPerIndex"]) {
        i32::MAX
    } else {
        6
    };
    set_default_pointer(object, &["spec", "backoffLimit"], limit);
    default_labels(object);
    set_default_pointer(object, &["spec", "completionMode"], "NonIndexed");
    set_default_pointer(object, &["spec", "suspend"], false);
    let replacement = if is_set(object, &["spec", "podFailurePolicy"]) {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set_default_pointer(object, &["spec", "podReplacementPolicy"], replacement);
    set_default_pointer(object, &["spec", "manualSelector"], false);
}

fn is_true(object: &Value, at: &[&str]) -> bool {
    object::get(object, at) == Some(&json!(true))
}

/// Makes a new job select its own pods, unless it says that it does so itself.
fn prepare(_ctx: &WriteContext<'_>, object: &mut Value, old: Option<&Value>) {
    if old.is_some() || is_true(object, &["spec", "manualSelector"]) {
        return;
    }
    let (name, uid) = (
        object::name(object).to_owned(),
        object::string(object, &["metadata", "uid"]).to_owned(),
    );
    for (label, value) in [
        (OLD_NAME_LABEL, &name),
        (NAME_LABEL, &name),
        (OLD_UID_LABEL, &uid),
        (UID_LABEL, &uid),
    ] {
        set_default_pointer(
            object,
            &["spec", "template", "metadata", "labels", label],
            value.as_str(),
        );
    }
    set_default_pointer(object, &["spec", "selector", "matchLabels", UID_LABEL], uid);
    default_labels(object);
}

/// A job without labels has those of its pods, the generated ones included.
fn default_labels(object: &mut Value) {
    if let Some(labels) = present(object, &["spec", "template", "metadata", "labels"]).cloned() {
        set_default(object, &["metadata", "labels"], labels);
    }
}

fn validate_job(object: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    validate_generated(object, spec, &mut errors);
    validate_spec(spec, &path, &mut errors);
    validate_own_selector(spec, &path, &mut errors);
    let completions = number(spec, &["completions"]);
    if object::string(spec, &["completionMode"]) == "Indexed" && completions > 0 {
        let name = object::name(object);
        let longest = format!("{name}-{}", completions - 1);
        if !crate::names::dns1123_label(&longest).is_empty() {
            let path = Path::new("metadata").child("name");
            let detail = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.push(Error::invalid(&path, name, detail));
        }
    }
    errors
}

fn validate_own_selector(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let null = Value::Null;
    let selector = present(spec, &["selector"]);
    match selector {
        None => errors.push(Error::required(&path.child("selector"), "")),
        Some(selector) => errors.extend(label_selector_errors(
            selector,
            Tolerance::None,
            &path.child("selector"),
        )),
    }
    if let Ok(selector) = LabelSelector::from_value(selector) {
        let template = spec.get("template").unwrap_or(&null);
        validate_match(&selector, template, &path.child("template"), errors);
    }
}

/// A generated selector and the labels it selects must be those of this job.
fn validate_generated(object: &Value, spec: &Value, errors: &mut ErrorList) {
    let Some(selector) = present(spec, &["selector"]).filter(|_| !is_true(spec, &["manualSelector"])) else {
        return;
    };
    let (name, uid) = (object::name(object), object::string(object, &["metadata", "uid"]));
    let path = Path::new("spec").child("template").child("metadata").child("labels");
    let mut expected = serde_json::Map::new();
    for (label, value) in [
        (OLD_UID_LABEL, uid),
        (OLD_NAME_LABEL, name),
        (UID_LABEL, uid),
        (NAME_LABEL, name),
    ] {
        expected.insert(label.to_owned(), value.into());
        let found = object::get(spec, &["template", "metadata", "labels", label]).and_then(Value::as_str);
        match found {
            None => errors.push(Error::required(&path.key(label), format!("must be '{value}'"))),
            Some(found) if found != value => {
                let labels = object::get(spec, &["template", "metadata", "labels"]).cloned();
                let detail = format!("must be '{value}'");
                errors.push(Error::invalid(&path.key(label), labels.unwrap_or_default(), detail));
            }
            Some(_) => {}
        }
    }
    if let Ok(compiled) = LabelSelector::from_value(Some(selector))
        && !compiled.matches(&Value::Object(expected))
    {
        let path = Path::new("spec").child("selector");
        errors.push(Error::invalid(
            &path,
            selector_shown(selector),
            "`selector` not auto-generated",
        ));
    }
}

/// What is wrong with a job's spec, its selector aside.
pub(super) fn validate_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    non_negative(spec, &[], &counts, path, errors);
    if is_set(spec, &["maxFailedIndexes"]) && !is_set(spec, &["backoffLimitPerIndex"]) {
        let detail = "when maxFailedIndexes is specified";
        errors.push(Error::required(&path.child("backoffLimitPerIndex"), detail));
    }
    if let Some(manager) = present(spec, &["managedBy"]).and_then(Value::as_str) {
        let path = path.child("managedBy");
        errors.extend(crate::names::domain_prefixed_path(&path, manager));
        if manager.len() > MAX_MANAGED_BY {
            errors.push(Error::too_long(&path, MAX_MANAGED_BY));
        }
    }
    job_policy::validate_mode(spec, &MODES, path, errors);
    job_policy::validate_policies(spec, path, errors);
    let null = Value::Null;
    let template = spec.get("template").unwrap_or(&null);
    errors.extend(validate_template(template, &path.child("template")));
    let at = path.child("template").child("spec").child("restartPolicy");
    match object::string(template, &["spec", "restartPolicy"]) {
        "Always" | "" => errors.push(Error::required(&at, r#"valid values: "OnFailure", "Never""#)),
        "Never" => {}
        "OnFailure" => {
            if is_set(spec, &["podFailurePolicy"]) {
                let detail = r#"only "Never" is supported when podFailurePolicy is specified"#;
                errors.push(Error::invalid(&at, "OnFailure", detail));
            }
        }
        other => errors.push(Error::not_supported(&at, other, &["OnFailure", "Never"])),
    }
}

fn validate_change(new: &Value, old: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, old_spec) = (new.get("spec").unwrap_or(&null), old.get("spec").unwrap_or(&null));
    let path = Path::new("spec");
    let mut errors = ErrorList::new();
    validate_spec(spec, &path, &mut errors);
    validate_own_selector(spec, &path, &mut errors);
    validate_completions(spec, old_spec, &path.child("completions"), &mut errors);
    immutable_selector(new, old, &mut errors);
    validate_template_change(new, old, &mut errors);
    for (field, openapi) in [
        ("completionMode", ""),
        ("podFailurePolicy", "io.k8s.api.batch.v1.PodFailurePolicy"),
        ("backoffLimitPerIndex", ""),
        ("managedBy", ""),
        ("successPolicy", "io.k8s.api.batch.v1.SuccessPolicy"),
    ] {
        let value = spec.get(field).unwrap_or(&null);
        let shown = internal::shown(value, openapi);
        immutable(spec, old_spec, &[field], &path.child(field), &shown, &mut errors);
    }
    errors
}

fn validate_completions(spec: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let at = ["completions"];
    let shown = object::get(spec, &at).unwrap_or(&Value::Null).to_string();
    if object::string(spec, &["completionMode"]) != "Indexed" {
        immutable(spec, old, &at, path, &shown, errors);
        return;
    }
    let Some(completions) = object::int(spec, &at) else {
        return;
    };
    if Some(completions) != object::int(old, &at) && completions != number(spec, &["parallelism"]) {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(Error::invalid(path, completions, detail));
    }
}

/// Only a suspended job's template may change, and of it what decides where pods run and what they may use.
fn validate_template_change(new: &Value, old: &Value, errors: &mut ErrorList) {
    let at = ["spec", "template"];
    let (template, mut before) = (
        object::get(new, &at).cloned().unwrap_or_default(),
        object::get(old, &at).cloned().unwrap_or_default(),
    );
    let suspended = is_true(old, &["spec", "suspend"]);
    let conditions = object::list(old, &["status", "conditions"]);
    let not_started = object::string(old, &["status", "startTime"]).is_empty();
    let idle = suspended
        && (not_started || condition::has(conditions, "Suspended", "True"))
        && number(old, &["status", "active"]) == 0;
    if idle {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            object::copy(&template, &mut before, &["spec", field]);
        }
        for field in ["annotations", "labels"] {
            object::copy(&template, &mut before, &["metadata", field]);
        }
        object::copy(&template, &mut before, &["spec", "affinity", "nodeAffinity"]);
        if object::map(&before, &["spec", "affinity"]).is_some_and(serde_json::Map::is_empty) {
            object::remove(&mut before, &["spec", "affinity"]);
        }
        for list in ["initContainers", "containers"] {
            let now = object::list(&template, &["spec", list]).to_vec();
            let held = list_mut(&mut before, &["spec", list]);
            if held.len() == now.len() {
                for (held, now) in held
                    .iter_mut()
                    .zip(&now)
                    .filter(|(held, now)| held["name"] == now["name"])
                {
                    object::copy(now, held, &["resources"]);
                }
            }
        }
    }
    if !same(Some(&template), Some(&before)) {
        let path = Path::new("spec").child("template");
        // Where resources may change upstream compares, and names, only the pods' spec.
        let (path, shown) = match template.get("spec").filter(|_| idle) {
            Some(spec) => (path.child("spec"), internal::shown(spec, "io.k8s.api.core.v1.PodSpec")),
            None => (path, internal::shown(&template, "io.k8s.api.core.v1.PodTemplateSpec")),
        };
        errors.push(invalid_as(&path, &shown, "field is immutable"));
    }
}

pub(super) fn name_warning(name: &str) -> Option<String> {
    label_warning(name)
}

fn warnings(_ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() {
        warnings.extend(name_warning(object::name(new)));
    }
    let generation = |object: &Value| object::int(object, &["metadata", "generation"]);
    if old.is_none_or(|old| generation(old) != generation(new)) {
        let path = Path::new("spec").child("template");
        let of = |object| object::get(object, &["spec", "template"]);
        warnings.extend(pod::template_warnings(of(new), old.and_then(of), &path));
    }
    warnings
}

fn cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let succeeded = number(object, &["status", "succeeded"]);
    let completions = match object::int(object, &["spec", "completions"]) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None => match number(object, &["spec", "parallelism"]) {
            parallel @ 2.. => format!("{succeeded}/1 of {parallel}"),
            _ => format!("{succeeded}/1"),
        },
    };
    let mut cells = vec![
        object::name(object).into(),
        state(object).into(),
        completions.into(),
        run_time(object, now).into(),
        age(object, now),
    ];
    cells.extend(container_cells(object::get(object, &["spec", "template"])));
    cells.push(selector_cell(object::get(object, &["spec", "selector"])));
    cells
}

fn run_time(object: &Value, now: jiff::Timestamp) -> String {
    let time = |field| object::string(object, &["status", field]);
    let read = |text| Time::parse(text, Precision::Second).ok();
    match (time("startTime"), time("completionTime")) {
        ("", _) => String::new(),
        (start, "") => since(start, now),
        (start, end) => match (read(start), read(end).map(|end| end.to_unix().0)) {
            (Some(start), Some(end)) => duration::human(jiff::SignedDuration::from_secs(end - start.to_unix().0)),
            _ => String::new(),
        },
    }
}

fn state(object: &Value) -> &'static str {
    let has = |r#type| condition::has(object::list(object, &["status", "conditions"]), r#type, "True");
    let leaving = !object::string(object, &["metadata", "deletionTimestamp"]).is_empty();
    match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if leaving => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}
