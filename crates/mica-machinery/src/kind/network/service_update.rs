//! What a changed service keeps of what it was given, loses with its type, and may not change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::service::{is_accessible, is_external, is_headless, needs_health_check, needs_node_ports, r#type};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{is_set, list_mut, present, same, strings};
use crate::kind::workload::number;
use crate::object;

fn ports(service: &Value) -> BTreeSet<i64> {
    let ports = object::list(service, &["spec", "ports"]).iter();
    ports
        .map(|port| number(port, &["nodePort"]))
        .filter(|port| *port != 0)
        .collect()
}

/// Puts back what the server once gave and the client left out.
pub fn patch_allocated(new: &mut Value, old: &Value) {
    if !is_external(old) && !is_external(new) {
        if object::string(new, &["spec", "clusterIP"]).is_empty() {
            object::copy(old, new, &["spec", "clusterIP"]);
        }
        if object::list(new, &["spec", "clusterIPs"]).is_empty() {
            object::copy(old, new, &["spec", "clusterIPs"]);
        }
    }
    if needs_node_ports(old) && needs_node_ports(new) {
        let used: BTreeSet<i64> = ports(old).intersection(&ports(new)).copied().collect();
        let by_name: BTreeMap<String, i64> = object::list(old, &["spec", "ports"])
            .iter()
            .map(|port| (object::string(port, &["name"]).to_owned(), number(port, &["nodePort"])))
            .collect();
        for port in list_mut(new, &["spec", "ports"]) {
            let before = by_name
                .get(object::string(port, &["name"]))
                .copied()
                .unwrap_or_default();
            if number(port, &["nodePort"]) == 0 && before != 0 && !used.contains(&before) {
                object::set(port, &["nodePort"], before);
            }
        }
    }
    if needs_health_check(old) && needs_health_check(new) && number(new, &["spec", "healthCheckNodePort"]) == 0 {
        object::copy(old, new, &["spec", "healthCheckNodePort"]);
    }
}

/// Takes away what the new type does not use, unless the client changed it too.
pub fn drop_unused(new: &mut Value, old: &Value) {
    let unchanged =
        |new: &Value, field: &str| same(object::get(new, &["spec", field]), object::get(old, &["spec", field]));
    let wipe = |new: &mut Value, fields: &[&str]| {
        for field in fields {
            object::remove(new, &["spec", field]);
        }
    };
    if !is_external(old) && is_external(new) {
        if unchanged(new, "clusterIPs") {
            wipe(new, &["clusterIP", "clusterIPs"]);
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if unchanged(new, field) {
                wipe(new, &[field]);
            }
        }
    }
    if needs_node_ports(old) && !needs_node_ports(new) && ports(old) == ports(new) {
        for port in list_mut(new, &["spec", "ports"]) {
            object::remove(port, &["nodePort"]);
        }
    }
    if needs_health_check(old) && !needs_health_check(new) && unchanged(new, "healthCheckNodePort") {
        wipe(new, &["healthCheckNodePort"]);
    }
    if r#type(old) == "LoadBalancer" && r#type(new) != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(new, field) {
                wipe(new, &[field]);
            }
        }
    }
    if is_accessible(old) && !is_accessible(new) && unchanged(new, "externalTrafficPolicy") {
        wipe(new, &["externalTrafficPolicy"]);
    }
    if r#type(new) != "LoadBalancer" && is_set(new, &["status", "loadBalancer"]) {
        object::set(new, &["status", "loadBalancer"], json!({}));
    }
}

pub fn validate(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if !is_external(new) && !is_external(old) {
        validate_addresses(new, old, &mut errors);
        if is_headless(new) == is_headless(old) && !is_headless(new) {
            validate_families(new, old, &mut errors);
        }
    }
    let balances = |service| r#type(service) == "LoadBalancer";
    let class = |service| {
        object::get(service, &["spec", "loadBalancerClass"])
            .cloned()
            .unwrap_or_default()
    };
    if balances(old) && balances(new) && class(old) != class(new) {
        let path = Path::new("spec").child("loadBalancerClass");
        errors.push(Error::invalid(&path, class(new), "may not change once set"));
    }
    let port = |service| number(service, &["spec", "healthCheckNodePort"]);
    if needs_health_check(old) && needs_health_check(new) && port(old) != port(new) {
        let path = Path::new("spec").child("healthCheckNodePort");
        errors.push(Error::forbidden(&path, "field is immutable"));
    }
    errors
}

const SINGLE: &str = "must be set to 'SingleStack' when releasing the secondary";

fn validate_addresses(new: &Value, old: &Value, errors: &mut ErrorList) {
    if is_headless(old) && is_headless(new) {
        return;
    }
    let path = Path::new("spec").child("clusterIPs");
    let addresses = |service| strings(service, &["spec", "clusterIPs"]);
    let (now, before) = (addresses(new), addresses(old));
    let shown = || object::get(new, &["spec", "clusterIPs"]).cloned().unwrap_or_default();
    if now.len() == before.len() {
        for (i, _) in before.iter().enumerate().filter(|(i, address)| now[*i] != **address) {
            errors.push(Error::invalid(&path.index(i), shown(), "may not change once set"));
        }
        return;
    }
    if now.is_empty() {
        let detail = "primary clusterIP can not be unset";
        errors.push(Error::invalid(&path.index(0), shown(), detail));
    }
    if !now.is_empty() && !before.is_empty() && now[0] != before[0] {
        errors.push(Error::invalid(&path.index(0), shown(), "may not change once set"));
    }
    if before.len() > now.len() && now.len() == 1 {
        refuse_release(new, "clusterIP", errors);
    }
}

fn refuse_release(new: &Value, what: &str, errors: &mut ErrorList) {
    let policy = present(new, &["spec", "ipFamilyPolicy"]).cloned().unwrap_or_default();
    if policy != "SingleStack" {
        let path = Path::new("spec").child("ipFamilyPolicy");
        errors.push(Error::invalid(&path, policy, format!("{SINGLE} {what}")));
    }
}

fn validate_families(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("ipFamilies").index(0);
    let families = |service| strings(service, &["spec", "ipFamilies"]);
    let (now, before) = (families(new), families(old));
    let list = |field: &str| object::get(new, &["spec", field]).cloned().unwrap_or_default();
    if now.len() == before.len() {
        for _ in before.iter().zip(&now).filter(|(before, now)| before != now) {
            errors.push(Error::invalid(&path, list("ipFamilies"), "may not change once set"));
        }
        return;
    }
    if before.len() > now.len() && !is_set(new, &["spec", "clusterIPs"]) {
        let detail = "primary ipFamily can not be unset";
        errors.push(Error::invalid(&path, list("ipFamilies"), detail));
    }
    if !now.is_empty() && !before.is_empty() && now[0] != before[0] {
        // Upstream shows the addresses where it means the families.
        errors.push(Error::invalid(&path, list("clusterIPs"), "may not change once set"));
    }
    if before.len() > now.len() && now.len() == 1 {
        refuse_release(new, "ipFamily", errors);
    }
}
