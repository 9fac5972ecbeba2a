//! Subresources that are more than a part of their object.

use http::Response;
use mica_machinery::facts::facts;

use crate::authz::{Grant, Target};
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate;
use crate::options::WriteOptions;
use crate::plane::kind::{GROUP, PLURAL};
use crate::serve::{Call, body};

/// A subresource with an answer of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    PlaneSnapshot,
    PlaneRestore,
    PlaneFork,
    PlaneRebase,
    PlaneArrive,
    PlaneOpen,
    PlaneDigest,
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
        (GROUP, PLURAL, "arrive") => Special::PlaneArrive,
        (GROUP, PLURAL, "open") => Special::PlaneOpen,
        (GROUP, PLURAL, "digest") => Special::PlaneDigest,
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
            Self::PlaneArrive => crate::plane::snapshot::arrive(call, grant).await,
            Self::PlaneOpen => crate::plane::snapshot::open(call, grant).await,
            Self::PlaneDigest => crate::plane::digest::answer(call, grant).await,
            Self::ServiceAccountToken => crate::token::answer(call, grant).await,
            Self::Pod(part) => part.answer(call, grant).await,
            Self::Scale => crate::scale::answer(call, grant).await,
        }
    }
}

/// A body of a kind that is not the resource's own.
pub(crate) fn read(call: &Call<'_>, kind: (&str, &str, &str), options: &WriteOptions) -> Result<body::Read, ApiError> {
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
    body::read(format, &call.body, wanted, options.field_validation)
}
