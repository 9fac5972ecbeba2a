//! One write as the steps of its pipeline see it: who writes, in which version, under which manager's name.

use std::sync::Arc;

use mica_machinery::field;
use mica_machinery::kind::WriteContext;
use mica_machinery::managed;
use mica_machinery::object;
use serde_json::Value;

use super::Registry;
use super::convert::converts_by_webhook;
use super::face::{Asked, CONVERSION_ROUNDS, Faces};
use super::write::{Managers, View};
use crate::authz::{Grant, Target};
use crate::error::ApiError;
use crate::options::WriteOptions;
use crate::scheme::Served;

/// One write as the steps see it.
pub(super) struct Step<'a> {
    pub(super) grant: &'a Grant,
    pub(super) options: &'a WriteOptions,
    manager: &'a str,
    pub(super) view: Option<&'a dyn View>,
    pub(super) now: jiff::Timestamp,
}

impl<'a> Step<'a> {
    pub(super) fn new(grant: &'a Grant, options: &'a WriteOptions, manager: &'a str) -> Self {
        Self {
            grant,
            options,
            manager,
            view: None,
            now: jiff::Timestamp::now(),
        }
    }

    pub(super) fn target(&self) -> &'a Target {
        &self.grant.target
    }

    pub(super) fn served(&self) -> &'a Arc<Served> {
        &self.grant.target.served
    }

    pub(super) fn context(&self) -> WriteContext<'a> {
        let (served, user) = (self.served(), &self.grant.user);
        WriteContext {
            now: self.now,
            subresource: &self.grant.target.subresource,
            group: served.group(),
            version: served.version(),
            user: user.as_kind(),
        }
    }

    /// Records this write in the managed fields of `new`, which is in the version of the request.
    pub(super) async fn record_manager(
        &self,
        registry: &Registry,
        live: Option<&Value>,
        new: &mut Value,
        managers: Managers,
    ) {
        let Managers::Recorded(asked) = managers else {
            return;
        };
        if !self.served().custom_kind().is_some_and(converts_by_webhook) {
            return self.try_write(&Asked::default(), |write| managed::update(live, new, asked, write));
        }
        let recorded = self.with_write(registry, |write| {
            let mut recorded = new.clone();
            managed::update(live, &mut recorded, asked, write);
            recorded
        });
        match recorded.await {
            Ok(recorded) => *new = recorded,
            // As upstream: nobody manages anything then, and the write goes on.
            Err(_) => {
                object::remove(new, &["metadata", "managedFields"]);
            }
        }
    }

    /// This write as managed fields see it. Run again whenever it turned out to need an object in a version that only a
    /// webhook can make, which is then asked.
    pub(super) async fn with_write<T>(
        &self,
        registry: &Registry,
        use_: impl Fn(&managed::Write<'_>) -> T,
    ) -> Result<T, ApiError> {
        let mut asked = Asked::default();
        for _ in 0..CONVERSION_ROUNDS {
            let done = self.try_write(&asked, &use_);
            if !self.target().answer(registry, &mut asked).await? {
                return Ok(done);
            }
        }
        Err(ApiError::internal("managed fields have too many versions"))
    }

    fn try_write<T>(&self, asked: &Asked, use_: impl FnOnce(&managed::Write<'_>) -> T) -> T {
        let served = self.served();
        let subresource = self.grant.target.subresource.as_str();
        use_(&managed::Write {
            manager: self.manager,
            api_version: &served.api_version,
            subresource,
            time: self.now,
            schema: served.merge_type(),
            reset: &managed::Set::of_fields(served.strategy().reset_fields(subresource)),
            versions: &Faces {
                served,
                target: &self.grant.target,
                asked,
            },
        })
    }

    pub(super) fn invalid(&self, object: &Value, errors: &[field::Error]) -> Result<(), ApiError> {
        if errors.is_empty() {
            return Ok(());
        }
        let served = self.served();
        // Kinds with two faces are validated, and named in errors, as what they are stored as.
        let (group, kind) = match served.face() {
            Some(stored) => (stored.group, stored.kind),
            // A custom object may say that it is of another kind, and is named so.
            None if served.custom_kind().is_some() => {
                let (group, version) = split_version(object::string(object, &["apiVersion"]));
                if version.is_empty() {
                    return Err(ApiError::internal(
                        "Object 'apiVersion' is missing in 'object has no apiVersion field'",
                    ));
                }
                (group, object::string(object, &["kind"]))
            }
            None => (served.group(), served.kind()),
        };
        Err(ApiError::invalid(group, kind, object::name(object), errors))
    }
}

/// Group and version of an apiVersion.
fn split_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
