//! The all-planes address: LIST and WATCH of one resource over every plane but root.
//!
//! Answers show what planes hold themselves, not the base layer repeated for each, and each object says where it is from.

use std::sync::Arc;

use http::{Method, Response};
use mica_machinery::object;
use mica_store::Key;
use serde_json::Value;

use crate::conversion::not_ready;
use crate::custom::everywhere::Everywhere;
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::Route;
use crate::objects;
use crate::options::{ListOptions, ListUse};
use crate::plane::directory::Directory;
use crate::registry::served_value;
use crate::request::{ResourcePath, Verb};
use crate::scheme::Served;
use crate::serve::stream::{Shown, respond_list, respond_watch};
use crate::serve::{Call, resource};
use crate::stored::Stored;

/// Says which plane an object of an all-planes answer is from. Reserved: stripped on every write.
pub const PLANE_ANNOTATION: &str = "mica.dev/plane";
pub const PLANE_ID_ANNOTATION: &str = "mica.dev/plane-id";
/// Annotations that only all-planes answers have.
pub const RESERVED_ANNOTATIONS: [&str; 5] = [
    PLANE_ANNOTATION,
    PLANE_ID_ANNOTATION,
    objects::API_VERSION_ANNOTATION,
    objects::KIND_ANNOTATION,
    objects::RESOURCE_ANNOTATION,
];

pub(crate) async fn answer(call: &mut Call<'_>, path: &ResourcePath) -> Result<Response<Body>, ApiError> {
    let verb = Verb::of(&call.parts.method, path, &call.query);
    // Guarded in root: who may read every plane is the platform's to say.
    let authorizer = &call.server.authorizer;
    let permit = authorizer
        .authorize_everywhere(&call.user, verb, path, &call.query)
        .await?;
    if let Some(trail) = call.context.audit.get() {
        trail.allowed(permit.reason(), None);
    }
    let (served, everywhere) = find(call, path).await?;
    let head = call.parts.method == Method::HEAD;
    if head || path.name.is_some() || path.subresource.is_some() || !served.has_verb(verb.as_str()) {
        return Err(ApiError::method_not_allowed());
    }
    if let Some(platform) = everywhere.as_ref().filter(|everywhere| everywhere.platform().is_some())
        && let Some(text) = platform
            .shape()
            .custom_kind()
            .and_then(|kind| kind.deprecation.as_deref())
    {
        call.warnings.lock().push(text.to_owned());
    }
    resource::label(call, path, verb);
    if objects::is_objects(&served) {
        return objects::answer(call, None, verb).await;
    }
    let namespace = path.namespace.as_deref();
    let origins = Some(Origins(call.server.directory.clone()));
    match verb {
        Verb::List => {
            let options = ListOptions::read(&call.query, ListUse::List)?;
            let media = resource::media(call, Route::Collection, &served)?;
            let listing = call
                .server
                .registry
                .list_all_planes(&permit, &served, everywhere.as_ref(), namespace, &options)
                .await
                .map_err(|error| not_ready(error, &served))?;
            resource::check_form(call, Route::Collection, &served, media)?;
            respond_list(Shown { served, media, origins }, listing).await
        }
        Verb::Watch => {
            let options = ListOptions::read(&call.query, ListUse::Watch)?;
            let media = resource::stream_media(call, &served)?;
            let watch = call
                .server
                .registry
                .watch_all_planes(&permit, &served, everywhere.as_ref(), namespace, &options)
                .await
                .map_err(|error| not_ready(error, &served));
            respond_watch(call, Shown { served, media, origins }, watch)
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The resource that a path names: a built-in one, or one that the platform or a plane defines.
async fn find(call: &Call<'_>, path: &ResourcePath) -> Result<(Arc<Served>, Option<Arc<Everywhere>>), ApiError> {
    let directory = &call.server.directory;
    let scheme = directory.plane_scheme();
    if scheme.find(&path.group, &path.version, &path.resource).is_none() {
        let named = (&*path.group, &*path.version, &*path.resource);
        let found = Everywhere::find(&call.server.definitions, directory, named).await?;
        if let Some(found) = found.map(Arc::new) {
            return Ok((found.shape().clone(), Some(found)));
        }
    }
    Ok((resource::route(scheme, path)?, None))
}

/// Tells which plane an object is from.
pub(crate) struct Origins(Arc<Directory>);

impl Origins {
    /// The object with its plane's name and id. Of a plane that is gone meanwhile only the id is known.
    pub(crate) async fn mark(&self, served: &Served, key: &Key, stored: &Stored) -> Result<Value, ApiError> {
        let mut value = served_value(served, stored)?;
        for name in RESERVED_ANNOTATIONS {
            object::remove(&mut value, &["metadata", "annotations", name]);
        }
        if let Some(name) = self.0.name_of(key.plane()).await? {
            object::set(&mut value, &["metadata", "annotations", PLANE_ANNOTATION], &*name);
        }
        object::set(
            &mut value,
            &["metadata", "annotations", PLANE_ID_ANNOTATION],
            key.plane().as_str(),
        );
        Ok(value)
    }
}
