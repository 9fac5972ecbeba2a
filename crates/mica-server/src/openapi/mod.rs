//! OpenAPI documents of what is served.

use http::Response;

use crate::error::ApiError;
use crate::http::Body;
use crate::plane::Plane;
use crate::scheme::Scheme;
use crate::serve::Call;

/// The documents of both schemes.
pub struct OpenApi;

impl OpenApi {
    pub fn new(_root: &Scheme, _plane: &Scheme) -> Self {
        Self
    }

    pub(crate) fn answer(
        &self,
        _call: &Call<'_>,
        _plane: Option<&Plane>,
        _rest: &[&str],
    ) -> Result<Response<Body>, ApiError> {
        Err(ApiError::page_not_found())
    }
}
