//! Bindings of policies: what they bind, to which parameters, and with what consequence.

use serde_json::Value;

use super::criteria::Criteria;
use super::validate::Action;
use crate::object;
use crate::select::LabelSelector;

/// The kind of a policy's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamKind {
    pub api_version: String,
    pub kind: String,
}

impl ParamKind {
    pub(super) fn read(spec: &Value) -> Option<Self> {
        let kind = spec.get("paramKind").filter(|kind| kind.is_object())?;
        Some(Self {
            api_version: object::string(kind, &["apiVersion"]).to_owned(),
            kind: object::string(kind, &["kind"]).to_owned(),
        })
    }

    /// Group and version.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }

    /// As upstream names a kind that is not there.
    pub fn missing(&self) -> String {
        let (group, version) = self.group_version();
        format!(
            "failed to find resource referenced by paramKind: '{group}/{version}, Kind={}'",
            self.kind
        )
    }
}

/// Whether objects of a kind are in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFound {
    Allow,
    Deny,
}

/// Which objects are parameters.
#[derive(Debug)]
pub struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<Result<LabelSelector, String>>,
    not_found: NotFound,
}

/// Where parameters are to be looked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    One {
        namespace: Option<&'a str>,
        name: &'a str,
    },
    Selected {
        namespace: Option<&'a str>,
        selector: &'a LabelSelector,
    },
}

impl ParamRef {
    fn read(spec: &Value) -> Option<Self> {
        let param = spec.get("paramRef").filter(|param| param.is_object())?;
        let selector = param.get("selector").filter(|selector| selector.is_object());
        Some(Self {
            name: object::string(param, &["name"]).to_owned(),
            namespace: object::string(param, &["namespace"]).to_owned(),
            selector: selector.map(|selector| LabelSelector::from_value(Some(selector)).map_err(|e| e.to_string())),
            not_found: match object::string(param, &["parameterNotFoundAction"]) {
                "Deny" => NotFound::Deny,
                _ => NotFound::Allow,
            },
        })
    }

    /// What to look for, for an object of this namespace.
    pub fn wanted<'a>(&'a self, scope: Scope, namespace: &'a str) -> Result<Wanted<'a>, String> {
        let place = match scope {
            Scope::Cluster if !self.namespace.is_empty() => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
            }
            Scope::Cluster => None,
            Scope::Namespaced if !self.namespace.is_empty() => Some(self.namespace.as_str()),
            Scope::Namespaced if namespace.is_empty() => {
                let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Err(why.to_owned());
            }
            Scope::Namespaced => Some(namespace),
        };
        match (&self.selector, self.name.as_str()) {
            (None, "") => Err("one of name or selector must be provided".to_owned()),
            (Some(_), name) if !name.is_empty() => {
                Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned())
            }
            (None, name) => Ok(Wanted::One { namespace: place, name }),
            (Some(Ok(selector)), _) => Ok(Wanted::Selected {
                namespace: place,
                selector,
            }),
            (Some(Err(why)), _) => Err(why.clone()),
        }
    }

    /// What finding nothing means.
    pub fn nothing_found(&self) -> Result<(), String> {
        match self.not_found {
            NotFound::Allow => Ok(()),
            NotFound::Deny => Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()),
        }
    }
}

/// A binding of either kind of policy.
#[derive(Debug)]
pub struct Binding {
    pub name: String,
    pub policy: String,
    /// None: whatever the policy matches.
    pub criteria: Option<Criteria>,
    pub param: Option<ParamRef>,
    /// Empty for mutating policies.
    pub actions: Vec<Action>,
}

impl Binding {
    pub fn new(binding: &Value) -> Self {
        let null = Value::Null;
        let spec = binding.get("spec").unwrap_or(&null);
        let resources = spec.get("matchResources").filter(|resources| resources.is_object());
        let actions = object::list(spec, &["validationActions"]).iter();
        Self {
            name: object::name(binding).to_owned(),
            policy: object::string(spec, &["policyName"]).to_owned(),
            criteria: resources.map(Criteria::of_resources),
            param: ParamRef::read(spec),
            actions: actions.filter_map(|action| Action::read(action.as_str()?)).collect(),
        }
    }
}
