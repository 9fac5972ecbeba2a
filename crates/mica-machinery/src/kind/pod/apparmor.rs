//! AppArmor profiles that annotations tell: once the only way, now copied into the field when a pod is made.
//!
//! Templates keep their annotations, and are warned of them: the pods that are made of them get the field.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::security::{containers, validate_app_armor};
use crate::field::{Error, ErrorList, Path, quote};
use crate::kind::check::{entries, list_mut, present};
use crate::object;

/// The annotation of a container begins with this and ends with its name.
pub const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCAL: &str = "localhost/";

/// The lists of containers, in the order in which upstream visits them.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Copies the profiles that annotations tell into the containers that have none.
pub fn copy_annotations(pod: &mut Value) {
    let copies: Vec<(&str, usize, Value)> = LISTS
        .into_iter()
        .flat_map(|list| {
            let all = object::list(pod, &["spec", list]).iter().enumerate();
            all.filter_map(|(i, container)| match told(pod, container)? {
                Told::New(profile) => Some((list, i, profile)),
                Told::Known | Told::Odd => None,
            })
            .collect::<Vec<_>>()
        })
        .collect();
    for (list, i, profile) in copies {
        if let Some(container) = list_mut(pod, &["spec", list]).get_mut(i) {
            object::set(container, &["securityContext", "appArmorProfile"], profile);
        }
    }
}

/// What is said of the annotations of a pod that has not got the fields yet.
pub fn copy_warnings(pod: &Value) -> Vec<String> {
    let path = Path::new("metadata").child("annotations");
    let all = LISTS.iter().flat_map(|list| object::list(pod, &["spec", list]));
    all.filter(|container| matches!(told(pod, container), Some(Told::New(_) | Told::Odd)))
        .map(|container| deprecated(&path, &key(container)))
        .collect()
}

/// What is said of the annotation of a template's container.
pub fn template_warning(template: &Value, container: &Value, path: &Path) -> Option<String> {
    if present(container, &["securityContext", "appArmorProfile"]).is_some() {
        return None;
    }
    let key = key(container);
    let annotation = object::get(template, &["metadata", "annotations", &key])?.as_str()?;
    let of_pod = present(template, &["spec", "securityContext", "appArmorProfile"]);
    let same = of_pod.is_some_and(|of_pod| parse(annotation).is_some_and(|told| is_same(of_pod, &told)));
    (!same).then(|| deprecated(path, &key))
}

fn deprecated(path: &Path, key: &str) -> String {
    format!(
        r#"{}: deprecated since v1.30; use the "appArmorProfile" field instead"#,
        path.key(key)
    )
}

/// What the annotation of a container without a profile comes to.
enum Told {
    /// This profile.
    New(Value),
    /// The one that the whole pod has.
    Known,
    /// None that could be one.
    Odd,
}

fn told(pod: &Value, container: &Value) -> Option<Told> {
    if object::string(pod, &["spec", "os", "name"]) == "windows"
        || present(container, &["securityContext", "appArmorProfile"]).is_some()
    {
        return None;
    }
    let annotation = object::get(pod, &["metadata", "annotations", &key(container)])?.as_str()?;
    let profile = parse(annotation).filter(|profile| {
        let mut errors = ErrorList::new();
        validate_app_armor(&json!({"appArmorProfile": profile}), &Path::default(), &mut errors);
        errors.is_empty()
    });
    let of_pod = present(pod, &["spec", "securityContext", "appArmorProfile"]);
    Some(match profile {
        None => Told::Odd,
        Some(profile) if of_pod.is_some_and(|of_pod| is_same(of_pod, &profile)) => Told::Known,
        Some(profile) => Told::New(profile),
    })
}

fn key(container: &Value) -> String {
    format!("{PREFIX}{}", object::string(container, &["name"]))
}

fn parse(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let local = annotation.strip_prefix(LOCAL).filter(|local| !local.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": local}))
        }
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    let of = |profile| {
        (
            object::string(profile, &["type"]).to_owned(),
            present(profile, &["localhostProfile"]).cloned(),
        )
    };
    of(a) == of(b)
}

/// Annotations are of containers that are there, and tell a profile.
pub fn validate_annotations(metadata: &Value, spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mut known: Option<HashSet<&str>> = None;
    for (key, value) in entries(metadata, &["annotations"]) {
        let Some(name) = key.strip_prefix(PREFIX) else {
            continue;
        };
        let path = path.key(key);
        let known = known.get_or_insert_with(|| {
            let all = containers(spec, &Path::default()).into_iter();
            all.map(|(_, container)| object::string(container, &["name"])).collect()
        });
        if !known.contains(name) {
            errors.push(Error::invalid(&path, name, "container not found"));
        }
        let value = value.as_str().unwrap_or_default();
        if !["", "runtime/default", "unconfined"].contains(&value) && !value.starts_with(LOCAL) {
            let detail = format!("invalid AppArmor profile name: {}", quote(value));
            errors.push(Error::invalid(&path, value, detail));
        }
    }
}

/// Where both are there, annotations and fields say the same.
pub fn validate_agreement(metadata: &Value, spec: &Value, path: &Path, errors: &mut ErrorList) {
    if object::string(spec, &["os", "name"]) == "windows" {
        return;
    }
    let of_pod = present(spec, &["securityContext", "appArmorProfile"]);
    for (path, container) in containers(spec, path) {
        let own = present(container, &["securityContext", "appArmorProfile"]);
        let told = object::get(metadata, &["annotations", &key(container)]).and_then(Value::as_str);
        let (Some(profile), Some(told)) = (own.or(of_pod), told) else {
            continue;
        };
        let path = path.child("securityContext").child("appArmorProfile");
        let local = told.strip_prefix(LOCAL);
        let agrees = match object::string(profile, &["type"]) {
            "Unconfined" => told == "unconfined",
            "RuntimeDefault" => told == "runtime/default",
            "Localhost" => local.is_some(),
            _ => continue,
        };
        if !agrees {
            let detail = "apparmor type in annotation and field must match";
            errors.push(Error::forbidden(&path.child("type"), detail));
        } else if let Some(local) = local
            && present(profile, &["localhostProfile"]).and_then(Value::as_str) != Some(local)
        {
            let detail = "apparmor profile in annotation and field must match";
            errors.push(Error::forbidden(&path.child("localhostProfile"), detail));
        }
    }
}
