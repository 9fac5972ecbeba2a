//! Containers: those that a pod runs on with, those that run before, and those that are added later.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::probe::{Setting, validate_lifecycle, validate_probes};
use super::resource::{self, Owner};
use super::{env, security};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, is_empty, is_set, one_of, present};
use crate::kind::workload::number;
use crate::{names, object};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
pub const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const RESTART_ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const BEFORE: &str = "may not be set for init containers without restartPolicy=Always";
const LATER: &str = "cannot be set for an Ephemeral Container";

/// What containers find in their pod.
pub struct Surroundings<'a> {
    /// Good volumes by name.
    pub volumes: BTreeMap<&'a str, &'a Value>,
    pub claims: BTreeSet<&'a str>,
    pub setting: Setting<'a>,
    pub restart_policy: &'a str,
    pub host_users: bool,
}

pub fn validate_all(spec: &Value, around: &Surroundings<'_>, path: &Path, errors: &mut ErrorList) {
    let containers = object::list(spec, &["containers"]);
    let path = path.child("containers");
    if containers.is_empty() {
        errors.push(Error::required(&path, ""));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        validate(container, around, &path, errors);
        let name = object::string(container, &["name"]);
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        validate_lifecycle(container, around.setting, &path, errors);
        validate_probes(container, around.setting, &path, errors);
        validate_restart(container, &path, errors);
    }
    host_port_conflicts(containers, &path, errors);
}

pub fn validate_before(spec: &Value, around: &Surroundings<'_>, path: &Path, errors: &mut ErrorList) {
    let mut seen: BTreeSet<&str> = names_of(spec, &["containers"]);
    let path = path.child("initContainers");
    for (i, container) in object::list(spec, &["initContainers"]).iter().enumerate() {
        let all = &path;
        let path = path.index(i);
        validate(container, around, &path, errors);
        validate_restart(container, &path, errors);
        let name = object::string(container, &["name"]);
        if seen.contains(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        } else if !name.is_empty() {
            seen.insert(name);
        }
        host_port_conflicts(std::slice::from_ref(container), all, errors);
        let lasting = object::string(container, &["restartPolicy"]) == "Always";
        if lasting {
            validate_lifecycle(container, around.setting, &path, errors);
            validate_probes(container, around.setting, &path, errors);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if is_set(container, &[field]) {
                    errors.push(Error::forbidden(&path.child(field), BEFORE));
                }
            }
            for (j, policy) in object::list(container, &["resizePolicy"]).iter().enumerate() {
                let found = object::string(policy, &["restartPolicy"]);
                if found == "RestartContainer" {
                    let path = path.child("resizePolicy").index(j).child("restartPolicy");
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    errors.push(Error::invalid(&path, found, detail));
                }
            }
        }
    }
}

fn names_of<'a>(spec: &'a Value, lists: &[&str]) -> BTreeSet<&'a str> {
    lists
        .iter()
        .flat_map(|list| object::list(spec, &[list]))
        .map(|container| object::string(container, &["name"]))
        .collect()
}

pub fn validate_later(spec: &Value, around: &Surroundings<'_>, path: &Path, errors: &mut ErrorList) {
    const ALLOWED: [&str; 17] = [
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "env",
        "envFrom",
        "volumeMounts",
        "volumeDevices",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
        "tty",
        "targetContainerName",
    ];
    let others = names_of(spec, &["containers", "initContainers"]);
    let mut seen = others.clone();
    let path = path.child("ephemeralContainers");
    for (i, container) in object::list(spec, &["ephemeralContainers"]).iter().enumerate() {
        let path = path.index(i);
        validate(container, around, &path, errors);
        validate_image_text(container, &path, errors);
        let (name, target) = (
            object::string(container, &["name"]),
            object::string(container, &["targetContainerName"]),
        );
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        if !target.is_empty() && !others.contains(target) {
            errors.push(Error::not_found(&path.child("targetContainerName"), target));
        }
        let fields = object::map(container, &[]).into_iter().flatten();
        for (field, value) in fields {
            if !ALLOWED.contains(&field.as_str()) && !is_empty(value) {
                errors.push(Error::forbidden(&path.child(field), LATER));
            }
        }
        for (j, mount) in object::list(container, &["volumeMounts"]).iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !object::string(mount, &[field]).is_empty() {
                    let path = path.child("volumeMounts").index(j).child(field);
                    errors.push(Error::forbidden(&path, LATER));
                }
            }
        }
    }
}

/// Templates may hold what only the controller will see to be no image.
pub fn validate_image_text(container: &Value, path: &Path, errors: &mut ErrorList) {
    let image = object::string(container, &["image"]);
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(Error::invalid(&path.child("image"), image, detail));
    }
}

fn validate(container: &Value, around: &Surroundings<'_>, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(container, &[field]);
    match of("name") {
        "" => errors.push(Error::required(&path.child("name"), "")),
        name => errors.extend(invalid_each(&path.child("name"), name, names::dns1123_label(name))),
    }
    if of("image").is_empty() {
        errors.push(Error::required(&path.child("image"), ""));
    }
    let messages = path.child("terminationMessagePolicy");
    one_of(&messages, of("terminationMessagePolicy"), &MESSAGE_POLICIES, errors);
    validate_ports(container, &path.child("ports"), errors);
    env::validate(container, path, errors);
    validate_mounts(container, &around.volumes, &path.child("volumeMounts"), errors);
    validate_devices(container, &around.volumes, &path.child("volumeDevices"), errors);
    one_of(
        &path.child("imagePullPolicy"),
        of("imagePullPolicy"),
        &PULL_POLICIES,
        errors,
    );
    let resources = container.get("resources").unwrap_or(&Value::Null);
    resource::validate(
        resources,
        Owner::Container,
        &around.claims,
        &path.child("resources"),
        errors,
    );
    validate_resize(container, around.restart_policy, &path.child("resizePolicy"), errors);
    if let Some(context) = present(container, &["securityContext"]) {
        security::validate_container(context, around.host_users, &path.child("securityContext"), errors);
    }
}

fn validate_ports(container: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, port) in object::list(container, &["ports"]).iter().enumerate() {
        let path = path.index(i);
        let name = object::string(port, &["name"]);
        if !name.is_empty() {
            let texts = names::port_name(name);
            if !texts.is_empty() {
                errors.extend(invalid_each(&path.child("name"), name, texts));
            } else if !seen.insert(name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
        }
        if number(port, &["containerPort"]) == 0 {
            errors.push(Error::required(&path.child("containerPort"), ""));
        }
        for field in ["containerPort", "hostPort"] {
            let found = number(port, &[field]);
            if found != 0 {
                let texts = names::port_number(found).into_iter();
                errors.extend(texts.map(|text| Error::invalid(&path.child(field), found, text)));
            }
        }
        let protocol = object::string(port, &["protocol"]);
        one_of(&path.child("protocol"), protocol, &PROTOCOLS, errors);
    }
}

fn host_port_conflicts(containers: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in object::list(container, &["ports"]).iter().enumerate() {
            let host = number(port, &["hostPort"]);
            if host == 0 {
                continue;
            }
            let of = |field| object::string(port, &[field]);
            let shown = format!("{}/{}/{host}", of("protocol"), of("hostIP"));
            if !seen.insert(shown.clone()) {
                let path = path.index(i).child("ports").index(j).child("hostPort");
                errors.push(Error::duplicate(&path, shown));
            }
        }
    }
}

/// Name and path of what a container mounts or opens.
fn places<'a>(container: &'a Value, list: &str, field: &str) -> BTreeMap<&'a str, &'a str> {
    object::list(container, &[list])
        .iter()
        .map(|one| (object::string(one, &["name"]), object::string(one, &[field])))
        .collect()
}

fn validate_mounts(container: &Value, volumes: &BTreeMap<&str, &Value>, all: &Path, errors: &mut ErrorList) {
    let devices = places(container, "volumeDevices", "devicePath");
    let mut seen = BTreeSet::new();
    for (i, mount) in object::list(container, &["volumeMounts"]).iter().enumerate() {
        let path = all.index(i);
        let of = |field| object::string(mount, &[field]);
        let (name, at) = (of("name"), of("mountPath"));
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        }
        if !volumes.contains_key(name) {
            errors.push(Error::not_found(&path.child("name"), name));
        }
        if at.is_empty() {
            errors.push(Error::required(&path.child("mountPath"), ""));
        }
        if !seen.insert(at) {
            errors.push(Error::invalid(&path.child("mountPath"), at, "must be unique"));
        }
        if devices.contains_key(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(Error::invalid(&path.child("name"), name, detail));
        }
        if devices.values().any(|device| *device == at) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(Error::invalid(&path.child("mountPath"), at, detail));
        }
        let (part, expression) = (of("subPath"), of("subPathExpr"));
        if !part.is_empty() {
            local_descending(part, &all.child("subPath"), errors);
        }
        if !expression.is_empty() {
            if !part.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.push(Error::invalid(&path.child("subPathExpr"), expression, detail));
            }
            local_descending(expression, &all.child("subPathExpr"), errors);
        }
        validate_propagation(mount, container, all, errors);
    }
}

fn local_descending(path: &str, at: &Path, errors: &mut ErrorList) {
    if path.starts_with('/') {
        errors.push(Error::invalid(at, path, "must be a relative path"));
    }
    if path.split('/').any(|part| part == "..") {
        errors.push(Error::invalid(at, path, "must not contain '..'"));
    }
}

/// How a mount shows in other places. Upstream names the list where it means one mount.
fn validate_propagation(mount: &Value, container: &Value, all: &Path, errors: &mut ErrorList) {
    const MODES: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    const READ_ONLY: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];
    let mode = present(mount, &["mountPropagation"]).and_then(Value::as_str);
    if let Some(mode) = mode {
        let path = all.child("mountPropagation");
        if !MODES.contains(&mode) {
            errors.push(Error::not_supported(&path, mode, &MODES));
        }
        let privileged = object::get(container, &["securityContext", "privileged"]) == Some(&json!(true));
        if mode == "Bidirectional" && !privileged {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(Error::forbidden(&path, detail));
        }
    }
    let path = all.child("recursiveReadOnly");
    match present(mount, &["recursiveReadOnly"]).and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.get("readOnly") != Some(&json!(true)) {
                let detail = "may only be specified when readOnly is true";
                errors.push(Error::forbidden(&path, detail));
            }
            if mode.is_some_and(|mode| mode != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(Error::forbidden(&path, detail));
            }
        }
        Some(other) => errors.push(Error::not_supported(&path, other, &READ_ONLY)),
    }
}

fn validate_devices(container: &Value, volumes: &BTreeMap<&str, &Value>, path: &Path, errors: &mut ErrorList) {
    let mounts = places(container, "volumeMounts", "mountPath");
    let (mut names_, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (i, device) in object::list(container, &["volumeDevices"]).iter().enumerate() {
        let path = path.index(i);
        let (name, at) = (
            object::string(device, &["name"]),
            object::string(device, &["devicePath"]),
        );
        let (name_path, at_path) = (path.child("name"), path.child("devicePath"));
        if name.is_empty() {
            errors.push(Error::required(&name_path, ""));
        }
        if names_.contains(name) {
            errors.push(Error::invalid(&name_path, name, "must be unique"));
        }
        match volumes.get(name) {
            None => errors.push(Error::not_found(&name_path, name)),
            Some(volume) if !is_set(volume, &["persistentVolumeClaim"]) && !is_set(volume, &["ephemeral"]) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(Error::invalid(&name_path, name, detail));
            }
            Some(_) => {}
        }
        if at.is_empty() {
            errors.push(Error::required(&at_path, ""));
        }
        if paths.contains(at) {
            errors.push(Error::invalid(&at_path, at, "must be unique"));
        }
        if at.split('/').any(|part| part == "..") {
            errors.push(Error::invalid(&at_path, at, "can not contain backsteps ('..')"));
        } else {
            paths.insert(at);
        }
        if mounts.contains_key(name) {
            let detail = "must not already exist in volumeMounts";
            errors.push(Error::invalid(&name_path, name, detail));
        }
        if mounts.values().any(|mount| *mount == at) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.push(Error::invalid(&at_path, at, detail));
        }
        if !name.is_empty() {
            names_.insert(name);
        }
    }
}

/// What happens to a container whose resources change. Upstream names the list where it means one policy.
fn validate_resize(container: &Value, restart: &str, path: &Path, errors: &mut ErrorList) {
    const RESOURCES: [&str; 2] = ["cpu", "memory"];
    const POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
    let mut seen = BTreeSet::new();
    for (i, policy) in object::list(container, &["resizePolicy"]).iter().enumerate() {
        let (name, found) = (
            object::string(policy, &["resourceName"]),
            object::string(policy, &["restartPolicy"]),
        );
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.index(i), name));
        }
        one_of(path, name, &RESOURCES, errors);
        one_of(path, found, &POLICIES, errors);
        if restart == "Never" && found != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(Error::invalid(path, found, detail));
        }
    }
}

fn validate_restart(container: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = object::list(container, &["restartPolicyRules"]);
    match present(container, &["restartPolicy"]).and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.push(Error::required(&path.child("restartPolicy"), detail));
        }
        Some(policy) if !RESTART_POLICIES.contains(&policy) => {
            let path = path.child("restartPolicy");
            errors.push(Error::not_supported(&path, policy, &RESTART_POLICIES));
        }
        Some(_) => {}
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > MAX_RULES {
        errors.push(Error::too_many(&path, rules.len(), MAX_RULES));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let action = object::string(rule, &["action"]);
        if !RESTART_ACTIONS.contains(&action) {
            errors.push(Error::not_supported(&path.child("action"), action, &RESTART_ACTIONS));
        }
        let Some(codes) = present(rule, &["exitCodes"]) else {
            errors.push(Error::required(&path.child("exitCodes"), "must be specified"));
            continue;
        };
        let (path, operator) = (path.child("exitCodes"), object::string(codes, &["operator"]));
        if !OPERATORS.contains(&operator) {
            errors.push(Error::not_supported(&path.child("operator"), operator, &OPERATORS));
        }
        let values = object::list(codes, &["values"]).len();
        if values > MAX_EXIT_CODES {
            errors.push(Error::too_many(&path.child("values"), values, MAX_EXIT_CODES));
        }
    }
}
