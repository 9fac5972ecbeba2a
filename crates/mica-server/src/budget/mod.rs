//! Budgets: what a plane may hold and do, in numbers that its Plane or its class states.
//!
//! Requests and watches are counted here, by this server, while they last; objects and bytes in `stored`. Root has no
//! budgets, and neither has the server itself. What is over a budget is told which, and how large it is.

mod rate;
pub mod stored;

use std::collections::HashMap;
use std::sync::Arc;

use mica_api::PlaneId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::plane::Plane;
use crate::plane::limits::Limits;
use rate::Bucket;

/// What a plane may hold and do where neither it nor its class says: enough for a large cluster, and so little that one
/// plane neither fills the disk nor the memory of its server.
pub const DEFAULT: Limits = Limits {
    objects: Some(1_000_000),
    stored_bytes: Some(8 * 1024 * 1024 * 1024),
    requests_per_second: None,
    requests_in_flight: None,
    watches: Some(100_000),
};

/// Planes from which on those are looked for that do nothing any more.
const SWEEP: usize = 4096;

/// What planes do now. Nothing is kept for a plane that does nothing.
pub struct Budgets {
    defaults: Limits,
    planes: Mutex<HashMap<PlaneId, Doing>>,
}

#[derive(Default)]
struct Doing {
    in_flight: u64,
    watches: u64,
    /// If requests per second are bounded.
    bucket: Option<Bucket>,
}

/// A request, or a watch, that counts until this is dropped.
pub struct Counted {
    budgets: Arc<Budgets>,
    plane: PlaneId,
    what: Counts,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counts {
    Request,
    Watch,
}

impl Budgets {
    pub fn new(defaults: Limits) -> Arc<Self> {
        Arc::new(Self {
            defaults,
            planes: Mutex::default(),
        })
    }

    /// What bounds a plane.
    pub fn limits(&self, plane: &Plane) -> Limits {
        if plane.is_root() {
            Limits::default()
        } else {
            plane.limits().or(self.defaults)
        }
    }

    /// Counts a request of a plane whose requests are bounded.
    pub fn request(self: &Arc<Self>, plane: &Plane) -> Result<Option<Counted>, ApiError> {
        let limits = self.limits(plane);
        let (rate, most) = (limits.requests_per_second, limits.requests_in_flight);
        if rate.is_none() && most.is_none() {
            return Ok(None);
        }
        let mut planes = self.planes.lock();
        sweep(&mut planes);
        let doing = planes.entry(plane.id).or_default();
        if let Some(most) = most.filter(|most| doing.in_flight >= *most) {
            return Err(exceeded(plane, "requests in flight", "requestsInFlight", most, 1));
        }
        if let Some(rate) = rate {
            let bucket = doing.bucket.get_or_insert_with(|| Bucket::full(rate, Instant::now()));
            if let Err(wait) = bucket.take(rate, Instant::now()) {
                let seconds = wait.as_secs().max(1);
                return Err(exceeded(
                    plane,
                    "requests per second",
                    "requestsPerSecond",
                    rate,
                    seconds,
                ));
            }
        }
        doing.in_flight += 1;
        Ok(Some(self.counted(plane, Counts::Request)))
    }

    /// Counts a watch.
    pub fn watch(self: &Arc<Self>, plane: &Plane) -> Result<Option<Counted>, ApiError> {
        let Some(most) = self.limits(plane).watches else {
            return Ok(None);
        };
        let mut planes = self.planes.lock();
        sweep(&mut planes);
        let doing = planes.entry(plane.id).or_default();
        if doing.watches >= most {
            return Err(exceeded(plane, "watches", "watches", most, RETRY_WATCH));
        }
        doing.watches += 1;
        Ok(Some(self.counted(plane, Counts::Watch)))
    }

    fn counted(self: &Arc<Self>, plane: &Plane, what: Counts) -> Counted {
        Counted {
            budgets: self.clone(),
            plane: plane.id,
            what,
        }
    }
}

/// When a watch that was too many may be tried again, in seconds: others end only when their clients want.
const RETRY_WATCH: u64 = 5;

impl Drop for Counted {
    fn drop(&mut self) {
        let mut planes = self.budgets.planes.lock();
        let Some(doing) = planes.get_mut(&self.plane) else {
            return;
        };
        match self.what {
            Counts::Request => doing.in_flight -= 1,
            Counts::Watch => doing.watches -= 1,
        }
        if doing.in_flight == 0 && doing.watches == 0 && doing.bucket.is_none() {
            planes.remove(&self.plane);
        }
    }
}

/// Forgets planes that do nothing, and have done nothing for as long as their rate is counted.
fn sweep(planes: &mut HashMap<PlaneId, Doing>) {
    if planes.len() >= SWEEP {
        let now = Instant::now();
        planes.retain(|_, doing| {
            let rests = doing.bucket.as_ref().is_none_or(|bucket| bucket.is_full(now));
            doing.in_flight > 0 || doing.watches > 0 || !rests
        });
    }
}

fn exceeded(plane: &Plane, what: &str, field: &str, limit: u64, seconds: u64) -> ApiError {
    let message = format!(
        "control plane \"{}\" has used up its budget of {what}: limits.{field} is {limit}",
        plane.name
    );
    ApiError::too_many_requests(message, seconds)
}
