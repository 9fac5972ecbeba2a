//! OwnerReferencesPermissionEnforcement: who may say that something belongs to another, and that it holds up its deletion.

use mica_machinery::admission::{Operation, ParamKind};
use mica_machinery::field::quote;
use mica_machinery::object;
use serde_json::Value;

use super::Home;
use super::gate::Gate;
use super::switch::Plugin;
use crate::authz::{Action, Asked, Decision};
use crate::error::ApiError;

const OWNERS: [&str; 2] = ["metadata", "ownerReferences"];

impl Gate<'_> {
    pub(super) async fn check_owners(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let asked = matches!(self.operation, Operation::Create | Operation::Update);
        let on = self
            .registry
            .plugins()
            .is_on(Plugin::OwnerReferencesPermissionEnforcement);
        // The kind's own rules keep owners out of a pod's status.
        if !asked || !on || self.grant.is_internal() || self.is("", "pods", "status") {
            return Ok(());
        }
        let now = object::list(new, &OWNERS);
        let before = old.map(|old| object::list(old, &OWNERS)).unwrap_or_default();
        if now == before {
            return Ok(());
        }
        if self.operation != Operation::Create {
            self.check_may_delete(new).await?;
        }
        let blocking = blocking(now, before);
        if blocking.is_empty() || self.may_finalize_anything().await? {
            return Ok(());
        }
        for owner in blocking {
            self.check_may_finalize(new, owner).await?;
        }
        Ok(())
    }

    async fn decide(&self, action: Action<'_>) -> Result<Decision, ApiError> {
        let (user, plane) = (&self.grant.user, &self.grant.target.plane);
        let authorizer = self.registry.authorizer();
        authorizer.decide(user, plane, &Asked::Resource(action)).await
    }

    /// Who says whose something is decides when it is deleted.
    async fn check_may_delete(&self, new: &Value) -> Result<(), ApiError> {
        let target = &self.grant.target;
        let decision = self.decide(Action {
            verb: "delete",
            group: target.served.group(),
            version: target.served.version(),
            resource: target.served.plural(),
            subresource: &target.subresource,
            namespace: self.namespace_name(),
            name: object::name(new),
            ..Action::default()
        });
        let decision = decision.await?;
        if decision.is_allowed() {
            return Ok(());
        }
        let why = told(&decision);
        Err(self.refuse(
            new,
            &format!("cannot set an ownerRef on a resource you can't delete: {why}"),
        ))
    }

    async fn may_finalize_anything(&self) -> Result<bool, ApiError> {
        let decision = self.decide(Action {
            verb: "update",
            group: "*",
            version: "*",
            resource: "*",
            subresource: "finalizers",
            name: "*",
            ..Action::default()
        });
        Ok(decision.await?.is_allowed())
    }

    /// Who may hold up a deletion may set finalizers on what is deleted.
    async fn check_may_finalize(&self, new: &Value, owner: &Value) -> Result<(), ApiError> {
        let kind = ParamKind {
            api_version: object::string(owner, &["apiVersion"]).to_owned(),
            kind: object::string(owner, &["kind"]).to_owned(),
        };
        let Some(resource) = self.param_resource(Home::Plane, &kind).await? else {
            let (version, kind) = (&kind.api_version, &kind.kind);
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} \
                 Kind {kind}: no matches for kind {} in version {}",
                quote(kind),
                quote(version)
            );
            return Err(self.refuse(new, &why));
        };
        let served = resource.served();
        let decision = self.decide(Action {
            verb: "update",
            group: served.group(),
            version: served.version(),
            resource: served.plural(),
            subresource: "finalizers",
            namespace: if served.namespaced() { self.namespace_name() } else { "" },
            name: object::string(owner, &["name"]),
            ..Action::default()
        });
        let decision = decision.await?;
        if decision.is_allowed() {
            return Ok(());
        }
        let why = format!(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}",
            told(&decision)
        );
        Err(self.refuse(new, &why))
    }
}

/// Why not, as upstream prints a reason and an error that may be none.
fn told(decision: &Decision) -> String {
    format!("{}, {}", decision.reason, decision.error.as_deref().unwrap_or("<nil>"))
}

/// Owners whose deletion is held up anew.
fn blocking<'a>(now: &'a [Value], before: &[Value]) -> Vec<&'a Value> {
    let blocks = |owner: &Value| owner["blockOwnerDeletion"] == true;
    let did = |owner: &Value| {
        before
            .iter()
            .rfind(|old| old["uid"] == owner["uid"])
            .is_some_and(blocks)
    };
    now.iter().filter(|owner| blocks(owner) && !did(owner)).collect()
}
