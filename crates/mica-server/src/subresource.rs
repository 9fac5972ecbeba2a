//! Subresources that are more than a part of their object.

use http::{Response, StatusCode};
use mica_machinery::facts::facts;
use mica_machinery::kind::core::serviceaccount;
use mica_machinery::{field, object};
use serde_json::Value;

use crate::admission::Doing;
use crate::authz::{Grant, Target};
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate;
use crate::options::{WriteOptions, WriteUse};
use crate::plane::kind::{GROUP, PLURAL};
use crate::serve::{Call, body};

const TOKEN_REQUEST: (&str, &str, &str) = ("authentication.k8s.io", "v1", "TokenRequest");

/// A subresource with an answer of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    PlaneSnapshot,
    PlaneRestore,
    PlaneFork,
    PlaneRebase,
    ServiceAccountToken,
    Pod(crate::pod::Part),
    Scale,
}

/// What answers a subresource that is no part of its object.
pub fn find(target: &Target) -> Option<Special> {
    let served = &target.served;
    Some(match (served.group(), served.plural(), target.subresource.as_str()) {
        (GROUP, PLURAL, "snapshot") => Special::PlaneSnapshot,
        (GROUP, PLURAL, "restore") => Special::PlaneRestore,
        (GROUP, PLURAL, "fork") => Special::PlaneFork,
        (GROUP, PLURAL, "rebase") => Special::PlaneRebase,
        ("", "serviceaccounts", "token") => Special::ServiceAccountToken,
        ("", plural @ ("pods" | "bindings" | "nodes" | "services"), part) => {
            Special::Pod(crate::pod::Part::find(plural, part)?)
        }
        (_, _, "scale") => Special::Scale,
        _ => return None,
    })
}

impl Special {
    pub(crate) async fn answer(self, call: &mut Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
        match self {
            Self::PlaneSnapshot => crate::plane::snapshot::snapshot(call, grant).await,
            Self::PlaneRestore => crate::plane::snapshot::restore(call, grant).await,
            Self::PlaneFork => crate::plane::snapshot::fork(call, grant).await,
            Self::PlaneRebase => crate::plane::rebase::answer(call, grant).await,
            Self::ServiceAccountToken => token(call, grant).await,
            Self::Pod(part) => part.answer(call, grant).await,
            Self::Scale => crate::scale::answer(call, grant).await,
        }
    }
}

/// A body of a kind that is not the resource's own.
pub(crate) fn read(call: &Call<'_>, kind: (&str, &str, &str), options: &WriteOptions) -> Result<Value, ApiError> {
    let (group, version, kind) = kind;
    let ty = facts()
        .kind(group, version, kind)
        .ok_or_else(|| ApiError::internal("a kind of the table is unknown"))?;
    let format = negotiate::body_format(call.header(&http::header::CONTENT_TYPE))?;
    let wanted = body::Wanted {
        group,
        version,
        kind,
        rules: body::Rules::Known(ty),
    };
    Ok(body::read(format, &call.body, wanted, options.field_validation)?.object)
}

/// Checks a request for a token as if one were to be had.
async fn token(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let (group, _, kind) = TOKEN_REQUEST;
    let options = WriteOptions::read(&call.query, WriteUse::Create)?;
    let mut request = read(call, TOKEN_REQUEST, &options)?;
    serviceaccount::default_token_request(&mut request);
    let admitting = call
        .server
        .registry
        .admit_part(grant, Doing::Create(&options), TOKEN_REQUEST, request);
    let (request, warnings) = admitting.await?;
    let name = object::name(&request);
    if !name.is_empty() && name != grant.target.object() {
        let why = field::Error::invalid(
            &field::Path::new("metadata").child("name"),
            name,
            "must match the service account name if specified",
        );
        return Err(ApiError::invalid(group, kind, grant.target.object(), &[why]));
    }
    call.server.registry.get(grant, "").await?;
    let errors = serviceaccount::validate_token_request(&request);
    if !errors.is_empty() {
        return Err(ApiError::invalid(group, kind, "", &errors).warned(&warnings));
    }
    Err(ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "NotImplemented",
        "this server does not issue service account tokens yet",
    ))
}
