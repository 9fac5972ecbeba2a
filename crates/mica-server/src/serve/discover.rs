//! Requests that are about no resource: discovery, OpenAPI, version, health, metrics.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{Method, Response, StatusCode};
use mica_machinery::facts::facts;
use serde_json::Value;

use super::{Call, respond};
use crate::custom::source::Loaded;
use crate::discovery::Aggregated;
use crate::encode;
use crate::error::ApiError;
use crate::health::Endpoint;
use crate::http::Body;
use crate::negotiate::{self, Discovery, Output, Pretty, Route};
use crate::plane::Plane;
use crate::request::{Address, Path};
use crate::tenancy::View;
use crate::version;

pub async fn answer(call: &Call<'_>, path: &Path) -> Result<Response<Body>, ApiError> {
    if let Path::Other = path {
        return other(call).await;
    }
    let plane = match call.located.address {
        Address::AllPlanes => None,
        _ => Some(call.server.plane(&call.located.address).await?),
    };
    let definitions = &call.server.definitions;
    let view = View::of(&call.located.address);
    if let Some(view) = &view {
        view.check_exists(call.server).await?;
    }
    let customs = match (&plane, &view) {
        (_, Some(view)) => {
            let scheme = call.server.schemes.view(view.viewer);
            definitions.shown_to(view.viewer, scheme).await?
        }
        (Some(plane), None) => definitions.of(plane).await?,
        // What planes have in common, and no tenant's kinds: one could take another's names.
        (None, None) => definitions.platform(call.server.directory.plane_scheme()).await?,
    };
    let documents = customs.set().documents();
    let known = |document: Option<&Value>| document.cloned().ok_or(());
    let document = match path {
        Path::Index => Ok(documents.index.clone()),
        Path::LegacyVersions => {
            let mut legacy = documents.legacy.clone();
            // Where this server is: where the client found it.
            let host = call.header(&http::header::HOST);
            let host = call.parts.uri.authority().map_or(host, http::uri::Authority::as_str);
            legacy["serverAddressByClientCIDRs"][0]["serverAddress"] = host.into();
            only_get(call)?;
            let kind = ("APIVersions", Route::Object);
            return versions(call, &legacy, kind, &documents.aggregated_legacy);
        }
        Path::Groups => {
            let kind = ("APIGroupList", Route::None);
            return versions(call, &documents.groups, kind, &documents.aggregated_groups);
        }
        Path::Group(group) => known(documents.group(group)),
        Path::Version { group, version } => match documents.version(group, version) {
            Some(document) => Ok(document.clone()),
            None if group.is_empty() || is_built_in(call, plane.as_deref(), group) => {
                return Err(ApiError::no_such_resource());
            }
            None => Err(()),
        },
        Path::Resource(_) | Path::Other => Err(()),
    };
    let document = document.map_err(|()| ApiError::page_not_found())?;
    match path {
        Path::Group(_) => plain(call, &document, ("APIGroup", Route::None)),
        Path::Version { group, .. } if group.is_empty() || is_built_in(call, plane.as_deref(), group) => {
            only_get(call)?;
            plain(call, &document, ("APIResourceList", Route::Object))
        }
        Path::Version { .. } => plain(call, &document, ("APIResourceList", Route::None)),
        // The index is what it is, whatever the client accepts.
        _ => {
            let output = Output {
                pretty: Pretty::Indented,
                ..Output::JSON
            };
            let bytes = encode::untyped(&document, output);
            Ok(respond(StatusCode::OK, output.format.media_type(), Body::full(bytes)))
        }
    }
}

/// Whether a group has built-in kinds: upstream's answer to an unknown version differs.
fn is_built_in(call: &Call<'_>, plane: Option<&Plane>, group: &str) -> bool {
    if let Some(view) = View::of(&call.located.address) {
        return call.server.schemes.view(view.viewer).has_group(group);
    }
    let scheme = plane.map_or_else(|| call.server.directory.plane_scheme(), |plane| &plane.scheme);
    scheme.has_group(group)
}

/// Refuses other methods. Upstream does so only at some of these paths: the index, `/apis` and groups, versions of custom
/// resources, health and metrics answer to every method, and load balancers rely on HEAD.
fn only_get(call: &Call<'_>) -> Result<(), ApiError> {
    if call.parts.method == Method::GET {
        Ok(())
    } else {
        Err(ApiError::method_not_allowed())
    }
}

/// `/api` and `/apis`: in the old form, or aggregated with an entity tag.
fn versions(
    call: &Call<'_>,
    old: &Value,
    kind: (&str, Route),
    aggregated: &Aggregated,
) -> Result<Response<Body>, ApiError> {
    match negotiate::discovery(call.asked(), kind.1)? {
        Discovery::Plain(_) => plain(call, old, kind),
        Discovery::Aggregated(format) => {
            let output = Output { format, ..Output::JSON };
            if call.header(&IF_NONE_MATCH) == aggregated.etag {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                tag(response.headers_mut(), &aggregated.etag);
                return Ok(response);
            }
            let ty = facts().kind("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList");
            let bytes = match ty {
                Some(ty) => encode::document(ty, &aggregated.document, output)?,
                None => encode::untyped(&aggregated.document, output),
            };
            let mut response = respond(StatusCode::OK, output.format.media_type(), Body::full(bytes));
            let content_type = format!(
                "{};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                output.format.media_type()
            );
            let headers = response.headers_mut();
            headers.insert(
                http::header::CONTENT_TYPE,
                HeaderValue::from_str(&content_type).expect("a media type is ASCII"),
            );
            tag(headers, &aggregated.etag);
            Ok(response)
        }
    }
}

/// What caches are told of an aggregated document: whoever keeps one asks each time whether it still holds.
fn tag(headers: &mut HeaderMap, etag: &str) {
    let etag = HeaderValue::from_str(etag).expect("an entity tag is quoted hex");
    headers.insert(ETAG, etag);
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
}

fn plain(call: &Call<'_>, document: &Value, (kind, route): (&str, Route)) -> Result<Response<Body>, ApiError> {
    let output = negotiate::document(call.asked(), route)?;
    let bytes = match facts().kind("", "v1", kind) {
        Some(ty) => encode::document(ty, document, output)?,
        None => encode::untyped(document, output),
    };
    Ok(respond(StatusCode::OK, output.format.media_type(), Body::full(bytes)))
}

async fn other(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    let segments: Vec<&str> = call.located.segments.iter().map(AsRef::as_ref).collect();
    let served = match &segments[..] {
        ["version"] => {
            only_get(call)?;
            negotiate::routed(call.header(&http::header::ACCEPT), Route::JsonOnly)?;
            return Ok(version::respond());
        }
        ["metrics"] if call.located.address == Address::Root => {
            return Ok(call.server.metrics.respond());
        }
        // What concerns the plane alone: the rest is the platform's to know.
        ["metrics"] if matches!(call.located.address, Address::Plane(_) | Address::Project(_)) => {
            let plane = call.server.plane(&call.located.address).await?;
            return call.server.fairness.plane_metrics(&plane).await;
        }
        ["openapi", rest @ ..] => return openapi(call, rest).await,
        [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"] => return issuer(call, &segments).await,
        [endpoint, check @ ..] => match Endpoint::parse(endpoint) {
            Some(endpoint) => {
                // A plane that does not exist is not healthy.
                plane(call).await?;
                let check = (!check.is_empty()).then(|| check.join("/"));
                call.server
                    .health
                    .respond(endpoint, check.as_deref(), &call.query)
                    .await
            }
            None => None,
        },
        [] => None,
    };
    served.ok_or_else(ApiError::page_not_found)
}

/// What others need to check this plane's service account tokens.
async fn issuer(call: &Call<'_>, segments: &[&str]) -> Result<Response<Body>, ApiError> {
    only_get(call)?;
    let plane = plane(call).await?.ok_or_else(ApiError::page_not_found)?;
    let accounts = &call.server.accounts;
    let (document, media) = match segments {
        ["openid", ..] => (accounts.public_keys(&plane), "application/jwk-set+json"),
        _ => (accounts.configuration(&plane), "application/json"),
    };
    let mut response = respond(StatusCode::OK, media, Body::full(document.to_string()));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(response)
}

/// How often a document is tried to be built from definitions that somebody changes meanwhile.
const OPENAPI_ATTEMPTS: usize = 5;

async fn openapi(call: &Call<'_>, rest: &[&str]) -> Result<Response<Body>, ApiError> {
    let openapi = &call.server.openapi;
    let plane = plane(call).await?;
    let view = View::of(&call.located.address);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let definitions = &call.server.definitions;
        let definitions = match (&plane, &view) {
            (_, Some(view)) => {
                let scheme = call.server.schemes.view(view.viewer);
                Loaded::in_view(definitions, view.viewer, scheme).await?
            }
            (Some(plane), None) => Loaded::new(definitions, plane).await?,
            (None, None) => Loaded::platform(definitions, call.server.directory.plane_scheme()).await?,
        };
        match openapi.answer(call, plane.as_deref(), &definitions, rest).await {
            Err(_) if definitions.is_stale() && attempts < OPENAPI_ATTEMPTS => {}
            answer => return answer,
        }
    }
}

async fn plane(call: &Call<'_>) -> Result<Option<std::sync::Arc<Plane>>, ApiError> {
    if let Some(view) = View::of(&call.located.address).filter(|_| call.server.has_views()) {
        view.check_exists(call.server).await?;
    }
    match call.located.address {
        Address::AllPlanes => Ok(None),
        _ => call.server.plane(&call.located.address).await.map(Some),
    }
}
