//! Filling a plane with another's records.
//!
//! What is about objects (who owns what, which definitions serve what) is made anew from the objects: records of a snapshot
//! that say such things are not to be trusted.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Response, StatusCode};
use mica_machinery::{managed, object};
use mica_store::{Compare, Key, Record, Revision, Txn, Write};
use serde_json::{Value, json};

use super::format::{Item, damaged};
use crate::authz::Grant;
use crate::custom;
use crate::encode::{Encoder, Include, Media};
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::Output;
use crate::options::{DryRun, FieldValidation, WriteOptions};
use crate::plane::Plane;
use crate::plane::birth::BirthRecord;
use crate::plane::kind::RESTORING;
use crate::plane::layer::base_layers;
use crate::registry::owner::{index_writes, is_internal};
use crate::registry::{Managers, PatchRequest, Patched, WriteRequest, Written};
use crate::serve::{Server, respond};
use crate::stored::{Content, Stored};

/// Writes under way at once while a plane is filled.
const CONCURRENT_WRITES: usize = 64;

/// The key of a record in the plane that is filled. `None` for what no snapshot may bring.
pub(super) fn key_of(plane: &Plane, below: &str) -> Result<Option<Key>, ApiError> {
    let key = Key::from_stored(&format!("{}/{below}", plane.id)).ok_or_else(|| damaged("a key lacks a part"))?;
    if key.plane() != plane.id {
        return Err(damaged("a key leads out of the plane"));
    }
    Ok((!is_internal(&key)).then_some(key))
}

/// Takes in a base layer that goes ahead of the records which need it.
pub(super) async fn adopt_layer(server: &Server, key: &Key, value: Bytes) -> Result<(), ApiError> {
    let known = server.directory.layers().adopt(key.name(), value).await;
    known.map_err(|error| damaged("a base layer is not what its name says").because(error))
}

pub(super) fn is_layer(key: &Key) -> bool {
    key.group_resource() == base_layers()
}

/// A base layer's key is internal: it has to be told apart before [`key_of`] drops it.
pub(super) fn layer_key(plane: &Plane, below: &str) -> Option<Key> {
    Key::from_stored(&format!("{}/{below}", plane.id)).filter(is_layer)
}

/// The object in a value that came with a snapshot.
pub(super) fn object_in(value: &Bytes) -> Result<Option<Stored>, ApiError> {
    let content = Content::read(&Record {
        value: value.clone(),
        revision: Revision::default(),
    });
    Ok(content
        .map_err(|error| damaged("a record is no object").because(error))?
        .object())
}

/// Everything that goes with the change of one key.
pub(super) fn writes(
    plane: &Plane,
    key: Key,
    before: Option<&Stored>,
    value: Option<Bytes>,
) -> Result<Vec<Write>, ApiError> {
    let after = value.as_ref().map(object_in).transpose()?.flatten();
    let served = plane.scheme.by_storage(key.resource());
    let ttl = served.and_then(|served| served.strategy().ttl());
    let json = |stored: &Stored| stored.json().clone();
    let (before, after) = (before.map(json), after.as_ref().map(json));
    let along = index_writes(&key, before.as_deref(), after.as_deref(), ttl);
    let mut along = along.map_err(|error| damaged("an object cannot be read").because(error))?;
    if key.group_resource() == custom::definitions() {
        let served = custom::index::writes(&key, before.as_deref(), after.as_deref());
        along.extend(served.map_err(|error| damaged("a definition lacks a part").because(error))?);
        // It may have been copied before it was settled.
        along.push(custom::work::pending(&key));
    }
    let mut writes = vec![match value {
        Some(value) => Write::Put { key, value, ttl },
        None => Write::Delete { key },
    }];
    writes.extend(along);
    Ok(writes)
}

/// Writes records of a whole copy into a plane where they are not yet, many at once.
pub(super) async fn put_all(
    server: &Server,
    plane: &Plane,
    compares: &[Compare],
    items: Vec<Item>,
) -> Result<(), ApiError> {
    let puts = items.into_iter().map(|item| async move {
        let Some(value) = item.value else {
            return Err(damaged("a whole copy deletes nothing"));
        };
        if let Some(layer) = layer_key(plane, &item.below) {
            return adopt_layer(server, &layer, value).await;
        }
        let Some(key) = key_of(plane, &item.below)? else {
            return Ok(());
        };
        let txn = Txn {
            compares: compares.to_vec(),
            writes: writes(plane, key, None, Some(value))?,
        };
        server.store.commit(txn).await.map(drop).map_err(ApiError::from)
    });
    let mut puts = stream::iter(puts).buffer_unordered(CONCURRENT_WRITES);
    while let Some(put) = puts.next().await {
        put?;
    }
    Ok(())
}

/// A plane that is made to be filled with another's records.
pub(super) struct Filling {
    pub(super) server: Arc<Server>,
    grant: Grant,
    plane: Arc<Plane>,
}

impl Filling {
    /// Creates the plane, marked so that nobody uses it before it is whole.
    pub(super) async fn begin(
        server: Arc<Server>,
        mut grant: Grant,
        name: &str,
        birth: &BirthRecord,
    ) -> Result<Self, ApiError> {
        grant.target.subresource = compact_str::CompactString::default();
        grant.target.name = Some(name.into());
        let mut object = json!({"kind": "Plane", "apiVersion": "mica.dev/v1alpha1",
            "metadata": {"name": name, "annotations": {RESTORING: "true"}}});
        if let Some(profile) = birth.profile() {
            object::set(&mut object, &["spec", "profile"], profile.as_str());
        }
        let request = WriteRequest {
            object,
            managers: Managers::Recorded(managed::Request::Usual),
            options: plain_options(),
            manager: "mica".to_owned(),
        };
        server.registry.create(&grant, request).await?;
        let plane = server.directory.by_name(name).await?;
        Ok(Self { server, grant, plane })
    }

    pub(super) async fn write(&self, items: Vec<Item>) -> Result<(), ApiError> {
        put_all(&self.server, &self.plane, &[self.plane.fence()], items).await
    }

    /// Opens the plane for use, or takes it away again.
    pub(super) async fn end(
        self,
        copied: Result<(), ApiError>,
        birth: BirthRecord,
    ) -> Result<Response<Body>, ApiError> {
        let opened = match copied {
            Ok(()) => self.open(birth).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &opened
            && let Err(left) = self.discard().await
        {
            tracing::warn!(plane = self.plane.name.as_str(), %error, %left, "a plane that was only half filled is left behind");
        }
        opened
    }

    async fn open(&self, birth: BirthRecord) -> Result<Response<Body>, ApiError> {
        check_base(&self.server, &birth)?;
        self.server.directory.adopt_birth(&self.plane, birth.copied()).await?;
        let restored = |plane: &mut Value| drop(object::remove(plane, &["metadata", "annotations", RESTORING]));
        let Written { stored, .. } = change(&self.server, &self.grant, &restored).await?;
        answer(&self.grant, &stored, StatusCode::CREATED)
    }

    /// Takes the plane away with whatever it holds by now: no finalizer in it was ever anybody's to honour.
    async fn discard(&self) -> Result<(), ApiError> {
        let gone = |error: ApiError| {
            if error.code() == StatusCode::NOT_FOUND {
                Ok(())
            } else {
                Err(error)
            }
        };
        let options = mica_machinery::meta::DeleteOptions::default();
        self.server
            .registry
            .delete(&self.grant, &options)
            .await
            .map(drop)
            .or_else(gone)?;
        let release = |plane: &mut Value| drop(object::remove(plane, &["metadata", "finalizers"]));
        change(&self.server, &self.grant, &release)
            .await
            .map(drop)
            .or_else(gone)
    }
}

/// Refuses a birth whose base layer is nowhere.
pub(super) fn check_base(server: &Server, birth: &BirthRecord) -> Result<(), ApiError> {
    match server.directory.layers().known().get(birth.base()) {
        Some(_) => Ok(()),
        None => Err(damaged("it has no base layer, and this store does not know it")),
    }
}

/// Changes the Plane object that a grant is about.
pub(super) async fn change(
    server: &Server,
    grant: &Grant,
    change: &(dyn Fn(&mut Value) + Send + Sync),
) -> Result<Written, ApiError> {
    let patch = |document: &[u8]| -> Result<Patched, ApiError> {
        let mut plane: Value = serde_json::from_slice(document)
            .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
        change(&mut plane);
        Ok(Patched {
            object: plane,
            managers: Managers::Recorded(managed::Request::Usual),
            warnings: Vec::new(),
        })
    };
    let request = PatchRequest {
        patch: &patch,
        options: plain_options(),
        manager: "mica".to_owned(),
        view: None,
    };
    server.registry.patch(grant, request).await
}

/// A Plane, as an answer.
pub(super) fn answer(grant: &Grant, stored: &Stored, code: StatusCode) -> Result<Response<Body>, ApiError> {
    let media = Media {
        output: Output::JSON,
        include: Include::Metadata,
    };
    let bytes = Encoder::new(&grant.target.served, media).object(stored)?;
    Ok(respond(code, "application/json", Body::full(bytes)))
}

fn plain_options() -> WriteOptions {
    WriteOptions {
        dry_run: DryRun::No,
        field_manager: String::new(),
        field_validation: FieldValidation::Ignore,
        asked_validation: String::new(),
    }
}
