//! What a registration resolves to. Pure: what was read goes in, the status comes out.

use mica_api::control_plane::{
    ControlPlaneEndpointSpec, ControlPlaneEndpointStatus, ControlPlaneRegistrationSpec, ControlPlaneStatus, KUBECONFIG,
    SecretRef, condition as types, management_namespace, reason, service_is_valid,
};
use serde_json::{Value, json};

use crate::condition::{self, Change};
use crate::endpoint::{self, read, url};
use crate::event::{self, Severity, Told};

/// Everything that was read about a registration.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub registration: Value,
    pub control_plane: Option<Value>,
    /// The endpoint that the registration itself names.
    pub endpoint: Option<Value>,
    /// What is known of the Secret that it resolves to.
    pub secret: Secret,
}

/// The Secret with the kubeconfig.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Secret {
    #[default]
    Absent,
    /// It is there, without a kubeconfig.
    Empty,
    Usable,
}

/// What a registration resolves to, or why it does not.
struct Resolved {
    /// What is published; `None` leaves what was.
    endpoint: Option<String>,
    secret: Option<SecretRef>,
    ready: Change,
    /// Whether what was published before means nothing any more.
    before: Before,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Stays,
    IsVoid,
}

/// The status, if it has to change.
pub fn plan(observed: &Observed, now: &str) -> Option<Value> {
    let registration = &observed.registration;
    if !registration["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let spec: ControlPlaneRegistrationSpec = read(&registration["spec"]);
    let accepted = accepted(&spec);
    let mut resolved = resolve(observed, &spec);
    if accepted.status != "True" {
        resolved.ready = Change::new(types::READY, "False", &accepted.reason, &accepted.message);
    }
    let before = &registration["status"];
    let mut status = json!({
        "ready": resolved.ready.status == "True",
        "observedGeneration": registration["metadata"]["generation"],
        "conditions": condition::with(&before["conditions"], &[accepted, resolved.ready], &registration["metadata"]["generation"], now),
    });
    let void = resolved.before == Before::IsVoid;
    for (field, value) in [
        ("resolvedEndpoint", resolved.endpoint.map(Value::from)),
        (
            "resolvedKubeconfigSecretRef",
            resolved
                .secret
                .map(|secret| json!({"name": secret.name, "namespace": secret.namespace})),
        ),
    ] {
        match value {
            Some(value) => status[field] = value,
            None if void && before.get(field).is_some() => status[field] = Value::Null,
            None => {}
        }
    }
    let changes = status.as_object()?.iter().any(|(field, value)| before[field] != *value);
    changes.then_some(status)
}

/// Reasons that only say that something takes its time.
const WAITING: [&str; 2] = [reason::ENDPOINT_PENDING, reason::KUBECONFIG_PENDING];

/// What is told of a status that changes: that it is ready, that it is not any more, and where it moved.
pub fn told(before: &Value, after: &Value) -> Vec<Told> {
    let (was, is) = (&before["conditions"], &after["conditions"]);
    let was_ready = event::was_true(was, types::READY);
    let ready = event::transition(was, is, types::READY);
    // Steps on the way to the first time are no news.
    let ready = ready.filter(|told| was_ready || !WAITING.contains(&told.reason.as_str()));
    let moved = (was_ready && event::was_true(is, types::READY)).then(|| moved(before, after));
    ready.into_iter().chain(moved.flatten()).collect()
}

fn moved(before: &Value, after: &Value) -> Option<Told> {
    let [endpoint, secret] = ["resolvedEndpoint", "resolvedKubeconfigSecretRef"].map(|field| &after[field]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let message = if *endpoint != before["resolvedEndpoint"] {
        format!("from {} to {}", text(&before["resolvedEndpoint"]), text(endpoint))
    } else if *secret != before["resolvedKubeconfigSecretRef"] {
        format!(
            "the kubeconfig is in Secret {}/{}",
            text(&secret["namespace"]),
            text(&secret["name"])
        )
    } else {
        return None;
    };
    Some(Told {
        kind: Severity::Normal,
        reason: reason::MOVED.to_owned(),
        message,
    })
}

/// Whether what it asks for makes sense by itself.
fn accepted(spec: &ControlPlaneRegistrationSpec) -> Change {
    let no = |reason: &str, message: &str| Change::new(types::ACCEPTED, "False", reason, message);
    if spec.control_plane_ref.name.is_empty() {
        return no(reason::CONTROL_PLANE_REF_MISSING, MISSING);
    }
    if let Some(bad) = spec.services.iter().find(|service| !service_is_valid(service)) {
        let message = format!(
            "{bad:?} is not the name of a service: at most 63 letters, digits and dashes, such as controllers, scheduler or workloads"
        );
        return no(reason::INVALID_SERVICE, &message);
    }
    let message = match spec.services.is_empty() {
        true => "it asks for no service: name those in spec.services that are to serve the control plane",
        false => "services may follow it",
    };
    Change::new(types::ACCEPTED, "True", reason::ACCEPTED, message)
}

const MISSING: &str = "set spec.controlPlaneRef.name to the ControlPlane that services are to serve";

fn resolve(observed: &Observed, spec: &ControlPlaneRegistrationSpec) -> Resolved {
    let void = |reason: &str, message: &str| Resolved {
        endpoint: None,
        secret: None,
        ready: Change::new(types::READY, "False", reason, message),
        before: Before::IsVoid,
    };
    let name = &spec.control_plane_ref.name;
    if name.is_empty() {
        return void(reason::CONTROL_PLANE_REF_MISSING, MISSING);
    }
    let Some(control_plane) = &observed.control_plane else {
        let message = format!("there is no ControlPlane {name:?}: create it, or change spec.controlPlaneRef");
        return void(reason::CONTROL_PLANE_NOT_FOUND, &message);
    };
    let endpoint = endpoint_of(observed, spec, control_plane);
    let secret = secret_of(spec, control_plane);
    let problem = if control_plane["metadata"]["deletionTimestamp"].is_null() {
        let endpoint = endpoint.as_ref().err().cloned();
        endpoint.or_else(|| secret_problem(observed, secret.as_ref(), name))
    } else {
        Some((reason::DELETING, format!("ControlPlane {name:?} is being deleted")))
    };
    let ready = match problem {
        None => Change::new(
            types::READY,
            "True",
            reason::RESOLVED,
            "endpoint and kubeconfig are resolved",
        ),
        Some((reason, message)) => Change::new(types::READY, "False", reason, &message),
    };
    Resolved {
        endpoint: endpoint.ok(),
        secret,
        ready,
        before: Before::Stays,
    }
}

type Problem = (&'static str, String);

/// Where the control plane is reached: at the endpoint that the registration names, or at its own.
fn endpoint_of(
    observed: &Observed,
    spec: &ControlPlaneRegistrationSpec,
    control_plane: &Value,
) -> Result<String, Problem> {
    let named = spec.endpoint_ref.as_ref().filter(|one| !one.name.is_empty());
    let Some(named) = named else {
        let status: ControlPlaneStatus = read(&control_plane["status"]);
        let name = &spec.control_plane_ref.name;
        return match status.endpoint.is_empty() {
            true => Err((
                reason::ENDPOINT_PENDING,
                format!("ControlPlane {name:?} has no endpoint yet: its conditions say why"),
            )),
            false => Ok(status.endpoint),
        };
    };
    let Some(object) = &observed.endpoint else {
        let message = format!(
            "there is no ControlPlaneEndpoint {:?}: create it, or leave spec.endpointRef out",
            named.name
        );
        return Err((reason::ENDPOINT_PENDING, message));
    };
    let said: ControlPlaneEndpointSpec = read(&object["spec"]);
    let seen: ControlPlaneEndpointStatus = read(&object["status"]);
    let candidates = [
        seen.external_endpoint,
        said.external_endpoint,
        seen.endpoint,
        said.endpoint,
    ];
    let Some(found) = candidates.into_iter().find(|url| !url.is_empty()) else {
        let message = format!("ControlPlaneEndpoint {:?} has no URL yet", named.name);
        return Err((reason::ENDPOINT_PENDING, message));
    };
    match url::parse(&found) {
        Err(problem) => Err((
            reason::INVALID_ENDPOINT,
            format!("ControlPlaneEndpoint {:?}: {found:?}: {problem}", named.name),
        )),
        Ok(_) if endpoint::is_routed_by_gateway(object) || endpoint::is_anothers(control_plane) => Ok(found),
        Ok(_) => Ok(url::of_plane(&found, &endpoint::cluster_path(control_plane))),
    }
}

/// The Secret with the kubeconfig: the one that the registration names, or that of the control plane.
pub fn secret_of(spec: &ControlPlaneRegistrationSpec, control_plane: &Value) -> Option<SecretRef> {
    let status: ControlPlaneStatus = read(&control_plane["status"]);
    let named = spec.kubeconfig_secret_ref.clone().filter(|one| !one.name.is_empty());
    let found = named.or_else(|| status.kubeconfig_secret_ref.filter(|one| !one.name.is_empty()))?;
    Some(SecretRef {
        namespace: match found.namespace.is_empty() {
            true => management_namespace(&spec.control_plane_ref.name),
            false => found.namespace,
        },
        name: found.name,
    })
}

fn secret_problem(observed: &Observed, secret: Option<&SecretRef>, name: &str) -> Option<Problem> {
    let Some(secret) = secret else {
        let message = format!("ControlPlane {name:?} has no kubeconfig yet: its conditions say why");
        return Some((reason::KUBECONFIG_PENDING, message));
    };
    let at = format!("{}/{}", secret.namespace, secret.name);
    match observed.secret {
        Secret::Usable => None,
        Secret::Empty => Some((
            reason::KUBECONFIG_PENDING,
            format!("Secret {at:?} has nothing under its key {KUBECONFIG:?}"),
        )),
        Secret::Absent => Some((reason::KUBECONFIG_PENDING, format!("there is no Secret {at:?} yet"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn ready_plane() -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"virtual": {"clusterPath": "path"}}, "status": {
            "endpoint": "https://in.example/clusters/path/control-plane",
            "kubeconfigSecretRef": {"name": "s", "namespace": "kplane-cp-p"}}})
    }

    fn observed(spec: Value, control_plane: Option<Value>) -> Observed {
        Observed {
            registration: json!({"metadata": {"name": "r", "generation": 3}, "spec": spec}),
            control_plane,
            endpoint: None,
            secret: Secret::Usable,
        }
    }

    /// Ready's reason, the endpoint and the Secret that a registration resolves to.
    fn check(observed: &Observed, expected: &str) {
        let status = plan(observed, NOW).expect("it has no status yet");
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let ready = condition::find(&status["conditions"], "Ready").expect("it is set");
        let secret = &status["resolvedKubeconfigSecretRef"];
        let shown = format!(
            "{} {} {} {}/{}",
            status["ready"],
            text(&ready["reason"]),
            text(&status["resolvedEndpoint"]),
            text(&secret["namespace"]),
            text(&secret["name"]),
        );
        assert_eq!(shown, expected, "{status}");
        let mut settled = observed.clone();
        settled.registration["status"] = status;
        assert_eq!(plan(&settled, "later"), None, "it settles");
    }

    #[test]
    fn a_registration_resolves_from_its_spec_and_else_from_its_control_plane() {
        let own = json!({"controlPlaneRef": {"name": "p"}});
        check(&observed(json!({}), None), "false ControlPlaneRefMissing - -/-");
        check(&observed(own.clone(), None), "false ControlPlaneNotFound - -/-");
        check(
            &observed(own.clone(), Some(json!({"metadata": {"name": "p"}}))),
            "false EndpointPending - -/-",
        );
        let no_secret = json!({"status": {"endpoint": "https://in.example"}});
        check(
            &observed(own.clone(), Some(no_secret)),
            "false KubeconfigPending https://in.example -/-",
        );
        check(
            &observed(own.clone(), Some(ready_plane())),
            "true Resolved https://in.example/clusters/path/control-plane kplane-cp-p/s",
        );
        let missing = Observed {
            secret: Secret::Absent,
            ..observed(own, Some(ready_plane()))
        };
        check(
            &missing,
            "false KubeconfigPending https://in.example/clusters/path/control-plane kplane-cp-p/s",
        );
        let pinned = json!({"controlPlaneRef": {"name": "p"}, "kubeconfigSecretRef": {"name": "mine"}});
        check(
            &observed(pinned, Some(ready_plane())),
            "true Resolved https://in.example/clusters/path/control-plane kplane-cp-p/mine",
        );
    }

    #[test]
    fn a_named_endpoint_counts_before_the_control_planes_and_its_status_before_its_spec() {
        let spec = json!({"controlPlaneRef": {"name": "p"}, "endpointRef": {"name": "e"}});
        let mut seen = observed(spec, Some(ready_plane()));
        check(&seen, "false EndpointPending - kplane-cp-p/s");
        for (endpoint, expected) in [
            (json!({}), "false EndpointPending -"),
            (json!({"spec": {"endpoint": "nonsense"}}), "false InvalidEndpoint -"),
            (
                json!({"spec": {"endpoint": "https://a.example"}}),
                "true Resolved https://a.example/clusters/path/control-plane",
            ),
            (
                json!({"spec": {"endpoint": "https://a.example", "externalEndpoint": "https://b.example/clusters/path/control-plane"}}),
                "true Resolved https://b.example/clusters/path/control-plane",
            ),
            (
                json!({"spec": {"externalEndpoint": "https://b.example"}, "status": {"externalEndpoint": "https://c.example/"}}),
                "true Resolved https://c.example/clusters/path/control-plane",
            ),
        ] {
            seen.endpoint = Some(endpoint);
            check(&seen, &format!("{expected} kplane-cp-p/s"));
        }
        // Whoever else runs it need not have planes.
        let annotations = json!({"controlplane.kplane.dev/managed-by": "somebody"});
        seen.control_plane.as_mut().expect("it is there")["metadata"]["annotations"] = annotations;
        seen.endpoint = Some(json!({"spec": {"endpoint": "https://a.example"}}));
        check(&seen, "true Resolved https://a.example kplane-cp-p/s");
    }

    #[test]
    fn what_was_published_stays_until_its_control_plane_is_gone() {
        let mut seen = observed(json!({"controlPlaneRef": {"name": "p"}}), Some(ready_plane()));
        seen.registration["status"] = plan(&seen, NOW).expect("it is new");
        seen.control_plane = Some(json!({"metadata": {"name": "p"}}));
        let status = plan(&seen, NOW).expect("it degrades");
        assert_eq!(status["ready"], false);
        assert!(status.get("resolvedEndpoint").is_none() && status.get("resolvedKubeconfigSecretRef").is_none());
        seen.control_plane = None;
        let status = plan(&seen, NOW).expect("it degrades");
        assert!(status["resolvedEndpoint"].is_null() && status.get("resolvedEndpoint").is_some());
        let mut going = ready_plane();
        going["metadata"]["deletionTimestamp"] = NOW.into();
        seen.control_plane = Some(going);
        let status = plan(&seen, NOW).expect("it degrades");
        let ready = condition::find(&status["conditions"], "Ready").expect("it is set");
        assert_eq!(ready["reason"], reason::DELETING);
    }

    #[test]
    fn what_is_told_is_what_became_of_it_and_not_the_steps_on_the_way() {
        let status = |status: &str, reason: &str, endpoint: &str| {
            json!({"resolvedEndpoint": endpoint, "resolvedKubeconfigSecretRef": {"name": "s", "namespace": "n"},
                "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": "m"}]})
        };
        let ready = status("True", "Resolved", "a");
        let mut elsewhere = ready.clone();
        elsewhere["resolvedKubeconfigSecretRef"]["name"] = "t".into();
        for (before, after, expected) in [
            (&Value::Null, &status("False", "EndpointPending", ""), None),
            (
                &status("False", "EndpointPending", ""),
                &status("False", "KubeconfigPending", "a"),
                None,
            ),
            (
                &Value::Null,
                &status("False", "ControlPlaneNotFound", ""),
                Some("Warning ControlPlaneNotFound m"),
            ),
            (
                &status("False", "KubeconfigPending", "a"),
                &ready,
                Some("Normal Ready m"),
            ),
            (&ready, &ready, None),
            (
                &ready,
                &status("True", "Resolved", "b"),
                Some("Normal Moved from a to b"),
            ),
            (&ready, &elsewhere, Some("Normal Moved the kubeconfig is in Secret n/t")),
            (
                &ready,
                &status("False", "KubeconfigPending", "a"),
                Some("Warning KubeconfigPending m"),
            ),
            (&ready, &status("False", "Deleting", "a"), Some("Normal Deleting m")),
        ] {
            let told: Vec<String> = told(before, after)
                .iter()
                .map(|told| format!("{:?} {} {}", told.kind, told.reason, told.message))
                .collect();
            assert_eq!(told.first().map(String::as_str), expected, "{before} {after}");
            assert!(told.len() <= 1, "{told:?}");
        }
    }

    #[test]
    fn services_are_checked_and_conditions_of_consumers_stay() {
        let spec = json!({"controlPlaneRef": {"name": "p"}, "services": ["no good"]});
        let mut seen = observed(spec, Some(ready_plane()));
        seen.registration["status"]["conditions"] = json!([{"type": "ControllersEngaged", "status": "True"}]);
        let status = plan(&seen, NOW).expect("it is new");
        let find = |name: &str| {
            condition::find(&status["conditions"], name)
                .cloned()
                .unwrap_or_default()
        };
        assert_eq!(find("Accepted")["reason"], reason::INVALID_SERVICE);
        assert_eq!(
            (&status["ready"], &find("Ready")["status"]),
            (&json!(false), &json!("False"))
        );
        assert_eq!(find("ControllersEngaged")["status"], "True");
    }
}
