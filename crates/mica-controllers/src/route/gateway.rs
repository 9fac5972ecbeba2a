//! The endpoint and the Gateway API route of a control plane whose class has a Gateway.
//!
//! The route leads a host of its own to the path of the plane on the server, so that clients need no path. Both are kept as
//! they should be and go with their ControlPlane.

use mica_api::control_plane::{
    API_VERSION, ControlPlaneClassSpec, ControlPlaneSpec, EndpointPolicy, NAME_LABEL, gateway_endpoint, label_value,
};
use mica_machinery::names;
use serde_json::{Value, json};

use super::ROUTES;
use crate::endpoint::{self, GATEWAY_LABEL, read, template, url};
use crate::place::{self, Place};

const ROUTE_VERSION: &str = "v1";
/// The Service of the server, where a class names none.
const SERVICE: (&str, &str, i64) = ("kplane-apiserver", "kplane-apiserver", 443);

/// What there is of the route.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    Present(Value),
    Absent,
    /// The host cluster does not serve routes.
    NotServed,
}

/// How it stands with the route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Routed {
    /// None is asked for.
    NotAsked,
    Yes,
    NotServed,
    /// The host cluster refuses it.
    Refused(String),
    /// The name of the endpoint is somebody else's.
    NameTaken,
    /// The plane is not on the server that routes lead to.
    Away,
}

/// The endpoint and the route as they should be.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted {
    pub endpoint: Value,
    pub route: Value,
    pub host: String,
}

impl Wanted {
    pub fn endpoint_name(&self) -> &str {
        self.endpoint["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.route["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    pub fn route_path(&self) -> String {
        let name = self.route["metadata"]["name"].as_str().unwrap_or_default();
        place::object(&Place::root(), &route_version(), ROUTES.1, Some(self.namespace()), name)
    }

    pub fn routes_path(&self) -> String {
        place::collection(&Place::root(), &route_version(), ROUTES.1, Some(self.namespace()))
    }
}

fn route_version() -> String {
    format!("{}/{ROUTE_VERSION}", ROUTES.0)
}

/// What a control plane of a class is to have; nothing where the class has templates or no Gateway, or the control plane names
/// an endpoint of its own. A template that makes no host is told of in the class.
pub fn wanted(control_plane: &Value, class: &Value, server: &str) -> Option<Wanted> {
    let class: ControlPlaneClassSpec = read(&class["spec"]);
    let templates = class.endpoints.unwrap_or_default();
    if ![&templates.internal, &templates.external, &templates.join]
        .iter()
        .all(|one| one.is_empty())
    {
        return None;
    }
    let gateway = class.gateway?;
    let spec: ControlPlaneSpec = read(&control_plane["spec"]);
    let name = control_plane["metadata"]["name"].as_str()?;
    let endpoint_name = gateway_endpoint(name);
    let own = spec
        .endpoint_ref
        .is_none_or(|one| one.name.is_empty() || one.name == endpoint_name);
    let leaving = !control_plane["metadata"]["deletionTimestamp"].is_null();
    if !own || leaving || spec.endpoint_policy == Some(EndpointPolicy::Reference) {
        return None;
    }
    let host = template::host(&gateway.hostname_template, name).to_ascii_lowercase();
    if !names::dns1123_subdomain(&host).is_empty() {
        return None;
    }
    let path = endpoint::cluster_path(control_plane);
    let owner = json!({"apiVersion": API_VERSION, "kind": "ControlPlane", "name": name,
        "uid": control_plane["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let endpoint = json!({
        "apiVersion": API_VERSION,
        "kind": "ControlPlaneEndpoint",
        "metadata": {
            "name": endpoint_name,
            "labels": {NAME_LABEL: label_value(name), GATEWAY_LABEL: "route"},
            "ownerReferences": [owner],
        },
        "spec": {"endpoint": url::of_plane(server, &path), "externalEndpoint": format!("https://{host}")},
    });
    let service = gateway.api_server_ref.unwrap_or_default();
    let text = |field: &str, usual: &str| {
        let said = service[field].as_str().filter(|text| !text.is_empty());
        said.unwrap_or(usual).to_owned()
    };
    let mut parent = json!({"name": gateway.parent_ref.name});
    if !gateway.parent_ref.namespace.is_empty() {
        parent["namespace"] = gateway.parent_ref.namespace.into();
    }
    let rewrite = json!({"type": "URLRewrite", "urlRewrite": {"path":
        {"type": "ReplacePrefixMatch", "replacePrefixMatch": format!("/clusters/{path}/control-plane")}}});
    let backend = json!({"name": text("name", SERVICE.1), "port": service["port"].as_i64().unwrap_or(SERVICE.2)});
    let route = json!({
        "apiVersion": route_version(),
        "kind": "HTTPRoute",
        "metadata": {
            "name": format!("{name}-route"),
            // Where the Service is: a route needs nobody's leave for a backend of its own namespace.
            "namespace": text("namespace", SERVICE.0),
            "labels": {NAME_LABEL: label_value(name)},
            "ownerReferences": [owner],
        },
        "spec": {
            "parentRefs": [parent],
            "hostnames": [host],
            "rules": [{
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "filters": [rewrite],
                "backendRefs": [backend],
            }],
        },
    });
    Some(Wanted { endpoint, route, host })
}

/// Whether an object has all that is wanted; servers add what they default.
pub fn has(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(field, wanted)| present.get(field).is_some_and(|present| has(present, wanted))),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len() && present.iter().zip(wanted).all(|(one, other)| has(one, other))
        }
        _ => present == wanted,
    }
}

/// Whether an object was made for a control plane.
pub fn is_of(object: &Value, control_plane: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let uid = &control_plane["metadata"]["uid"];
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == *uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> Value {
        json!({"spec": {"gateway": {"parentRef": {"name": "gw", "namespace": "edge"},
            "hostnameTemplate": "{{.Name}}.cp.example"}}})
    }

    #[test]
    fn a_class_with_a_gateway_gives_a_host_whose_root_is_the_plane() {
        let control_plane = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"virtual": {"clusterPath": "p"}}});
        let made = wanted(&control_plane, &class(), "https://mica.example:6440").expect("it has a gateway");
        assert_eq!(
            made.endpoint["spec"],
            json!({"endpoint": "https://mica.example:6440/clusters/p/control-plane",
                "externalEndpoint": "https://a.cp.example"})
        );
        assert_eq!(
            made.route_path(),
            "/apis/gateway.networking.k8s.io/v1/namespaces/kplane-apiserver/httproutes/a-route"
        );
        let rule = &made.route["spec"]["rules"][0];
        assert_eq!(
            rule["filters"][0]["urlRewrite"]["path"]["replacePrefixMatch"],
            "/clusters/p/control-plane"
        );
        assert_eq!(rule["backendRefs"][0], json!({"name": "kplane-apiserver", "port": 443}));
        assert!(is_of(&made.route, &control_plane) && is_of(&made.endpoint, &control_plane));
        for spec in [
            json!({"endpointRef": {"name": "mine"}}),
            json!({"endpointPolicy": "Reference"}),
        ] {
            let other = json!({"metadata": {"name": "a"}, "spec": spec});
            assert_eq!(wanted(&other, &class(), "https://mica.example"), None);
        }
        assert_eq!(
            wanted(&control_plane, &json!({"spec": {}}), "https://mica.example"),
            None
        );
    }

    #[test]
    fn what_servers_add_is_no_difference() {
        let wanted = json!({"a": [{"b": 1}], "c": "d"});
        assert!(has(&json!({"a": [{"b": 1, "x": 2}], "c": "d", "y": null}), &wanted));
        assert!(!has(&json!({"a": [{"b": 1}, {}], "c": "d"}), &wanted));
        assert!(!has(&json!({"a": [{"b": 2}], "c": "d"}), &wanted));
    }
}
