//! What is wrong with the metadata of an object, whatever it was before.

use serde_json::Value;

use super::{DELETE_DEPENDENTS, ORPHAN_DEPENDENTS, managed_fields_errors, owner::owner_reference_errors};
use crate::field::{Error, ErrorList, Path};
use crate::kind::{NameUse, Scope};
use crate::names::{annotation_errors, label_errors, name_is_dns_label, non_negative, qualified_name};
use crate::object;

/// Which finalizer names a kind takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FinalizerRule {
    /// Any qualified name: kinds outside of Kubernetes proper.
    #[default]
    Qualified,
    /// Also refuses names without a domain that are not standard ones.
    Kube,
}

/// The errors of `metadata`; a generated name must be in it already.
pub fn create_errors(
    metadata: &Value,
    scope: Scope,
    name_errors: impl Fn(&str, NameUse) -> Vec<String>,
    path: &Path,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let prefix = object::string(metadata, &["generateName"]);
    if !prefix.is_empty() {
        let path = path.child("generateName");
        errors.extend(
            name_errors(prefix, NameUse::Prefix)
                .into_iter()
                .map(|text| Error::invalid(&path, prefix, text)),
        );
    }
    let name = object::string(metadata, &["name"]);
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), "name or generateName is required"));
    } else {
        let texts = name_errors(name, NameUse::Name);
        errors.extend(
            texts
                .into_iter()
                .map(|text| Error::invalid(&path.child("name"), name, text)),
        );
    }
    namespace_errors(metadata, scope, &path.child("namespace"), &mut errors);
    let generation = object::int(metadata, &["generation"]).unwrap_or_default();
    errors.extend(non_negative(generation, &path.child("generation")));
    errors.extend(common_errors(metadata, path, Finalizers::Checked));
    errors
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Finalizers {
    Checked,
    Unchecked,
}

/// Labels, annotations, owners, finalizers and managed fields, in upstream's order.
pub(super) fn common_errors(metadata: &Value, path: &Path, finalizers: Finalizers) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(labels) = metadata.get("labels") {
        errors.extend(label_errors(labels, &path.child("labels")));
    }
    if let Some(annotations) = metadata.get("annotations") {
        errors.extend(annotation_errors(annotations, &path.child("annotations")));
    }
    errors.extend(owner_reference_errors(metadata, &path.child("ownerReferences")));
    if finalizers == Finalizers::Checked {
        errors.extend(finalizer_errors(metadata, &path.child("finalizers")));
    }
    errors.extend(managed_fields_errors(metadata, &path.child("managedFields")));
    errors
}

fn namespace_errors(metadata: &Value, scope: Scope, path: &Path, errors: &mut ErrorList) {
    let namespace = object::string(metadata, &["namespace"]);
    match scope {
        Scope::Namespaced if namespace.is_empty() => errors.push(Error::required(path, "")),
        Scope::Namespaced => {
            let texts = name_is_dns_label(namespace, NameUse::Name);
            errors.extend(texts.into_iter().map(|text| Error::invalid(path, namespace, text)));
        }
        Scope::Cluster if !namespace.is_empty() => errors.push(Error::forbidden(path, "not allowed on this type")),
        Scope::Cluster => {}
    }
}

fn finalizer_errors(metadata: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let finalizers = object::list(metadata, &["finalizers"]);
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        errors.extend(
            qualified_name(finalizer)
                .into_iter()
                .map(|text| Error::invalid(path, finalizer, text)),
        );
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has(ORPHAN_DEPENDENTS) && has(DELETE_DEPENDENTS) {
        let detail = format!("finalizer {ORPHAN_DEPENDENTS} and {DELETE_DEPENDENTS} cannot be both set");
        errors.push(Error::invalid(path, finalizers.to_vec(), detail));
    }
    errors
}

/// Finalizers without a domain that are not upstream's own: the rule of [`FinalizerRule::Kube`].
pub fn kube_finalizer_errors(metadata: &Value, path: &Path) -> ErrorList {
    let text = "name is neither a standard finalizer name nor is it fully qualified";
    let mut errors = ErrorList::new();
    for (at, finalizer) in object::list(metadata, &["finalizers"]).iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        if !name.contains('/') && !["kubernetes", ORPHAN_DEPENDENTS, DELETE_DEPENDENTS].contains(&name) {
            errors.push(Error::invalid(&path.child("finalizers").index(at), name, text));
        }
    }
    errors
}
