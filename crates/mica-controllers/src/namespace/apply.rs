//! Writes what was decided about a namespace: its conditions, then its end.

use mica_machinery::object;
use serde_json::Value;

use super::Namespaces;
use super::plan::{Next, Plan};
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

/// What this controller holds namespaces with.
const FINALIZER: &str = "kubernetes";

impl Namespaces {
    pub(super) async fn apply(&self, place: &Place, name: &str, namespace: &Value, plan: &Plan) -> Result<(), Refusal> {
        let path = place::object(place, "v1", "namespaces", None, name);
        let mut current = namespace.clone();
        if let Some(conditions) = &plan.conditions {
            object::set(&mut current, &["status", "conditions"], conditions.clone());
            match self.api.update(&format!("{path}/status"), &current).await.or_absent()? {
                Some(written) => current = written,
                None => return Ok(()),
            }
        }
        if plan.next != Next::Finalize {
            return Ok(());
        }
        let mut left = object::list(&current, &["spec", "finalizers"]).to_vec();
        left.retain(|finalizer| finalizer != FINALIZER);
        object::set(&mut current, &["spec", "finalizers"], left);
        self.api
            .update(&format!("{path}/finalize"), &current)
            .await
            .or_absent()
            .map(drop)
    }
}
