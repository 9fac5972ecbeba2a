//! What a webhook, a policy or a binding applies to: rules, and selectors on the object and its namespace.

use serde_json::Value;

use super::request::{Attributes, Face, Objects, Operation, Resource};
use crate::object;
use crate::select::LabelSelector;

/// Why it cannot be told whether something applies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("namespaces {} not found", crate::field::quote(.0))]
    NoNamespace(String),
    /// A selector that was stored but says nothing sensible.
    #[error("{0}")]
    Selector(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MatchPolicy {
    Exact,
    Equivalent,
}

#[derive(Debug)]
pub struct Criteria {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// What applies where there are no rules: bindings without any bind to all that their policy matches.
    without_rules: Unruled,
    policy: MatchPolicy,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unruled {
    Everything,
    Nothing,
}

impl Criteria {
    /// A webhook's.
    pub fn of_webhook(hook: &Value) -> Self {
        Self {
            rules: rules(hook, "rules"),
            excluded: Vec::new(),
            without_rules: Unruled::Nothing,
            ..Self::around(hook)
        }
    }

    /// Of a policy's `matchConstraints` or a binding's `matchResources`.
    pub fn of_resources(resources: &Value) -> Self {
        Self {
            rules: rules(resources, "resourceRules"),
            excluded: rules(resources, "excludeResourceRules"),
            without_rules: Unruled::Everything,
            ..Self::around(resources)
        }
    }

    fn around(said: &Value) -> Self {
        let selector = |field: &str| {
            LabelSelector::from_value(said.get(field).filter(|s| s.is_object())).map_err(|e| e.to_string())
        };
        let policy = match object::string(said, &["matchPolicy"]) {
            "Exact" => MatchPolicy::Exact,
            _ => MatchPolicy::Equivalent,
        };
        Self {
            rules: Vec::new(),
            excluded: Vec::new(),
            without_rules: Unruled::Nothing,
            policy,
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Whether anything but the rules can still decide: a quick look before anything is read or converted.
    pub fn may_match(&self, attributes: &Attributes<'_>) -> bool {
        self.find(attributes).is_some()
    }

    /// Whether the namespace must be known to decide.
    pub fn wants_namespace(&self) -> bool {
        !matches!(&self.namespaces, Ok(selector) if selector.is_everything())
    }

    /// The form in which the object matches. `namespace` is the request's namespace as stored; `None` if it is not there.
    pub fn matches<'a>(
        &self,
        attributes: &Attributes<'a>,
        objects: Objects<'_>,
        namespace: Option<&Value>,
    ) -> Result<Option<Face<'a>>, Problem> {
        let in_namespace = self.matches_namespace(attributes, objects, namespace);
        if in_namespace == Ok(false) || self.matches_object(objects) == Ok(false) {
            return Ok(None);
        }
        let Some(face) = self.find(attributes) else {
            return Ok(None);
        };
        // What does not apply must not fail for what it would have asked.
        in_namespace?;
        self.matches_object(objects)?;
        Ok(Some(face))
    }

    fn find<'a>(&self, attributes: &Attributes<'a>) -> Option<Face<'a>> {
        if self.first(&self.excluded, attributes).is_some() {
            return None;
        }
        if self.rules.is_empty() {
            return (self.without_rules == Unruled::Everything).then_some(attributes.face);
        }
        self.first(&self.rules, attributes)
    }

    fn first<'a>(&self, rules: &[Rule], attributes: &Attributes<'a>) -> Option<Face<'a>> {
        if rules
            .iter()
            .any(|rule| rule.matches(attributes, attributes.face.resource))
        {
            return Some(attributes.face);
        }
        if self.policy == MatchPolicy::Exact {
            return None;
        }
        rules.iter().find_map(|rule| {
            let mut others = attributes.equivalents.iter();
            others.find(|face| rule.matches(attributes, face.resource)).copied()
        })
    }

    fn matches_namespace(
        &self,
        attributes: &Attributes<'_>,
        objects: Objects<'_>,
        namespace: Option<&Value>,
    ) -> Result<bool, Problem> {
        let of_namespaces = attributes.face.resource.resource == "namespaces";
        if attributes.namespace.is_empty() && !of_namespaces {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(|why| Problem::Selector(why.clone()))?;
        if selector.is_everything() {
            return Ok(true);
        }
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let space = if of_namespaces && attributes.subresource.is_empty() && writes {
            objects.object
        } else {
            namespace
        };
        match space {
            Some(space) => Ok(selector.matches_object(space)),
            None => Err(Problem::NoNamespace(attributes.namespace.to_owned())),
        }
    }

    fn matches_object(&self, objects: Objects<'_>) -> Result<bool, Problem> {
        let selector = self.objects.as_ref().map_err(|why| Problem::Selector(why.clone()))?;
        let mut all = [objects.object, objects.old].into_iter().flatten();
        Ok(selector.is_everything() || all.any(|object| selector.matches_object(object)))
    }
}

fn rules(of: &Value, field: &str) -> Vec<Rule> {
    object::list(of, &[field]).iter().map(Rule::read).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
    /// A word that nobody knows matches nothing.
    Unknown,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// None: any.
    names: Vec<String>,
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let strings = |field: &str| -> Vec<String> {
            let list = object::list(rule, &[field]).iter();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let resources = strings("resources").into_iter().map(|text| {
            let (resource, subresource) = text.split_once('/').unwrap_or((&text, ""));
            (resource.to_owned(), subresource.to_owned())
        });
        Self {
            operations: strings("operations"),
            groups: strings("apiGroups"),
            versions: strings("apiVersions"),
            resources: resources.collect(),
            scope: match object::string(rule, &["scope"]) {
                "" | "*" => Scope::All,
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                _ => Scope::Unknown,
            },
            names: strings("resourceNames"),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: Resource<'_>) -> bool {
        let listed = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let is_namespace = (resource.group, resource.version, resource.resource) == ("", "v1", "namespaces");
        let clustered = is_namespace || attributes.namespace.is_empty();
        let scoped = match self.scope {
            Scope::All => true,
            Scope::Cluster => clustered,
            Scope::Namespaced => !clustered,
            Scope::Unknown => false,
        };
        let any = |word: &str, wanted: &str| word == "*" || word == wanted;
        scoped
            && listed(&self.operations, attributes.operation.as_str())
            && listed(&self.groups, resource.group)
            && listed(&self.versions, resource.version)
            && self
                .resources
                .iter()
                .any(|(name, part)| any(name, resource.resource) && any(part, attributes.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }
}
