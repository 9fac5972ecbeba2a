//! Roles and bindings: nobody gives away more than they have, unless they may `escalate` or `bind`.

use mica_api::GroupResource;
use mica_machinery::kind::rbac::GROUP;
use mica_machinery::rbac::{self, RoleRef, Rule};
use mica_machinery::{meta, object};
use serde_json::Value;

use super::{Action, Asked, Authorizer, Grant, every_path, everything};
use crate::error::ApiError;

impl Authorizer {
    /// Refuses a write of a role or a binding that gives away what the writer does not have.
    pub async fn check_escalation(&self, grant: &Grant, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let (target, user) = (&grant.target, &*grant.user);
        if target.served.group() != GROUP || user.administers(target.plane.id) {
            return Ok(());
        }
        // Finalizers and owners are the garbage collector's business.
        if old.is_some_and(|old| meta::only_garbage_fields_differ(new, old)) {
            return Ok(());
        }
        match target.served.plural() {
            "roles" | "clusterroles" => self.check_role(grant, new, old).await,
            "rolebindings" | "clusterrolebindings" => self.check_binding(grant, new).await,
            _ => Ok(()),
        }
    }

    async fn check_role(&self, grant: &Grant, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let target = &grant.target;
        let escalating = Action {
            verb: "escalate",
            group: GROUP,
            resource: target.served.plural(),
            subresource: "",
            namespace: target.namespace.as_deref().unwrap_or_default(),
            name: target.object(),
            ..Action::default()
        };
        let asked = Asked::Resource(escalating);
        if self.decide(&grant.user, &target.plane, &asked).await?.is_allowed() {
            return Ok(());
        }
        self.check_held(grant, new, &Rule::read_all(new)).await?;
        let collects = |role: &Value| !object::list(role, &["aggregationRule", "clusterRoleSelectors"]).is_empty();
        if collects(new) || old.is_some_and(collects) {
            let all = [everything(), every_path()];
            self.check_held(grant, new, &all).await.map_err(|_| {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                ApiError::forbidden(&target.served.name, object::name(new), why)
            })?;
        }
        Ok(())
    }

    async fn check_binding(&self, grant: &Grant, new: &Value) -> Result<(), ApiError> {
        let target = &grant.target;
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let role = RoleRef::of(new);
        let resource = match role.kind {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            // Validation has better words for it.
            _ => return Ok(()),
        };
        let asked = Asked::Resource(Action {
            verb: "bind",
            group: object::string(new, &["roleRef", "apiGroup"]),
            resource,
            subresource: "",
            namespace,
            name: role.name,
            ..Action::default()
        });
        if self.decide(&grant.user, &target.plane, &asked).await?.is_allowed() {
            return Ok(());
        }
        match self.rules_of(&target.plane, role, namespace).await? {
            Ok(rules) => self.check_held(grant, new, &rules).await,
            // As upstream has it: named as if the role were a binding.
            Err(_) => Err(ApiError::not_found(
                &GroupResource::new(GROUP, target.served.plural()),
                role.name,
            )),
        }
    }

    async fn check_held(&self, grant: &Grant, new: &Value, given: &[Rule]) -> Result<(), ApiError> {
        let target = &grant.target;
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let held = self.held(&grant.user, &target.plane, namespace).await?;
        let missing = rbac::missing(&held.rules, given);
        if missing.is_empty() {
            return Ok(());
        }
        let why = rbac::refusal(&grant.user.as_kind(), &missing, &held.errors);
        Err(ApiError::forbidden(&target.served.name, object::name(new), &why))
    }
}
