//! The roles and bindings of a plane, found by whom they are for.
//!
//! A plane's own objects lie over those that it was born with, which all planes share: [`Policy`] is both.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;

use super::{Asked, Rule};
use crate::field::quote;
use crate::kind::User;
use crate::object;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Where one of the four kinds of object lies. The namespace is empty for those of the whole plane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    Role { namespace: Box<str>, name: Box<str> },
    Binding { namespace: Box<str>, name: Box<str> },
}

/// What a binding binds to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleRef<'a> {
    pub kind: &'a str,
    pub name: &'a str,
}

impl<'a> RoleRef<'a> {
    pub fn of(binding: &'a Value) -> Self {
        Self {
            kind: object::string(binding, &["roleRef", "kind"]),
            name: object::string(binding, &["roleRef", "name"]),
        }
    }
}

/// Roles and bindings of one origin.
#[derive(Debug, Default)]
pub struct Layer {
    roles: HashMap<Place, Arc<[Rule]>>,
    bindings: Vec<Binding>,
    /// Positions of bindings, in order, by who they are for.
    users: HashMap<Box<str>, Vec<u32>>,
    groups: HashMap<Box<str>, Vec<u32>>,
}

#[derive(Debug)]
struct Binding {
    namespace: Box<str>,
    name: Box<str>,
    role_kind: Box<str>,
    role: Box<str>,
    subjects: Box<[Subject]>,
}

#[derive(Debug)]
struct Subject {
    kind: Box<str>,
    name: Box<str>,
    namespace: Box<str>,
}

impl Layer {
    /// Adds a role of a namespace, or of the whole plane where that is empty.
    pub fn add_role(&mut self, namespace: &str, name: &str, role: &Value) {
        let place = Place::Role {
            namespace: namespace.into(),
            name: name.into(),
        };
        self.roles.insert(place, Rule::read_all(role).into());
    }

    /// Adds a binding of a namespace, or of the whole plane where that is empty.
    pub fn add_binding(&mut self, namespace: &str, name: &str, binding: &Value) {
        let at = u32::try_from(self.bindings.len()).expect("a plane holds fewer bindings");
        let subjects: Box<[Subject]> = object::list(binding, &["subjects"]).iter().map(Subject::read).collect();
        for subject in &subjects {
            let Some((is_group, whom)) = subject.whom(namespace) else {
                continue;
            };
            let index = if is_group { &mut self.groups } else { &mut self.users };
            let found = index.entry(whom.into()).or_default();
            if found.last() != Some(&at) {
                found.push(at);
            }
        }
        let role = RoleRef::of(binding);
        self.bindings.push(Binding {
            namespace: namespace.into(),
            name: name.into(),
            role_kind: role.kind.into(),
            role: role.name.into(),
            subjects,
        });
    }

    /// The bindings for a user, in the order in which they were added.
    fn bindings_of(&self, user: &User<'_>) -> impl Iterator<Item = &Binding> {
        let by_name = self.users.get(user.name).into_iter();
        let by_group = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        let mut found: Vec<u32> = by_name.chain(by_group).flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        found.into_iter().map(|at| &self.bindings[at as usize])
    }
}

impl Subject {
    fn read(subject: &Value) -> Self {
        let text = |field: &str| object::string(subject, &[field]).into();
        Self {
            kind: text("kind"),
            name: text("name"),
            namespace: text("namespace"),
        }
    }

    /// Whether a group or a user, and its name.
    fn whom(&self, binding_namespace: &str) -> Option<(bool, String)> {
        match &*self.kind {
            "User" => Some((false, self.name.to_string())),
            "Group" => Some((true, self.name.to_string())),
            "ServiceAccount" => {
                let namespace = self.namespace(binding_namespace);
                (!namespace.is_empty()).then(|| (false, format!("{SERVICE_ACCOUNT}{namespace}:{}", self.name)))
            }
            _ => None,
        }
    }

    fn namespace<'a>(&'a self, binding_namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() {
            binding_namespace
        } else {
            &self.namespace
        }
    }

    fn is(&self, user: &User<'_>, binding_namespace: &str) -> bool {
        match self.whom(binding_namespace) {
            Some((true, group)) => user.groups.contains(&group),
            Some((false, name)) => user.name == name,
            None => false,
        }
    }
}

impl Binding {
    /// The binding, its role and whom it is for, in upstream's words.
    fn describe(&self, user: &User<'_>) -> String {
        let (kind, name) = match &*self.namespace {
            "" => ("ClusterRoleBinding", self.name.to_string()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        let subject = self.subjects.iter().find(|subject| subject.is(user, &self.namespace));
        let to = subject.map_or_else(String::new, |subject| match &*subject.kind {
            "ServiceAccount" => {
                let named = format!("{}/{}", subject.name, subject.namespace(&self.namespace));
                format!("{} {}", subject.kind, quote(&named))
            }
            kind => format!("{kind} {}", quote(&subject.name)),
        });
        let (name, role) = (quote(&name), quote(&self.role));
        format!("{kind} {name} of {} {role} to {to}", self.role_kind)
    }
}

/// What is decided about a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub allowed: bool,
    /// Which binding allows it, or which roles could not be found; may be empty.
    pub reason: String,
}

/// The rules that a user has in a place, and what could not be found of them.
#[derive(Debug, Default)]
pub struct Held {
    pub rules: Vec<Rule>,
    pub errors: Vec<String>,
}

/// All roles and bindings of a plane.
#[derive(Debug)]
pub struct Policy {
    base: Arc<Layer>,
    own: Layer,
    /// What of the base is not there: the plane changed or deleted it.
    hidden: HashSet<Place>,
}

impl Policy {
    pub fn new(base: Arc<Layer>, own: Layer, hidden: HashSet<Place>) -> Self {
        Self { base, own, hidden }
    }

    pub fn decide(&self, user: &User<'_>, asked: &Asked<'_>) -> Decision {
        let mut errors = Vec::new();
        let found = self.visit(user, asked.namespace(), |binding, rules| match rules {
            Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => ControlFlow::Break(binding.describe(user)),
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                errors.push(error);
                ControlFlow::Continue(())
            }
        });
        match found {
            Some(source) => Decision {
                allowed: true,
                reason: format!("RBAC: allowed by {source}"),
            },
            None => Decision {
                allowed: false,
                reason: told(&errors).map_or_else(String::new, |errors| format!("RBAC: {errors}")),
            },
        }
    }

    /// What a user has in a namespace, or in the whole plane where that is empty.
    pub fn held(&self, user: &User<'_>, namespace: &str) -> Held {
        let mut held = Held::default();
        self.visit(user, namespace, |_, rules| {
            match rules {
                Ok(rules) => held.rules.extend(rules.iter().cloned()),
                Err(error) => held.errors.push(error),
            }
            ControlFlow::<()>::Continue(())
        });
        held
    }

    /// The rules of the role that a binding in a namespace names, or why there are none.
    pub fn rules_of(&self, role: RoleRef<'_>, namespace: &str) -> Result<Arc<[Rule]>, Missing> {
        let place = |namespace: &str| Place::Role {
            namespace: namespace.into(),
            name: role.name.into(),
        };
        let (place, kind) = match role.kind {
            "Role" => (place(namespace), "role"),
            "ClusterRole" => (place(""), "clusterrole"),
            other => return Err(Missing::Kind(other.to_owned())),
        };
        let below = || self.base.roles.get(&place).filter(|_| !self.hidden.contains(&place));
        let found = self.own.roles.get(&place).or_else(below);
        found.cloned().ok_or_else(|| Missing::Role {
            kind,
            name: role.name.to_owned(),
        })
    }

    /// Shows every binding for a user with its rules, or why there are none, until one breaks off.
    fn visit<B>(
        &self,
        user: &User<'_>,
        namespace: &str,
        mut visitor: impl FnMut(&Binding, Result<Arc<[Rule]>, String>) -> ControlFlow<B>,
    ) -> Option<B> {
        let found: Vec<&Binding> = (self.base.bindings_of(user).filter(|binding| !self.hides(binding)))
            .chain(self.own.bindings_of(user))
            .collect();
        // Those of the whole plane come first, as upstream's do.
        let scopes = if namespace.is_empty() {
            &[""][..]
        } else {
            &["", namespace]
        };
        for scope in scopes {
            for binding in found.iter().filter(|binding| *binding.namespace == **scope) {
                let role = RoleRef {
                    kind: &binding.role_kind,
                    name: &binding.role,
                };
                let rules = self.rules_of(role, scope).map_err(|missing| missing.to_string());
                if let ControlFlow::Break(found) = visitor(binding, rules) {
                    return Some(found);
                }
            }
        }
        None
    }

    fn hides(&self, binding: &Binding) -> bool {
        !self.hidden.is_empty()
            && self.hidden.contains(&Place::Binding {
                namespace: binding.namespace.clone(),
                name: binding.name.clone(),
            })
    }
}

/// Why a binding's role gives no rules.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    #[error("{kind}.rbac.authorization.k8s.io {} not found", quote(.name))]
    Role { kind: &'static str, name: String },
    #[error("unsupported role reference kind: {}", quote(.0))]
    Kind(String),
}

/// Errors as upstream puts several into one text: each once.
fn told(errors: &[String]) -> Option<String> {
    let mut each: Vec<&str> = Vec::new();
    for error in errors {
        if !each.contains(&error.as_str()) {
            each.push(error);
        }
    }
    match &each[..] {
        [] => None,
        [only] => Some((*only).to_owned()),
        _ => Some(format!("[{}]", each.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Action;
    use super::*;

    fn binding(kind: &str, role: &str, subjects: Value) -> Value {
        json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects})
    }

    fn role(resource: &str) -> Value {
        json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]})
    }

    fn base() -> Arc<Layer> {
        let mut base = Layer::default();
        base.add_role("", "viewer", &role("configmaps"));
        let everybody = json!([{"kind": "Group", "name": "system:authenticated"}]);
        base.add_binding("", "viewers", &binding("ClusterRole", "viewer", everybody));
        Arc::new(base)
    }

    fn decide(policy: &Policy, user: &str, namespace: &str, resource: &str) -> (bool, String) {
        let groups = ["system:authenticated".to_owned()];
        let user = User {
            name: user,
            uid: "",
            groups: &groups,
            extra: &[],
        };
        let asked = Asked::Resource(Action {
            verb: "get",
            resource,
            namespace,
            ..Action::default()
        });
        let decision = policy.decide(&user, &asked);
        (decision.allowed, decision.reason)
    }

    #[test]
    fn the_binding_that_allows_is_named() {
        let mut own = Layer::default();
        own.add_role("n", "secret", &role("secrets"));
        let subjects = json!([{"kind": "User", "name": "other"}, {"kind": "ServiceAccount", "name": "sa"}]);
        own.add_binding("n", "b", &binding("Role", "secret", subjects));
        let policy = Policy::new(base(), own, HashSet::new());
        let sa = "system:serviceaccount:n:sa";
        assert_eq!(
            decide(&policy, sa, "n", "secrets"),
            (
                true,
                r#"RBAC: allowed by RoleBinding "b/n" of Role "secret" to ServiceAccount "sa/n""#.to_owned()
            )
        );
        assert_eq!(decide(&policy, sa, "m", "secrets"), (false, String::new()));
        assert_eq!(decide(&policy, sa, "", "secrets"), (false, String::new()));
        assert_eq!(
            decide(&policy, "u", "m", "configmaps"),
            (
                true,
                r#"RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "viewer" to Group "system:authenticated""#
                    .to_owned()
            )
        );
    }

    #[test]
    fn what_the_plane_changed_hides_what_it_was_born_with() {
        let mut own = Layer::default();
        own.add_role("", "viewer", &role("pods"));
        let role_place = Place::Role {
            namespace: "".into(),
            name: "viewer".into(),
        };
        let policy = Policy::new(base(), own, HashSet::from([role_place.clone()]));
        assert!(decide(&policy, "u", "", "pods").0 && !decide(&policy, "u", "", "configmaps").0);
        let policy = Policy::new(base(), Layer::default(), HashSet::from([role_place]));
        assert_eq!(
            decide(&policy, "u", "", "configmaps"),
            (
                false,
                r#"RBAC: clusterrole.rbac.authorization.k8s.io "viewer" not found"#.to_owned()
            )
        );
        let binding_place = Place::Binding {
            namespace: "".into(),
            name: "viewers".into(),
        };
        let policy = Policy::new(base(), Layer::default(), HashSet::from([binding_place]));
        assert_eq!(decide(&policy, "u", "", "configmaps"), (false, String::new()));
    }

    #[test]
    fn missing_roles_are_told_once_each() {
        let mut own = Layer::default();
        let me = json!([{"kind": "User", "name": "u"}]);
        own.add_binding("n", "a", &binding("Role", "missing", me.clone()));
        own.add_binding("n", "b", &binding("Role", "missing", me.clone()));
        own.add_binding("n", "c", &binding("ClusterRole", "missing", me));
        let policy = Policy::new(Arc::default(), own, HashSet::new());
        assert_eq!(
            decide(&policy, "u", "n", "secrets").1,
            "RBAC: [role.rbac.authorization.k8s.io \"missing\" not found, clusterrole.rbac.authorization.k8s.io \"missing\" not found]"
        );
    }
}
