//! Validation of pods and of the templates that become pods.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::container::{self, Surroundings};
use super::probe::Setting;
use super::{affinity, apparmor, place, resource, security};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, invalid_each, is_set, one_of, present};
use crate::kind::core::resource::{validate_amount, validate_container_name};
use crate::kind::storage::source::{self, Holder};
use crate::kind::workload::number;
use crate::names;
use crate::object;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PREEMPTION: [&str; 2] = ["PreemptLowerPriority", "Never"];
const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const MAX_HOST_NAME: usize = 64;

/// Whose spec it is.
#[derive(Clone, Copy)]
enum Holds<'a> {
    /// A pod's, with its metadata.
    Pod(&'a Value),
    Template,
}

/// What is wrong with a template.
pub fn validate_template(template: &Value, path: &Path) -> ErrorList {
    let null = Value::Null;
    let metadata = template.get("metadata").unwrap_or(&null);
    let mut errors = ErrorList::new();
    if let Some(labels) = present(metadata, &["labels"]) {
        errors.extend(names::label_errors(labels, &path.child("labels")));
    }
    if let Some(annotations) = present(metadata, &["annotations"]) {
        errors.extend(names::annotation_errors(annotations, &path.child("annotations")));
    }
    let spec = template.get("spec").unwrap_or(&null);
    validate_annotations(metadata, spec, &path.child("annotations"), &mut errors);
    let path = path.child("spec");
    validate_spec(spec, Holds::Template, &path, &mut errors);
    security::validate_agreement(metadata, spec, &path, &mut errors);
    apparmor::validate_agreement(metadata, spec, &path, &mut errors);
    if !object::list(spec, &["ephemeralContainers"]).is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(Error::forbidden(&path.child("ephemeralContainers"), detail));
    }
    errors
}

/// What is wrong with a pod, whether it is new or changed.
pub fn validate_pod(pod: &Value) -> ErrorList {
    let null = Value::Null;
    let (metadata, spec) = (pod.get("metadata").unwrap_or(&null), pod.get("spec").unwrap_or(&null));
    let path = Path::new("spec");
    let mut errors = ErrorList::new();
    let annotations = Path::new("metadata").child("annotations");
    validate_annotations(metadata, spec, &annotations, &mut errors);
    validate_spec(spec, Holds::Pod(metadata), &path, &mut errors);
    if object::string(spec, &["serviceAccountName"]).is_empty() {
        forbid_tokens(spec, &path.child("volumes"), &mut errors);
    }
    for list in ["containers", "initContainers"] {
        for (i, one) in object::list(spec, &[list]).iter().enumerate() {
            container::validate_image_text(one, &path.child(list).index(i), &mut errors);
        }
    }
    errors
}

/// What is wrong with a new pod beyond that.
pub fn validate_new_pod(pod: &Value) -> ErrorList {
    let mut errors = validate_pod(pod);
    let path = Path::new("spec");
    let list = |field| object::list(pod, &["spec", field]);
    if !list("ephemeralContainers").is_empty() {
        let path = path.child("ephemeralContainers");
        errors.push(Error::forbidden(&path, "cannot be set on create"));
    }
    if !object::string(pod, &["spec", "nodeName"]).is_empty() && !list("schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(Error::forbidden(&path.child("nodeName"), detail));
    }
    let null = Value::Null;
    let of = |field| pod.get(field).unwrap_or(&null);
    security::validate_agreement(of("metadata"), of("spec"), &path, &mut errors);
    apparmor::validate_agreement(of("metadata"), of("spec"), &path, &mut errors);
    errors
}

/// Tokens are somebody's.
fn forbid_tokens(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, volume) in object::list(spec, &["volumes"]).iter().enumerate() {
        for (j, source) in object::list(volume, &["projected", "sources"]).iter().enumerate() {
            if is_set(source, &["serviceAccountToken"]) {
                let path = path.index(i).child("projected").child("sources").index(j);
                let detail = "must not be specified when serviceAccountName is not set";
                errors.push(Error::forbidden(&path.child("serviceAccountToken"), detail));
            }
        }
    }
}

/// Annotations that mean something to pods.
pub fn validate_annotations(metadata: &Value, spec: &Value, path: &Path, errors: &mut ErrorList) {
    let annotation = |key: &str| object::get(metadata, &["annotations", key]).and_then(Value::as_str);
    if let Some(value) = annotation(MIRROR)
        && object::string(spec, &["nodeName"]).is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(Error::invalid(&path.key(MIRROR), value, detail));
    }
    if let Some(cost) = annotation(DELETION_COST) {
        // Go's number, and no leading plus or zeros.
        let plain = cost.parse::<i32>().is_ok_and(|number| number.to_string() == cost);
        if !plain {
            errors.push(Error::invalid(
                &path.key(DELETION_COST),
                cost,
                "must be a 32bit integer",
            ));
        }
    }
    security::validate_annotations(metadata, path, errors);
    apparmor::validate_annotations(metadata, spec, path, errors);
}

fn validate_spec(spec: &Value, holds: Holds<'_>, path: &Path, errors: &mut ErrorList) {
    if !is_set(spec, &["terminationGracePeriodSeconds"]) {
        errors.push(Error::required(&path.child("terminationGracePeriodSeconds"), ""));
    }
    let volumes = validate_volumes(spec, holds, &path.child("volumes"), errors);
    place::validate_claims(spec, &path.child("resourceClaims"), errors);
    let around = Surroundings {
        volumes,
        claims: object::list(spec, &["resourceClaims"])
            .iter()
            .map(|claim| object::string(claim, &["name"]))
            .filter(|name| !name.is_empty())
            .collect(),
        setting: Setting {
            grace: object::int(spec, &["terminationGracePeriodSeconds"]),
            os: present(spec, &["os", "name"]).and_then(Value::as_str),
        },
        restart_policy: object::string(spec, &["restartPolicy"]),
        host_users: spec.get("hostUsers") != Some(&json!(false)),
    };
    container::validate_all(spec, &around, path, errors);
    container::validate_before(spec, &around, path, errors);
    container::validate_later(spec, &around, path, errors);
    resource::validate_of_pod(spec, &around.claims, path, errors);
    validate_host_network(spec, holds, path, errors);
    let of = |field| object::string(spec, &[field]);
    one_of(
        &path.child("restartPolicy"),
        of("restartPolicy"),
        &RESTART_POLICIES,
        errors,
    );
    one_of(&path.child("dnsPolicy"), of("dnsPolicy"), &DNS_POLICIES, errors);
    if let Some(selector) = present(spec, &["nodeSelector"]) {
        errors.extend(names::label_errors(selector, &path.child("nodeSelector")));
    }
    security::validate_pod(spec, &path.child("securityContext"), errors);
    affinity::validate(spec, &path.child("affinity"), errors);
    place::validate_name_service(spec, &path.child("dnsConfig"), errors);
    place::validate_gates(spec, path, errors);
    place::validate_spread(spec, &path.child("topologySpreadConstraints"), errors);
    security::validate_host_process(spec, path, errors);
    security::validate_host_users(spec, path, errors);
    validate_host_name(spec, &path.child("hostnameOverride"), errors);
    validate_names(spec, path, errors);
    place::validate_tolerations(spec, &path.child("tolerations"), errors);
    place::validate_host_aliases(spec, &path.child("hostAliases"), errors);
    validate_classes(spec, path, errors);
    security::validate_os(spec, path, errors);
    validate_file_keys(spec, path, errors);
}

fn validate_names(spec: &Value, path: &Path, errors: &mut ErrorList) {
    type Rule = fn(&str) -> Vec<String>;
    let mut check = |field: &str, rule: Rule| {
        let name = object::string(spec, &[field]);
        if !name.is_empty() {
            errors.extend(invalid_each(&path.child(field), name, rule(name)));
        }
    };
    check("serviceAccountName", names::dns1123_subdomain);
    check("nodeName", names::dns1123_subdomain);
    if let Some(seconds) =
        object::int(spec, &["activeDeadlineSeconds"]).filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds))
    {
        let detail = names::inclusive_range_error(1, i64::from(i32::MAX));
        errors.push(Error::invalid(&path.child("activeDeadlineSeconds"), seconds, detail));
    }
    let mut check = |field: &str, rule: Rule| {
        let name = object::string(spec, &[field]);
        if !name.is_empty() {
            errors.extend(invalid_each(&path.child(field), name, rule(name)));
        }
    };
    check("hostname", names::dns1123_label);
    check("subdomain", names::dns1123_label);
}

fn validate_classes(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(spec, &[field]);
    for field in ["priorityClassName", "runtimeClassName"] {
        let given = is_set(spec, &[field]) && (field == "runtimeClassName" || !of(field).is_empty());
        if given {
            let texts = names::dns1123_subdomain(of(field));
            errors.extend(invalid_each(&path.child(field), of(field), texts));
        }
    }
    if is_set(spec, &["preemptionPolicy"]) {
        one_of(
            &path.child("preemptionPolicy"),
            of("preemptionPolicy"),
            &PREEMPTION,
            errors,
        );
    }
    for (name, amount) in entries(spec, &["overhead"]) {
        let path = path.child("overhead").child("limits").key(name);
        errors.extend(validate_container_name(name, &path));
        errors.extend(validate_amount(name, amount, &path));
    }
}

/// Checks volumes, and returns the good ones.
fn validate_volumes<'a>(
    spec: &'a Value,
    holds: Holds<'_>,
    path: &Path,
    errors: &mut ErrorList,
) -> BTreeMap<&'a str, &'a Value> {
    let volumes = object::list(spec, &["volumes"]);
    let own_claims: BTreeSet<String> = match holds {
        Holds::Pod(metadata) => {
            let pod = object::string(metadata, &["name"]);
            let ephemeral = volumes.iter().filter(|volume| is_set(volume, &["ephemeral"]));
            ephemeral
                .map(|volume| format!("{pod}-{}", object::string(volume, &["name"])))
                .filter(|_| !pod.is_empty())
                .collect()
        }
        Holds::Template => BTreeSet::new(),
    };
    let mut good = BTreeMap::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = path.index(i);
        let name = object::string(volume, &["name"]);
        let mut found = ErrorList::new();
        source::validate(volume, Holder::Pod(name), &path, &mut found);
        validate_generated_name(name, volume, holds, &path, &mut found);
        let image = object::string(volume, &["image", "reference"]);
        if matches!(holds, Holds::Pod(_)) && is_set(volume, &["image"]) && image.is_empty() {
            found.push(Error::required(&path.child("image").child("reference"), ""));
        }
        if name.is_empty() {
            found.push(Error::required(&path.child("name"), ""));
        } else {
            found.extend(invalid_each(&path.child("name"), name, names::dns1123_label(name)));
        }
        if good.contains_key(name) {
            found.push(Error::duplicate(&path.child("name"), name));
        }
        if found.is_empty() {
            good.insert(name, volume);
        }
        errors.extend(found);
        let claim = object::string(volume, &["persistentVolumeClaim", "claimName"]);
        if own_claims.contains(claim) {
            let path = path.child("persistentVolumeClaim").child("claimName");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(Error::invalid(&path, claim, detail));
        }
    }
    good
}

/// The claim of an ephemeral volume has pod's and volume's name, which must be one.
fn validate_generated_name(name: &str, volume: &Value, holds: Holds<'_>, path: &Path, errors: &mut ErrorList) {
    let Holds::Pod(metadata) = holds else { return };
    let pod = object::string(metadata, &["name"]);
    if !is_set(volume, &["ephemeral"]) || pod.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod}-{name}");
    for text in names::dns1123_subdomain(&claim) {
        let detail = format!("PVC name {}: {text}", crate::field::quote(&claim));
        errors.push(Error::invalid(&path.child("name"), name, detail));
    }
}

/// On the host's network a container's ports are the host's. A template says so only where it says anything.
fn validate_host_network(spec: &Value, holds: Holds<'_>, path: &Path, errors: &mut ErrorList) {
    if spec.get("hostNetwork") != Some(&json!(true)) {
        return;
    }
    for (i, container) in object::list(spec, &["containers"]).iter().enumerate() {
        for (j, port) in object::list(container, &["ports"]).iter().enumerate() {
            let (host, own) = (number(port, &["hostPort"]), number(port, &["containerPort"]));
            if host != own && (host != 0 || matches!(holds, Holds::Pod(_))) {
                let path = path
                    .child("containers")
                    .index(i)
                    .child("ports")
                    .index(j)
                    .child("hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(Error::invalid(&path, host, detail));
            }
        }
    }
}

fn validate_host_name(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(name) = present(spec, &["hostnameOverride"]).and_then(Value::as_str) else {
        return;
    };
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.get(field) == Some(&json!(true)) {
            let detail = format!("may not be specified when {field} is true");
            errors.push(Error::forbidden(path, detail));
        }
    }
    if name.len() > MAX_HOST_NAME {
        errors.push(Error::too_long(path, MAX_HOST_NAME));
    }
    errors.extend(invalid_each(path, name, names::dns1123_subdomain(name)));
}

/// Variables out of files: the file is in a volume that the pod has for itself.
fn validate_file_keys(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let volumes = object::list(spec, &["volumes"]);
    for (path, container) in security::containers(spec, path) {
        for (i, variable) in object::list(container, &["env"]).iter().enumerate() {
            let Some(file) = present(variable, &["valueFrom", "fileKeyRef"]) else {
                continue;
            };
            let name = object::string(file, &["volumeName"]);
            let path = path
                .child("env")
                .index(i)
                .child("valueFrom")
                .child("fileKeyRef")
                .child("volumeName");
            match volumes.iter().find(|volume| object::string(volume, &["name"]) == name) {
                None => errors.push(Error::not_found(&path, name)),
                Some(volume) if !is_set(volume, &["emptyDir"]) => {
                    let detail = "referenced volume must be of type emptyDir";
                    errors.push(Error::invalid(&path, name, detail));
                }
                Some(_) => {}
            }
        }
    }
}
