//! A pod's row: how far it is, told in one word.

use serde_json::{Value, json};

use crate::kind::check::present;
use crate::kind::column::{age, since};
use crate::kind::condition;
use crate::kind::workload::number;
use crate::object;

/// What the row is made of.
struct Summary {
    ready: usize,
    reason: String,
    restarts: i64,
    /// When a container last ended and was started again.
    last: String,
}

/// Rows of pods that have ended say so, by which clients can tell them from those that run.
pub fn row_conditions(pod: &Value) -> Option<Value> {
    let phase = object::string(pod, &["status", "phase"]);
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

pub fn cells(pod: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let before = object::list(pod, &["spec", "initContainers"]);
    let lasting = before.iter().filter(|container| is_lasting(container)).count();
    let total = object::list(pod, &["spec", "containers"]).len() + lasting;
    let summary = summarize(pod);
    let restarts = match summary.restarts {
        0 => "0".to_owned(),
        count if summary.last.is_empty() => count.to_string(),
        count => format!("{count} ({} ago)", since(&summary.last, now)),
    };
    let or_none = |at: &[&str]| match object::string(pod, at) {
        "" => json!("<none>"),
        text => json!(text),
    };
    let address = object::list(pod, &["status", "podIPs"])
        .first()
        .map(|one| object::string(one, &["ip"]))
        .filter(|address| !address.is_empty());
    vec![
        object::name(pod).into(),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now),
        address.unwrap_or("<none>").into(),
        or_none(&["spec", "nodeName"]),
        or_none(&["status", "nominatedNodeName"]),
        gates(pod).into(),
    ]
}

fn gates(pod: &Value) -> String {
    let gates = object::list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let conditions = object::list(pod, &["status", "conditions"]);
    let open = |gate: &&Value| {
        let r#type = object::string(gate, &["conditionType"]);
        let found = conditions.iter().find(|one| object::string(one, &["type"]) == r#type);
        found.is_some_and(|one| object::string(one, &["status"]) == "True")
    };
    format!("{}/{}", gates.iter().filter(open).count(), gates.len())
}

fn is_lasting(container: &Value) -> bool {
    object::string(container, &["restartPolicy"]) == "Always"
}

fn summarize(pod: &Value) -> Summary {
    let conditions = object::list(pod, &["status", "conditions"]);
    let phase = object::string(pod, &["status", "phase"]);
    let told = object::string(pod, &["status", "reason"]);
    let mut reason = if told.is_empty() { phase } else { told }.to_owned();
    if conditions.iter().any(|one| {
        object::string(one, &["type"]) == "PodScheduled" && object::string(one, &["reason"]) == "SchedulingGated"
    }) {
        reason = "SchedulingGated".to_owned();
    }
    let (mut summary, initializing, sidecars) = before_start(pod, reason);
    if !initializing || condition::has(conditions, "Initialized", "True") {
        (summary.restarts, summary.last) = sidecars;
        running(pod, conditions, &mut summary);
    }
    let leaving = !object::string(pod, &["metadata", "deletionTimestamp"]).is_empty();
    let ended = ["Failed", "Succeeded"].contains(&phase);
    if leaving && told == "NodeLost" {
        summary.reason = "Unknown".to_owned();
    } else if leaving && !ended {
        summary.reason = "Terminating".to_owned();
    }
    summary
}

fn last_end(status: &Value) -> &str {
    object::string(status, &["lastState", "terminated", "finishedAt"])
}

/// The containers that run before the others: what they say, whether one of them still has to end, and the restarts of
/// those that run on.
fn before_start(pod: &Value, reason: String) -> (Summary, bool, (i64, String)) {
    let mut summary = Summary {
        ready: 0,
        reason,
        restarts: 0,
        last: String::new(),
    };
    let mut sidecars = (0, String::new());
    let declared = object::list(pod, &["spec", "initContainers"]);
    for (i, status) in object::list(pod, &["status", "initContainerStatuses"])
        .iter()
        .enumerate()
    {
        let name = object::string(status, &["name"]);
        let lasting = declared
            .iter()
            .any(|container| object::string(container, &["name"]) == name && is_lasting(container));
        let count = number(status, &["restartCount"]);
        summary.restarts += count;
        let end = last_end(status);
        // Times of one form and zone are ordered as their texts are.
        if end > summary.last.as_str() {
            summary.last = end.to_owned();
        }
        if lasting {
            sidecars.0 += count;
            if end > sidecars.1.as_str() {
                sidecars.1 = end.to_owned();
            }
        }
        let ended = present(status, &["state", "terminated"]);
        if ended.is_some_and(|ended| number(ended, &["exitCode"]) == 0) {
            continue;
        }
        if lasting && status.get("started") == Some(&json!(true)) {
            summary.ready += usize::from(status.get("ready") == Some(&json!(true)));
            continue;
        }
        let waiting = object::string(status, &["state", "waiting", "reason"]);
        summary.reason = match ended {
            Some(ended) => format!("Init:{}", end_reason(ended)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{i}/{}", declared.len()),
        };
        return (summary, true, sidecars);
    }
    (summary, false, sidecars)
}

fn end_reason(ended: &Value) -> String {
    let reason = object::string(ended, &["reason"]);
    match number(ended, &["signal"]) {
        _ if !reason.is_empty() => reason.to_owned(),
        0 => format!("ExitCode:{}", number(ended, &["exitCode"])),
        signal => format!("Signal:{signal}"),
    }
}

fn running(pod: &Value, conditions: &[Value], summary: &mut Summary) {
    let (mut runs, mut failure) = (false, String::new());
    for status in object::list(pod, &["status", "containerStatuses"]).iter().rev() {
        summary.restarts += number(status, &["restartCount"]);
        let end = last_end(status);
        if end > summary.last.as_str() {
            summary.last = end.to_owned();
        }
        let waiting = object::string(status, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if let Some(ended) = present(status, &["state", "terminated"]) {
            summary.reason = end_reason(ended);
            if number(ended, &["exitCode"]) != 0 {
                failure.clone_from(&summary.reason);
            }
        } else if status.get("ready") == Some(&json!(true)) && present(status, &["state", "running"]).is_some() {
            runs = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        if runs && condition::has(conditions, "Ready", "True") {
            summary.reason = "Running".to_owned();
        } else if !failure.is_empty() {
            summary.reason = failure;
        } else if runs {
            summary.reason = "NotReady".to_owned();
        }
    }
}
