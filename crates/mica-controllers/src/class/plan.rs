//! What the status of a class should be.

use mica_api::control_plane::{Auth, ControlPlaneClassSpec, condition as types, reason, service_is_valid};
use mica_machinery::names;
use serde_json::{Value, json};

use crate::condition::{self, Change};
use crate::endpoint::template::{self, Filling};
use crate::endpoint::{read, url};

/// What templates are tried with.
const TRIAL: Filling<'static> = Filling {
    name: "name",
    cluster_path: "path",
    server: "https://server.example",
};

#[derive(Clone, Debug)]
pub struct Observed {
    pub class: Value,
    /// Addons that the class names and nobody has.
    pub unknown: Vec<String>,
}

/// The status, if it has to change.
pub fn plan(observed: &Observed, now: &str) -> Option<Value> {
    let class = &observed.class;
    if !class["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let spec: ControlPlaneClassSpec = read(&class["spec"]);
    let problems = problems(&spec, &observed.unknown);
    let accepted = match problems.first() {
        None => Change::new(types::ACCEPTED, "True", reason::ACCEPTED, "control planes can have it"),
        Some((reason, _)) => {
            let all: Vec<&str> = problems.iter().map(|(_, message)| message.as_str()).collect();
            Change::new(types::ACCEPTED, "False", reason, &all.join("; "))
        }
    };
    let before = &class["status"];
    let status = json!({
        "conditions": condition::with(&before["conditions"], &[accepted], &class["metadata"]["generation"], now),
        "observedGeneration": class["metadata"]["generation"],
    });
    let changes = status.as_object()?.iter().any(|(field, value)| before[field] != *value);
    changes.then_some(status)
}

/// What is wrong, and the reasons.
fn problems(spec: &ControlPlaneClassSpec, unknown: &[String]) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(message) = spec.auth.as_ref().and_then(Auth::model_problem) {
        all.push((reason::AUTH_MODEL_NOT_SUPPORTED, message));
    }
    for addon in unknown {
        let message = format!(
            "there is no addon {addon:?}: label a ConfigMap of namespace kplane-system with controlplane.kplane.dev/addon={addon}, or put it into the operator's directory of addons"
        );
        all.push((reason::ADDON_NOT_FOUND, message));
    }
    let templates = spec.endpoints.clone().unwrap_or_default();
    for (field, text) in [
        ("internal", templates.internal),
        ("external", templates.external),
        ("join", templates.join),
    ] {
        if let Some(problem) = template_problem(&text) {
            let message = format!("spec.endpoints.{field} {text:?}: {problem}");
            all.push((reason::INVALID_ENDPOINT, message));
        }
    }
    if let Some(gateway) = &spec.gateway {
        let text = &gateway.hostname_template;
        let host = template::host(text, TRIAL.name);
        let problem = if host == *text {
            Some("every control plane would have the same host: it needs {{.Name}}")
        } else if names::dns1123_subdomain(&host.to_ascii_lowercase()).is_empty() {
            None
        } else {
            Some("it makes no host: write it as {{.Name}}.DOMAIN")
        };
        if let Some(problem) = problem {
            let message = format!("spec.gateway.hostnameTemplate {text:?}: {problem}");
            all.push((reason::INVALID_ENDPOINT, message));
        }
    }
    for service in spec.services.iter().filter(|service| !service_is_valid(service)) {
        let message = format!("spec.services: {service:?} is not the name of a service");
        all.push((reason::INVALID_SERVICE, message));
    }
    all
}

fn template_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let filled = template::url(text, &TRIAL);
    if let Some(place) = template::unknown_place(&filled) {
        return Some(format!(
            "{place:?} is not known: there are {{name}}, {{clusterPath}} and {{server}}"
        ));
    }
    url::parse(&filled).err().map(|problem| problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, unknown: &[&str], expected: &str) {
        let mut observed = Observed {
            class: json!({"metadata": {"generation": 1}, "spec": spec}),
            unknown: unknown.iter().map(|one| (*one).to_owned()).collect(),
        };
        let status = plan(&observed, "t").expect("it is new");
        let accepted = condition::find(&status["conditions"], "Accepted").expect("it is set");
        let text = |field: &str| accepted[field].as_str().unwrap_or_default().to_owned();
        assert_eq!(
            format!("{} {}: {}", text("status"), text("reason"), text("message")),
            expected
        );
        observed.class["status"] = status;
        assert_eq!(plan(&observed, "later"), None, "it settles");
    }

    #[test]
    fn a_class_tells_what_cannot_be_given() {
        let good = json!({"addons": ["starter"], "auth": {"model": "basic"}, "services": ["controllers"],
            "endpoints": {"internal": "{server}/clusters/{clusterPath}/control-plane", "external": "https://{name}.example"},
            "gateway": {"parentRef": {"name": "gw"}, "hostnameTemplate": "{{.Name}}.example"}});
        check(good, &[], "True Accepted: control planes can have it");
        check(
            json!({"auth": {"model": "v0"}}),
            &[],
            "True Accepted: control planes can have it",
        );
        check(
            json!({"auth": {"model": "oidc"}}),
            &[],
            "False AuthModelNotSupported: spec.auth.model \"oidc\" is not known: write \"basic\" (or \"v0\", which is the same), or leave it out",
        );
        check(
            json!({"addons": ["x"]}),
            &["x"],
            "False AddonNotFound: there is no addon \"x\": label a ConfigMap of namespace kplane-system with controlplane.kplane.dev/addon=x, or put it into the operator's directory of addons",
        );
        check(
            json!({"endpoints": {"external": "https://{tenant}.example", "join": "{name}.example"}}),
            &[],
            "False InvalidEndpoint: spec.endpoints.external \"https://{tenant}.example\": \"{tenant}\" is not known: there are {name}, {clusterPath} and {server}; spec.endpoints.join \"{name}.example\": it does not begin with https:// or http://: write it as https://HOST[:PORT][/PATH]",
        );
        check(
            json!({"gateway": {"parentRef": {"name": "gw"}, "hostnameTemplate": "one.example"}}),
            &[],
            "False InvalidEndpoint: spec.gateway.hostnameTemplate \"one.example\": every control plane would have the same host: it needs {{.Name}}",
        );
    }
}
