//! `ApiError`: the only maker of a `Status`.
//!
//! The outside text (what clients match on, upstream's words) and the inside cause (logged, never sent) are separate.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use mica_api::GroupResource;
use mica_machinery::field::{self, quote};
use mica_store::{CommitError, ReadError};
use serde_json::{Map, Value, json};

/// Upstream's sentence for a lost optimistic-locking race; clients match on it.
pub const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

const STALE_PLANE: &str = "PlaneChanged";
const STALE_QUOTA: &str = "QuotaChanged";

#[derive(Debug)]
pub struct ApiError {
    body: Body,
    cause: Option<mica_store::store::BoxError>,
}

#[derive(Debug)]
enum Body {
    Status(Box<Status>),
    /// Upstream answers some unknown paths, and whom it has no time for, with Go's plain text.
    Plain {
        code: StatusCode,
        text: &'static str,
        retry_after: Option<Duration>,
    },
    /// Nobody could say whether the request is allowed, and why.
    Undecided(String),
}

#[derive(Debug)]
struct Status {
    code: StatusCode,
    reason: Cow<'static, str>,
    message: String,
    details: Option<Map<String, Value>>,
    /// `metadata.continue`, for expired list tokens.
    continue_token: Option<String>,
    retry_after: Option<Duration>,
    /// Told in headers, as with an answer that succeeds.
    warnings: Vec<String>,
    /// Whose words these are.
    author: Author,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    Server,
    /// Nothing that the server does may depend on what a webhook says.
    Webhook,
}

impl ApiError {
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self::from_status(Status {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            continue_token: None,
            retry_after: None,
            warnings: Vec::new(),
            author: Author::Server,
        })
    }

    fn from_status(status: Status) -> Self {
        Self {
            body: Body::Status(Box::new(status)),
            cause: None,
        }
    }

    fn about(code: StatusCode, reason: &'static str, message: String, group: &str, kind: &str, name: &str) -> Self {
        let mut details = Map::new();
        for (field, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(field.to_owned(), value.into());
            }
        }
        Self::new(code, reason, message).with_details(details)
    }

    #[must_use]
    pub(crate) fn with_details(mut self, details: Map<String, Value>) -> Self {
        if let Body::Status(status) = &mut self.body {
            status.details = Some(details);
        }
        self
    }

    #[must_use]
    pub fn with_retry_after(mut self, seconds: u64) -> Self {
        if let Body::Status(status) = &mut self.body {
            status.retry_after = Some(Duration::from_secs(seconds));
            status
                .details
                .get_or_insert_default()
                .insert("retryAfterSeconds".to_owned(), seconds.into());
        }
        self
    }

    /// Adds what a write that succeeds would have been warned of: a refused one is told too.
    #[must_use]
    pub fn warned(mut self, warnings: &[String]) -> Self {
        if let Body::Status(status) = &mut self.body {
            status.warnings.splice(0..0, warnings.iter().cloned());
        }
        self
    }

    pub fn warnings(&self) -> &[String] {
        match &self.body {
            Body::Status(status) => &status.warnings,
            Body::Plain { .. } | Body::Undecided(_) => &[],
        }
    }

    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        if let Body::Status(status) = &mut self.body {
            status.continue_token = Some(token);
        }
        self
    }

    /// Attaches what happened inside: for the log only.
    #[must_use]
    pub fn because(mut self, cause: impl Into<mica_store::store::BoxError>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }

    /// Go's answer to a path no handler knows.
    pub fn page_not_found() -> Self {
        Self {
            body: Body::Plain {
                code: StatusCode::NOT_FOUND,
                text: "404 page not found\n",
                retry_after: None,
            },
            cause: None,
        }
    }

    /// The answer to who finds no seat, in upstream's words. Clients make a Status of it.
    pub fn busy(seconds: u64) -> Self {
        Self {
            body: Body::Plain {
                code: StatusCode::TOO_MANY_REQUESTS,
                text: "Too many requests, please try again later.\n",
                retry_after: Some(Duration::from_secs(seconds)),
            },
            cause: None,
        }
    }

    /// The answer where the group is known but the version, resource or subresource is not.
    pub fn no_such_resource() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(Map::new())
    }

    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(Map::new())
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403 about a resource: `configmaps "a" is forbidden: why`.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::about(
            StatusCode::FORBIDDEN,
            "Forbidden",
            message,
            resource.group(),
            resource.resource(),
            name,
        )
    }

    /// 403 for what comes into a namespace that is going.
    pub fn namespace_terminating(resource: &GroupResource, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = Self::forbidden(resource, name, &why);
        if let Body::Status(status) = &mut error.body {
            let cause = json!({"reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": format!("namespace {namespace} is being terminated")});
            status
                .details
                .get_or_insert_default()
                .insert("causes".to_owned(), json!([cause]));
        }
        error
    }

    /// 403 for everything in a project that is suspended.
    pub fn project_suspended(project: &str) -> Self {
        use mica_api::tenancy::{GROUP, PROJECTS};
        let why = "the project is suspended";
        let mut error = Self::forbidden(&GroupResource::new(GROUP, PROJECTS), project, why);
        if let Body::Status(status) = &mut error.body {
            let cause =
                json!({"reason": "ProjectSuspended", "message": format!("project {} is suspended", quote(project))});
            let details = status.details.get_or_insert_default();
            details.insert("causes".to_owned(), json!([cause]));
        }
        error
    }

    /// The plane changed since this server looked: the request is to be tried again with a fresh look. Clients see this
    /// only if that keeps happening.
    pub fn stale_plane() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            STALE_PLANE,
            "the control plane's state changed during the request: try again",
        )
    }

    /// A quota changed since the write was charged to it: it is to be charged anew. Clients see this only if that keeps
    /// happening.
    pub fn stale_quota() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            STALE_QUOTA,
            "a quota of the namespace changed during the request: try again",
        )
    }

    pub fn is_stale_quota(&self) -> bool {
        self.is_own(STALE_QUOTA)
    }

    pub fn is_stale_plane(&self) -> bool {
        self.is_own(STALE_PLANE)
    }

    pub fn is_already_exists(&self) -> bool {
        self.is_own("AlreadyExists")
    }

    fn is_own(&self, reason: &str) -> bool {
        matches!(&self.body, Body::Status(status) if status.reason == reason && status.author == Author::Server)
    }

    /// The Status that a webhook refuses a request with.
    pub fn denied(denied: mica_machinery::admission::Denied) -> Self {
        let mut error = Self::new(
            StatusCode::from_u16(denied.code).unwrap_or(StatusCode::BAD_REQUEST),
            "",
            denied.message,
        );
        if let Body::Status(status) = &mut error.body {
            status.reason = denied.reason.into();
            status.details = denied.details;
            status.author = Author::Webhook;
        }
        error
    }

    /// The same refusal under another code and reason, with causes, and with another message if there is one.
    #[must_use]
    pub(crate) fn recast(
        mut self,
        code: u16,
        reason: &'static str,
        message: Option<String>,
        causes: &[String],
    ) -> Self {
        if let Body::Status(status) = &mut self.body {
            status.code = StatusCode::from_u16(code).unwrap_or(StatusCode::FORBIDDEN);
            status.reason = reason.into();
            status.message = message.unwrap_or_else(|| std::mem::take(&mut status.message));
            let causes: Vec<Value> = causes.iter().map(|cause| json!({"message": cause})).collect();
            status
                .details
                .get_or_insert_default()
                .insert("causes".to_owned(), causes.into());
        }
        self
    }

    /// 421: the request's host is not the one that the connection was made to.
    pub fn misdirected(message: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "", message)
    }

    /// 403 about a path that is no resource.
    pub fn forbidden_path(why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("forbidden: {why}")).with_details(Map::new())
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} not found", quote(name));
        Self::about(
            StatusCode::NOT_FOUND,
            "NotFound",
            message,
            resource.group(),
            resource.resource(),
            name,
        )
    }

    /// A verb that the resource does not support, named.
    pub fn verb_not_supported(resource: &GroupResource, verb: &str) -> Self {
        let message = format!(
            "{verb} is not supported on resources of kind {}",
            quote(&resource.to_string())
        );
        Self::about(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            message,
            resource.group(),
            resource.resource(),
            "",
        )
    }

    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quote(name));
        Self::about(
            StatusCode::CONFLICT,
            "AlreadyExists",
            message,
            resource.group(),
            resource.resource(),
            name,
        )
    }

    /// The same for a name whose object is being deleted.
    pub fn already_exists_leaving(resource: &GroupResource, name: &str) -> Self {
        let message = format!("object is being deleted: {resource} {} already exists", quote(name));
        Self::about(
            StatusCode::CONFLICT,
            "AlreadyExists",
            message,
            resource.group(),
            resource.resource(),
            name,
        )
    }

    /// The same, where the name may have been made here.
    pub fn without_unique_name(mut self) -> Self {
        if !self.is_already_exists() {
            return self;
        }
        if let Body::Status(status) = &mut self.body {
            status
                .message
                .push_str(", the server was not able to generate a unique name for the object");
        }
        self.with_retry_after(1)
    }

    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::about(
            StatusCode::CONFLICT,
            "Conflict",
            message,
            resource.group(),
            resource.resource(),
            name,
        )
    }

    /// 409 for a failed precondition of a delete, which names the kind.
    pub fn precondition_failed(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let what = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let message = format!("Operation cannot be fulfilled on {what} {}: {why}", quote(name));
        Self::about(StatusCode::CONFLICT, "Conflict", message, group, kind, name)
    }

    /// 422 with a message alone.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_details(Map::new())
    }

    /// 409 for fields that others manage.
    pub fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        let mut details = Map::new();
        details.insert("causes".to_owned(), causes.into());
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_details(details)
    }

    /// 422 about a patch that does not apply; what was wrong is not told.
    pub fn unprocessable_patch() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            mica_machinery::patch::UNPROCESSABLE,
        )
        .with_details(Map::new())
    }

    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[field::Error]) -> Self {
        let what = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let texts = field::aggregate(errors);
        let message = if texts.is_empty() {
            format!("{what} {} is invalid", quote(name))
        } else {
            format!("{what} {} is invalid: {texts}", quote(name))
        };
        let mut error = Self::about(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message, group, kind, name);
        if let Body::Status(status) = &mut error.body
            && !errors.is_empty()
        {
            let causes: Vec<Value> = errors
                .iter()
                .map(|e| json!({"reason": e.reason.cause(), "message": e.body(), "field": e.field}))
                .collect();
            status
                .details
                .get_or_insert_default()
                .insert("causes".to_owned(), causes.into());
        }
        error
    }

    /// Bad list or watch options.
    pub fn invalid_options(kind: &str, errors: &[field::Error]) -> Self {
        Self::invalid("meta.k8s.io", kind, "", errors)
    }

    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 500 without a reason, as upstream answers errors that are no Status: the text is the whole message.
    pub fn internal_text(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 500 `Internal error occurred: …`.
    pub fn internal(what: &str) -> Self {
        let mut details = Map::new();
        details.insert("causes".to_owned(), json!([{"message": what}]));
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {what}"),
        )
        .with_details(details)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    pub fn too_many_requests(message: impl Into<String>, seconds: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).with_retry_after(seconds)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// A revision asked for that the store has not reached.
    pub fn revision_too_large(asked: u64, current: u64) -> Self {
        let mut details = Map::new();
        details.insert(
            "causes".to_owned(),
            json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
        );
        Self::timeout(format!(
            "Timeout: Too large resource version: {asked}, current: {current}"
        ))
        .with_details(details)
        .with_retry_after(1)
    }

    pub fn code(&self) -> StatusCode {
        match &self.body {
            Body::Status(status) => status.code,
            Body::Plain { code, .. } => *code,
            Body::Undecided(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match &self.body {
            Body::Status(status) => status.retry_after,
            Body::Plain { retry_after, .. } => *retry_after,
            Body::Undecided(_) => None,
        }
    }

    /// 500 for a request of which nobody could say whether it is allowed.
    pub fn undecided(why: impl Into<String>) -> Self {
        Self {
            body: Body::Undecided(why.into()),
            cause: None,
        }
    }

    /// The plain text that a request for this address is answered with, if it is no Status.
    pub fn plain(&self, uri: &str) -> Option<String> {
        match &self.body {
            Body::Status(_) => None,
            Body::Plain { text, .. } => Some((*text).to_owned()),
            Body::Undecided(why) => {
                let text = format!("Internal Server Error: {}: {why}\n", quote(uri));
                // As upstream: browsers may take it for a page.
                Some(text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
            }
        }
    }

    /// The message a client would see.
    pub fn message(&self) -> &str {
        match &self.body {
            Body::Status(status) => &status.message,
            Body::Plain { text, .. } => text,
            Body::Undecided(why) => why,
        }
    }

    /// The Status as an object of kind `Status`.
    pub fn to_status(&self) -> Value {
        let Body::Status(status) = &self.body else {
            return json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": self.message(), "code": self.code().as_u16()});
        };
        let mut metadata = Map::new();
        if let Some(token) = &status.continue_token {
            metadata.insert("continue".to_owned(), token.as_str().into());
        }
        let mut out = json!({"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": status.message, "code": status.code.as_u16()});
        if !status.reason.is_empty() {
            out["reason"] = status.reason.as_ref().into();
        }
        if let Some(details) = &status.details {
            out["details"] = Value::Object(details.clone());
        }
        out
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for ApiError {}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Expired { .. } => {
                Self::gone("The resourceVersion for the provided list is too old.").because(error)
            }
            ReadError::Future { current } => Self::revision_too_large(0, current.0),
            ReadError::Corrupt(_) => Self::internal("stored data is damaged").because(error),
            ReadError::Unavailable(_) => Self::unavailable("the store did not answer: try again shortly")
                .with_retry_after(1)
                .because(error),
        }
    }
}

impl From<CommitError> for ApiError {
    /// For commits whose conflicts are handled before: a conflict here is a lost race that should be tried again.
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict { .. } => Self::unavailable("the write lost a race: try again")
                .with_retry_after(1)
                .because(error),
            CommitError::NoSpace => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "InsufficientStorage",
                "the store has no space left: delete objects or free disk space",
            )
            .because(error),
            CommitError::TooLarge(_) => Self::too_large("etcdserver: request is too large").because(error),
            CommitError::Corrupt(_) => Self::internal("stored data is damaged").because(error),
            CommitError::Unavailable(_) => Self::unavailable("the store did not accept the write: try again shortly")
                .with_retry_after(1)
                .because(error),
            CommitError::Unknown(_) => {
                Self::timeout("the store did not say whether the write happened: read before trying again")
                    .because(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_upstreams_shape() {
        let maps = GroupResource::new("", "configmaps");
        assert_eq!(
            ApiError::not_found(&maps, "a").to_status(),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
                "reason": "NotFound", "message": "configmaps \"a\" not found",
                "details": {"name": "a", "kind": "configmaps"}})
        );
        let path = field::Path::new("metadata").child("name");
        let error = ApiError::invalid("", "ConfigMap", "a", &[field::Error::required(&path, "")]);
        assert_eq!(
            error.message(),
            "ConfigMap \"a\" is invalid: metadata.name: Required value"
        );
        assert_eq!(
            error.to_status()["details"]["causes"][0]["reason"],
            "FieldValueRequired"
        );
    }
}
