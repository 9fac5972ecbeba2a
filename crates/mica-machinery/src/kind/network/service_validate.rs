//! Validation of services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::address::validate_endpoint_ip;
use super::service::{is_accessible, is_external, is_headless, needs_health_check, r#type};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, is_set, one_of, present, strings};
use crate::kind::internal;
use crate::kind::workload::number;
use crate::names::{cidr_errors_legacy, cidr_warnings, ip_errors_legacy, ip_warnings, parse_ip_sloppy};
use crate::{names, object};

const AFFINITIES: [&str; 2] = ["ClientIP", "None"];
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const TRAFFIC: [&str; 2] = ["Cluster", "Local"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const MAX_STAY: i64 = 86_400;
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

pub fn validate(service: &Value, old: Option<&Value>) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (service.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    if object::list(spec, &["ports"]).is_empty() && !is_headless(service) && !is_external(service) {
        errors.push(Error::required(&path.child("ports"), ""));
    }
    validate_type(service, spec, &path, &mut errors);
    validate_ports(spec, &path.child("ports"), &mut errors);
    if let Some(selector) = present(spec, &["selector"]) {
        errors.extend(names::label_errors(selector, &path.child("selector")));
    }
    validate_affinity(spec, &path, &mut errors);
    validate_cluster_ips(service, old, &path, &mut errors);
    let before = old
        .map(|old| strings(old, &["spec", "externalIPs"]))
        .unwrap_or_default();
    for (i, ip) in strings(spec, &["externalIPs"]).into_iter().enumerate() {
        let path = path.child("externalIPs").index(i);
        let found = ip_errors_legacy(&path, ip, &before);
        if found.is_empty() {
            validate_endpoint_ip(ip, &path, &mut errors);
        }
        errors.extend(found);
    }
    one_of(&path.child("type"), r#type(service), &TYPES, &mut errors);
    validate_repeated_ports(spec, &path.child("ports"), &mut errors);
    validate_ranges(service, old, &path, &mut errors);
    if is_set(spec, &["allocateLoadBalancerNodePorts"]) != (r#type(service) == "LoadBalancer") {
        if r#type(service) == "LoadBalancer" {
            errors.push(Error::required(&Path::new("allocateLoadBalancerNodePorts"), ""));
        } else {
            let path = path.child("allocateLoadBalancerNodePorts");
            errors.push(Error::forbidden(&path, ONLY_BALANCER));
        }
    }
    validate_traffic(service, spec, &path, &mut errors);
    errors
}

fn validate_type(service: &Value, spec: &Value, path: &Path, errors: &mut ErrorList) {
    let kind = r#type(service);
    if ["LoadBalancer", "NodePort"].contains(&kind) && is_headless(service) {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.push(Error::invalid(&path.child("clusterIPs").index(0), "None", detail));
    }
    if kind != "ExternalName" {
        return;
    }
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if spec
            .get(field)
            .is_some_and(|value| !crate::kind::check::is_empty(value))
        {
            let detail = "may not be set for ExternalName services";
            errors.push(Error::forbidden(&path.child(field), detail));
        }
    }
    let name = object::string(spec, &["externalName"]);
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.push(Error::required(&path.child("externalName"), "")),
        name => errors.extend(invalid_each(
            &path.child("externalName"),
            name,
            names::dns1123_subdomain(name),
        )),
    }
}

fn validate_ports(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let ports = object::list(spec, &["ports"]);
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = object::string(port, &["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(Error::required(&path.child("name"), ""));
            }
        } else {
            errors.extend(invalid_each(&path.child("name"), name, names::dns1123_label(name)));
            if !seen.insert(name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
        }
        let own = number(port, &["port"]);
        let texts = names::port_number(own).into_iter();
        errors.extend(texts.map(|text| Error::invalid(&path.child("port"), own, text)));
        let protocol = object::string(port, &["protocol"]);
        one_of(&path.child("protocol"), protocol, &PROTOCOLS, errors);
        validate_target(port.get("targetPort"), &path.child("targetPort"), errors);
        if let Some(application) = present(port, &["appProtocol"]).and_then(Value::as_str) {
            let texts = names::qualified_name(application);
            errors.extend(invalid_each(&path.child("appProtocol"), application, texts));
        }
    }
}

fn validate_target(port: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    match port {
        Some(Value::String(name)) => errors.extend(invalid_each(path, name, names::port_name(name))),
        port => {
            let port = port.and_then(Value::as_i64).unwrap_or_default();
            let texts = names::port_number(port).into_iter();
            errors.extend(texts.map(|text| Error::invalid(path, port, text)));
        }
    }
}

fn validate_affinity(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let affinity = object::string(spec, &["sessionAffinity"]);
    one_of(&path.child("sessionAffinity"), affinity, &AFFINITIES, errors);
    let path = path.child("sessionAffinityConfig");
    let config = present(spec, &["sessionAffinityConfig"]);
    match affinity {
        "ClientIP" => {
            let detail = "when session affinity type is ClientIP";
            let client = config.and_then(|config| present(config, &["clientIP"]));
            let timeout = client.and_then(|client| object::int(client, &["timeoutSeconds"]));
            match (config, client, timeout) {
                (None, ..) => errors.push(Error::required(&path, detail)),
                (_, None, _) => errors.push(Error::required(&path.child("clientIP"), detail)),
                (.., None) => {
                    let path = path.child("clientIP").child("timeoutSeconds");
                    errors.push(Error::required(&path, detail));
                }
                (.., Some(timeout)) if !(1..=MAX_STAY).contains(&timeout) => {
                    let path = path.child("clientIP").child("timeoutSeconds");
                    let detail = format!("must be greater than 0 and less than {MAX_STAY}");
                    errors.push(Error::invalid(&path, timeout, detail));
                }
                _ => {}
            }
        }
        "None" if config.is_some() => {
            let detail = "must not be set when session affinity is None";
            errors.push(Error::forbidden(&path, detail));
        }
        _ => {}
    }
}

/// What addresses, families and policy must be for themselves.
pub fn validate_cluster_ips(service: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    if is_external(service) {
        return;
    }
    let (one, all) = (
        object::string(service, &["spec", "clusterIP"]),
        strings(service, &["spec", "clusterIPs"]),
    );
    let at = path.child("clusterIPs");
    let shown = || Value::from(all.clone());
    if one.is_empty() && !all.is_empty() {
        let detail = "must be empty when `clusterIP` is not specified";
        errors.push(Error::invalid(&at, shown(), detail));
    } else if !one.is_empty() && all.is_empty() {
        errors.push(Error::required(&at, ""));
    } else if !one.is_empty() && all[0] != one {
        errors.push(Error::invalid(&at, shown(), "first value must match `clusterIP`"));
    }
    let families = strings(service, &["spec", "ipFamilies"]);
    let mut seen = BTreeSet::new();
    for (i, family) in families.iter().enumerate() {
        let path = path.child("ipFamilies").index(i);
        if !FAMILIES.contains(family) {
            errors.push(Error::not_supported(&path, *family, &FAMILIES));
        }
        if !seen.insert(*family) {
            errors.push(Error::duplicate(&path, *family));
        }
    }
    let policy = object::string(service, &["spec", "ipFamilyPolicy"]);
    if is_set(service, &["spec", "ipFamilyPolicy"]) && !POLICIES.contains(&policy) {
        errors.push(Error::not_supported(&path.child("ipFamilyPolicy"), policy, &POLICIES));
    }
    let before = old.map(|old| strings(old, &["spec", "clusterIPs"])).unwrap_or_default();
    let count = errors.len();
    for (i, address) in all.iter().enumerate() {
        if i == 0 && *address == "None" {
            if all.len() > 1 {
                let detail = "'None' must be the first and only value";
                errors.push(Error::invalid(&at, shown(), detail));
            }
        } else {
            errors.extend(ip_errors_legacy(&at.index(i), address, &before));
        }
    }
    let bad = errors.len() > count;
    if all.len() > 2 {
        errors.push(Error::invalid(&at, shown(), "may only hold up to 2 values"));
    }
    if !bad {
        validate_family_of_each(service, &all, &families, path, errors);
    }
}

fn validate_family_of_each(service: &Value, all: &[&str], families: &[&str], path: &Path, errors: &mut ErrorList) {
    let at = path.child("clusterIPs");
    let six = |address: &str| parse_ip_sloppy(address).is_some_and(|address| address.is_ipv6());
    // What is no address was let in as one that is not new.
    let odd = all.iter().position(|address| parse_ip_sloppy(address).is_none());
    if let Some(i) = odd.filter(|_| all.len() > 1) {
        let detail = format!("failed to check for dual stack with error:invalid IP[{i}]: {}", all[i]);
        errors.push(Error::internal(&at, detail));
    }
    if all.len() > 1 && (odd.is_some() || all.iter().all(|address| six(address) == six(all[0]))) {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(Error::invalid(&at, all.to_vec(), detail));
    }
    if is_headless(service) {
        return;
    }
    for (i, (address, family)) in all.iter().zip(families).enumerate() {
        if FAMILIES.contains(family) && (*family == "IPv6") != six(address) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.push(Error::invalid(&at.index(i), *address, detail));
        }
    }
}

fn validate_repeated_ports(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let ports = object::list(spec, &["ports"]);
    let protocol = |port| object::string(port, &["protocol"]);
    if object::string(spec, &["type"]) == "ClusterIP" {
        for (i, _) in ports
            .iter()
            .enumerate()
            .filter(|(_, port)| number(port, &["nodePort"]) != 0)
        {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(Error::forbidden(&path.index(i).child("nodePort"), detail));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let node = number(port, &["nodePort"]);
        if node != 0 && !seen.insert((protocol(port), node)) {
            errors.push(Error::duplicate(&path.index(i).child("nodePort"), node));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let own = number(port, &["port"]);
        if !seen.insert((protocol(port), own)) {
            let key = json!({"protocol": protocol(port), "port": own});
            let shown = internal::shown(&key, "io.k8s.api.core.v1.ServicePort");
            // An absent target port is a number to Go.
            let shown = shown.replace("\"TargetPort\":null", "\"TargetPort\":0");
            let error = Error::duplicate(&path.index(i), Value::Null);
            errors.push(Error {
                value: None,
                detail: shown,
                ..error
            });
        }
    }
}

fn validate_ranges(service: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    let balances = r#type(service) == "LoadBalancer";
    let ranges = strings(service, &["spec", "loadBalancerSourceRanges"]);
    let annotation = |service| object::get(service, &["metadata", "annotations", RANGES]).and_then(Value::as_str);
    if !ranges.is_empty() {
        // Upstream's own spelling.
        let path = path.child("LoadBalancerSourceRanges");
        if !balances {
            errors.push(Error::forbidden(&path, ONLY_BALANCER));
        }
        let before: Vec<&str> = old
            .map(|old| strings(old, &["spec", "loadBalancerSourceRanges"]))
            .unwrap_or_default()
            .into_iter()
            .map(str::trim)
            .collect();
        for (i, range) in ranges.iter().enumerate() {
            errors.extend(cidr_errors_legacy(&path.index(i), range.trim(), &before));
        }
    } else if let Some(told) = annotation(service) {
        let path = Path::new("metadata").child("annotations").key(RANGES);
        if !balances {
            errors.push(Error::forbidden(&path, ONLY_BALANCER));
        }
        let changed = old.and_then(annotation) != Some(told);
        for range in told.trim().split(',').filter(|_| changed && !told.trim().is_empty()) {
            errors.extend(cidr_errors_legacy(&path, range.trim(), &[]));
        }
    }
}

fn validate_traffic(service: &Value, spec: &Value, path: &Path, errors: &mut ErrorList) {
    let class = path.child("loadBalancerClass");
    if let Some(name) = present(spec, &["loadBalancerClass"]).and_then(Value::as_str) {
        if r#type(service) == "LoadBalancer" {
            errors.extend(invalid_each(&class, name, names::qualified_name(name)));
        } else {
            errors.push(Error::forbidden(&class, ONLY_BALANCER));
        }
    }
    let (policy, at) = (
        object::string(spec, &["externalTrafficPolicy"]),
        path.child("externalTrafficPolicy"),
    );
    if is_accessible(service) {
        one_of(&at, policy, &TRAFFIC, errors);
    } else if !policy.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.push(Error::invalid(&at, policy, detail));
    }
    let (port, at) = (
        number(spec, &["healthCheckNodePort"]),
        path.child("healthCheckNodePort"),
    );
    match (needs_health_check(service), port) {
        (false, 0) => {}
        (false, port) => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(Error::invalid(&at, port, detail));
        }
        (true, 0) => errors.push(Error::required(&at, "")),
        (true, port) => {
            let texts = names::port_number(port).into_iter();
            errors.extend(texts.map(|text| Error::invalid(&at, port, text)));
        }
    }
    let (internal, at) = (
        present(spec, &["internalTrafficPolicy"]).and_then(Value::as_str),
        path.child("internalTrafficPolicy"),
    );
    match internal {
        None if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&r#type(service)) => {
            errors.push(Error::required(&at, ""));
        }
        Some(policy) if !TRAFFIC.contains(&policy) => errors.push(Error::not_supported(&at, policy, &TRAFFIC)),
        _ => {}
    }
    if let Some(found) = present(spec, &["trafficDistribution"]).and_then(Value::as_str)
        && !DISTRIBUTIONS.contains(&found)
    {
        let path = path.child("trafficDistribution");
        errors.push(Error::not_supported(&path, found, &DISTRIBUTIONS));
    }
}

pub fn validate_status(new: &Value, old: &Value) -> ErrorList {
    const MODES: [&str; 2] = ["Proxy", "VIP"];
    let mut errors = ErrorList::new();
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let ingress = object::list(new, &["status", "loadBalancer", "ingress"]);
    if r#type(new) != "LoadBalancer" && !ingress.is_empty() {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        return vec![Error::forbidden(&path, detail)];
    }
    let before: Vec<&str> = object::list(old, &["status", "loadBalancer", "ingress"])
        .iter()
        .map(|one| object::string(one, &["ip"]))
        .collect();
    for (i, one) in ingress.iter().enumerate() {
        let path = path.index(i);
        let ip = object::string(one, &["ip"]);
        if !ip.is_empty() {
            errors.extend(ip_errors_legacy(&path.child("ip"), ip, &before));
        }
        let at = path.child("ipMode");
        match present(one, &["ipMode"]).and_then(Value::as_str) {
            None if !ip.is_empty() => errors.push(Error::required(&at, "must be specified when `ip` is set")),
            Some(_) if ip.is_empty() => {
                errors.push(Error::forbidden(&at, "may not be specified when `ip` is not set"));
            }
            Some(mode) if !MODES.contains(&mode) => errors.push(Error::not_supported(&at, mode, &MODES)),
            _ => {}
        }
        validate_hostname(object::string(one, &["hostname"]), &path.child("hostname"), &mut errors);
    }
    errors
}

/// A load balancer's name: one that is no address.
pub fn validate_hostname(name: &str, path: &Path, errors: &mut ErrorList) {
    if name.is_empty() {
        return;
    }
    errors.extend(invalid_each(path, name, names::dns1123_subdomain(name)));
    if parse_ip_sloppy(name).is_some() {
        let detail = "must be a DNS name, not an IP address";
        errors.push(Error::invalid(path, name, detail));
    }
}

/// A write of `status` is told only of addresses in it.
pub fn status_warnings(new: &Value) -> Vec<String> {
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let ingresses = object::list(new, &["status", "loadBalancer", "ingress"]).iter();
    let ips = ingresses.map(|ingress| object::string(ingress, &["ip"])).enumerate();
    ips.filter(|(_, ip)| !ip.is_empty())
        .flat_map(|(i, ip)| ip_warnings(&path.index(i), ip))
        .collect()
}

pub fn warnings(new: &Value) -> Vec<String> {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let (mut warnings, path) = (Vec::new(), Path::new("spec"));
    let text = |field: &str| object::string(new, &["spec", field]);
    let ips = |field: &str| {
        let listed = strings(new, &["spec", field]).into_iter().enumerate();
        let path = path.child(field);
        listed
            .filter(|(_, ip)| *ip != "None")
            .flat_map(|(i, ip)| ip_warnings(&path.index(i), ip))
            .collect::<Vec<String>>()
    };
    if object::get(new, &["metadata", "annotations", HINTS]).is_some() {
        warnings.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    warnings.extend(ips("clusterIPs"));
    let has_ips = !object::list(new, &["spec", "externalIPs"]).is_empty();
    let headless = text("type") == "ClusterIP" && text("clusterIP") == "None";
    if headless {
        let ignored = [
            (!text("loadBalancerIP").is_empty(), "loadBalancerIP"),
            (has_ips, "externalIPs"),
            (text("sessionAffinity") != "None", "SessionAffinity"),
        ];
        let ignored = ignored.into_iter().filter(|(is_said, _)| *is_said);
        warnings.extend(ignored.map(|(_, field)| format!("spec.{field} is ignored for headless services")));
    }
    warnings.extend(ips("externalIPs"));
    if has_ips && !headless && !is_external(new) {
        let text = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(text.to_owned());
    }
    if !text("loadBalancerIP").is_empty() {
        warnings.extend(ip_warnings(&path.child("loadBalancerIP"), text("loadBalancerIP")));
    }
    for (i, range) in strings(new, &["spec", "loadBalancerSourceRanges"])
        .into_iter()
        .enumerate()
    {
        let path = path.child("loadBalancerSourceRanges").index(i);
        warnings.extend(cidr_warnings(&path, range));
    }
    if is_external(new) && has_ips {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external(new) && !text("externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text("trafficDistribution") == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    warnings
}
