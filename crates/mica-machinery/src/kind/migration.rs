//! StorageVersionMigrations: requests to write all objects of a resource again.

use serde_json::{Value, json};

use super::check::{immutable, invalid_as, keep_metadata};
use super::column::{NAME, text};
use super::{Column, MetadataCheck, NameUse, Strategy, WriteContext, condition, internal};
use crate::field::{Error, ErrorList, Path};
use crate::{names, object};

#[derive(Debug)]
pub struct StorageVersionMigration;

impl Strategy for StorageVersionMigration {
    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        object::set(object, &["status"], json!({}));
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if ctx.subresource == "status" {
            object::copy(old, new, &["spec"]);
            keep_metadata(new, old);
        } else {
            object::copy(old, new, &["status"]);
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate_spec(object)
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        if ctx.subresource == "status" {
            return validate_status(new, old);
        }
        let mut errors = validate_spec(new);
        let shown = internal::shown(
            new.get("spec").unwrap_or(&Value::Null),
            "io.k8s.api.storagemigration.v1beta1.StorageVersionMigrationSpec",
        );
        immutable(new, old, &["spec"], &Path::new("spec"), &shown, &mut errors);
        errors
    }

    fn metadata_check(&self, ctx: &WriteContext<'_>) -> MetadataCheck {
        if ctx.subresource.is_empty() {
            MetadataCheck::Both
        } else {
            MetadataCheck::Change
        }
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column { format: "", ..NAME },
            text("Resource", "GroupResource to migrate"),
            text("Status", "Status of the migration"),
        ];
        COLUMNS
    }

    fn cells(&self, object: &Value, _now: jiff::Timestamp) -> Vec<Value> {
        let of = |field| object::string(object, &["spec", "resource", field]);
        let resource = match of("group") {
            "" => of("resource").to_owned(),
            group => format!("{}.{group}", of("resource")),
        };
        let state = object::list(object, &["status", "conditions"])
            .iter()
            .rev()
            .find_map(|one| {
                let r#type = object::string(one, &["type"]);
                let holds = object::string(one, &["status"]) == "True";
                (holds && ["Running", "Failed", "Succeeded"].contains(&r#type)).then_some(r#type)
            });
        vec![
            object::name(object).into(),
            resource.into(),
            state.unwrap_or("Unknown").into(),
        ]
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        if subresource == "status" {
            &[&["metadata"], &["spec"]]
        } else {
            &[&["status"]]
        }
    }
}

fn validate_spec(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec").child("resource");
    let of = |field| object::string(object, &["spec", "resource", field]);
    let texts = names::dns1035_label(of("resource"));
    if of("resource").is_empty() {
        errors.push(Error::required(
            &path.child("resource"),
            "resource is required to be set",
        ));
    } else if !texts.is_empty() {
        errors.push(Error::invalid(&path.child("resource"), of("resource"), texts.join(",")));
    }
    let texts = names::dns1123_subdomain(of("group"));
    if !of("group").is_empty() && !texts.is_empty() {
        errors.push(Error::invalid(&path.child("group"), of("group"), texts.join(",")));
    }
    errors
}

fn validate_status(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let version = |object| object::string(object, &["status", "resourceVersion"]);
    let (new_version, old_version) = (version(new), version(old));
    let is_version = !new_version.starts_with('0') && new_version.bytes().all(|c| c.is_ascii_digit());
    if !new_version.is_empty() && !is_version {
        let detail = format!("resource version is not well formed: {new_version}");
        errors.push(Error::invalid(&path.child("resourceVersion"), new_version, detail));
    }
    let conditions = |object| object::list(object, &["status", "conditions"]);
    let path_conditions = path.child("conditions");
    errors.extend(condition::validate_all(conditions(new), &path_conditions));
    if !old_version.is_empty() && old_version != new_version {
        errors.push(Error::invalid(
            &path.child("resourceVersion"),
            new_version,
            "field is immutable",
        ));
    }
    let is = |object, r#type| condition::has(conditions(object), r#type, "True");
    let name = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition";
    let shown: Vec<String> = conditions(new).iter().map(|one| internal::shown(one, name)).collect();
    let shown = format!("[{}]", shown.join(","));
    let mut invalid = |detail: &str| errors.push(invalid_as(&path_conditions, &shown, detail));
    if is(new, "Succeeded") && is(new, "Failed") {
        invalid("Both success and failed conditions cannot be true at the same time");
    }
    if is(old, "Succeeded") && !is(new, "Succeeded") {
        invalid("Success condition cannot be set to false once it is true");
    }
    if is(old, "Failed") && !is(new, "Failed") {
        invalid("Failed condition cannot be set to false once it is true");
    }
    errors
}
