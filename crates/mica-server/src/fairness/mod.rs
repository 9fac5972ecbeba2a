//! Fairness: every request of a plane needs seats, and planes share them.
//!
//! The server has so many [`Seats`]; active planes share them as `seats.rs` says, and a plane's own FlowSchemas and
//! PriorityLevelConfigurations divide what is its own. An `exempt` level frees from the bounds of the plane's levels, never
//! from the plane's. Only what is exempt in root always gets in, so that operators can help.
//!
//! What waits too long, or finds its queue full, is refused with 429: early, and before its body is read.

mod dangling;
mod deal;
mod flow;
mod flows;
mod level;
mod metric;
mod pace;
mod seats;
mod width;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use mica_store::Store;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::base::Seed;
use crate::error::ApiError;
use crate::http::Body;
use crate::http::limit::REQUEST_TIMEOUT;
use crate::metrics;
use crate::plane::Plane;
pub use dangling::Dangling;
pub use flow::{Digest, What};
use flows::{FlowCache, SharedFlows};
use level::Response;
use metric::{Metrics, Rejected};
use pace::Pace;
use seats::{Ask, Entry, Place, Seats, Ticket};
pub use width::{Measured, Sizes, Width};

const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Requests at once, unless told: upstream's 400 that read and 200 that write.
pub const DEFAULT_SEATS: u32 = 600;

/// When who was refused is to come again, in seconds.
const RETRY_AFTER: u64 = 1;

/// How requests share the server.
#[derive(Clone, Debug)]
pub struct FairnessOptions {
    /// Requests that are served at once; more wait. Zero: there is no bound, and nobody waits.
    pub seats: u32,
    /// How long a request may wait for its seat.
    pub patience: Duration,
}

impl Default for FairnessOptions {
    fn default() -> Self {
        Self {
            seats: DEFAULT_SEATS,
            // As upstream: a quarter of what it has in all.
            patience: REQUEST_TIMEOUT / 4,
        }
    }
}

/// The seats, and who wants them.
type Room = Mutex<Seats<oneshot::Sender<Place>>>;

pub struct Fairness {
    room: Option<Arc<Room>>,
    flows: FlowCache,
    patience: Duration,
    seats: u32,
    pace: Arc<Pace>,
    pub sizes: Arc<Sizes>,
}

/// What clients are told about how their request was classified.
#[derive(Clone, Debug, Default)]
pub struct Classified {
    schema: Option<HeaderValue>,
    level: Option<HeaderValue>,
}

impl Classified {
    pub fn tell(self, headers: &mut HeaderMap) {
        for (name, uid) in [(FLOW_SCHEMA_UID, self.schema), (PRIORITY_LEVEL_UID, self.level)] {
            if let Some(uid) = uid {
                headers.insert(name, uid);
            }
        }
    }
}

/// A request as fairness sees it.
pub struct Arrival {
    flows: Arc<SharedFlows>,
    seed: Seed,
    schema: usize,
    flow: u64,
}

impl Arrival {
    pub fn classified(&self) -> Classified {
        Classified {
            schema: self.flows.schema_uid(self.seed, self.schema),
            level: self.flows.level_uid(self.seed, self.schema),
        }
    }
}

impl Fairness {
    pub fn new(store: Arc<dyn Store>, options: &FairnessOptions, registry: &metrics::Registry) -> Self {
        let room = (options.seats > 0).then(|| Arc::new(Mutex::new(Seats::new(options.seats))));
        if let Some(room) = &room {
            let (used, waiting) = (room.clone(), room.clone());
            registry.gauge_fn("mica_seats_used", "Seats that requests have.", move || {
                f64::from(used.lock().used())
            });
            registry.gauge_fn("mica_seats_waiting", "Requests that wait for a seat.", move || {
                f64::from(waiting.lock().waiting())
            });
        }
        Self {
            room,
            flows: FlowCache::new(store, Metrics::new(registry, options.seats)),
            patience: options.patience,
            seats: options.seats,
            pace: Pace::new(),
            sizes: Arc::default(),
        }
    }

    /// Keeps what is known of flow schemas true. Ends when the store closes.
    pub async fn follow(&self) {
        self.flows.follow().await;
    }

    /// The answer to `/metrics` of a plane: what its levels have.
    pub async fn plane_metrics(&self, plane: &Plane) -> Result<http::Response<Body>, ApiError> {
        let flows = self.flows.of(plane).await?;
        let mut text = metrics::Text::default();
        metric::show_limits(&flows.flows.levels, self.seats, &mut text);
        Ok(metrics::respond(text.finish()))
    }

    /// Says which flow of its plane a request belongs to.
    pub async fn classify(&self, plane: &Plane, digest: &Digest<'_>) -> Result<Arrival, ApiError> {
        let flows = self.flows.of(plane).await?;
        let schema = flows.flows.find(digest);
        let flow = flows.flows.schemas[schema].flow(digest);
        Ok(Arrival {
            flows,
            seed: plane.birth.seed,
            schema,
            flow,
        })
    }

    /// Waits until there are seats for a request; `None` where nobody has to.
    pub async fn enter(&self, plane: &Plane, arrival: &Arrival, width: Width) -> Result<Option<Seat>, ApiError> {
        let Some(room) = &self.room else {
            return Ok(None);
        };
        let (shared, schema) = (&arrival.flows, arrival.schema);
        let (levels, level) = (&shared.flows.levels, shared.flows.schemas[schema].level);
        let ask = Ask {
            plane: plane.id,
            levels,
            level,
            flow: arrival.flow,
            width: width.0,
        };
        let seat = |place: Place| {
            shared.metrics[schema].seated(place.width());
            Some(Seat {
                room: room.clone(),
                place,
                shared: shared.clone(),
                schema,
            })
        };
        if plane.is_root() && levels.all[level].response == Response::Exempt {
            let place = room.lock().enter_always(ask);
            return Ok(seat(place));
        }
        let mut receiver = None;
        let entry = room.lock().enter(ask, || {
            let (sender, waits) = oneshot::channel();
            receiver = Some(waits);
            sender
        });
        let seated = match entry {
            Entry::Seated(place) => seat(place),
            Entry::Refused(why) => {
                shared.metrics[schema].rejected(Rejected::Refused(why));
                return Err(refused());
            }
            Entry::Waiting(ticket) => {
                let seated = receiver.expect("who waits is called by this");
                let waiting = Waiting {
                    room,
                    shared,
                    schema,
                    since: Instant::now(),
                    ticket: Some(ticket),
                    seated,
                };
                let place = Box::pin(waiting.seated(self.patience)).await?;
                seat(place)
            }
        };
        self.pace.turn(plane.id, &plane.loud, std::time::Instant::now()).await;
        Ok(seated)
    }
}

/// 429 in upstream's words: plain text, which its clients take for a Status.
fn refused() -> ApiError {
    ApiError::busy(RETRY_AFTER)
}

/// Seats that a request has until this is dropped.
pub struct Seat {
    room: Arc<Room>,
    place: Place,
    shared: Arc<SharedFlows>,
    schema: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.metrics[self.schema].left(self.place.width());
        let seated = self.room.lock().leave(&self.place);
        call(&self.room, seated);
    }
}

/// Tells those who were seated. Who has gone in the meantime gives the place back, to the next.
fn call(room: &Room, mut seated: Vec<(oneshot::Sender<Place>, Place)>) {
    while let Some((sender, place)) = seated.pop() {
        if let Err(place) = sender.send(place) {
            let next = room.lock().leave(&place);
            seated.extend(next);
        }
    }
}

/// A request that waits. Dropped when its client has gone, or its patience.
struct Waiting<'a> {
    room: &'a Room,
    shared: &'a SharedFlows,
    schema: usize,
    since: Instant,
    ticket: Option<Ticket>,
    seated: oneshot::Receiver<Place>,
}

impl Waiting<'_> {
    async fn seated(mut self, patience: Duration) -> Result<Place, ApiError> {
        let metrics = &self.shared.metrics[self.schema];
        metrics.waits();
        let got = tokio::time::timeout(patience, &mut self.seated).await;
        match got {
            Ok(Ok(place)) => {
                self.ticket = None;
                metrics.waited(self.since.elapsed(), &Ok(()));
                Ok(place)
            }
            Ok(Err(_)) | Err(_) => {
                self.give_up(Rejected::TimedOut);
                Err(refused())
            }
        }
    }

    fn give_up(&mut self, why: Rejected) {
        let Some(ticket) = self.ticket.take() else { return };
        self.shared.metrics[self.schema].waited(self.since.elapsed(), &Err(why));
        let next = self.room.lock().give_up(&ticket);
        call(self.room, next);
        // It may have been seated at this very moment.
        self.seated.close();
        if let Ok(place) = self.seated.try_recv() {
            let next = self.room.lock().leave(&place);
            call(self.room, next);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.give_up(Rejected::Cancelled);
    }
}
