//! Which hosts a plane should have, and what is said of it. Pure.

use mica_api::control_plane::{
    ControlPlaneClassSpec, ControlPlaneSpec, EndpointPolicy, UID_ANNOTATION, condition as types, reason,
};
use serde_json::{Value, json};

use super::gateway::{Found, Routed, Wanted};
use crate::condition::{self, Change};
use crate::endpoint::template::Filling;
use crate::endpoint::{self, read, template, url};

/// On a plane: the hosts that it has from its control plane, with commas between. Others that it has are somebody else's
/// affair.
pub const HOSTS: &str = "controlplane.kplane.dev/hosts";

/// What was read about a control plane.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub control_plane: Value,
    pub class: Option<Value>,
    /// The one it names, or the one that is made for it.
    pub endpoint: Option<Value>,
    /// The Plane on the shared server: it says who has a host.
    pub plane: Option<Value>,
    /// The Plane on a server of its own, if it lives there.
    pub own: Option<Value>,
    /// The base address of the server that it lives on.
    pub server: String,
    /// What its class wants of a Gateway, and what there is of the route.
    pub gateway: Option<(Wanted, Found)>,
}

impl Observed {
    pub fn name(&self) -> &str {
        self.control_plane["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// How it stands with a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Held(String),
    /// Another plane has it.
    Taken {
        host: String,
        holder: String,
    },
    /// The server does not give it away.
    Refused {
        host: String,
        message: String,
    },
}

/// What is to change about a plane's hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    pub drop: Vec<String>,
    pub add: Vec<String>,
    pub held: Vec<String>,
}

/// The hosts that a control plane is to be served at, without twins.
pub fn hosts(observed: &Observed) -> Vec<String> {
    let control_plane = &observed.control_plane;
    if !control_plane["metadata"]["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let spec: ControlPlaneSpec = read(&control_plane["spec"]);
    let by_template = spec.endpoint_policy == Some(EndpointPolicy::Template);
    let mut all: Vec<String> = match &observed.endpoint {
        // The Gateway shows a certificate of its own and asks the server by another name.
        _ if observed.gateway.is_some() => Vec::new(),
        Some(endpoint) if !by_template => match endpoint::is_routed_by_gateway(endpoint) {
            true => Vec::new(),
            false => endpoint::urls(endpoint).into_iter().map(|(_, url)| url).collect(),
        },
        _ => templates(observed),
    };
    let own = url::parse(&observed.server)
        .map(|server| server.host)
        .unwrap_or_default();
    all = all.iter().filter_map(|url| url::claimable_host(url)).collect();
    // That of the server itself leads to root.
    all.retain(|host| *host != own);
    all.sort();
    all.dedup();
    all
}

fn templates(observed: &Observed) -> Vec<String> {
    let Some(class) = &observed.class else {
        return Vec::new();
    };
    let templates = read::<ControlPlaneClassSpec>(&class["spec"])
        .endpoints
        .unwrap_or_default();
    let path = endpoint::cluster_path(&observed.control_plane);
    let filling = Filling {
        name: observed.name(),
        cluster_path: &path,
        server: &observed.server,
    };
    let all = [templates.internal, templates.external, templates.join];
    all.iter().map(|one| template::url(one, &filling)).collect()
}

/// Whether a plane is the control plane's.
pub fn is_its(control_plane: &Value, plane: &Value) -> bool {
    let whose = &plane["metadata"]["annotations"][UID_ANNOTATION];
    !whose.is_null() && *whose == control_plane["metadata"]["uid"]
}

/// Whether a plane of the shared server lives on another.
pub fn is_away(plane: &Value) -> bool {
    matches!(plane["spec"]["state"].as_str(), Some("Moved" | "Arriving"))
}

/// What is to change about the hosts of a plane.
pub fn claims(plane: &Value, wanted: &[String]) -> Claims {
    let (ours, present) = (ours(plane), present(plane));
    let is_in = |all: &[String], host: &String| all.contains(host);
    Claims {
        drop: ours.iter().filter(|host| !is_in(wanted, host)).cloned().collect(),
        add: wanted.iter().filter(|host| !is_in(&present, host)).cloned().collect(),
        held: wanted.iter().filter(|host| is_in(&present, host)).cloned().collect(),
    }
}

/// The hosts of a plane that it has from its control plane.
fn ours(plane: &Value) -> Vec<String> {
    let text = plane["metadata"]["annotations"][HOSTS].as_str().unwrap_or_default();
    text.split(',')
        .filter(|host| !host.is_empty())
        .map(str::to_owned)
        .collect()
}

fn present(plane: &Value) -> Vec<String> {
    let all = plane["spec"]["addresses"].as_array().map_or(&[][..], Vec::as_slice);
    let hosts = all.iter().filter(|address| address["type"] == "Host");
    hosts
        .filter_map(|address| Some(address["value"].as_str()?.to_owned()))
        .collect()
}

/// A patch for a plane as it was read, with hosts less and a host more.
pub fn patch(plane: &Value, drop: &[String], add: Option<&String>) -> Value {
    let mut addresses = plane["spec"]["addresses"].as_array().cloned().unwrap_or_default();
    addresses.retain(|address| address["type"] != "Host" || !drop.iter().any(|host| address["value"] == **host));
    let mut ours = ours(plane);
    ours.retain(|host| !drop.contains(host));
    if let Some(host) = add {
        addresses.push(json!({"type": "Host", "value": host}));
        ours.push(host.clone());
        ours.sort();
    }
    let noted = if ours.is_empty() {
        Value::Null
    } else {
        ours.join(",").into()
    };
    json!({
        "metadata": {
            "resourceVersion": plane["metadata"]["resourceVersion"],
            "annotations": {HOSTS: noted},
        },
        "spec": {"addresses": addresses},
    })
}

/// The status of the endpoint, if something else is to be said there about where its host leads.
pub fn status(observed: &Observed, routed: &Routed, verdicts: &[Verdict], now: &str) -> Option<Value> {
    let endpoint = observed.endpoint.as_ref()?;
    let name = observed.name();
    let before = &endpoint["status"]["conditions"];
    let said = condition::find(before, types::ROUTED);
    let by_another = said.and_then(named_in).is_some_and(|named| named != name);
    let change = match routed {
        Routed::NotAsked => by_host(observed, verdicts),
        _ => by_route(observed, routed),
    };
    let Some(change) = change else {
        // Nothing is asked for. What is said of another is the other's.
        said.filter(|_| !by_another)?;
        let mut left = before.as_array().cloned().unwrap_or_default();
        left.retain(|condition| condition["type"] != types::ROUTED);
        return Some(json!({"conditions": left}));
    };
    // Several may name one endpoint: it tells of the one that has the host, or else of the first that wants it.
    if by_another && change.status != "True" {
        return None;
    }
    let after = condition::with(before, &[change], &endpoint["metadata"]["generation"], now);
    (after != *before).then(|| json!({"conditions": after}))
}

fn by_host(observed: &Observed, verdicts: &[Verdict]) -> Option<Change> {
    let name = observed.name();
    let mut held = Vec::new();
    for verdict in verdicts {
        match verdict {
            Verdict::Held(host) => held.push(host.as_str()),
            Verdict::Taken { host, holder } => {
                let message = format!(
                    "{host} is held by plane {holder:?}: choose another host, or take it from there; ControlPlane {name:?} waits for it"
                );
                return Some(Change::new(types::ROUTED, "False", reason::HOST_TAKEN, &message));
            }
            Verdict::Refused { host, message } => {
                let message = format!("{host} cannot lead to ControlPlane {name:?}: {message}");
                return Some(Change::new(types::ROUTED, "False", reason::HOST_REFUSED, &message));
            }
        }
    }
    if held.is_empty() {
        return None;
    }
    let mut message = format!("{} leads to ControlPlane {name:?}", held.join(", "));
    if observed.own.is_some() {
        let server = &observed.server;
        message = format!("{message} at its own server {server}: let DNS say the address of that one");
    }
    Some(Change::new(types::ROUTED, "True", reason::ROUTED, &message))
}

fn by_route(observed: &Observed, routed: &Routed) -> Option<Change> {
    let name = observed.name();
    let host = observed.gateway.as_ref().map_or("", |(wanted, _)| wanted.host.as_str());
    let no = |reason: &str, message: &str| Some(Change::new(types::ROUTED, "False", reason, message));
    match routed {
        Routed::NotAsked => None,
        Routed::Away => no(
            reason::ROUTE_REFUSED,
            &format!(
                "a route of the Gateway leads to the shared server, and ControlPlane {name:?} has one of its own: name an \
                 endpoint in its spec.endpointRef, or make it Virtual"
            ),
        ),
        Routed::Yes => {
            let message = format!("{host} leads to ControlPlane {name:?} by a route of its Gateway");
            Some(Change::new(types::ROUTED, "True", reason::ROUTED, &message))
        }
        Routed::NotServed => {
            let message = format!(
                "HTTPRoute is not served here: install the definitions of the Gateway API, and {host} leads to ControlPlane {name:?}"
            );
            no(reason::ROUTE_NOT_SERVED, &message)
        }
        Routed::Refused(why) => no(
            reason::ROUTE_REFUSED,
            &format!("the route of {host} to ControlPlane {name:?} is refused: {why}"),
        ),
        Routed::NameTaken => no(
            reason::NAME_TAKEN,
            &format!("ControlPlane {name:?} needs an endpoint of this name, and this one is not its own: rename it"),
        ),
    }
}

/// The control plane that a `Routed` condition tells of.
pub fn named_in(condition: &Value) -> Option<String> {
    let message = condition["message"].as_str()?;
    let (_, rest) = message.split_once("ControlPlane \"")?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed() -> Observed {
        Observed {
            control_plane: json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"endpointRef": {"name": "e"}}}),
            endpoint: Some(json!({"spec": {
                "endpoint": "https://shared.example/clusters/a/control-plane",
                "externalEndpoint": "https://a.cp.example", "joinEndpoint": "https://mica.example:6440"}})),
            plane: Some(json!({"metadata": {"annotations": {UID_ANNOTATION: "u"}, "resourceVersion": "7"}})),
            server: "https://mica.example:6440".to_owned(),
            ..Observed::default()
        }
    }

    fn claimed(observed: &Observed) -> (Vec<String>, Vec<String>, Vec<String>) {
        let plane = observed.plane.as_ref().expect("it is there");
        let claims = claims(plane, &hosts(observed));
        (claims.drop, claims.add, claims.held)
    }

    fn list(hosts: &[&str]) -> Vec<String> {
        hosts.iter().map(|host| (*host).to_owned()).collect()
    }

    #[test]
    fn a_plane_gets_the_hosts_of_its_endpoint_and_loses_them_with_it() {
        let mut seen = observed();
        assert_eq!(claimed(&seen), (list(&[]), list(&["a.cp.example"]), list(&[])));
        let plane = seen.plane.clone().expect("it is there");
        let patched = patch(&plane, &[], Some(&"a.cp.example".to_owned()));
        assert_eq!(
            patched["spec"]["addresses"],
            json!([{"type": "Host", "value": "a.cp.example"}])
        );
        assert_eq!(patched["metadata"]["annotations"][HOSTS], "a.cp.example");
        let mut has = plane;
        has["spec"]["addresses"] =
            json!([{"type": "Host", "value": "a.cp.example"}, {"type": "Host", "value": "by.hand"}]);
        has["metadata"]["annotations"][HOSTS] = "a.cp.example".into();
        seen.plane = Some(has.clone());
        assert_eq!(claimed(&seen), (list(&[]), list(&[]), list(&["a.cp.example"])));
        seen.endpoint = None;
        assert_eq!(claimed(&seen), (list(&["a.cp.example"]), list(&[]), list(&[])));
        let patched = patch(&has, &list(&["a.cp.example"]), None);
        assert_eq!(
            patched["spec"]["addresses"],
            json!([{"type": "Host", "value": "by.hand"}])
        );
        assert!(patched["metadata"]["annotations"][HOSTS].is_null());
    }

    #[test]
    fn templates_give_hosts_and_planes_of_others_are_left_alone() {
        let mut seen = observed();
        seen.control_plane["spec"] = json!({});
        seen.endpoint = None;
        seen.class = Some(
            json!({"spec": {"endpoints": {"internal": "{server}/clusters/{clusterPath}/control-plane",
            "external": "https://{name}.cp.example"}}}),
        );
        assert_eq!(hosts(&seen), ["a.cp.example"]);
        assert!(!is_its(&seen.control_plane, &json!({"metadata": {"name": "a"}})));
        assert!(is_its(&seen.control_plane, seen.plane.as_ref().unwrap()));
        seen.control_plane["metadata"]["deletionTimestamp"] = "t".into();
        assert_eq!(hosts(&seen), [""; 0]);
    }

    fn said(seen: &Observed, verdicts: &[Verdict]) -> Option<String> {
        let status = status(seen, &Routed::NotAsked, verdicts, "t")?;
        let routed = condition::find(&status["conditions"], "Routed");
        Some(routed.map_or_else(
            || "nothing".to_owned(),
            |one| format!("{} {} {:?}", one["status"], one["reason"], named_in(one)).replace('"', ""),
        ))
    }

    #[test]
    fn an_endpoint_tells_who_has_its_host_and_several_do_not_argue() {
        let mut seen = observed();
        let held = [Verdict::Held("a.cp.example".to_owned())];
        let taken = [Verdict::Taken {
            host: "a.cp.example".to_owned(),
            holder: "b".to_owned(),
        }];
        assert_eq!(said(&seen, &held).as_deref(), Some("True Routed Some(a)"));
        assert_eq!(said(&seen, &taken).as_deref(), Some("False HostTaken Some(a)"));
        assert_eq!(said(&seen, &[]), None);
        seen.own = seen.plane.clone();
        let at_its_own = status(&seen, &Routed::NotAsked, &held, "t").expect("it is told");
        assert_eq!(
            at_its_own["conditions"][0]["message"],
            "a.cp.example leads to ControlPlane \"a\" at its own server https://mica.example:6440: \
             let DNS say the address of that one"
        );
        assert_eq!(said(&seen, &held).as_deref(), Some("True Routed Some(a)"));
        let of = |name: &str, status: &str| json!({"conditions": [{"type": "Routed", "status": status, "message": format!("h leads to ControlPlane {name:?}")}]});
        let endpoint = seen.endpoint.clone().expect("it is there");
        for (before, verdicts, expected) in [
            (of("b", "True"), &taken[..], None),
            (of("b", "False"), &taken[..], None),
            (of("b", "False"), &held[..], Some("True Routed Some(a)")),
            (of("b", "True"), &[], None),
            (of("a", "True"), &[], Some("nothing")),
        ] {
            let mut endpoint = endpoint.clone();
            endpoint["status"] = before;
            seen.endpoint = Some(endpoint);
            assert_eq!(said(&seen, verdicts).as_deref(), expected);
        }
    }
}
