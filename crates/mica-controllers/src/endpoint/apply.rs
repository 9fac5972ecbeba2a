//! Writes the status of an endpoint.

use mica_api::control_plane::ENDPOINTS;
use serde_json::Value;

use super::plan::Observed;
use super::{COMPONENT, Endpoints, told};
use crate::api::Refusal;
use crate::status;

impl Endpoints {
    pub(super) async fn apply(&self, observed: &Observed, status: &Value) -> Result<(), Refusal> {
        let object = &observed.endpoint;
        let told = told(&object["status"], status);
        status::write(&self.api, COMPONENT, ENDPOINTS, object, status, &told).await
    }
}
