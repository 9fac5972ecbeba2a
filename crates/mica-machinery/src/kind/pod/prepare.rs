//! What the server adds to new pods: their class of service, default tolerations, and the first condition.

use serde_json::{Value, json};

use super::apparmor;
use crate::kind::check::{is_set, list_mut, present};
use crate::kind::core::resource::quantity;
use crate::object;
use crate::quantity::Quantity;
use crate::time::now_text;

/// Seconds that a pod stays on a node that is lost, unless it says otherwise.
const STAY: i64 = 300;
const LOST: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub fn prepare(pod: &mut Value, now: jiff::Timestamp) {
    let class = quality(pod);
    object::set(pod, &["status"], json!({"phase": "Pending", "qosClass": class}));
    if !object::list(pod, &["spec", "schedulingGates"]).is_empty() {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": now_text(now),
        });
        object::set(pod, &["status", "conditions"], json!([condition]));
    }
    tolerate_loss(pod);
    merge_label_keys(pod);
    apparmor::copy_annotations(pod);
}

/// A pod stays for a while on a node that is lost, unless it says otherwise: on every write, as upstream does it.
pub fn tolerate_loss(pod: &mut Value) {
    let mut tolerations = object::list(pod, &["spec", "tolerations"]).to_vec();
    for key in LOST {
        let tolerated = tolerations.iter().any(|one| {
            let of = |field| object::string(one, &[field]);
            [key, ""].contains(&of("key")) && ["NoExecute", ""].contains(&of("effect"))
        });
        if !tolerated {
            tolerations.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": STAY,
            }));
        }
    }
    if !tolerations.is_empty() {
        object::set(pod, &["spec", "tolerations"], tolerations);
    }
}

/// Turns keys whose values are the pod's own labels into requirements with those values.
fn merge_label_keys(pod: &mut Value) {
    let labels = object::get(pod, &["metadata", "labels"]).cloned().unwrap_or_default();
    for field in ["podAffinity", "podAntiAffinity"] {
        for term in list_mut(
            pod,
            &[
                "spec",
                "affinity",
                field,
                "requiredDuringSchedulingIgnoredDuringExecution",
            ],
        ) {
            merge_in(term, &labels);
        }
        for term in list_mut(
            pod,
            &[
                "spec",
                "affinity",
                field,
                "preferredDuringSchedulingIgnoredDuringExecution",
            ],
        ) {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                merge_in(term, &labels);
            }
        }
    }
    for constraint in list_mut(pod, &["spec", "topologySpreadConstraints"]) {
        merge_in(constraint, &labels);
    }
}

fn merge_in(term: &mut Value, labels: &Value) {
    if present(term, &["labelSelector"]).is_none() {
        return;
    }
    let mut expressions = object::list(term, &["labelSelector", "matchExpressions"]).to_vec();
    let held = expressions.len();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in object::list(term, &[field]) {
            if let Some(value) = key.as_str().and_then(|key| labels.get(key)) {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if expressions.len() > held {
        object::set(term, &["labelSelector", "matchExpressions"], expressions);
    }
}

/// The pod's class of service: whether it has all it may use, something, or nothing.
pub fn quality(pod: &Value) -> &'static str {
    let null = Value::Null;
    let spec = pod.get("spec").unwrap_or(&null);
    let own = present(spec, &["resources"]);
    let holders: Vec<&Value> = match own {
        Some(_) => vec![spec],
        None => ["containers", "initContainers"]
            .iter()
            .flat_map(|list| object::list(spec, &[list]))
            .collect(),
    };
    let amount = |holder: &Value, field: &str, name: &str| -> Option<Quantity> {
        let found = object::get(holder, &["resources", field, name]).map(quantity)?;
        (found.signum() > 0).then_some(found)
    };
    let (mut any, mut all) = (false, !holders.is_empty());
    for holder in holders {
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(holder, "requests", name), amount(holder, "limits", name));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Seconds that a deletion waits: none where nothing runs.
pub fn grace(pod: &Value, requested: Option<i64>) -> i64 {
    let own = object::int(pod, &["spec", "terminationGracePeriodSeconds"]);
    let ended = ["Failed", "Succeeded"].contains(&object::string(pod, &["status", "phase"]));
    let running = is_set(pod, &["spec", "nodeName"]) && !object::string(pod, &["spec", "nodeName"]).is_empty();
    match requested.or(own).unwrap_or_default() {
        _ if ended || !running => 0,
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}
