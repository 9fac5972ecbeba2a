//! Writes the status of a class.

use mica_api::control_plane::{CLASSES, condition as types};
use serde_json::Value;

use super::plan::Observed;
use super::{COMPONENT, Classes};
use crate::api::Refusal;
use crate::{event, status};

impl Classes {
    pub(super) async fn apply(&self, observed: &Observed, status: &Value) -> Result<(), Refusal> {
        let object = &observed.class;
        let told = event::transition(&object["status"]["conditions"], &status["conditions"], types::ACCEPTED);
        let told: Vec<_> = told.into_iter().collect();
        status::write(&self.api, COMPONENT, CLASSES, object, status, &told).await
    }
}
