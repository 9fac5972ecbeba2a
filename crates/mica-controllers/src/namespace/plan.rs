//! What is said of a namespace that is being deleted, and what comes next. A function of what was found.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use mica_machinery::object;
use serde_json::{Value, json};

use super::observe::{Found, Swept, going_for};

/// How long upstream gives finalizers before it looks again, in seconds.
const FINALIZER_ESTIMATE: i64 = 15;

/// The conditions, in upstream's order, with what they say while all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (
        DISCOVERY,
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        CONTENT_FAILURE,
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (CONTENT, "ContentRemoved", "All content successfully removed"),
    (FINALIZERS, "ContentRemoved", "All content successfully removed"),
];
const DISCOVERY: &str = "NamespaceDeletionDiscoveryFailure";
const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";
const CONTENT: &str = "NamespaceContentRemaining";
const FINALIZERS: &str = "NamespaceFinalizersRemaining";

/// What is to be written, and what comes after.
#[derive(PartialEq, Debug)]
pub struct Plan {
    /// The new conditions, if they differ from those that are there.
    pub conditions: Option<Value>,
    pub next: Next,
}

#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing is left.
    Finalize,
    /// Something waits for its finalizers or its grace period.
    LookAgain(Duration),
    /// Something failed.
    TryAgain,
}

/// A condition that is not well: its type, reason and message.
type Problem = (&'static str, &'static str, String);

pub fn plan(found: &Found, swept: &[Swept], now: Timestamp) -> Plan {
    let mut problems: Vec<Problem> = Vec::new();
    problems.extend(discovery(found));
    let going_for = going_for(&found.namespace, now);
    let (mut failures, mut estimate) = (Vec::new(), 0);
    let (mut objects, mut finalizers) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for Swept { served, left } in swept {
        let left = match left {
            Ok(left) => left,
            Err(why) => {
                failures.push(why.clone());
                continue;
            }
        };
        if left.objects == 0 {
            continue;
        }
        let what = &served.what;
        objects.push(format!(
            "{}.{} has {} resource instances",
            what.resource,
            what.group(),
            left.objects
        ));
        for (finalizer, count) in &left.finalizers {
            *finalizers.entry(finalizer).or_default() += count;
        }
        // Grace that has passed is over.
        let grace = if going_for >= left.grace { 0 } else { left.grace };
        match (grace, left.finalizers.is_empty()) {
            (0, true) => failures.push(format!(
                "unexpected items still remain in namespace: {} for gvr: {}",
                object::name(&found.namespace),
                served.shown()
            )),
            (0, false) => estimate = estimate.max(FINALIZER_ESTIMATE),
            (grace, _) => estimate = estimate.max(grace),
        }
    }
    if !failures.is_empty() {
        failures.sort();
        let message = format!(
            "Failed to delete all resource types, {} remaining: {}",
            failures.len(),
            failures.join(", ")
        );
        problems.push((CONTENT_FAILURE, "ContentDeletionFailed", message));
    }
    if !objects.is_empty() {
        objects.sort();
        let message = format!("Some resources are remaining: {}", objects.join(", "));
        problems.push((CONTENT, "SomeResourcesRemain", message));
    }
    if !finalizers.is_empty() {
        let waits = finalizers
            .iter()
            .map(|(name, count)| format!("{name} in {count} resource instances"));
        let message = format!(
            "Some finalizers are remaining: {}",
            waits.collect::<Vec<_>>().join(", ")
        );
        problems.push((FINALIZERS, "SomeFinalizerRemain", message));
    }
    let next = match (
        failures.is_empty() && found.kinds.as_ref().is_ok_and(|kinds| kinds.failed.is_empty()),
        estimate,
    ) {
        (false, _) => Next::TryAgain,
        (true, 0) => Next::Finalize,
        (true, seconds) => Next::LookAgain(Duration::from_secs(seconds.unsigned_abs() / 2 + 1)),
    };
    Plan {
        conditions: conditions(&found.namespace, &problems, now),
        next,
    }
}

fn discovery(found: &Found) -> Option<Problem> {
    let message = match &found.kinds {
        Err(why) => why.clone(),
        Ok(kinds) if kinds.failed.is_empty() => return None,
        Ok(kinds) => {
            let groups: Vec<String> = kinds
                .failed
                .iter()
                .map(|(group, why)| format!("{group}: {why}"))
                .collect();
            format!(
                "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                groups.len(),
                groups.join(", ")
            )
        }
    };
    Some((DISCOVERY, "DiscoveryFailed", message))
}

/// The namespace's conditions after this, if anything about them changes. Those of others stay.
fn conditions(namespace: &Value, problems: &[Problem], now: Timestamp) -> Option<Value> {
    let old = object::list(namespace, &["status", "conditions"]);
    let mut new = old.to_vec();
    for (kind, reason, message) in CONDITIONS {
        let problem = problems.iter().find(|problem| problem.0 == kind);
        let (status, reason, message) = match problem {
            None => ("False", reason, message),
            Some((_, reason, message)) => ("True", *reason, message.as_str()),
        };
        let known = new.iter_mut().find(|condition| condition["type"] == kind);
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        match known {
            None => new.push(json!({
                "type": kind, "status": status, "lastTransitionTime": time, "reason": reason, "message": message,
            })),
            Some(known) => {
                if known["status"] != status {
                    known["lastTransitionTime"] = time.into();
                }
                known["status"] = status.into();
                known["reason"] = reason.into();
                known["message"] = message.into();
            }
        }
    }
    (new != old).then(|| new.into())
}

#[cfg(test)]
mod tests;
