//! What a control plane is to be. Pure: everything that was read goes in, decisions and objects come out.

pub mod credential;
pub mod endpoint;
pub mod inside;
pub mod join;
pub mod plane;
pub mod registration;
pub mod status;
#[cfg(test)]
mod tests;

use mica_api::control_plane::{
    ADOPT_ANNOTATION, API_VERSION, Auth, CONTROL_PLANE_ANNOTATION, ControlPlaneClassSpec, ControlPlaneSpec,
    ControlPlaneStatus, DeletionPolicy, FINALIZER, Mode, NAME_LABEL, condition, label_value, management_namespace,
    reason,
};
use mica_machinery::kind::bootstrap::administrator::DEFAULT_ROLE;
use serde_json::{Value, json};

use crate::condition::find;

/// Names that begin like this belong to other front doors.
const RESERVED_PREFIXES: [&str; 2] = ["project-", "edge-"];
/// The longest name of a plane.
const LONGEST_PATH: usize = 63;

/// Why something cannot be, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub reason: &'static str,
    pub message: String,
}

impl Problem {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// The class that a control plane names.
#[derive(Clone, Debug, Default)]
pub enum Class {
    /// It names none.
    #[default]
    None,
    Missing(String),
    Found {
        name: String,
        spec: Box<ControlPlaneClassSpec>,
    },
}

/// Whether something may have been made for a control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Novelty {
    /// What there is was read.
    #[default]
    Known,
    /// Nothing was made for it yet: that it has nothing is not asked, but found out by making it.
    New,
}

/// Everything that was read about a control plane in the management plane.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub object: Value,
    pub novelty: Novelty,
    pub spec: ControlPlaneSpec,
    pub status: ControlPlaneStatus,
    pub class: Class,
    /// The ControlPlaneEndpoint that it is reached by, if it has one.
    pub endpoint: Option<Value>,
    /// The management namespace, the Secret in it, and the registration that is made by itself.
    pub namespace: Option<Value>,
    pub secret: Option<Value>,
    pub registration: Option<Value>,
}

impl Observed {
    pub fn name(&self) -> &str {
        text(&self.object, "/metadata/name")
    }

    pub fn uid(&self) -> &str {
        text(&self.object, "/metadata/uid")
    }

    /// The name of its plane.
    pub fn cluster_path(&self) -> &str {
        let said = self.spec.r#virtual.as_ref().map(|said| said.cluster_path.as_str());
        said.filter(|path| !path.is_empty()).unwrap_or_else(|| self.name())
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.object["metadata"]["annotations"][name].as_str()
    }

    pub fn is_deleting(&self) -> bool {
        !self.object["metadata"]["deletionTimestamp"].is_null()
    }

    pub fn finalizers(&self) -> Vec<Value> {
        let all = self.object["metadata"]["finalizers"].as_array();
        all.cloned().unwrap_or_default()
    }

    pub fn is_held(&self) -> bool {
        self.finalizers().iter().any(|one| one == FINALIZER)
    }

    /// Whether nobody made anything for it. What is to be taken over is not made.
    pub fn novelty(&self) -> Novelty {
        match self.is_held() || self.is_deleting() || self.annotation(ADOPT_ANNOTATION).is_some() {
            true => Novelty::Known,
            false => Novelty::New,
        }
    }

    /// Whether somebody else runs it. What was made for it before is still looked after: the finalizer says so.
    pub fn is_anothers(&self) -> bool {
        !self.is_held() && crate::endpoint::is_anothers(&self.object)
    }

    /// Whether it was ready when it was last reported.
    pub fn was_ready(&self) -> bool {
        self.is_true(condition::READY)
    }

    /// Whether a condition was true when it was last reported.
    pub fn is_true(&self, r#type: &str) -> bool {
        find(&self.object["status"]["conditions"], r#type).is_some_and(|found| found["status"] == "True")
    }

    /// What its class says; nothing if it has none.
    pub fn class_spec(&self) -> ControlPlaneClassSpec {
        match &self.class {
            Class::Found { spec, .. } => (**spec).clone(),
            Class::None | Class::Missing(_) => ControlPlaneClassSpec::default(),
        }
    }

    /// What happens to its data: as it says itself, then its class, then it is kept.
    pub fn deletion_policy(&self) -> DeletionPolicy {
        let class = || self.class_spec().deletion_policy;
        self.spec.deletion_policy.or_else(class).unwrap_or_default()
    }

    /// The role of its administrator.
    pub fn role(&self) -> String {
        let said = self.class_spec().auth.map(|auth| auth.default_role);
        let said = said.filter(|role| !role.is_empty());
        said.unwrap_or_else(|| DEFAULT_ROLE.to_owned())
    }

    /// How what belongs to it says so: garbage collection takes it when the ControlPlane is gone.
    pub fn owner(&self) -> Value {
        json!({"apiVersion": API_VERSION, "kind": "ControlPlane", "name": self.name(), "uid": self.uid(),
            "controller": true, "blockOwnerDeletion": true})
    }

    /// Whether an object says that it belongs to it.
    pub fn owns(&self, object: &Value) -> bool {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == self.uid()))
    }

    pub fn labels(&self) -> Value {
        json!({NAME_LABEL: label_value(self.name())})
    }
}

/// Whether its class can be had, and lets it be as it is.
pub fn class(at: &Observed) -> Result<String, Problem> {
    match &at.class {
        Class::None => Ok("no class is named".to_owned()),
        Class::Missing(name) => Err(Problem::new(
            reason::CLASS_NOT_FOUND,
            format!("ControlPlaneClass {name:?} does not exist: make it, or name another in spec.classRef"),
        )),
        Class::Found { name, spec } => {
            if let Some(problem) = spec.auth.as_ref().and_then(Auth::model_problem) {
                let message = format!("class {name:?}: {problem}");
                return Err(Problem::new(reason::AUTH_MODEL_NOT_SUPPORTED, message));
            }
            let mode = at.spec.mode;
            if spec.modes_allowed.is_empty() || spec.modes_allowed.contains(&mode) {
                return Ok(format!("class {name:?}"));
            }
            let allowed: Vec<&str> = spec.modes_allowed.iter().copied().map(mode_name).collect();
            let message = format!(
                "class {name:?} does not allow mode {}: it allows {}",
                mode_name(mode),
                allowed.join(" and ")
            );
            Err(Problem::new(reason::MODE_NOT_ALLOWED, message))
        }
    }
}

pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Virtual => "Virtual",
        Mode::Dedicated => "Dedicated",
    }
}

/// Whether its plane can have the name that it is to have.
pub fn path(at: &Observed) -> Result<(), Problem> {
    let path = at.cluster_path();
    let invalid = |why: String| Err(Problem::new(reason::INVALID_CLUSTER_PATH, why));
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = path.bytes().all(inner) && !path.starts_with('-') && !path.ends_with('-');
    if path.is_empty() || path.len() > LONGEST_PATH || !label {
        return invalid(format!(
            "{path:?} cannot be the name of a plane (lower case letters, digits and inner dashes, {LONGEST_PATH} at most): \
             make the ControlPlane anew with another spec.virtual.clusterPath"
        ));
    }
    if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| path.starts_with(**prefix)) {
        return invalid(format!(
            "clusterPath {path:?} begins with {prefix:?}, which is reserved: make the ControlPlane anew with another"
        ));
    }
    if path == "root" {
        return invalid(
            "clusterPath \"root\" is the server itself: make the ControlPlane anew with another".to_owned(),
        );
    }
    Ok(())
}

/// What is to be done about the management namespace.
#[derive(Clone, PartialEq, Debug)]
pub enum NamespaceStep {
    Nothing,
    /// Make this, if there is none.
    Create(Value),
    /// Apply this.
    Apply(Value),
}

/// The management namespace, with which everything in it goes. One that somebody else made is not taken.
pub fn namespace(at: &Observed) -> Result<NamespaceStep, Problem> {
    let name = management_namespace(at.name());
    let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": name,
        "labels": at.labels(),
        "annotations": {CONTROL_PLANE_ANNOTATION: at.name()},
        "ownerReferences": [at.owner()],
    }});
    let Some(present) = &at.namespace else {
        return Ok(match at.novelty {
            Novelty::New => NamespaceStep::Create(wanted),
            Novelty::Known => NamespaceStep::Apply(wanted),
        });
    };
    // Those that other operators of this group made have the label and no owner.
    let labelled = present["metadata"]["labels"][NAME_LABEL] == label_value(at.name());
    let owned = present["metadata"]["ownerReferences"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    if !at.owns(present) && (owned || !labelled) {
        let message = format!(
            "namespace {name:?} is somebody else's: delete it, or label it {NAME_LABEL}={}",
            at.name()
        );
        return Err(Problem::new(reason::NAMESPACE_TAKEN, message));
    }
    match has(present, &wanted) {
        true => Ok(NamespaceStep::Nothing),
        false => Ok(NamespaceStep::Apply(wanted)),
    }
}

/// Whether an object has everything that another one says, and perhaps more. Lists are compared whole.
pub fn has(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(field, value)| present.get(field).is_some_and(|present| has(present, value))),
        _ => present == wanted,
    }
}

pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
