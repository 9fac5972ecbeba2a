//! `EncryptionConfiguration`: what is hidden how, read and checked as upstream does (`apis/apiserver/validation`).
//!
//! One provider is ours: `planes`, whose keys hide a key of each plane.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_machinery::field::{Error, ErrorList, Path, aggregate};
use mica_machinery::yaml;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cipher::Cipher;

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
const AES_SIZES: &[usize] = &[16, 24, 32];
const BOX_SIZES: &[usize] = &[32];
const NO_PROVIDER: &str =
    "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";

/// Why a configuration cannot be used. Holds no key.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadConfiguration(String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default, deserialize_with = "list")]
    resources: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default, deserialize_with = "list")]
    resources: Vec<String>,
    #[serde(default, deserialize_with = "list")]
    providers: Vec<Provider>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Provider {
    aesgcm: Option<Keys>,
    aescbc: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<Nothing>,
    kms: Option<Value>,
    planes: Option<Keys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    #[serde(deserialize_with = "list")]
    keys: Vec<Key>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Key {
    name: String,
    secret: String,
}

/// A list, which may be written as nothing.
fn list<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Option::<Vec<T>>::deserialize(from).map(Option::unwrap_or_default)
}

/// How the values of some resources are hidden: the first way writes, all read.
#[derive(Debug)]
pub struct Ways(pub Vec<Way>);

/// One provider.
#[derive(Debug)]
pub enum Way {
    /// Not at all.
    Plain,
    /// With keys of the configuration, by name; the first one writes.
    Keys {
        prefix: &'static str,
        keys: Vec<(String, Cipher)>,
        /// What is said where a value's key is not among them.
        missing: &'static str,
    },
    /// With a key of each plane, which is hidden with these.
    Planes(Vec<(String, Cipher)>),
}

/// What is hidden how, by `group/resource` as keys have it.
#[derive(Debug, Default)]
pub struct Table {
    ways: Vec<Ways>,
    resources: BTreeMap<String, usize>,
    groups: BTreeMap<String, usize>,
    everything: Option<usize>,
}

impl Table {
    pub fn read(file: &FilePath) -> Result<(Self, Vec<u8>), BadConfiguration> {
        let named = |error: &dyn std::fmt::Display| {
            BadConfiguration(format!(
                "error reading encryption provider configuration file {:?}: {error}",
                file.display()
            ))
        };
        let text = std::fs::read(file).map_err(|error| named(&error))?;
        if text.is_empty() {
            return Err(BadConfiguration(format!(
                "encryption provider configuration file {:?} is empty",
                file.display()
            )));
        }
        Ok((Self::parse(&text)?, text))
    }

    pub fn parse(text: &[u8]) -> Result<Self, BadConfiguration> {
        let bad = |error: &dyn std::fmt::Display| {
            BadConfiguration(format!("error decoding encryption provider configuration: {error}"))
        };
        let converted = yaml::to_json(text).map_err(|error| bad(&error))?;
        if let Some(strict) = converted.strict {
            return Err(bad(&strict));
        }
        // What is wrong is named without what is there: it may be a key.
        let value: Value = serde_json::from_slice(&converted.json).map_err(|_| bad(&"it is no JSON"))?;
        let file: File = serde_json::from_value(value).map_err(|error| bad(&without_values(&error.to_string())))?;
        if (file.api_version.as_str(), file.kind.as_str()) != (API_VERSION, KIND) {
            return Err(bad(&format!(
                "no kind {:?} is registered for version {:?}",
                file.kind, file.api_version
            )));
        }
        let errors = validate(&file);
        if !errors.is_empty() {
            return Err(BadConfiguration(aggregate(&errors)));
        }
        Self::build(file)
    }

    fn build(file: File) -> Result<Self, BadConfiguration> {
        let mut table = Self::default();
        // Rules for one resource add up, as upstream: the providers of later ones read, too.
        for rule in &file.resources {
            for name in &rule.resources {
                let (resource, group) = split(name);
                let masked = |by: &str| {
                    let text = format!("resource {name:?} is masked by earlier rule {by:?}");
                    Err(BadConfiguration(text))
                };
                if table.groups.contains_key(group) {
                    return masked(&format!("*.{group}"));
                }
                if table.everything.is_some() {
                    return masked("*.*");
                }
                let place = match (resource, group) {
                    ("*", "*") => table.everything,
                    ("*", group) => table.groups.get(group).copied(),
                    _ => table.resources.get(&format!("{group}/{resource}")).copied(),
                };
                let at = place.unwrap_or_else(|| {
                    table.ways.push(Ways(Vec::new()));
                    table.ways.len() - 1
                });
                table.ways[at].0.extend(rule.providers.iter().filter_map(Provider::way));
                match (resource, group) {
                    ("*", "*") => table.everything = Some(at),
                    ("*", group) => {
                        table.groups.insert(group.to_owned(), at);
                    }
                    _ => {
                        table.resources.insert(format!("{group}/{resource}"), at);
                    }
                }
            }
        }
        Ok(table)
    }

    /// How the values of a `group/resource` are hidden, if the configuration says anything of it.
    pub fn of(&self, resource: &str) -> Option<&Ways> {
        let by_group = || {
            let (group, _) = resource.split_once('/').unwrap_or_default();
            self.groups.get(group)
        };
        let at = self.resources.get(resource).or_else(by_group);
        at.copied().or(self.everything).map(|at| &self.ways[at])
    }

    pub fn ways(&self) -> impl Iterator<Item = &Ways> {
        self.ways.iter()
    }

    /// The keys that hide a plane's snapshots: those of the first way that hides anything.
    pub fn for_export(&self) -> Option<(&str, &Cipher)> {
        let keys = self.ways.iter().flat_map(|ways| &ways.0).filter_map(|way| match way {
            Way::Keys { keys, .. } | Way::Planes(keys) => keys.first(),
            Way::Plain => None,
        });
        keys.map(|(name, cipher)| (name.as_str(), cipher)).next()
    }

    /// Every key of a name.
    pub fn keys_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Cipher> {
        let keys = self.ways.iter().flat_map(|ways| &ways.0).flat_map(|way| match way {
            Way::Keys { keys, .. } | Way::Planes(keys) => keys.as_slice(),
            Way::Plain => &[],
        });
        keys.filter(move |(known, _)| known == name).map(|(_, cipher)| cipher)
    }
}

impl Provider {
    fn way(&self) -> Option<Way> {
        const NO_AES: &str = "no matching key was found for the provided AES transformer";
        const NO_BOX: &str = "no matching key was found for the provided Secretbox transformer";
        let made = |keys: &Keys, make: fn(&[u8]) -> Option<Cipher>| -> Option<Vec<(String, Cipher)>> {
            let one = |key: &Key| Some((key.name.clone(), make(&STANDARD.decode(&key.secret).ok()?)?));
            keys.keys.iter().map(one).collect()
        };
        let keys = |keys, make, prefix, missing| made(keys, make).map(|keys| Way::Keys { prefix, keys, missing });
        match self {
            Self { aesgcm: Some(k), .. } => keys(k, Cipher::gcm, "k8s:enc:aesgcm:v1:", NO_AES),
            Self { aescbc: Some(k), .. } => keys(k, Cipher::cbc, "k8s:enc:aescbc:v1:", NO_AES),
            Self { secretbox: Some(k), .. } => keys(k, Cipher::secretbox, "k8s:enc:secretbox:v1:", NO_BOX),
            Self { planes: Some(k), .. } => made(k, Cipher::gcm).map(Way::Planes),
            _ => Some(Way::Plain),
        }
    }
}

/// `resource.group` as upstream reads it.
fn split(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

/// serde quotes what it did not expect; that may be a secret.
fn without_values(text: &str) -> String {
    match text.split_once(": ") {
        Some((what, rest)) if what.starts_with("invalid") => {
            let expected = rest.rsplit_once(", expected").map_or("", |(_, expected)| expected);
            format!("{what}, expected{expected}")
        }
        _ => text.to_owned(),
    }
}

fn validate(file: &File) -> ErrorList {
    let root = Path::new("resources");
    let mut errors = ErrorList::new();
    let at_least = |what: &dyn std::fmt::Display| format!("at least one {what} is required");
    if file.resources.is_empty() {
        errors.push(Error::required(&root, at_least(&root)));
    }
    for (i, rule) in file.resources.iter().enumerate() {
        let resources = root.index(i).child("resources");
        let providers = root.index(i).child("providers");
        if rule.resources.is_empty() {
            errors.push(Error::required(&resources, at_least(&resources)));
        }
        validate_overlap(&rule.resources, &resources, &mut errors);
        for (j, name) in rule.resources.iter().enumerate() {
            if let Some(why) = name_error(name) {
                errors.push(Error::invalid(&resources.index(j), name.as_str(), why));
            }
        }
        if rule.providers.is_empty() {
            errors.push(Error::required(&providers, at_least(&providers)));
        }
        for (j, provider) in rule.providers.iter().enumerate() {
            validate_provider(provider, &providers.index(j), &mut errors);
        }
    }
    errors
}

fn validate_provider(provider: &Provider, path: &Path, errors: &mut ErrorList) {
    let lists = [
        ("aesgcm", &provider.aesgcm, AES_SIZES),
        ("aescbc", &provider.aescbc, AES_SIZES),
        ("secretbox", &provider.secretbox, BOX_SIZES),
        ("planes", &provider.planes, BOX_SIZES),
    ];
    let plain = usize::from(provider.identity.is_some()) + usize::from(provider.kms.is_some());
    let found = plain + lists.iter().filter(|(_, keys, _)| keys.is_some()).count();
    let shown = json!("REDACTED");
    match found {
        0 => return errors.push(Error::invalid(path, shown, NO_PROVIDER)),
        1 => {}
        _ => {
            let why = "more than one provider specified in a single element, should split into different list elements";
            return errors.push(Error::invalid(path, shown, why));
        }
    }
    if provider.kms.is_some() {
        errors.push(Error::forbidden(&path.child("kms"), "this server calls no KMS plugins"));
    }
    for (name, keys, sizes) in lists {
        let Some(keys) = keys else { continue };
        let path = path.child(name).child("keys");
        if keys.keys.is_empty() {
            errors.push(Error::required(&path, "at least one keys is required"));
        }
        for (i, key) in keys.keys.iter().enumerate() {
            validate_key(key, &path.index(i), sizes, errors);
        }
    }
}

fn validate_key(key: &Key, path: &Path, sizes: &[usize], errors: &mut ErrorList) {
    if key.name.is_empty() {
        errors.push(Error::required(
            &path.child("name"),
            "name is a mandatory field for a key",
        ));
    }
    let secret = path.child("secret");
    if key.secret.is_empty() {
        return errors.push(Error::required(&secret, "secret is a mandatory field for a key"));
    }
    match STANDARD.decode(&key.secret) {
        Err(_) => errors.push(Error::invalid(&secret, "REDACTED", "secrets must be base64 encoded")),
        Ok(bytes) if !sizes.contains(&bytes.len()) => {
            let expected: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            let why = format!(
                "secret is not of the expected length, got {}, expected one of [{}]",
                bytes.len(),
                expected.join(" ")
            );
            errors.push(Error::invalid(&secret, "REDACTED", why));
        }
        Ok(_) => {}
    }
}

fn validate_overlap(names: &[String], path: &Path, errors: &mut ErrorList) {
    let (mut overlap, mut duplicate) = (false, false);
    let parsed: Vec<(&str, &str)> = names.iter().map(|name| split(name)).collect();
    for (i, one) in parsed.iter().enumerate() {
        for (j, other) in parsed.iter().enumerate() {
            if i == j {
                continue;
            }
            if one == other {
                duplicate = true;
            } else if *one == ("*", "*") || (one.1 == other.1 && (one.0 == "*" || other.0 == "*")) {
                overlap = true;
            }
        }
    }
    if duplicate {
        let why = "the same resource cannot be specified multiple times";
        errors.push(Error::invalid(path, json!(names), why));
    }
    if overlap {
        let why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
        errors.push(Error::invalid(path, json!(names), why));
    }
}

fn name_error(name: &str) -> Option<&'static str> {
    let (resource, group) = split(name);
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        Some("resource name should not contain capital letters")
    } else if name == "*" {
        Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
    } else if ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"].contains(&name) {
        Some("resources which do not have REST API/s cannot be encrypted")
    } else if group == "events.k8s.io" {
        Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        )
    } else if group == "extensions" {
        Some("'extensions' group has been removed and cannot be used for encryption")
    } else if group == "*" && resource != "*" {
        Some("encrypting the same resource across groups is not supported")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=";

    fn file(rules: &str) -> String {
        format!("apiVersion: {API_VERSION}\nkind: {KIND}\nresources:\n{rules}")
    }

    fn refused(rules: &str) -> String {
        let Err(error) = Table::parse(file(rules).as_bytes()) else {
            panic!("{rules} is taken");
        };
        let error = error.to_string();
        assert!(!error.contains(KEY), "{error}");
        error
    }

    #[test]
    fn a_resource_is_found_by_name_then_by_group_then_at_all() {
        let text = file(&format!(
            "- resources: [events]\n  providers: [{{identity: {{}}}}]\n\
             - resources: [secrets, pandas.awesome.bears.example]\n  providers: [{{aesgcm: {{keys: [{{name: a, secret: {KEY}}}]}}}}, {{identity: {{}}}}]\n\
             - resources: ['*.apps']\n  providers: [{{secretbox: {{keys: [{{name: b, secret: {KEY}}}]}}}}]\n\
             - resources: ['*.*']\n  providers: [{{planes: {{keys: [{{name: c, secret: {KEY}}}]}}}}]\n"
        ));
        let table = Table::parse(text.as_bytes()).unwrap();
        let first = |resource: &str| match table.of(resource).map(|ways| &ways.0[0]) {
            Some(Way::Plain) => "plain",
            Some(Way::Keys { prefix, .. }) => prefix,
            Some(Way::Planes(_)) => "planes",
            None => "none",
        };
        assert_eq!(first("/events"), "plain");
        assert_eq!(first("/secrets"), "k8s:enc:aesgcm:v1:");
        assert_eq!(first("awesome.bears.example/pandas"), "k8s:enc:aesgcm:v1:");
        assert_eq!(first("apps/deployments"), "k8s:enc:secretbox:v1:");
        assert_eq!(first("/configmaps"), "planes");
        assert!(!format!("{table:?}").contains("1234567890"));
        let one = file("- resources: [secrets]\n  providers: [{identity: {}}]\n");
        assert!(Table::parse(one.as_bytes()).unwrap().of("/configmaps").is_none());
    }

    #[test]
    fn what_is_wrong_is_said_in_upstreams_words_and_without_keys() {
        let provider = format!("{{aescbc: {{keys: [{{name: a, secret: {KEY}}}]}}}}");
        let rule = |resources: &str| format!("- resources: {resources}\n  providers: [{provider}]\n");
        for (rules, words) in [
            ("", "resources: Required value: at least one resources is required"),
            (
                "- resources: [secrets]\n",
                "resources[0].providers: Required value: at least one resources[0].providers is required",
            ),
            (
                "- providers: [{identity: {}}]\n",
                "resources[0].resources: Required value: at least one resources[0].resources is required",
            ),
            (
                "- resources: [secrets]\n  providers: [{identity: {}, secretbox: {}}]\n",
                "more than one provider specified in a single element",
            ),
            (
                "- resources: [secrets]\n  providers: [{}]\n",
                "provider does not contain any of the expected providers",
            ),
            (
                "- resources: [secrets]\n  providers: [{aesgcm: {keys: [{name: a, secret: YQ==}]}}]\n",
                "resources[0].providers[0].aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 1, expected one of [16 24 32]",
            ),
            (
                "- resources: [secrets]\n  providers: [{aesgcm: {keys: [{name: a, secret: '?'}]}}]\n",
                "secrets must be base64 encoded",
            ),
            (
                &rule("['*']"),
                "use '*.' to encrypt all the resources from core API group",
            ),
            (&rule("[Secrets]"), "resource name should not contain capital letters"),
            (
                &rule("[secrets, '*.']"),
                "using overlapping resources such as 'secrets' and '*.'",
            ),
            (
                &rule("[secrets, secrets]"),
                "the same resource cannot be specified multiple times",
            ),
            (
                &rule("['secrets.*']"),
                "encrypting the same resource across groups is not supported",
            ),
            (
                &format!("{}{}", rule("['*.*']"), rule("[secrets]")),
                "resource \"secrets\" is masked by earlier rule \"*.*\"",
            ),
            (
                "- resources: [secrets]\n  providers: [{kms: {name: x}}]\n",
                "kms: Forbidden: this server calls no KMS plugins",
            ),
        ] {
            let said = refused(rules);
            assert!(said.contains(words), "{rules}: {said}");
        }
        let wrong = format!("- resources: [secrets]\n  providers: [{{aesgcm: {{keys: {KEY}}}}}]\n");
        assert!(refused(&wrong).contains("invalid type"));
        let twice = "kind: EncryptionConfiguration\nkind: EncryptionConfiguration\n";
        assert!(Table::parse(twice.as_bytes()).is_err());
        let other = Table::parse(b"apiVersion: v1\nkind: Secret\n")
            .err()
            .unwrap()
            .to_string();
        assert!(
            other.contains("no kind \"Secret\" is registered for version \"v1\""),
            "{other}"
        );
    }
}
