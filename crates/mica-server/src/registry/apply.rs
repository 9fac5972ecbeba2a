//! Server-side apply: an object becomes what its managers together want, made if it is not there.

use std::sync::Arc;

use mica_machinery::managed::{self, ApplyError, OnConflict};
use mica_machinery::meta::{self, Admission};
use mica_machinery::object;
use mica_machinery::strategic::decode_converted;
use serde_json::{Value, json};

use super::rules::{check_name, metadata_mut, settle_metadata};
use super::step::Step;
use super::write::{Managers, Old, TRIES, WriteRequest, Written, contended};
use super::{Registry, check_state};
use crate::authz::{self, Grant, Target};
use crate::error::ApiError;
use crate::options::{DryRun, FieldValidation, WriteOptions, parse_version};
use crate::plane::Plane;
use crate::request::Verb;
use crate::scheme::Form;

pub struct ApplyRequest {
    /// What the manager wants, as sent.
    pub applied: Value,
    pub on_conflict: OnConflict,
    pub options: WriteOptions,
    pub manager: String,
}

impl Registry {
    /// Applies a status as the server's own loops do: by force, and under their name. What the plane does not serve is left.
    pub async fn apply_status(
        &self,
        plane: &Arc<Plane>,
        (group, version, plural): (&str, &str, &str),
        name: &str,
        status: Value,
        manager: &str,
    ) -> Result<(), ApiError> {
        let Some(served) = plane.scheme.find(group, version, plural).cloned() else {
            return Ok(());
        };
        let applied = json!({"apiVersion": served.api_version, "kind": served.kind(), "metadata": {"name": name},
            "status": status});
        let target = Target {
            plane: plane.clone(),
            served,
            namespace: None,
            name: Some(name.into()),
            subresource: "status".into(),
            definition: None,
            within: None,
        };
        let request = ApplyRequest {
            applied,
            on_conflict: OnConflict::Force,
            options: WriteOptions {
                dry_run: DryRun::No,
                field_manager: manager.to_owned(),
                field_validation: FieldValidation::Ignore,
                asked_validation: String::new(),
            },
            manager: manager.to_owned(),
        };
        let grant = authz::system(Verb::Patch, target);
        self.apply(&grant, request).await.map(drop)
    }

    pub async fn apply(&self, grant: &Grant, request: ApplyRequest) -> Result<Written, ApiError> {
        check_state(grant)?;
        let step = Step::new(grant, &request.options, &request.manager);
        let (target, served) = (step.target(), step.served());
        for _ in 0..TRIES {
            let entry = self.target_entry(target).await?;
            let old = match &entry.stored {
                Some(_) => Some(self.old(target, &entry).await?),
                None => None,
            };
            let live = old.as_ref().map(Old::seen);
            if live.is_none() && !target.subresource.is_empty() {
                return Err(ApiError::not_found(&served.name, target.object()));
            }
            let mut wanted = merged(self, &step, live, &request).await?;
            let is_same = live
                .is_some_and(|live| served.custom_kind().is_some() && managed::equal_but_for_managers(live, &wanted));
            settle_metadata(target, &mut wanted)?;
            check_name(target, &wanted)?;
            let Some(old) = old else {
                refuse_uid(&step, &request.applied)?;
                // A version of what does not exist says nothing, but must be one.
                parse_version(object::string(&wanted, &["metadata", "resourceVersion"]))
                    .map_err(|error| error.for_update())?;
                object::remove(&mut wanted, &["metadata", "resourceVersion"]);
                let (options, manager) = (request.options.clone(), request.manager.clone());
                let create = WriteRequest {
                    object: wanted,
                    managers: Managers::Applied,
                    options,
                    manager,
                };
                grant.check_create()?;
                match self.try_create(grant, create).await {
                    Err(error) if error.is_already_exists() => continue,
                    answer => return answer,
                }
            };
            let warnings = Vec::from_iter(meta::dedup_owner_references(
                metadata_mut(&mut wanted),
                Admission::After,
            ));
            // What applying leaves as it was is not defaulted either: an object that was stored in another version may lack
            // defaults of this one.
            if served.stores_as_served() && !is_same {
                served.strategy().default(&mut wanted);
            }
            if let Some(written) = self
                .replace(&step, &entry, old, wanted, Managers::Applied, &warnings)
                .await?
            {
                return Ok(written);
            }
        }
        Err(contended(target))
    }
}

/// The object that applying gives, decoded into its type.
async fn merged(
    registry: &Registry,
    step: &Step<'_>,
    live: Option<&Value>,
    request: &ApplyRequest,
) -> Result<Value, ApiError> {
    let served = step.served();
    let applied = &request.applied;
    let merging = step.with_write(registry, |write| {
        let mut object = managed::apply(live, applied, served.kind(), request.on_conflict, write)?;
        let Form::BuiltIn { ty, .. } = served.form() else {
            return Ok(object);
        };
        let decoded = decode_converted(*ty, &mut object).map_err(|text| managed::undecodable(&object, &text, write))?;
        let mut value = decoded.value;
        let map = object::object_mut(&mut value);
        map.insert("kind".to_owned(), served.kind().into());
        map.insert("apiVersion".to_owned(), served.api_version.as_str().into());
        Ok(value)
    });
    merging.await?.map_err(refuse)
}

pub(crate) fn refuse(error: ApplyError) -> ApiError {
    match error {
        ApplyError::BadRequest(message) => ApiError::bad_request(message),
        ApplyError::Internal(message) => ApiError::internal_text(message),
        ApplyError::Conflict(conflicts) => {
            let causes = conflicts
                .causes()
                .into_iter()
                .map(|cause| json!({"reason": "FieldManagerConflict", "message": cause.message, "field": cause.field}))
                .collect();
            ApiError::apply_conflict(conflicts.to_string(), causes)
        }
    }
}

/// What is made by applying has no uid yet: naming one means another object.
fn refuse_uid(step: &Step<'_>, applied: &Value) -> Result<(), ApiError> {
    let sent = object::string(applied, &["metadata", "uid"]);
    if sent.is_empty() {
        return Ok(());
    }
    let why = format!("uid mismatch: the provided object specified uid {sent}, and no existing object was found");
    Err(ApiError::conflict(&step.served().name, step.target().object(), &why))
}
