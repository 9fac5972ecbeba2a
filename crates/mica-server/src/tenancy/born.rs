//! What the planes of projects are born with beside what all are: Milo's namespace, and its marks.

use mica_api::tenancy::SYSTEM_NAMESPACE;
use mica_machinery::kind::bootstrap::{Companions, root_ca_of};
use mica_machinery::object;
use serde_json::{Value, json};

/// Milo's labels, which its services look for.
const SYSTEM_LABEL: &str = "miloapis.com/system";
const DEFAULT_LABEL: &str = "miloapis.com/project-default";

/// Adds it to the objects of a base layer.
pub fn add(objects: &mut Vec<Value>, companions: &Companions) {
    let default = objects
        .iter_mut()
        .find(|object| object["kind"] == "Namespace" && object::name(object) == "default");
    if let Some(default) = default {
        object::set(default, &["metadata", "labels", DEFAULT_LABEL], "true");
    }
    objects.push(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": SYSTEM_NAMESPACE,
            "labels": {"kubernetes.io/metadata.name": SYSTEM_NAMESPACE, SYSTEM_LABEL: "true"},
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }));
    if let Companions::Done { root_ca } = companions {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": SYSTEM_NAMESPACE},
        }));
        objects.push(root_ca_of(SYSTEM_NAMESPACE, root_ca));
    }
}
