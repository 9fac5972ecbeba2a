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

/// Conditions with changes, which are about this generation. The time of a condition moves only with its status; others stay
/// as they are.
pub fn with(conditions: &Value, changes: &[Change], generation: &Value, now: &str) -> Value {
    let mut all = conditions.as_array().cloned().unwrap_or_default();
    for change in changes {
        let at = all.iter().position(|condition| condition["type"] == change.r#type);
        let since = match at {
            Some(at) if all[at]["status"] == change.status => all[at]["lastTransitionTime"].clone(),
            _ => now.into(),
        };
        let mut condition = json!({"type": change.r#type, "status": change.status, "reason": change.reason,
            "message": change.message, "lastTransitionTime": since});
        if !generation.is_null() {
            condition["observedGeneration"] = generation.clone();
        }
        match at {
            Some(at) => all[at] = condition,
            None => all.push(condition),
        }
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_with_the_status_alone() {
        let before = json!([{"type": "Other", "status": "True"},
            {"type": "Ready", "status": "True", "reason": "A", "message": "a", "lastTransitionTime": "t0"}]);
        let same = with(&before, &[Change::new("Ready", "True", "B", "b")], &json!(2), "t1");
        assert_eq!(
            find(&same, "Ready").map(|one| one["lastTransitionTime"].clone()),
            Some(json!("t0"))
        );
        let other = with(&before, &[Change::new("Ready", "False", "B", "b")], &json!(2), "t1");
        assert_eq!(
            find(&other, "Ready").map(|one| one["lastTransitionTime"].clone()),
            Some(json!("t1"))
        );
        assert_eq!(find(&other, "Other"), find(&before, "Other"));
        assert_eq!(
            find(&other, "Ready").map(|one| one["observedGeneration"].clone()),
            Some(json!(2))
        );
    }
}
