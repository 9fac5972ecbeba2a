//! Objects as a server sends them: each is read on its own, so that one which does not fit its type costs nobody else.
//!
//! In an all-planes answer the objects of a kind come from planes with definitions of their own. Read as one list of a
//! type, a single object that does not fit would keep every plane's objects away.

use std::borrow::Cow;
use std::fmt::Debug;
use std::hash::Hash;

use compact_str::CompactString;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_json::value::RawValue;

use crate::request::{ClusterName, Request};

const PLANE: &str = "mica.dev/plane";
const PLANE_ID: &str = "mica.dev/plane-id";

/// A kind of object that can be watched and kept: any type of `k8s_openapi`, of `#[derive(CustomResource)]`,
/// [`PartialObjectMeta`](kube::core::PartialObjectMeta) of one (then only metadata is asked for and kept), or
/// [`DynamicObject`](kube::core::DynamicObject).
pub trait Object:
    Resource<DynamicType: Clone + Debug + Eq + Hash, Scope: 'static>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Eq + Hash,
    K::Scope: 'static,
{
}

/// One object of a list or an event.
#[derive(Clone, Debug)]
pub(crate) struct Item<K> {
    meta: ObjectMeta,
    read: Result<K, String>,
}

/// Which plane of an all-planes answer an object is from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlaneId(pub(crate) CompactString);

impl<K: Resource> Item<K> {
    /// The object, or why it could not be read. Managed fields are left out: nobody reconciles by them, and they are often
    /// the larger part.
    pub(crate) fn read(self) -> Result<K, String> {
        let mut object = self.read?;
        object.meta_mut().managed_fields = None;
        Ok(object)
    }

    /// Takes out what only all-planes answers have, so that objects are the same however they were read.
    pub(crate) fn take_origin(&mut self) -> Option<PlaneId> {
        let meta = match &mut self.read {
            Ok(object) => object.meta_mut(),
            Err(_) => &mut self.meta,
        };
        let annotations = meta.annotations.as_mut()?;
        annotations.remove(PLANE);
        let id = annotations.remove(PLANE_ID);
        if annotations.is_empty() {
            meta.annotations = None;
        }
        id.map(|id| PlaneId(id.into()))
    }

    pub(crate) fn request(&self, cluster: ClusterName) -> Request {
        let meta = self.meta();
        Request::new(
            cluster,
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(default)]
            metadata: ObjectMeta,
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str(raw.get()) {
            Ok(object) => Ok(Self {
                meta: ObjectMeta::default(),
                read: Ok(object),
            }),
            Err(error) => {
                let named: Named = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
                Ok(Self {
                    meta: named.metadata,
                    read: Err(error.to_string()),
                })
            }
        }
    }
}

impl<K: Resource> Resource for Item<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn api_version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::api_version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn url_path(of: &Self::DynamicType, namespace: Option<&str>) -> String {
        K::url_path(of, namespace)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.read {
            Ok(object) => object.meta(),
            Err(_) => &self.meta,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.read {
            Ok(object) => object.meta_mut(),
            Err(_) => &mut self.meta,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::WatchEvent;
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;

    fn plane_object(data: serde_json::Value) -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {
                "name": "x", "namespace": "ns", "resourceVersion": "7",
                "annotations": {PLANE: "p", PLANE_ID: "0123456789ab"},
                "managedFields": [{"manager": "me", "operation": "Update"}],
            },
        })
    }

    #[test]
    fn an_object_that_does_not_fit_its_type_is_named_and_the_others_are_read() {
        let list = json!({
            "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "9"},
            "items": [plane_object(json!({"a": "b"})), plane_object(json!("not a map"))],
        });
        let list: ObjectList<Item<ConfigMap>> = serde_json::from_str(&list.to_string()).unwrap();
        let [good, bad] = <[_; 2]>::try_from(list.items).unwrap();
        for mut item in [good.clone(), bad.clone()] {
            assert_eq!(item.take_origin(), Some(PlaneId("0123456789ab".into())));
            assert_eq!(
                item.request(ClusterName::new("c")),
                Request::new(ClusterName::new("c"), Some("ns"), "x")
            );
            assert_eq!(item.meta().resource_version.as_deref(), Some("7"));
        }
        assert!(bad.read().is_err());
        let mut good = good;
        good.take_origin();
        let object = good.read().unwrap();
        assert_eq!(
            (object.metadata.annotations, object.metadata.managed_fields),
            (None, None)
        );
        assert_eq!(object.data.unwrap()["a"], "b");
    }

    #[test]
    fn events_are_read_as_lists_are() {
        // Servers send the type first; the other way round an event could only be read whole.
        let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, plane_object(json!({"a": "b"})));
        let event: WatchEvent<Item<ConfigMap>> = serde_json::from_str(&event).unwrap();
        let WatchEvent::Modified(item) = event else {
            panic!("a change");
        };
        assert_eq!(item.read().unwrap().data.unwrap()["a"], "b");
    }
}
