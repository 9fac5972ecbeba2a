//! Role-based access control: what rules allow, which of them a user has, and whether they cover what is given away.
//!
//! Roles and bindings come as objects ([`Layer`]) and are asked as a whole ([`Policy`]). Texts are upstream's.

mod cover;
mod policy;

use serde_json::{Value, json};

use crate::access::Selectors;
use crate::field::quote;
use crate::object;

pub use cover::{missing, refusal};
pub use policy::{Decision, Held, Layer, Missing, Place, Policy, RoleRef};

const ALL: &str = "*";

/// What somebody wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked<'a> {
    Resource(Action<'a>),
    Path { verb: &'a str, path: &'a str },
}

/// Something done to a resource. Empty texts stand for what is not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Action<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// What narrows a list, a watch or a deletecollection. Roles do not look at it.
    pub selectors: Option<&'a Selectors>,
}

impl Action<'_> {
    /// The action in upstream's words: what somebody cannot do.
    pub fn describe(&self) -> String {
        let shown = match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        };
        let place = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quote(namespace)),
        };
        let (resource, group) = (quote(&shown), quote(self.group));
        format!("{} resource {resource} in API group {group} {place}", self.verb)
    }
}

impl Asked<'_> {
    fn namespace(&self) -> &str {
        match self {
            Self::Resource(action) => action.namespace,
            Self::Path { .. } => "",
        }
    }
}

/// One rule of a role.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    pub verbs: Box<[Box<str>]>,
    pub groups: Box<[Box<str>]>,
    pub resources: Box<[Box<str>]>,
    pub names: Box<[Box<str>]>,
    pub urls: Box<[Box<str>]>,
}

impl Rule {
    pub fn read(rule: &Value) -> Self {
        let texts = |field: &str| -> Box<[Box<str>]> {
            let texts = object::list(rule, &[field]).iter().filter_map(Value::as_str);
            texts.map(Box::from).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    /// The rules of a role.
    pub fn read_all(role: &Value) -> Vec<Self> {
        object::list(role, &["rules"]).iter().map(Self::read).collect()
    }

    pub fn allows(&self, asked: &Asked<'_>) -> bool {
        match asked {
            Asked::Resource(action) => {
                has_or_all(&self.verbs, action.verb)
                    && has_or_all(&self.groups, action.group)
                    && self.has_resource(action.resource, action.subresource)
                    && (self.names.is_empty() || has(&self.names, action.name))
            }
            Asked::Path { verb, path } => {
                has_or_all(&self.verbs, verb) && self.urls.iter().any(|url| url_covers(url, path))
            }
        }
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|one| match one.split_once('/') {
            None => **one == *ALL || (subresource.is_empty() && **one == *resource),
            Some((ALL, below)) => !subresource.is_empty() && below == subresource,
            Some((above, below)) => above == resource && below == subresource,
        })
    }

    /// The rule as reviews show it: resources and paths apart, without what is empty.
    pub fn shown(&self) -> (Option<Value>, Option<Value>) {
        let resources = (!self.resources.is_empty()).then(|| {
            let mut shown = json!({"verbs": self.verbs});
            for (field, values) in [
                ("apiGroups", &self.groups),
                ("resources", &self.resources),
                ("resourceNames", &self.names),
            ] {
                if !values.is_empty() {
                    shown[field] = json!(values);
                }
            }
            shown
        });
        let paths = (!self.urls.is_empty()).then(|| json!({"verbs": self.verbs, "nonResourceURLs": self.urls}));
        (resources, paths)
    }
}

fn has(values: &[Box<str>], wanted: &str) -> bool {
    values.iter().any(|value| **value == *wanted)
}

fn has_or_all(values: &[Box<str>], wanted: &str) -> bool {
    values.iter().any(|value| **value == *wanted || **value == *ALL)
}

/// Whether a path of a rule, perhaps with stars at its end, stands for a path.
fn url_covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: Value) -> Rule {
        Rule::read(&text)
    }

    fn on<'a>(verb: &'a str, group: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> Asked<'a> {
        Asked::Resource(Action {
            verb,
            group,
            resource,
            subresource,
            name,
            ..Action::default()
        })
    }

    #[test]
    fn resources_subresources_names_and_stars() {
        let status =
            rule(json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["*/status", "pods/log", "nodes"]}));
        for (asked, allowed) in [
            (on("get", "apps", "deployments", "status", "a"), true),
            (on("get", "", "pods", "log", "a"), true),
            (on("get", "", "pods", "", "a"), false),
            (on("get", "", "nodes", "", "a"), true),
            (on("get", "", "nodes", "proxy", "a"), false),
            (on("list", "", "nodes", "", ""), false),
        ] {
            assert_eq!(status.allows(&asked), allowed, "{asked:?}");
        }
        let everything = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(everything.allows(&on("escalate", "x", "roles", "y", "z")));
        assert!(!everything.allows(&Asked::Path {
            verb: "get",
            path: "/x"
        }));
        let named = rule(
            json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"]}),
        );
        assert!(named.allows(&on("list", "", "secrets", "", "one")));
        assert!(!named.allows(&on("list", "", "secrets", "", "")));
    }

    #[test]
    fn paths_end_in_stars() {
        let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/api", "/apis/*"]}));
        for (path, allowed) in [
            ("/api", true),
            ("/api/v1", false),
            ("/apis/x/v1", true),
            ("/apis", false),
        ] {
            assert_eq!(paths.allows(&Asked::Path { verb: "get", path }), allowed, "{path}");
        }
        let all = rule(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        assert!(all.allows(&Asked::Path {
            verb: "post",
            path: "/metrics"
        }));
    }

    #[test]
    fn actions_are_described_as_upstream_does() {
        let mut action = Action {
            verb: "get",
            group: "apps",
            resource: "deployments",
            subresource: "scale",
            namespace: "n",
            name: "d",
            ..Action::default()
        };
        assert_eq!(
            action.describe(),
            r#"get resource "deployments/scale" in API group "apps" in the namespace "n""#
        );
        (action.subresource, action.namespace) = ("", "");
        assert_eq!(
            action.describe(),
            r#"get resource "deployments" in API group "apps" at the cluster scope"#
        );
    }
}
