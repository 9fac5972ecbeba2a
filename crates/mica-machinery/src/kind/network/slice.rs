//! EndpointSlices.

use std::collections::BTreeSet;

use serde_json::Value;

use super::address::validate_endpoint_ip;
use crate::field::{Error, ErrorList, Path};
use crate::kind::MetadataCheck;
use crate::kind::check::{
    immutable_string, invalid_each, list_mut, one_of, present, same, set_default_pointer, strings,
};
use crate::kind::column::age;
use crate::kind::plain::Plain;
use crate::names::{fully_qualified_domain_name, ip_errors, ip_errors_legacy, ip_warnings, parse_ip_sloppy};
use crate::{names, object};

const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Upstream's bounds.
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_HINTS: usize = 8;
const MAX_TOPOLOGY: usize = 16;
/// Ports and endpoints that a row shows.
const SHOWN: usize = 3;

pub const ENDPOINT_SLICE: Plain = Plain {
    default: |object| {
        for port in list_mut(object, &["ports"]) {
            set_default_pointer(port, &["name"], "");
            set_default_pointer(port, &["protocol"], "TCP");
        }
    },
    validate: |_, object| validate(object, None),
    validate_update: |_, new, old| {
        let mut errors = validate(new, Some(old));
        immutable_string(new, old, &["addressType"], &Path::new("addressType"), &mut errors);
        errors
    },
    metadata_check: MetadataCheck::Whole,
    warnings: |_, new, old| warnings(new, old),
    generation: &["addressType", "endpoints", "ports", "metadata.labels"],
    cells: |object, now| {
        vec![
            object::name(object).into(),
            object::string(object, &["addressType"]).into(),
            ports(object).into(),
            addresses(object).into(),
            age(object, now),
        ]
    },
    ..Plain::new(
        "discovery.k8s.io/endpointslices",
        "io.k8s.api.discovery.v1.EndpointSlice",
    )
};

fn warnings(slice: &Value, old: Option<&Value>) -> Vec<String> {
    if object::string(slice, &["addressType"]) == "FQDN" {
        // The type cannot change, so only who makes one is told.
        let text = "spec.addressType: FQDN endpoints are deprecated".to_owned();
        return old.is_none().then_some(text).into_iter().collect();
    }
    let mut warnings = Vec::new();
    for (i, endpoint) in object::list(slice, &["endpoints"]).iter().enumerate() {
        for (j, address) in strings(endpoint, &["addresses"]).into_iter().enumerate() {
            let path = Path::new("endpoints").index(i).child("addresses").index(j);
            warnings.extend(ip_warnings(&path, address));
        }
    }
    warnings
}

fn validate(slice: &Value, old: Option<&Value>) -> ErrorList {
    let mut errors = ErrorList::new();
    let r#type = object::string(slice, &["addressType"]);
    one_of(&Path::new("addressType"), r#type, &TYPES, &mut errors);
    validate_ports(slice, &Path::new("ports"), &mut errors);
    // What was stored before a rule existed stays.
    if old.is_none_or(|old| !same(old.get("endpoints"), slice.get("endpoints"))) {
        validate_endpoints(slice, r#type, &Path::new("endpoints"), &mut errors);
    }
    errors
}

fn validate_ports(slice: &Value, path: &Path, errors: &mut ErrorList) {
    let ports = object::list(slice, &["ports"]);
    if ports.len() > MAX_PORTS {
        errors.push(Error::too_many(path, ports.len(), MAX_PORTS));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (path, name) = (path.index(i), object::string(port, &["name"]));
        if !name.is_empty() {
            errors.extend(invalid_each(&path.child("name"), name, names::dns1123_label(name)));
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        let protocol = object::string(port, &["protocol"]);
        one_of(&path.child("protocol"), protocol, &PROTOCOLS, errors);
        if let Some(protocol) = present(port, &["appProtocol"]).and_then(Value::as_str) {
            let texts = names::qualified_name(protocol);
            errors.extend(invalid_each(&path.child("appProtocol"), protocol, texts));
        }
    }
}

fn validate_endpoints(slice: &Value, r#type: &str, path: &Path, errors: &mut ErrorList) {
    let endpoints = object::list(slice, &["endpoints"]);
    if endpoints.len() > MAX_ENDPOINTS {
        errors.push(Error::too_many(path, endpoints.len(), MAX_ENDPOINTS));
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(i);
        validate_addresses(endpoint, r#type, &path.child("addresses"), errors);
        let text = |field| present(endpoint, &[field]).and_then(Value::as_str);
        if let Some(node) = text("nodeName") {
            errors.extend(invalid_each(
                &path.child("nodeName"),
                node,
                names::dns1123_subdomain(node),
            ));
        }
        if let Some(topology) = present(endpoint, &["deprecatedTopology"]) {
            let path = path.child("deprecatedTopology");
            let count = topology.as_object().map_or(0, serde_json::Map::len);
            if count > MAX_TOPOLOGY {
                errors.push(Error::too_many(&path, count, MAX_TOPOLOGY));
            }
            errors.extend(names::label_errors(topology, &path));
        }
        if let Some(name) = text("hostname") {
            errors.extend(invalid_each(&path.child("hostname"), name, names::dns1123_label(name)));
        }
        validate_hints(endpoint, &path.child("hints"), errors);
    }
}

fn validate_addresses(endpoint: &Value, r#type: &str, path: &Path, errors: &mut ErrorList) {
    let addresses = strings(endpoint, &["addresses"]);
    if addresses.is_empty() {
        errors.push(Error::required(path, "must contain at least 1 address"));
    } else if addresses.len() > MAX_ADDRESSES {
        errors.push(Error::too_many(path, addresses.len(), MAX_ADDRESSES));
    }
    for (i, address) in addresses.into_iter().enumerate() {
        let at = path.index(i);
        let (found, wrong) = match r#type {
            "IPv4" => (
                ip_errors_legacy(&at, address, &[]),
                !parse_ip_sloppy(address).is_some_and(|address| address.is_ipv4()),
            ),
            "IPv6" => (
                ip_errors(&at, address),
                !parse_ip_sloppy(address).is_some_and(|address| address.is_ipv6()),
            ),
            "FQDN" => {
                errors.extend(fully_qualified_domain_name(&at, address));
                continue;
            }
            _ => continue,
        };
        if !found.is_empty() {
            errors.extend(found);
            continue;
        }
        if wrong {
            errors.push(Error::invalid(path, address, format!("must be an {type} address")));
        }
        validate_endpoint_ip(address, &at, errors);
    }
}

fn validate_hints(endpoint: &Value, path: &Path, errors: &mut ErrorList) {
    for (field, rule) in [
        ("forZones", names::label_value as fn(&str) -> Vec<String>),
        ("forNodes", names::dns1123_subdomain),
    ] {
        let (path, hints) = (path.child(field), object::list(endpoint, &["hints", field]));
        if hints.len() > MAX_HINTS {
            errors.push(Error::too_many(&path, hints.len(), MAX_HINTS));
            return;
        }
        let mut seen = BTreeSet::new();
        for (i, hint) in hints.iter().enumerate() {
            let (path, name) = (path.index(i).child("name"), object::string(hint, &["name"]));
            if !seen.insert(name) {
                errors.push(Error::duplicate(&path, name));
            }
            errors.extend(invalid_each(&path, name, rule(name)));
        }
    }
}

fn some(all: &[String]) -> String {
    let first = all[..all.len().min(SHOWN)].join(",");
    match all.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{first} + {more} more..."),
        _ if first.is_empty() => "<unset>".to_owned(),
        _ => first,
    }
}

fn ports(slice: &Value) -> String {
    let shown = |port: &Value| match (object::int(port, &["port"]), present(port, &["name"])) {
        (Some(port), _) => port.to_string(),
        (None, Some(name)) => name.as_str().unwrap_or_default().to_owned(),
        (None, None) => "*".to_owned(),
    };
    let all: Vec<String> = object::list(slice, &["ports"]).iter().map(shown).collect();
    some(&all)
}

fn addresses(slice: &Value) -> String {
    let all: Vec<String> = object::list(slice, &["endpoints"])
        .iter()
        .flat_map(|endpoint| strings(endpoint, &["addresses"]))
        .map(str::to_owned)
        .collect();
    some(&all)
}
