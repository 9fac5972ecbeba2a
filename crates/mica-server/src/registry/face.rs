//! The versions that a kind is written in, as managed fields compare them: the faces of a built-in one, the versions of a
//! custom one.
//!
//! Managed fields are computed without waiting for anybody. Where only a webhook can make an object of another version, what
//! is missing is noted ([`Asked`]), the webhook is asked, and the computation starts over with its answers.

use mica_machinery::managed::{self, Versioned, Versions};
use mica_machinery::object;
use parking_lot::Mutex;
use serde_json::Value;

use super::Registry;
use super::convert::converts_by_webhook;
use super::form::to_stored;
use crate::authz::Target;
use crate::custom::Definition;
use crate::error::ApiError;
use crate::scheme::Served;

/// Times that a computation may start over: each finds what depends on the answers before, and there are few such steps.
pub(super) const CONVERSION_ROUNDS: usize = 8;

/// Objects in other versions, known or wanted.
#[derive(Default)]
pub(super) struct Asked {
    known: Vec<(Value, String, Value)>,
    wanted: Mutex<Vec<(Value, String)>>,
}

impl Asked {
    fn find(&self, object: &Value, api_version: &str) -> Option<Value> {
        let is = |(from, version, _): &&(Value, String, Value)| version == api_version && from == object;
        if let Some((_, _, converted)) = self.known.iter().find(is) {
            return Some(converted.clone());
        }
        let mut wanted = self.wanted.lock();
        let new = (object.clone(), api_version.to_owned());
        if !wanted.contains(&new) {
            wanted.push(new);
        }
        None
    }
}

impl Target {
    /// Asks for what was wanted; false if nothing was.
    pub(super) async fn answer(&self, registry: &Registry, asked: &mut Asked) -> Result<bool, ApiError> {
        let wanted = std::mem::take(asked.wanted.get_mut());
        let any = !wanted.is_empty();
        for (object, api_version) in wanted {
            let mut versions = self.definition.iter().flat_map(Definition::versions);
            let kind = versions.find_map(|other| other.custom_kind().filter(|_| other.api_version == api_version));
            let kind = kind.ok_or_else(|| ApiError::internal("a version that was there is gone"))?;
            let definition = self.definition.as_ref();
            let converted = registry
                .in_manager_version(&self.plane, definition, kind, object.clone())
                .await?;
            asked.known.push((object, api_version, converted));
        }
        Ok(any)
    }
}

pub(super) struct Faces<'a> {
    pub served: &'a Served,
    pub target: &'a Target,
    pub asked: &'a Asked,
}

impl Versions for Faces<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Option<Versioned<'_>> {
        if let Some(definition) = &self.target.definition {
            let other = definition.versions().find(|other| other.api_version == api_version)?;
            let object = if self.served.custom_kind().is_some_and(converts_by_webhook)
                && object::string(object, &["apiVersion"]) != api_version
            {
                self.asked.find(object, api_version)?
            } else {
                let mut object = object.clone();
                object::set(&mut object, &["apiVersion"], api_version);
                object
            };
            return Some(Versioned {
                object,
                schema: other.merge_type(),
                reset: managed::Set::of_fields(other.strategy().reset_fields(&self.target.subresource)),
            });
        }
        let other = self.target.plane.scheme.iter().find(|other| {
            other.storage == self.served.storage
                && other.kind() == self.served.kind()
                && other.api_version == api_version
        })?;
        let stored = to_stored(self.served, object.clone());
        let object = match other.face() {
            Some(face) => (face.from_stored)(stored),
            None => stored,
        };
        Some(Versioned {
            object,
            schema: other.merge_type(),
            reset: managed::Set::of_fields(&[]),
        })
    }
}
