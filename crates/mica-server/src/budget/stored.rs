//! How much planes hold, known well enough to refuse what would be too much.
//!
//! What a plane holds is counted by the store, which reads all its keys: seldom, therefore, and from then on this server adds
//! up what it writes. Before it refuses it counts again, unless it just did: objects also go by themselves, and other servers
//! of the same store write too.
//!
//! A write takes its room before it commits, and gives it back if it fails. So one server never lets in more than fits, and
//! several on one store at most what the others wrote in the last [`TRUSTED`]. What shrinks, or goes, is never refused.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use mica_api::PlaneId;
use mica_store::{KeyRange, Store};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::Budgets;
use crate::authz::Target;
use crate::error::ApiError;
use crate::plane::limits::Limits;
use crate::registry::owner;

/// Planes whose holdings are known.
const KNOWN: usize = 10_000;

/// How long a count is good for a refusal.
const TRUSTED: Duration = Duration::from_secs(5);

/// Writes to a plane until its holdings are counted, where only the server's own defaults bound it: most never come near.
const UNCOUNTED_WRITES: u64 = 1000;

/// What all planes hold, as far as it is known.
pub struct Holdings {
    store: Arc<dyn Store>,
    pub budgets: Arc<Budgets>,
    planes: Cache<PlaneId, Arc<Holding>>,
}

#[derive(Default)]
struct Holding {
    /// What was counted, and written since.
    settled: Amount,
    /// What writes under way will add.
    pending: Amount,
    /// Writes since it is known of.
    writes: AtomicU64,
    /// When it was counted; never, at first.
    counted: Mutex<Option<Instant>>,
    /// One counts at a time.
    counting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Amount {
    objects: AtomicI64,
    bytes: AtomicI64,
}

impl Amount {
    fn add(&self, change: Change) {
        self.objects.fetch_add(change.objects, Ordering::AcqRel);
        self.bytes.fetch_add(change.bytes, Ordering::AcqRel);
    }

    fn get(&self) -> Change {
        Change {
            objects: self.objects.load(Ordering::Acquire),
            bytes: self.bytes.load(Ordering::Acquire),
        }
    }
}

/// How a write changes what its plane holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    pub objects: i64,
    pub bytes: i64,
}

impl Change {
    fn minus(self, other: Self) -> Self {
        Self {
            objects: self.objects - other.objects,
            bytes: self.bytes - other.bytes,
        }
    }
}

/// Room that a write has taken until it is done, or has failed.
pub struct Room {
    holding: Arc<Holding>,
    taken: Change,
}

impl Room {
    fn take(holding: &Arc<Holding>, change: Change) -> Self {
        // What others will free is not free yet.
        let taken = Change {
            objects: change.objects.max(0),
            bytes: change.bytes.max(0),
        };
        holding.pending.add(taken);
        Self {
            holding: holding.clone(),
            taken,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.holding.pending.add(Change::default().minus(self.taken));
    }
}

/// A budget that a write does not fit into.
struct Over {
    what: &'static str,
    field: &'static str,
    limit: u64,
    used: i64,
    asked: i64,
}

impl Holdings {
    pub fn new(store: Arc<dyn Store>, budgets: Arc<Budgets>) -> Self {
        Self {
            store,
            budgets,
            planes: Cache::new(KNOWN),
        }
    }

    fn holding(&self, plane: PlaneId) -> Arc<Holding> {
        let made = self
            .planes
            .get_or_insert_with(&plane, || Ok::<_, Infallible>(Arc::default()));
        made.unwrap_or_default()
    }

    /// Takes room for a write that grows; `None` where nothing is bounded, or the write does not grow.
    pub async fn take(&self, target: &Target, change: Change) -> Result<Option<Room>, ApiError> {
        let plane = &target.plane;
        let limits = self.budgets.limits(plane);
        let bounded = limits.objects.is_some() || limits.stored_bytes.is_some();
        if !bounded || (change.objects <= 0 && change.bytes <= 0) {
            return Ok(None);
        }
        let holding = self.holding(plane.id);
        let stated = plane.limits().objects.is_some() || plane.limits().stored_bytes.is_some();
        let seen = holding.writes.fetch_add(1, Ordering::Relaxed);
        if stated || seen >= UNCOUNTED_WRITES {
            self.count(plane.id, &holding, None).await?;
        }
        let room = Room::take(&holding, change);
        if over(&holding, limits, change).is_none() {
            return Ok(Some(room));
        }
        // Given back while all is counted anew, and taken again.
        drop(room);
        self.count(plane.id, &holding, Some(TRUSTED)).await?;
        let room = Room::take(&holding, change);
        match over(&holding, limits, change) {
            None => Ok(Some(room)),
            Some(over) => Err(exceeded(target, &over)),
        }
    }

    /// A write was done.
    pub fn settle(&self, plane: PlaneId, change: Change) {
        // Nothing to add to where nobody asked yet: it will be counted.
        if let Some(holding) = self.planes.get(&plane) {
            holding.settled.add(change);
        }
    }

    /// Counts what a plane holds, unless that was done within `trusted`, or ever.
    async fn count(&self, id: PlaneId, holding: &Holding, trusted: Option<Duration>) -> Result<(), ApiError> {
        let fresh = |at: Instant| trusted.is_none_or(|trusted| at.elapsed() < trusted);
        if holding.counted.lock().is_some_and(fresh) {
            return Ok(());
        }
        let _turn = holding.counting.lock().await;
        if holding.counted.lock().is_some_and(fresh) {
            return Ok(());
        }
        let before = holding.settled.get();
        let whole = self.store.usage(&KeyRange::Plane(id)).await?;
        let internal = self.store.usage(&owner::index_of(id)).await?;
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let now = Change {
            objects: signed(whole.records.saturating_sub(internal.records)),
            bytes: signed(whole.bytes.saturating_sub(internal.bytes)),
        };
        // What was settled while this was counted may be in both: rather that than in neither.
        holding.settled.add(now.minus(before));
        *holding.counted.lock() = Some(Instant::now());
        Ok(())
    }
}

fn over(holding: &Holding, limits: Limits, change: Change) -> Option<Over> {
    let (settled, pending) = (holding.settled.get(), holding.pending.get());
    let too_many = |what, field, limit: Option<u64>, total: i64, asked: i64| {
        let limit = limit.filter(|limit| asked > 0 && i128::from(total) > i128::from(*limit))?;
        Some(Over {
            what,
            field,
            limit,
            used: total - asked,
            asked,
        })
    };
    let (objects, bytes) = (settled.objects + pending.objects, settled.bytes + pending.bytes);
    too_many("objects", "objects", limits.objects, objects, change.objects)
        .or_else(|| too_many("stored bytes", "storedBytes", limits.stored_bytes, bytes, change.bytes))
}

/// 403 in the manner of a quota.
fn exceeded(target: &Target, over: &Over) -> ApiError {
    let Over {
        what,
        field,
        limit,
        used,
        asked,
    } = over;
    let why = format!(
        "exceeded budget of control plane \"{}\" for {what}: limits.{field}, requested: {asked}, used: {used}, limited: {limit}",
        target.plane.name
    );
    ApiError::forbidden(&target.served.name, target.object(), &why)
}
