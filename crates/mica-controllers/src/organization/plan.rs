//! What an organization needs next.

use mica_api::tenancy::{NAMESPACE_ORGANIZATION_LABEL, NAMESPACE_TYPE_LABEL, organization_namespace};
use serde_json::{Value, json};

use crate::condition::{self, Change};

#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub organization: Value,
    pub namespace: Option<Value>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    CreateNamespace(Value),
    Status(Value),
}

pub fn plan(observed: &Observed, now: &str) -> Option<Step> {
    let organization = &observed.organization;
    let metadata = &organization["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        // What it owns goes after it.
        return None;
    }
    let Some(namespace) = &observed.namespace else {
        return Some(Step::CreateNamespace(namespace(organization)));
    };
    let ready = match namespace["metadata"]["deletionTimestamp"].is_null() {
        true => Change::new("Ready", "True", "Ready", "Organization is ready"),
        false => Change::new(
            "Ready",
            "False",
            "NamespaceTerminating",
            "its namespace is being deleted",
        ),
    };
    // Clients of hosted platforms ask for this before they do anything: here nothing is left to be done.
    let onboarded = Change::new("OnboardingComplete", "True", "Ready", "nothing is left to be done");
    let before = &organization["status"];
    let generation = &metadata["generation"];
    let conditions = condition::with(&before["conditions"], &[ready, onboarded], generation, now);
    if conditions == before["conditions"] && before["observedGeneration"] == *generation {
        return None;
    }
    Some(Step::Status(
        json!({"conditions": conditions, "observedGeneration": generation}),
    ))
}

fn namespace(organization: &Value) -> Value {
    let name = organization["metadata"]["name"].as_str().unwrap_or_default();
    let owner = json!({"apiVersion": organization["apiVersion"], "kind": "Organization", "name": name,
        "uid": organization["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": organization_namespace(name),
        "labels": {NAMESPACE_ORGANIZATION_LABEL: name, NAMESPACE_TYPE_LABEL: "organization"},
        "ownerReferences": [owner],
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_organization_is_ready_when_its_namespace_is_there() {
        let mut observed = Observed {
            organization: json!({"apiVersion": "g/v", "metadata": {"name": "acme", "uid": "u", "generation": 3}}),
            namespace: None,
        };
        let Some(Step::CreateNamespace(made)) = plan(&observed, "t") else {
            panic!("it has none")
        };
        assert_eq!(made["metadata"]["name"], "organization-acme");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u");
        observed.namespace = Some(made);
        let Some(Step::Status(status)) = plan(&observed, "t") else {
            panic!("nobody knows yet")
        };
        assert_eq!(status["observedGeneration"], 3);
        for r#type in ["Ready", "OnboardingComplete"] {
            let found = condition::find(&status["conditions"], r#type).expect("it is set");
            assert_eq!((&found["status"], &found["reason"]), (&json!("True"), &json!("Ready")));
        }
        observed.organization["status"] = status;
        assert_eq!(plan(&observed, "later"), None);
    }
}
