//! Subresources that are more than a part of their object.

use http::{Response, StatusCode};

use crate::authz::{Grant, Target};
use crate::error::ApiError;
use crate::http::Body;
use crate::plane::kind::{GROUP, PLURAL};
use crate::serve::Call;

/// A subresource with an answer of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    PlaneSnapshot,
    PlaneRestore,
    PlaneFork,
    ServiceAccountToken,
}

/// What answers a subresource that is no part of its object.
pub fn find(target: &Target) -> Option<Special> {
    let resource = target.served.resource;
    Some(match (resource.group, resource.plural, target.subresource.as_str()) {
        (GROUP, PLURAL, "snapshot") => Special::PlaneSnapshot,
        (GROUP, PLURAL, "restore") => Special::PlaneRestore,
        (GROUP, PLURAL, "fork") => Special::PlaneFork,
        ("", "serviceaccounts", "token") => Special::ServiceAccountToken,
        _ => return None,
    })
}

impl Special {
    pub(crate) async fn answer(self, call: &mut Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
        match self {
            Self::PlaneSnapshot => crate::plane::snapshot::snapshot(call, grant).await,
            Self::PlaneRestore => crate::plane::snapshot::restore(call, grant).await,
            Self::PlaneFork => crate::plane::snapshot::fork(call, grant).await,
            Self::ServiceAccountToken => Err(ApiError::new(
                StatusCode::NOT_IMPLEMENTED,
                "NotImplemented",
                "this server does not issue service account tokens yet",
            )),
        }
    }
}
