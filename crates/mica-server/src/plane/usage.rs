//! How much a plane holds: counted when its Plane is read, never stored.

use mica_machinery::object;
use mica_store::{KeyRange, Store};
use serde_json::{Value, json};

use super::directory::id_of;
use super::kind::{GROUP, PLURAL};
use crate::authz::Target;
use crate::error::ApiError;
use crate::registry::{owner, served_value};
use crate::stored::Stored;

/// Whether objects of this kind are shown with how much they hold.
pub fn shows_usage(target: &Target) -> bool {
    (target.served.group(), target.served.plural()) == (GROUP, PLURAL)
}

/// A Plane with its usage.
///
/// Counts what the plane holds itself, marks that hide objects of its base layer included, and not our records about it.
pub async fn with_usage(store: &dyn Store, target: &Target, stored: &Stored) -> Result<Value, ApiError> {
    let mut plane = served_value(&target.served, stored)?;
    if let Some(id) = id_of(&plane) {
        let whole = store.usage(&KeyRange::Plane(id)).await?;
        let internal = store.usage(&owner::index_of(id)).await?;
        // The two are read one after the other: what goes in between must not make them negative.
        let objects = whole.records.saturating_sub(internal.records);
        let bytes = whole.bytes.saturating_sub(internal.bytes);
        object::set(
            &mut plane,
            &["status", "usage"],
            json!({"objects": objects, "bytes": bytes}),
        );
    }
    Ok(plane)
}
