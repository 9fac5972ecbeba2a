//! Keys and ranges of keys.
//!
//! A key's text is `{plane}/{group}/{resource}/{rest}`, where rest is `{namespace}/{name}` or `{name}`. The slash is the
//! separator because it is upstream's: lists come in key order, and clients can see that `a-b/x` precedes `a/x`.
//! Backends may lay keys out otherwise on disk, but every range is listed in the order of its `Key`s.
//!
//! Invariant: a key always carries its plane's id, and only [`PlaneKeys`], the handle scoped to one plane, makes keys
//! from names. ([`Key::from_stored`] is for backends that read their own bytes back.)

use std::fmt;
use std::sync::Arc;

use mica_api::{GroupResource, PlaneId};

/// The place of one object. Ordered by its text. Clones share it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Reads back a key that [`Key::as_str`] gave. `None` if it lacks a part.
    pub fn from_stored(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, '/');
        let plane = parts.next()?;
        let (_group, resource, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let whole = PlaneId::parse(plane).is_ok() && !resource.is_empty() && !rest.is_empty();
        whole.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its text, without a copy.
    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    pub fn plane(&self) -> PlaneId {
        PlaneId::parse(self.part(0, 1)).expect("a key begins with a plane id")
    }

    /// `group/resource`.
    pub fn resource(&self) -> &str {
        self.part(1, 3)
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.part(1, 2), self.part(2, 3))
    }

    /// `namespace/name` or `name`.
    pub fn rest(&self) -> &str {
        &self.0[self.slash(3) + 1..]
    }

    /// The namespace, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.rest().split_once('/').map(|(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.rest().rsplit('/').next().expect("rsplit yields at least one part")
    }

    /// Position of the nth slash, counted from 1.
    fn slash(&self, nth: usize) -> usize {
        self.0
            .bytes()
            .enumerate()
            .filter(|(_, b)| *b == b'/')
            .nth(nth - 1)
            .expect("a key has three slashes")
            .0
    }

    fn part(&self, from: usize, to: usize) -> &str {
        let start = if from == 0 { 0 } else { self.slash(from) + 1 };
        &self.0[start..self.slash(to)]
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Makes the keys and ranges of one plane, and of no other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaneKeys(PlaneId);

impl PlaneKeys {
    /// The root plane's.
    pub const ROOT: Self = Self(PlaneId::ROOT);

    pub fn new(plane: PlaneId) -> Self {
        Self(plane)
    }

    pub fn plane(&self) -> PlaneId {
        self.0
    }

    /// The key of an object. Namespace and name must already be checked to hold no slash and not to be empty.
    pub fn object(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Key {
        debug_assert!(
            !name.is_empty() && !name.contains('/'),
            "name {name:?} cannot be part of a key"
        );
        let parts = [self.0.as_str(), resource.as_key()];
        let parts = parts.into_iter().chain(namespace).chain([name]);
        let mut text = String::with_capacity(parts.clone().map(|part| part.len() + 1).sum::<usize>() - 1);
        for part in parts {
            if !text.is_empty() {
                text.push('/');
            }
            text.push_str(part);
        }
        Key(text.into())
    }

    /// Everything in the plane.
    pub fn all(&self) -> KeyRange {
        KeyRange::Plane(self.0)
    }

    /// Every object of a resource.
    pub fn resource(&self, resource: &GroupResource) -> KeyRange {
        KeyRange::Resource(self.0, resource.clone())
    }

    /// Every object of a resource in one namespace.
    pub fn namespace(&self, resource: &GroupResource, namespace: &str) -> KeyRange {
        KeyRange::Namespace(self.0, resource.clone(), namespace.into())
    }
}

/// A set of keys that a backend can scan at a cost in proportion to what it holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeyRange {
    /// Every key, ordered by key.
    All,
    /// Every key of one plane, ordered by key.
    Plane(PlaneId),
    /// One resource of one plane, ordered by key.
    Resource(PlaneId, GroupResource),
    /// One resource in one namespace of one plane, ordered by key.
    Namespace(PlaneId, GroupResource, Box<str>),
    /// One resource in every plane, root included, ordered by key.
    AllPlanes(GroupResource),
    /// One object, or nothing.
    One(Key),
}

impl KeyRange {
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::AllPlanes(resource) => key.resource() == resource.as_key(),
            Self::One(one) => one == key,
            Self::Plane(_) | Self::Resource(..) | Self::Namespace(..) => key
                .as_str()
                .starts_with(&self.prefix().expect("these ranges have a prefix")),
        }
    }

    /// The plane that holds the whole range, if one does.
    pub fn plane(&self) -> Option<PlaneId> {
        match self {
            Self::All | Self::AllPlanes(_) => None,
            Self::Plane(plane) | Self::Resource(plane, _) | Self::Namespace(plane, ..) => Some(*plane),
            Self::One(key) => Some(key.plane()),
        }
    }

    /// The text that every key of the range begins with, where the range is all keys with one beginning.
    pub fn prefix(&self) -> Option<String> {
        match self {
            Self::All => Some(String::new()),
            Self::Plane(plane) => Some(format!("{plane}/")),
            Self::Resource(plane, resource) => Some(format!("{plane}/{}/", resource.as_key())),
            Self::Namespace(plane, resource, namespace) => Some(format!("{plane}/{}/{namespace}/", resource.as_key())),
            Self::AllPlanes(_) | Self::One(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_its_parts() {
        let plane = PlaneId::from_random(7);
        let keys = PlaneKeys::new(plane);
        let core = GroupResource::new("", "configmaps");
        let namespaced = keys.object(&core, Some("ns"), "a");
        assert_eq!(namespaced.as_str(), format!("{plane}//configmaps/ns/a"));
        assert_eq!(namespaced.plane(), plane);
        assert_eq!(namespaced.resource(), "/configmaps");
        assert_eq!(namespaced.group_resource(), core);
        assert_eq!((namespaced.namespace(), namespaced.name()), (Some("ns"), "a"));
        let roles = GroupResource::new("rbac.authorization.k8s.io", "clusterroles");
        let cluster_scoped = keys.object(&roles, None, "system:admin");
        assert_eq!(
            (cluster_scoped.namespace(), cluster_scoped.name()),
            (None, "system:admin")
        );
        assert_eq!(Key::from_stored(cluster_scoped.as_str()), Some(cluster_scoped));
        assert_eq!(Key::from_stored("root//configmaps"), None);
        assert_eq!(Key::from_stored("nope//configmaps/a"), None);
    }

    #[test]
    fn ranges_contain_what_they_say() {
        let (one, other) = (
            PlaneKeys::new(PlaneId::from_random(1)),
            PlaneKeys::new(PlaneId::from_random(2)),
        );
        let (cm, cms) = (GroupResource::new("", "cm"), GroupResource::new("", "cms"));
        let key = one.object(&cm, Some("ns"), "a");
        for range in [
            KeyRange::All,
            one.all(),
            one.resource(&cm),
            one.namespace(&cm, "ns"),
            KeyRange::AllPlanes(cm.clone()),
        ] {
            assert!(range.contains(&key), "{range:?}");
        }
        for range in [
            other.all(),
            one.resource(&cms),
            one.namespace(&cm, "n"),
            other.resource(&cm),
            KeyRange::AllPlanes(cms),
        ] {
            assert!(!range.contains(&key), "{range:?}");
        }
    }
}
