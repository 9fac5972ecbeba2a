//! CronJobs.

use serde_json::{Value, json};

use super::{job, schedule};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{is_set, one_of, present, set_default, set_default_pointer};
use crate::kind::column::{age, since};
use crate::kind::plain::{Plain, Status};
use crate::kind::workload::{container_cells, non_negative, selector_cell, selector_shown};
use crate::kind::{WriteContext, pod};
use crate::{names, object};

/// The controller adds eleven characters, and a job's name has 63 at most.
const MAX_NAME: usize = 52;
const POLICIES: [&str; 3] = ["Allow", "Forbid", "Replace"];

pub const CRON_JOB: Plain = Plain {
    default,
    validate: |_, object| {
        let mut errors = validate_spec(object, None);
        let name = object::name(object);
        if name.len() > MAX_NAME {
            let path = Path::new("metadata").child("name");
            errors.push(Error::invalid(&path, name, "must be no more than 52 characters"));
        }
        errors
    },
    validate_update: |_, new, old| validate_spec(new, Some(old)),
    status: Status::Apart,
    cells,
    generation: &["spec"],
    warnings,
    ..Plain::new("batch/cronjobs", "io.k8s.api.batch.v1.CronJob")
};

fn default(object: &mut Value) {
    if let Some(spec) = object.pointer_mut("/spec/jobTemplate/spec") {
        job::default_in_template(spec);
    }
    set_default(object, &["spec", "concurrencyPolicy"], "Allow");
    set_default_pointer(object, &["spec", "suspend"], false);
    set_default_pointer(object, &["spec", "successfulJobsHistoryLimit"], 3);
    set_default_pointer(object, &["spec", "failedJobsHistoryLimit"], 1);
}

fn validate_spec(object: &Value, old: Option<&Value>) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    match object::string(spec, &["schedule"]) {
        "" => errors.push(Error::required(&path.child("schedule"), "")),
        when => {
            let path = path.child("schedule");
            errors.extend(schedule::error(when).map(|text| Error::invalid(&path, when, text)));
            let had_zone = old.is_some_and(|old| object::string(old, &["spec", "schedule"]).contains("TZ"));
            let detail = match (had_zone, is_set(spec, &["timeZone"])) {
                _ if !when.contains("TZ") => None,
                (false, _) => Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
                (true, true) => Some("cannot use both timeZone field and TZ or CRON_TZ in schedule"),
                (true, false) => None,
            };
            errors.extend(detail.map(|detail| Error::invalid(&path, when, detail)));
        }
    }
    non_negative(spec, &[], &["startingDeadlineSeconds"], &path, &mut errors);
    let zone = present(spec, &["timeZone"]).and_then(Value::as_str);
    let zone_before = old
        .and_then(|old| present(old, &["spec", "timeZone"]))
        .and_then(Value::as_str);
    if let Some(zone) = zone.filter(|_| old.is_none() || zone != zone_before) {
        let path = path.child("timeZone");
        if schedule::is_local(zone) {
            let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            errors.push(Error::invalid(&path, zone, detail));
        }
        errors.extend(schedule::zone_error(zone).map(|text| Error::invalid(&path, zone, text)));
    }
    let policy = object::string(spec, &["concurrencyPolicy"]);
    one_of(&path.child("concurrencyPolicy"), policy, &POLICIES, &mut errors);
    validate_template(spec, &path.child("jobTemplate").child("spec"), &mut errors);
    let limits = ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
    non_negative(spec, &[], &limits, &path, &mut errors);
    errors
}

fn validate_template(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let null = Value::Null;
    let template = object::get(spec, &["jobTemplate", "spec"]).unwrap_or(&null);
    job::validate_spec(template, path, errors);
    if let Some(selector) = present(template, &["selector"]) {
        let detail = "`selector` will be auto-generated";
        errors.push(Error::invalid(
            &path.child("selector"),
            selector_shown(selector),
            detail,
        ));
    }
    if template.get("manualSelector") == Some(&json!(true)) {
        let path = path.child("manualSelector");
        errors.push(Error::not_supported(&path, true, &["nil", "false"]));
    }
}

fn warnings(_ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() {
        warnings.extend(job::name_warning(object::name(new)));
    }
    let generation = |object: &Value| object::int(object, &["metadata", "generation"]);
    if old.is_none_or(|old| generation(old) != generation(new)) {
        let path = Path::new("spec").child("jobTemplate").child("spec").child("template");
        let template = object::get(new, &["spec", "jobTemplate", "spec", "template"]);
        let old = old.and_then(|old| object::get(old, &["spec", "jobTemplate", "spec", "template"]));
        warnings.extend(pod::template_warnings(template, old, &path));
    }
    if old.is_some() && object::string(new, &["spec", "schedule"]).contains("TZ") {
        warnings.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
    }
    warnings
}

fn cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let last = match object::string(object, &["status", "lastScheduleTime"]) {
        "" => "<none>".to_owned(),
        last => since(last, now),
    };
    let zone = present(object, &["spec", "timeZone"]).and_then(Value::as_str);
    let suspend = match object::get(object, &["spec", "suspend"]) {
        Some(Value::Bool(true)) => "True",
        Some(Value::Bool(false)) => "False",
        _ => "<unset>",
    };
    let template = object::get(object, &["spec", "jobTemplate", "spec"]);
    let mut cells = vec![
        object::name(object).into(),
        object::string(object, &["spec", "schedule"]).into(),
        zone.unwrap_or("<none>").into(),
        suspend.into(),
        object::list(object, &["status", "active"]).len().into(),
        last.into(),
        age(object, now),
    ];
    cells.extend(container_cells(template.and_then(|spec| spec.get("template"))));
    cells.push(selector_cell(template.and_then(|spec| spec.get("selector"))));
    cells
}

/// What a name that is no DNS label is warned of.
pub(super) fn label_warning(name: &str) -> Option<String> {
    let texts = names::dns1123_label(name);
    (!texts.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            texts.join(" ")
        )
    })
}
