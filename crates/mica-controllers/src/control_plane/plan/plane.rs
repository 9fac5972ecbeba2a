//! The plane of a control plane: made, kept as its class says, adopted, let go.
//!
//! Whose a plane is, its annotations say: owner references would let the garbage collector destroy what is to be kept.

use mica_api::control_plane::{
    ADOPT_ANNOTATION, CONTROL_PLANE_ANNOTATION, NAME_LABEL, RETAINED_LABEL, UID_ANNOTATION, label_value, reason,
};
use serde_json::{Map, Value, json};

use super::{Observed, Problem, text};
use crate::control_plane::PLANE_API_VERSION;

/// What is to be done about a plane.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    Create(Value),
    /// A merge patch.
    Patch(Value),
    Nothing,
}

/// Whether the ControlPlane that a plane says to belong to is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    There,
    Gone,
}

/// Whether a plane belongs to a control plane.
pub fn is_of(plane: &Value, uid: &str) -> bool {
    plane["metadata"]["annotations"][UID_ANNOTATION] == uid
}

/// What a plane says of whom it belongs to: name and uid of a ControlPlane.
pub fn claimed_by(plane: &Value) -> Option<(&str, &str)> {
    let annotations = &plane["metadata"]["annotations"];
    let uid = annotations[UID_ANNOTATION].as_str()?;
    Some((annotations[CONTROL_PLANE_ANNOTATION].as_str().unwrap_or_default(), uid))
}

/// What is to be done so that a control plane has its plane.
pub fn plan(at: &Observed, present: Option<&Value>, holder: Holder) -> Result<Step, Problem> {
    let Some(plane) = present else {
        return Ok(Step::Create(new(at)));
    };
    if !is_of(plane, at.uid()) {
        check_free(at, plane, holder)?;
        let mut patch = json!({
            "metadata": {
                "resourceVersion": plane["metadata"]["resourceVersion"],
                "labels": at.labels(),
                "annotations": claim(at),
            },
            "spec": Value::Object(difference(at, plane)),
        });
        patch["metadata"]["labels"][RETAINED_LABEL] = Value::Null;
        return Ok(Step::Patch(patch));
    }
    if !plane["metadata"]["deletionTimestamp"].is_null() {
        let message = format!(
            "plane {:?} is being deleted; it is made anew when it is gone",
            at.cluster_path()
        );
        return Err(Problem::new(reason::DELETING, message));
    }
    let mut patch = json!({});
    let spec = difference(at, plane);
    if !spec.is_empty() {
        patch["spec"] = spec.into();
    }
    if plane["metadata"]["labels"][NAME_LABEL] != label_value(at.name()) {
        patch["metadata"]["labels"] = at.labels();
    }
    match patch.as_object().is_some_and(Map::is_empty) {
        true => Ok(Step::Nothing),
        false => Ok(Step::Patch(patch)),
    }
}

/// The plane as it is made.
pub fn new(at: &Observed) -> Value {
    json!({
        "apiVersion": PLANE_API_VERSION,
        "kind": "Plane",
        "metadata": {"name": at.cluster_path(), "labels": at.labels(), "annotations": claim(at)},
        "spec": spec(at),
    })
}

/// Whose a plane is that is not a control plane's own.
pub fn holder(plane: &Value) -> String {
    match claimed_by(plane) {
        Some((name, _)) => format!("ControlPlane {name:?}'s"),
        None => "not made for a ControlPlane".to_owned(),
    }
}

fn claim(at: &Observed) -> Value {
    json!({CONTROL_PLANE_ANNOTATION: at.name(), UID_ANNOTATION: at.uid()})
}

/// Whether a plane that is somebody else's may be taken over.
fn check_free(at: &Observed, plane: &Value, holder: Holder) -> Result<(), Problem> {
    let (path, id) = (at.cluster_path(), text(plane, "/status/id"));
    let taken = |message: String| Err(Problem::new(reason::CLUSTER_PATH_TAKEN, message));
    let claimed = claimed_by(plane);
    if let (Some((name, _)), Holder::There) = (claimed, holder) {
        return taken(format!(
            "clusterPath {path:?} is ControlPlane {name:?}'s: make this one anew with another spec.virtual.clusterPath"
        ));
    }
    if !plane["metadata"]["deletionTimestamp"].is_null() {
        return taken(format!(
            "plane {path:?} is being deleted; its name is free when it is gone"
        ));
    }
    if at.annotation(ADOPT_ANNOTATION) == Some(id) && !id.is_empty() {
        return Ok(());
    }
    let whose = match (plane["metadata"]["labels"][RETAINED_LABEL].as_str(), claimed) {
        (Some(name), _) | (None, Some((name, _))) => format!("was retained when ControlPlane {name:?} was deleted"),
        (None, None) => "was not made for a ControlPlane".to_owned(),
    };
    taken(format!(
        "plane {path:?} {whose}: annotate the ControlPlane with {ADOPT_ANNOTATION}={id} to take it over, or make it anew \
         with another spec.virtual.clusterPath"
    ))
}

/// What the class says of planes. The operator alone says this of the planes that it made.
fn spec(at: &Observed) -> Value {
    let class = at.class_spec();
    let mut spec = json!({});
    for (field, said) in [("className", class.plane_class), ("profile", class.profile)] {
        if !said.is_empty() {
            spec[field] = said.into();
        }
    }
    if !class.limits.is_empty() {
        spec["limits"] = json!(class.limits);
    }
    spec
}

/// What of that a plane does not have yet. Its profile is what it was born with.
fn difference(at: &Observed, plane: &Value) -> Map<String, Value> {
    let (wanted, have) = (spec(at), &plane["spec"]);
    let mut patch = Map::new();
    if wanted["className"].as_str().unwrap_or_default() != text(plane, "/spec/className") {
        patch.insert("className".to_owned(), wanted["className"].clone());
    }
    let (limits, present) = (&wanted["limits"], &have["limits"]);
    let empty = |limits: &Value| limits.as_object().is_none_or(Map::is_empty);
    if limits != present && !(empty(limits) && empty(present)) {
        let mut replaced = limits.as_object().cloned().unwrap_or_default();
        for field in present.as_object().into_iter().flat_map(Map::keys) {
            replaced.entry(field.clone()).or_insert(Value::Null);
        }
        patch.insert("limits".to_owned(), replaced.into());
    }
    patch
}

/// What of its class a plane cannot have any more.
pub fn remark(at: &Observed, plane: &Value) -> Option<String> {
    let wanted = at.class_spec().profile;
    let have = text(plane, "/spec/profile");
    (!wanted.is_empty() && !have.is_empty() && wanted != have)
        .then(|| format!("its profile stays {have}: planes keep the one that they were born with"))
}

/// Lets a plane go: a merge patch after which it is nobody's, and listed as what was kept.
pub fn detach(at: &Observed) -> Value {
    json!({"metadata": {
        "labels": {NAME_LABEL: Value::Null, RETAINED_LABEL: label_value(at.name())},
        "annotations": {CONTROL_PLANE_ANNOTATION: Value::Null, UID_ANNOTATION: Value::Null},
    }})
}

/// Why a plane does not take requests, if it does not.
pub fn inactive(plane: &Value) -> Option<Problem> {
    let phase = text(plane, "/status/phase");
    if matches!(phase, "" | "Ready") {
        return None;
    }
    let message = format!(
        "plane {:?} is {phase}: see its Plane object",
        text(plane, "/metadata/name")
    );
    Some(Problem::new(reason::PLANE_NOT_ACTIVE, message))
}
