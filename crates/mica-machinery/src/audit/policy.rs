//! The policy: rules in order, of which the first that fits a request decides.

use serde_json::Value;

use super::{Level, Stage, Stages};
use crate::field::{Error, ErrorList, Path, aggregate, quote};
use crate::{names, object, yaml};

const API_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";
const POLICY_FIELDS: [&str; 6] = [
    "apiVersion",
    "kind",
    "metadata",
    "rules",
    "omitStages",
    "omitManagedFields",
];
const RULE_FIELDS: [&str; 9] = [
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
];

/// Why a file is no policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct BadPolicy(String);

/// What is asked about a request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name and groups of who proved themselves; none for somebody whose proof failed.
    pub user: Option<(&'a str, &'a [String])>,
    pub verb: &'a str,
    pub about: About<'a>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    Resource {
        group: &'a str,
        resource: &'a str,
        /// Empty for the object itself.
        subresource: &'a str,
        /// Empty for what is in none.
        namespace: &'a str,
        name: &'a str,
    },
    Path(&'a str),
}

/// What a policy says about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    pub level: Level,
    pub omit: Stages,
    pub omit_managed_fields: bool,
}

/// A compiled policy.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Box<[Rule]>,
    rest: Plan,
}

#[derive(Debug)]
struct Rule {
    plan: Plan,
    users: Texts,
    groups: Texts,
    verbs: Texts,
    namespaces: Texts,
    resources: Box<[Resources]>,
    paths: Texts,
}

#[derive(Debug)]
struct Resources {
    group: Box<str>,
    resources: Texts,
    names: Texts,
}

type Texts = Box<[Box<str>]>;

impl Policy {
    /// Reads a policy file, in YAML or JSON. What is unknown in it is told, and otherwise ignored, as upstream does.
    pub fn parse(text: &[u8]) -> Result<(Self, Vec<String>), BadPolicy> {
        let decoding = |error: &dyn std::fmt::Display| BadPolicy(format!("failed decoding: {error}"));
        let converted = yaml::to_json(text).map_err(|error| decoding(&error))?;
        let value: Value = serde_json::from_slice(&converted.json).map_err(|error| decoding(&error))?;
        for field in ["kind", "apiVersion"] {
            if object::string(&value, &[field]).is_empty() {
                let named = if field == "kind" { "Kind" } else { "apiVersion" };
                return Err(decoding(&format!("Object '{named}' is missing in the policy")));
            }
        }
        let (version, kind) = (
            object::string(&value, &["apiVersion"]),
            object::string(&value, &["kind"]),
        );
        if version != API_VERSION || kind != KIND {
            return Err(decoding(&format!(
                "no kind {} is registered for version {}",
                quote(kind),
                quote(version)
            )));
        }
        let errors = validate(&value, None);
        if !errors.is_empty() {
            return Err(BadPolicy(aggregate(&errors)));
        }
        if object::list(&value, &["rules"]).is_empty() {
            return Err(BadPolicy("loaded illegal policy with 0 rules".to_owned()));
        }
        let mut unknown: Vec<String> = converted.strict.into_iter().collect();
        unknown.extend(unknown_fields(&value));
        Ok((Self::compile(&value), unknown))
    }

    /// Compiles a policy that was found valid.
    pub fn compile(policy: &Value) -> Self {
        let rest = Plan {
            level: Level::None,
            omit: stages(policy),
            omit_managed_fields: flag(policy).unwrap_or_default(),
        };
        let rules = object::list(policy, &["rules"]).iter();
        Self {
            rules: rules.map(|rule| Rule::compile(rule, rest)).collect(),
            rest,
        }
    }

    /// What is to be written down of a request.
    pub fn plan(&self, request: &Request<'_>) -> Plan {
        let decides = self.rules.iter().find(|rule| rule.fits(request));
        decides.map_or(self.rest, |rule| rule.plan)
    }
}

impl Rule {
    fn compile(rule: &Value, rest: Plan) -> Self {
        let resources = object::list(rule, &["resources"]).iter();
        Self {
            plan: Plan {
                level: Level::parse(object::string(rule, &["level"])).unwrap_or_default(),
                omit: rest.omit.and(stages(rule)),
                omit_managed_fields: flag(rule).unwrap_or(rest.omit_managed_fields),
            },
            users: texts(rule, "users"),
            groups: texts(rule, "userGroups"),
            verbs: texts(rule, "verbs"),
            namespaces: texts(rule, "namespaces"),
            resources: resources
                .map(|resources| Resources {
                    group: object::string(resources, &["group"]).into(),
                    resources: texts(resources, "resources"),
                    names: texts(resources, "resourceNames"),
                })
                .collect(),
            paths: texts(rule, "nonResourceURLs"),
        }
    }

    fn fits(&self, request: &Request<'_>) -> bool {
        let verbs = self.verbs.is_empty() || has(&self.verbs, request.verb);
        if !verbs || !self.fits_user(request.user) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return self.fits_resource(&request.about);
        }
        if self.paths.is_empty() {
            return true;
        }
        match request.about {
            About::Path(path) => self.paths.iter().any(|spec| path_fits(path, spec)),
            About::Resource { .. } => false,
        }
    }

    fn fits_user(&self, user: Option<(&str, &[String])>) -> bool {
        let Some((name, groups)) = user else {
            return self.users.is_empty() && self.groups.is_empty();
        };
        (self.users.is_empty() || has(&self.users, name))
            && (self.groups.is_empty() || groups.iter().any(|group| has(&self.groups, group)))
    }

    fn fits_resource(&self, about: &About<'_>) -> bool {
        let About::Resource {
            group,
            resource,
            subresource,
            namespace,
            name,
        } = *about
        else {
            return false;
        };
        if !self.namespaces.is_empty() && !has(&self.namespaces, namespace) {
            return false;
        }
        self.resources.is_empty()
            || self.resources.iter().any(|wanted| {
                (*wanted.group == *group || *wanted.group == *"*")
                    && (wanted.resources.is_empty()
                        || ((wanted.names.is_empty() || has(&wanted.names, name))
                            && wanted
                                .resources
                                .iter()
                                .any(|spec| resource_fits(spec, resource, subresource))))
            })
    }
}

fn has(texts: &[Box<str>], text: &str) -> bool {
    texts.iter().any(|one| **one == *text)
}

fn path_fits(path: &str, spec: &str) -> bool {
    spec == "*" || spec == path || (spec.ends_with('*') && path.starts_with(spec.trim_end_matches('*')))
}

/// `pods`, `pods/log`, `pods/*`, `*/log` or `*`.
fn resource_fits(spec: &str, resource: &str, subresource: &str) -> bool {
    if spec == "*" {
        return true;
    }
    match spec.split_once('/') {
        None => subresource.is_empty() && spec == resource,
        Some((of, "*")) if of == resource => true,
        Some((of, part)) => !subresource.is_empty() && part == subresource && (of == "*" || of == resource),
    }
}

fn texts(of: &Value, field: &str) -> Texts {
    let texts = object::list(of, &[field]).iter();
    texts.filter_map(Value::as_str).map(Into::into).collect()
}

fn flag(of: &Value) -> Option<bool> {
    object::get(of, &["omitManagedFields"]).and_then(Value::as_bool)
}

fn stages(of: &Value) -> Stages {
    let named = object::list(of, &["omitStages"]).iter();
    named.fold(Stages::default(), |stages, named| {
        let stage = Stage::ALL.into_iter().find(|stage| named == stage.as_str());
        stage.map_or(stages, |stage| stages.with(stage))
    })
}

/// What is wrong with a policy, which is at `within` of something larger or stands alone.
pub fn validate(policy: &Value, within: Option<&Path>) -> ErrorList {
    let at = |field: &str| within.map_or_else(|| Path::new(field), |path| path.child(field));
    let mut errors = omit_stages(policy, &at("omitStages"));
    for (i, rule) in object::list(policy, &["rules"]).iter().enumerate() {
        errors.extend(rule_errors(rule, &at("rules").index(i)));
    }
    errors
}

fn rule_errors(rule: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    match object::string(rule, &["level"]) {
        "" => errors.push(Error::required(&path.child("level"), "")),
        level if Level::parse(level).is_none() => {
            let known = Level::ALL.map(Level::as_str);
            errors.push(Error::not_supported(&path.child("level"), level, &known));
        }
        _ => {}
    }
    for field in ["users", "userGroups", "verbs", "namespaces", "nonResourceURLs"] {
        errors.extend(not_texts(rule, field, path));
    }
    let urls = path.child("nonResourceURLs");
    for (i, url) in texts(rule, "nonResourceURLs").iter().enumerate() {
        errors.extend(url_errors(url, &urls.index(i)));
    }
    for resources in object::list(rule, &["resources"]) {
        errors.extend(resource_errors(resources, &path.child("resources")));
    }
    errors.extend(omit_stages(rule, &path.child("omitStages")));
    let given = |field: &str| !object::list(rule, &[field]).is_empty();
    if given("nonResourceURLs") && (given("resources") || given("namespaces")) {
        let detail = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(Error::invalid(&urls, rule["nonResourceURLs"].clone(), detail));
    }
    errors
}

fn url_errors(url: &str, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if url == "*" {
        return errors;
    }
    if !url.starts_with('/') {
        let detail = "non-resource URL rules must begin with a '/' character";
        errors.push(Error::invalid(path, url, detail));
    }
    if url.char_indices().any(|(at, c)| c == '*' && at + 1 < url.len()) {
        let detail = "non-resource URL wildcards '*' must be the final character of the rule";
        errors.push(Error::invalid(path, url, detail));
    }
    errors
}

fn resource_errors(resources: &Value, path: &Path) -> ErrorList {
    let mut errors = not_texts(resources, "resources", path);
    errors.extend(not_texts(resources, "resourceNames", path));
    let group = object::string(resources, &["group"]);
    if !group.is_empty() && group != "*" {
        let problems = names::dns1123_subdomain(group);
        if !problems.is_empty() {
            errors.push(Error::invalid(&path.child("group"), group, problems.join(",")));
        }
    }
    let given = |field: &str| !object::list(resources, &[field]).is_empty();
    if given("resourceNames") && !given("resources") {
        errors.push(Error::invalid(
            &path.child("resourceNames"),
            resources["resourceNames"].clone(),
            "using resourceNames requires at least one resource",
        ));
    }
    errors
}

/// Upstream cannot even read these; YAML makes them easily, `n` and `1` being no strings in it.
fn not_texts(of: &Value, field: &str, path: &Path) -> ErrorList {
    let path = path.child(field);
    let wrong = |path: &Path, value: &Value, what: &str| Error::invalid(path, value.clone(), format!("must be {what}"));
    match object::get(of, &[field]) {
        None | Some(Value::Null) => ErrorList::new(),
        Some(Value::Array(texts)) => {
            let others = texts.iter().enumerate().filter(|(_, text)| !text.is_string());
            others
                .map(|(i, text)| wrong(&path.index(i), text, "a string"))
                .collect()
        }
        Some(other) => vec![wrong(&path, other, "a list of strings")],
    }
}

fn omit_stages(of: &Value, path: &Path) -> ErrorList {
    let known = Stage::ALL.map(Stage::as_str);
    let named = object::list(of, &["omitStages"]).iter().enumerate();
    named
        .filter(|(_, stage)| !stage.as_str().is_some_and(|stage| known.contains(&stage)))
        .map(|(i, stage)| {
            let detail = format!("allowed stages are {}", known.join(","));
            Error::invalid(&path.index(i), stage.as_str().unwrap_or_default(), detail)
        })
        .collect()
}

/// Fields that no policy has, as upstream's strict decoding names them.
fn unknown_fields(policy: &Value) -> Vec<String> {
    let unknown = |of: &Value, known: &[&str], at: &str| -> Vec<String> {
        let fields = of.as_object().into_iter().flat_map(|of| of.keys());
        fields
            .filter(|field| !known.contains(&field.as_str()))
            .map(|field| format!("unknown field \"{at}{field}\""))
            .collect()
    };
    let mut found = unknown(policy, &POLICY_FIELDS, "");
    for (i, rule) in object::list(policy, &["rules"]).iter().enumerate() {
        found.extend(unknown(rule, &RULE_FIELDS, &format!("rules[{i}].")));
        for (j, resources) in object::list(rule, &["resources"]).iter().enumerate() {
            let at = format!("rules[{i}].resources[{j}].");
            found.extend(unknown(resources, &["group", "resources", "resourceNames"], &at));
        }
    }
    found
}
