//! The object of a namespace, as it is.

use serde_json::Value;

use super::Companions;
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

impl Companions {
    pub(super) async fn observe(&self, place: &Place, namespace: &str) -> Result<Option<Value>, Refusal> {
        let (resource, name) = (self.companion.resource(), self.companion.object_name());
        let path = place::object(place, "v1", resource, Some(namespace), name);
        self.api.get(&path).await.or_absent()
    }
}
