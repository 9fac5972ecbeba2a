//! Writes the status of a registration.

use mica_api::control_plane::REGISTRATIONS;
use serde_json::Value;

use super::plan::{self, Observed};
use super::{COMPONENT, Registrations};
use crate::api::Refusal;
use crate::status;

impl Registrations {
    pub(super) async fn apply(&self, observed: &Observed, status: &Value) -> Result<(), Refusal> {
        let object = &observed.registration;
        let told = plan::told(&object["status"], status);
        status::write(&self.api, COMPONENT, REGISTRATIONS, object, status, &told).await
    }
}
