//! An organization and its namespace.

use mica_api::tenancy::{API_VERSION, ORGANIZATIONS, organization_namespace};

use super::Organizations;
use super::plan::Observed;
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

impl Organizations {
    pub(super) async fn observe(&self, name: &str) -> Result<Option<Observed>, Refusal> {
        let root = Place::root();
        let path = place::object(&root, API_VERSION, ORGANIZATIONS, None, name);
        let Some(organization) = self.api.get(&path).await.or_absent()? else {
            return Ok(None);
        };
        let namespace = place::object(&root, "v1", "namespaces", None, &organization_namespace(name));
        Ok(Some(Observed {
            organization,
            namespace: self.api.get(&namespace).await.or_absent()?,
        }))
    }
}
