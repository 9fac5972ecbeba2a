//! The index from an organization to its projects and from a user to its memberships, so that a view's list costs what it
//! returns.
//!
//! Records without content in root, `mica.internal/{relation}/{whose}/{place}`, written in the transaction that writes the
//! object. What they are made of never changes while the object is there, so a record is right or its object is gone.

use mica_api::tenancy::{GROUP, MEMBERSHIPS, PROJECTS};
use mica_api::{GroupResource, PlaneId};
use mica_machinery::select::text_at;
use mica_store::{Key, KeyRange, PlaneKeys, Write};

use crate::registry::owner::{INTERNAL_GROUP, uid_part};

/// Stands for the slash of a place.
const SLASH: &str = "%";

/// Whose what is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    OrganizationProjects,
    UserMemberships,
}

impl Relation {
    /// The one that objects of a resource of root are in.
    fn of(key: &Key) -> Option<Self> {
        if key.plane() != PlaneId::ROOT {
            return None;
        }
        match key.resource().split_once('/')? {
            (GROUP, PROJECTS) => Some(Self::OrganizationProjects),
            (GROUP, MEMBERSHIPS) => Some(Self::UserMemberships),
            _ => None,
        }
    }

    fn records(self) -> GroupResource {
        let name = match self {
            Self::OrganizationProjects => "organizationprojects",
            Self::UserMemberships => "usermemberships",
        };
        GroupResource::new(INTERNAL_GROUP, name)
    }

    fn objects(self) -> GroupResource {
        let plural = match self {
            Self::OrganizationProjects => PROJECTS,
            Self::UserMemberships => MEMBERSHIPS,
        };
        GroupResource::new(GROUP, plural)
    }

    fn whose(self, json: &[u8]) -> Option<String> {
        let path: &[&str] = match self {
            Self::OrganizationProjects => &["spec", "ownerRef", "name"],
            Self::UserMemberships => &["spec", "userRef", "name"],
        };
        text_at(json, path).map(|text| uid_part(&text))
    }

    /// Everything that is somebody's.
    pub(crate) fn range(self, whose: &str) -> KeyRange {
        PlaneKeys::ROOT.namespace(&self.records(), &uid_part(whose))
    }

    /// The record of an object that is somebody's.
    pub(crate) fn record(self, whose: &str, object: &Key) -> Key {
        let place = object.rest().replace('/', SLASH);
        PlaneKeys::ROOT.object(&self.records(), Some(&uid_part(whose)), &place)
    }

    /// All objects, whosever they are.
    pub(crate) fn all(self) -> KeyRange {
        PlaneKeys::ROOT.resource(&self.objects())
    }

    /// Whether records are in the order of their objects. Those of objects in namespaces are not: what stands for the slash
    /// comes before other characters of names, and the slash itself after some.
    pub(crate) fn is_in_order(self) -> bool {
        match self {
            Self::OrganizationProjects => true,
            Self::UserMemberships => false,
        }
    }

    /// The object that a record is about.
    pub(crate) fn object(self, record: &Key) -> Key {
        let objects = self.objects();
        match record.name().split_once(SLASH) {
            Some((namespace, name)) => PlaneKeys::ROOT.object(&objects, Some(namespace), name),
            None => PlaneKeys::ROOT.object(&objects, None, record.name()),
        }
    }
}

/// What keeps the index true when the object at a key changes.
pub fn writes(key: &Key, before: Option<&[u8]>, after: Option<&[u8]>) -> Vec<Write> {
    let Some(relation) = Relation::of(key) else {
        return Vec::new();
    };
    let whose = |json: Option<&[u8]>| json.and_then(|json| relation.whose(json));
    let record = |whose: &str| {
        let place = key.rest().replace('/', SLASH);
        PlaneKeys::ROOT.object(&relation.records(), Some(whose), &place)
    };
    let (before, after) = (whose(before), whose(after));
    if before == after {
        return Vec::new();
    }
    let gone = before.map(|whose| Write::Delete { key: record(&whose) });
    let put = after.map(|whose| Write::Put {
        key: record(&whose),
        value: bytes::Bytes::new(),
        ttl: None,
    });
    gone.into_iter().chain(put).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_written_with_its_object_and_leads_back_to_it() {
        let object = PlaneKeys::ROOT.object(&GroupResource::new(GROUP, MEMBERSHIPS), Some("organization-a"), "m");
        let json: &[u8] = br#"{"spec":{"userRef":{"name":"ann"}}}"#;
        let written = writes(&object, None, Some(json));
        let [Write::Put { key, .. }] = &written[..] else {
            panic!("{written:?}")
        };
        assert_eq!(*key, Relation::UserMemberships.record("ann", &object));
        assert_eq!(Relation::UserMemberships.object(key), object);
        assert!(Relation::UserMemberships.range("ann").contains(key));
        assert!(writes(&object, Some(json), Some(json)).is_empty());
        assert_eq!(writes(&object, Some(json), None), [Write::Delete { key: key.clone() }]);
    }

    #[test]
    fn objects_of_planes_are_in_no_index() {
        let keys = PlaneKeys::new(PlaneId::from_random(7));
        let object = keys.object(&GroupResource::new(GROUP, PROJECTS), None, "p");
        assert!(writes(&object, None, Some(br#"{"spec":{"ownerRef":{"name":"o"}}}"#)).is_empty());
    }
}
