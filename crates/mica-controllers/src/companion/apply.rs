//! Writes the object of a namespace. A namespace that is going takes nothing new, and needs nothing.

use super::Companions;
use super::plan::Plan;
use crate::api::Refusal;
use crate::place::{self, Place};

impl Companions {
    pub(super) async fn apply(&self, place: &Place, namespace: &str, plan: Plan) -> Result<(), Refusal> {
        let (resource, name) = (self.companion.resource(), self.companion.object_name());
        let written = match &plan {
            Plan::Nothing => return Ok(()),
            Plan::Create(object) => {
                let path = place::collection(place, "v1", resource, Some(namespace));
                self.api.create(&path, object).await
            }
            Plan::Update(object) => {
                let path = place::object(place, "v1", resource, Some(namespace), name);
                self.api.update(&path, object).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            // Somebody else made it: it is looked at again when that is heard of.
            Err(refusal) if refusal.is_conflict() && matches!(plan, Plan::Create(_)) => Ok(()),
            // The namespace, or its plane, is gone or going.
            Err(refusal) if refusal.is_not_found() || refusal.is_going() => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}
