//! The versions of a definition: names, schemas, subresources, columns.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{flag, versions};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, is_set, present, same};
use crate::kind::extension::schema::{self, Demands, StatusSubresource, TooManySelectable};
use crate::kind::internal;
use crate::schema::rule;
use crate::{names, object};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const MAX_WARNING_BYTES: usize = 256;

pub(super) fn validate_versions(object: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    let demands = demands(object, old);
    let path_versions = path.child("versions");
    for (i, version) in versions(object).iter().enumerate() {
        let path = path_versions.index(i);
        let name = object::string(version, &["name"]);
        let texts = names::dns1035_label(name);
        if !texts.is_empty() {
            errors.push(Error::invalid(&path.child("name"), name, texts.join(",")));
        }
        validate_deprecation(version, &path.child("deprecationWarning"), errors);
        let part = Part {
            object,
            old,
            version,
            place: Place::Version,
            demands,
        };
        part.validate(&path, errors);
    }
    let all: Vec<&str> = versions(object)
        .iter()
        .map(|one| object::string(one, &["name"]))
        .collect();
    let invalid = |detail| invalid_as(&path_versions, &shown_versions(object), detail);
    if all.iter().collect::<BTreeSet<_>>().len() != all.len() {
        errors.push(invalid("must contain unique version names"));
    }
    let storage = versions(object).iter().filter(|version| flag(version, "storage"));
    if storage.count() != 1 {
        errors.push(invalid("must have exactly one version marked as storage version"));
    }
    // The first version's name stands at the top as well.
    if let Some(name) = all.first().filter(|name| !name.is_empty()) {
        let texts = names::dns1035_label(name);
        if !texts.is_empty() {
            errors.push(Error::invalid(&path.child("version"), *name, texts.join(",")));
        }
    }
}

/// Where upstream keeps what a version holds: with it, or at the top because all versions share it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Version,
    Shared,
}

pub(super) fn validate_shared(object: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    if let Some(version) = versions(object).first() {
        let part = Part {
            object,
            old,
            version,
            place: Place::Shared,
            demands: demands(object, old),
        };
        part.validate(path, errors);
    }
}

/// What a definition's schemas are held to.
fn demands(object: &Value, old: Option<&Value>) -> Demands {
    let Some(old) = old else { return Demands::ALL };
    let schemas = |object| -> Vec<&Value> {
        let all = versions(object).iter();
        all.filter_map(|version| present(version, &["schema", "openAPIV3Schema"]))
            .collect()
    };
    let preserves = object::get(object, &["spec", "preserveUnknownFields"]) == Some(&Value::Bool(true));
    Demands::of_update(&schemas(old), &schemas(object), preserves)
}

/// What a version holds, or all versions share.
struct Part<'d> {
    object: &'d Value,
    old: Option<&'d Value>,
    version: &'d Value,
    place: Place,
    demands: Demands,
}

impl Part<'_> {
    /// Checks what is in this place.
    fn validate(&self, path: &Path, errors: &mut ErrorList) {
        let is_shared_place = self.place == Place::Shared;
        let is_here = |field| is_shared(self.object, field) == is_shared_place;
        let version = self.version;
        if is_here("schema")
            && let Some(validation) = present(version, &["schema"])
        {
            let path = path.child(if is_shared_place { "validation" } else { "schema" });
            let demands = Demands {
                rule_cost: self
                    .old_version()
                    .is_none_or(|old| !same(old.get("schema"), version.get("schema"))),
                ..self.demands
            };
            errors.extend(schema::validate(
                validation,
                self.status(),
                &path,
                demands,
                rule::compiler(),
            ));
        }
        if is_here("subresources")
            && let Some(scale) = present(version, &["subresources", "scale"])
        {
            validate_scale(scale, &path.child("subresources"), errors);
        }
        if is_here("additionalPrinterColumns") {
            for (i, column) in object::list(version, &["additionalPrinterColumns"]).iter().enumerate() {
                validate_column(column, &path.child("additionalPrinterColumns").index(i), errors);
            }
        }
        if is_here("selectableFields") {
            self.validate_selectable(&path.child("selectableFields"), errors);
        }
    }

    fn validate_selectable(&self, path: &Path, errors: &mut ErrorList) {
        let fields = object::list(self.version, &["selectableFields"]);
        if fields.is_empty() {
            return;
        }
        let kept = self
            .old_version()
            .is_some_and(|old| object::list(old, &["selectableFields"]) == fields);
        let too_many = if kept {
            TooManySelectable::Tolerated
        } else {
            TooManySelectable::Refused
        };
        let without = match self.place {
            Place::Version => "may only be set when `version.schema.openAPIV3Schema` is not included",
            Place::Shared => "may only be set when validations.schema is included",
        };
        // Upstream looks for the schema where the fields are, which is elsewhere if only one of them is shared.
        let is_beside = is_shared(self.object, "schema") == (self.place == Place::Shared);
        let validation = present(self.version, &["schema"]).filter(|_| is_beside);
        errors.extend(schema::validate_selectable(fields, validation, path, too_many, without));
    }

    /// The version of the same name before an update.
    fn old_version(&self) -> Option<&Value> {
        let name = object::string(self.version, &["name"]);
        let mut all = versions(self.old?).iter();
        all.find(|version| object::string(version, &["name"]) == name)
    }

    /// A schema that all versions share is restricted if any of them has the subresource.
    fn status(&self) -> StatusSubresource {
        let on = |version: &Value| is_set(version, &["subresources", "status"]);
        let is_on = match self.place {
            Place::Version => on(self.version),
            Place::Shared => versions(self.object).iter().any(on),
        };
        if is_on {
            StatusSubresource::On
        } else {
            StatusSubresource::Off
        }
    }
}

/// The versions as upstream's errors print them: without what they share.
fn shown_versions(object: &Value) -> String {
    if !is_set(object, &["spec", "versions"]) {
        return "null".to_owned();
    }
    let shown = versions(object).iter().map(|version| {
        let mut version = version.clone();
        for field in ["schema", "subresources", "additionalPrinterColumns", "selectableFields"] {
            if is_shared(object, field) {
                object::remove(&mut version, &[field]);
            }
        }
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion";
        internal::shown(&version, name)
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

fn validate_deprecation(version: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(warning) = present(version, &["deprecationWarning"]).and_then(Value::as_str) else {
        return;
    };
    let mut invalid = |detail: String| errors.push(Error::invalid(path, warning, detail));
    if !flag(version, "deprecated") {
        invalid("can only be set for deprecated versions".to_owned());
        return;
    }
    if warning.len() > MAX_WARNING_BYTES {
        invalid(format!("must be <= {MAX_WARNING_BYTES} characters long"));
    }
    if warning.is_empty() {
        invalid("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning
        .char_indices()
        .find(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' '))
    {
        invalid(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn validate_scale(scale: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(scale, &[field]);
    for (field, roots, where_to) in [
        ("specReplicasPath", &[".spec."] as &[&str], "under .spec"),
        ("statusReplicasPath", &[".status."], "under .status"),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "under either .spec or .status",
        ),
    ] {
        let path = path.child("scale").child(field);
        if of(field).is_empty() {
            if field != "labelSelectorPath" {
                errors.push(Error::required(&path, ""));
            }
        } else if !of(field).starts_with('.') {
            errors.push(Error::invalid(
                &path,
                of(field),
                "must be a simple json path starting with .",
            ));
        } else if !roots.iter().any(|root| of(field).starts_with(root)) {
            errors.push(Error::invalid(
                &path,
                of(field),
                format!("should be a json path {where_to}"),
            ));
        }
    }
}

fn validate_column(column: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(column, &[field]);
    if of("name").is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    if of("type").is_empty() {
        errors.push(Error::required(&path.child("type"), types));
    } else if !COLUMN_TYPES.contains(&of("type")) {
        errors.push(Error::invalid(&path.child("type"), of("type"), types));
    }
    if !of("format").is_empty() && !COLUMN_FORMATS.contains(&of("format")) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(Error::invalid(&path.child("format"), of("format"), detail));
    }
    // Upstream writes the field's Go name here.
    let path = path.child("JSONPath");
    match of("jsonPath") {
        "" => errors.push(Error::required(&path, "")),
        text if !text.starts_with('.') => {
            errors.push(Error::invalid(
                &path,
                text,
                "must be a simple json path starting with .",
            ));
        }
        _ => {}
    }
}

/// Whether all versions hold the same in a field.
fn is_shared(object: &Value, field: &str) -> bool {
    let mut versions = versions(object).iter();
    let Some(first) = versions.next() else { return false };
    // Lists are equal if both are empty; of the others, Go's pointers, an empty one is not none.
    let is_list = matches!(field, "additionalPrinterColumns" | "selectableFields");
    versions.all(|version| match is_list {
        true => same(version.get(field), first.get(field)),
        false => present(version, &[field]) == present(first, &[field]),
    })
}

/// A version that holds the schema of all, if all have the same.
pub(super) fn shared_schema(object: &Value) -> Option<&Value> {
    is_shared(object, "schema").then(|| versions(object).first()).flatten()
}

/// Whether a version's schema holds a default.
pub(super) fn has_default(version: &Value) -> bool {
    present(version, &["schema", "openAPIV3Schema"]).is_some_and(schema::has_default)
}
