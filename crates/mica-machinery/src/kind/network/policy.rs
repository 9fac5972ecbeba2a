//! NetworkPolicies.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, is_set, list_mut, present, set_default_pointer, strings};
use crate::kind::column::age;
use crate::kind::plain::Plain;
use crate::kind::workload::selector_cell;
use crate::names::{Cidr, cidr_errors_legacy, cidr_warnings, parse_cidr_sloppy};
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const TYPES: [&str; 2] = ["Ingress", "Egress"];
/// Rules of each direction, and what they call the other side.
const SIDES: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

pub const NETWORK_POLICY: Plain = Plain {
    default,
    validate: |_, object| validate(object, None),
    validate_update: |_, new, old| validate(new, Some(old)),
    generation: &["spec"],
    cells: |object, now| {
        vec![
            object::name(object).into(),
            selector_cell(Some(
                object::get(object, &["spec", "podSelector"]).unwrap_or(&json!({})),
            )),
            age(object, now),
        ]
    },
    warnings: |_, new, _| warnings(new),
    ..Plain::new(
        "networking.k8s.io/networkpolicies",
        "io.k8s.api.networking.v1.NetworkPolicy",
    )
};

fn default(object: &mut Value) {
    for (side, _) in SIDES {
        for rule in list_mut(object, &["spec", side]) {
            for port in list_mut(rule, &["ports"]) {
                set_default_pointer(port, &["protocol"], "TCP");
            }
        }
    }
    if object::list(object, &["spec", "policyTypes"]).is_empty() {
        let types = if object::list(object, &["spec", "egress"]).is_empty() {
            json!(["Ingress"])
        } else {
            json!(["Ingress", "Egress"])
        };
        object::set(object, &["spec", "policyTypes"], types);
    }
}

/// Every block of addresses that a policy names.
fn blocks(object: &Value) -> Vec<(Path, &Value)> {
    let mut found = Vec::new();
    for (side, peers) in SIDES {
        for (i, rule) in object::list(object, &["spec", side]).iter().enumerate() {
            for (j, peer) in object::list(rule, &[peers]).iter().enumerate() {
                if let Some(block) = present(peer, &["ipBlock"]) {
                    let path = Path::new("spec").child(side).index(i).child(peers).index(j);
                    found.push((path.child("ipBlock"), block));
                }
            }
        }
    }
    found
}

fn validate(object: &Value, old: Option<&Value>) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    if let Some(selector) = present(spec, &["podSelector"]) {
        errors.extend(label_selector_errors(
            selector,
            Tolerance::None,
            &path.child("podSelector"),
        ));
    }
    let before: Vec<&str> = old
        .map(blocks)
        .unwrap_or_default()
        .into_iter()
        .flat_map(|(_, block)| {
            let mut all = strings(block, &["except"]);
            all.push(object::string(block, &["cidr"]));
            all
        })
        .collect();
    for (side, peers) in SIDES {
        for (i, rule) in object::list(spec, &[side]).iter().enumerate() {
            let path = path.child(side).index(i);
            for (j, port) in object::list(rule, &["ports"]).iter().enumerate() {
                validate_port(port, &path.child("ports").index(j), &mut errors);
            }
            for (j, peer) in object::list(rule, &[peers]).iter().enumerate() {
                validate_peer(peer, &before, &path.child(peers).index(j), &mut errors);
            }
        }
    }
    let types = strings(spec, &["policyTypes"]);
    let path = path.child("policyTypes");
    if types.len() > TYPES.len() {
        let detail = "may not specify more than two policyTypes";
        errors.push(Error::invalid(&path, types, detail));
        return errors;
    }
    for (i, r#type) in types.into_iter().enumerate() {
        if !TYPES.contains(&r#type) {
            errors.push(Error::not_supported(&path.index(i), r#type, &TYPES));
        }
    }
    errors
}

fn validate_port(port: &Value, path: &Path, errors: &mut ErrorList) {
    let protocol = object::string(port, &["protocol"]);
    if is_set(port, &["protocol"]) && !PROTOCOLS.contains(&protocol) {
        errors.push(Error::not_supported(&path.child("protocol"), protocol, &PROTOCOLS));
    }
    let (end, end_path) = (object::int(port, &["endPort"]), path.child("endPort"));
    match present(port, &["port"]) {
        None => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is not specified";
                errors.push(Error::invalid(&end_path, end, detail));
            }
        }
        Some(Value::String(name)) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.push(Error::invalid(&end_path, end, detail));
            }
            errors.extend(invalid_each(&path.child("port"), name, names::port_name(name)));
        }
        Some(first) => {
            let first = first.as_i64().unwrap_or_default();
            let texts = names::port_number(first).into_iter();
            errors.extend(texts.map(|text| Error::invalid(&path.child("port"), first, text)));
            let Some(end) = end else { return };
            if end < first {
                // Upstream shows the first port where it means the last.
                let detail = "must be greater than or equal to `port`";
                errors.push(Error::invalid(&end_path, first, detail));
            }
            let texts = names::port_number(end).into_iter();
            errors.extend(texts.map(|text| Error::invalid(&end_path, end, text)));
        }
    }
}

fn validate_peer(peer: &Value, before: &[&str], path: &Path, errors: &mut ErrorList) {
    let mut count = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = present(peer, &[field]) {
            count += 1;
            errors.extend(label_selector_errors(selector, Tolerance::None, &path.child(field)));
        }
    }
    let block = present(peer, &["ipBlock"]);
    if let Some(block) = block {
        count += 1;
        validate_block(block, before, &path.child("ipBlock"), errors);
    }
    if count == 0 {
        errors.push(Error::required(path, "must specify a peer"));
    } else if count > 1 && block.is_some() {
        let detail = "may not specify both ipBlock and another peer";
        errors.push(Error::forbidden(path, detail));
    }
}

fn validate_block(block: &Value, before: &[&str], path: &Path, errors: &mut ErrorList) {
    let range = object::string(block, &["cidr"]);
    if range.is_empty() {
        errors.push(Error::required(&path.child("cidr"), ""));
        return;
    }
    errors.extend(cidr_errors_legacy(&path.child("cidr"), range, before));
    let Some(whole) = parse_cidr_sloppy(range) else { return };
    for (i, except) in strings(block, &["except"]).into_iter().enumerate() {
        let path = path.child("except").index(i);
        errors.extend(cidr_errors_legacy(&path, except, before));
        let Some(part) = parse_cidr_sloppy(except) else {
            continue;
        };
        if !contains(&whole, part.network()) || whole.bits >= part.bits {
            errors.push(Error::invalid(&path, except, "must be a strict subset of `cidr`"));
        }
    }
}

fn warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (path, block) in blocks(object) {
        warnings.extend(cidr_warnings(&path.child("cidr"), object::string(block, &["cidr"])));
        for (i, except) in strings(block, &["except"]).into_iter().enumerate() {
            warnings.extend(cidr_warnings(&path.child("except").index(i), except));
        }
    }
    warnings
}

fn contains(range: &Cidr, address: IpAddr) -> bool {
    let same_family = range.address.is_ipv4() == address.is_ipv4();
    let beside = Cidr {
        address,
        bits: range.bits,
    };
    same_family && beside.network() == range.network()
}
