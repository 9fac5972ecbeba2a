//! Writes the rules of a role, if it is still as it was found.

use mica_machinery::object;
use serde_json::{Value, json};

use super::{API_VERSION, Aggregation, RESOURCE};
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

impl Aggregation {
    pub(super) async fn apply(&self, place: &Place, role: &Value, rules: Vec<Value>) -> Result<(), Refusal> {
        let path = place::object(place, API_VERSION, RESOURCE, None, object::name(role));
        let version = object::string(role, &["metadata", "resourceVersion"]);
        let patch = json!({"metadata": {"resourceVersion": version}, "rules": rules});
        self.api.merge(&path, &patch).await.or_absent().map(drop)
    }
}
