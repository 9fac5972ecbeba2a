//! Which flow a request belongs to: a plane's flow schemas, compiled.
//!
//! Matching is upstream's (`apiserver/pkg/util/flowcontrol/rule.go`): the first schema by precedence, then name, one of whose
//! rules has the subject and what is asked for.

use std::sync::Arc;

use mica_machinery::kind::bootstrap::flow::mandatory;
use mica_machinery::object;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::level::{Level, Levels, Response};
use crate::authz::User;

const CATCH_ALL: &str = "catch-all";
const EXEMPT: &str = "exempt";
/// What a level has that does not say. Upstream's default.
const DEFAULT_SHARES: u32 = 30;
/// What a schema's precedence is that does not say. Upstream's default.
const DEFAULT_PRECEDENCE: i64 = 1000;

/// What is asked, as schemas see it.
#[derive(Clone, Copy, Debug)]
pub struct Digest<'a> {
    pub user: &'a User,
    pub verb: &'a str,
    pub what: What<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    Resource {
        group: &'a str,
        resource: &'a str,
        /// Empty for the object itself.
        subresource: &'a str,
        /// Empty for what is in none, and for all of them.
        namespace: &'a str,
    },
    Path(&'a str),
}

/// The schemas and levels of a plane.
#[derive(Debug)]
pub struct Flows {
    /// In the order in which they are tried.
    pub schemas: Vec<Schema>,
    pub levels: Arc<Levels>,
    catch_all: usize,
}

#[derive(Debug)]
pub struct Schema {
    pub name: String,
    /// Its place among the levels.
    pub level: usize,
    precedence: i64,
    by: By,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Nothing,
    User,
    Namespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(Names),
    Group(Names),
    Account { namespace: String, name: Names },
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Names,
    paths: Vec<String>,
}

/// Some names, or all there are.
#[derive(Debug)]
enum Names {
    All,
    Some(Vec<String>),
}

impl Names {
    fn of(object: &Value, field: &str) -> Self {
        let list = object::list(object, &[field]);
        if let [Value::String(one)] = list
            && one == "*"
        {
            return Self::All;
        }
        Self::Some(
            list.iter()
                .filter_map(|name| name.as_str().map(ToOwned::to_owned))
                .collect(),
        )
    }

    fn one(object: &Value, path: &[&str]) -> Self {
        match object::string(object, path) {
            "*" => Self::All,
            name => Self::Some(vec![name.to_owned()]),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.iter().any(|one| one == name),
        }
    }

    /// Whether the name of a subresource, as rules write it, is among them.
    fn has_part(&self, name: &str, part: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) if part.is_empty() => names.iter().any(|one| one == name),
            Self::Some(names) => names
                .iter()
                .any(|one| one.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')) == Some(part)),
        }
    }
}

impl Flows {
    /// Compiles schemas and levels. Schemas of levels that are not there are left out, as upstream does, and what must be there is.
    pub fn new<'a>(schemas: impl Iterator<Item = &'a Value>, levels: impl Iterator<Item = &'a Value>) -> Self {
        let mut levels: Vec<Level> = levels.map(level).collect();
        for name in [CATCH_ALL, EXEMPT] {
            if !levels.iter().any(|level| &*level.name == name) {
                levels.extend(mandatory("PriorityLevelConfiguration", name).map(level));
            }
        }
        let mut compiled: Vec<Schema> = schemas.filter_map(|value| schema(value, &levels)).collect();
        for name in [CATCH_ALL, EXEMPT] {
            if !compiled.iter().any(|schema| schema.name == name) {
                compiled.extend(mandatory("FlowSchema", name).and_then(|value| schema(value, &levels)));
            }
        }
        compiled.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        let catch_all = compiled.iter().position(|schema| schema.name == CATCH_ALL);
        Self {
            schemas: compiled,
            levels: Arc::new(Levels::new(levels)),
            catch_all: catch_all.expect("the catch-all is mandatory, and so is its level"),
        }
    }

    /// The place of the schema that takes a request.
    pub fn find(&self, digest: &Digest<'_>) -> usize {
        let found = self.schemas.iter().position(|schema| schema.takes(digest));
        found.unwrap_or(self.catch_all)
    }
}

impl Schema {
    fn takes(&self, digest: &Digest<'_>) -> bool {
        self.rules.iter().any(|rule| rule.takes(digest))
    }

    /// Tells the flows of this schema apart.
    pub fn flow(&self, digest: &Digest<'_>) -> u64 {
        let by = match (self.by, digest.what) {
            (By::User, _) => digest.user.name.as_str(),
            (By::Namespace, What::Resource { namespace, .. }) => namespace,
            (By::Nothing | By::Namespace, _) => "",
        };
        xxh3_64_with_seed(by.as_bytes(), xxh3_64_with_seed(self.name.as_bytes(), 0))
    }
}

impl Rule {
    fn takes(&self, digest: &Digest<'_>) -> bool {
        if !self.subjects.iter().any(|subject| subject.is(digest.user)) {
            return false;
        }
        match digest.what {
            What::Resource {
                group,
                resource,
                subresource,
                namespace,
            } => self.resources.iter().any(|rule| {
                rule.verbs.has(digest.verb)
                    && rule.resources.has_part(resource, subresource)
                    && rule.groups.has(group)
                    && match namespace {
                        "" => rule.cluster_scope,
                        _ => rule.namespaces.has(namespace),
                    }
            }),
            What::Path(path) => self
                .paths
                .iter()
                .any(|rule| rule.verbs.has(digest.verb) && rule.paths.iter().any(|rule| covers(rule, path))),
        }
    }
}

impl Subject {
    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(names) => names.has(&user.name),
            Self::Group(Names::All) => true,
            Self::Group(names) => user.groups.iter().any(|group| names.has(group)),
            Self::Account { namespace, name } => user
                .name
                .strip_prefix("system:serviceaccount:")
                .and_then(|rest| rest.strip_prefix(namespace.as_str()))
                .and_then(|rest| rest.strip_prefix(':'))
                .is_some_and(|account| name.has(account)),
        }
    }
}

/// Whether a rule's path covers a request's: the same, or one above it.
fn covers(rule: &str, path: &str) -> bool {
    if rule == "*" || rule == path {
        return true;
    }
    let above = rule.strip_suffix('*').unwrap_or(rule);
    let above = above.strip_suffix('/').unwrap_or(above);
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn schema(value: &Value, levels: &[Level]) -> Option<Schema> {
    let spec = value.get("spec")?;
    let level = object::string(spec, &["priorityLevelConfiguration", "name"]);
    let by = match object::string(spec, &["distinguisherMethod", "type"]) {
        "ByUser" => By::User,
        "ByNamespace" => By::Namespace,
        _ => By::Nothing,
    };
    Some(Schema {
        name: object::name(value).to_owned(),
        level: levels.iter().position(|one| &*one.name == level)?,
        precedence: spec["matchingPrecedence"].as_i64().unwrap_or(DEFAULT_PRECEDENCE),
        by,
        rules: object::list(spec, &["rules"]).iter().map(rule).collect(),
    })
}

fn rule(value: &Value) -> Rule {
    let subject = |subject: &Value| {
        Some(match object::string(subject, &["kind"]) {
            "User" => Subject::User(Names::one(subject, &["user", "name"])),
            "Group" => Subject::Group(Names::one(subject, &["group", "name"])),
            "ServiceAccount" => Subject::Account {
                namespace: object::string(subject, &["serviceAccount", "namespace"]).to_owned(),
                name: Names::one(subject, &["serviceAccount", "name"]),
            },
            _ => return None,
        })
    };
    let resource = |rule: &Value| ResourceRule {
        verbs: Names::of(rule, "verbs"),
        groups: Names::of(rule, "apiGroups"),
        resources: Names::of(rule, "resources"),
        namespaces: Names::of(rule, "namespaces"),
        cluster_scope: rule["clusterScope"].as_bool().unwrap_or(false),
    };
    let path = |rule: &Value| PathRule {
        verbs: Names::of(rule, "verbs"),
        paths: object::list(rule, &["nonResourceURLs"])
            .iter()
            .filter_map(|path| path.as_str().map(ToOwned::to_owned))
            .collect(),
    };
    let list = |field: &'static str| object::list(value, &[field]).iter();
    Rule {
        subjects: list("subjects").filter_map(subject).collect(),
        resources: list("resourceRules").map(resource).collect(),
        paths: list("nonResourceRules").map(path).collect(),
    }
}

fn level(value: &Value) -> Level {
    let number = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
    let (exempt, limited) = (&value["spec"]["exempt"], &value["spec"]["limited"]);
    let name = Arc::from(object::name(value));
    if value["spec"]["type"] == "Exempt" {
        return Level {
            name,
            shares: number(&exempt["nominalConcurrencyShares"]).unwrap_or(0),
            lendable: number(&exempt["lendablePercent"]).unwrap_or(0),
            borrowing: None,
            response: Response::Exempt,
        };
    }
    let queuing = &limited["limitResponse"]["queuing"];
    let response = match limited["limitResponse"]["type"].as_str() {
        Some("Queue") => Response::queue(
            number(&queuing["queues"]).unwrap_or(64),
            number(&queuing["handSize"]).unwrap_or(8),
            number(&queuing["queueLengthLimit"]).unwrap_or(50),
        ),
        _ => Response::Reject,
    };
    Level {
        name,
        shares: number(&limited["nominalConcurrencyShares"]).unwrap_or(DEFAULT_SHARES),
        lendable: number(&limited["lendablePercent"]).unwrap_or(0),
        borrowing: number(&limited["borrowingLimitPercent"]),
        response,
    }
}

#[cfg(test)]
mod tests;
