//! Validation of a pod template: what any server must refuse because it could be no pod.
//!
//! Sources of volumes, security contexts, probes and resources are not looked into yet.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, one_of};
use crate::names;
use crate::object;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// What is wrong with a template.
pub fn validate_template(template: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(labels) = object::get(template, &["metadata", "labels"]) {
        errors.extend(names::label_errors(labels, &path.child("labels")));
    }
    if let Some(annotations) = object::get(template, &["metadata", "annotations"]) {
        errors.extend(names::annotation_errors(annotations, &path.child("annotations")));
    }
    let spec = template.get("spec").unwrap_or(&Value::Null);
    validate_spec(spec, &path.child("spec"), &mut errors);
    if !object::list(spec, &["ephemeralContainers"]).is_empty() {
        let path = path.child("spec").child("ephemeralContainers");
        errors.push(Error::forbidden(
            &path,
            "ephemeral containers not allowed in pod template",
        ));
    }
    errors
}

fn validate_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let volumes = validate_volumes(spec, &path.child("volumes"), errors);
    let containers = object::list(spec, &["containers"]);
    if containers.is_empty() {
        errors.push(Error::required(&path.child("containers"), ""));
    }
    let mut seen = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for (i, container) in object::list(spec, &[list]).iter().enumerate() {
            let path = path.child(list).index(i);
            validate_container(container, &volumes, &path, errors);
            let name = object::string(container, &["name"]);
            if !seen.insert(name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
        }
    }
    let of = |field| object::string(spec, &[field]);
    one_of(
        &path.child("restartPolicy"),
        of("restartPolicy"),
        &RESTART_POLICIES,
        errors,
    );
    one_of(&path.child("dnsPolicy"), of("dnsPolicy"), &DNS_POLICIES, errors);
    if let Some(selector) = object::get(spec, &["nodeSelector"]) {
        errors.extend(names::label_errors(selector, &path.child("nodeSelector")));
    }
    let account = of("serviceAccountName");
    if !account.is_empty() {
        let texts = names::dns1123_subdomain(account);
        errors.extend(invalid_each(&path.child("serviceAccountName"), account, texts));
    }
    let node = of("nodeName");
    if !node.is_empty() {
        errors.extend(invalid_each(
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        ));
    }
    if let Some(seconds) =
        object::int(spec, &["activeDeadlineSeconds"]).filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds))
    {
        let detail = names::inclusive_range_error(1, i64::from(i32::MAX));
        errors.push(Error::invalid(&path.child("activeDeadlineSeconds"), seconds, detail));
    }
    for field in ["hostname", "subdomain"] {
        if !of(field).is_empty() {
            errors.extend(invalid_each(
                &path.child(field),
                of(field),
                names::dns1123_label(of(field)),
            ));
        }
    }
}

/// Checks names of volumes, and returns the good ones.
fn validate_volumes<'a>(spec: &'a Value, path: &Path, errors: &mut ErrorList) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (i, volume) in object::list(spec, &["volumes"]).iter().enumerate() {
        let (path, name) = (path.index(i).child("name"), object::string(volume, &["name"]));
        let texts = names::dns1123_label(name);
        if name.is_empty() {
            errors.push(Error::required(&path, ""));
        } else if !texts.is_empty() {
            errors.extend(invalid_each(&path, name, texts));
        } else if !names.insert(name) {
            errors.push(Error::duplicate(&path, name));
        }
    }
    names
}

fn validate_container(container: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(container, &[field]);
    match of("name") {
        "" => errors.push(Error::required(&path.child("name"), "")),
        name => errors.extend(invalid_each(&path.child("name"), name, names::dns1123_label(name))),
    }
    match of("image") {
        "" => errors.push(Error::required(&path.child("image"), "")),
        image if image.trim() != image => {
            let detail = "must not have leading or trailing whitespace";
            errors.push(Error::invalid(&path.child("image"), image, detail));
        }
        _ => {}
    }
    let policy = of("terminationMessagePolicy");
    one_of(
        &path.child("terminationMessagePolicy"),
        policy,
        &MESSAGE_POLICIES,
        errors,
    );
    validate_ports(container, &path.child("ports"), errors);
    for (i, variable) in object::list(container, &["env"]).iter().enumerate() {
        let path = path.child("env").index(i).child("name");
        match object::string(variable, &["name"]) {
            "" => errors.push(Error::required(&path, "")),
            name => errors.extend(invalid_each(&path, name, names::relaxed_env_var_name(name))),
        }
    }
    validate_mounts(container, volumes, &path.child("volumeMounts"), errors);
    one_of(
        &path.child("imagePullPolicy"),
        of("imagePullPolicy"),
        &PULL_POLICIES,
        errors,
    );
}

fn validate_ports(container: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, port) in object::list(container, &["ports"]).iter().enumerate() {
        let path = path.index(i);
        let (name, texts) = (
            object::string(port, &["name"]),
            names::port_name(object::string(port, &["name"])),
        );
        if !name.is_empty() {
            if !texts.is_empty() {
                errors.extend(invalid_each(&path.child("name"), name, texts));
            } else if !seen.insert(name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
        }
        let number = |field| object::int(port, &[field]).unwrap_or_default();
        if number("containerPort") == 0 {
            errors.push(Error::required(&path.child("containerPort"), ""));
        }
        for field in ["containerPort", "hostPort"] {
            if number(field) != 0 {
                let texts = names::port_number(number(field)).into_iter();
                errors.extend(texts.map(|text| Error::invalid(&path.child(field), number(field), text)));
            }
        }
        one_of(
            &path.child("protocol"),
            object::string(port, &["protocol"]),
            &PROTOCOLS,
            errors,
        );
    }
}

fn validate_mounts(container: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, mount) in object::list(container, &["volumeMounts"]).iter().enumerate() {
        let path = path.index(i);
        let (name, mount_path) = (object::string(mount, &["name"]), object::string(mount, &["mountPath"]));
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(Error::not_found(&path.child("name"), name));
        }
        if mount_path.is_empty() {
            errors.push(Error::required(&path.child("mountPath"), ""));
        }
        if !seen.insert(mount_path) {
            errors.push(Error::invalid(&path.child("mountPath"), mount_path, "must be unique"));
        }
    }
}
