//! Pod security standards: what the labels of a namespace ask of its pods, and what a pod violates of it.
//!
//! Levels, versions, labels and texts are those of `pod-security-admission`. Nothing here knows requests.

mod check;
mod configuration;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::{Map, Value};

use crate::field::{Error, ErrorList, Path};
use crate::object;

pub use check::{Violation, violations};
pub use configuration::{BadConfiguration, Configuration};

/// How much a standard forbids, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "privileged" => Self::Privileged,
            "baseline" => Self::Baseline,
            "restricted" => Self::Restricted,
            _ => return None,
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// The version of Kubernetes by whose rules is judged: the newest, or a minor one of the first major.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    Latest,
    Minor(u32),
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let plain = minor.bytes().all(|b| b.is_ascii_digit()) && (minor.len() == 1 || !minor.starts_with('0'));
        plain.then(|| minor.parse().ok())?.map(Self::Minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// One level in one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standard {
    pub level: Level,
    pub version: Version,
}

impl Standard {
    pub const PRIVILEGED: Self = Self {
        level: Level::Privileged,
        version: Version::Latest,
    };
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

/// What a namespace asks: of what is stored, what is audited, and what is warned of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    pub enforce: Standard,
    pub audit: Standard,
    pub warn: Standard,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            enforce: Standard::PRIVILEGED,
            audit: Standard::PRIVILEGED,
            warn: Standard::PRIVILEGED,
        }
    }
}

const PREFIX: &str = "pod-security.kubernetes.io/";

/// A label's level, and what is taken for one that is none.
enum OnError {
    Strictest,
    /// What only tells must not refuse.
    Privileged,
}

impl Policy {
    /// What the labels of a namespace say, over defaults. There is always a policy, also where labels are wrong.
    pub fn of(namespace: &Value, defaults: Self) -> (Self, ErrorList) {
        let empty = Map::new();
        let labels = object::map(namespace, &["metadata", "labels"]).unwrap_or(&empty);
        let (mut policy, mut errors) = (defaults, ErrorList::new());
        if labels.is_empty() {
            return (policy, errors);
        }
        let before = errors.len();
        let enforces = read_level(labels, "enforce", &mut policy.enforce, OnError::Strictest, &mut errors);
        let enforces = enforces && errors.len() == before;
        read_version(labels, "enforce-version", &mut policy.enforce, &mut errors);
        read_level(labels, "audit", &mut policy.audit, OnError::Privileged, &mut errors);
        read_version(labels, "audit-version", &mut policy.audit, &mut errors);
        let warns = read_level(labels, "warn", &mut policy.warn, OnError::Privileged, &mut errors);
        let versioned = read_version(labels, "warn-version", &mut policy.warn, &mut errors);
        // Whoever enforces more than is warned of wants to be told.
        if !warns && enforces && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !versioned {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// Whether nothing is asked at all.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn]
            .iter()
            .all(|standard| standard.level == Level::Privileged)
    }

    /// Whether two ask the same.
    fn is_like(&self, other: &Self) -> bool {
        let same = |a: Standard, b: Standard| a == b || (a.level, b.level) == (Level::Privileged, Level::Privileged);
        same(self.enforce, other.enforce) && same(self.audit, other.audit) && same(self.warn, other.warn)
    }

    /// The warning for a namespace that is exempt and has labels which therefore mean nothing.
    pub fn ignored(&self, namespace: &Value, defaults: &Self) -> Option<String> {
        if self.is_privileged() || self.is_like(defaults) {
            return None;
        }
        let has = |label: &str| object::get(namespace, &["metadata", "labels", &format!("{PREFIX}{label}")]).is_some();
        let modes = [("enforce", self.enforce), ("audit", self.audit), ("warn", self.warn)];
        let told: Vec<String> = modes
            .into_iter()
            .filter(|(mode, standard)| {
                standard.level != Level::Privileged && (has(mode) || has(&format!("{mode}-version")))
            })
            .map(|(mode, standard)| format!("{mode}={standard}"))
            .collect();
        Some(format!(
            "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
            crate::field::quote(object::name(namespace)),
            told.join(", ")
        ))
    }
}

fn error(label: &str, value: &str, why: &str) -> Error {
    let path = Path::new("metadata").child("labels").key(&format!("{PREFIX}{label}"));
    Error::invalid(&path, value, why)
}

/// Whether the label is there.
fn read_level(
    labels: &Map<String, Value>,
    label: &str,
    standard: &mut Standard,
    on_error: OnError,
    errors: &mut ErrorList,
) -> bool {
    let Some(text) = labels.get(&format!("{PREFIX}{label}")).and_then(Value::as_str) else {
        return false;
    };
    standard.level = Level::parse(text).unwrap_or_else(|| {
        errors.push(error(label, text, "must be one of privileged, baseline, restricted"));
        match on_error {
            OnError::Strictest => Level::Restricted,
            OnError::Privileged => Level::Privileged,
        }
    });
    true
}

fn read_version(labels: &Map<String, Value>, label: &str, standard: &mut Standard, errors: &mut ErrorList) -> bool {
    let Some(text) = labels.get(&format!("{PREFIX}{label}")).and_then(Value::as_str) else {
        return false;
    };
    standard.version = Version::parse(text).unwrap_or_else(|| {
        errors.push(error(label, text, "must be \"latest\" or \"v1.x\""));
        Version::Latest
    });
    true
}

/// Metadata and spec of the pods that an object makes, if it is of a kind that makes some.
pub fn template<'a>(group: &str, plural: &str, of: &'a Value) -> Option<(&'a Value, &'a Value)> {
    let below: &[&str] = match (group, plural) {
        ("", "pods") => &[],
        ("", "podtemplates") => &["template"],
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => &["spec", "template"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template"],
        _ => return None,
    };
    let template = match below {
        [] => of,
        below => object::get(of, below).filter(|template| template.is_object())?,
    };
    Some((&template["metadata"], &template["spec"]))
}

/// Whether an update of a pod changes what is judged: of what can change, that is images.
pub fn is_significant(new: &Value, old: &Value) -> bool {
    let of = |pod: &Value, list: &str| object::list(pod, &["spec", list]).to_vec();
    for list in ["containers", "initContainers"] {
        let (new, old) = (of(new, list), of(old, list));
        if new.len() != old.len() || new.iter().zip(&old).any(|(new, old)| new["image"] != old["image"]) {
            return true;
        }
    }
    let before = of(old, "ephemeralContainers");
    of(new, "ephemeralContainers").iter().any(|container| {
        let same = before.iter().find(|old| old["name"] == container["name"]);
        same.is_none_or(|old| old["image"] != container["image"])
    })
}

/// What is wrong with a pod, in short: for many pods.
pub fn reasons(violations: &[Violation]) -> String {
    let reasons: Vec<&str> = violations.iter().map(|violation| violation.reason.as_str()).collect();
    reasons.join(", ")
}

/// What is wrong with a pod, with details.
pub fn details(violations: &[Violation]) -> String {
    let shown: Vec<String> = violations
        .iter()
        .map(|violation| format!("{} ({})", violation.reason, violation.detail))
        .collect();
    shown.join(", ")
}
