//! Kinds that are questions: created, answered and not kept.

use http::{Response, StatusCode};
use mica_machinery::kind::{User as KindUser, WriteContext};
use mica_machinery::{managed, meta, object};
use serde_json::{Value, json};

use crate::authz::{Grant, User};
use crate::encode::Encoder;
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::{self, Route};
use crate::options::{WriteOptions, WriteUse};
use crate::plane::{self, State};
use crate::serve::{Call, body, object as objects, resource, respond, warn};

/// Whether objects of a resource are only ever created: then they are questions.
pub fn is_review(grant: &Grant) -> bool {
    let target = &grant.target;
    target.served.verbs() == ["create"] && target.subresource.is_empty()
}

/// Answers a question.
pub(crate) async fn answer(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    // A question changes nothing: a plane that takes reads only answers it.
    if grant.target.plane.state != State::ReadOnly {
        plane::check_state(grant)?;
    }
    let served = &grant.target.served;
    let options = WriteOptions::read(&call.query, WriteUse::Create)?;
    let media = resource::media(call, Route::Object, served)?;
    let format = negotiate::body_format(call.header(&http::header::CONTENT_TYPE))?;
    let read = body::read(format, &call.body, objects::wanted(served), options.field_validation)?;
    let mut review = read.object;
    if let Some(namespace) = &grant.target.namespace {
        let metadata = object::object_mut(&mut review)
            .entry("metadata")
            .or_insert_with(|| json!({}));
        meta::ensure_namespace(metadata, namespace).map_err(|mismatch| ApiError::bad_request(mismatch.to_string()))?;
    }
    let context = WriteContext {
        now: jiff::Timestamp::now(),
        subresource: "",
        group: served.group(),
        version: served.version(),
        user: KindUser {
            name: &grant.user.name,
            uid: &grant.user.uid,
            groups: &grant.user.groups,
            extra: &grant.user.extra,
        },
    };
    served.strategy().default(&mut review);
    let errors = served.strategy().validate(&context, &review);
    if !errors.is_empty() {
        // Upstream names no kind here.
        return Err(ApiError::invalid(served.group(), "", "", &errors));
    }
    if let Some(why) = mica_machinery::kind::review::refusal(served.kind(), &review) {
        return Err(ApiError::bad_request(why));
    }
    if served.kind() == "SelfSubjectReview" {
        object::set(
            &mut review,
            &["metadata", "creationTimestamp"],
            mica_machinery::time::now_text(context.now),
        );
    }
    let write = managed::Write {
        manager: &resource::manager(call, &options.field_manager),
        api_version: &served.api_version,
        subresource: "",
        time: context.now,
        schema: served.merge_type(),
        reset: &managed::Set::of_fields(served.strategy().reset_fields("")),
        versions: &managed::OneVersion,
    };
    managed::update(None, &mut review, read.managers, &write);
    let status = decide(served.kind(), &review, &grant.user);
    if served.kind() == "SelfSubjectRulesReview" {
        // Upstream answers with nothing of the question.
        review = json!({"kind": served.kind(), "apiVersion": served.api_version, "metadata": {}, "spec": {}});
    }
    object::set(&mut review, &["status"], status);
    let bytes = Encoder::new(served, media).value(review)?;
    let mut response = respond(StatusCode::CREATED, media.output.format.media_type(), Body::full(bytes));
    warn(&mut response, &read.warnings);
    Ok(response)
}

/// The answer, by the one rule there is: administrators may do everything, others nothing.
fn decide(kind: &str, review: &Value, user: &User) -> Value {
    match kind {
        "SelfSubjectReview" => json!({"userInfo": user_info(user)}),
        "TokenReview" => json!({"user": {}, "error": "invalid bearer token"}),
        "SelfSubjectAccessReview" => access(user),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let groups = object::list(review, &["spec", "groups"])
                .iter()
                .filter_map(Value::as_str);
            let asked = User {
                name: object::string(review, &["spec", "user"]).to_owned(),
                groups: groups.map(ToOwned::to_owned).collect(),
                ..User::default()
            };
            access(&asked)
        }
        "SelfSubjectRulesReview" => rules(user),
        _ => json!({}),
    }
}

fn access(user: &User) -> Value {
    json!({"allowed": user.is_administrator()})
}

fn rules(user: &User) -> Value {
    if user.is_administrator() {
        json!({"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "incomplete": false})
    } else {
        json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false})
    }
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = user
            .extra
            .iter()
            .map(|(key, values)| (key.clone(), json!(values)))
            .collect();
    }
    info
}
