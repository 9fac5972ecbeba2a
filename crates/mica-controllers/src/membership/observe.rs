//! A membership and its organization.

use mica_api::tenancy::{API_VERSION, MEMBERSHIPS, ORGANIZATIONS};

use super::Memberships;
use super::plan::Observed;
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

impl Memberships {
    pub(super) async fn observe(&self, namespace: &str, name: &str) -> Result<Option<Observed>, Refusal> {
        let root = Place::root();
        let path = place::object(&root, API_VERSION, MEMBERSHIPS, Some(namespace), name);
        let Some(membership) = self.api.get(&path).await.or_absent()? else {
            return Ok(None);
        };
        let organization = membership["spec"]["organizationRef"]["name"]
            .as_str()
            .unwrap_or_default();
        let organization = place::object(&root, API_VERSION, ORGANIZATIONS, None, organization);
        Ok(Some(Observed {
            organization: self.api.get(&organization).await.or_absent()?,
            membership,
        }))
    }
}
