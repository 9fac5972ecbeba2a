//! Sets of fields, and what can be done with them.
//!
//! A set is a tree: each entry is a step that is a member itself, or has members below it, or both.
//! Invariant: entries are sorted and unique, and none is there for nothing.

use super::path::{Path, PathElement};
use super::schema::TypeRef;

/// A set of paths into an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Set {
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) element: PathElement,
    pub(super) node: Node,
}

/// What a set holds at and below one path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Node {
    /// Whether the path itself is in the set.
    pub(super) member: bool,
    pub(super) below: Set,
}

impl Node {
    pub(super) const LEAF: Self = Self {
        member: true,
        below: Set::new(),
    };

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            member: self.member || other.member,
            below: self.below.union(&other.below),
        }
    }
}

impl Set {
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// A set of paths of field names.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.iter().map(|name| PathElement::field(name)).collect::<Vec<_>>());
        }
        set
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Appends an entry that sorts after all others; an empty node adds nothing.
    pub(super) fn push(&mut self, element: PathElement, node: Node) {
        debug_assert!(
            self.entries.last().is_none_or(|last| last.element < element),
            "entries are pushed in order"
        );
        if !node.is_empty() {
            self.entries.push(Entry { element, node });
        }
    }

    /// A set of nodes at elements in any order, those at one element merged.
    pub(super) fn from_unsorted(mut nodes: Vec<(PathElement, Node)>) -> Self {
        nodes.retain(|(_, node)| !node.is_empty());
        nodes.sort_by(|a, b| a.0.cmp(&b.0));
        let mut entries: Vec<Entry> = Vec::with_capacity(nodes.len());
        for (element, node) in nodes {
            match entries.last_mut().filter(|last| last.element == element) {
                Some(last) => last.node = std::mem::take(&mut last.node).union(node),
                None => entries.push(Entry { element, node }),
            }
        }
        Self { entries }
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.element.cmp(element))
    }

    /// Adds a path; not its parents. The empty path, the object itself, belongs to nobody.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let at = match self.find(first) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(
                    at,
                    Entry {
                        element: first.clone(),
                        node: Node::default(),
                    },
                );
                at
            }
        };
        let node = &mut self.entries[at].node;
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many paths are in the set.
    pub fn len(&self) -> usize {
        self.entries
            .iter()
            .map(|entry| usize::from(entry.node.member) + entry.node.below.len())
            .sum()
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.node(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.node(first).is_some_and(|node| node.below.has(rest)),
        }
    }

    pub(super) fn node(&self, element: &PathElement) -> Option<&Node> {
        self.find(element).ok().map(|at| &self.entries[at].node)
    }

    /// Every path in the set, parents before children.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    /// Members of one level first, then what is below them, as upstream walks.
    fn collect_paths(&self, prefix: &mut Path, paths: &mut Vec<Path>) {
        for entry in self.entries.iter().filter(|entry| entry.node.member) {
            prefix.push(entry.element.clone());
            paths.push(prefix.clone());
            prefix.pop();
        }
        for entry in &self.entries {
            prefix.push(entry.element.clone());
            entry.node.below.collect_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// What is in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, Alone::Kept, Alone::Kept, |a, b| Node {
            member: a.member || b.member,
            below: a.below.union(&b.below),
        })
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, Alone::Dropped, Alone::Dropped, |a, b| Node {
            member: a.member && b.member,
            below: a.below.intersection(&b.below),
        })
    }

    /// What is in this set but not in the other; a path in the other takes nothing below it away.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, Alone::Kept, Alone::Dropped, |a, b| Node {
            member: a.member && !b.member,
            below: a.below.difference(&b.below),
        })
    }

    /// What is in this set and neither in the other nor below something in it.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, Alone::Kept, Alone::Dropped, |a, b| Node {
            member: a.member && !b.member,
            below: if b.member {
                Self::new()
            } else {
                a.below.recursive_difference(&b.below)
            },
        })
    }

    /// Only paths that have nothing below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let mut leaves = Self::new();
        for entry in &self.entries {
            let member = entry.node.member && entry.node.below.is_empty();
            leaves.push(
                entry.element.clone(),
                Node {
                    member,
                    below: entry.node.below.leaves(),
                },
            );
        }
        leaves
    }

    /// Adds every struct field that has members below it. Keys of maps and items of lists are not added.
    #[must_use]
    pub fn with_named_fields(&self, ty: Option<TypeRef<'_>>) -> Self {
        let atom = ty.map(TypeRef::resolve).unwrap_or_default();
        let mut set = Self::new();
        for entry in &self.entries {
            let mut member = entry.node.member;
            let inner = match (&entry.element, atom.map, atom.list) {
                (PathElement::Field(name), Some(map), _) => {
                    let field = map.field(name);
                    member |= field.is_some() && !entry.node.below.is_empty();
                    field.or(map.element)
                }
                (PathElement::Key(_), _, Some(list)) => Some(list.element),
                _ => None,
            };
            set.push(
                entry.element.clone(),
                Node {
                    member,
                    below: entry.node.below.with_named_fields(inner),
                },
            );
        }
        set
    }

    /// Walks two sorted lists at once.
    fn combine(&self, other: &Self, left: Alone, right: Alone, both: impl Fn(&Node, &Node) -> Node) -> Self {
        let mut result = Self::new();
        let (mut a, mut b) = (self.entries.iter().peekable(), other.entries.iter().peekable());
        if right == Alone::Dropped && self.entries.len() < other.entries.len() / LOPSIDED {
            // One of thousands of managers against a large change: look up, do not walk.
            for entry in a {
                match other.node(&entry.element) {
                    Some(node) => result.push(entry.element.clone(), both(&entry.node, node)),
                    None if left == Alone::Kept => result.entries.push(entry.clone()),
                    None => {}
                }
            }
            return result;
        }
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => return result,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(x), Some(y)) => x.element.cmp(&y.element),
            };
            match order {
                std::cmp::Ordering::Less => result.entries.extend(a.next().filter(|_| left == Alone::Kept).cloned()),
                std::cmp::Ordering::Greater => result
                    .entries
                    .extend(b.next().filter(|_| right == Alone::Kept).cloned()),
                std::cmp::Ordering::Equal => {
                    if let (Some(x), Some(y)) = (a.next(), b.next()) {
                        result.push(x.element.clone(), both(&x.node, &y.node));
                    }
                }
            }
        }
    }
}

/// What becomes of an entry that only one of two sets has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alone {
    Kept,
    Dropped,
}

/// How much larger a set is than another for looking up to beat walking.
const LOPSIDED: usize = 16;
