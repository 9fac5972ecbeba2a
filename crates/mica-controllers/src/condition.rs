//! Conditions in statuses: found, and changed as `metav1.Condition` wants it.

use serde_json::{Value, json};

/// A condition as it is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub r#type: &'static str,
    pub status: String,
    pub reason: String,
    pub message: String,
}

impl Change {
    pub fn new(r#type: &'static str, status: &str, reason: &str, message: &str) -> Self {
        Self {
            r#type,
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a Value, r#type: &str) -> Option<&'a Value> {
    let mut all = conditions.as_array()?.iter();
    all.find(|condition| condition["type"] == r#type)
}

/// Conditions with changes. The time of a condition moves only with its status; others stay as they are.
pub fn with(conditions: &Value, changes: &[Change], now: &str) -> Value {
    let mut all = conditions.as_array().cloned().unwrap_or_default();
    for change in changes {
        let at = all.iter().position(|condition| condition["type"] == change.r#type);
        let since = match at {
            Some(at) if all[at]["status"] == change.status => all[at]["lastTransitionTime"].clone(),
            _ => now.into(),
        };
        let mut condition = json!({"type": change.r#type, "status": change.status, "reason": change.reason,
            "message": change.message, "lastTransitionTime": since});
        match at {
            Some(at) => {
                // What others keep in it (observedGeneration) stays.
                if let Some(generation) = all[at].get("observedGeneration") {
                    condition["observedGeneration"] = generation.clone();
                }
                all[at] = condition;
            }
            None => all.push(condition),
        }
    }
    all.into()
}

/// The same, of conditions that say which generation they are about.
pub fn with_generation(conditions: &Value, changes: &[Change], generation: &Value, now: &str) -> Value {
    let mut all = with(conditions, changes, now);
    for condition in all.as_array_mut().into_iter().flatten() {
        if !generation.is_null() && changes.iter().any(|change| condition["type"] == change.r#type) {
            condition["observedGeneration"] = generation.clone();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_with_the_status_alone() {
        let before = json!([{"type": "Other", "status": "True"},
            {"type": "Ready", "status": "True", "reason": "A", "message": "a", "lastTransitionTime": "t0"}]);
        let same = with(&before, &[Change::new("Ready", "True", "B", "b")], "t1");
        assert_eq!(
            find(&same, "Ready").map(|one| one["lastTransitionTime"].clone()),
            Some(json!("t0"))
        );
        let other = with(&before, &[Change::new("Ready", "False", "B", "b")], "t1");
        assert_eq!(
            find(&other, "Ready").map(|one| one["lastTransitionTime"].clone()),
            Some(json!("t1"))
        );
        assert_eq!(find(&other, "Other"), find(&before, "Other"));
    }
}
