//! What the status of an endpoint should be.

use mica_api::control_plane::{condition as types, reason};
use serde_json::{Value, json};

use super::{url, urls};
use crate::condition::{self, Change};

#[derive(Clone, Debug)]
pub struct Observed {
    pub endpoint: Value,
    pub routed: Routed,
}

/// Whether the control plane that a `Routed` condition tells of still names the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Routed {
    Nobody,
    Named,
}

/// The status, if it has to change.
pub fn plan(observed: &Observed, now: &str) -> Option<Value> {
    let endpoint = &observed.endpoint;
    if !endpoint["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let before = &endpoint["status"];
    let mut conditions = condition::with(
        &before["conditions"],
        &[ready(endpoint)],
        &endpoint["metadata"]["generation"],
        now,
    );
    if observed.routed == Routed::Nobody
        && let Some(all) = conditions.as_array_mut()
    {
        all.retain(|condition| condition["type"] != types::ROUTED);
    }
    let status = json!({"conditions": conditions, "observedGeneration": endpoint["metadata"]["generation"]});
    let changes = status.as_object()?.iter().any(|(field, value)| before[field] != *value);
    changes.then_some(status)
}

/// Whether its URLs can be used.
fn ready(endpoint: &Value) -> Change {
    let no = |reason: &str, message: &str| Change::new(types::READY, "False", reason, message);
    let urls = urls(endpoint);
    let problems: Vec<String> = urls
        .iter()
        .filter_map(|(field, text)| Some(format!("{field} {text:?}: {}", url::parse(text).err()?)))
        .collect();
    if !problems.is_empty() {
        return no(reason::INVALID_ENDPOINT, &problems.join("; "));
    }
    if urls.is_empty() {
        let message = "it has no URL yet: set spec.endpoint, or let a provider set status.endpoint";
        return no(reason::ENDPOINT_PENDING, message);
    }
    Change::new(types::READY, "True", reason::RECONCILED, "its URLs can be used")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, status: Value, expected: &str) {
        let endpoint = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        let observed = Observed {
            endpoint,
            routed: Routed::Nobody,
        };
        let status = plan(&observed, "t").expect("it is new");
        let ready = condition::find(&status["conditions"], "Ready").expect("it is set");
        let shown = format!("{} {}: {}", ready["status"], ready["reason"], ready["message"]).replace('"', "");
        assert_eq!(shown.replace('\\', "'"), expected);
        let mut settled = observed.clone();
        for (field, value) in status.as_object().expect("a map") {
            settled.endpoint["status"][field] = value.clone();
        }
        assert_eq!(plan(&settled, "later"), None, "it settles");
    }

    #[test]
    fn bad_urls_are_told_with_what_to_write_instead() {
        check(
            json!({"endpoint": "https://a.example:6443", "externalEndpoint": "https://does-not.resolve.example"}),
            json!({}),
            "True Reconciled: its URLs can be used",
        );
        check(
            json!({}),
            json!({}),
            "False EndpointPending: it has no URL yet: set spec.endpoint, or let a provider set status.endpoint",
        );
        check(
            json!({"endpoint": "a.example"}),
            json!({}),
            "False InvalidEndpoint: spec.endpoint 'a.example': it does not begin with https:// or http://: write it as https://HOST[:PORT][/PATH]",
        );
        check(
            json!({"endpoint": "a.example"}),
            json!({"endpoint": "https://seen.example"}),
            "True Reconciled: its URLs can be used",
        );
        check(
            json!({"endpoint": "https://a.example"}),
            json!({"joinEndpoint": "https://"}),
            "False InvalidEndpoint: status.joinEndpoint 'https://': it names no host: write it as https://HOST[:PORT][/PATH]",
        );
    }

    #[test]
    fn what_was_said_of_a_route_goes_with_whoever_named_the_endpoint() {
        let routed = json!({"type": "Routed", "status": "True", "reason": "Routed", "message": "m"});
        let endpoint = json!({"spec": {"endpoint": "https://a.example"}, "status": {"conditions": [routed]}});
        for (state, stays) in [(Routed::Named, true), (Routed::Nobody, false)] {
            let observed = Observed {
                endpoint: endpoint.clone(),
                routed: state,
            };
            let status = plan(&observed, "t").expect("Ready is new");
            assert_eq!(condition::find(&status["conditions"], "Routed").is_some(), stays);
        }
    }
}
