//! What controllers that run beside the server may do: a role of root, like anybody's.

use mica_api::{control_plane, tenancy};
use mica_machinery::kind::rbac::GROUP;
use mica_machinery::managed;
use serde_json::{Value, json};

use super::{CONTROLLERS, Target, system};
use crate::error::ApiError;
use crate::options::{DryRun, FieldValidation, WriteOptions};
use crate::plane::kind as plane;
use crate::registry::{Managers, WriteRequest};
use crate::request::Verb;
use crate::serve::Server;

const MANAGER: &str = "kube-apiserver";

impl Server {
    /// Makes the role of controllers in root, and binds it to them. One that is there and says something else is set right,
    /// unless it says that it is not to be: as upstream does with the roles that it brings.
    pub async fn admit_controllers(&self) -> Result<(), ApiError> {
        let role = object("ClusterRole", "rules", rules());
        let mut binding = object("ClusterRoleBinding", "subjects", subjects());
        binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": CONTROLLERS});
        self.keep("clusterroles", "rules", role).await?;
        self.keep("clusterrolebindings", "subjects", binding).await
    }

    async fn keep(&self, plural: &str, field: &str, wanted: Value) -> Result<(), ApiError> {
        let root = self.directory.root();
        let served = root.scheme.find(GROUP, "v1", plural).cloned();
        let served = served.ok_or_else(|| ApiError::internal("root serves no roles"))?;
        let target = Target {
            plane: root,
            served,
            namespace: None,
            name: Some(CONTROLLERS.into()),
            subresource: "".into(),
            definition: None,
            within: None,
        };
        let request = WriteRequest {
            object: wanted.clone(),
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
        let set_right = |mut present: Value| {
            let kept = &present["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] != "false";
            if kept && present[field] != wanted[field] {
                present[field] = wanted[field].clone();
            }
            present
        };
        self.registry
            .change(&system(Verb::Patch, target), MANAGER, &set_right)
            .await
    }
}

fn object(kind: &str, field: &str, content: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": CONTROLLERS,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
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
