//! Writes the status of quotas. One that was charged meanwhile is counted anew.

use mica_machinery::object;
use serde_json::Value;

use super::Quotas;
use super::observe::Found;
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

impl Quotas {
    pub(super) async fn apply(
        &self,
        place: &Place,
        namespace: &str,
        found: &Found,
        statuses: Vec<Option<Value>>,
    ) -> Result<(), Refusal> {
        for (quota, status) in found.quotas.iter().zip(statuses) {
            let Some(status) = status else { continue };
            let mut new = quota.clone();
            object::set(&mut new, &["status"], status);
            // Lists leave these out.
            object::set(&mut new, &["apiVersion"], "v1");
            object::set(&mut new, &["kind"], "ResourceQuota");
            let path = place::object(place, "v1", "resourcequotas", Some(namespace), object::name(quota));
            self.api.update(&format!("{path}/status"), &new).await.or_absent()?;
        }
        Ok(())
    }
}
