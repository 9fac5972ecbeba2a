//! What waits in the queue: an object to look at, or an owner that is gone.

use compact_str::CompactString;
use mica_runtime::Request;

use crate::meta::{Meta, Object, What};
use crate::place::Place;

/// Between the parts of an item's name, which none of them holds.
const BETWEEN: char = '|';

pub enum Item {
    /// Only what finds it again: its present state is asked for.
    Object(Box<Object>),
    /// The uid of what was deleted.
    Gone(String),
}

impl Item {
    pub fn object(object: &Object) -> Request {
        let (what, meta) = (&object.what, &object.meta);
        let parts = [&what.api_version, &what.kind, &what.resource, &meta.uid, &meta.name];
        let name = parts.map(CompactString::as_str).join(&BETWEEN.to_string());
        Request::new(object.place.cluster().clone(), meta.namespace.as_deref(), &name)
    }

    pub fn gone(object: &Object) -> Request {
        Request::new(object.place.cluster().clone(), None, &object.meta.uid)
    }

    pub fn read(request: &Request) -> Option<Self> {
        let mut parts = request.name.splitn(5, BETWEEN);
        let first = parts.next()?;
        let Some(kind) = parts.next() else {
            return Some(Self::Gone(first.to_owned()));
        };
        let what = What {
            api_version: first.into(),
            kind: kind.into(),
            resource: parts.next()?.into(),
        };
        let meta = Meta {
            uid: parts.next()?.into(),
            name: parts.next()?.into(),
            namespace: request.namespace.clone(),
            ..Meta::default()
        };
        Some(Self::Object(Box::new(Object {
            place: Place::of(&request.cluster),
            what,
            meta,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_leads_back_to_its_object() {
        let object = Object {
            place: Place::plane("p", "0123456789ab"),
            what: What {
                api_version: "a.io/v1".into(),
                kind: "X".into(),
                resource: "xs".into(),
            },
            meta: Meta {
                name: "system:a|b".into(),
                namespace: Some("ns".into()),
                uid: "u1".into(),
                ..Meta::default()
            },
        };
        let Some(Item::Object(read)) = Item::read(&Item::object(&object)) else {
            panic!("it is an object");
        };
        assert_eq!(*read, object);
        assert!(matches!(Item::read(&Item::gone(&object)), Some(Item::Gone(uid)) if uid == "u1"));
    }
}
