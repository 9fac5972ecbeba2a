//! Where keys lie in etcd. `docs/design/etcd-store.md` draws the map.
//!
//! Objects lie resource first (`{prefix}/o/{group}/{resource}/{plane}/{rest}`) so that a resource of all planes is one
//! stretch of keys. A second table (`{prefix}/i/{plane}/{group}/{resource}/`) has an entry for every resource that a plane
//! may hold objects of; it is what makes reading and dropping one plane cost what the plane holds.
//!
//! Invariants: within each stretch etcd's order is the order of [`Key`]s, and so is the order of index entries. Both rest
//! on every part being followed by a slash, also the last part of an index entry: `a-b/` precedes `a/`, but `a` precedes
//! `a-b`. Whoever puts an object makes sure, in the same transaction, that its index entry exists.

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};

use crate::key::{Key, KeyRange};

/// The version of this layout, stored at [`Layout::format`]. Another version is refused.
pub const FORMAT: &str = "mica-etcd-1";

#[derive(Clone, Debug)]
pub struct Layout {
    prefix: String,
    objects: String,
    index: String,
}

/// All keys from `start` up to, not including, `end`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    pub start: Bytes,
    pub end: Bytes,
}

impl Span {
    /// Every key that begins with `text`, which ends with a slash.
    fn below(text: String) -> Self {
        debug_assert!(text.ends_with('/'));
        Self {
            end: past(&text),
            start: text.into(),
        }
    }

    /// One key.
    pub fn only(key: Bytes) -> Self {
        Self {
            end: successor(&key),
            start: key,
        }
    }

    /// What is left of the span after the key `last`.
    pub fn after(&self, last: &[u8]) -> Self {
        Self {
            start: successor(last),
            end: self.end.clone(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    fn empty() -> Self {
        Self {
            start: Bytes::new(),
            end: Bytes::new(),
        }
    }
}

/// A span of objects, or the index entries whose resources make up the range, in order.
pub enum Place {
    Contiguous(Span),
    Indexed(Span),
}

impl Layout {
    pub fn new(prefix: &str) -> Self {
        Self {
            objects: format!("{prefix}/o/"),
            index: format!("{prefix}/i/"),
            prefix: prefix.to_owned(),
        }
    }

    /// Everything of ours.
    pub fn whole(&self) -> Span {
        Span::below(format!("{}/", self.prefix))
    }

    pub fn format(&self) -> Bytes {
        self.own("format")
    }

    /// Written together with every dropped plane; its value names the planes.
    pub fn dropped(&self) -> Bytes {
        self.own("dropped")
    }

    /// Written only so that its event shows how far the watch has come.
    pub fn heartbeat(&self) -> Bytes {
        self.own("heartbeat")
    }

    /// By whose versions servers agree which of them compacts.
    pub fn compaction(&self) -> Bytes {
        self.own("compaction")
    }

    fn own(&self, name: &str) -> Bytes {
        format!("{}/{name}", self.prefix).into()
    }

    pub fn object(&self, key: &Key) -> Bytes {
        format!("{}{}/{}/{}", self.objects, key.resource(), key.plane(), key.rest()).into()
    }

    /// Reads a key back. `None` for keys that are not objects.
    pub fn parse_object(&self, stored: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(stored).ok()?.strip_prefix(&self.objects)?;
        let mut parts = text.splitn(4, '/');
        let (group, resource, plane, rest) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Key::from_stored(&format!("{plane}/{group}/{resource}/{rest}"))
    }

    /// Every object of a plane's resource.
    pub fn resource(&self, plane: PlaneId, resource: &GroupResource) -> Span {
        Span::below(format!("{}{}/{plane}/", self.objects, resource.as_key()))
    }

    pub fn index_entry(&self, plane: PlaneId, resource: &GroupResource) -> Bytes {
        format!("{}{plane}/{}/", self.index, resource.as_key()).into()
    }

    /// The index entries of all planes.
    pub fn index(&self) -> Span {
        Span::below(self.index.clone())
    }

    /// The index entries of one plane.
    pub fn index_of(&self, plane: PlaneId) -> Span {
        Span::below(format!("{}{plane}/", self.index))
    }

    pub fn parse_index_entry(&self, stored: &[u8]) -> Option<(PlaneId, GroupResource)> {
        let text = std::str::from_utf8(stored)
            .ok()?
            .strip_prefix(&self.index)?
            .strip_suffix('/')?;
        let mut parts = text.splitn(3, '/');
        let (plane, group, resource) = (parts.next()?, parts.next()?, parts.next()?);
        let good = !resource.is_empty() && !resource.contains('/');
        good.then(|| Some((PlaneId::parse(plane).ok()?, GroupResource::new(group, resource))))?
    }

    /// Where the keys of `range` that are greater than `after` lie.
    pub fn place(&self, range: &KeyRange, after: Option<&Key>) -> Place {
        match range {
            KeyRange::All | KeyRange::Plane(_) => Place::Indexed(self.index_place(range.plane(), after)),
            KeyRange::AllPlanes(resource) => Place::Contiguous(self.all_planes(resource, after)),
            KeyRange::Resource(..) | KeyRange::Namespace(..) => Place::Contiguous(self.within_resource(range, after)),
            KeyRange::One(key) if after.is_some_and(|after| after >= key) => Place::Contiguous(Span::empty()),
            KeyRange::One(key) => Place::Contiguous(Span::only(self.object(key))),
        }
    }

    fn within_resource(&self, range: &KeyRange, after: Option<&Key>) -> Span {
        let prefix = range.prefix().expect("these ranges have a prefix");
        let mut parts = prefix.splitn(4, '/');
        let mut part = || parts.next().expect("these prefixes have four parts");
        let (plane, group, resource, rest) = (part(), part(), part(), part());
        let span = Span::below(format!("{}{group}/{resource}/{plane}/{rest}", self.objects));
        match after {
            Some(after) if after.as_str().starts_with(&prefix) => span.after(&self.object(after)),
            Some(after) if *after.as_str() > *prefix => Span::empty(),
            _ => span,
        }
    }

    /// Planes come first in the order of keys, so `after` may be of another resource and still cut this one in its plane.
    fn all_planes(&self, resource: &GroupResource, after: Option<&Key>) -> Span {
        let span = Span::below(format!("{}{}/", self.objects, resource.as_key()));
        let Some(after) = after else { return span };
        let plane = self.resource(after.plane(), resource);
        let (here, there) = (format!("{}/", resource.as_key()), format!("{}/", after.resource()));
        let start = match there.cmp(&here) {
            std::cmp::Ordering::Less => plane.start,
            std::cmp::Ordering::Equal => return span.after(&self.object(after)),
            std::cmp::Ordering::Greater => plane.end,
        };
        Span { start, end: span.end }
    }

    /// The entry of `after`'s own resource is included: the resource may go on after it.
    fn index_place(&self, plane: Option<PlaneId>, after: Option<&Key>) -> Span {
        let span = match plane {
            Some(plane) => self.index_of(plane),
            None => self.index(),
        };
        let Some(after) = after else { return span };
        let start = self.index_entry(after.plane(), &after.group_resource()).max(span.start);
        Span { start, end: span.end }
    }
}

/// The first key that does not begin with `text`, and is greater.
fn past(text: &str) -> Bytes {
    let mut end = text.as_bytes().to_vec();
    *end.last_mut().expect("a prefix is not empty") += 1;
    end.into()
}

/// The smallest key greater than `key`.
fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PlaneKeys;

    /// Names whose order changes when the separator does: `-` and `.` precede the slash, digits and letters follow it.
    fn keys() -> Vec<Key> {
        let planes = [
            PlaneId::ROOT,
            PlaneId::parse("root00000000").unwrap(),
            PlaneId::from_random(7),
        ];
        let resources = [
            ("", "cm"),
            ("", "cm-x"),
            ("", "cmx"),
            ("a", "cm"),
            ("a.b", "cm"),
            ("a-b", "cm"),
            ("ab", "c"),
        ];
        let rests = [
            (None, "a"),
            (None, "a-b"),
            (Some("a"), "x"),
            (Some("a-b"), "x"),
            (Some("a.b"), "x"),
            (Some("ab"), "x"),
        ];
        let mut all = Vec::new();
        for plane in planes {
            for (group, resource) in resources {
                let resource = GroupResource::new(group, resource);
                all.extend(rests.map(|(ns, name)| PlaneKeys::new(plane).object(&resource, ns, name)));
            }
        }
        all.sort();
        all
    }

    /// Every range that holds one of the keys, once.
    fn ranges(keys: &[Key]) -> std::collections::HashSet<KeyRange> {
        let mut all = std::collections::HashSet::from([KeyRange::All]);
        for key in keys {
            let (plane, resource) = (PlaneKeys::new(key.plane()), key.group_resource());
            all.extend([
                plane.all(),
                plane.resource(&resource),
                KeyRange::AllPlanes(resource.clone()),
            ]);
            all.extend(key.namespace().map(|namespace| plane.namespace(&resource, namespace)));
            all.insert(KeyRange::One(key.clone()));
        }
        all
    }

    /// A sorted list of stored keys, in place of etcd.
    struct Stored {
        layout: Layout,
        objects: Vec<(Bytes, Key)>,
        entries: Vec<Bytes>,
    }

    impl Stored {
        fn new(keys: &[Key]) -> Self {
            let layout = Layout::new("/mica");
            let mut objects: Vec<_> = keys.iter().map(|key| (layout.object(key), key.clone())).collect();
            objects.sort();
            let entry = |key: &Key| layout.index_entry(key.plane(), &key.group_resource());
            let entries: std::collections::BTreeSet<_> = keys.iter().map(entry).collect();
            Self {
                entries: entries.into_iter().collect(),
                objects,
                layout,
            }
        }

        /// What the backend does with a place.
        fn read(&self, range: &KeyRange, after: Option<&Key>) -> Vec<&Key> {
            match self.layout.place(range, after) {
                Place::Contiguous(span) => {
                    let inside = self
                        .objects
                        .iter()
                        .filter(|(stored, _)| *stored >= span.start && *stored < span.end);
                    inside.map(|(_, key)| key).collect()
                }
                Place::Indexed(span) => {
                    let inside = self
                        .entries
                        .iter()
                        .filter(|entry| **entry >= span.start && **entry < span.end);
                    let resources = inside.map(|entry| self.layout.parse_index_entry(entry).unwrap());
                    let pieces = resources.map(|(plane, resource)| KeyRange::Resource(plane, resource));
                    pieces.flat_map(|piece| self.read(&piece, after)).collect()
                }
            }
        }
    }

    #[test]
    fn every_range_is_read_in_the_order_of_keys_from_any_start() {
        let all = keys();
        let stored = Stored::new(&all);
        assert!(
            stored
                .objects
                .iter()
                .all(|(bytes, key)| stored.layout.parse_object(bytes).as_ref() == Some(key))
        );
        for range in ranges(&all) {
            let inside: Vec<_> = all.iter().filter(|key| range.contains(key)).collect();
            for after in std::iter::once(None).chain(all.iter().map(Some)) {
                let expected = &inside[inside.partition_point(|key| Some(*key) <= after)..];
                assert_eq!(stored.read(&range, after), expected, "{range:?} after {after:?}");
            }
        }
    }

    #[test]
    fn only_objects_are_read_back_as_objects() {
        let layout = Layout::new("/mica");
        for other in [
            layout.format(),
            layout.dropped(),
            layout.heartbeat(),
            layout.whole().start,
        ] {
            assert_eq!(layout.parse_object(&other), None);
            assert_eq!(layout.parse_index_entry(&other), None);
        }
        let entry = layout.index_entry(PlaneId::ROOT, &GroupResource::new("", "cm"));
        assert_eq!(entry, "/mica/i/root//cm/");
        assert_eq!(layout.parse_object(&entry), None);
        assert_eq!(layout.parse_object(b"/mica/o//cm/root/"), None);
        assert_eq!(layout.parse_object(b"/mica/o//cm/nobody/a"), None);
    }
}
