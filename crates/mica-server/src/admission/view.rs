//! Objects as webhooks and policies see them: in the version that matched, in the JSON that clients of it would get.

use std::borrow::Cow;

use mica_machinery::codec;
use mica_machinery::facts::TypeId;
use mica_machinery::{object, patch};
use serde_json::Value;

use super::gate::Gate;
use crate::error::ApiError;
use crate::options::FieldValidation;
use crate::registry::to_stored;
use crate::scheme::Served;
use crate::serve::body;

/// What the objects of a request are.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// Objects of the resource itself.
    Resource,
    /// A kind of its own that is served as a resource, as Scale is.
    Own(&'a Served),
    /// A kind of its own that is nowhere served alone: its group, version and kind.
    Part(TypeId, [&'static str; 3]),
}

impl<'a> Gate<'a> {
    /// An object, as the registry holds it, in the version of `face`.
    pub(super) async fn shown<'v>(&self, face: &Served, held: &'v Value) -> Result<Cow<'v, Value>, ApiError> {
        let target = &self.grant.target;
        if !matches!(self.subject, Subject::Resource) {
            return Ok(Cow::Borrowed(held));
        }
        if let Some(kind) = face.custom_kind() {
            if face.version() == target.served.version() {
                return Ok(Cow::Borrowed(held));
            }
            let converting =
                self.registry
                    .in_manager_version(&target.plane, target.definition.as_ref(), kind, held.clone());
            return converting.await.map(Cow::Owned);
        }
        let mut shown = match face.face() {
            Some(stored) => (stored.from_stored)(held.clone()),
            None if face.api_version == object::string(held, &["apiVersion"]) => return Ok(Cow::Borrowed(held)),
            None => held.clone(),
        };
        let map = object::object_mut(&mut shown);
        map.insert("kind".to_owned(), face.kind().into());
        map.insert("apiVersion".to_owned(), face.api_version.as_str().into());
        Ok(Cow::Owned(shown))
    }

    /// The JSON of an object in the version of `face`.
    pub(super) async fn json(&self, face: &Served, held: &Value) -> Result<Vec<u8>, ApiError> {
        let shown = self.shown(face, held).await?;
        let mut json = Vec::with_capacity(1024);
        match self.subject {
            Subject::Resource => face.encode(&shown, &mut json),
            Subject::Own(served) => served.encode(&shown, &mut json),
            Subject::Part(ty, _) => codec::encode(ty, &shown, &mut json),
        }
        Ok(json)
    }

    /// The object that JSON in the version of `face` stands for, with its defaults, as the registry holds it.
    pub(super) async fn held(&self, face: &Served, json: &[u8]) -> Result<Value, ApiError> {
        let unread = |why: String| ApiError::internal(&why);
        let ignore = FieldValidation::Ignore;
        match self.subject {
            Subject::Resource => {
                let wanted = crate::serve::object::wanted(face);
                let mut object = body::read_kind(json, wanted, ignore).map_err(unread)?.object;
                if face.stores_as_served() {
                    face.strategy().default(&mut object);
                }
                let target = &self.grant.target;
                match (face.custom_kind(), target.served.custom_kind()) {
                    (Some(_), Some(kind)) if face.version() != target.served.version() => {
                        self.registry
                            .in_manager_version(&target.plane, target.definition.as_ref(), kind, object)
                            .await
                    }
                    _ => Ok(to_stored(face, object)),
                }
            }
            Subject::Own(served) => {
                let wanted = crate::serve::object::wanted(served);
                Ok(body::read_kind(json, wanted, ignore).map_err(unread)?.object)
            }
            Subject::Part(ty, [group, version, kind]) => {
                let wanted = body::Wanted {
                    group,
                    version,
                    kind,
                    rules: body::Rules::Known(ty),
                };
                Ok(body::read_kind(json, wanted, ignore).map_err(unread)?.object)
            }
        }
    }
}

/// JSON that was just encoded, as a tree.
pub(super) fn tree(json: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(json).map_err(|error| ApiError::internal("an object could not be read back").because(error))
}

/// What a JSON patch makes of a document.
pub(super) fn patched(document: &[u8], changes: &[u8]) -> Result<Vec<u8>, patch::PatchError> {
    patch::json_patch(document, changes, patch::Strictness::Ignore).map(|patched| patched.document)
}
