//! The subresource `token` of service accounts: a request that is answered with a token, and not kept.

use http::{Response, StatusCode};
use mica_api::GroupResource;
use mica_machinery::facts::{self, facts};
use mica_machinery::kind::core::serviceaccount;
use mica_machinery::managed::schema::TypeRef;
use mica_machinery::{field, managed, meta, object};
use serde_json::{Value, json};

use crate::admission::Doing;
use crate::authn::account::{self, Bound};
use crate::authz::Grant;
use crate::encode;
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::{self, Encodings, Route};
use crate::options::{WriteOptions, WriteUse};
use crate::plane;
use crate::serve::{Call, resource, respond};
use crate::subresource;

const TOKEN_REQUEST: (&str, &str, &str) = ("authentication.k8s.io", "v1", "TokenRequest");

/// Tells audit which token was made, by its id.
const ISSUED: &str = "authentication.kubernetes.io/issued-credential-id";

/// Makes a token for a service account.
pub(crate) async fn answer(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    plane::check_state(grant)?;
    let (group, version, kind) = TOKEN_REQUEST;
    let (target, registry) = (&grant.target, &call.server.registry);
    let options = WriteOptions::read(&call.query, WriteUse::Create)?;
    let ty = facts()
        .kind(group, version, kind)
        .ok_or_else(|| ApiError::internal("TokenRequest is unknown"))?;
    let media = negotiate::output(call.asked(), Route::Object, Encodings::All)?;
    let read = subresource::read(call, TOKEN_REQUEST, &options)?;
    call.warnings.lock().extend(read.warnings);
    let mut request = read.object;
    serviceaccount::default_token_request(&mut request);
    let admitting = registry.admit_part(grant, Doing::Create(&options), TOKEN_REQUEST, request);
    let (mut request, admitted) = admitting.await?;
    call.warnings.lock().extend(admitted);
    let namespace = target.namespace.as_deref().unwrap_or_default();
    meta::ensure_namespace(
        object::object_mut(&mut request)
            .entry("metadata")
            .or_insert_with(|| json!({})),
        namespace,
    )
    .map_err(|mismatch| ApiError::bad_request(mismatch.to_string()))?;
    let name = object::name(&request);
    if !name.is_empty() && name != target.object() {
        let path = field::Path::new("metadata").child("name");
        let why = field::Error::invalid(&path, name, "must match the service account name if specified");
        return Err(ApiError::invalid(group, kind, target.object(), &[why]));
    }
    let account = account::read(registry, &target.plane, "serviceaccounts", namespace, target.object()).await?;
    let uid = object::string(&account, &["metadata", "uid"]);
    let asked = object::string(&request, &["metadata", "uid"]);
    if !asked.is_empty() && asked != uid {
        let why =
            format!("the UID in the token request ({asked}) does not match the UID of the service account ({uid})");
        return Err(ApiError::conflict(
            &GroupResource::new(group, kind),
            target.object(),
            &why,
        ));
    }
    let errors = serviceaccount::validate_token_request(&request);
    if !errors.is_empty() {
        return Err(ApiError::invalid(group, kind, "", &errors));
    }
    let now = jiff::Timestamp::now();
    record_manager(call, ty, &mut request, read.managers, &options.field_manager, now);
    complete(call, grant, &mut request, uid, now);
    let bound = bound(call, grant, &request).await?;
    let audiences: Vec<String> = object::list(&request, &["spec", "audiences"])
        .iter()
        .filter_map(|audience| audience.as_str().map(ToOwned::to_owned))
        .collect();
    let seconds = object::int(&request, &["spec", "expirationSeconds"]).unwrap_or_default();
    let accounts = &call.server.accounts;
    let token = accounts.issue(&target.plane, &account, &bound, &audiences, seconds, now);
    if let Some(id) = account::id_of(&token) {
        grant.annotate(ISSUED.to_owned(), format!("JTI={id}"));
    }
    let expires = now + jiff::SignedDuration::from_secs(seconds);
    let status = json!({"token": token, "expirationTimestamp": mica_machinery::time::now_text(expires)});
    object::set(&mut request, &["status"], status);
    let bytes = encode::document(ty, &request, media)?;
    Ok(respond(
        StatusCode::CREATED,
        media.format.media_type(),
        Body::full(bytes),
    ))
}

fn record_manager(
    call: &Call<'_>,
    ty: facts::TypeId,
    request: &mut Value,
    managers: managed::Request,
    named: &str,
    now: jiff::Timestamp,
) {
    let (group, version, _) = TOKEN_REQUEST;
    let write = managed::Write {
        manager: &resource::manager(call, named),
        api_version: &format!("{group}/{version}"),
        subresource: "token",
        time: now,
        schema: TypeRef::kind(ty),
        reset: &managed::Set::default(),
        versions: &managed::OneVersion,
    };
    managed::update(None, request, managers, &write);
}

/// Puts in what a request for a token leaves to the server.
fn complete(call: &Call<'_>, grant: &Grant, request: &mut Value, uid: &str, now: jiff::Timestamp) {
    let target = &grant.target;
    if object::list(request, &["spec", "audiences"]).is_empty() {
        object::set(
            request,
            &["spec", "audiences"],
            json!(call.server.accounts.audiences(&target.plane)),
        );
    }
    object::set(request, &["metadata", "name"], target.object());
    object::set(request, &["metadata", "uid"], uid);
    object::set(
        request,
        &["metadata", "creationTimestamp"],
        mica_machinery::time::now_text(now),
    );
}

/// What a request wants its token to die with.
async fn bound(call: &Call<'_>, grant: &Grant, request: &Value) -> Result<Bound, ApiError> {
    let (target, registry) = (&grant.target, &call.server.registry);
    let mut bound = Bound::default();
    let Some(reference) = object::get(request, &["spec", "boundObjectRef"]).filter(|reference| reference.is_object())
    else {
        return Ok(bound);
    };
    let part = |field: &str| object::string(reference, &[field]);
    let (kind, name) = (part("kind"), part("name"));
    let plural = match (part("apiVersion"), kind) {
        ("v1", "Pod") => "pods",
        ("v1", "Secret") => "secrets",
        ("v1", "Node") => "nodes",
        (api_version, _) => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            return Err(ApiError::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let found = account::read(registry, &target.plane, plural, namespace, name).await?;
    if plural == "pods" && object::string(&found, &["spec", "serviceAccountName"]) != target.object() {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
            field::quote(target.object())
        )));
    }
    let uid = part("uid");
    if !uid.is_empty() && uid != object::string(&found, &["metadata", "uid"]) {
        return Err(account::uid_differs(kind, name, uid));
    }
    match plural {
        "pods" => {
            let node = object::string(&found, &["spec", "nodeName"]);
            if !node.is_empty() {
                let there = account::read(registry, &target.plane, "nodes", "", node).await;
                bound.node = Some(there.unwrap_or_else(|_| json!({"metadata": {"name": node}})));
            }
            bound.pod = Some(found);
        }
        "secrets" => bound.secret = Some(found),
        _ => bound.node = Some(found),
    }
    Ok(bound)
}
