//! Puts the definitions into root when a server starts, and brings older ones up to date.
//!
//! Applied by force under our own name: what somebody added beside them (labels, more versions) stays, and a start that
//! changes nothing writes nothing.

use mica_api::{control_plane, tenancy};
use mica_machinery::kind::extension::definition;
use mica_machinery::managed::OnConflict;
use mica_machinery::object;
use serde_json::Value;

use crate::authz::{self, Target};
use crate::error::ApiError;
use crate::options::{DryRun, FieldValidation, WriteOptions};
use crate::registry::ApplyRequest;
use crate::request::Verb;
use crate::serve::Server;

/// Who is recorded in managedFields.
const MANAGER: &str = "mica";

impl Server {
    /// Installs the definitions of organizations, projects and control planes. They are established when this returns.
    pub(crate) async fn install_tenancy(&self) -> Result<(), ApiError> {
        for definition in tenancy::definitions().into_iter().chain(control_plane::definitions()) {
            let name = object::name(&definition).to_owned();
            let request = ApplyRequest {
                applied: definition,
                on_conflict: OnConflict::Force,
                options: WriteOptions {
                    dry_run: DryRun::No,
                    field_manager: MANAGER.to_owned(),
                    field_validation: FieldValidation::Ignore,
                    asked_validation: String::new(),
                },
                manager: MANAGER.to_owned(),
            };
            let grant = authz::system(Verb::Patch, self.definition(&name, "")?);
            self.registry.apply(&grant, request).await?;
            // Nobody else names kinds of these groups: the first request must not have to wait for the loop that settles.
            let now = jiff::Timestamp::now();
            let settle = |present: Value| definition::settled(&present, &[], now).unwrap_or(present);
            let grant = authz::system(Verb::Patch, self.definition(&name, "status")?);
            self.registry.change(&grant, MANAGER, &settle).await?;
        }
        Ok(())
    }

    fn definition(&self, name: &str, subresource: &str) -> Result<Target, ApiError> {
        let plane = self.directory.root();
        let served = plane
            .scheme
            .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .cloned()
            .ok_or_else(|| ApiError::internal("root does not serve definitions"))?;
        Ok(Target {
            plane,
            served,
            namespace: None,
            name: Some(name.into()),
            subresource: subresource.into(),
            definition: None,
            within: None,
        })
    }
}
