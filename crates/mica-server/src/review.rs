//! Kinds that are questions: created, answered and not kept.

use std::sync::Arc;

use http::{Response, StatusCode};
use mica_machinery::access::Selectors;
use mica_machinery::kind::WriteContext;
use mica_machinery::rbac::Rule;
use mica_machinery::{managed, meta, object};
use serde_json::{Value, json};

use crate::admission::{Doing, Gate, Subject};
use crate::authz::{Action, Asked, Completeness, Grant, Realm, User, Verdict, parent};
use crate::encode::Encoder;
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::{self, Route};
use crate::options::{WriteOptions, WriteUse};
use crate::plane::{self, State};
use crate::serve::{Call, body, object as objects, resource, respond};

/// Whether objects of a resource are only ever created: then they are questions.
pub fn is_review(grant: &Grant) -> bool {
    let target = &grant.target;
    target.served.verbs() == ["create"] && target.subresource.is_empty()
}

/// Answers a question.
pub(crate) async fn answer(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    // A question changes nothing: a plane that takes reads only answers it.
    if !matches!(grant.target.plane.state, State::ReadOnly | State::Moving) {
        plane::check_state(grant)?;
    }
    let served = &grant.target.served;
    let options = WriteOptions::read(&call.query, WriteUse::Create)?;
    let media = resource::checked_media(call, Route::Object, served)?;
    let format = negotiate::body_format(call.header(&http::header::CONTENT_TYPE))?;
    let read = body::read(format, &call.body, objects::wanted(served), options.field_validation)?;
    call.warnings.lock().extend(read.warnings);
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
        user: grant.user.as_kind(),
    };
    served.strategy().default(&mut review);
    record_manager(
        call,
        grant,
        &mut review,
        read.managers,
        &options.field_manager,
        context.now,
    );
    let registry = &call.server.registry;
    let gate = Gate::new(registry, grant, Doing::Create(&options), Subject::Resource).await?;
    let mutated = gate.mutate(Some(review), None).await?;
    let mut review = mutated.expect("mutation leaves an object");
    call.warnings.lock().extend(gate.take_warnings());
    let errors = served.strategy().validate(&context, &review);
    if !errors.is_empty() {
        // Upstream names no kind here.
        return Err(ApiError::invalid(served.group(), "", "", &errors));
    }
    if let Some(why) = mica_machinery::kind::review::refusal(served.kind(), &review) {
        return Err(ApiError::bad_request(why));
    }
    gate.validate(Some(&review), None).await?;
    let status = decide(call, grant, &review).await?;
    call.warnings.lock().extend(gate.take_warnings());
    // Upstream answers these with nothing of the question.
    let empty =
        |metadata: Value| json!({"kind": served.kind(), "apiVersion": served.api_version, "metadata": metadata});
    match served.kind() {
        "SelfSubjectRulesReview" => {
            review = empty(json!({}));
            object::set(&mut review, &["spec"], json!({}));
        }
        "SelfSubjectReview" => {
            review = empty(json!({"creationTimestamp": mica_machinery::time::now_text(context.now)}));
        }
        _ => {}
    }
    object::set(&mut review, &["status"], status);
    let bytes = Encoder::new(served, media).value(review)?;
    Ok(respond(
        StatusCode::CREATED,
        media.output.format.media_type(),
        Body::full(bytes),
    ))
}

/// Records who asked in the question's managed fields.
fn record_manager(
    call: &Call<'_>,
    grant: &Grant,
    review: &mut Value,
    managers: managed::Request,
    named: &str,
    now: jiff::Timestamp,
) {
    let served = &grant.target.served;
    let write = managed::Write {
        manager: &resource::manager(call, named),
        api_version: &served.api_version,
        subresource: "",
        time: now,
        schema: served.merge_type(),
        reset: &managed::Set::of_fields(served.strategy().reset_fields("")),
        versions: &managed::OneVersion,
    };
    managed::update(None, review, managers, &write);
}

/// The answer to a question of a plane.
async fn decide(call: &Call<'_>, grant: &Grant, review: &Value) -> Result<Value, ApiError> {
    let user = &*grant.user;
    Ok(match grant.target.served.kind() {
        "SelfSubjectReview" => json!({"userInfo": user_info(user)}),
        "TokenReview" => token(call, grant, review).await,
        "SelfSubjectAccessReview" => access(call, grant, user, review).await?,
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let groups = object::list(review, &["spec", "groups"])
                .iter()
                .filter_map(Value::as_str);
            // A question about an identity of this plane, wherever the asker is from.
            let plane = &grant.target.plane;
            let asked = User {
                realm: if plane.is_root() {
                    Realm::Platform
                } else {
                    Realm::Plane(plane.id)
                },
                name: object::string(review, &["spec", "user"]).to_owned(),
                uid: object::string(review, &["spec", "uid"]).to_owned(),
                groups: groups.map(ToOwned::to_owned).collect(),
                extra: extra(review),
                ..User::default()
            };
            let asked = parent::carried(Arc::new(asked), plane.parent());
            access(call, grant, &asked, review).await?
        }
        "SelfSubjectRulesReview" => rules(call, grant, review).await?,
        _ => json!({}),
    })
}

/// Whom a token proves in this plane, for audiences that the question may name.
async fn token(call: &Call<'_>, grant: &Grant, review: &Value) -> Value {
    let plane = &grant.target.plane;
    let named = object::list(review, &["spec", "audiences"])
        .iter()
        .filter_map(Value::as_str);
    let mut audiences: Vec<String> = named.map(ToOwned::to_owned).collect();
    if audiences.is_empty() {
        audiences = call.server.accounts.audiences(plane);
    }
    let text = object::string(review, &["spec", "token"]);
    match Box::pin(call.server.review_token(plane, text, &audiences)).await {
        Ok(proven) => {
            json!({"authenticated": true, "user": user_info(&proven.user), "audiences": proven.audiences})
        }
        Err(error) => json!({"user": {}, "error": error}),
    }
}

async fn access(call: &Call<'_>, grant: &Grant, user: &User, review: &Value) -> Result<Value, ApiError> {
    let resource = |field: &str| object::string(review, &["spec", "resourceAttributes", field]);
    let selectors = object::get(review, &["spec", "resourceAttributes"]).map(Selectors::of_review);
    let path = |field: &str| object::string(review, &["spec", "nonResourceAttributes", field]);
    let asked = match object::map(review, &["spec", "resourceAttributes"]) {
        Some(_) => Asked::Resource(Action {
            verb: resource("verb"),
            group: resource("group"),
            version: match resource("version") {
                "" => "*",
                version => version,
            },
            resource: resource("resource"),
            subresource: resource("subresource"),
            namespace: resource("namespace"),
            name: resource("name"),
            selectors: selectors.as_ref().filter(|selectors| !selectors.is_empty()),
        }),
        None => Asked::Path {
            verb: path("verb"),
            path: path("path"),
        },
    };
    let decision = call.server.authorizer.decide(user, &grant.target.plane, &asked).await?;
    let mut status = json!({"allowed": decision.is_allowed()});
    if decision.verdict == Verdict::Denied {
        status["denied"] = true.into();
    }
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    let misread = selectors.iter().flat_map(Selectors::problems);
    let errors: Vec<String> = decision.error.into_iter().chain(misread).collect();
    if !errors.is_empty() {
        status["evaluationError"] = errors.join("; ").into();
    }
    Ok(status)
}

async fn rules(call: &Call<'_>, grant: &Grant, review: &Value) -> Result<Value, ApiError> {
    let namespace = object::string(review, &["spec", "namespace"]);
    let authorizer = &call.server.authorizer;
    let listed = authorizer.list(&grant.user, &grant.target.plane, namespace).await?;
    let (held, incomplete) = (listed.held, listed.completeness == Completeness::Incomplete);
    let (resources, paths): (Vec<_>, Vec<_>) = held.rules.iter().map(Rule::shown).unzip();
    let shown = |rules: Vec<Option<Value>>| rules.into_iter().flatten().collect::<Vec<_>>();
    let mut status =
        json!({"resourceRules": shown(resources), "nonResourceRules": shown(paths), "incomplete": incomplete});
    if !held.errors.is_empty() {
        status["evaluationError"] = held.errors.join(", ").into();
    }
    Ok(status)
}

/// What a question says of its user beyond names.
fn extra(review: &Value) -> Vec<(String, Vec<String>)> {
    let extra = object::map(review, &["spec", "extra"]).into_iter().flatten();
    let texts = |values: &Value| -> Vec<String> {
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        values.map(ToOwned::to_owned).collect()
    };
    extra.map(|(key, values)| (key.clone(), texts(values))).collect()
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
