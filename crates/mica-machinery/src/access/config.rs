//! `AuthorizationConfiguration` (`apiserver.config.k8s.io`): who decides, in which order, and how webhooks are asked.
//!
//! Read strictly, with upstream's defaults, checks and texts. One field is ours: `webhook.scope`, which says of which planes
//! and identities a webhook is asked.

use std::time::Duration;

use serde_json::Value;

use super::Conditions;
use crate::admission::ReviewVersion;
use crate::cel::admission::Refusal;
use crate::field::{Error, ErrorList, Path, aggregate, quote};
use crate::{duration, names, object, yaml};

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const KIND: &str = "AuthorizationConfiguration";
/// Every type that upstream has.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const MAX_CONDITIONS: usize = 64;
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
const AUTHORIZED_TTL: Duration = Duration::from_secs(300);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct BadConfiguration(String);

/// One authorizer of the chain.
#[derive(Debug)]
pub struct Configured {
    pub name: String,
    pub kind: AuthorizerKind,
}

#[derive(Debug)]
pub enum AuthorizerKind {
    Rbac,
    AlwaysAllow,
    AlwaysDeny,
    /// What kubelets may do: nothing here knows, so it has no opinion.
    Node,
    Webhook(Box<WebhookSettings>),
}

impl AuthorizerKind {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Rbac => "RBAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Node => "Node",
            Self::Webhook(_) => "Webhook",
        }
    }
}

#[derive(Debug)]
pub struct WebhookSettings {
    /// How long answers are believed; zero for not at all.
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    pub timeout: Duration,
    pub version: ReviewVersion,
    pub failure_policy: FailurePolicy,
    pub connection: Connection,
    pub conditions: Conditions,
    pub planes: Planes,
    pub identities: Identities,
}

/// The kubeconfig file that says where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection(pub String);

/// What a webhook that fails has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    NoOpinion,
    Deny,
}

/// Of which planes' requests a webhook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planes {
    #[default]
    All,
    /// Root's only.
    Root,
    /// All but root's.
    Others,
}

/// Of whose requests a webhook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Identities {
    /// Those whom the platform knows. A tenant chooses the names of its plane's own.
    #[default]
    Platform,
    /// Those of planes as well.
    All,
}

/// What flags say of a webhook.
#[derive(Debug, Clone)]
pub struct LegacyWebhook {
    pub config_file: String,
    pub version: String,
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
}

impl Default for LegacyWebhook {
    fn default() -> Self {
        Self {
            config_file: String::new(),
            version: "v1beta1".to_owned(),
            authorized_ttl: AUTHORIZED_TTL,
            unauthorized_ttl: UNAUTHORIZED_TTL,
        }
    }
}

/// The chain that flags ask for.
pub fn from_modes(modes: &[&str], webhook: &LegacyWebhook) -> Result<Vec<Configured>, BadConfiguration> {
    let mut problems = Vec::new();
    for mode in modes {
        match *mode {
            mode if !TYPES.contains(&mode) => {
                problems.push(format!("authorization-mode {} is not a valid mode", quote(mode)));
            }
            "ABAC" => problems.push(no_abac()),
            "Webhook" if webhook.config_file.is_empty() => {
                problems.push("authorization-mode Webhook's authorization config file not passed".to_owned());
            }
            _ => {}
        }
    }
    if !webhook.config_file.is_empty() && !modes.contains(&"Webhook") {
        problems.push("cannot specify --authorization-webhook-config-file without mode Webhook".to_owned());
    }
    if (1..modes.len()).any(|i| modes[..i].contains(&modes[i])) {
        let quoted: Vec<String> = modes.iter().map(|mode| quote(mode)).collect();
        problems.push(format!(
            "authorization-mode [{}] has mode specified more than once",
            quoted.join(" ")
        ));
    }
    let version = review_version(&webhook.version);
    if version.is_none() {
        problems.push(format!(
            "unsupported webhook authorizer version {}, supported versions are \"v1\", \"v1beta1\"",
            quote(&webhook.version)
        ));
    }
    if let Some(all) = several(&problems) {
        return Err(BadConfiguration(all));
    }
    let configured = modes.iter().map(|mode| Configured {
        name: mode.to_ascii_lowercase(),
        kind: match *mode {
            "Webhook" => AuthorizerKind::Webhook(Box::new(WebhookSettings {
                authorized_ttl: webhook.authorized_ttl,
                unauthorized_ttl: webhook.unauthorized_ttl,
                timeout: MAX_TIMEOUT,
                version: version.expect("it was checked"),
                failure_policy: FailurePolicy::NoOpinion,
                connection: Connection(webhook.config_file.clone()),
                conditions: Conditions::default(),
                planes: Planes::default(),
                identities: Identities::default(),
            })),
            mode => plain(mode),
        },
    });
    let mut configured: Vec<Configured> = configured.collect();
    // Upstream's name for the one that flags describe.
    for one in &mut configured {
        if one.name == "webhook" {
            "default".clone_into(&mut one.name);
        }
    }
    Ok(configured)
}

fn plain(kind: &str) -> AuthorizerKind {
    match kind {
        "RBAC" => AuthorizerKind::Rbac,
        "AlwaysAllow" => AuthorizerKind::AlwaysAllow,
        "AlwaysDeny" => AuthorizerKind::AlwaysDeny,
        _ => AuthorizerKind::Node,
    }
}

fn review_version(text: &str) -> Option<ReviewVersion> {
    ReviewVersion::first_of(&[text.into()])
}

fn no_abac() -> String {
    "authorization mode ABAC is not supported: use RBAC, or a Webhook".to_owned()
}

/// Several problems in one text, as upstream puts them.
fn several(problems: &[String]) -> Option<String> {
    match problems {
        [] => None,
        [one] => Some(one.clone()),
        all => Some(format!("[{}]", all.join(", "))),
    }
}

/// Reads a configuration file. `check_file` says what is wrong with a file that it names.
pub fn read(text: &[u8], check_file: &dyn Fn(&str) -> Result<(), String>) -> Result<Vec<Configured>, BadConfiguration> {
    let failed = |why: String| BadConfiguration(format!("failed to load AuthorizationConfiguration from file: {why}"));
    let converted = yaml::to_json(text).map_err(|error| failed(error.to_string()))?;
    let file: Value = serde_json::from_slice(&converted.json).map_err(|error| failed(error.to_string()))?;
    check_shape(&file, converted.strict).map_err(failed)?;
    let mut errors = ErrorList::new();
    let authorizers = object::list(&file, &["authorizers"]);
    if authorizers.is_empty() {
        let detail = "at least one authorization mode must be defined";
        errors.push(Error::required(&Path::new("authorizers"), detail));
    }
    let (mut types, mut known, mut configured) = (Vec::new(), Vec::new(), Vec::new());
    for (i, authorizer) in authorizers.iter().enumerate() {
        let path = Path::new("authorizers").index(i);
        let kind = object::string(authorizer, &["type"]);
        if !check_type(kind, &path, &mut types, &mut errors) {
            continue;
        }
        let name = object::string(authorizer, &["name"]);
        check_name(name, &path, &mut known, &mut errors);
        let webhook = object::get(authorizer, &["webhook"]).filter(|webhook| !webhook.is_null());
        let kind = match (kind, webhook) {
            ("Webhook", None) => {
                errors.push(Error::required(&path.child("webhook"), "required when type=Webhook"));
                continue;
            }
            ("Webhook", Some(webhook)) => match read_webhook(webhook, &path, check_file, &mut errors) {
                Some(settings) => AuthorizerKind::Webhook(Box::new(settings)),
                None => continue,
            },
            (kind, webhook) => {
                if webhook.is_some() {
                    let detail = "may only be specified when type=Webhook";
                    errors.push(Error::invalid(&path.child("webhook"), "non-null", detail));
                }
                plain(kind)
            }
        };
        configured.push(Configured {
            name: name.to_owned(),
            kind,
        });
    }
    if !errors.is_empty() {
        return Err(BadConfiguration(aggregate(&errors)));
    }
    check_names(&configured)?;
    Ok(configured)
}

/// Those that are no webhooks have upstream's names. What is not there at all is said last.
fn check_names(configured: &[Configured]) -> Result<(), BadConfiguration> {
    let mut problems = Vec::new();
    for one in configured {
        let kind = one.kind.as_str();
        let expected = kind.to_ascii_lowercase();
        if kind != "Webhook" && one.name != expected {
            problems.push(format!(
                "expected name {expected} for authorizer {kind} instead of {}",
                one.name
            ));
        }
    }
    several(&problems).map_or(Ok(()), |all| Err(BadConfiguration(all)))
}

fn check_type<'a>(kind: &'a str, path: &Path, seen: &mut Vec<&'a str>, errors: &mut ErrorList) -> bool {
    let path = path.child("type");
    if kind.is_empty() {
        errors.push(Error::required(&path, ""));
    } else if !TYPES.contains(&kind) {
        errors.push(Error::not_supported(&path, kind, &TYPES));
    } else if kind != "Webhook" && seen.contains(&kind) {
        errors.push(Error::duplicate(&path, kind));
    } else if kind == "ABAC" {
        errors.push(Error::invalid(&path, kind, no_abac()));
    } else {
        seen.push(kind);
        return true;
    }
    false
}

fn check_name<'a>(name: &'a str, path: &Path, seen: &mut Vec<&'a str>, errors: &mut ErrorList) {
    let path = path.child("name");
    let problems = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.push(Error::required(&path, ""));
    } else if seen.contains(&name) {
        errors.push(Error::duplicate(&path, name));
    } else if !problems.is_empty() {
        let detail = format!("authorizer name is invalid: {}", problems.join(", "));
        errors.push(Error::invalid(&path, name, detail));
    }
    seen.push(name);
}

fn read_webhook(
    webhook: &Value,
    path: &Path,
    check_file: &dyn Fn(&str) -> Result<(), String>,
    errors: &mut ErrorList,
) -> Option<WebhookSettings> {
    let before = errors.len();
    let timeout = time(webhook, "timeout", None, path, errors);
    if timeout > MAX_TIMEOUT {
        let shown = object::string(webhook, &["timeout"]);
        errors.push(Error::invalid(&path.child("timeout"), shown, "must be > 0s and <= 30s"));
    }
    let authorized_ttl = time(webhook, "authorizedTTL", Some(AUTHORIZED_TTL), path, errors);
    let unauthorized_ttl = time(webhook, "unauthorizedTTL", Some(UNAUTHORIZED_TTL), path, errors);
    let cached = |field: &str, ttl: Duration| match object::get(webhook, &[field]) {
        Some(Value::Bool(false)) => Duration::ZERO,
        _ => ttl,
    };
    let field = "subjectAccessReviewVersion";
    let version = chosen(webhook, field, &["v1", "v1beta1"], path, errors);
    let conditions = object::list(webhook, &["matchConditions"]);
    check_condition_version(webhook, conditions, path, errors);
    let policy = chosen(webhook, "failurePolicy", &["NoOpinion", "Deny"], path, errors);
    let connection = connection(webhook, path, check_file, errors);
    let conditions = read_conditions(conditions, path, errors);
    let planes = scoped(webhook, "planes", &["All", "Root", "Others"], path, errors);
    let identities = scoped(webhook, "identities", &["Platform", "All"], path, errors);
    (errors.len() == before).then(|| WebhookSettings {
        authorized_ttl: cached("cacheAuthorizedRequests", authorized_ttl),
        unauthorized_ttl: cached("cacheUnauthorizedRequests", unauthorized_ttl),
        timeout,
        version: review_version(version).expect("it was checked"),
        failure_policy: match policy {
            "Deny" => FailurePolicy::Deny,
            _ => FailurePolicy::NoOpinion,
        },
        connection,
        conditions,
        planes: match planes {
            "Root" => Planes::Root,
            "Others" => Planes::Others,
            _ => Planes::All,
        },
        identities: match identities {
            "All" => Identities::All,
            _ => Identities::Platform,
        },
    })
}

/// A duration that must be more than nothing.
fn time(webhook: &Value, field: &str, default: Option<Duration>, path: &Path, errors: &mut ErrorList) -> Duration {
    let text = object::string(webhook, &[field]);
    if let ("", Some(default)) = (text, default) {
        return default;
    }
    let path = path.child(field);
    let range = if default.is_none() {
        "must be > 0s and <= 30s"
    } else {
        "must be > 0s"
    };
    match duration::parse_go(text) {
        _ if text.is_empty() => errors.push(Error::required(&path, "")),
        Ok(0) => errors.push(Error::required(&path, "")),
        Ok(nanos) => match u64::try_from(nanos) {
            Ok(nanos) => return Duration::from_nanos(nanos),
            Err(_) => errors.push(Error::invalid(&path, duration::format_go(nanos), range)),
        },
        Err(error) => errors.push(Error::invalid(&path, text, error.to_string())),
    }
    Duration::ZERO
}

/// One of several texts, which must be given.
fn chosen<'a>(webhook: &'a Value, field: &str, all: &[&str], path: &Path, errors: &mut ErrorList) -> &'a str {
    let text = object::string(webhook, &[field]);
    if text.is_empty() {
        errors.push(Error::required(&path.child(field), ""));
    } else if !all.contains(&text) {
        errors.push(Error::not_supported(&path.child(field), text, all));
    }
    text
}

/// One of several texts of our own field, of which the first is meant if none is given.
fn scoped<'a>(webhook: &'a Value, field: &str, all: &[&str], path: &Path, errors: &mut ErrorList) -> &'a str {
    let text = object::string(webhook, &["scope", field]);
    if !text.is_empty() && !all.contains(&text) {
        errors.push(Error::not_supported(&path.child("scope").child(field), text, all));
    }
    text
}

fn check_condition_version(webhook: &Value, conditions: &[Value], path: &Path, errors: &mut ErrorList) {
    let field = "matchConditionSubjectAccessReviewVersion";
    match object::string(webhook, &[field]) {
        "" if !conditions.is_empty() => {
            let detail = "required if match conditions are specified";
            errors.push(Error::required(&path.child(field), detail));
        }
        "" | "v1" => {}
        other => errors.push(Error::not_supported(&path.child(field), other, &["v1"])),
    }
}

fn connection(
    webhook: &Value,
    path: &Path,
    check_file: &dyn Fn(&str) -> Result<(), String>,
    errors: &mut ErrorList,
) -> Connection {
    const KINDS: [&str; 2] = ["InClusterConfig", "KubeConfigFile"];
    let path = path.child("connectionInfo");
    let file = object::string(webhook, &["connectionInfo", "kubeConfigFile"]);
    let at = path.child("kubeConfigFile");
    match object::string(webhook, &["connectionInfo", "type"]) {
        "" => errors.push(Error::required(&path.child("type"), "")),
        "KubeConfigFile" if file.is_empty() => errors.push(Error::required(&at, "")),
        "KubeConfigFile" if !file.starts_with('/') => {
            errors.push(Error::invalid(&at, file, "must be an absolute path"));
        }
        "KubeConfigFile" => {
            if let Err(problem) = check_file(file) {
                errors.push(Error::invalid(&at, file, problem));
            }
        }
        "InClusterConfig" => {
            let detail = "InClusterConfig is not supported: use KubeConfigFile";
            errors.push(Error::invalid(&path.child("type"), "InClusterConfig", detail));
        }
        other => errors.push(Error::not_supported(&path.child("type"), other, &KINDS)),
    }
    Connection(file.to_owned())
}

fn read_conditions(all: &[Value], path: &Path, errors: &mut ErrorList) -> Conditions {
    let path = path.child("matchConditions");
    let mut conditions = Conditions::default();
    if all.len() > MAX_CONDITIONS {
        errors.push(Error::too_many(&path, all.len(), MAX_CONDITIONS));
        return conditions;
    }
    let mut seen = Vec::new();
    for (i, condition) in all.iter().enumerate() {
        let path = path.index(i).child("expression");
        let source = object::string(condition, &["expression"]);
        if source.trim().is_empty() {
            errors.push(Error::required(&path, ""));
        } else if seen.contains(&source) {
            errors.push(Error::duplicate(&path, source));
        } else {
            seen.push(source);
            match conditions.add(source) {
                Ok(()) => {}
                Err(refusal @ Refusal::Instantiation(_)) => errors.push(Error::internal(&path, refusal.to_string())),
                Err(refusal) => errors.push(Error::invalid(&path, source, refusal.to_string())),
            }
        }
    }
    conditions
}

/// What each part of the file may hold; lists have their elements' parts under `[]`.
const SHAPE: &[(&str, &[&str])] = &[
    ("", &["apiVersion", "kind", "authorizers"]),
    ("authorizers[]", &["type", "name", "webhook"]),
    (
        "authorizers[].webhook",
        &[
            "authorizedTTL",
            "cacheAuthorizedRequests",
            "unauthorizedTTL",
            "cacheUnauthorizedRequests",
            "timeout",
            "subjectAccessReviewVersion",
            "matchConditionSubjectAccessReviewVersion",
            "failurePolicy",
            "connectionInfo",
            "matchConditions",
            "scope",
        ],
    ),
    ("authorizers[].webhook.connectionInfo", &["type", "kubeConfigFile"]),
    ("authorizers[].webhook.matchConditions[]", &["expression"]),
    ("authorizers[].webhook.scope", &["planes", "identities"]),
];

fn check_shape(file: &Value, duplicates: Option<String>) -> Result<(), String> {
    let (api_version, kind) = (object::string(file, &["apiVersion"]), object::string(file, &["kind"]));
    let version = api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    if kind.is_empty() {
        return Err("Object 'Kind' is missing".to_owned());
    }
    if kind != KIND || !version.is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(format!(
            "no kind {} is registered for version {}",
            quote(kind),
            quote(api_version)
        ));
    }
    let mut unknown: Vec<String> = duplicates.into_iter().collect();
    find_unknown(file, "", "", &mut unknown);
    match &unknown[..] {
        [] => Ok(()),
        all => Err(format!("strict decoding error: {}", all.join(", "))),
    }
}

fn find_unknown(value: &Value, place: &str, shown: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                find_unknown(item, &format!("{place}[]"), &format!("{shown}[{i}]"), unknown);
            }
        }
        Value::Object(fields) => {
            let known = SHAPE
                .iter()
                .find(|(one, _)| *one == place)
                .map_or(&[][..], |(_, all)| all);
            for (field, below) in fields {
                let dot = if place.is_empty() { "" } else { "." };
                let at = format!("{shown}{dot}{field}");
                if known.contains(&field.as_str()) {
                    find_unknown(below, &format!("{place}{dot}{field}"), &at, unknown);
                } else {
                    unknown.push(format!("unknown field {}", quote(&at)));
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
