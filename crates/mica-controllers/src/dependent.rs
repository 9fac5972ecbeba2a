//! Who names an object as its owner.

use async_trait::async_trait;

use crate::api::{Api, Refusal};
use crate::follow::OBJECTS;
use crate::meta::{Object, What};
use crate::place::{Place, query_value};

/// Finds the dependents of an owner.
#[async_trait]
pub trait Dependents: Send + Sync + 'static {
    /// Those that name an owner, by its uid.
    async fn of(&self, place: &Place, uid: &str) -> Result<Vec<Object>, Refusal>;

    /// The same for an owner that goes as soon as there are none: none may be missed that was there when it was marked.
    async fn of_going(&self, owner: &Object) -> Result<Vec<Object>, Refusal>;
}

/// The index of owners that a Mica server keeps. Its answers are of what is stored now.
pub struct ServerIndex {
    pub api: Api,
}

#[async_trait]
impl Dependents for ServerIndex {
    async fn of(&self, place: &Place, uid: &str) -> Result<Vec<Object>, Refusal> {
        let path = format!("{}{OBJECTS}", place.prefix());
        let query = format!(
            "fieldSelector={}",
            query_value(&format!("metadata.ownerReferences.uid={uid}"))
        );
        let found = match self.api.list_metadata(&path, &query).await {
            Ok(found) => found.items,
            // The plane is gone.
            Err(refusal) if refusal.is_not_found() => return Ok(Vec::new()),
            Err(refusal) => return Err(refusal),
        };
        let object = |partial: crate::api::Partial| {
            let mut meta = partial.metadata;
            let marks = &mut meta.annotations;
            let what = What {
                api_version: marks.api_version.take()?,
                kind: marks.kind.take()?,
                resource: marks.resource.take()?,
            };
            (marks.plane, marks.plane_id) = (None, None);
            Some(Object {
                place: place.clone(),
                what,
                meta,
            })
        };
        Ok(found.into_iter().filter_map(object).collect())
    }

    async fn of_going(&self, owner: &Object) -> Result<Vec<Object>, Refusal> {
        self.of(&owner.place, &owner.meta.uid).await
    }
}
