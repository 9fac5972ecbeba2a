//! Get: one object.

use super::Registry;
use crate::authz::Grant;
use crate::error::ApiError;
use crate::options::parse_version;
use crate::stored::Stored;

impl Registry {
    /// The newest state of an object. A `resourceVersion` asks for a state not older than it, which the newest always is.
    pub async fn get(&self, grant: &Grant, resource_version: &str) -> Result<Stored, ApiError> {
        if let Some(revision) = parse_version(resource_version).map_err(|error| error.for_get())? {
            self.check_reached(revision).await?;
        }
        super::check_state(grant)?;
        self.current(&grant.target).await
    }
}
