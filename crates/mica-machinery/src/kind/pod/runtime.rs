//! What a pod gets from its runtime class: the overhead of running it, and where it may run.

use serde_json::Value;

use super::prepare::tolerate_loss;
use crate::kind::check::present;
use crate::object;

const OVERHEAD: [&str; 2] = ["spec", "overhead"];
const UNFOUNDED: &str = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// The name of the runtime class that a pod asks for, if it asks for one.
pub fn class_name(pod: &Value) -> Option<&str> {
    present(pod, &["spec", "runtimeClassName"]).and_then(Value::as_str)
}

/// Gives a pod what its class says. The error is why the pod is refused.
pub fn admit(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    // Upstream's tolerations of a lost node come before those of the class.
    tolerate_loss(pod);
    if let Some(wanted) = wanted(class) {
        let (told, fixed) = (told(pod), present(wanted, &["podFixed"]));
        if told.is_some() && told != fixed {
            return Err(MISMATCH.to_owned());
        }
        if let Some(fixed) = fixed.cloned() {
            object::set(pod, &OVERHEAD, fixed);
        }
    }
    match class.and_then(|class| present(class, &["scheduling"])) {
        Some(scheduling) => admit_scheduling(pod, scheduling),
        None => Ok(()),
    }
}

/// Refuses a pod whose overhead is not that of its class: asked last, when all else about the pod is right.
pub fn check(pod: &Value, class: Option<&Value>) -> Result<(), String> {
    match (wanted(class), told(pod)) {
        (None, Some(_)) => Err(UNFOUNDED.to_owned()),
        (Some(wanted), told) if told != present(wanted, &["podFixed"]) => Err(MISMATCH.to_owned()),
        _ => Ok(()),
    }
}

fn wanted(class: Option<&Value>) -> Option<&Value> {
    class.and_then(|class| present(class, &["overhead"]))
}

fn told(pod: &Value) -> Option<&Value> {
    present(pod, &OVERHEAD).filter(|told| told.as_object().is_some_and(|told| !told.is_empty()))
}

fn admit_scheduling(pod: &mut Value, scheduling: &Value) -> Result<(), String> {
    let mut selector = object::map(pod, &["spec", "nodeSelector"]).cloned().unwrap_or_default();
    for (key, wanted) in object::map(scheduling, &["nodeSelector"]).into_iter().flatten() {
        if let Some(told) = selector.get(key).filter(|told| *told != wanted) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(wanted),
                text(told)
            ));
        }
        selector.insert(key.clone(), wanted.clone());
    }
    if !selector.is_empty() {
        object::set(pod, &["spec", "nodeSelector"], selector);
    }
    let own = object::list(pod, &["spec", "tolerations"]);
    let merged = merge_tolerations(own, object::list(scheduling, &["tolerations"]));
    if !merged.is_empty() {
        object::set(pod, &["spec", "tolerations"], merged);
    }
    Ok(())
}

/// Both lists, without those that another one covers.
fn merge_tolerations(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let covered = merged.iter().any(|other| covers(other, one))
            // Of two equal ones the first stays.
            || all[at + 1..].iter().any(|other| other != one && covers(other, one));
        if !covered {
            merged.push((*one).clone());
        }
    }
    merged
}

fn covers(wide: &Value, narrow: &Value) -> bool {
    fn text<'a>(of: &'a Value, field: &str) -> &'a str {
        object::string(of, &[field])
    }
    if wide == narrow {
        return true;
    }
    let any_key = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if text(wide, "key") != text(narrow, "key") && !any_key {
        return false;
    }
    if text(wide, "effect") != text(narrow, "effect") && !text(wide, "effect").is_empty() {
        return false;
    }
    let seconds = |of| object::int(of, &["tolerationSeconds"]);
    if text(wide, "effect") == "NoExecute"
        && let Some(limit) = seconds(wide)
        && seconds(narrow).is_none_or(|narrow| narrow > limit)
    {
        return false;
    }
    match text(wide, "operator") {
        "Equal" | "" => text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value"),
        other => other == "Exists",
    }
}
