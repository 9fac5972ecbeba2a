//! Namespaces: their phase, their finalizers in spec, and the label that holds their name.
//!
//! Surprise: `kubernetes` is added to spec.finalizers on create only, and only the `finalize` subresource takes it away.

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, strings};
use crate::kind::column::{AGE, NAME, age, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext};
use crate::{names, object};

/// The label that always holds a namespace's name.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";
const STANDARD_FINALIZERS: [&str; 3] = [FINALIZER, "orphan", "foregroundDeletion"];

#[derive(Debug)]
pub struct Namespace;

impl Strategy for Namespace {
    fn default(&self, object: &mut Value) {
        if !object::name(object).is_empty() {
            self.canonicalize(object);
        }
        if object::string(object, &["status", "phase"]).is_empty() {
            object::set(object, &["status", "phase"], "Active");
        }
    }

    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        object::set(object, &["status"], json!({"phase": "Active"}));
        let mut finalizers = object::list(object, &["spec", "finalizers"]).to_vec();
        if !finalizers.iter().any(|name| name == FINALIZER) {
            finalizers.push(FINALIZER.into());
        }
        object::set(object, &["spec", "finalizers"], finalizers);
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        match ctx.subresource {
            "status" => object::copy(old, new, &["spec"]),
            "finalize" => object::copy(old, new, &["status"]),
            _ => {
                object::copy(old, new, &["spec", "finalizers"]);
                object::copy(old, new, &["status"]);
            }
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let path = Path::new("spec").child("finalizers");
        strings(object, &["spec", "finalizers"])
            .into_iter()
            .flat_map(|name| finalizer(name, &path))
            .collect()
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        match ctx.subresource {
            "status" => validate_phase(new).into_iter().collect(),
            "finalize" => {
                let path = Path::new("spec").child("finalizers");
                let names = strings(new, &["spec", "finalizers"]);
                names
                    .into_iter()
                    .enumerate()
                    .flat_map(|(i, name)| finalizer(name, &path.index(i)))
                    .collect()
            }
            _ => self.validate(ctx, new),
        }
    }

    fn canonicalize(&self, object: &mut Value) {
        let name = object::name(object).to_owned();
        object::set(object, &["metadata", "labels", NAME_LABEL], name);
    }

    fn metadata_check(&self, ctx: &WriteContext<'_>) -> MetadataCheck {
        if ctx.subresource.is_empty() {
            MetadataCheck::Both
        } else {
            MetadataCheck::Change
        }
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_label(name, name_use)
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("status.phase", object::string(object, &["status", "phase"]).to_owned())]
    }

    fn selectable_labels(&self) -> &'static [&'static str] {
        &["status.phase"]
    }

    fn selector_error(&self, label: &str) -> Option<String> {
        let known = ["status.phase", "metadata.name"].contains(&label);
        (!known).then(|| format!("field label not supported: {label}"))
    }

    fn columns(&self) -> &'static [Column] {
        const COLUMNS: &[Column] = &[NAME, text("Status", "The status of the namespace"), AGE];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let phase = object::string(object, &["status", "phase"]);
        vec![object::name(object).into(), phase.into(), age(object, now)]
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        if subresource == "status" {
            &[&["spec"]]
        } else {
            &[&["status"]]
        }
    }
}

/// Marks a namespace as being deleted, apart from metadata.finalizers, which follow the delete options.
///
/// DELETE of a namespace never removes it in the same request: it goes when spec.finalizers and metadata.finalizers are empty.
pub fn terminate(namespace: &mut Value, now: jiff::Timestamp) {
    if object::string(namespace, &["metadata", "deletionTimestamp"]).is_empty() {
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        object::set(namespace, &["metadata", "deletionTimestamp"], now);
    }
    object::set(namespace, &["status", "phase"], "Terminating");
}

/// Whether spec.finalizers let a namespace go.
pub fn is_finalized(namespace: &Value) -> bool {
    object::list(namespace, &["spec", "finalizers"]).is_empty()
}

fn finalizer(name: &str, path: &Path) -> ErrorList {
    let mut errors: ErrorList = invalid_each(path, name, names::qualified_name(name)).collect();
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(Error::invalid(path, name, detail));
    }
    errors
}

fn validate_phase(namespace: &Value) -> Option<Error> {
    let (phase, sentence) = if object::string(namespace, &["metadata", "deletionTimestamp"]).is_empty() {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    } else {
        (
            "Terminating",
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        )
    };
    let found = object::string(namespace, &["status", "phase"]);
    // Upstream writes the field's Go name here.
    let path = Path::new("status").child("Phase");
    (found != phase).then(|| Error::invalid(&path, found, sentence))
}
