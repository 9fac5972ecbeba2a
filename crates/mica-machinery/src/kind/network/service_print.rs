//! A service's row.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kind::check::strings;
use crate::kind::column::age;
use crate::kind::workload::{labels_cell, number};
use crate::object;

pub fn cells(service: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let ports: Vec<String> = object::list(service, &["spec", "ports"]).iter().map(port).collect();
    let address = strings(service, &["spec", "clusterIPs"]).first().copied();
    vec![
        object::name(service).into(),
        object::string(service, &["spec", "type"]).into(),
        address.unwrap_or("<none>").into(),
        external(service).into(),
        if ports.is_empty() {
            "<none>".into()
        } else {
            ports.join(",").into()
        },
        age(service, now),
        labels_cell(service, &["spec", "selector"]),
    ]
}

fn port(port: &Value) -> String {
    let (own, protocol) = (number(port, &["port"]), object::string(port, &["protocol"]));
    match number(port, &["nodePort"]) {
        node @ 1.. => format!("{own}:{node}/{protocol}"),
        _ => format!("{own}/{protocol}"),
    }
}

fn external(service: &Value) -> String {
    let mut own = strings(service, &["spec", "externalIPs"]).join(",");
    match object::string(service, &["spec", "type"]) {
        "ClusterIP" | "NodePort" if own.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => own,
        "LoadBalancer" => {
            let balancer = balancer(object::list(service, &["status", "loadBalancer", "ingress"]));
            match (own.is_empty(), balancer.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => balancer,
                (false, true) => own,
                (false, false) => {
                    own.insert(0, ',');
                    own.insert_str(0, &balancer);
                    own
                }
            }
        }
        "ExternalName" => object::string(service, &["spec", "externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses and names of a load balancer, in the order of their texts. A table always shows them whole: what is wide is for
/// the client to say.
pub fn balancer(ingress: &[Value]) -> String {
    let shown = |one| match object::string(one, &["ip"]) {
        "" => object::string(one, &["hostname"]),
        ip => ip,
    };
    let all: BTreeSet<&str> = ingress.iter().map(shown).filter(|one| !one.is_empty()).collect();
    all.into_iter().collect::<Vec<_>>().join(",")
}
