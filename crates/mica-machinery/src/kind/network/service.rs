//! Services: their types, and which addresses and ports they have to be given.
//!
//! Giving them is the server's, which knows what is taken; here stands what a service needs ([`Wants`]).

use serde_json::{Value, json};

use super::service_print::cells;
use super::service_update::{drop_unused, patch_allocated};
use super::service_validate as rules;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{is_set, list_mut, set_default, set_default_pointer, strings};
use crate::kind::plain::{Plain, Status};
use crate::kind::workload::number;
use crate::kind::{MetadataCheck, WriteContext};
use crate::{names, object};

/// Seconds that a client stays with one endpoint, if it stays at all.
const STAY: i64 = 10_800;

pub use super::service_family::settle as settle_families;

pub const SERVICE: Plain = Plain {
    name: names::name_is_dns_label,
    default,
    prepare,
    validate: |_, object| rules::validate(object, None),
    validate_update: |_, new, old| {
        let mut errors = super::service_update::validate(new, old);
        errors.extend(rules::validate(new, Some(old)));
        errors
    },
    // Upstream stores it and hides it from every reader, so that a bad one is still refused.
    canonicalize: |service| {
        if is_external(service) {
            object::remove(service, &["spec", "internalTrafficPolicy"]);
        }
        // A name may keep an address that is none, which every reader is shown twice.
        agree_on_addresses(service, None);
    },
    metadata_check: MetadataCheck::Change,
    status: Status::Apart,
    validate_status: rules::validate_status,
    cells,
    selectable: &["spec.clusterIP", "spec.type"],
    creates_on_update: true,
    returns_deleted: true,
    warnings: |ctx, new, _| match ctx.subresource {
        "status" => rules::status_warnings(new),
        _ => rules::warnings(new),
    },
    ..Plain::new("services", "io.k8s.api.core.v1.Service")
};

pub(super) fn r#type(service: &Value) -> &str {
    object::string(service, &["spec", "type"])
}

pub(super) fn is_external(service: &Value) -> bool {
    r#type(service) == "ExternalName"
}

/// Whether it has names of its pods only, and no address of its own.
pub fn is_headless(service: &Value) -> bool {
    strings(service, &["spec", "clusterIPs"]) == ["None"]
}

/// Whether anything outside reaches it.
pub(super) fn is_accessible(service: &Value) -> bool {
    let ips = !object::list(service, &["spec", "externalIPs"]).is_empty();
    ["NodePort", "LoadBalancer"].contains(&r#type(service)) || (r#type(service) == "ClusterIP" && ips)
}

pub(super) fn needs_node_ports(service: &Value) -> bool {
    let refused = object::get(service, &["spec", "allocateLoadBalancerNodePorts"]) == Some(&json!(false));
    r#type(service) == "NodePort" || (r#type(service) == "LoadBalancer" && !refused)
}

pub(super) fn needs_health_check(service: &Value) -> bool {
    r#type(service) == "LoadBalancer" && object::string(service, &["spec", "externalTrafficPolicy"]) == "Local"
}

fn default(service: &mut Value) {
    set_default(service, &["spec", "sessionAffinity"], "None");
    const CONFIG: [&str; 2] = ["spec", "sessionAffinityConfig"];
    const TIMEOUT: [&str; 4] = ["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"];
    match object::string(service, &["spec", "sessionAffinity"]) {
        "None" => drop(object::remove(service, &CONFIG)),
        "ClientIP" if !is_set(service, &TIMEOUT) => {
            object::set(service, &CONFIG, json!({"clientIP": {"timeoutSeconds": STAY}}));
        }
        _ => {}
    }
    set_default(service, &["spec", "type"], "ClusterIP");
    for port in list_mut(service, &["spec", "ports"]) {
        set_default(port, &["protocol"], "TCP");
        let own = port.get("port").cloned().unwrap_or(json!(0));
        set_default(port, &["targetPort"], own);
    }
    if is_accessible(service) {
        set_default(service, &["spec", "externalTrafficPolicy"], "Cluster");
    }
    if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&r#type(service)) {
        set_default_pointer(service, &["spec", "internalTrafficPolicy"], "Cluster");
    }
    if r#type(service) == "LoadBalancer" {
        set_default_pointer(service, &["spec", "allocateLoadBalancerNodePorts"], true);
        for ingress in list_mut(service, &["status", "loadBalancer", "ingress"]) {
            if !object::string(ingress, &["ip"]).is_empty() {
                set_default_pointer(ingress, &["ipMode"], "VIP");
            }
        }
    }
}

fn prepare(ctx: &WriteContext<'_>, new: &mut Value, old: Option<&Value>) {
    if ctx.subresource == "status" {
        return;
    }
    if let Some(old) = old {
        patch_allocated(new, old);
    }
    agree_on_addresses(new, old);
    if let Some(old) = old {
        drop_unused(new, old);
    }
}

/// One address has two fields: old clients know one, and both say the same.
fn agree_on_addresses(new: &mut Value, old: Option<&Value>) {
    const ONE: [&str; 2] = ["spec", "clusterIP"];
    const ALL: [&str; 2] = ["spec", "clusterIPs"];
    let one = object::string(new, &ONE).to_owned();
    let Some(old) = old else {
        if !one.is_empty() && object::list(new, &ALL).is_empty() {
            object::set(new, &ALL, json!([one]));
        }
        return;
    };
    let before = object::string(old, &ONE);
    if object::list(new, &ALL).is_empty() && one == before && !object::list(old, &ALL).is_empty() {
        object::copy(old, new, &ALL);
    }
    let same_list = object::list(new, &ALL) == object::list(old, &ALL);
    if one != before && same_list {
        if one.is_empty() {
            object::remove(new, &ALL);
        } else {
            object::set(new, &ALL, json!([one]));
        }
    }
}

/// What a service must be given before it can be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// An address of its own.
    Address,
    /// A port of every node for the service's port at this place.
    NodePort(usize),
    HealthCheckPort,
}

/// What a service, new or changed, still has to be given.
pub fn wants(service: &Value) -> Vec<Want> {
    let mut wants = Vec::new();
    if is_external(service) {
        return wants;
    }
    if object::string(service, &["spec", "clusterIP"]).is_empty()
        && object::list(service, &["spec", "clusterIPs"]).is_empty()
    {
        wants.push(Want::Address);
    }
    if needs_node_ports(service) {
        for (i, port) in object::list(service, &["spec", "ports"]).iter().enumerate() {
            if number(port, &["nodePort"]) == 0 {
                wants.push(Want::NodePort(i));
            }
        }
    }
    if needs_health_check(service) && number(service, &["spec", "healthCheckNodePort"]) == 0 {
        wants.push(Want::HealthCheckPort);
    }
    wants
}

/// Gives a service what it wanted.
pub fn give_address(service: &mut Value, address: &str) {
    object::set(service, &["spec", "clusterIP"], address);
    object::set(service, &["spec", "clusterIPs"], json!([address]));
}

pub fn give_port(service: &mut Value, want: Want, port: u16) {
    match want {
        Want::Address => {}
        Want::HealthCheckPort => object::set(service, &["spec", "healthCheckNodePort"], port),
        Want::NodePort(i) => {
            if let Some(held) = list_mut(service, &["spec", "ports"]).get_mut(i) {
                object::set(held, &["nodePort"], port);
            }
        }
    }
}

/// The address that a service holds.
pub fn address(service: &Value) -> Option<&str> {
    let address = object::string(service, &["spec", "clusterIP"]);
    (!address.is_empty() && address != "None" && !is_external(service)).then_some(address)
}

/// The ports of nodes that a service holds.
pub fn node_ports(service: &Value) -> Vec<u16> {
    let ports = object::list(service, &["spec", "ports"]).iter();
    let own = ports.map(|port| number(port, &["nodePort"]));
    let mut held: Vec<u16> = own
        .chain([number(service, &["spec", "healthCheckNodePort"])])
        .filter_map(|port| u16::try_from(port).ok().filter(|port| *port > 0))
        .collect();
    held.sort_unstable();
    held.dedup();
    held
}

/// The refusal of an address that cannot be had.
pub fn refused_address(service: &Value, why: &str) -> ErrorList {
    let path = Path::new("spec").child("clusterIPs");
    let shown = object::get(service, &["spec", "clusterIPs"])
        .cloned()
        .unwrap_or_default();
    let address = object::string(service, &["spec", "clusterIP"]);
    vec![Error::invalid(
        &path,
        shown,
        format!("failed to allocate IP {address}: {why}"),
    )]
}

/// The refusal of a port that cannot be had.
pub fn refused_port(service: &Value, port: u16, why: &str) -> ErrorList {
    let ports = object::list(service, &["spec", "ports"]);
    let at = ports
        .iter()
        .position(|held| number(held, &["nodePort"]) == i64::from(port));
    let path = Path::new("spec")
        .child("ports")
        .index(at.unwrap_or_default())
        .child("nodePort");
    vec![Error::invalid(&path, port, why)]
}
