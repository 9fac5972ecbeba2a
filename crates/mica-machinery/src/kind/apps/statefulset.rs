//! StatefulSets.

use serde_json::{Value, json};

use super::deployment::{has_rolling, shown_strategy};
use crate::field::{Error, ErrorList, Path};
use crate::kind::WriteContext;
use crate::kind::check::{invalid_each, list_mut, present, same, set_default, set_default_pointer};
use crate::kind::column::age;
use crate::kind::plain::{Plain, Status};
use crate::kind::pod::{default_template, validate_template};
use crate::kind::storage::claim;
use crate::kind::workload::{
    SelectorRule, at_most_100_percent, container_cells, int_or_percent, int_or_percent_value, non_negative, not_above,
    not_decremented, number, only_always, validate_match, validate_selector, warnings,
};
use crate::{names, object};

const STRATEGY: &str = "io.k8s.api.apps.v1.StatefulSetUpdateStrategy";
const ROLLING: &str = "io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy";
const FIXED: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

pub const STATEFUL_SET: Plain = Plain {
    name: names::name_is_dns_label,
    default,
    // Rolling several pods at once is a feature that upstream has off.
    prepare: |_, new, old| {
        const AT: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];
        if old.is_none_or(|old| present(old, &AT).is_none()) {
            object::remove(new, &AT);
        }
    },
    validate: |_, object| validate_spec(object, Existing::No),
    validate_update: |_, new, old| validate_update(new, old),
    status: Status::Apart,
    validate_status,
    cells,
    warnings: set_warnings,
    generation: &["spec"],
    ..Plain::new("apps/statefulsets", "io.k8s.api.apps.v1.StatefulSet")
};

/// Whether what cannot change any more is let pass, bad as it may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    No,
    Yes,
    /// The old template was bad as well.
    WithBadTemplate,
}

fn set_warnings(ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    if ctx.subresource == "status" {
        return Vec::new();
    }
    let mut found = warnings(ctx, new, old);
    for (i, template) in object::list(new, &["spec", "volumeClaimTemplates"]).iter().enumerate() {
        let path = Path::new("spec").child("volumeClaimTemplates").index(i);
        // Upstream's paths: the spec is left out of one, and misspelt in the other.
        let path = if old.is_some() { path.child("Spec") } else { path };
        found.extend(claim::spec_warnings(template, &path));
    }
    if number(new, &["spec", "revisionHistoryLimit"]) < 0 {
        let text = "a negative value retains all historical revisions; a value >= 0 is recommended";
        found.push(format!("spec.revisionHistoryLimit: {text}"));
    }
    found
}

fn default(object: &mut Value) {
    default_template(object, &["spec", "template"]);
    for template in list_mut(object, &["spec", "volumeClaimTemplates"]) {
        claim::default(template);
        // Upstream's conversion writes these into each template, whatever the client said.
        object::set(template, &["apiVersion"], "v1");
        object::set(template, &["kind"], "PersistentVolumeClaim");
    }
    set_default(object, &["spec", "podManagementPolicy"], "OrderedReady");
    let strategy = ["spec", "updateStrategy", "type"];
    if object::string(object, &strategy).is_empty() {
        object::set(object, &strategy, "RollingUpdate");
        set_default_pointer(object, &["spec", "updateStrategy", "rollingUpdate"], json!({}));
    }
    let rolling = ["spec", "updateStrategy", "rollingUpdate"];
    if object::string(object, &strategy) == "RollingUpdate" && present(object, &rolling).is_some() {
        let [a, b, c] = rolling;
        set_default_pointer(object, &[a, b, c, "partition"], 0);
    }
    for field in ["whenDeleted", "whenScaled"] {
        set_default(
            object,
            &["spec", "persistentVolumeClaimRetentionPolicy", field],
            "Retain",
        );
    }
    set_default_pointer(object, &["spec", "replicas"], 1);
    set_default_pointer(object, &["spec", "revisionHistoryLimit"], 10);
}

fn validate_spec(object: &Value, existing: Existing) -> ErrorList {
    const RULE: SelectorRule = SelectorRule {
        kind: "statefulset",
        uncompiled: "",
    };
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    validate_policies(spec, &path, &mut errors);
    if existing == Existing::No {
        for (i, template) in object::list(spec, &["volumeClaimTemplates"]).iter().enumerate() {
            let path = path.child("volumeClaimTemplates").index(i).child("spec");
            claim::validate_spec(template.get("spec").unwrap_or(&null), &path, &mut errors);
        }
    }
    non_negative(spec, &[], &["replicas", "minReadySeconds"], &path, &mut errors);
    non_negative(spec, &["ordinals"], &["start"], &path.child("ordinals"), &mut errors);
    let service = object::string(spec, &["serviceName"]);
    if existing == Existing::No && !service.is_empty() {
        let texts = names::dns1123_label(service);
        errors.extend(invalid_each(&path.child("serviceName"), service, texts));
    }
    let selector = validate_selector(spec, &RULE, &path, &mut errors);
    let (template, path) = (effective_template(spec), path.child("template"));
    if let Some(selector) = selector {
        if !selector.is_everything() {
            validate_match(&selector, &template, &path, &mut errors);
        }
        if existing != Existing::WithBadTemplate {
            errors.extend(validate_template(&template, &path));
        }
        for (field, rule) in [
            ("labels", names::label_errors as fn(&Value, &Path) -> ErrorList),
            ("annotations", names::annotation_errors),
        ] {
            if let Some(held) = present(&template, &["metadata", field]) {
                errors.extend(rule(held, &path.child(field)));
            }
        }
    }
    only_always(&template, "StatefulSet", &path, &mut errors);
    errors
}

/// The template with what the controller adds and replaces: volumes of claims, and names of its own.
fn effective_template(spec: &Value) -> Value {
    let mut template = spec.get("template").cloned().unwrap_or_default();
    let claims: Vec<&str> = object::list(spec, &["volumeClaimTemplates"])
        .iter()
        .map(object::name)
        .collect();
    if !template.is_object() {
        return template;
    }
    for field in ["subdomain", "hostname"] {
        object::remove(&mut template, &["spec", field]);
    }
    if !claims.is_empty() {
        let own = |volume: &&Value| !claims.contains(&object::string(volume, &["name"]));
        let volume = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let rest = object::list(&template, &["spec", "volumes"])
            .iter()
            .filter(own)
            .cloned();
        let volumes: Vec<Value> = claims.iter().map(volume).chain(rest).collect();
        object::set(&mut template, &["spec", "volumes"], volumes);
    }
    template
}

fn validate_policies(spec: &Value, path: &Path, errors: &mut ErrorList) {
    match object::string(spec, &["podManagementPolicy"]) {
        "" => errors.push(Error::required(&path.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.push(Error::invalid(&path.child("podManagementPolicy"), other, detail));
        }
    }
    let null = Value::Null;
    let (strategy, at) = (
        spec.get("updateStrategy").unwrap_or(&null),
        path.child("updateStrategy"),
    );
    let rolling = strategy.get("rollingUpdate").unwrap_or(&null);
    match object::string(strategy, &["type"]) {
        "" => errors.push(Error::required(&at, "")),
        "OnDelete" if has_rolling(strategy) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            let mut error = shown_strategy(rolling, ROLLING, &at.child("rollingUpdate"), detail);
            // Internally the partition is no pointer.
            error.detail = error.detail.replace("\"Partition\":null", "\"Partition\":0");
            errors.push(error);
        }
        "RollingUpdate" if has_rolling(strategy) => validate_rolling(rolling, &at.child("rollingUpdate"), errors),
        "OnDelete" | "RollingUpdate" => {}
        _ => errors.push(shown_strategy(
            strategy,
            STRATEGY,
            &at,
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
    if let Some(policy) = present(spec, &["persistentVolumeClaimRetentionPolicy"]) {
        let path = path.child("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            let value = object::string(policy, &[field]);
            if !["Retain", "Delete"].contains(&value) {
                errors.push(Error::not_supported(&path.child(field), value, &["Retain", "Delete"]));
            }
        }
    }
}

fn validate_rolling(rolling: &Value, path: &Path, errors: &mut ErrorList) {
    non_negative(rolling, &[], &["partition"], path, errors);
    if let Some(unavailable) = present(rolling, &["maxUnavailable"]) {
        let path = path.child("maxUnavailable");
        int_or_percent(unavailable, &path, errors);
        if int_or_percent_value(Some(unavailable)) == 0 {
            errors.push(Error::invalid(&path, unavailable.clone(), "cannot be 0"));
        }
        at_most_100_percent(unavailable, &path, errors);
    }
}

fn validate_update(new: &Value, old: &Value) -> ErrorList {
    let existing = if validate_spec(old, Existing::Yes).is_empty() {
        Existing::Yes
    } else {
        Existing::WithBadTemplate
    };
    let mut errors = validate_spec(new, existing);
    let mut fixed = new.clone();
    for field in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        object::copy(old, &mut fixed, &["spec", field]);
    }
    if !same(fixed.get("spec"), old.get("spec")) {
        errors.push(Error::forbidden(&Path::new("spec"), FIXED));
    }
    errors
}

fn validate_status(new: &Value, old: &Value) -> ErrorList {
    let null = Value::Null;
    let status = new.get("status").unwrap_or(&null);
    let mut errors = ErrorList::new();
    let counts = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    non_negative(status, &[], &counts, &Path::new("status"), &mut errors);
    let parts = [
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ];
    let detail = "cannot be greater than status.replicas";
    not_above(status, &parts, "replicas", detail, &mut errors);
    let detail = "cannot be greater than status.readyReplicas";
    not_above(status, &["availableReplicas"], "readyReplicas", detail, &mut errors);
    not_decremented(new, old, &mut errors);
    errors
}

fn cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let (ready, wanted) = (
        number(object, &["status", "readyReplicas"]),
        number(object, &["spec", "replicas"]),
    );
    let mut cells = vec![
        object::name(object).into(),
        format!("{ready}/{wanted}").into(),
        age(object, now),
    ];
    cells.extend(container_cells(object::get(object, &["spec", "template"])));
    cells
}
