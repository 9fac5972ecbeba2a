//! Audit: who did what, written down where operators and tenants said.
//!
//! The platform's policy sees every request; a plane's own sees that plane's. Deciding is `mica-machinery`'s; here requests
//! are followed ([`Trail`]) and events are brought to a file and to webhooks. Nobody who serves waits for either: what does
//! not fit into a bounded queue is counted and lost.

mod log;
mod metrics;
mod outbox;
pub mod plane;
mod trail;
mod webhook;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compact_str::CompactString;
use http::HeaderMap;
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use mica_machinery::audit::{self as rules, Event, Level, Policy};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

pub use log::{Format, LogOptions};
pub use metrics::Metrics;
pub use outbox::Batch;
pub use trail::Trail;
pub use webhook::{Throttle, Truncate, WebhookOptions};

use crate::egress::Egress;
use crate::error::ApiError;
use crate::http::Context;
use crate::plane::{Context as PlaneContext, Plane};
use crate::request::{Address, Path, Query, ResourcePath, Verb};
use crate::wildcard::{PLANE_ANNOTATION, PLANE_ID_ANNOTATION};
use log::Log;
use outbox::{Bounds, Outbox};
use plane::Planes;
use trail::{About, Audience, Lasting, Of, Record};

/// Events and bytes that may wait for the log: a disk that hangs for a while costs nothing.
const LOG_EVENTS: usize = 100_000;
const LOG_BYTES: usize = 64 << 20;
/// Bytes that may wait for the webhook.
const WEBHOOK_BYTES: usize = 64 << 20;

/// Scope annotations, by which platforms find a tenant's events.
const SCOPE_TYPE: &str = "platform.miloapis.com/scope.type";
const SCOPE_NAME: &str = "platform.miloapis.com/scope.name";

/// Subresources whose requests last.
const LASTING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// What operators say about audit.
#[derive(Clone, Debug, Default)]
pub struct AuditOptions {
    /// None: the platform writes nothing down.
    pub policy: Option<Arc<Policy>>,
    pub log: Option<LogOptions>,
    pub webhook: Option<WebhookOptions>,
    /// When batches go to planes' webhooks; none for the usual.
    pub plane_batch: Option<Batch>,
}

/// Follows requests and brings what is to be known of them to where it belongs.
pub struct Auditor {
    policy: Option<Arc<Policy>>,
    sinks: Vec<Sink>,
    planes: Arc<Planes>,
    metrics: Arc<Metrics>,
    /// What brings events away, once started.
    waiting: Mutex<Vec<Runner>>,
    running: Mutex<Vec<JoinHandle<()>>>,
    egress: Egress,
}

struct Sink {
    outbox: Arc<Outbox>,
    lost: metrics::Lost,
    format: Format,
    truncate: Option<Truncate>,
}

enum Runner {
    Log(Arc<Outbox>, Box<Log>, metrics::Lost),
    Webhook(Arc<Outbox>, Box<WebhookOptions>),
}

/// What a request asks for, as policies see it.
#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    Resource(&'a ResourcePath, &'a Query),
    /// A path as it is seen from inside the plane.
    Path {
        inside: &'a str,
        answers_object: bool,
    },
}

impl<'a> What<'a> {
    pub(crate) fn of(path: &'a Result<Path, ApiError>, query: &'a Query, inside: &'a str) -> Self {
        match path {
            Ok(Path::Resource(path)) => Self::Resource(path, query),
            Ok(path) => Self::Path {
                inside,
                answers_object: !matches!(path, Path::Other),
            },
            // It is answered with a Status.
            Err(_) => Self::Path {
                inside,
                answers_object: true,
            },
        }
    }
}

/// A request, as far as its trail cares.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub context: &'a Context,
    pub parts: &'a Parts,
    pub address: &'a Address,
    pub what: What<'a>,
}

impl Auditor {
    /// Opens the log, so that what is wrong with it is told at the start.
    pub fn open(
        options: AuditOptions,
        egress: Egress,
        registry: &crate::metrics::Registry,
    ) -> Result<Arc<Self>, ApiError> {
        let metrics = registry.register(Arc::new(Metrics::default()));
        let (mut sinks, mut waiting) = (Vec::new(), Vec::new());
        // As upstream: without a policy there is nothing to write.
        let is_on = options.policy.is_some();
        if let Some(log) = options.log.filter(|_| is_on) {
            let lost = metrics.lost("log", "log");
            let bounds = Bounds {
                events: LOG_EVENTS,
                bytes: LOG_BYTES,
                common: None,
            };
            let outbox = Outbox::new(bounds, lost.clone());
            sinks.push(Sink {
                outbox: outbox.clone(),
                lost: lost.clone(),
                format: log.format,
                truncate: None,
            });
            let path = log.path.display().to_string();
            let opened = Log::open(log).map_err(|error| {
                ApiError::unavailable(format!("the audit log {path} cannot be opened")).because(error)
            })?;
            waiting.push(Runner::Log(outbox, Box::new(opened), lost));
        }
        if let Some(webhook) = options.webhook.filter(|_| is_on) {
            let lost = metrics.lost("webhook", "webhook");
            let bounds = Bounds {
                events: webhook.buffer,
                bytes: WEBHOOK_BYTES,
                common: None,
            };
            let outbox = Outbox::new(bounds, lost.clone());
            sinks.push(Sink {
                outbox: outbox.clone(),
                lost,
                format: Format::Json,
                truncate: webhook.truncate,
            });
            waiting.push(Runner::Webhook(outbox, Box::new(webhook)));
        }
        let batch = options.plane_batch.unwrap_or(plane::BATCH);
        let planes = Planes::new(egress.clone(), batch, metrics.lost("webhook", "plane"));
        Ok(Arc::new(Self {
            policy: options.policy.filter(|_| !sinks.is_empty()),
            sinks,
            planes,
            metrics,
            waiting: Mutex::new(waiting),
            running: Mutex::default(),
            egress,
        }))
    }

    /// Begins to bring events away.
    pub fn start(&self) {
        let mut running = self.running.lock();
        for runner in self.waiting.lock().drain(..) {
            running.push(match runner {
                Runner::Log(outbox, log, lost) => tokio::spawn(log::run(outbox, *log, lost)),
                Runner::Webhook(outbox, options) => tokio::spawn(webhook::run(outbox, self.egress.clone(), *options)),
            });
        }
    }

    /// Brings away what there is, and accepts nothing more; what is not gone in time is lost.
    pub async fn close(&self, patience: Duration) {
        self.sinks.iter().for_each(|sink| sink.outbox.close());
        let running = std::mem::take(&mut *self.running.lock());
        let all = async {
            self.planes.flush().await;
            for runner in running {
                let _ = runner.await;
            }
        };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("audit events were lost: they could not be delivered before the end");
        }
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Planes that have events waiting.
    pub fn busy_planes(&self) -> usize {
        self.planes.len()
    }

    /// Follows a request, if the platform's policy wants that. To be called when it is known who asks, or that it cannot be.
    pub(crate) fn begin(self: &Arc<Self>, asking: &Asking<'_>) {
        let Some(policy) = &self.policy else { return };
        let plan = asking.plan(policy);
        self.metrics.decided(plan.level);
        if plan.level != Level::None {
            let of = Of::Platform;
            self.trail(asking).tell(Audience { plan, of });
        }
    }

    /// The same for the policy of the plane that a request turned out to be for.
    pub(crate) fn enter(self: &Arc<Self>, asking: &Asking<'_>, plane: &Plane) {
        let planned = plane.audit().map(|audit| (audit, asking.plan(&audit.policy)));
        let Some((audit, plan)) = planned.filter(|(_, plan)| plan.level != Level::None) else {
            if let Some(trail) = asking.context.audit.get() {
                mark(trail, plane);
            }
            return;
        };
        let trail = self.trail(asking);
        mark(trail, plane);
        // A request that is started over comes here again.
        if !trail.is_told(plane.id) {
            let of = Of::Plane(plane.id, audit.clone());
            trail.tell(Audience { plan, of });
        }
    }

    fn trail<'a>(self: &Arc<Self>, asking: &Asking<'a>) -> &'a Trail {
        asking.context.audit.get_or_init(|| {
            let record = asking.record();
            Box::new(Trail::new(self.clone(), record))
        })
    }

    fn deliver(&self, of: &Of, event: &Event<'_>, line: Bytes) {
        self.metrics.events.inc();
        match of {
            Of::Platform => self.sinks.iter().for_each(|sink| sink.accept(event, &line)),
            Of::Plane(plane, audit) => self.planes.push(*plane, audit, line),
        }
    }
}

impl Sink {
    fn accept(&self, event: &Event<'_>, line: &Bytes) {
        if self.format == Format::Legacy {
            self.outbox.push(event.to_legacy().into());
            return;
        }
        match self.truncate {
            Some(truncate) if line.len() > truncate.max_event => {
                let cut = trail::cut(event);
                if cut.len() > truncate.max_event {
                    self.lost.undelivered(1, &"event is too large even after truncating");
                } else {
                    self.outbox.push(cut.into());
                }
            }
            _ => self.outbox.push(line.clone()),
        }
    }
}

/// Says which plane a request is for, once that is known.
fn mark(trail: &Trail, plane: &Plane) {
    if !plane.is_root() {
        trail.annotate(PLANE_ID_ANNOTATION, plane.id.as_str());
        if plane.context == PlaneContext::Project {
            trail.is_of_project(&plane.name);
        }
    }
}

impl Asking<'_> {
    fn plan(&self, policy: &Policy) -> rules::Plan {
        let user = self.context.proven.get();
        let selected;
        let about = match self.what {
            What::Path { inside, .. } => rules::About::Path(inside),
            What::Resource(path, query) => {
                let name = match path.name.as_deref() {
                    Some(name) => name,
                    None if query.get("fieldSelector").is_none() => "",
                    None => {
                        selected = path.about(query).unwrap_or_default();
                        &selected
                    }
                };
                rules::About::Resource {
                    group: &path.group,
                    resource: &path.resource,
                    subresource: first_part(path),
                    namespace: namespace(path),
                    name,
                }
            }
        };
        policy.plan(&rules::Request {
            user: user.map(|user| (user.name.as_str(), &user.groups[..])),
            verb: &self.verb(),
            about,
        })
    }

    fn verb(&self) -> CompactString {
        match self.what {
            What::Resource(path, query) => Verb::of(&self.parts.method, path, query).as_str().into(),
            What::Path { .. } => CompactString::from(self.parts.method.as_str()).to_ascii_lowercase(),
        }
    }

    fn record(&self) -> Record {
        let headers = &self.parts.headers;
        let agent = headers
            .get(http::header::USER_AGENT)
            .and_then(|agent| agent.to_str().ok());
        let verb = self.verb();
        let about = match self.what {
            What::Path { .. } => None,
            What::Resource(path, query) => Some(About {
                group: path.group.clone(),
                version: path.version.clone(),
                resource: path.resource.clone(),
                subresource: first_part(path).into(),
                namespace: namespace(path).into(),
                name: path.about(query).unwrap_or_default().into(),
                ..About::default()
            }),
        };
        let user = self.context.proven.get().cloned();
        let lasts = verb == "watch"
            || about
                .as_ref()
                .is_some_and(|about| LASTING.contains(&about.subresource.as_str()));
        let lasting = match lasts {
            _ if user.is_none() => Lasting::Refused,
            true => Lasting::LongRunning,
            false => Lasting::Finite,
        };
        let elapsed = SignedDuration::try_from(self.context.received.elapsed()).unwrap_or_default();
        Record {
            audiences: Vec::with_capacity(1),
            audit_id: self.context.audit_id.clone(),
            uri: self.parts.uri.clone(),
            verb,
            user,
            impersonated: self.context.acting.get().cloned(),
            source_ips: source_ips(headers, self.context.peer.addr().ip()),
            user_agent: rules::shown_user_agent(agent.unwrap_or_default()),
            answers_object: match self.what {
                What::Resource(..) => true,
                What::Path { answers_object, .. } => answers_object,
            },
            about,
            received: Timestamp::now().checked_sub(elapsed).unwrap_or(Timestamp::UNIX_EPOCH),
            annotations: scope(self.address),
            lasting,
            notes: None,
            request: None,
            response: None,
            status: None,
            code: None,
            ended: false,
        }
    }
}

/// What follows is the subresource's own path.
fn first_part(path: &ResourcePath) -> &str {
    let subresource = path.subresource.as_deref().unwrap_or_default();
    subresource.split_once('/').map_or(subresource, |(first, _)| first)
}

/// As upstream sees it: a namespace is in itself.
fn namespace(path: &ResourcePath) -> &str {
    let own = (path.group.is_empty() && path.resource == "namespaces")
        .then_some(path.name.as_deref())
        .flatten();
    path.namespace.as_deref().or(own).unwrap_or_default()
}

/// The scope that an address means.
fn scope(address: &Address) -> BTreeMap<String, String> {
    let (r#type, name) = match address {
        Address::Root | Address::AllPlanes => ("global", ""),
        Address::Plane(name) => ("Plane", name.as_str()),
        Address::Project(name) => ("Project", name.as_str()),
        Address::Organization(name) => ("Organization", name.as_str()),
        Address::User(name) => ("User", name.as_str()),
    };
    let mut annotations = BTreeMap::from([(SCOPE_TYPE.to_owned(), r#type.to_owned())]);
    if !name.is_empty() {
        annotations.insert(SCOPE_NAME.to_owned(), name.to_owned());
    }
    match address {
        Address::AllPlanes => annotations.insert(PLANE_ANNOTATION.to_owned(), "*".to_owned()),
        Address::Plane(name) => annotations.insert(PLANE_ANNOTATION.to_owned(), name.clone()),
        _ => None,
    };
    annotations
}

/// Where a request came from: what proxies say, and at last what cannot be made up.
fn source_ips(headers: &HeaderMap, peer: IpAddr) -> Vec<IpAddr> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let forwarded = header("x-forwarded-for").unwrap_or_default();
    let mut ips: Vec<IpAddr> = forwarded.split(',').filter_map(parse).collect();
    if let Some(real) = header("x-real-ip").and_then(parse).filter(|real| !ips.contains(real)) {
        ips.push(real);
    }
    let peer = peer.to_canonical();
    if ips.last() != Some(&peer) {
        ips.push(peer);
    }
    ips
}

#[cfg(test)]
mod tests;
