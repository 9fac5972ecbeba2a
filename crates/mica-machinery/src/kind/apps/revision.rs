//! ControllerRevisions: what a set's template was before.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::MetadataCheck;
use crate::kind::check::{invalid_as, same};
use crate::kind::column::age;
use crate::kind::plain::Plain;
use crate::kind::workload::{non_negative, number};
use crate::object;

pub const CONTROLLER_REVISION: Plain = Plain {
    validate: |_, object| {
        let mut errors = validate_revision(object);
        let path = Path::new("data");
        match object.get("data") {
            None | Some(Value::Null) => errors.push(Error::required(&path, "data is mandatory")),
            Some(Value::Object(_)) => {}
            Some(_) => errors.push(Error::required(&path, "data must be a valid JSON object")),
        }
        errors
    },
    validate_update: |_, new, old| {
        let mut errors = validate_revision(new);
        let (data, before) = (new.get("data"), old.get("data"));
        // Upstream names the data also when only the number changed.
        if !same(data, before) || number(new, &["revision"]) != number(old, &["revision"]) {
            let shown = data.map_or("null".to_owned(), Value::to_string);
            errors.push(invalid_as(&Path::new("data"), &shown, "field is immutable"));
        }
        errors
    },
    metadata_check: MetadataCheck::ChangeThenWhole,
    cells: |object, now| {
        vec![
            object::name(object).into(),
            controller(object),
            number(object, &["revision"]).into(),
            age(object, now),
        ]
    },
    ..Plain::new("apps/controllerrevisions", "io.k8s.api.apps.v1.ControllerRevision")
};

fn validate_revision(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    non_negative(object, &[], &["revision"], &Path::default(), &mut errors);
    errors
}

fn controller(object: &Value) -> Value {
    let owners = object::list(object, &["metadata", "ownerReferences"]);
    let Some(owner) = owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
    else {
        return "<none>".into();
    };
    let of = |field| object::string(owner, &[field]);
    let kind = match of("apiVersion").split_once('/') {
        Some((group, _)) => format!("{}.{group}", of("kind")),
        None => of("kind").to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), of("name")).into()
}
