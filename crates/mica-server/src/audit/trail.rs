//! What is written down of one request, from its beginning to its end.
//!
//! A trail exists only for a request that some policy wants. It ends exactly once: with the answer, with the end of a body
//! that lasts, with a panic, or with a client that went away.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use compact_str::CompactString;
use http::{HeaderValue, Response, StatusCode, Uri};
use jiff::Timestamp;
use mica_api::PlaneId;
use mica_machinery::audit::body::{self, Form, Managed, Omit};
use mica_machinery::audit::{Code, Event, Level, ObjectRef, Person, Plan, Stage};
use mica_machinery::object;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::plane::PlaneAudit;
use super::{Auditor, SCOPE_NAME, SCOPE_TYPE};
use crate::authz::{Annotations, Denied, User};
use crate::error::ApiError;
use crate::http::{Body, Observer};

/// The most that is kept of an answer: beyond it events say that they were cut.
const MAX_RESPONSE: usize = 8 << 20;
/// Events with larger bodies are put together off the threads that serve.
const LARGE: usize = 64 << 10;

const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
/// Upstream's sign of an event that is not whole.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The trail of one request.
pub struct Trail {
    auditor: Arc<Auditor>,
    record: Mutex<Record>,
}

/// What is known so far.
pub(super) struct Record {
    pub audiences: Vec<Audience>,
    pub audit_id: HeaderValue,
    pub uri: Uri,
    pub verb: CompactString,
    /// Who proved themselves; none if the proof failed.
    pub user: Option<Arc<User>>,
    pub impersonated: Option<Arc<User>>,
    pub source_ips: Vec<IpAddr>,
    pub user_agent: String,
    pub about: Option<About>,
    pub received: Timestamp,
    pub annotations: BTreeMap<String, String>,
    pub lasting: Lasting,
    /// Whether the answer is an object.
    pub answers_object: bool,
    pub notes: Option<Annotations>,
    pub request: Option<(Bytes, Form)>,
    pub response: Option<(Vec<Bytes>, Form)>,
    pub status: Option<Value>,
    pub code: Option<StatusCode>,
    pub ended: bool,
}

/// Which stages a request has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lasting {
    /// Received and complete.
    Finite,
    /// Its answer begins, too.
    LongRunning,
    /// It was refused before anybody knew whose it is: upstream tells of that once, when the answer begins.
    Refused,
}

/// One who reads of the request.
pub(super) struct Audience {
    pub plan: Plan,
    pub of: Of,
}

pub(super) enum Of {
    Platform,
    Plane(PlaneId, Arc<PlaneAudit>),
}

/// The object or collection that a request is about.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub group: CompactString,
    pub version: CompactString,
    pub resource: CompactString,
    pub subresource: CompactString,
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: String,
    pub resource_version: String,
}

impl Trail {
    pub(super) fn new(auditor: Arc<Auditor>, record: Record) -> Self {
        Self {
            auditor,
            record: Mutex::new(record),
        }
    }

    /// Adds one who reads of the request.
    pub(super) fn tell(&self, audience: Audience) {
        let mut record = self.record.lock();
        record.audiences.push(audience);
        if record.lasting != Lasting::Refused {
            let from = record.audiences.len() - 1;
            record.emit(&self.auditor, Stage::RequestReceived, from);
        }
    }

    pub(super) fn is_told(&self, plane: PlaneId) -> bool {
        let record = self.record.lock();
        let mut audiences = record.audiences.iter();
        audiences.any(|audience| matches!(audience.of, Of::Plane(told, _) if told == plane))
    }

    /// Says something about the request. What was said first stays, as with upstream.
    pub fn annotate(&self, key: &str, value: &str) {
        let mut record = self.record.lock();
        record
            .annotations
            .entry(key.to_owned())
            .or_insert_with(|| value.to_owned());
    }

    /// The request is for a project's plane, by whatever address.
    pub(super) fn is_of_project(&self, plane: &str) {
        let mut record = self.record.lock();
        let scope = record.annotations.insert(SCOPE_TYPE.to_owned(), "Project".to_owned());
        if scope.as_deref() == Some("Plane") {
            let name = plane.strip_prefix("project-").unwrap_or(plane);
            record.annotations.insert(SCOPE_NAME.to_owned(), name.to_owned());
        }
    }

    /// The request was allowed, and why. `notes` is what is said about it from now on.
    pub fn allowed(&self, reason: &str, notes: Option<Annotations>) {
        let mut record = self.record.lock();
        record.annotations.insert(DECISION.to_owned(), "allow".to_owned());
        record.annotations.insert(REASON.to_owned(), reason.to_owned());
        record.notes = notes;
    }

    /// The body as it came.
    pub fn sent(&self, body: &Bytes, content_type: &str) {
        let mut record = self.record.lock();
        if !body.is_empty() && record.level() >= Level::Request {
            record.request = Form::of(content_type).map(|form| (body.clone(), form));
        }
    }

    /// The object that the body turned out to be, as `complete` leaves it.
    pub fn read(&self, object: &Value, complete: impl FnOnce(&mut Value)) {
        let mut record = self.record.lock();
        let level = record.level();
        if let Some(about) = &mut record.about {
            let fill = |place: &mut CompactString, text: &str| {
                if place.is_empty() {
                    *place = text.into();
                }
            };
            fill(&mut about.name, object::name(object));
            fill(&mut about.namespace, object::namespace(object));
            object::string(object, &["metadata", "uid"]).clone_into(&mut about.uid);
            object::string(object, &["metadata", "resourceVersion"]).clone_into(&mut about.resource_version);
        }
        if level >= Level::Request {
            let mut object = object.clone();
            complete(&mut object);
            record.request = serde_json::to_vec(&object).ok().map(|json| (json.into(), Form::Json));
        }
    }

    /// The request is answered with an error.
    pub fn refused(&self, error: &ApiError) {
        let mut record = self.record.lock();
        if error.plain("").is_none() {
            record.status = Some(error.to_status());
        }
        if let Some(denied) = error.cause().and_then(|cause| cause.downcast_ref::<Denied>()) {
            let annotations = &mut record.annotations;
            if !annotations.contains_key(DECISION) {
                annotations.insert(DECISION.to_owned(), "forbid".to_owned());
                annotations.insert(REASON.to_owned(), denied.reason().to_owned());
            }
        }
    }

    pub fn panicked(&self, text: &str) {
        let mut record = self.record.lock();
        record.code = Some(StatusCode::INTERNAL_SERVER_ERROR);
        record.status = Some(json!({
            "status": "Failure", "reason": "InternalError", "message": format!("APIServer panic'd: {text}"),
        }));
        record.ended = true;
        record.emit(&self.auditor, Stage::Panic, 0);
    }

    /// The request is answered: now, or when the answer's body ends.
    pub fn answered(self: Box<Self>, response: Response<Body>) -> Response<Body> {
        let mut record = self.record.lock();
        if record.ended {
            drop(record);
            return response;
        }
        record.code = Some(response.status());
        record.keep_pieces(&response);
        match record.lasting {
            Lasting::Finite => {}
            Lasting::LongRunning => record.emit(&self.auditor, Stage::ResponseStarted, 0),
            Lasting::Refused => {
                record.ended = true;
                record.emit(&self.auditor, Stage::ResponseStarted, 0);
            }
        }
        let streams = record.wants_response(&response);
        drop(record);
        if response.body().len().is_some() {
            self.complete();
            return response;
        }
        let Some(form) = streams else {
            return response.map(|body| body.observed(Box::new(Ending(self))));
        };
        let kept = Arc::new(Mutex::new(Some(Vec::new())));
        let tee = kept.clone();
        let mut len = 0;
        response.map(|body| {
            let body = body.seen(move |piece: &Bytes| {
                let mut kept = tee.lock();
                len += piece.len();
                match &mut *kept {
                    Some(pieces) if len <= MAX_RESPONSE => pieces.push(piece.clone()),
                    // What is too much as a whole is no use in part.
                    pieces => *pieces = None,
                }
            });
            body.observed(Box::new(Teed {
                trail: self,
                kept,
                form,
            }))
        })
    }

    /// The end.
    fn complete(self: Box<Self>) {
        let large = {
            let record = self.record.lock();
            record.body_bytes() > LARGE
        };
        if large && tokio::runtime::Handle::try_current().is_ok() {
            drop(tokio::task::spawn_blocking(move || self.finish()));
        } else {
            self.finish();
        }
    }

    fn finish(&self) {
        let mut record = self.record.lock();
        if !std::mem::replace(&mut record.ended, true) {
            record.emit(&self.auditor, Stage::ResponseComplete, 0);
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let record = self.record.get_mut();
        if record.ended {
            return;
        }
        record.ended = true;
        if record.code.is_none() {
            record.code = Some(StatusCode::OK);
            record.status = Some(json!({"status": "Success", "message": "Connection closed early"}));
            if record.lasting == Lasting::LongRunning {
                record.emit(&self.auditor, Stage::ResponseStarted, 0);
            }
        }
        record.emit(&self.auditor, Stage::ResponseComplete, 0);
    }
}

/// Ends a trail with the body.
struct Ending(Box<Trail>);

impl Observer for Ending {
    fn ended(self: Box<Self>, _sent: u64) {
        self.0.complete();
    }
}

/// Ends a trail with the body, of which the pieces were kept.
struct Teed {
    trail: Box<Trail>,
    kept: Arc<Mutex<Option<Vec<Bytes>>>>,
    form: Form,
}

impl Observer for Teed {
    fn ended(self: Box<Self>, _sent: u64) {
        let kept = self.kept.lock().take();
        self.trail.record.lock().kept(kept, self.form);
        self.trail.complete();
    }
}

impl Record {
    fn level(&self) -> Level {
        let levels = self.audiences.iter().map(|audience| audience.plan.level);
        levels.max().unwrap_or_default()
    }

    fn body_bytes(&self) -> usize {
        let request = self.request.as_ref().map_or(0, |(body, _)| body.len());
        let response = self
            .response
            .as_ref()
            .map_or(0, |(pieces, _)| pieces.iter().map(Bytes::len).sum());
        request + response
    }

    /// The form of the answer, if somebody wants to read it.
    fn wants_response(&self, response: &Response<Body>) -> Option<Form> {
        let wanted = self.level() == Level::RequestResponse && self.lasting != Lasting::LongRunning;
        form_of(response).filter(|_| wanted && self.answers_object)
    }

    /// Keeps an answer that is all there, and the Status that it may be.
    fn keep_pieces(&mut self, response: &Response<Body>) {
        let (Some(pieces), Some(form)) = (response.body().pieces(), form_of(response)) else {
            return;
        };
        if self.status.is_none()
            && let [whole] = &pieces[..]
        {
            self.status = body::status(whole, form);
        }
        if self.wants_response(response).is_some() {
            let len: usize = pieces.iter().map(Bytes::len).sum();
            self.kept((len <= MAX_RESPONSE).then_some(pieces), form);
        }
    }

    fn kept(&mut self, pieces: Option<Vec<Bytes>>, form: Form) {
        match pieces {
            Some(pieces) => self.response = Some((pieces, form)),
            None => {
                self.annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
            }
        }
    }

    /// Tells everybody from the given one on that a stage is reached.
    fn emit(&mut self, auditor: &Arc<Auditor>, stage: Stage, from: usize) {
        let wanted = |audience: &&Audience| !audience.plan.omit.has(stage);
        if !self.audiences[from..].iter().any(|audience| wanted(&audience)) {
            return;
        }
        let mut annotations = self.annotations.clone();
        if let Some(notes) = &self.notes {
            notes.add_to(&mut annotations);
        }
        let reached = match stage {
            Stage::RequestReceived => self.received,
            _ => Timestamp::now(),
        };
        // Whoever wants to know the same gets the same bytes.
        let mut written: Option<(Level, Managed, Bytes)> = None;
        for audience in self.audiences[from..].iter().filter(wanted) {
            let level = audience.plan.level;
            let managed = match audience.plan.omit_managed_fields {
                true => Managed::Omitted,
                false => Managed::Shown,
            };
            let (request, response) = self.bodies(level, managed);
            let event = Event {
                level,
                stage,
                reached,
                request: request.as_deref(),
                response: response.as_deref(),
                ..self.event(&annotations)
            };
            let line = match &written {
                Some((same, alike, line)) if (*same, *alike) == (level, managed) => line.clone(),
                _ => Bytes::from(event.to_line()),
            };
            written = Some((level, managed, line.clone()));
            auditor.deliver(&audience.of, &event, line);
        }
    }

    /// What of the bodies a level shows.
    fn bodies(&self, level: Level, managed: Managed) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let about = self.about.as_ref();
        let part = |part: fn(&About) -> &CompactString| about.map(part).map_or("", CompactString::as_str);
        let omit = Omit::of(
            part(|about| &about.group),
            part(|about| &about.resource),
            part(|about| &about.subresource),
            managed,
        );
        let request = self.request.as_ref().filter(|_| level >= Level::Request);
        let response = self.response.as_ref().filter(|_| level >= Level::RequestResponse);
        (
            request.and_then(|(body, form)| body::shown(body, *form, omit)),
            response.and_then(|(pieces, form)| match &pieces[..] {
                [whole] => body::shown(whole, *form, omit),
                pieces => body::shown(&pieces.concat(), *form, omit),
            }),
        )
    }

    fn event<'a>(&'a self, annotations: &'a BTreeMap<String, String>) -> Event<'a> {
        Event {
            level: Level::None,
            audit_id: self.audit_id.to_str().unwrap_or_default(),
            stage: Stage::RequestReceived,
            request_uri: self.uri.path_and_query().map_or("/", |uri| uri.as_str()),
            verb: &self.verb,
            user: self.user.as_deref().map(person),
            impersonated: self.impersonated.as_deref().map(person),
            source_ips: &self.source_ips,
            user_agent: &self.user_agent,
            object: self.about.as_ref().map(About::reference),
            code: self.code.map(|code| Code {
                code: code.as_u16(),
                status: self.status.as_ref(),
            }),
            request: None,
            response: None,
            received: self.received,
            reached: self.received,
            annotations,
        }
    }
}

/// The event without its bodies, which says so.
pub(super) fn cut(event: &Event<'_>) -> Vec<u8> {
    let mut annotations = event.annotations.clone();
    annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
    let cut = Event {
        request: None,
        response: None,
        annotations: &annotations,
        ..*event
    };
    cut.to_line()
}

fn form_of(response: &Response<Body>) -> Option<Form> {
    let content_type = response.headers().get(http::header::CONTENT_TYPE)?;
    Form::of(content_type.to_str().ok()?)
}

impl About {
    fn reference(&self) -> ObjectRef<'_> {
        ObjectRef {
            resource: &self.resource,
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            group: &self.group,
            version: &self.version,
            resource_version: &self.resource_version,
            subresource: &self.subresource,
        }
    }
}

fn person(user: &User) -> Person<'_> {
    Person {
        name: &user.name,
        uid: &user.uid,
        groups: &user.groups,
        extra: &user.extra,
    }
}
