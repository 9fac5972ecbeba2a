//! The rules that every object's metadata follows, whatever its kind: what is wrong with it, what the server sets, how it is deleted.
//!
//! Pure functions over `metadata` as JSON; time, uids and randomness are arguments.
//!
//! How upstream puts them together, which shows in the causes of a refusal:
//! - create: the kind's own errors, which begin with [`create_errors`] under the kind's name rule (and [`kube_finalizer_errors`],
//!   for kinds with [`FinalizerRule::Kube`]). Only if there are none, [`create_errors`] again with
//!   [`name_is_path_segment`](crate::names::name_is_path_segment).
//! - update: [`before_update_errors`], then the kind's own errors, which for most kinds begin with [`update_errors`] and
//!   [`kube_finalizer_errors`] once more. A refused label therefore stands three times and more in the causes, once in the message.

mod create;
mod delete;
mod options;
mod owner;
mod prepare;
#[cfg(test)]
mod tests;
mod update;

pub use create::{FinalizerRule, create_errors, kube_finalizer_errors};
pub use delete::{
    DeleteOptions, Deletion, GarbagePolicy, Next, Unmet, deletion_plan, finalizers_for_deletion, is_deleted_by_update,
    unmet_precondition,
};
pub(crate) use options::is_print;
pub use options::{
    FIELD_MANAGER_MAX, delete_options_errors, dry_run_errors, field_manager_errors, field_validation_errors,
    managed_fields_errors,
};
pub use owner::{Admission, dedup_owner_references, only_garbage_fields_differ};
pub use prepare::{
    NamespaceMismatch, ensure_namespace, fill_system_fields, generate_name, keep_generation, keep_system_fields,
    name_from_prefix, next_generation, prepare_for_storage, wipe_system_fields,
};
pub use update::{before_update_errors, update_errors};

/// Finalizer that makes the garbage collector orphan an object's dependents before it goes.
pub const ORPHAN_DEPENDENTS: &str = "orphan";
/// Finalizer that makes the garbage collector delete an object's dependents before it goes.
pub const DELETE_DEPENDENTS: &str = "foregroundDeletion";
