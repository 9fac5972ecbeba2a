//! What the status of a membership should be.

use mica_api::tenancy::DISPLAY_NAME_ANNOTATION;
use serde_json::{Value, json};

use crate::condition::{self, Change};

#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub membership: Value,
    pub organization: Option<Value>,
}

/// The status, if it has to change.
pub fn plan(observed: &Observed, now: &str) -> Option<Value> {
    let membership = &observed.membership;
    if !membership["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let before = &membership["status"];
    let ready = match &observed.organization {
        Some(_) => Change::new("Ready", "True", "Ready", "OrganizationMembership is ready"),
        None => Change::new(
            "Ready",
            "False",
            "OrganizationNotFound",
            "its organization is not there",
        ),
    };
    let roles = membership["spec"]["roles"].as_array().cloned().unwrap_or_default();
    let applied = match roles.is_empty() {
        true => Change::new("RolesApplied", "True", "NoRolesSpecified", "no roles are given"),
        false => Change::new(
            "RolesApplied",
            "False",
            "PartialRolesApplied",
            "roles count when access management is served",
        ),
    };
    let pending: Vec<Value> = roles
        .iter()
        .map(|role| {
            let mut applied = role.clone();
            applied["status"] = "Pending".into();
            applied
        })
        .collect();
    let generation = &membership["metadata"]["generation"];
    let mut status = json!({
        "conditions": condition::with(&before["conditions"], &[ready, applied], generation, now),
        "observedGeneration": generation,
    });
    if let Some(organization) = &observed.organization {
        let mut shown = json!({"type": organization["spec"]["type"]});
        let name = &organization["metadata"]["annotations"][DISPLAY_NAME_ANNOTATION];
        if name.is_string() {
            shown["displayName"] = name.clone();
        }
        status["organization"] = shown;
    }
    if !pending.is_empty() || before["appliedRoles"].is_array() {
        status["appliedRoles"] = pending.into();
    }
    let changes = status.as_object()?.iter().any(|(field, value)| before[field] != *value);
    changes.then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_repeats_its_organization_and_settles() {
        let mut observed = Observed {
            membership: json!({"metadata": {"name": "m", "generation": 1}, "spec": {"roles": [{"name": "owner"}]}}),
            organization: Some(json!({"metadata": {"annotations": {DISPLAY_NAME_ANNOTATION: "Acme"}},
                "spec": {"type": "Standard"}})),
        };
        let status = plan(&observed, "t").expect("it is new");
        assert_eq!(
            status["organization"],
            json!({"type": "Standard", "displayName": "Acme"})
        );
        assert_eq!(status["appliedRoles"], json!([{"name": "owner", "status": "Pending"}]));
        assert_eq!(
            condition::find(&status["conditions"], "Ready").map(|one| &one["reason"]),
            Some(&json!("Ready"))
        );
        observed.membership["status"] = status;
        assert_eq!(plan(&observed, "later"), None);
        observed.organization = None;
        let status = plan(&observed, "later").expect("it is gone");
        let ready = condition::find(&status["conditions"], "Ready").expect("it is set");
        assert_eq!(ready["reason"], "OrganizationNotFound");
    }
}
