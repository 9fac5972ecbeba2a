//! `PodSecurityConfiguration` (`pod-security.admission.config.k8s.io`): defaults for namespaces without labels, and who is
//! exempt. It stands in an `AdmissionConfiguration`, itself or as a file that this names.

use serde_json::Value;

use super::{Level, Policy, Standard, Version};
use crate::field::{Error, ErrorList, Path, aggregate, quote};
use crate::{names, object, yaml};

const KIND: &str = "PodSecurityConfiguration";
const GROUP: &str = "pod-security.admission.config.k8s.io/";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct BadConfiguration(pub String);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    pub defaults: Policy,
    pub namespaces: Vec<String>,
    pub users: Vec<String>,
    pub runtime_classes: Vec<String>,
}

impl Configuration {
    /// The configuration of this plugin in an `AdmissionConfiguration`; `read` gets a file that it names.
    pub fn of_admission(text: &[u8], read: &dyn Fn(&str) -> Result<Vec<u8>, String>) -> Result<Self, BadConfiguration> {
        let file = decode(text)
            .map_err(|why| BadConfiguration(format!("unable to read admission control configuration: {why}")))?;
        let kind = object::string(&file, &["kind"]);
        let group = object::string(&file, &["apiVersion"]);
        if kind != "AdmissionConfiguration" || !group.starts_with("apiserver.config.k8s.io/") {
            return Err(BadConfiguration(format!(
                "no kind {} is registered for version {}",
                quote(kind),
                quote(group)
            )));
        }
        let plugins = object::list(&file, &["plugins"]).iter();
        let Some(plugin) = plugins.into_iter().find(|plugin| plugin["name"] == "PodSecurity") else {
            return Ok(Self::default());
        };
        if let Some(inside) = object::get(plugin, &["configuration"]).filter(|inside| inside.is_object()) {
            return Self::read(inside);
        }
        match object::string(plugin, &["path"]) {
            "" => Ok(Self::default()),
            path => {
                let text = read(path).map_err(BadConfiguration)?;
                Self::read(&decode(&text).map_err(BadConfiguration)?)
            }
        }
    }

    fn read(file: &Value) -> Result<Self, BadConfiguration> {
        let (kind, version) = (object::string(file, &["kind"]), object::string(file, &["apiVersion"]));
        let known = version
            .strip_prefix(GROUP)
            .is_some_and(|version| VERSIONS.contains(&version));
        if kind != KIND || !known {
            return Err(BadConfiguration(format!(
                "no kind {} is registered for version {}",
                quote(kind),
                quote(version)
            )));
        }
        let mut errors = ErrorList::new();
        let standard = |mode: &str, errors: &mut ErrorList| {
            let path = Path::new("defaults");
            let text = |field: &str, default: &'static str| match object::string(file, &["defaults", field]) {
                "" => default.to_owned(),
                text => text.to_owned(),
            };
            let level = text(mode, "privileged");
            let named = format!("{mode}-version");
            let version = text(&named, "latest");
            Standard {
                level: Level::parse(&level).unwrap_or_else(|| {
                    let why = "must be one of privileged, baseline, restricted";
                    errors.push(Error::invalid(&path.child(mode), level.as_str(), why));
                    Level::Restricted
                }),
                version: Version::parse(&version).unwrap_or_else(|| {
                    let why = "must be \"latest\" or \"v1.x\"";
                    errors.push(Error::invalid(&path.child(&named), version.as_str(), why));
                    Version::Latest
                }),
            }
        };
        let defaults = Policy {
            enforce: standard("enforce", &mut errors),
            audit: standard("audit", &mut errors),
            warn: standard("warn", &mut errors),
        };
        let configuration = Self {
            defaults,
            namespaces: exempt(file, "namespaces", &mut errors),
            users: exempt(file, "usernames", &mut errors),
            runtime_classes: exempt(file, "runtimeClasses", &mut errors),
        };
        if errors.is_empty() {
            Ok(configuration)
        } else {
            Err(BadConfiguration(aggregate(&errors)))
        }
    }
}

fn decode(text: &[u8]) -> Result<Value, String> {
    let converted = yaml::to_json(text).map_err(|error| error.to_string())?;
    serde_json::from_slice(&converted.json).map_err(|error| error.to_string())
}

fn exempt(file: &Value, field: &str, errors: &mut ErrorList) -> Vec<String> {
    let path = Path::new("exemptions").child(field);
    let all = object::list(file, &["exemptions", field])
        .iter()
        .filter_map(Value::as_str);
    let mut seen: Vec<String> = Vec::new();
    for (i, name) in all.enumerate() {
        let problems = match field {
            "namespaces" => names::dns1123_label(name),
            "runtimeClasses" => names::dns1123_subdomain(name),
            _ if name.is_empty() => vec!["username must not be empty".to_owned()],
            _ => Vec::new(),
        };
        if !problems.is_empty() {
            errors.push(Error::invalid(&path.index(i), name, problems.join(", ")));
        } else if seen.iter().any(|known| known == name) {
            errors.push(Error::duplicate(&path.index(i), name));
        }
        seen.push(name.to_owned());
    }
    seen
}
