//! Endpoints, the elder of endpoint slices.

use serde_json::Value;

use super::address::validate_endpoint_ip;
use crate::field::{Error, ErrorList, Path};
use crate::kind::MetadataCheck;
use crate::kind::check::{invalid_each, list_mut, one_of, present, same, set_default};
use crate::kind::column::age;
use crate::kind::plain::Plain;
use crate::kind::workload::number;
use crate::names::ip_errors_legacy;
use crate::{names, object};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Endpoints that a row shows.
const SHOWN: usize = 3;

pub const ENDPOINTS: Plain = Plain {
    default: |object| {
        for subset in list_mut(object, &["subsets"]) {
            for port in list_mut(subset, &["ports"]) {
                set_default(port, &["protocol"], "TCP");
            }
        }
    },
    validate: |_, object| validate(object),
    validate_update: |_, new, old| {
        if same(new.get("subsets"), old.get("subsets")) {
            return ErrorList::new();
        }
        validate(new)
    },
    metadata_check: MetadataCheck::ChangeThenWhole,
    cells: |object, now| vec![object::name(object).into(), shown(object).into(), age(object, now)],
    creates_on_update: true,
    deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    ..Plain::new("endpoints", "io.k8s.api.core.v1.Endpoints")
};

fn validate(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for (i, subset) in object::list(object, &["subsets"]).iter().enumerate() {
        let path = Path::new("subsets").index(i);
        let list = |field| object::list(subset, &[field]);
        if list("addresses").is_empty() && list("notReadyAddresses").is_empty() {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(Error::required(&path, detail));
        }
        for field in ["addresses", "notReadyAddresses"] {
            for (j, address) in list(field).iter().enumerate() {
                validate_address(address, &path.child(field).index(j), &mut errors);
            }
        }
        let ports = list("ports");
        for (j, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &path.child("ports").index(j), &mut errors);
        }
    }
    errors
}

fn validate_address(address: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(address, &[field]);
    errors.extend(ip_errors_legacy(&path.child("ip"), of("ip"), &[]));
    if !of("hostname").is_empty() {
        let texts = names::dns1123_label(of("hostname"));
        errors.extend(invalid_each(&path.child("hostname"), of("hostname"), texts));
    }
    if let Some(node) = present(address, &["nodeName"]).and_then(Value::as_str) {
        errors.extend(invalid_each(
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        ));
    }
    validate_endpoint_ip(of("ip"), &path.child("ip"), errors);
}

fn validate_port(port: &Value, named: bool, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(port, &[field]);
    match of("name") {
        "" if named => errors.push(Error::required(&path.child("name"), "")),
        "" => {}
        name => errors.extend(invalid_each(&path.child("name"), name, names::dns1123_label(name))),
    }
    let found = number(port, &["port"]);
    let texts = names::port_number(found).into_iter();
    errors.extend(texts.map(|text| Error::invalid(&path.child("port"), found, text)));
    one_of(&path.child("protocol"), of("protocol"), &PROTOCOLS, errors);
    if let Some(protocol) = present(port, &["appProtocol"]).and_then(Value::as_str) {
        let texts = names::qualified_name(protocol);
        errors.extend(invalid_each(&path.child("appProtocol"), protocol, texts));
    }
}

fn shown(object: &Value) -> String {
    let subsets = object::list(object, &["subsets"]);
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses: Vec<&str> = object::list(subset, &["addresses"])
            .iter()
            .map(|one| object::string(one, &["ip"]))
            .collect();
        let ports = object::list(subset, &["ports"]);
        if ports.is_empty() {
            all.extend(addresses.iter().map(|address| (*address).to_owned()));
        }
        for port in ports {
            let port = number(port, &["port"]);
            all.extend(addresses.iter().map(|address| match address.contains(':') {
                true => format!("[{address}]:{port}"),
                false => format!("{address}:{port}"),
            }));
        }
    }
    let first = all[..all.len().min(SHOWN)].join(",");
    match all.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{first} + {more} more..."),
        _ => first,
    }
}
