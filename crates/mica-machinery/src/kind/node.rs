//! Nodes, and RuntimeClasses, which say how they run containers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::check::{entries, immutable_string, invalid_each, present, strings};
use super::column::age;
use super::condition;
use super::core::resource::{round_up, validate_amount};
use super::plain::{Plain, Status};
use super::pod::resource::{Owner, validate as validate_resources};
use super::pod::{old_label, validate_effect, validate_tolerations};
use super::{MetadataCheck, WriteContext, internal};
use crate::field::{Error, ErrorList, Path};
use crate::names::{cidr_errors_legacy, parse_cidr_sloppy};
use crate::{names, object};

const ROLE: &str = "node-role.kubernetes.io/";
const FIXED_RANGES: &str = "node updates may not change podCIDR except from \"\" to valid";

pub const NODE: Plain = Plain {
    default,
    prepare,
    validate: |_, object| validate(object),
    validate_update: |_, new, old| validate_update(new, old),
    metadata_check: MetadataCheck::Change,
    status: Status::ApartOnceMade,
    validate_status: validate_update,
    selectable: &["spec.unschedulable"],
    selects_namespace: false,
    cells,
    ..Plain::new("nodes", "io.k8s.api.core.v1.Node")
};

pub const RUNTIME_CLASS: Plain = Plain {
    validate: |_, object| validate_runtime(object),
    validate_update: |_, new, old| {
        let mut errors = ErrorList::new();
        immutable_string(new, old, &["handler"], &Path::new("handler"), &mut errors);
        errors
    },
    cells: |object, now| {
        vec![
            object::name(object).into(),
            object::string(object, &["handler"]).into(),
            age(object, now),
        ]
    },
    creates_on_update: true,
    unconditional_update: false,
    warnings: |_, new, _| {
        let path = Path::new("scheduling").child("nodeSelector");
        entries(new, &["scheduling", "nodeSelector"])
            .filter_map(|(key, _)| old_label(key))
            .map(|text| format!("{path}: {text}"))
            .collect()
    },
    ..Plain::new("node.k8s.io/runtimeclasses", "io.k8s.api.node.v1.RuntimeClass")
};

/// What parts of a control plane once said about themselves. Nothing stores one.
pub const COMPONENT_STATUS: Plain = Plain {
    cells: |object, _| {
        let conditions = object::list(object, &["conditions"]);
        let healthy = conditions
            .iter()
            .find(|one| object::string(one, &["type"]) == "Healthy");
        let of = |field| healthy.map_or("", |one| object::string(one, &[field]));
        let status = match (healthy, of("status")) {
            (None, _) => "Unknown",
            (_, "True") => "Healthy",
            _ => "Unhealthy",
        };
        vec![
            object::name(object).into(),
            status.into(),
            of("message").into(),
            of("error").into(),
        ]
    },
    deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
    ..Plain::new("componentstatuses", "io.k8s.api.core.v1.ComponentStatus")
};

fn default(node: &mut Value) {
    // One range is the first of all.
    let all = strings(node, &["spec", "podCIDRs"])
        .first()
        .map(|first| (*first).to_owned());
    let one = object::string(node, &["spec", "podCIDR"]).to_owned();
    match all {
        Some(first) if one.is_empty() => object::set(node, &["spec", "podCIDR"], first),
        // Where they differ, the old field is right: who writes it may not know the other.
        first if !one.is_empty() && first.as_ref() != Some(&one) => {
            object::set(node, &["spec", "podCIDRs"], json!([one]));
        }
        _ => {}
    }
    for field in ["capacity", "allocatable"] {
        round_up(node, &["status", field]);
    }
    if present(node, &["status", "allocatable"]).is_none()
        && let Some(capacity) = present(node, &["status", "capacity"]).cloned()
    {
        object::set(node, &["status", "allocatable"], capacity);
    }
}

/// A new node takes no pods before its controller has seen it ready. Its status, unlike others, may come with it.
fn prepare(ctx: &WriteContext<'_>, new: &mut Value, old: Option<&Value>) {
    if ctx.subresource.is_empty() && old.is_none() {
        let mut taints = object::list(new, &["spec", "taints"]).to_vec();
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let held = taints
            .iter()
            .any(|held| held.get("key") == taint.get("key") && held.get("effect") == taint.get("effect"));
        if !held {
            taints.push(taint);
            object::set(new, &["spec", "taints"], taints);
        }
    }
}

fn validate(node: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    // Upstream's path, though taints are in the spec.
    validate_taints(node, &Path::new("metadata").child("taints"), &mut errors);
    validate_amounts(node, &mut errors);
    let ranges = strings(node, &["spec", "podCIDRs"]);
    let path = Path::new("spec").child("podCIDRs");
    for (i, range) in ranges.iter().enumerate() {
        errors.extend(cidr_errors_legacy(&path.index(i), range, &[]));
    }
    if ranges.len() > 1 {
        let six: Vec<bool> = ranges
            .iter()
            .filter_map(|range| parse_cidr_sloppy(range))
            .map(|range| range.address.is_ipv6())
            .collect();
        if !(six.contains(&true) && six.contains(&false)) || ranges.len() > 2 {
            let detail = "may specify no more than one CIDR for each IP family";
            errors.push(Error::invalid(&path, ranges, detail));
        }
    }
    errors
}

fn validate_taints(node: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, taint) in object::list(node, &["spec", "taints"]).iter().enumerate() {
        let path = path.index(i);
        let of = |field| object::string(taint, &[field]);
        errors.extend(invalid_each(&path.child("key"), of("key"), names::label_key(of("key"))));
        let texts = names::label_value(of("value"));
        if !texts.is_empty() {
            errors.push(Error::invalid(&path.child("value"), of("value"), texts.join(";")));
        }
        match of("effect") {
            "" => errors.push(Error::required(&path.child("effect"), "")),
            effect => validate_effect(effect, &path.child("effect"), errors),
        }
        if !seen.insert((of("effect"), of("key"))) {
            let shown = internal::shown(taint, "io.k8s.api.core.v1.Taint");
            errors.push(Error {
                value: None,
                detail: format!("{shown}: taints must be unique by key and effect pair"),
                ..Error::duplicate(&path, Value::Null)
            });
        }
    }
}

fn validate_amounts(node: &Value, errors: &mut ErrorList) {
    for field in ["capacity", "allocatable"] {
        for (name, amount) in entries(node, &["status", field]) {
            let path = Path::new("status").child(field).child(name);
            errors.extend(validate_amount(name, amount, &path));
        }
    }
}

fn validate_update(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_amounts(new, &mut errors);
    let mut seen = Vec::new();
    for (i, address) in object::list(new, &["status", "addresses"]).iter().enumerate() {
        if seen.contains(&address) {
            let shown = internal::shown(address, "io.k8s.api.core.v1.NodeAddress");
            errors.push(Error {
                value: None,
                detail: shown,
                ..Error::duplicate(&Path::new("status").child("addresses").index(i), Value::Null)
            });
        }
        seen.push(address);
    }
    let ranges = |node| strings(node, &["spec", "podCIDRs"]);
    let (now, before) = (ranges(new), ranges(old));
    let path = Path::new("spec");
    if !before.is_empty() {
        let changes = if now.len() == before.len() {
            before.iter().zip(&now).filter(|(before, now)| before != now).count()
        } else {
            1
        };
        for _ in 0..changes {
            errors.push(Error::forbidden(&path.child("podCIDRs"), FIXED_RANGES));
        }
    }
    let provider = |node| object::string(node, &["spec", "providerID"]);
    if !provider(old).is_empty() && provider(old) != provider(new) {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(Error::forbidden(&path.child("providerID"), detail));
    }
    validate_taints(new, &Path::new("metadata").child("taints"), &mut errors);
    let external = |node| object::string(node, &["spec", "externalID"]);
    if external(new) != external(old) {
        errors.push(Error::forbidden(&path.child("externalID"), "may not be updated"));
    }
    errors
}

fn cells(node: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let conditions = object::list(node, &["status", "conditions"]);
    let told = conditions.iter().any(|one| object::string(one, &["type"]) == "Ready");
    let mut status = match (told, condition::has(conditions, "Ready", "True")) {
        (_, true) => "Ready",
        (true, false) => "NotReady",
        (false, false) => "Unknown",
    }
    .to_owned();
    if object::get(node, &["spec", "unschedulable"]) == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field| object::string(node, &["status", "nodeInfo", field]);
    let or_unknown = |text: &str| {
        if text.is_empty() {
            "<unknown>".to_owned()
        } else {
            text.to_owned()
        }
    };
    let mut kernel = or_unknown(info("kernelVersion"));
    if !info("architecture").is_empty() {
        kernel = format!("{kernel} ({})", info("architecture"));
    }
    let address = |r#type: &str| {
        let all = object::list(node, &["status", "addresses"]).iter();
        let mut found = all.filter(|one| object::string(one, &["type"]) == r#type);
        found
            .next()
            .map_or("<none>", |one| object::string(one, &["address"]))
            .to_owned()
    };
    vec![
        object::name(node).into(),
        status.into(),
        roles(node).into(),
        age(node, now),
        info("kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        or_unknown(info("osImage")).into(),
        kernel.into(),
        or_unknown(info("containerRuntimeVersion")).into(),
    ]
}

fn roles(node: &Value) -> String {
    let role = |(key, value): (&'_ str, &Value)| match key.strip_prefix(ROLE) {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> = entries(node, &["metadata", "labels"])
        .filter_map(role)
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        return "<none>".to_owned();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn validate_runtime(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    match object::string(object, &["handler"]) {
        "" => errors.push(Error::required(&Path::new("handler"), "")),
        handler => errors.extend(invalid_each(
            &Path::new("handler"),
            handler,
            names::dns1123_label(handler),
        )),
    }
    if let Some(fixed) = present(object, &["overhead", "podFixed"]) {
        let path = Path::new("overhead");
        let limits = json!({"limits": fixed});
        validate_resources(&limits, Owner::Container, &BTreeSet::new(), &path, &mut errors);
    }
    if let Some(scheduling) = present(object, &["scheduling"]) {
        let path = Path::new("scheduling");
        if let Some(selector) = present(scheduling, &["nodeSelector"]) {
            errors.extend(names::label_errors(selector, &path.child("nodeSelector")));
        }
        validate_tolerations(scheduling, &path.child("tolerations"), &mut errors);
    }
    errors
}
