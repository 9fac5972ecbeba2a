//! What controllers that run beside the server may do: a role of root, like anybody's.

use mica_api::{control_plane, tenancy};
use mica_machinery::kind::rbac::GROUP;
use mica_machinery::{managed, object};
use serde_json::{Value, json};

use super::{CONTROLLERS, Target, system};
use crate::error::ApiError;
use crate::options::{DryRun, FieldValidation, WriteOptions};
use crate::plane::kind as plane;
use crate::registry::{Managers, WriteRequest};
use crate::request::Verb;
use crate::serve::Server;

const MANAGER: &str = "kube-apiserver";
/// Says whether a role is set right at start.
pub(super) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

impl Server {
    /// Makes the role of controllers in root, and binds it to them. One that is there and says something else is set right,
    /// unless it says that it is not to be: as upstream does with the roles that it brings.
    pub async fn admit_controllers(&self) -> Result<(), ApiError> {
        let role = described("ClusterRole", "rules", rules());
        let mut binding = described("ClusterRoleBinding", "subjects", subjects());
        binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": CONTROLLERS});
        for (field, wanted) in [("rules", role), ("subjects", binding)] {
            let set_right = |mut present: Value| {
                if object::string(&present, &["metadata", "annotations", AUTO_UPDATE]) != "false" {
                    present[field] = wanted[field].clone();
                }
                present
            };
            self.keep(wanted.clone(), &set_right).await?;
        }
        Ok(())
    }

    /// Where root has a role or binding.
    pub(super) fn default_target(&self, wanted: &Value) -> Result<Target, ApiError> {
        let root = self.directory.root();
        let served = root
            .scheme
            .by_kind(GROUP, "v1", object::string(wanted, &["kind"]))
            .cloned();
        let served = served.ok_or_else(|| ApiError::internal("root serves no roles"))?;
        let namespace = object::namespace(wanted);
        Ok(Target {
            plane: root,
            served,
            namespace: (!namespace.is_empty()).then(|| namespace.into()),
            name: Some(object::name(wanted).into()),
            subresource: "".into(),
            definition: None,
            within: None,
        })
    }

    /// Makes a role or binding of root, or sets the one that is there right.
    pub(super) async fn keep(
        &self,
        wanted: Value,
        set_right: &(dyn Fn(Value) -> Value + Send + Sync),
    ) -> Result<(), ApiError> {
        let target = self.default_target(&wanted)?;
        let request = WriteRequest {
            object: wanted,
            managers: Managers::Recorded(managed::Request::Usual),
            options: WriteOptions {
                dry_run: DryRun::No,
                field_manager: String::new(),
                field_validation: FieldValidation::Ignore,
                asked_validation: String::new(),
            },
            manager: MANAGER.to_owned(),
        };
        match self
            .registry
            .create(&system(Verb::Create, target.clone()), request)
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == http::StatusCode::CONFLICT => {}
            Err(error) => return Err(error),
        }
        self.registry
            .change(&system(Verb::Patch, target), MANAGER, set_right)
            .await
    }
}

fn described(kind: &str, field: &str, content: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": CONTROLLERS,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {AUTO_UPDATE: "true"},
        },
        field: content,
    })
}

/// What upstream gives its controllers of namespaces, garbage, quotas and accounts together, and every plane.
fn rules() -> Value {
    json!([
        {
            "apiGroups": ["*"],
            "resources": ["*"],
            "verbs": ["get", "list", "watch", "update", "patch", "delete", "deletecollection"],
        },
        {"apiGroups": [""], "resources": ["configmaps", "events", "serviceaccounts"], "verbs": ["create"]},
        // Several processes of controllers agree by it who of them works.
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["escalate"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
        {"apiGroups": [plane::GROUP], "resources": ["planes/content"], "verbs": ["admin"]},
        // What projects and organizations come with.
        {"apiGroups": [plane::GROUP], "resources": ["planes"], "verbs": ["create"]},
        {"apiGroups": [tenancy::INFRASTRUCTURE_GROUP], "resources": [tenancy::PROJECT_CONTROL_PLANES], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]},
        // What control planes come with.
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [control_plane::GROUP],
            "resources": [control_plane::ENDPOINTS, control_plane::REGISTRATIONS],
            "verbs": ["create"],
        },
        {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes"], "verbs": ["create"]},
        {"apiGroups": [plane::GROUP], "resources": ["planes/arrive", "planes/open"], "verbs": ["create"]},
    ])
}

fn subjects() -> Value {
    json!([{"apiGroup": GROUP, "kind": "User", "name": CONTROLLERS}])
}
