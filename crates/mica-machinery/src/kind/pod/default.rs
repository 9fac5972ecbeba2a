//! Defaults of pods and pod templates.
//!
//! Those that upstream marks in its types (`+default`) come from the fact table; the rest depends on other fields and is here.

use serde_json::{Value, json};

use super::resource::total_requests;
use crate::kind::check::{is_set, list_mut, set_default, set_default_pointer};
use crate::kind::core::resource::{fill, round_up};
use crate::kind::marker;
use crate::object;

/// Fills in the template at a path of an object, if it is there.
pub fn default_template(object: &mut Value, at: &[&str]) {
    let Some(template) = at.iter().try_fold(object, |at, name| at.get_mut(*name)) else {
        return;
    };
    forget_init_containers(template);
    let Some(spec) = template.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    default_spec(spec);
}

/// How init containers were once told, which upstream keeps from old kubelets.
const INIT_CONTAINERS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

fn forget_init_containers(holder: &mut Value) {
    let Some(Value::Object(annotations)) = holder.get_mut("metadata").and_then(|all| all.get_mut("annotations")) else {
        return;
    };
    let before = annotations.len();
    annotations.retain(|key, _| !INIT_CONTAINERS.contains(&key.as_str()));
    if annotations.is_empty() && before != 0 {
        object::remove(holder, &["metadata", "annotations"]);
    }
}

/// Fills in a pod's spec, in a template or not.
pub fn default_spec(spec: &mut Value) {
    marker::fill(spec, "io.k8s.api.core.v1.PodSpec");
    set_default(spec, &["dnsPolicy"], "ClusterFirst");
    set_default(spec, &["restartPolicy"], "Always");
    set_default_pointer(spec, &["securityContext"], json!({}));
    set_default_pointer(spec, &["terminationGracePeriodSeconds"], 30);
    set_default(spec, &["schedulerName"], "default-scheduler");
    settle_account(spec);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        list_mut(spec, &[list]).iter_mut().for_each(default_container);
    }
    list_mut(spec, &["volumes"]).iter_mut().for_each(default_volume);
    for at in [["resources", "limits"], ["resources", "requests"]] {
        round_up(spec, &at);
    }
    round_up(spec, &["overhead"]);
}

/// The account has an old name as well, and both say the same.
fn settle_account(spec: &mut Value) {
    let name = ["serviceAccountName", "serviceAccount"]
        .iter()
        .map(|field| object::string(spec, &[field]))
        .find(|name| !name.is_empty())
        .map(str::to_owned);
    if let Some(name) = name {
        for field in ["serviceAccountName", "serviceAccount"] {
            object::set(spec, &[field], name.as_str());
        }
    }
}

/// Fills in a whole pod, which gets more than its template had.
pub fn default_pod(pod: &mut Value) {
    super::status::settle_addresses(pod);
    forget_init_containers(pod);
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    default_spec(spec);
    // Only here: templates keep what they say, and are warned of it.
    if object::int(spec, &["terminationGracePeriodSeconds"]).is_some_and(|seconds| seconds < 0) {
        object::set(spec, &["terminationGracePeriodSeconds"], 1);
    }
    for list in ["containers", "initContainers"] {
        for container in list_mut(spec, &[list]) {
            if let Some(resources) = container.get_mut("resources") {
                fill(resources, "limits", "requests");
            }
        }
    }
    default_pod_requests(spec);
    set_default_pointer(spec, &["enableServiceLinks"], true);
    if spec.get("hostNetwork") == Some(&json!(true)) {
        for list in ["containers", "initContainers"] {
            for container in list_mut(spec, &[list]) {
                for port in list_mut(container, &["ports"]) {
                    let own = port.get("containerPort").cloned().unwrap_or(json!(0));
                    set_default(port, &["hostPort"], own);
                }
            }
        }
    }
}

/// A pod whose resources are limited as a whole requests what its containers do, or else what it is limited to.
fn default_pod_requests(spec: &mut Value) {
    let limits = object::map(spec, &["resources", "limits"]).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let of_pods = |name: &str| ["cpu", "memory"].contains(&name);
    for (name, total) in total_requests(spec) {
        if of_pods(&name) {
            set_default_pointer(spec, &["resources", "requests", &name], total.to_string());
        }
    }
    for (name, limit) in limits {
        if of_pods(&name) || name.starts_with("hugepages-") {
            set_default_pointer(spec, &["resources", "requests", &name], limit);
        }
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(object::string(container, &["image"]));
    set_default(container, &["imagePullPolicy"], policy);
    set_default(container, &["terminationMessagePath"], "/dev/termination-log");
    set_default(container, &["terminationMessagePolicy"], "File");
    for variable in list_mut(container, &["env"]) {
        default_field_ref(variable, &["valueFrom", "fieldRef"]);
        default_file_key(variable);
    }
    for at in [["resources", "limits"], ["resources", "requests"]] {
        round_up(container, &at);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if is_set(container, &[probe]) {
            default_probe(&mut container[probe]);
        }
    }
    for hook in ["postStart", "preStop"] {
        default_http_get(container, &["lifecycle", hook, "httpGet"]);
    }
}

/// `latest` is always pulled, and so is an image without a tag and a digest.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let (name, digest) = name.split_once('@').map_or((name, ""), |(name, digest)| (name, digest));
    let tag = name.split_once(':').map(|(_, tag)| tag);
    let latest = match tag {
        Some(tag) => tag == "latest",
        None => digest.is_empty() && !name.is_empty(),
    };
    if latest { "Always" } else { "IfNotPresent" }
}

fn default_probe(probe: &mut Value) {
    for (field, default) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        set_default(probe, &[field], default);
    }
    default_http_get(probe, &["httpGet"]);
    if is_set(probe, &["grpc"]) {
        set_default_pointer(probe, &["grpc", "service"], "");
    }
}

fn default_http_get(holder: &mut Value, at: &[&str]) {
    if is_set(holder, at) {
        let mut at = at.to_vec();
        for (field, default) in [("path", "/"), ("scheme", "HTTP")] {
            at.push(field);
            set_default(holder, &at, default);
            at.pop();
        }
    }
}

fn default_field_ref(holder: &mut Value, at: &[&str]) {
    if is_set(holder, at) {
        let mut at = at.to_vec();
        at.push("apiVersion");
        set_default(holder, &at, "v1");
    }
}

fn default_file_key(variable: &mut Value) {
    if is_set(variable, &["valueFrom", "fileKeyRef"]) {
        set_default_pointer(variable, &["valueFrom", "fileKeyRef", "optional"], false);
    }
}

fn default_volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|fields| fields.iter().any(|(name, value)| name != "name" && !value.is_null()));
    if !has_source {
        object::set(volume, &["emptyDir"], json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if is_set(volume, &[source]) {
            set_default_pointer(volume, &[source, "defaultMode"], 0o644);
        }
    }
    if is_set(volume, &["hostPath"]) {
        set_default_pointer(volume, &["hostPath", "type"], "");
    }
    if is_set(volume, &["image"]) {
        let policy = pull_policy(object::string(volume, &["image", "reference"]));
        set_default(volume, &["image", "pullPolicy"], policy);
    }
    for item in list_mut(volume, &["downwardAPI", "items"]) {
        default_field_ref(item, &["fieldRef"]);
    }
    for source in list_mut(volume, &["projected", "sources"]) {
        for item in list_mut(source, &["downwardAPI", "items"]) {
            default_field_ref(item, &["fieldRef"]);
        }
        if is_set(source, &["serviceAccountToken"]) {
            set_default_pointer(source, &["serviceAccountToken", "expirationSeconds"], 60 * 60);
        }
    }
    if is_set(volume, &["ephemeral", "volumeClaimTemplate"]) {
        set_default_pointer(
            volume,
            &["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"],
            "Filesystem",
        );
    }
}
