//! Changes that the server's own loops make.

use mica_machinery::managed;
use serde_json::Value;

use super::{Managers, PatchRequest, Patched, Registry};
use crate::authz::Grant;
use crate::error::ApiError;
use crate::options::{DryRun, FieldValidation, WriteOptions};

impl Registry {
    /// Changes an object by a function of its present state, in the name of one of the server's own managers.
    pub async fn change(
        &self,
        grant: &Grant,
        manager: &str,
        change: &(dyn Fn(Value) -> Value + Send + Sync),
    ) -> Result<(), ApiError> {
        let patch = |document: &[u8]| -> Result<Patched, ApiError> {
            let value = serde_json::from_slice(document)
                .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
            Ok(Patched {
                object: change(value),
                managers: Managers::Recorded(managed::Request::Usual),
                warnings: Vec::new(),
            })
        };
        let options = WriteOptions {
            dry_run: DryRun::No,
            field_manager: String::new(),
            field_validation: FieldValidation::Ignore,
            asked_validation: String::new(),
        };
        let request = PatchRequest {
            patch: &patch,
            options,
            manager: manager.to_owned(),
            view: None,
        };
        self.patch(grant, request).await.map(drop)
    }
}
