//! Where and beside whom a pod runs: tolerations, spreading, gates, names and name service.

use std::collections::BTreeSet;

use serde_json::Value;

use super::affinity::validate_label_keys;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, invalid_each, is_set, present, strings};
use crate::kind::internal;
use crate::kind::workload::number;
use crate::names::ip_errors_legacy;
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Upstream's bounds of resolver configuration.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;

/// A taint's effect, or the one that a toleration is for.
pub fn validate_effect(effect: &str, path: &Path, errors: &mut ErrorList) {
    if !EFFECTS.contains(&effect) {
        errors.push(Error::not_supported(path, effect, &EFFECTS));
    }
}

pub fn validate_tolerations(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, toleration) in object::list(spec, &["tolerations"]).iter().enumerate() {
        let path = path.index(i);
        let of = |field| object::string(toleration, &[field]);
        let (key, operator, value, effect) = (of("key"), of("operator"), of("value"), of("effect"));
        let at = path.child("operator");
        if !key.is_empty() {
            errors.extend(invalid_each(&path.child("key"), key, names::label_key(key)));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(Error::invalid(&at, operator, detail));
        }
        if is_set(toleration, &["tolerationSeconds"]) && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(Error::invalid(&path.child("effect"), effect, detail));
        }
        match operator {
            "Equal" | "" => {
                let texts = names::label_value(value);
                if !texts.is_empty() {
                    errors.push(Error::invalid(&at, value, texts.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(Error::invalid(&at, value, detail));
                }
            }
            "Lt" | "Gt" => errors.push(Error::not_supported(&at, operator, &["Equal", "Exists", "Lt", "Gt"])),
            other => errors.push(Error::not_supported(&at, other, &["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            validate_effect(effect, &path.child("effect"), errors);
        }
    }
}

pub fn validate_spread(spec: &Value, path: &Path, errors: &mut ErrorList) {
    const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
    const POLICIES: [&str; 2] = ["Honor", "Ignore"];
    let constraints = object::list(spec, &["topologySpreadConstraints"]);
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        let of = |field| object::string(constraint, &[field]);
        let (key, action) = (of("topologyKey"), of("whenUnsatisfiable"));
        positive(number(constraint, &["maxSkew"]), &path.child("maxSkew"), errors);
        if key.is_empty() {
            errors.push(Error::required(&path.child("topologyKey"), "can not be empty"));
        }
        if !ACTIONS.contains(&action) {
            errors.push(Error::not_supported(&path.child("whenUnsatisfiable"), action, &ACTIONS));
        }
        let again = |other: &Value| {
            object::string(other, &["topologyKey"]) == key && object::string(other, &["whenUnsatisfiable"]) == action
        };
        if constraints[i + 1..].iter().any(again) {
            let path = path.child("{topologyKey, whenUnsatisfiable}");
            errors.push(Error::duplicate(&path, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = object::int(constraint, &["minDomains"]) {
            let path = path.child("minDomains");
            positive(domains, &path, errors);
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(Error::invalid(&path, domains, detail));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if is_set(constraint, &[field]) && !POLICIES.contains(&of(field)) {
                errors.push(Error::not_supported(&path.child(field), of(field), &POLICIES));
            }
        }
        validate_label_keys(constraint, &path, errors);
        if let Some(selector) = present(constraint, &["labelSelector"]) {
            let path = path.child("labelSelector");
            errors.extend(label_selector_errors(selector, Tolerance::None, &path));
        }
    }
}

fn positive(value: i64, path: &Path, errors: &mut ErrorList) {
    if value <= 0 {
        errors.push(Error::invalid(path, value, "must be greater than zero"));
    }
}

pub fn validate_gates(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, gate) in object::list(spec, &["readinessGates"]).iter().enumerate() {
        let (path, r#type) = (
            path.child("readinessGates").index(i).child("conditionType"),
            object::string(gate, &["conditionType"]),
        );
        errors.extend(invalid_each(&path, r#type, names::qualified_name(r#type)));
    }
    let mut seen = BTreeSet::new();
    for (i, gate) in object::list(spec, &["schedulingGates"]).iter().enumerate() {
        let (path, name) = (path.child("schedulingGates").index(i), object::string(gate, &["name"]));
        errors.extend(invalid_each(&path, name, names::qualified_name(name)));
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path, name));
        }
    }
}

pub fn validate_name_service(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let config = present(spec, &["dnsConfig"]);
    let none = object::string(spec, &["dnsPolicy"]) == "None";
    let Some(config) = config else {
        if none {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(Error::required(path, detail));
        }
        return;
    };
    let (servers, searches) = (strings(config, &["nameservers"]), strings(config, &["searches"]));
    let (servers_path, searches_path) = (path.child("nameservers"), path.child("searches"));
    if none && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        errors.push(Error::required(&servers_path, detail));
        return;
    }
    if servers.len() > MAX_SERVERS {
        let detail = format!("must not have more than {MAX_SERVERS} nameservers");
        errors.push(Error::invalid(&servers_path, servers.clone(), detail));
    }
    for (i, server) in servers.iter().enumerate() {
        errors.extend(ip_errors_legacy(&servers_path.index(i), server, &[]));
    }
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.push(Error::invalid(&searches_path, searches.clone(), detail));
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARACTERS {
        let detail =
            format!("must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list");
        errors.push(Error::invalid(&searches_path, searches.clone(), detail));
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let texts = names::dns1123_subdomain_with_underscore(search);
        errors.extend(invalid_each(&searches_path.index(i), search, texts));
    }
    for (i, option) in object::list(config, &["options"]).iter().enumerate() {
        if object::string(option, &["name"]).is_empty() {
            let path = path.child("options").index(i);
            errors.push(Error::required(&path, "must not be empty"));
        }
    }
}

pub fn validate_host_aliases(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, alias) in object::list(spec, &["hostAliases"]).iter().enumerate() {
        let path = path.index(i);
        errors.extend(ip_errors_legacy(&path.child("ip"), object::string(alias, &["ip"]), &[]));
        for (j, name) in strings(alias, &["hostnames"]).into_iter().enumerate() {
            let path = path.child("hostnames").index(j);
            errors.extend(invalid_each(&path, name, names::dns1123_subdomain(name)));
        }
    }
}

/// Claims of devices that a pod's containers refer to.
pub fn validate_claims(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, claim) in object::list(spec, &["resourceClaims"]).iter().enumerate() {
        let (path, name) = (path.index(i), object::string(claim, &["name"]));
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        } else if seen.contains(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        } else {
            errors.extend(invalid_each(&path.child("name"), name, names::dns1123_label(name)));
            seen.insert(name);
        }
        let of = |field| present(claim, &[field]).and_then(Value::as_str);
        let (one, template) = (of("resourceClaimName"), of("resourceClaimTemplateName"));
        let detail = match (one, template) {
            (Some(_), Some(_)) => {
                Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
            }
            (None, None) => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            _ => None,
        };
        if let Some(detail) = detail {
            let shown = internal::shown(claim, "io.k8s.api.core.v1.PodResourceClaim");
            errors.push(invalid_as(&path, &shown, detail));
        }
        for (field, name) in [("resourceClaimName", one), ("resourceClaimTemplateName", template)] {
            if let Some(name) = name {
                errors.extend(invalid_each(&path.child(field), name, names::dns1123_subdomain(name)));
            }
        }
    }
}
