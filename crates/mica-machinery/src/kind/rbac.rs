//! Roles and bindings, for a namespace and for the whole plane.
//!
//! Names may be any path segment: `system:controller:x`. Escalation checks need the requester's rules and are the server's.

use serde_json::Value;

use super::check::{invalid_as, invalid_each, list_mut, present, set_default};
use super::column::{AGE, NAME, age, text, wide};
use super::{Column, MetadataCheck, NameUse, Scope, Strategy, WriteContext, selector};
use crate::field::{Error, ErrorList, Path, quote};
use crate::select::{LabelSelector, Tolerance, label_selector_errors};
use crate::{names, object};

pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Role and ClusterRole.
#[derive(Debug)]
pub struct Role(pub Scope);

/// RoleBinding and ClusterRoleBinding.
#[derive(Debug)]
pub struct Binding(pub Scope);

impl Strategy for Role {
    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        self.validate_with(object, Tolerance::None)
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        // What an old object got wrong may stay wrong.
        let was_valid = selectors(old).iter().all(selector::is_valid);
        self.validate_with(
            new,
            if was_valid {
                Tolerance::None
            } else {
                Tolerance::InvalidValues
            },
        )
    }

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::Both
    }

    fn name_errors(&self, name: &str, _name_use: NameUse) -> Vec<String> {
        names::path_segment_name(name)
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

impl Role {
    fn validate_with(&self, object: &Value, tolerance: Tolerance) -> ErrorList {
        let mut errors = ErrorList::new();
        for (i, rule) in object::list(object, &["rules"]).iter().enumerate() {
            validate_rule(rule, self.0, &Path::new("rules").index(i), &mut errors);
        }
        if self.0 == Scope::Cluster && present(object, &["aggregationRule"]).is_some() {
            let path = Path::new("aggregationRule").child("clusterRoleSelectors");
            if selectors(object).is_empty() {
                let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                errors.push(Error::required(&path, detail));
            }
            for (i, selector) in selectors(object).iter().enumerate() {
                let path = path.index(i);
                errors.extend(label_selector_errors(selector, tolerance, &path));
                if !selector::is_valid(selector) {
                    errors.push(invalid_as(&path, "null", "invalid label selector."));
                }
            }
        }
        errors
    }
}

fn selectors(role: &Value) -> &[Value] {
    object::list(role, &["aggregationRule", "clusterRoleSelectors"])
}

fn validate_rule(rule: &Value, scope: Scope, path: &Path, errors: &mut ErrorList) {
    let is_empty = |field| object::list(rule, &[field]).is_empty();
    if is_empty("verbs") {
        errors.push(Error::required(
            &path.child("verbs"),
            "verbs must contain at least one value",
        ));
    }
    let urls = object::list(rule, &["nonResourceURLs"]);
    if !urls.is_empty() {
        let path = path.child("nonResourceURLs");
        if scope == Scope::Namespaced {
            errors.push(Error::invalid(
                &path,
                urls.to_vec(),
                "namespaced rules cannot apply to non-resource URLs",
            ));
        }
        if !["apiGroups", "resources", "resourceNames"].into_iter().all(is_empty) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(Error::invalid(&path, urls.to_vec(), detail));
        }
        return;
    }
    if is_empty("apiGroups") {
        errors.push(Error::required(
            &path.child("apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if is_empty("resources") {
        errors.push(Error::required(
            &path.child("resources"),
            "resource rules must supply at least one resource",
        ));
    }
}

impl Strategy for Binding {
    fn default(&self, object: &mut Value) {
        set_default(object, &["roleRef", "apiGroup"], GROUP);
        for subject in list_mut(object, &["subjects"]) {
            if ["User", "Group"].contains(&object::string(subject, &["kind"])) {
                set_default(subject, &["apiGroup"], GROUP);
            }
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        self.validate_any(object)
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = self.validate_any(new);
        let part = |object, field| quote(object::string(object, &["roleRef", field]));
        let shown = |object| {
            let [group, kind, name] = ["apiGroup", "kind", "name"].map(|field| part(object, field));
            format!(r#"{{"APIGroup":{group},"Kind":{kind},"Name":{name}}}"#)
        };
        if shown(new) != shown(old) {
            errors.push(invalid_as(&Path::new("roleRef"), &shown(new), "cannot change roleRef"));
        }
        errors
    }

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::Both
    }

    fn name_errors(&self, name: &str, _name_use: NameUse) -> Vec<String> {
        names::path_segment_name(name)
    }

    fn columns(&self) -> &'static [Column] {
        const ROLE: &str = "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.";
        const CLUSTER_ROLE: &str = "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.";
        const NAMESPACED: &[Column] = &[
            NAME,
            text("Role", ROLE),
            AGE,
            wide(text("Users", "Users in the roleBinding")),
            wide(text("Groups", "Groups in the roleBinding")),
            wide(text("ServiceAccounts", "ServiceAccounts in the roleBinding")),
        ];
        const CLUSTER: &[Column] = &[
            NAME,
            text("Role", CLUSTER_ROLE),
            AGE,
            wide(text("Users", "Users in the clusterRoleBinding")),
            wide(text("Groups", "Groups in the clusterRoleBinding")),
            wide(text("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding")),
        ];
        match self.0 {
            Scope::Namespaced => NAMESPACED,
            Scope::Cluster => CLUSTER,
        }
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let role = |field| object::string(object, &["roleRef", field]);
        let subjects = |kind| {
            let of_kind = object::list(object, &["subjects"])
                .iter()
                .filter(|one| object::string(one, &["kind"]) == kind);
            let shown: Vec<String> = of_kind.map(shown_subject).collect();
            Value::from(shown.join(", "))
        };
        vec![
            object::name(object).into(),
            format!("{}/{}", role("kind"), role("name")).into(),
            age(object, now),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

fn shown_subject(subject: &Value) -> String {
    let of = |field| object::string(subject, &[field]);
    match of("kind") {
        "ServiceAccount" => format!("{}/{}", of("namespace"), of("name")),
        _ => of("name").to_owned(),
    }
}

impl Binding {
    fn validate_any(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("roleRef");
        let role = |field| object::string(object, &["roleRef", field]);
        if role("apiGroup") != GROUP {
            errors.push(Error::not_supported(
                &path.child("apiGroup"),
                role("apiGroup"),
                &[GROUP],
            ));
        }
        let kinds: &[&str] = match self.0 {
            Scope::Namespaced => &["Role", "ClusterRole"],
            Scope::Cluster => &["ClusterRole"],
        };
        if !kinds.contains(&role("kind")) {
            errors.push(Error::not_supported(&path.child("kind"), role("kind"), kinds));
        }
        let path = path.child("name");
        match role("name") {
            "" => errors.push(Error::required(&path, "")),
            name => errors.extend(invalid_each(&path, name, names::path_segment_name(name))),
        }
        for (i, subject) in object::list(object, &["subjects"]).iter().enumerate() {
            self.validate_subject(subject, &Path::new("subjects").index(i), &mut errors);
        }
        errors
    }

    fn validate_subject(&self, subject: &Value, path: &Path, errors: &mut ErrorList) {
        let of = |field| object::string(subject, &[field]);
        let (name, group) = (of("name"), of("apiGroup"));
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        }
        match of("kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errors.extend(invalid_each(&path.child("name"), name, names::dns1123_subdomain(name)));
                }
                if !group.is_empty() {
                    errors.push(Error::not_supported(&path.child("apiGroup"), group, &[""]));
                }
                if self.0 == Scope::Cluster && of("namespace").is_empty() {
                    errors.push(Error::required(&path.child("namespace"), ""));
                }
            }
            "User" | "Group" if group != GROUP => {
                errors.push(Error::not_supported(&path.child("apiGroup"), group, &[GROUP]));
            }
            "User" | "Group" => {}
            kind => {
                let kinds = ["ServiceAccount", "User", "Group"];
                errors.push(Error::not_supported(&path.child("kind"), kind, &kinds));
            }
        }
    }
}

/// The rules that an aggregated role holds: those of the roles it selects, each once, in the order of their names.
pub fn aggregated_rules(role: &Value, roles: &[Value]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors(role) {
        let Ok(selector) = LabelSelector::from_value(Some(selector)) else {
            continue;
        };
        let mut selected: Vec<&Value> = roles
            .iter()
            .filter(|one| object::name(one) != object::name(role) && selector.matches_object(one))
            .collect();
        selected.sort_by_key(|one| object::name(one));
        for rule in selected.into_iter().flat_map(|one| object::list(one, &["rules"])) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}
