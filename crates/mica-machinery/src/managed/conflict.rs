//! Conflicts: fields that an applier wants to change and somebody else manages.

use super::entry::{Manager, Operation};
use super::path::{Path, path_text};
use super::set::Set;
use crate::field::quote;

/// Fields and who manages them, by manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflicts(Vec<(Manager, Path)>);

/// One cause in the details of the 409, of reason `FieldManagerConflict`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConflictCause {
    pub field: String,
    pub message: String,
}

impl Conflicts {
    pub(super) fn new(mut lost: Vec<(Manager, Set)>) -> Self {
        lost.sort_by_key(|(manager, _)| manager.identifier());
        let each = |(manager, set): (Manager, Set)| {
            set.paths()
                .into_iter()
                .map(move |path| (manager.clone(), path))
                .collect::<Vec<_>>()
        };
        Self(lost.into_iter().flat_map(each).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All fields in conflict.
    pub(super) fn fields(&self) -> Set {
        let mut set = Set::new();
        self.0.iter().for_each(|(_, path)| set.insert(path));
        set
    }

    /// Those whose fields are not in `allowed`.
    #[must_use]
    pub(super) fn without(self, allowed: &Set) -> Self {
        Self(self.0.into_iter().filter(|(_, path)| !allowed.has(path)).collect())
    }

    pub fn causes(&self) -> Vec<ConflictCause> {
        let cause = |(manager, path): &(Manager, Path)| ConflictCause {
            field: path_text(path),
            message: format!("conflict with {}", describe(manager)),
        };
        self.0.iter().map(cause).collect()
    }
}

impl std::fmt::Display for Conflicts {
    /// The message of the 409.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [(manager, path)] = &self.0[..] {
            let (manager, path) = (describe(manager), path_text(path));
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        let mut lines = Vec::new();
        let mut last = None;
        for (manager, path) in &self.0 {
            if last != Some(manager) {
                lines.push(format!("conflicts with {}:", describe(manager)));
                last = Some(manager);
            }
            lines.push(format!("- {}", path_text(path)));
        }
        write!(f, "Apply failed with {} conflicts: {}", self.0.len(), lines.join("\n"))
    }
}

fn describe(manager: &Manager) -> String {
    let mut text = quote(&manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", quote(&manager.subresource)));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
