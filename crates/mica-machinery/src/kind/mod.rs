//! The built-in kinds as one table: names, scope, verbs, subresources, columns, and what each kind does that others do not.
//!
//! Everything common to all kinds (metadata, deletion, conflicts, managed fields) is the server registry's; a
//! [`Strategy`] holds only a kind's own rules, as upstream's `pkg/registry/*/strategy.go` and `pkg/apis/*/validation` do.

pub mod admission;
pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod bootstrap;
pub mod budget;
pub mod certificates;
mod check;
pub mod column;
mod condition;
pub mod coordination;
pub mod core;
pub mod custom;
pub mod device;
mod diff;
pub mod extension;
pub mod flowcontrol;
mod internal;
mod marker;
pub mod migration;
pub mod network;
pub mod node;
pub(crate) mod pem;
mod plain;
pub mod pod;
pub mod rbac;
pub mod review;
mod selector;
pub mod storage;
mod table;
#[cfg(test)]
mod tests;
pub mod webhook;
mod workload;

pub use table::{PRIORITIES, resources};

use serde_json::Value;

use crate::field::ErrorList;

/// Which servers serve a kind: every plane, or only those of the `kubernetes` profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub enum Profile {
    Generic,
    Kubernetes,
}

impl Profile {
    pub const ALL: [Self; 2] = [Self::Generic, Self::Kubernetes];

    /// As a Plane says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Generic => "Generic",
            Self::Kubernetes => "Kubernetes",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == text)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// Everything that can be done with the objects of most kinds.
pub const CRUD: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// One served resource of one group and version.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub profile: Profile,
    /// As in discovery, sorted: create, delete, deletecollection, get, list, patch, update, watch.
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    /// Where objects are stored, if not under this group and plural: both event groups share one storage.
    pub stored_as: Option<Stored>,
    pub strategy: &'static dyn Strategy,
}

/// The group, version and kind that another one's objects are stored as, and the way there and back.
///
/// The plural is the same. Apart from these functions everything, the [`Strategy`] too, sees objects as stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub to_stored: fn(Value) -> Value,
    pub from_stored: fn(Value) -> Value,
}

#[derive(Debug)]
pub struct Subresource {
    pub name: &'static str,
    pub verbs: &'static [&'static str],
    /// Group, version and kind of its bodies; those of the parent if absent.
    pub kind: Option<(&'static str, &'static str, &'static str)>,
}

/// A column of a table, as in `meta.k8s.io/v1 TableColumnDefinition`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    pub name: &'static str,
    pub r#type: &'static str,
    pub format: &'static str,
    pub description: &'static str,
    pub priority: i32,
}

/// What a write knows about itself.
#[derive(Clone, Debug)]
pub struct WriteContext<'a> {
    pub now: jiff::Timestamp,
    /// The subresource written, empty for the object itself.
    pub subresource: &'a str,
    /// The API version the client writes in.
    pub group: &'a str,
    pub version: &'a str,
    pub user: User<'a>,
}

/// Who asks, as far as kinds record it.
#[derive(Clone, Copy, Debug, Default)]
pub struct User<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub groups: &'a [String],
    pub extra: &'a [(String, Vec<String>)],
}

/// A kind's own rules. The defaults are those of a kind that has none.
///
/// Objects are decoded, normalised JSON of the version that is stored.
pub trait Strategy: std::fmt::Debug + Sync {
    /// Fills in what the client left out, on every write and on reads of what was stored before a default existed.
    fn default(&self, _object: &mut Value) {}

    /// Sets or clears what clients may not decide on create, such as status. (Generation is the registry's, see
    /// [`Strategy::generation_fields`].)
    fn prepare_create(&self, _ctx: &WriteContext<'_>, _object: &mut Value) {}

    /// Texts for `Warning` headers about what preparing a new object changes: asked before, and sent with a refusal, too.
    fn prepare_warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// What [`Strategy::prepare_create`] does, on update of the object or of `ctx.subresource`: for the object itself status stays the old one, for `status` all else does.
    fn prepare_update(&self, _ctx: &WriteContext<'_>, _new: &mut Value, _old: &Value) {}

    /// What is wrong with a new object, metadata's common rules aside.
    fn validate(&self, _ctx: &WriteContext<'_>, _object: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// What is wrong with a change, metadata's common rules aside.
    fn validate_update(&self, _ctx: &WriteContext<'_>, _new: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// The same, with texts for `Warning` headers about what is wrong but was so before.
    fn check_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value, _warnings: &mut Vec<String>) -> ErrorList {
        self.validate_update(ctx, new, old)
    }

    /// How the kind's own validation of a change looks at metadata, beyond what every change is checked for.
    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::Change
    }

    /// Why a valid new object is refused all the same, whoever asks; `None` if it is not. Upstream's admission plugins.
    fn forbidden(&self, _object: &Value) -> Option<String> {
        None
    }

    /// Whether an object without any name gets one that is a uid.
    fn names_itself(&self) -> bool {
        false
    }

    /// Last changes of a valid object, when its final name is known.
    fn canonicalize(&self, _object: &mut Value) {}

    /// Texts for `Warning` headers.
    fn warnings(&self, _ctx: &WriteContext<'_>, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// What is wrong with a name of this kind, as upstream's texts; empty if nothing is. `prefix`: it is a generateName.
    fn name_errors(&self, name: &str, prefix: NameUse) -> Vec<String>;

    /// Field selectors beside metadata.name and metadata.namespace: label and value of each.
    fn selectable(&self, _object: &Value) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The labels that [`Strategy::selectable`] gives for any object.
    fn selectable_labels(&self) -> &'static [&'static str] {
        &[]
    }

    /// What is wrong with a field selector on this label, if anything is.
    fn selector_error(&self, label: &str) -> Option<String> {
        let own = self.selectable_labels();
        if own.contains(&label) || label == "metadata.name" || label == "metadata.namespace" {
            None
        } else if own.is_empty() {
            let known = r#"only "metadata.name", "metadata.namespace""#;
            Some(format!(
                "{} is not a known field selector: {known}",
                crate::field::quote(label)
            ))
        } else {
            Some(format!("field label not supported: {label}"))
        }
    }

    /// Columns of a table of this kind. None at all: it is not served as a Table (406), as the review kinds.
    fn columns(&self) -> &'static [Column] {
        column::DEFAULT
    }

    /// What the rows of a table are ordered by, if not by key.
    fn table_order(&self) -> Option<fn(&Value) -> i64> {
        None
    }

    /// One object's cells, one for each column.
    fn cells(&self, object: &Value, _now: jiff::Timestamp) -> Vec<Value> {
        column::default_cells(object)
    }

    /// What an object's row says of itself beside its cells, as `meta.k8s.io/v1 TableRowCondition`.
    fn row_conditions(&self, _object: &Value) -> Option<Value> {
        None
    }

    /// Whether PUT of a missing name creates it.
    fn creates_on_update(&self) -> bool {
        false
    }

    /// Whether PUT without a resourceVersion overwrites whatever is there.
    fn unconditional_update(&self) -> bool {
        true
    }

    /// Whether DELETE answers the deleted object instead of a Status.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// How long a deletion waits before the object is gone, in seconds; `None` if the kind is deleted at once.
    fn grace(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Changes an object that was marked for deletion and stays for now: its phase, its conditions.
    fn marked_for_deletion(&self, _object: &mut Value, _now: jiff::Timestamp) {}

    /// What becomes of dependents if a deletion does not say.
    fn garbage_policy(&self) -> crate::meta::GarbagePolicy {
        crate::meta::GarbagePolicy::DeleteDependents
    }

    /// What a deletion that does not say what becomes of dependents is warned of.
    fn silent_deletion_warning(&self) -> Option<&'static str> {
        None
    }

    /// Which finalizer names objects may have: upstream checks most built-in kinds more strictly than extensions.
    fn finalizer_rule(&self) -> crate::meta::FinalizerRule {
        crate::meta::FinalizerRule::Kube
    }

    /// How long objects live from their last write (events).
    fn ttl(&self) -> Option<std::time::Duration> {
        None
    }

    /// What every request for the kind is warned of, if it is on its way out.
    fn deprecation(&self) -> Option<&'static str> {
        None
    }

    /// Top-level fields whose change counts a new generation; empty if the kind has no generation.
    fn generation_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The generation of a new object, or of one that replaces `old`; `None` if the kind has none.
    fn generation(&self, _ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Option<i64> {
        let fields = self.generation_fields();
        (!fields.is_empty()).then(|| crate::meta::next_generation(new, old, fields))
    }

    /// Paths that managed fields never record on this (sub)resource, as upstream's reset fields: `status` on the object.
    fn reset_fields(&self, _subresource: &str) -> &'static [&'static [&'static str]] {
        &[]
    }
}

/// Which rules of metadata a kind's update validation repeats. Clients see the difference in the number of causes: each
/// repetition names the same mistakes once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetadataCheck {
    /// The rules of a change.
    Change,
    /// The rules of a new object.
    Whole,
    /// Both, first those of a new object.
    Both,
    /// Both, first those of a change.
    ChangeThenWhole,
    Neither,
}

impl MetadataCheck {
    /// Those of a new object, and none where a part of it is written.
    pub fn whole_object(ctx: &WriteContext<'_>) -> Self {
        if ctx.subresource.is_empty() {
            Self::Whole
        } else {
            Self::Neither
        }
    }
}

/// What a name is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameUse {
    Name,
    /// A generateName: the name rules apply with a trailing dash masked.
    Prefix,
}
