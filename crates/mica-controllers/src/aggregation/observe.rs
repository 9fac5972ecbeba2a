//! The cluster roles of a plane, those that it was born with included.

use serde_json::Value;

use super::{API_VERSION, Aggregation, RESOURCE};
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

impl Aggregation {
    pub(super) async fn observe(&self, place: &Place) -> Result<Vec<Value>, Refusal> {
        let path = place::collection(place, API_VERSION, RESOURCE, None);
        let listed = self.api.list(&path, "").await.or_absent()?;
        Ok(listed.map(|listed| listed.items).unwrap_or_default())
    }
}
