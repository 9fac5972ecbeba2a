//! The quotas of a namespace, and what its objects are as far as those count them.

use std::collections::BTreeMap;

use mica_machinery::admission::quota;
use mica_machinery::object;
use serde_json::Value;

use super::Quotas;
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

/// A group and a resource.
pub type Resource = (String, String);

/// What counts, read now. What is created meanwhile changes a quota, and then nothing of this is written.
#[derive(Default)]
pub struct Found {
    pub quotas: Vec<Value>,
    pub counted: BTreeMap<Resource, Counted>,
}

/// The objects of a resource.
pub enum Counted {
    /// How many there are: each counts as one.
    Plain(u64),
    /// What they use is in them.
    Whole(Vec<Value>),
}

impl Found {
    pub fn has_going_pods(&self) -> bool {
        let pods = self.counted.get(&(String::new(), "pods".to_owned()));
        let going = |pod: &Value| !object::string(pod, &["metadata", "deletionTimestamp"]).is_empty();
        matches!(pods, Some(Counted::Whole(pods)) if pods.iter().any(going))
    }
}

impl Quotas {
    pub(super) async fn observe(&self, place: &Place, namespace: &str) -> Result<Found, Refusal> {
        let path = place::collection(place, "v1", "resourcequotas", Some(namespace));
        let Some(listed) = self.api.list(&path, "").await.or_absent()? else {
            return Ok(Found::default());
        };
        let mut found = Found {
            quotas: listed.items,
            ..Found::default()
        };
        let mut wanted: Vec<Resource> = Vec::new();
        for quota in &found.quotas {
            let limited = object::map(quota, &["spec", "hard"]);
            for (name, _) in limited.into_iter().flatten() {
                if let Some((group, resource)) = quota::counted_by(name) {
                    wanted.push((group.to_owned(), resource.to_owned()));
                }
            }
        }
        wanted.sort();
        wanted.dedup();
        for resource in wanted {
            let counted = self.counted(place, namespace, &resource).await?;
            found.counted.insert(resource, counted);
        }
        Ok(found)
    }

    async fn counted(&self, place: &Place, namespace: &str, resource: &Resource) -> Result<Counted, Refusal> {
        let kinds = self.catalog.of(place).await?;
        let is_it = |what: &crate::meta::What| what.is(&resource.0, &resource.1);
        let Some(served) = kinds.preferred.iter().find(|served| is_it(&served.what)) else {
            // What is not served has no objects. When it is, each of them is charged.
            return Ok(Counted::Plain(0));
        };
        let path = place::collection(place, &served.what.api_version, &served.what.resource, Some(namespace));
        match quota::is_plain(&resource.0, &resource.1) {
            true => Ok(Counted::Plain(
                self.api.count(&path).await.or_absent()?.unwrap_or_default(),
            )),
            false => {
                let listed = self.api.list(&path, "").await.or_absent()?;
                Ok(Counted::Whole(listed.map(|listed| listed.items).unwrap_or_default()))
            }
        }
    }
}
