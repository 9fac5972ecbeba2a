//! What planes are born with beside what all are, by what they are the plane of.

use mica_api::control_plane::{ADMIN_NAMESPACE, MANAGED_LABEL};
use mica_api::tenancy::SYSTEM_NAMESPACE;
use mica_machinery::kind::bootstrap::administrator::{self, DEFAULT_ROLE};
use mica_machinery::kind::bootstrap::{Companions, companions_of, namespace};
use mica_machinery::object;
use serde_json::Value;

use super::Context;

/// Milo's labels, which its services look for.
const SYSTEM_LABEL: &str = "miloapis.com/system";
const DEFAULT_LABEL: &str = "miloapis.com/project-default";

/// Adds it to the objects of a base layer.
pub fn add(objects: &mut Vec<Value>, context: Context, companions: &Companions) {
    match context {
        Context::Plane => {}
        Context::Project => of_project(objects, companions),
        Context::ControlPlane => of_control_plane(objects, companions),
    }
}

/// Milo's namespace, and its marks.
fn of_project(objects: &mut Vec<Value>, companions: &Companions) {
    let default = objects
        .iter_mut()
        .find(|object| object["kind"] == "Namespace" && object::name(object) == "default");
    if let Some(default) = default {
        object::set(default, &["metadata", "labels", DEFAULT_LABEL], "true");
    }
    let mut system = namespace(SYSTEM_NAMESPACE);
    object::set(&mut system, &["metadata", "labels", SYSTEM_LABEL], "true");
    objects.push(system);
    objects.extend(companions_of(SYSTEM_NAMESPACE, companions));
}

/// The administrator, so that a new control plane can be used without a write into its plane.
fn of_control_plane(objects: &mut Vec<Value>, companions: &Companions) {
    let mut own = namespace(ADMIN_NAMESPACE);
    object::set(&mut own, &["metadata", "labels", MANAGED_LABEL], "true");
    objects.push(own);
    objects.extend(companions_of(ADMIN_NAMESPACE, companions));
    objects.push(administrator::account());
    objects.push(administrator::binding(DEFAULT_ROLE));
}
