//! The shapes of the kinds: what their specs and statuses hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tenancy::Condition;

/// Another object by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    pub name: String,
}

/// An object of any kind, in the same place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypedRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretRef {
    pub name: String,
    pub namespace: String,
}

/// Where a control plane is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Among others, by a server that many share.
    #[default]
    Virtual,
    /// By a server of its own.
    Dedicated,
}

/// What happens to the data of a control plane that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    #[default]
    Retain,
    Destroy,
}

/// Where a control plane has its endpoints from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointPolicy {
    /// From the templates of its class.
    Template,
    /// From the ControlPlaneEndpoint that it names.
    Reference,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_ref: Option<ObjectRef>,
    pub mode: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_policy: Option<EndpointPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#virtual: Option<Virtual>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated: Option<Dedicated>,
}

/// How a control plane is among others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Virtual {
    /// The name of its plane; the ControlPlane's own if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_path: String,
}

/// How a control plane has a server of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Dedicated {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<TypedRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<TypedRef>,
    /// Which of the binaries that the provider knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    Provisioning,
    Ready,
    Migrating,
    Failed,
}

/// Whom an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointType {
    Internal,
    External,
    Join,
}

/// An address that a control plane has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedEndpoint {
    pub r#type: EndpointType,
    pub url: String,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MigrationStep {
    Provisioning,
    Copying,
    CatchingUp,
    Switching,
    Draining,
    Decommissioning,
    Completed,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    pub step: MigrationStep,
    pub from: Mode,
    pub to: Mode,
    pub started_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<PublishedEndpoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<Migration>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub conditions: Vec<Condition>,
}

/// Who administers the control planes of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Auth {
    /// How its administrator is let in: one of [`AUTH_MODELS`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// A ClusterRole of the control plane; `cluster-admin` if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default_role: String,
}

/// The models there are, which are two names of one: a service account of the control plane, bound to the default role, whose
/// token expires and is renewed. It is meant where none is said.
pub const AUTH_MODELS: [&str; 2] = ["basic", "v0"];

impl Auth {
    /// What is wrong with the model, and what to write instead.
    pub fn model_problem(&self) -> Option<String> {
        let model = self.model.as_str();
        if model.is_empty() || AUTH_MODELS.contains(&model) {
            return None;
        }
        let [basic, old] = AUTH_MODELS;
        Some(format!(
            "spec.auth.model {model:?} is not known: write {basic:?} (or {old:?}, which is the same), or leave it out"
        ))
    }
}

/// URLs with `{name}`, `{clusterPath}` and `{server}` to be filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointTemplates {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub internal: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub join: String,
}

/// Routes of the Gateway API that lead to the control planes of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    pub parent_ref: SecretRef,
    /// `{{.Name}}` stands for the ControlPlane's name.
    pub hostname_template: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_server_ref: Option<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneClassSpec {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addons: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modes_allowed: Vec<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<EndpointTemplates>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// Services for which every control plane of the class is registered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// The PlaneClass of virtual ones.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plane_class: String,
    /// `Generic` or `Kubernetes`; as the server has it if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// As `Plane.spec.limits`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneClassStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneEndpointSpec {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_endpoint: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub join_endpoint: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneEndpointStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_endpoint: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub join_endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub conditions: Vec<Condition>,
}

/// Whether one process may serve a control plane together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegistrationMode {
    Shared,
    Dedicated,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneRegistrationSpec {
    pub control_plane_ref: ObjectRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretRef>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<RegistrationMode>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneRegistrationStatus {
    pub ready: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resolved_endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_kubeconfig_secret_ref: Option<SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub conditions: Vec<Condition>,
}
