//! Verbs on one object, and the writes of collections.

use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use mica_machinery::facts::facts;
use mica_machinery::kind::autoscaling::scale;
use mica_machinery::managed::OnConflict;
use mica_machinery::meta::DeleteOptions;
use mica_machinery::patch::{self, PatchError, Strictness};
use mica_machinery::strategic::{self, StrategicError};
use mica_machinery::{codec, managed, yaml};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::resource::{check_form, check_include, manager, media};
use super::{Call, body, respond, warn};
use crate::authz::Grant;
use crate::encode::{self, Encoder, ListMeta, Media};
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::{self, Format, PatchType, Route};
use crate::options::{self, FieldValidation, ListOptions, ListUse, WriteOptions, WriteUse};
use crate::plane::usage::{shows_usage, with_usage};
use crate::registry::{ApplyRequest, Deleted, Managers, PatchRequest, Patched, WriteRequest, Written};
use crate::scheme::{Form, Served};
use crate::stored::Stored;

pub async fn get(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = &grant.target.served;
    let media = media(call, Route::Object, served)?;
    let stored = call
        .server
        .registry
        .get(grant, call.query.text("resourceVersion"))
        .await?;
    check_form(call, Route::Object, served, media)?;
    let encoder = Encoder::new(served, media);
    let bytes = if shows_usage(&grant.target) {
        encoder.value(Box::pin(with_usage(&*call.server.store, &grant.target, &stored)).await?)?
    } else {
        encoder.object(&stored)?
    };
    Ok(respond(
        StatusCode::OK,
        media.output.format.media_type(),
        Body::full(bytes),
    ))
}

pub async fn create(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let (request, media, warnings) = write_request(call, grant, WriteUse::Create)?;
    let written = call.server.registry.create(grant, request).await;
    let written = written.map_err(|error| error.warned(&warnings))?;
    written_response(call, &grant.target.served, media, written, warnings)
}

pub async fn update(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let (request, media, warnings) = write_request(call, grant, WriteUse::Update)?;
    let written = call.server.registry.update(grant, request).await;
    let written = written.map_err(|error| error.warned(&warnings))?;
    written_response(call, &grant.target.served, media, written, warnings)
}

/// The object that a body holds, how the answer is to look, and what is to be warned of.
fn write_request(
    call: &Call<'_>,
    grant: &Grant,
    use_: WriteUse,
) -> Result<(WriteRequest, Media, Vec<String>), ApiError> {
    let served = &grant.target.served;
    let options = WriteOptions::read(&call.query, use_)?;
    let media = media(call, Route::Object, served)?;
    let read = body::read(body_format(call)?, &call.body, wanted(served), options.field_validation)?;
    if let Some(trail) = call.context.audit.get() {
        trail.read(&read.object, |object| served.strategy().default(object));
    }
    let manager = manager(call, &options.field_manager);
    let managers = Managers::Recorded(read.managers);
    let request = WriteRequest {
        object: read.object,
        managers,
        options,
        manager,
    };
    Ok((request, media, read.warnings))
}

pub async fn patch(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = &grant.target.served;
    let route = match served.form() {
        Form::BuiltIn { .. } => Route::Object,
        Form::Custom(_) => Route::None,
    };
    let patch_type = negotiate::patch_type(call.header(&CONTENT_TYPE), route)?;
    if patch_type == PatchType::Apply {
        return apply(call, grant).await;
    }
    let options = WriteOptions::read(&call.query, WriteUse::Patch)?;
    let media = media(call, Route::Object, served)?;
    let validation = options.field_validation;
    // What a patch gave rise to is to be told also if the object that it left is then refused.
    let warned = Mutex::new(Vec::new());
    let change = |document: &[u8]| -> Result<Patched, ApiError> {
        let patched = patched(served, patch_type, document, &call.body, validation)?;
        patched.warnings.clone_into(&mut warned.lock());
        Ok(patched)
    };
    let manager = manager(call, &options.field_manager);
    let request = PatchRequest {
        patch: &change,
        options,
        manager,
        view: None,
    };
    match call.server.registry.patch(grant, request).await {
        Ok(written) => written_response(call, served, media, written, Vec::new()),
        Err(error) => Err(error.warned(&warned.into_inner())),
    }
}

/// What a patch makes of a document of this resource.
pub(crate) fn patched(
    served: &Served,
    patch_type: PatchType,
    document: &[u8],
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Patched, ApiError> {
    let strictness = if validation == FieldValidation::Ignore {
        Strictness::Ignore
    } else {
        Strictness::Report
    };
    let patched = match patch_type {
        PatchType::Json => patch::json_patch(document, patch, strictness),
        PatchType::Merge => patch::merge_patch(document, patch, strictness),
        PatchType::Strategic => return merge_strategically(served, document, patch, strictness, validation),
        PatchType::Apply => return Err(ApiError::internal("apply is no patch of a document")),
    };
    decode_patched(served, &patched.map_err(refuse_patch)?, validation)
}

/// The step that upstream names in errors about YAML.
const CONVERTING: &str = "converting YAML to JSON";

/// Server-side apply: the body is what its manager wants, in YAML (or JSON, which is YAML too).
async fn apply(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = &grant.target.served;
    let options = WriteOptions::read(&call.query, WriteUse::Apply)?;
    let media = media(call, Route::Object, served)?;
    let (applied, warnings) = applied(call, options.field_validation)?;
    let manager = options.field_manager.clone();
    let request = ApplyRequest {
        applied,
        on_conflict: on_conflict(call),
        options,
        manager,
    };
    let written = call.server.registry.apply(grant, request).await;
    let written = written.map_err(|error| error.warned(&warnings))?;
    written_response(call, served, media, written, warnings)
}

/// What an apply's manager wants, and what is to be warned of.
pub(crate) fn applied(call: &Call<'_>, validation: FieldValidation) -> Result<(Value, Vec<String>), ApiError> {
    let undecodable = |step: &str, error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("error decoding YAML: error {step}: {error}"))
    };
    if let Some(object) = yaml::plain_object(&call.body) {
        return Ok((object, Vec::new()));
    }
    let converted = yaml::to_json(&call.body).map_err(|error| undecodable(CONVERTING, &error))?;
    let decoded = codec::decode_object(&converted.json)
        .map_err(|error| undecodable("unmarshaling JSON: while decoding JSON", &error))?;
    let problems: Vec<String> = converted.strict.into_iter().chain(decoded.strict).collect();
    let warnings = match validation {
        FieldValidation::Strict if !problems.is_empty() => {
            let problems = problems.join(", ");
            return Err(ApiError::bad_request(format!(
                "error strict decoding YAML: error {CONVERTING}: {problems}"
            )));
        }
        FieldValidation::Warn => problems.into_iter().flat_map(body::warnings_of).collect(),
        _ => Vec::new(),
    };
    Ok((decoded.value, warnings))
}

/// What becomes of fields that others manage.
pub(crate) fn on_conflict(call: &Call<'_>) -> OnConflict {
    if call.query.flag("force") {
        OnConflict::Force
    } else {
        OnConflict::Refuse
    }
}

fn merge_strategically(
    served: &Served,
    document: &[u8],
    patch: &[u8],
    strictness: Strictness,
    validation: FieldValidation,
) -> Result<Patched, ApiError> {
    let Form::BuiltIn { ty, .. } = served.form() else {
        return Err(ApiError::internal("custom objects are not merged strategically"));
    };
    let value = serde_json::from_slice(document)
        .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
    let merged = strategic::strategic_merge(*ty, &value, patch, strictness).map_err(|error| match error {
        StrategicError::BadRequest(message) => ApiError::bad_request(message),
        StrategicError::Unprocessable(message) => ApiError::unprocessable(message),
        StrategicError::Internal(message) => ApiError::internal_text(message),
        StrategicError::Undecodable(cause) => ApiError::invalid("", "", "", &[cause]),
    })?;
    if validation == FieldValidation::Strict && !merged.strict.is_empty() {
        return Err(ApiError::invalid("", "", "", &[merged.refusal()]));
    }
    let mut printed = Vec::new();
    codec::encode_untyped(&merged.value, &mut printed);
    let warnings = if validation == FieldValidation::Warn {
        merged.strict
    } else {
        Vec::new()
    };
    Ok(Patched {
        object: merged.value,
        managers: Managers::Recorded(managed::request_of(&printed)),
        warnings,
    })
}

fn refuse_patch(error: PatchError) -> ApiError {
    match error {
        PatchError::BadRequest(message) => ApiError::bad_request(message),
        PatchError::TooManyOperations(_) => ApiError::too_large(format!("Request entity too large: {error}")),
        PatchError::Unprocessable(why) => ApiError::unprocessable_patch().because(why),
    }
}

/// Decodes what a patch left. What cannot be decoded is shown to the client whole.
fn decode_patched(served: &Served, patched: &patch::Patched, validation: FieldValidation) -> Result<Patched, ApiError> {
    let undecodable = |reason: &str| ApiError::invalid("", "", "", &[patch::undecodable(&patched.document, reason)]);
    let ignore = if validation == FieldValidation::Ignore {
        FieldValidation::Ignore
    } else {
        FieldValidation::Warn
    };
    let read = body::read_kind(&patched.document, wanted(served), ignore).map_err(|why| undecodable(&why))?;
    let problems: Vec<String> = patched.strict.iter().cloned().chain(read.warnings).collect();
    match validation {
        FieldValidation::Strict if !problems.is_empty() => Err(undecodable(&patch::strict_reason(&problems))),
        FieldValidation::Warn => Ok(Patched {
            object: read.object,
            managers: Managers::Recorded(read.managers),
            warnings: problems,
        }),
        _ => Ok(Patched {
            object: read.object,
            managers: Managers::Recorded(read.managers),
            warnings: Vec::new(),
        }),
    }
}

pub async fn delete(call: &mut Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = &grant.target.served;
    let options = delete_options(call)?;
    warn_of_silence(call, served, &options);
    let media = media(call, Route::Object, served)?;
    let encoder = Encoder::new(served, media);
    let format = media.output.format.media_type();
    let registry = &call.server.registry;
    let deleted = registry.delete_warned(grant, &options, &call.warnings).await?;
    let shows_object = matches!(deleted, Deleted::Waiting(_)) || served.strategy().returns_deleted();
    if shows_object {
        check_form(call, Route::Object, served, media)?;
    } else {
        check_include(call, media)?;
    }
    let response = match deleted {
        Deleted::Waiting(stored) => {
            // Upstream accepts, rather than does, only what an old client asked not to orphan.
            let code = if options.orphan_dependents == Some(false) {
                StatusCode::ACCEPTED
            } else {
                StatusCode::OK
            };
            respond(code, format, Body::full(encoder.object(&stored)?))
        }
        Deleted::Gone(stored) if served.strategy().returns_deleted() => {
            respond(StatusCode::OK, format, Body::full(encoder.object(&stored)?))
        }
        Deleted::Gone(stored) => {
            let uid = mica_machinery::select::text_at(stored.json(), &["metadata", "uid"]).unwrap_or_default();
            let mut details = json!({"name": grant.target.object(), "kind": served.plural(), "uid": uid});
            if !served.group().is_empty() {
                details["group"] = served.group().into();
            }
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            let output = negotiate::Output {
                conversion: None,
                ..media.output
            };
            let bytes = encode::document(facts().well_known().status, &status, output)?;
            respond(StatusCode::OK, format, Body::full(bytes))
        }
    };
    Ok(response)
}

pub async fn delete_collection(call: &mut Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = &grant.target.served;
    let list = ListOptions::read(&call.query, ListUse::List)?;
    let options = delete_options(call)?;
    warn_of_silence(call, served, &options);
    let media = media(call, Route::Object, served)?;
    let registry = &call.server.registry;
    let deleted = registry.delete_collection(grant, &list, &options, &call.warnings).await;
    let (page, revision) = deleted?;
    check_form(call, Route::Collection, served, media)?;
    let meta = ListMeta {
        revision,
        continue_token: page.continue_token,
        remaining: page.remaining,
    };
    let items: Vec<Stored> = page.items.into_iter().map(|(_, stored)| stored).collect();
    let bytes = Encoder::new(served, media).list(&meta, &items)?;
    Ok(respond(
        StatusCode::OK,
        media.output.format.media_type(),
        Body::full(bytes),
    ))
}

/// Some kinds leave their dependents behind unless told otherwise, and say so.
fn warn_of_silence(call: &Call<'_>, served: &Served, options: &DeleteOptions) {
    if options.propagation_policy.is_none() && options.orphan_dependents.is_none() {
        let warning = served.strategy().silent_deletion_warning();
        call.warnings.lock().extend(warning.map(str::to_owned));
    }
}

/// The options of a DELETE: its body's if it has one, else its query's.
fn delete_options(call: &Call<'_>) -> Result<DeleteOptions, ApiError> {
    if call.body.is_empty() {
        return options::delete_options_from_query(&call.query);
    }
    let read = body::read_options(body_format(call)?, &call.body)?;
    options::delete_options_from_body(&read)
}

fn body_format(call: &Call<'_>) -> Result<Format, ApiError> {
    Ok(negotiate::body_format(call.header(&CONTENT_TYPE))?)
}

pub(crate) fn wanted(served: &Served) -> body::Wanted<'_> {
    body::Wanted {
        group: served.group(),
        version: served.version(),
        kind: served.kind(),
        rules: match served.form() {
            Form::BuiltIn { ty, row, .. } if scale::is_of_custom(row) => body::Rules::CustomScale(*ty),
            Form::BuiltIn { ty, .. } => body::Rules::Known(*ty),
            Form::Custom(kind) => body::Rules::Custom(kind),
        },
    }
}

fn written_response(
    call: &Call<'_>,
    served: &Served,
    media: Media,
    written: Written,
    mut warnings: Vec<String>,
) -> Result<Response<Body>, ApiError> {
    let code = if written.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    warnings.extend(written.warnings);
    check_form(call, Route::Object, served, media).map_err(|error| error.warned(&warnings))?;
    let bytes = Encoder::new(served, media).object(&written.stored)?;
    let mut response = respond(code, media.output.format.media_type(), Body::full(bytes));
    warn(&mut response, &warnings);
    Ok(response)
}
