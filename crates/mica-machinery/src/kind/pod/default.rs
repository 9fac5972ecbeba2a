//! Defaults of a pod template.
//!
//! Those that upstream marks in its types (`+default`) come from the fact table; the rest depends on other fields and is here.

use serde_json::{Value, json};

use crate::facts::{Field, Shape, TypeId, facts};
use crate::kind::check::{is_empty, is_set, list_mut, set_default, set_default_pointer};
use crate::kind::core::resource::round_up;
use crate::object;

/// Fills in the template at a path of an object, if it is there.
pub fn default_template(object: &mut Value, at: &[&str]) {
    let Some(template) = at.iter().try_fold(object, |at, name| at.get_mut(*name)) else {
        return;
    };
    let Some(spec) = template.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    if let Some(id) = facts().openapi("io.k8s.api.core.v1.PodSpec") {
        apply_markers(spec, id);
    }
    set_default(spec, &["dnsPolicy"], "ClusterFirst");
    set_default(spec, &["restartPolicy"], "Always");
    set_default_pointer(spec, &["securityContext"], json!({}));
    set_default_pointer(spec, &["terminationGracePeriodSeconds"], 30);
    set_default(spec, &["schedulerName"], "default-scheduler");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        list_mut(spec, &[list]).iter_mut().for_each(default_container);
    }
    list_mut(spec, &["volumes"]).iter_mut().for_each(default_volume);
    for at in [["resources", "limits"], ["resources", "requests"]] {
        round_up(spec, &at);
    }
    round_up(spec, &["overhead"]);
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

/// Sets the marked defaults of a struct and of those in it.
fn apply_markers(value: &mut Value, id: TypeId) {
    let Some(object) = value.as_object_mut() else { return };
    for field in &facts().ty(id).fields {
        if let Some(held) = object.get_mut(field.json) {
            apply_in(held, &field.shape);
        }
        if let Some(default) = wanted(field, object.get(field.json)) {
            object.insert(field.json.to_owned(), default);
        }
    }
}

/// The default that a field takes, given what it holds. One that is empty and would not be printed is none.
fn wanted(field: &Field, held: Option<&Value>) -> Option<Value> {
    let missing = if field.pointer {
        held.is_none_or(Value::is_null)
    } else {
        held.is_none_or(is_empty)
    };
    let default = field.default_value().filter(|_| missing)?;
    (field.pointer || !is_empty(&default)).then_some(default)
}

fn apply_in(value: &mut Value, shape: &Shape) {
    match (shape, value) {
        (Shape::Struct(id), value) => apply_markers(value, *id),
        (Shape::List(item), Value::Array(items)) => items.iter_mut().for_each(|one| apply_in(one, item)),
        _ => {}
    }
}
