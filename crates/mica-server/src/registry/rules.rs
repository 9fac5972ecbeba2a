//! What a write must satisfy, and what its metadata becomes, whatever its kind.

use mica_machinery::field::{self, ErrorList, Path};
use mica_machinery::kind::core::namespace;
use mica_machinery::kind::{MetadataCheck, WriteContext};
use mica_machinery::meta::{self, FinalizerRule};
use mica_machinery::{names, object};
use serde_json::Value;

use super::step::Step;
use crate::authz::Target;
use crate::error::{ApiError, MODIFIED};
use crate::options::parse_version;
use crate::scheme::Served;
use crate::stored::Stored;

/// What every write does to a body's metadata first: its namespace must be the request's, or empty, and the annotations that
/// all-planes answers add do not come back.
pub(crate) fn settle_metadata(target: &Target, object: &mut Value) -> Result<(), ApiError> {
    let wanted = target.namespace.as_deref().unwrap_or_default();
    let metadata = metadata_mut(object);
    meta::ensure_namespace(metadata, wanted).map_err(|mismatch| ApiError::bad_request(mismatch.to_string()))?;
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        let sent = annotations.len();
        annotations.retain(|name, _| !crate::wildcard::RESERVED_ANNOTATIONS.contains(&name.as_str()));
        if annotations.is_empty() && sent > 0 {
            object::remove(metadata, &["annotations"]);
        }
    }
    Ok(())
}

/// The name of the body must be the request's.
pub(crate) fn check_name(target: &Target, object: &Value) -> Result<(), ApiError> {
    let wanted = target.object();
    match object::name(object) {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        ))),
        sent if sent == wanted => Ok(()),
        sent => Err(ApiError::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({wanted})"
        ))),
    }
}

/// A uid in the body is a precondition.
pub(super) fn check_uid(target: &Target, wanted: &Value, old: &Stored) -> Result<(), ApiError> {
    let sent = object::string(wanted, &["metadata", "uid"]);
    if sent.is_empty() {
        return Ok(());
    }
    let actual = mica_machinery::select::text_at(old.json(), &["metadata", "uid"]).unwrap_or_default();
    if sent == actual {
        return Ok(());
    }
    Err(uid_conflict(target, &target.served.name.clone(), sent, &actual))
}

/// Upstream's text for a failed uid precondition, its storage key included.
pub(crate) fn uid_conflict(target: &Target, resource: &mica_api::GroupResource, sent: &str, actual: &str) -> ApiError {
    ApiError::conflict(
        resource,
        target.object(),
        &precondition(target, "UID", "UID in object meta", sent, actual),
    )
}

pub(super) fn precondition(target: &Target, what: &str, where_: &str, sent: &str, actual: &str) -> String {
    let place = match &target.namespace {
        Some(namespace) => format!("{namespace}/{}", target.object()),
        None => target.object().to_owned(),
    };
    let resource = match target.served.custom_kind() {
        Some(_) => target.served.name.as_key(),
        None => target.served.plural(),
    };
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{resource}/{place}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {sent}, {where_}: {actual}"
    )
}

/// A resourceVersion in the body must be the present one; some kinds want one always.
pub(super) fn check_version(step: &Step<'_>, wanted: &Value, old: &Stored) -> Result<(), ApiError> {
    let served = step.served();
    let sent = object::string(wanted, &["metadata", "resourceVersion"]);
    match parse_version(sent).map_err(|error| error.for_update())? {
        Some(revision) if old.is_version(revision) => Ok(()),
        Some(_) => Err(ApiError::conflict(&served.name, step.target().object(), MODIFIED)),
        None if served.strategy().unconditional_update() => Ok(()),
        None => {
            let path = Path::new("metadata").child("resourceVersion");
            let error = field::Error::invalid(&path, 0, "must be specified for an update");
            // Upstream names the resource where it means the kind.
            let name = object::name(wanted);
            Err(ApiError::invalid(served.group(), served.plural(), name, &[error]))
        }
    }
}

/// Everything wrong with a new object, in upstream's order: the kind's own errors begin with metadata's under the kind's
/// name rule; only an object without any is checked for names that no path could hold.
pub(super) fn create_errors(served: &Served, context: &WriteContext<'_>, object: &Value) -> ErrorList {
    let (strategy, scope, path) = (served.strategy(), served.scope(), Path::new("metadata"));
    let metadata = &object["metadata"];
    let mut errors = meta::create_errors(
        metadata,
        scope,
        |name, name_use| strategy.name_errors(name, name_use),
        &path,
    );
    errors.extend(finalizer_errors(served, metadata, &path));
    errors.extend(strategy.validate(context, object));
    if errors.is_empty() {
        errors = meta::create_errors(metadata, scope, names::name_is_path_segment, &path);
    }
    errors
}

/// Everything wrong with a change. Upstream checks metadata more than once, and its causes show how often.
pub(super) fn update_errors(
    served: &Served,
    context: &WriteContext<'_>,
    new: &Value,
    old: &Value,
    warnings: &mut Vec<String>,
) -> ErrorList {
    let (strategy, scope, path) = (served.strategy(), served.scope(), Path::new("metadata"));
    let (new_meta, old_meta) = (&new["metadata"], &old["metadata"]);
    let mut errors = meta::before_update_errors(new_meta, old_meta, scope, &path);
    let whole = || {
        let name_errors = |name: &str, name_use| strategy.name_errors(name, name_use);
        let mut errors = meta::create_errors(new_meta, scope, name_errors, &path);
        errors.extend(finalizer_errors(served, new_meta, &path));
        errors
    };
    let change = || {
        let mut errors = meta::update_errors(new_meta, old_meta, &path);
        errors.extend(finalizer_errors(served, new_meta, &path));
        errors
    };
    match strategy.metadata_check(context) {
        MetadataCheck::Whole => errors.extend(whole()),
        MetadataCheck::Change => errors.extend(change()),
        MetadataCheck::Both => errors.extend(whole().into_iter().chain(change())),
        MetadataCheck::ChangeThenWhole => errors.extend(change().into_iter().chain(whole())),
        MetadataCheck::Neither => {}
    }
    errors.extend(strategy.check_update(context, new, old, warnings));
    errors
}

fn finalizer_errors(served: &Served, metadata: &Value, path: &Path) -> ErrorList {
    match served.strategy().finalizer_rule() {
        FinalizerRule::Kube => meta::kube_finalizer_errors(metadata, path),
        FinalizerRule::Qualified => ErrorList::new(),
    }
}

/// The metadata of an object, made if it has none.
pub(super) fn metadata_mut(object: &mut Value) -> &mut Value {
    let map = object::object_mut(object);
    let metadata = map
        .entry("metadata")
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    object::object_mut(metadata);
    metadata
}

/// Whether an object that is being deleted has nothing left that holds it.
pub(super) fn goes_now(served: &Served, new: &Value, old: &Value) -> bool {
    let held_by_spec = served.is_namespaces() && !namespace::is_finalized(new);
    !held_by_spec && meta::is_deleted_by_update(&new["metadata"], &old["metadata"])
}
