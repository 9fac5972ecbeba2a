//! Evictions and bindings: what a pod's disruption budget lets happen, and how a pod comes to its node.

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path, quote};
use crate::kind::check::{entries, list_mut, present};
use crate::kind::workload::number;
use crate::object;
use crate::select::LabelSelector;
use crate::time::now_text;

/// Evictions that a budget's controller has not seen yet: no more are let through than this.
const MAX_UNSEEN: usize = 2000;
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// When to ask again, where the budget will soon be up to date.
const SOON: u64 = 10;

/// Whether a pod goes without asking: it does nothing yet, or nothing any more.
pub fn goes_freely(pod: &Value) -> bool {
    let phase = object::string(pod, &["status", "phase"]);
    ["Succeeded", "Failed", "Pending"].contains(&phase)
        || !object::string(pod, &["metadata", "deletionTimestamp"]).is_empty()
}

/// Whether a budget is about a pod.
pub fn covers(budget: &Value, pod: &Value) -> bool {
    LabelSelector::from_value(object::get(budget, &["spec", "selector"]))
        .is_ok_and(|selector| selector.matches_object(pod))
}

/// Why a budget does not let a pod go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Not now: the message, why, and when to ask again.
    TooMany {
        message: &'static str,
        cause: String,
        retry: Option<u64>,
    },
    Forbidden(&'static str),
}

/// Whether a pod that is not ready may go whatever the budget has left.
pub fn ignores(budget: &Value, pod: &Value) -> bool {
    let conditions = object::list(pod, &["status", "conditions"]);
    if crate::kind::condition::has(conditions, "Ready", "True") {
        return false;
    }
    let healthy = number(budget, &["status", "currentHealthy"]) >= number(budget, &["status", "desiredHealthy"]);
    let wanted = number(budget, &["status", "desiredHealthy"]) > 0;
    match object::string(budget, &["spec", "unhealthyPodEvictionPolicy"]) {
        "AlwaysAllow" => true,
        _ => healthy && wanted,
    }
}

/// The budget with one disruption less.
pub fn disrupt(budget: &Value, pod: &str, now: jiff::Timestamp) -> Result<Value, Refusal> {
    let name = object::name(budget);
    let status = |field| number(budget, &["status", field]);
    let too_many = |cause: String, retry| {
        Err(Refusal::TooMany {
            message: VIOLATES,
            cause,
            retry,
        })
    };
    if status("observedGeneration") < number(budget, &["metadata", "generation"]) {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return too_many(cause, Some(SOON));
    }
    if status("disruptionsAllowed") < 0 {
        return Err(Refusal::Forbidden("pdb disruptions allowed is negative"));
    }
    if entries(budget, &["status", "disruptedPods"]).count() > MAX_UNSEEN {
        return Err(Refusal::Forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if status("disruptionsAllowed") == 0 {
        return too_many(exhausted(budget), None);
    }
    let mut budget = budget.clone();
    object::set(
        &mut budget,
        &["status", "disruptionsAllowed"],
        status("disruptionsAllowed") - 1,
    );
    object::set(&mut budget, &["status", "disruptedPods", pod], now_text(now));
    Ok(budget)
}

fn exhausted(budget: &Value) -> String {
    let name = object::name(budget);
    let (healthy, desired) = (
        number(budget, &["status", "currentHealthy"]),
        number(budget, &["status", "desiredHealthy"]),
    );
    let conditions = object::list(budget, &["status", "conditions"]).iter();
    let mut told = conditions.filter(|one| {
        object::string(one, &["type"]) == "DisruptionAllowed"
            && object::string(one, &["status"]) == "False"
            && !object::string(one, &["message"]).is_empty()
    });
    let told = told
        .next()
        .map(|one| (object::string(one, &["reason"]), object::string(one, &["message"])));
    match told {
        Some(("SyncFailed", message)) => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

pub fn validate_binding(binding: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (path, of) = (Path::new("target"), |field| object::string(binding, &["target", field]));
    if !["", "Node"].contains(&of("kind")) {
        errors.push(Error::not_supported(
            &path.child("kind"),
            of("kind"),
            &["Node", "<empty>"],
        ));
    }
    if of("name").is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    }
    errors
}

/// The pod on the node that a binding names. The error is why it cannot go there.
pub fn bind(mut pod: Value, binding: &Value, now: jiff::Timestamp) -> Result<Value, String> {
    let name = object::name(&pod).to_owned();
    if !object::string(&pod, &["metadata", "deletionTimestamp"]).is_empty() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = object::string(&pod, &["spec", "nodeName"]);
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {}", quote(node)));
    }
    if !object::list(&pod, &["spec", "schedulingGates"]).is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    object::set(
        &mut pod,
        &["spec", "nodeName"],
        object::string(binding, &["target", "name"]),
    );
    object::remove(&mut pod, &["status", "nominatedNodeName"]);
    for (key, value) in entries(binding, &["metadata", "annotations"]) {
        object::set(&mut pod, &["metadata", "annotations", key], value.clone());
    }
    set_scheduled(&mut pod, now);
    Ok(pod)
}

fn set_scheduled(pod: &mut Value, now: jiff::Timestamp) {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now_text(now)});
    let held = list_mut(pod, &["status", "conditions"]);
    let at = held
        .iter()
        .position(|one| object::string(one, &["type"]) == "PodScheduled");
    match at {
        Some(at) => held[at] = condition,
        None => {
            let mut all = held.to_vec();
            all.push(condition);
            object::set(pod, &["status", "conditions"], all);
        }
    }
}

/// The containers of a pod by name, for what asks one of them.
pub fn has_container(pod: &Value, name: &str) -> bool {
    ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| object::list(pod, &["spec", list]))
        .any(|container| object::string(container, &["name"]) == name)
}

/// Whether a pod has been given a node.
pub fn is_placed(pod: &Value) -> bool {
    present(pod, &["spec", "nodeName"]).is_some_and(|node| node != "")
}
