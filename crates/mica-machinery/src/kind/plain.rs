//! A kind told as data: the strategy of most kinds of the `kubernetes` profile.
//!
//! Upstream's strategies differ little: which fields belong to `status`, what counts a generation, which fields select. Those
//! are values here; what is a kind's own (defaults, validation, cells) is a function.

use serde_json::{Value, json};

use super::check::keep_metadata;
use super::{Column, MetadataCheck, NameUse, Strategy, WriteContext, column, marker};
use crate::field::ErrorList;
use crate::meta::{GarbagePolicy, next_generation};
use crate::{names, object};

/// What a kind's status is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// None, or one that is written with the rest.
    Absent,
    /// Written only through `status`, which keeps the spec.
    Apart,
    /// The same, and a write of `status` leaves labels, annotations and other metadata alone too.
    ApartFromMetadata,
    /// The same, but only the labels.
    ApartFromLabels,
    /// Written through `status`, but a new object may bring one.
    ApartOnceMade,
}

type Prepare = fn(&WriteContext<'_>, &mut Value, Option<&Value>);
type Warn = fn(&WriteContext<'_>, &Value, Option<&Value>) -> Vec<String>;
type Grace = fn(&Value, Option<i64>) -> Option<i64>;

/// The fields are upstream's answers to `rest.RESTCreateStrategy` and its friends.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// OpenAPI name, for the defaults that types are marked with.
    pub ty: &'static str,
    /// Group and plural, for the columns.
    pub columns: &'static str,
    pub name: fn(&str, NameUse) -> Vec<String>,
    pub default: fn(&mut Value),
    /// What create and update change beyond status; `None` for the old object on create.
    pub prepare: Prepare,
    pub validate: fn(&WriteContext<'_>, &Value) -> ErrorList,
    /// What a valid object loses before it is stored.
    pub canonicalize: fn(&mut Value),
    pub validate_update: fn(&WriteContext<'_>, &Value, &Value) -> ErrorList,
    pub status: Status,
    pub validate_status: fn(&Value, &Value) -> ErrorList,
    pub cells: fn(&Value, jiff::Timestamp) -> Vec<Value>,
    pub generation: &'static [&'static str],
    /// Labels of field selectors, each the dotted path of what it selects by.
    pub selectable: &'static [&'static str],
    /// Whether field selectors know the namespace, which upstream leaves out for some kinds that have none.
    pub selects_namespace: bool,
    /// What an unknown label is told, if not the usual.
    pub selector_error: fn(&str) -> String,
    pub warnings: Warn,
    pub metadata_check: MetadataCheck,
    pub creates_on_update: bool,
    pub unconditional_update: bool,
    pub returns_deleted: bool,
    pub grace: Grace,
    /// What becomes of dependents if a deletion does not say, and what it is warned of.
    pub garbage: (GarbagePolicy, Option<&'static str>),
    /// What every request is warned of, if the kind is on its way out.
    pub deprecation: Option<&'static str>,
}

impl Plain {
    /// A kind without rules of its own.
    pub const fn new(columns: &'static str, ty: &'static str) -> Self {
        Self {
            ty,
            columns,
            name: names::name_is_dns_subdomain,
            default: |_| {},
            prepare: |_, _, _| {},
            validate: |_, _| ErrorList::new(),
            canonicalize: |_| {},
            validate_update: |_, _, _| ErrorList::new(),
            status: Status::Absent,
            validate_status: |_, _| ErrorList::new(),
            cells: |object, _| column::default_cells(object),
            generation: &[],
            selectable: &[],
            selects_namespace: true,
            selector_error: |label| format!("field label not supported: {label}"),
            warnings: |_, _, _| Vec::new(),
            metadata_check: MetadataCheck::Change,
            creates_on_update: false,
            unconditional_update: true,
            returns_deleted: false,
            grace: |_, _| None,
            garbage: (GarbagePolicy::DeleteDependents, None),
            deprecation: None,
        }
    }
}

impl Strategy for Plain {
    fn default(&self, object: &mut Value) {
        marker::fill(object, self.ty);
        (self.default)(object);
    }

    fn prepare_create(&self, ctx: &WriteContext<'_>, object: &mut Value) {
        if !matches!(self.status, Status::Absent | Status::ApartOnceMade) {
            object::set(object, &["status"], json!({}));
        }
        (self.prepare)(ctx, object, None);
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if ctx.subresource == "status" {
            match self.status {
                Status::Absent => return,
                Status::Apart | Status::ApartOnceMade => {}
                Status::ApartFromMetadata => keep_metadata(new, old),
                Status::ApartFromLabels => object::copy(old, new, &["metadata", "labels"]),
            }
            object::copy(old, new, &["spec"]);
            (self.prepare)(ctx, new, Some(old));
        } else {
            if self.status != Status::Absent {
                object::copy(old, new, &["status"]);
            }
            (self.prepare)(ctx, new, Some(old));
        }
    }

    fn validate(&self, ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        (self.validate)(ctx, object)
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        if ctx.subresource == "status" {
            (self.validate_status)(new, old)
        } else {
            (self.validate_update)(ctx, new, old)
        }
    }

    fn canonicalize(&self, object: &mut Value) {
        (self.canonicalize)(object);
    }

    fn metadata_check(&self, ctx: &WriteContext<'_>) -> MetadataCheck {
        if ctx.subresource.is_empty() {
            self.metadata_check
        } else {
            MetadataCheck::Change
        }
    }

    fn warnings(&self, ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        (self.warnings)(ctx, new, old)
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        (self.name)(name, name_use)
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        let labels = self.selectable.iter();
        labels.map(|label| (*label, selected(object, label))).collect()
    }

    fn selectable_labels(&self) -> &'static [&'static str] {
        self.selectable
    }

    fn selector_error(&self, label: &str) -> Option<String> {
        let common = label == "metadata.name" || (label == "metadata.namespace" && self.selects_namespace);
        if common || self.selectable.contains(&label) {
            None
        } else if self.selectable.is_empty() {
            let known = r#"only "metadata.name", "metadata.namespace""#;
            let label = crate::field::quote(label);
            Some(format!("{label} is not a known field selector: {known}"))
        } else {
            Some((self.selector_error)(label))
        }
    }

    fn columns(&self) -> &'static [Column] {
        column::of(self.columns)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        (self.cells)(object, now)
    }

    fn creates_on_update(&self) -> bool {
        self.creates_on_update
    }

    fn unconditional_update(&self) -> bool {
        self.unconditional_update
    }

    fn returns_deleted(&self) -> bool {
        self.returns_deleted
    }

    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        (self.grace)(object, requested)
    }

    fn garbage_policy(&self) -> GarbagePolicy {
        self.garbage.0
    }

    fn silent_deletion_warning(&self) -> Option<&'static str> {
        self.garbage.1
    }

    fn deprecation(&self) -> Option<&'static str> {
        self.deprecation
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        self.generation
    }

    /// A write of `status` tells what was seen, so it never counts, not even with annotations that do elsewhere.
    fn generation(&self, ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Option<i64> {
        let fields = match (ctx.subresource, old) {
            _ if self.generation.is_empty() => return None,
            ("status", Some(_)) => &[],
            _ => self.generation,
        };
        Some(next_generation(new, old, fields))
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match (self.status, subresource) {
            (Status::Absent, _) => &[],
            (Status::ApartFromMetadata, "status") => &[&["metadata"], &["spec"]],
            (Status::ApartFromLabels, "status") => &[&["metadata", "labels"], &["spec"]],
            (Status::Apart | Status::ApartOnceMade, "status") => &[&["spec"]],
            (_, "") => &[&["status"]],
            _ => &[],
        }
    }
}

/// What a label selects by: the scalar at its path, or Go's zero of that field.
fn selected(object: &Value, label: &str) -> String {
    let path: Vec<&str> = label.split('.').collect();
    match object::get(object, &path) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => match label {
            "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
            "status.replicas" | "status.successful" => "0".to_owned(),
            _ => String::new(),
        },
    }
}
