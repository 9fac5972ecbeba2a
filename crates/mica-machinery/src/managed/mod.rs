//! Managed fields: who set what in an object.
//!
//! Owns the sets of fields (`set`, in the form of FieldsV1 in `fields`), the types that say what a field is (`schema`),
//! the comparison of two objects (`compare`), what a write does to `metadata.managedFields` (`update`), server-side apply
//! (`apply`), and the way of entries to the Scale of an object and back (`scale`).
//! Follows upstream's structured-merge-diff and its field manager; their words (member, associative, atomic) are kept.

mod apply;
#[cfg(test)]
mod apply_properties;
#[cfg(test)]
mod apply_tests;
mod atomic;
mod compare;
mod conflict;
mod entry;
mod fields;
mod fieldset;
mod merge;
mod path;
mod reconcile;
mod remove;
mod request;
mod scale;
pub mod schema;
mod set;
mod structural;
#[cfg(test)]
mod tests;
mod typed;
mod update;
mod validate;
mod value;

pub use apply::{ApplyError, OnConflict, apply, undecodable};
pub use atomic::atomics_of;
pub use compare::{Comparison, compare_objects};
pub use conflict::{ConflictCause, Conflicts};
pub use entry::{Entries, EntriesError, Entry, Manager, Operation};
pub use fields::FieldsError;
pub use fieldset::fields_of;
pub use merge::merge as merge_objects;
pub use path::{Path, PathElement, path_text};
pub use request::request_of;
pub use scale::{ReplicasPaths, managers_of_scale, managers_with_scale};
pub use set::Set;
pub use typed::TypeErrors;
pub use update::{
    OneVersion, Request, Versioned, Versions, Write, equal_but_for_managers, keep_times_of_noop, manager_of_user_agent,
    update,
};
pub use validate::{Duplicates, validate};
