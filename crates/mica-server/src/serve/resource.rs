//! Requests for resources: what is asked, by whom, and which verb of the registry answers.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{Method, Response, StatusCode};
use mica_machinery::field::{Error, Path};
use mica_machinery::kind::autoscaling::scale;

use super::{Call, object, stream};
use crate::audit::What;
use crate::authz::{Attempt, Beside, Grant, Target};
use crate::custom::Definition;
use crate::encode::{Include, Media};
use crate::error::ApiError;
use crate::http::Body;
use crate::metrics::RequestLabels;
use crate::negotiate::{self, Encodings, Route};
use crate::plane::Plane;
use crate::request::{Address, ResourcePath, Verb};
use crate::scheme::{Listed, Scheme, Served};
use crate::tenancy::{View, Within};
use crate::{objects, review, subresource};

/// Tells audit that what is used is on its way out.
const DEPRECATED: &str = "k8s.io/deprecated";

pub async fn answer(call: &mut Call<'_>, path: &ResourcePath) -> Result<Response<Body>, ApiError> {
    if call.located.address == Address::AllPlanes {
        return Box::pin(crate::wildcard::answer(call, path)).await;
    }
    let verb = Verb::of(&call.parts.method, path, &call.query);
    let attempt = Attempt::Resource(verb, path, &call.query);
    let plane = call
        .server
        .plane_for(&call.user, &call.located.address, &attempt)
        .await?;
    call.enter(What::Resource(path, &call.query), &plane);
    let view = View::of(&call.located.address);
    let seen = seen(call, view.as_ref(), &plane, path, verb).await?;
    let path = &seen.path;
    let permit = call
        .server
        .authorizer
        .authorize(&call.user, verb, &plane, path, &call.query, &seen.beside)
        .await?;
    if let Some(trail) = call.context.audit.get() {
        trail.allowed(permit.reason(), None);
    }
    if let Some(view) = &view {
        view.check_exists(call.server).await?;
    }
    let (served, definition) = match seen.found {
        Some(found) => found?,
        None => find(call, &plane, path).await?,
    };
    let within = seen.within;
    if let Some(view) = view.as_ref().filter(|view| view.is_own_organization(path)) {
        let organization = path.name.as_deref().unwrap_or_default();
        view.check_membership(call.server, organization).await?;
    }
    if let Some(text) = served.custom_kind().and_then(|kind| kind.deprecation.as_deref()) {
        call.warnings.lock().push(text.to_owned());
    }
    if definition.is_some() {
        check_subresource(&served, path)?;
    }
    check_offered(call, verb, path, &served)?;
    if call.query.flag("export") {
        return Err(ApiError::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    label(call, path, verb);
    let target = Target {
        plane,
        served,
        namespace: path.namespace.clone(),
        name: path.name.clone(),
        subresource: path.subresource.clone().unwrap_or_default(),
        definition,
        within,
    };
    let grant = permit.grant(target);
    if let Some(trail) = call.context.audit.get() {
        trail.allowed(grant.reason(), Some(grant.annotations().clone()));
        let served = &grant.target.served;
        let dated = served.custom_kind().and_then(|kind| kind.deprecation.as_deref());
        if dated.or(served.strategy().deprecation()).is_some() {
            trail.annotate(DEPRECATED, "true");
        }
    }
    perform(call, &grant, verb).await
}

/// Does what was asked for and allowed.
async fn perform(call: &mut Call<'_>, grant: &Grant, verb: Verb) -> Result<Response<Body>, ApiError> {
    if verb == Verb::Watch {
        crate::plane::check_state(grant)?;
        call.ending = call.server.directory.outlasts(&grant.target.plane).await?;
    }
    if let Some(special) = subresource::find(&grant.target) {
        return Box::pin(special.answer(call, grant)).await;
    }
    if objects::is_objects(&grant.target.served) {
        crate::plane::check_state(grant)?;
        return Box::pin(objects::answer(call, Some(&grant.target.plane), verb)).await;
    }
    if review::is_review(grant) {
        return Box::pin(review::answer(call, grant)).await;
    }
    // All but the most frequent are boxed: the room of the largest would be moved about with every request.
    let answer = match verb {
        Verb::Get => object::get(call, grant).await,
        Verb::List => Box::pin(stream::list(call, grant)).await,
        Verb::Watch => Box::pin(stream::watch(call, grant)).await,
        Verb::Create => Box::pin(object::create(call, grant)).await,
        Verb::Update => Box::pin(object::update(call, grant)).await,
        Verb::Patch => Box::pin(object::patch(call, grant)).await,
        Verb::Delete => Box::pin(object::delete(call, grant)).await,
        Verb::DeleteCollection => Box::pin(object::delete_collection(call, grant)).await,
        Verb::Unknown => Err(ApiError::method_not_allowed()),
    };
    told_of_deprecation(&grant.target.served, answer)
}

/// Every answer about a kind on its way out says so, refusals too.
fn told_of_deprecation(served: &Served, answer: Result<Response<Body>, ApiError>) -> Result<Response<Body>, ApiError> {
    let Some(text) = served.strategy().deprecation() else {
        return answer;
    };
    let warnings = [text.to_owned()];
    match answer {
        Ok(mut response) => {
            super::warn(&mut response, &warnings);
            Ok(response)
        }
        Err(error) => Err(error.warned(&warnings)),
    }
}

/// What a request asks for, as it is meant at its address.
struct Seen<'a> {
    path: Cow<'a, ResourcePath>,
    /// The resource, where it had to be looked at before anybody was asked whether the request is allowed.
    found: Option<Found>,
    within: Option<Arc<Within>>,
    beside: Beside,
}

type Found = Result<(Arc<Served>, Option<Definition>), ApiError>;

/// A request in a plane is what it says; in a view it is narrowed to what lies within that.
async fn seen<'a>(
    call: &Call<'_>,
    view: Option<&View>,
    root: &Plane,
    path: &'a ResourcePath,
    verb: Verb,
) -> Result<Seen<'a>, ApiError> {
    let Some(view) = view else {
        return Ok(Seen {
            path: Cow::Borrowed(path),
            found: None,
            within: None,
            beside: Beside::Nothing,
        });
    };
    let found = Box::pin(find_in_view(call, view, root, path)).await;
    let (path, within) = match &found {
        Ok((served, _)) => {
            let (path, within) = view.narrow(path, served, verb)?;
            (Cow::Owned(path), within)
        }
        Err(_) => (Cow::Borrowed(path), None),
    };
    let beside = view.beside(&call.user, &path);
    Ok(Seen {
        path,
        found: Some(found),
        within,
        beside,
    })
}

/// The resource that a path names in a view of root.
async fn find_in_view(call: &Call<'_>, view: &View, root: &Plane, path: &ResourcePath) -> Found {
    let (server, scheme) = (call.server, call.server.schemes.view(view.viewer));
    if let Some(served) = scheme.find(&path.group, &path.version, &path.resource) {
        // Lists of everything in a namespaced kind are those of the view's own namespace.
        return Ok((placed(served, path)?, None));
    }
    let customs = if view.is_own_organization(path) {
        server.definitions.of(root).await?
    } else {
        server.definitions.shown_to(view.viewer, scheme).await?
    };
    match customs.find(&path.group, &path.version, &path.resource) {
        Some((served, definition)) => {
            place_custom(&served, path)?;
            Ok((served, Some(definition)))
        }
        None if scheme.has_group(&path.group) => Err(ApiError::no_such_resource()),
        None => Err(ApiError::page_not_found()),
    }
}

/// The resource that a path names in a plane: a built-in one, or one that the plane's definitions add.
async fn find(
    call: &Call<'_>,
    plane: &Plane,
    path: &ResourcePath,
) -> Result<(Arc<Served>, Option<Definition>), ApiError> {
    if let Some(served) = plane.scheme.find(&path.group, &path.version, &path.resource) {
        return Ok((placed(served, path)?, None));
    }
    let customs = Box::pin(call.server.definitions.of(plane)).await?;
    match customs.find(&path.group, &path.version, &path.resource) {
        Some((served, definition)) => {
            place_custom(&served, path)?;
            Ok((served, Some(definition)))
        }
        None if plane.scheme.has_group(&path.group) => Err(ApiError::no_such_resource()),
        None => Err(ApiError::page_not_found()),
    }
}

/// Refuses a path that is no place in a custom resource. Upstream has no routes for these, and other words.
fn place_custom(served: &Served, path: &ResourcePath) -> Result<(), ApiError> {
    let everywhere = served.namespaced() && path.namespace.is_none();
    if (path.namespace.is_some() && !served.namespaced()) || (everywhere && path.name.is_some()) {
        return Err(ApiError::page_not_found());
    }
    Ok(())
}

/// Refuses a subresource that a custom resource does not have, as if the object were not there.
fn check_subresource(served: &Served, path: &ResourcePath) -> Result<(), ApiError> {
    match &path.subresource {
        Some(name) if served.subresource(name).is_none() => Err(ApiError::not_found(
            &served.name,
            path.name.as_deref().unwrap_or_default(),
        )),
        _ => Ok(()),
    }
}

/// The resource that a path names in a scheme, or upstream's answer where there is none.
pub fn route(scheme: &Scheme, path: &ResourcePath) -> Result<Arc<Served>, ApiError> {
    let Some(served) = scheme.find(&path.group, &path.version, &path.resource) else {
        return Err(if scheme.has_group(&path.group) {
            ApiError::no_such_resource()
        } else {
            ApiError::page_not_found()
        });
    };
    placed(served, path)
}

/// The resource, if what a path names is a place in it.
fn placed(served: &Arc<Served>, path: &ResourcePath) -> Result<Arc<Served>, ApiError> {
    let known = path
        .subresource
        .as_deref()
        .is_none_or(|name| served.subresource(name).is_some());
    // A namespaced object needs its namespace in the path; a cluster-scoped one must not have one.
    let placed = match (&path.namespace, served.namespaced()) {
        (Some(_), namespaced) => namespaced,
        (None, true) => path.name.is_none(),
        (None, false) => true,
    };
    if known && placed {
        Ok(served.clone())
    } else {
        Err(ApiError::no_such_resource())
    }
}

/// Refuses a verb that the resource does not offer at this path.
fn check_offered(call: &Call<'_>, verb: Verb, path: &ResourcePath, served: &Served) -> Result<(), ApiError> {
    let offered = match &path.subresource {
        Some(name) => served
            .subresource(name)
            .is_some_and(|subresource| subresource.verbs.contains(&verb.as_str())),
        None => served.has_verb(verb.as_str()),
    };
    if served.custom_kind().is_some() {
        return check_custom(call, verb, path, served, offered);
    }
    if call.parts.method == Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    // Objects are written inside their namespace: the path over all namespaces is for reading.
    let everywhere = served.namespaced() && path.namespace.is_none();
    let writes = !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    let named_create = verb == Verb::Create && path.name.is_some() && path.subresource.is_none();
    let nameless_change = matches!(verb, Verb::Update | Verb::Patch) && path.name.is_none();
    if !offered || (everywhere && writes) || named_create || nameless_change {
        return Err(ApiError::method_not_allowed());
    }
    Ok(())
}

/// The same for a custom resource. They have no routes that would keep apart what is meant for objects and collections.
fn check_custom(
    call: &Call<'_>,
    verb: Verb,
    path: &ResourcePath,
    served: &Served,
    offered: bool,
) -> Result<(), ApiError> {
    let everywhere = served.namespaced() && path.namespace.is_none();
    if everywhere && !matches!(verb, Verb::List | Verb::Watch) {
        return Err(ApiError::page_not_found());
    }
    // Upstream creates what the body names, whatever the path does: who may create one name could create any.
    let misplaced = verb == Verb::Create && path.name.is_some() && path.subresource.is_none();
    if !offered || misplaced {
        return Err(ApiError::verb_not_supported(&served.name, verb.as_str()));
    }
    if verb == Verb::Patch {
        negotiate::patch_type(call.header(&CONTENT_TYPE), Route::None)?;
    }
    if matches!(verb, Verb::Update | Verb::Patch) && path.name.is_none() {
        return Err(ApiError::bad_request("name must be provided"));
    }
    Ok(())
}

pub fn label(call: &Call<'_>, path: &ResourcePath, verb: Verb) {
    let verb = match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
        Verb::Unknown => "",
    };
    let scope = match (&path.name, &path.namespace) {
        (Some(_), _) => "resource",
        (None, Some(_)) => "namespace",
        (None, None) => "cluster",
    };
    let labels = RequestLabels {
        verb,
        dry_run: if call.query.get("dryRun").is_some() { "All" } else { "" },
        group: path.group.as_str().into(),
        version: path.version.as_str().into(),
        resource: path.resource.as_str().into(),
        subresource: path.subresource.as_deref().unwrap_or_default().into(),
        scope,
    };
    // Set once: a request that is started over keeps its labels.
    let _ = call.context.labels.set(labels);
}

/// The form and format of the answer to a request for this resource. Whether what is answered has that form is found
/// when it is there ([`check_form`]), as upstream does: before, whatever is wrong with the request is said.
pub fn media(call: &Call<'_>, route: Route, served: &Served) -> Result<Media, ApiError> {
    let output = negotiate::output(call.asked(), routed(route, served), encodings(served))?;
    Ok(with_include(call, output))
}

/// Whether an object, or a list of them, can be shown in the form that was asked for.
pub fn check_form(call: &Call<'_>, route: Route, served: &Served, media: Media) -> Result<(), ApiError> {
    let target = media.output.conversion.map(|conversion| conversion.target);
    let mismatch = match (route, target) {
        // Upstream's custom objects are lists to it until it looks into them.
        (Route::Object, Some(negotiate::Target::PartialObjectMetadataList)) if served.custom_kind().is_some() => {
            let message = "content is not a list";
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message));
        }
        (Route::Object, Some(negotiate::Target::PartialObjectMetadataList)) => format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{})",
            served.go_type(Listed::No)
        ),
        (Route::Collection, Some(negotiate::Target::PartialObjectMetadata)) => format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{})",
            served.go_type(Listed::Yes)
        ),
        (_, Some(negotiate::Target::Table)) => return check_table(call, media, served),
        _ => return Ok(()),
    };
    Err(ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", mismatch))
}

/// Both at once, where a request whose answer cannot be shown is to do nothing.
pub fn checked_media(call: &Call<'_>, route: Route, served: &Served) -> Result<Media, ApiError> {
    let media = media(call, route, served)?;
    check_form(call, route, served, media)?;
    Ok(media)
}

/// The form and format of a watch.
pub fn stream_media(call: &Call<'_>, served: &Served) -> Result<Media, ApiError> {
    let output = negotiate::stream(call.asked(), routed(Route::Collection, served), encodings(served))?;
    let media = with_include(call, output);
    check_table(call, media, served)?;
    Ok(media)
}

/// Custom resources have no routes, which would check what clients accept.
fn routed(route: Route, served: &Served) -> Route {
    match served.row() {
        Some(row) if !scale::is_of_custom(row) => route,
        _ => Route::None,
    }
}

fn encodings(served: &Served) -> Encodings {
    if served.has_protobuf() {
        Encodings::All
    } else {
        Encodings::NoProtobuf
    }
}

/// How much of each object a table carries. What does not ask for a table may say anything.
pub fn include(call: &Call<'_>, output: negotiate::Output) -> Result<Include, ApiError> {
    let media = with_include(call, output);
    check_include(call, media)?;
    Ok(media.include)
}

fn with_include(call: &Call<'_>, output: negotiate::Output) -> Media {
    let include = match call.query.text("includeObject") {
        "None" => Include::None,
        "Object" => Include::Object,
        _ => Include::Metadata,
    };
    Media { output, include }
}

/// Whether a table can carry what is to be included in it.
pub fn check_include(call: &Call<'_>, media: Media) -> Result<(), ApiError> {
    match call.query.text("includeObject") {
        other if media.is_table() && !["", "Metadata", "None", "Object"].contains(&other) => {
            let path = Path::new("includeObject");
            let error = Error::invalid(&path, other, "must be 'Metadata', 'Object', 'None', or empty");
            Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: {error}"
            )))
        }
        _ => Ok(()),
    }
}

/// Whether there are tables of this resource, and of what was asked for.
fn check_table(call: &Call<'_>, media: Media, served: &Served) -> Result<(), ApiError> {
    check_include(call, media)?;
    if media.is_table() && served.columns().is_empty() {
        return Err(negotiate::Refusal::NotAcceptable(negotiate::media_types()).into());
    }
    Ok(())
}

/// The field manager of a write: named by the client, or the beginning of its User-Agent.
pub fn manager(call: &Call<'_>, named: &str) -> String {
    if !named.is_empty() {
        return named.to_owned();
    }
    let agent = call.parts.headers.get(http::header::USER_AGENT);
    mica_machinery::managed::manager_of_user_agent(agent.map_or(b"", http::HeaderValue::as_bytes))
}
