//! Ingresses and IngressClasses.

use serde_json::Value;

use super::service_print::balancer;
use super::service_validate::validate_hostname;
use crate::field::{Error, ErrorList, Path};
use crate::kind::MetadataCheck;
use crate::kind::check::{immutable_string, invalid_each, is_set, present, set_default_pointer, strings};
use crate::kind::column::age;
use crate::kind::plain::{Plain, Status};
use crate::kind::workload::number;
use crate::names::{domain_prefixed_path, ip_errors_legacy, parse_ip_sloppy};
use crate::{names, object};

const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const CLASS: &str = "kubernetes.io/ingress.class";
const MAX_CONTROLLER: usize = 250;
/// Hosts that a row shows.
const SHOWN: usize = 3;

pub const INGRESS: Plain = Plain {
    validate: |_, object| {
        let mut errors = validate(object);
        let told = object::get(object, &["metadata", "annotations", CLASS]).and_then(Value::as_str);
        let class = present(object, &["spec", "ingressClassName"]).and_then(Value::as_str);
        if let (Some(told), Some(class)) = (told, class)
            && told != class
        {
            let detail = "must match `ingressClassName` when both are specified";
            errors.push(Error::invalid(&Path::new("annotations").child(CLASS), told, detail));
        }
        errors
    },
    validate_update: |_, new, _| validate(new),
    metadata_check: MetadataCheck::ChangeThenWhole,
    status: Status::Apart,
    validate_status,
    generation: &["spec"],
    cells: |object, now| {
        let class = present(object, &["spec", "ingressClassName"]).cloned();
        let secure = !object::list(object, &["spec", "tls"]).is_empty();
        vec![
            object::name(object).into(),
            class.unwrap_or("<none>".into()),
            hosts(object).into(),
            balancer(object::list(object, &["status", "loadBalancer", "ingress"])).into(),
            if secure { "80, 443" } else { "80" }.into(),
            age(object, now),
        ]
    },
    warnings: |_, new, old| {
        let told = object::get(new, &["metadata", "annotations", CLASS]).is_some();
        if told && old.is_none() {
            return vec![format!(
                "annotation {} is deprecated, please use 'spec.ingressClassName' instead",
                crate::field::quote(CLASS)
            )];
        }
        Vec::new()
    },
    ..Plain::new("networking.k8s.io/ingresses", "io.k8s.api.networking.v1.Ingress")
};

pub const INGRESS_CLASS: Plain = Plain {
    default: |object| {
        if is_set(object, &["spec", "parameters"]) {
            set_default_pointer(object, &["spec", "parameters", "scope"], "Cluster");
        }
    },
    validate: |_, object| validate_class(object),
    validate_update: |_, new, old| {
        let mut errors = ErrorList::new();
        let path = Path::new("spec").child("controller");
        immutable_string(new, old, &["spec", "controller"], &path, &mut errors);
        errors.extend(validate_class(new));
        errors
    },
    metadata_check: MetadataCheck::ChangeThenWhole,
    generation: &["spec"],
    cells: class_cells,
    ..Plain::new(
        "networking.k8s.io/ingressclasses",
        "io.k8s.api.networking.v1.IngressClass",
    )
};

fn validate(object: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    let rules = object::list(spec, &["rules"]);
    let backend = present(spec, &["defaultBackend"]);
    if rules.is_empty() && backend.is_none() {
        let shown = present(spec, &["rules"]).cloned().unwrap_or_default();
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(Error::invalid(&path, shown, detail));
    }
    if let Some(backend) = backend {
        validate_backend(backend, &path.child("defaultBackend"), &mut errors);
    }
    for (i, rule) in rules.iter().enumerate() {
        validate_rule(rule, &path.child("rules").index(i), &mut errors);
    }
    for (i, tls) in object::list(spec, &["tls"]).iter().enumerate() {
        let path = path.child("tls").index(i);
        for (j, host) in strings(tls, &["hosts"]).into_iter().enumerate() {
            errors.extend(invalid_each(&path.child("hosts").index(j), host, host_errors(host)));
        }
        let secret = object::string(tls, &["secretName"]);
        if !secret.is_empty() {
            let texts = names::dns1123_subdomain(secret);
            errors.extend(invalid_each(&path.child("secretName"), secret, texts));
        }
    }
    if let Some(class) = present(spec, &["ingressClassName"]).and_then(Value::as_str) {
        let texts = names::dns1123_subdomain(class);
        errors.extend(invalid_each(&path.child("ingressClassName"), class, texts));
    }
    errors
}

fn host_errors(host: &str) -> Vec<String> {
    if host.contains('*') {
        names::wildcard_dns1123_subdomain(host)
    } else {
        names::dns1123_subdomain(host)
    }
}

fn validate_rule(rule: &Value, path: &Path, errors: &mut ErrorList) {
    let host = object::string(rule, &["host"]);
    if !host.is_empty() {
        let path = path.child("host");
        if parse_ip_sloppy(host).is_some() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(Error::invalid(&path, host, detail));
        }
        errors.extend(invalid_each(&path, host, host_errors(host)));
    }
    let Some(http) = present(rule, &["http"]) else { return };
    let (path, paths) = (path.child("http").child("paths"), object::list(http, &["paths"]));
    if paths.is_empty() {
        errors.push(Error::required(&path, ""));
    }
    for (i, one) in paths.iter().enumerate() {
        validate_path(one, &path.index(i), errors);
    }
}

fn validate_path(one: &Value, path: &Path, errors: &mut ErrorList) {
    let text = object::string(one, &["path"]);
    let at = path.child("path");
    let Some(r#type) = present(one, &["pathType"]).and_then(Value::as_str) else {
        let detail = "pathType must be specified";
        errors.push(Error::required(&path.child("pathType"), detail));
        return;
    };
    match r#type {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                errors.push(Error::invalid(&at, text, "must be an absolute path"));
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(bad) {
                    errors.push(Error::invalid(&at, text, format!("must not contain '{bad}'")));
                }
            }
            for bad in ["/..", "/."] {
                if text.ends_with(bad) {
                    errors.push(Error::invalid(&at, text, format!("cannot end with '{bad}'")));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.push(Error::invalid(&at, text, "must be an absolute path"));
            }
        }
        other => errors.push(Error::not_supported(&path.child("pathType"), other, &PATH_TYPES)),
    }
    validate_backend(
        one.get("backend").unwrap_or(&Value::Null),
        &path.child("backend"),
        errors,
    );
}

fn validate_backend(backend: &Value, path: &Path, errors: &mut ErrorList) {
    match (present(backend, &["resource"]), present(backend, &["service"])) {
        (Some(_), Some(_)) => {
            let detail = "cannot set both resource and service backends";
            errors.push(Error::invalid(path, "", detail));
        }
        (Some(resource), None) => validate_reference(resource, &path.child("resource"), errors),
        (None, Some(service)) => validate_service(service, path, errors),
        (None, None) => {
            let detail = "resource or service backend is required";
            errors.push(Error::invalid(path, "", detail));
        }
    }
}

fn validate_service(service: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("service");
    match object::string(service, &["name"]) {
        "" => errors.push(Error::required(&at.child("name"), "")),
        name => errors.extend(invalid_each(&at.child("name"), name, names::dns1123_label(name))),
    }
    let (name, port) = (
        object::string(service, &["port", "name"]),
        number(service, &["port", "number"]),
    );
    let at = at.child("port");
    match (name, port) {
        ("", 0) => errors.push(Error::required(path, "port name or number is required")),
        ("", port) => {
            let texts = names::port_number(port).into_iter();
            errors.extend(texts.map(|text| Error::invalid(&at.child("number"), port, text)));
        }
        (name, 0) => errors.extend(invalid_each(&at.child("name"), name, names::port_name(name))),
        _ => {
            let detail = "cannot set both port name & port number";
            errors.push(Error::invalid(path, "", detail));
        }
    }
}

fn validate_reference(reference: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(group) = present(reference, &["apiGroup"]).and_then(Value::as_str) {
        let texts = names::dns1123_subdomain(group);
        errors.extend(invalid_each(&path.child("apiGroup"), group, texts));
    }
    for field in ["kind", "name"] {
        match object::string(reference, &[field]) {
            "" => errors.push(Error::required(&path.child(field), "")),
            text => errors.extend(invalid_each(&path.child(field), text, names::path_segment_name(text))),
        }
    }
}

fn validate_status(new: &Value, old: &Value) -> ErrorList {
    const AT: [&str; 3] = ["status", "loadBalancer", "ingress"];
    let before: Vec<&str> = object::list(old, &AT)
        .iter()
        .map(|one| object::string(one, &["ip"]))
        .collect();
    let mut errors = ErrorList::new();
    for (i, one) in object::list(new, &AT).iter().enumerate() {
        let path = Path::new("status").child("loadBalancer").child("ingress").index(i);
        let ip = object::string(one, &["ip"]);
        if !ip.is_empty() {
            errors.extend(ip_errors_legacy(&path.child("ip"), ip, &before));
        }
        validate_hostname(object::string(one, &["hostname"]), &path.child("hostname"), &mut errors);
    }
    errors
}

fn hosts(object: &Value) -> String {
    let rules = object::list(object, &["spec", "rules"]);
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN;
        let host = object::string(rule, &["host"]);
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match shown.join(",") {
        text if text.is_empty() => "*".to_owned(),
        text if more => format!("{text} + {} more...", rules.len() - SHOWN),
        text => text,
    }
}

fn validate_class(object: &Value) -> ErrorList {
    let path = Path::new("spec");
    let mut errors = ErrorList::new();
    let (controller, at) = (
        object::string(object, &["spec", "controller"]),
        path.child("controller"),
    );
    if controller.len() > MAX_CONTROLLER {
        errors.push(Error::too_long(&at, MAX_CONTROLLER));
    }
    errors.extend(domain_prefixed_path(&at, controller));
    if let Some(parameters) = present(object, &["spec", "parameters"]) {
        let path = path.child("parameters");
        validate_reference(parameters, &path, &mut errors);
        validate_scope(parameters, &path, &mut errors);
    }
    errors
}

fn validate_scope(parameters: &Value, path: &Path, errors: &mut ErrorList) {
    const SCOPES: [&str; 2] = ["Cluster", "Namespace"];
    let (at, namespace) = (
        path.child("namespace"),
        present(parameters, &["namespace"]).and_then(Value::as_str),
    );
    match (present(parameters, &["scope"]).and_then(Value::as_str), namespace) {
        (None, _) => errors.push(Error::required(&path.child("scope"), "")),
        (Some("Namespace"), None) => {
            errors.push(Error::required(&at, "`parameters.scope` is set to 'Namespace'"));
        }
        (Some("Namespace"), Some(name)) => errors.extend(invalid_each(&at, name, names::dns1123_label(name))),
        (Some("Cluster"), Some(_)) => {
            errors.push(Error::forbidden(&at, "`parameters.scope` is set to 'Cluster'"));
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => errors.push(Error::not_supported(&path.child("scope"), other, &SCOPES)),
    }
}

fn class_cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let is_default = object::string(
        object,
        &["metadata", "annotations", "ingressclass.kubernetes.io/is-default-class"],
    );
    let name = object::name(object);
    let name = if is_default == "true" {
        format!("{name} (default)")
    } else {
        name.to_owned()
    };
    let parameters = present(object, &["spec", "parameters"]).map_or("<none>".to_owned(), |parameters| {
        let of = |field| object::string(parameters, &[field]);
        match present(parameters, &["apiGroup"]) {
            Some(_) => format!("{}.{}/{}", of("kind"), of("apiGroup"), of("name")),
            None => format!("{}/{}", of("kind"), of("name")),
        }
    });
    vec![
        name.into(),
        object::string(object, &["spec", "controller"]).into(),
        parameters.into(),
        age(object, now),
    ]
}
