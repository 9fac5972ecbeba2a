//! APIServices: which server answers for a group and version.

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path, quote};
use crate::kind::check::{invalid_each, is_set, present, set_default_pointer};
use crate::kind::column::{AGE, NAME, age, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext};
use crate::{names, object, time};

const MAX_GROUP_PRIORITY: i64 = 20_000;
const MAX_VERSION_PRIORITY: i64 = 1000;

#[derive(Debug)]
pub struct ApiService;

impl Strategy for ApiService {
    fn default(&self, object: &mut Value) {
        if is_set(object, &["spec", "service"]) {
            set_default_pointer(object, &["spec", "service", "port"], 443);
        }
    }

    fn prepare_create(&self, ctx: &WriteContext<'_>, object: &mut Value) {
        let status = if is_set(object, &["spec", "service"]) {
            json!({})
        } else {
            local_status(&time::now_text(ctx.now))
        };
        object::set(object, &["status"], status);
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if ctx.subresource != "status" {
            object::copy(old, new, &["status"]);
            return;
        }
        object::copy(old, new, &["spec"]);
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            object::copy(old, new, &["metadata", field]);
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate(object)
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        if ctx.subresource == "status" {
            validate_status(new)
        } else {
            validate(new)
        }
    }

    // The rule depends on group and version, so validation checks the name.
    fn metadata_check(&self, ctx: &WriteContext<'_>) -> MetadataCheck {
        if ctx.subresource.is_empty() {
            MetadataCheck::ChangeThenWhole
        } else {
            MetadataCheck::Change
        }
    }

    fn name_errors(&self, name: &str, _name_use: NameUse) -> Vec<String> {
        names::path_segment_name(name)
    }

    fn columns(&self) -> &'static [Column] {
        const SERVICE: &str = "The reference to the service that hosts this API endpoint.";
        const COLUMNS: &[Column] = &[
            NAME,
            text("Service", SERVICE),
            text("Available", "Whether this service is available."),
            AGE,
        ];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let service = present(object, &["spec", "service"]).map_or("Local".to_owned(), |service| {
            format!(
                "{}/{}",
                object::string(service, &["namespace"]),
                object::string(service, &["name"])
            )
        });
        let conditions = object::list(object, &["status", "conditions"]);
        let available = conditions
            .iter()
            .find(|one| object::string(one, &["type"]) == "Available");
        let state = available.map_or("Unknown".to_owned(), |condition| {
            let of = |field| object::string(condition, &[field]);
            match (of("status"), of("reason")) {
                (status, reason) if status != "True" && !reason.is_empty() => format!("{status} ({reason})"),
                (status, _) => status.to_owned(),
            }
        });
        vec![
            object::name(object).into(),
            service.into(),
            state.into(),
            age(object, now),
        ]
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        if subresource == "status" {
            &[&["spec"], &["metadata"]]
        } else {
            &[&["status"]]
        }
    }
}

/// The status of an APIService that this server answers for itself.
pub fn local_status(now: &str) -> Value {
    let message = "Local APIServices are always available";
    json!({"conditions": [
        {"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local", "message": message},
    ]})
}

fn validate(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let of = |field| object::string(object, &["spec", field]);
    let (name, group, version) = (object::name(object), of("group"), of("version"));
    let wanted = format!("{version}.{group}");
    if !name.is_empty() && name != wanted && names::path_segment_name(name).is_empty() {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {}", quote(&wanted));
        errors.push(Error::invalid(&Path::new("metadata").child("name"), name, detail));
    }
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.push(Error::required(&path.child("group"), detail));
    }
    if !group.is_empty() {
        errors.extend(invalid_each(
            &path.child("group"),
            group,
            names::dns1123_subdomain(group),
        ));
    }
    errors.extend(invalid_each(
        &path.child("version"),
        version,
        names::dns1035_label(version),
    ));
    for (field, max) in [
        ("groupPriorityMinimum", MAX_GROUP_PRIORITY),
        ("versionPriority", MAX_VERSION_PRIORITY),
    ] {
        let priority = object::int(object, &["spec", field]).unwrap_or_default();
        if !(1..=max).contains(&priority) {
            let detail = format!("must be positive and less than {max}");
            errors.push(Error::invalid(&path.child(field), priority, detail));
        }
    }
    validate_service(object, &path, &mut errors);
    errors
}

fn validate_service(object: &Value, path: &Path, errors: &mut ErrorList) {
    let bundle = object::string(object, &["spec", "caBundle"]);
    let skips = object::get(object, &["spec", "insecureSkipTLSVerify"]) == Some(&Value::Bool(true));
    let path_skip = path.child("insecureSkipTLSVerify");
    let Some(service) = present(object, &["spec", "service"]) else {
        if !bundle.is_empty() {
            let padding = bundle.bytes().rev().take_while(|c| *c == b'=').count();
            let shown = format!("{} bytes", bundle.len() / 4 * 3 - padding);
            errors.push(Error::invalid(
                &path.child("caBundle"),
                shown,
                "local APIServices may not have a caBundle",
            ));
        }
        if skips {
            errors.push(Error::invalid(
                &path_skip,
                true,
                "local APIServices may not have insecureSkipTLSVerify",
            ));
        }
        return;
    };
    let path = path.child("service");
    for field in ["namespace", "name"] {
        if object::string(service, &[field]).is_empty() {
            errors.push(Error::required(&path.child(field), ""));
        }
    }
    let port = object::int(service, &["port"]).unwrap_or_default();
    let texts = names::port_number(port);
    if !texts.is_empty() {
        errors.push(Error::invalid(
            &path.child("port"),
            port,
            format!("port is not valid: {}", texts.join(", ")),
        ));
    }
    if skips && !bundle.is_empty() {
        errors.push(Error::invalid(
            &path_skip,
            true,
            "may not be true if caBundle is present",
        ));
    }
}

fn validate_status(object: &Value) -> ErrorList {
    let statuses = ["True", "False", "Unknown"];
    let path = Path::new("status").child("conditions");
    let conditions = object::list(object, &["status", "conditions"]).iter().enumerate();
    conditions
        .map(|(i, condition)| (i, object::string(condition, &["status"])))
        .filter(|(_, status)| !statuses.contains(status))
        .map(|(i, status)| Error::not_supported(&path.index(i).child("status"), status, &statuses))
        .collect()
}
