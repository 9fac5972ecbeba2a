//! Fits sets that were written under an older schema to the present one.
//!
//! A field that has become atomic is owned as a whole by whoever owned anything in it. The other way round there is
//! nothing to do: an owner of the whole stays that.

use super::path::{Path, PathElement};
use super::schema::{Map, TypeRef};
use super::set::Set;
use crate::facts::MapKind;

/// The set under the present schema, or `None` if it is that already.
pub(super) fn reconcile(set: &Set, ty: TypeRef<'_>) -> Option<Set> {
    let mut walk = Walk {
        path: Vec::new(),
        atomic: Set::new(),
    };
    walk.visit(Some(set), Owned::Partly, ty);
    if walk.atomic.is_empty() {
        return None;
    }
    Some(set.recursive_difference(&walk.atomic).union(&walk.atomic))
}

struct Walk {
    path: Path,
    /// Paths that are to be owned whole.
    atomic: Set,
}

/// How a set holds a path: whole, as a leaf, or in parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owned {
    Whole,
    Partly,
}

impl Walk {
    fn visit(&mut self, set: Option<&Set>, owned: Owned, ty: TypeRef<'_>) {
        let atom = ty.resolve();
        if let Some(map) = atom.map {
            if !map.has_fields() && map.element.is_some_and(TypeRef::is_deduced) {
                return;
            }
            if owned == Owned::Partly && map.kind == MapKind::Atomic {
                if set.is_some_and(|set| !set.is_empty()) {
                    self.atomic.insert(&self.path);
                }
                return;
            }
            self.descend(set, |element| member_type(&map, element));
        } else if atom.scalar.is_some() {
        } else if let Some(list) = atom.list {
            if owned == Owned::Partly && list.is_atomic() {
                self.atomic.insert(&self.path);
                return;
            }
            self.descend(set, |_| Some(list.element));
        }
    }

    fn descend<'s>(&mut self, set: Option<&Set>, ty: impl Fn(&PathElement) -> Option<TypeRef<'s>>) {
        for entry in set.into_iter().flat_map(Set::entries) {
            let Some(ty) = ty(&entry.element) else { continue };
            let below = Some(&entry.node.below).filter(|below| !below.is_empty());
            let owned = if entry.node.member && below.is_none() {
                Owned::Whole
            } else {
                Owned::Partly
            };
            self.path.push(entry.element.clone());
            self.visit(below, owned, ty);
            self.path.pop();
        }
    }
}

/// Fields that the schema does not have are left alone.
fn member_type<'s>(map: &Map<'s>, element: &PathElement) -> Option<TypeRef<'s>> {
    match element {
        PathElement::Field(name) => map.member(name),
        _ => map.element,
    }
}
