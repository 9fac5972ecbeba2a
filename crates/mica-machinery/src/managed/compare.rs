//! What changed between two objects: the fields that were added, removed, or changed.
//!
//! Fields that nobody may own (name, uid, resourceVersion, managedFields, …) are left out from the start; upstream
//! compares them too and strips them from every set afterwards.

use serde_json::{Map as JsonMap, Value};

use super::path::PathElement;
use super::schema::{List, Map, TypeRef};
use super::set::{Node, Set};
use super::typed::{Form, TypeErrors, check_scalar, equal_all, form, forms_of_both, index_items, items, members};
use super::value;
use crate::facts::MapKind;

/// No field is in more than one of the three.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

impl Comparison {
    /// Without these fields and everything below them.
    #[must_use]
    pub fn without(self, fields: &Set) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            added: self.added.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            removed: self.removed.recursive_difference(fields),
        }
    }
}

/// Members of `metadata` that belong to the server.
const STRIPPED_METADATA: [&str; 9] = [
    "clusterName",
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Whether `metadata.name` and its like, which no set may hold.
pub(super) fn is_stripped_metadata(name: &str) -> bool {
    STRIPPED_METADATA.contains(&name)
}

/// Compares two whole objects.
pub fn compare_objects(old: &Value, new: &Value, ty: TypeRef<'_>) -> Result<Comparison, TypeErrors> {
    let empty = JsonMap::new();
    let (old, new) = (members(old).unwrap_or(&empty), members(new).unwrap_or(&empty));
    let Some(map) = ty.resolve().map else {
        return Err(TypeErrors::one("an object is a map"));
    };
    let mut nodes = Nodes::default();
    zip(old, new, |name, old, new| {
        if matches!(name, "apiVersion" | "kind") {
            return Ok(());
        }
        if name != "metadata" {
            return nodes.member(&map, name, old, new);
        }
        let metadata = map.member(name).and_then(|ty| ty.resolve().map);
        let Some(metadata) = metadata else {
            return Err(TypeErrors::one("metadata is a map"));
        };
        let (old, new) = (old.and_then(members), new.and_then(members));
        let mut inner_nodes = Nodes::default();
        zip(old.unwrap_or(&empty), new.unwrap_or(&empty), |name, old, new| {
            if is_stripped_metadata(name) {
                Ok(())
            } else {
                inner_nodes.member(&metadata, name, old, new)
            }
        })?;
        nodes.push(PathElement::field(name), inner_nodes);
        Ok(())
    })?;
    Ok(Comparison {
        added: nodes.added.below,
        modified: nodes.modified.below,
        removed: nodes.removed.below,
    })
}

/// Calls for every member of either map, in order.
fn zip<'v>(
    old: &'v JsonMap<String, Value>,
    new: &'v JsonMap<String, Value>,
    mut each: impl FnMut(&'v str, Option<&'v Value>, Option<&'v Value>) -> Result<(), TypeErrors>,
) -> Result<(), TypeErrors> {
    let (mut a, mut b) = (old.iter().peekable(), new.iter().peekable());
    loop {
        match (a.peek(), b.peek()) {
            (None, None) => return Ok(()),
            (Some((x, _)), Some((y, _))) if x == y => {
                if let (Some((name, old)), Some((_, new))) = (a.next(), b.next()) {
                    each(name, Some(old), Some(new))?;
                }
            }
            (Some((x, _)), y) if y.is_none_or(|(y, _)| x < y) => {
                if let Some((name, old)) = a.next() {
                    each(name, Some(old), None)?;
                }
            }
            _ => {
                if let Some((name, new)) = b.next() {
                    each(name, None, Some(new))?;
                }
            }
        }
    }
}

/// What changed at and below one path.
#[derive(Default)]
struct Nodes {
    added: Node,
    modified: Node,
    removed: Node,
}

impl Nodes {
    fn added(node: Node) -> Self {
        Self {
            added: node,
            ..Self::default()
        }
    }

    fn removed(node: Node) -> Self {
        Self {
            removed: node,
            ..Self::default()
        }
    }

    fn modified_if(changed: bool) -> Self {
        let modified = if changed { Node::LEAF } else { Node::default() };
        Self {
            modified,
            ..Self::default()
        }
    }

    fn union(self, other: Self) -> Self {
        Self {
            added: self.added.union(other.added),
            modified: self.modified.union(other.modified),
            removed: self.removed.union(other.removed),
        }
    }

    fn push(&mut self, element: PathElement, inner: Self) {
        let sets = [
            (&mut self.added.below, inner.added),
            (&mut self.modified.below, inner.modified),
            (&mut self.removed.below, inner.removed),
        ];
        for (set, node) in sets {
            if !node.is_empty() {
                set.push(element.clone(), node);
            }
        }
    }

    fn member(
        &mut self,
        map: &Map<'_>,
        name: &str,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), TypeErrors> {
        let element = PathElement::field(name);
        let ty = map
            .member(name)
            .ok_or_else(|| TypeErrors::one("field not declared in schema").under(&element))?;
        let inner = compare(old, new, ty).map_err(|errors| errors.under(&element))?;
        self.push(element, inner);
        Ok(())
    }
}

fn compare(old: Option<&Value>, new: Option<&Value>, ty: TypeRef<'_>) -> Result<Nodes, TypeErrors> {
    match (old, new) {
        (None, None) => Ok(Nodes::default()),
        (None, Some(new)) => whole(new, ty).map(Nodes::added),
        (Some(old), None) => whole(old, ty).map(Nodes::removed),
        (Some(old), Some(new)) => {
            let (first, second) = forms_of_both(&ty.resolve(), old, new)?;
            let second = compare_as(second, old, new)?;
            match first {
                None => Ok(second),
                Some(first) => Ok(compare_as(first, old, new)?.union(second)),
            }
        }
    }
}

fn compare_as(form: Form<'_>, old: &Value, new: &Value) -> Result<Nodes, TypeErrors> {
    let leaf = || Nodes::modified_if(!value::equal(old, new));
    match form {
        Form::Scalar(scalar) => {
            let (left, right) = (check_scalar(scalar, old, "lhs: "), check_scalar(scalar, new, "rhs: "));
            if let (Err(mut left), Err(right)) = (left, right) {
                left.extend(right);
                return Err(left);
            }
            Ok(leaf())
        }
        Form::Map(map) => {
            let empty = JsonMap::new();
            let (a, b) = (members(old).unwrap_or(&empty), members(new).unwrap_or(&empty));
            if map.kind == MapKind::Atomic || (a.is_empty() && b.is_empty()) {
                return Ok(leaf());
            }
            let mut nodes = Nodes::default();
            zip(a, b, |name, old, new| nodes.member(&map, name, old, new))?;
            Ok(nodes)
        }
        Form::List(list) => {
            let (a, b) = (items(old), items(new));
            if list.is_atomic() || (a.is_empty() && b.is_empty()) {
                return Ok(leaf());
            }
            compare_items(&list, a, b)
        }
    }
}

/// Items by their element. Several of one element are one leaf: they cannot be told apart.
fn compare_items(list: &List<'_>, old: &[Value], new: &[Value]) -> Result<Nodes, TypeErrors> {
    let (old, new) = (index_items(list, old)?, index_items(list, new)?);
    let mut nodes = Nodes::default();
    let (mut a, mut b) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return Ok(nodes),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(x), Some(y)) => x.0.cmp(&y.0),
        };
        let left = if order.is_le() { a.next() } else { None };
        let right = if order.is_ge() { b.next() } else { None };
        let (old, new) = match (&left, &right) {
            (Some(left), Some(right)) => (&left.1[..], &right.1[..]),
            (Some(left), None) => (&left.1[..], &[][..]),
            (_, Some(right)) => (&[][..], &right.1[..]),
            (None, None) => return Ok(nodes),
        };
        let inner = compare_group(list, old, new);
        let Some((element, _)) = left.or(right) else {
            return Ok(nodes);
        };
        nodes.push(element.clone(), inner.map_err(|errors| errors.under(&element))?);
    }
}

fn compare_group(list: &List<'_>, old: &[&Value], new: &[&Value]) -> Result<Nodes, TypeErrors> {
    let one = |items: &[&Value]| items.first().map(|item| whole(item, list.element)).transpose();
    match (old.len(), new.len()) {
        (0 | 1, 0 | 1) => compare(old.first().copied(), new.first().copied(), list.element),
        (2.., 2..) => Ok(Nodes::modified_if(!equal_all(old, new))),
        (2.., _) => {
            let added = one(new)?.unwrap_or_default();
            Ok(Nodes {
                added,
                removed: Node::LEAF,
                ..Nodes::default()
            })
        }
        _ => {
            let removed = one(old)?.unwrap_or_default();
            Ok(Nodes {
                removed,
                added: Node::LEAF,
                ..Nodes::default()
            })
        }
    }
}

/// Everything at and below a value that has nothing to be compared with.
fn whole(value: &Value, ty: TypeRef<'_>) -> Result<Node, TypeErrors> {
    let mut below = Set::new();
    match form(&ty.resolve(), value)? {
        Form::Map(map) if map.kind != MapKind::Atomic => {
            for (name, value) in members(value).into_iter().flatten() {
                let element = PathElement::field(name);
                let ty = map
                    .member(name)
                    .ok_or_else(|| TypeErrors::one("field not declared in schema").under(&element))?;
                let node = whole(value, ty).map_err(|errors| errors.under(&element))?;
                below.push(element, node);
            }
        }
        Form::List(list) if !list.is_atomic() => {
            for (element, items) in index_items(&list, items(value))? {
                let node = match &items[..] {
                    [item] => whole(item, list.element).map_err(|errors| errors.under(&element))?,
                    _ => Node::LEAF,
                };
                below.push(element, node);
            }
        }
        Form::Scalar(_) | Form::Map(_) | Form::List(_) => {}
    }
    Ok(Node { member: true, below })
}
