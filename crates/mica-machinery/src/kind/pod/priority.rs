//! A new pod's priority: its class decides it, and the pod may only repeat what that says.

use serde_json::Value;

use crate::kind::check::present;
use crate::kind::workload::number;
use crate::object;

/// The name of the class that a pod asks for, if it asks for one.
pub fn class_name(pod: &Value) -> Option<&str> {
    let name = object::string(pod, &["spec", "priorityClassName"]);
    (!name.is_empty()).then_some(name)
}

/// Of the classes that are for pods without one, the one that counts: the lowest.
pub fn default_class<'a>(classes: impl Iterator<Item = &'a Value>) -> Option<&'a Value> {
    let global = classes.filter(|class| class.get("globalDefault") == Some(&Value::Bool(true)));
    global.min_by_key(|class| number(class, &["value"]))
}

/// Gives a pod the priority of its class. The error is why the pod is refused.
pub fn admit(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let priority = class.map_or(0, |class| number(class, &["value"]));
    let policy = class
        .map(|class| object::string(class, &["preemptionPolicy"]))
        .filter(|policy| !policy.is_empty())
        .unwrap_or("PreemptLowerPriority");
    let told = object::int(pod, &["spec", "priority"]);
    if let Some(told) = told.filter(|told| *told != priority) {
        return Err(format!(
            "the integer value of priority ({told}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    let told = present(pod, &["spec", "preemptionPolicy"]).and_then(Value::as_str);
    if let Some(told) = told.filter(|told| *told != policy) {
        return Err(format!(
            "the string value of PreemptionPolicy ({told}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    if let Some(class) = class {
        object::set(pod, &["spec", "priorityClassName"], object::name(class));
    }
    object::set(pod, &["spec", "priority"], priority);
    object::set(pod, &["spec", "preemptionPolicy"], policy);
    Ok(())
}
