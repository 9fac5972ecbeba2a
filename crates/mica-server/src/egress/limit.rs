//! How many calls are made at once: a tenant whose webhook hangs waits for itself.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Tenant;

/// Calls of one tenant under way: enough for a webhook of 10 ms to answer 3,000 requests a second, and a small part of
/// [`PROCESS_CALLS`].
pub const TENANT_CALLS: usize = 32;
/// Calls of one tenant that wait for their turn. Each holds a request open, so more are refused.
pub const TENANT_WAITING: usize = 256;
/// Calls of all tenants under way, each with a connection: far below what a process may open. It takes 128 tenants at their
/// bound, all hanging, before others wait.
pub const PROCESS_CALLS: usize = 4096;

/// A tenant has too many calls waiting.
#[derive(Debug, thiserror::Error)]
#[error("too many calls of this control plane are waiting for its webhooks")]
pub struct Full;

pub(super) struct Limits {
    process: Arc<Semaphore>,
    tenants: Mutex<HashMap<Tenant, Entry>>,
}

/// One tenant's calls. It exists only while there are any.
struct Entry {
    calls: Arc<Semaphore>,
    /// Under way or waiting.
    present: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            process: Arc::new(Semaphore::new(PROCESS_CALLS)),
            tenants: Mutex::default(),
        }
    }
}

/// The right to make one call.
pub(super) struct Turn<'l> {
    _process: OwnedSemaphorePermit,
    _tenant: OwnedSemaphorePermit,
    _presence: Presence<'l>,
}

struct Presence<'l> {
    limits: &'l Limits,
    tenant: Tenant,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        let mut tenants = self.limits.tenants.lock();
        if let Some(entry) = tenants.get_mut(&self.tenant) {
            entry.present -= 1;
            if entry.present == 0 {
                tenants.remove(&self.tenant);
            }
        }
    }
}

impl Limits {
    /// Waits for a turn. Giving up is dropping the future.
    pub(super) async fn enter(&self, tenant: Tenant) -> Result<Turn<'_>, Full> {
        let (calls, presence) = self.arrive(tenant)?;
        let open = "the semaphores are never closed";
        // The tenant's own turn first: whoever waits for it must not hold a place that others could use.
        let of_tenant = calls.acquire_owned().await.expect(open);
        let of_process = self.process.clone().acquire_owned().await.expect(open);
        Ok(Turn {
            _process: of_process,
            _tenant: of_tenant,
            _presence: presence,
        })
    }

    fn arrive(&self, tenant: Tenant) -> Result<(Arc<Semaphore>, Presence<'_>), Full> {
        let mut tenants = self.tenants.lock();
        let entry = tenants.entry(tenant).or_insert_with(|| Entry {
            calls: Arc::new(Semaphore::new(TENANT_CALLS)),
            present: 0,
        });
        if entry.present >= TENANT_CALLS + TENANT_WAITING {
            return Err(Full);
        }
        entry.present += 1;
        Ok((entry.calls.clone(), Presence { limits: self, tenant }))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use mica_api::PlaneId;

    use super::*;

    #[test]
    fn a_tenant_waits_for_itself_alone_and_leaves_nothing_behind() {
        let limits = Limits::default();
        let (one, other) = (
            Tenant::Plane(PlaneId::from_random(1)),
            Tenant::Plane(PlaneId::from_random(2)),
        );
        let mut turns: Vec<_> = (0..TENANT_CALLS)
            .map(|_| limits.enter(one).now_or_never().expect("there is room").unwrap())
            .collect();
        let mut waiting: Vec<_> = (0..TENANT_WAITING).map(|_| Box::pin(limits.enter(one))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        assert!(matches!(limits.enter(one).now_or_never(), Some(Err(Full))));
        let others = limits
            .enter(other)
            .now_or_never()
            .expect("others have their own")
            .unwrap();
        turns.pop();
        assert!(
            waiting[0].as_mut().now_or_never().is_some(),
            "the first in line is next"
        );
        drop((turns, waiting, others));
        assert!(limits.tenants.lock().is_empty());
        assert_eq!(limits.process.available_permits(), PROCESS_CALLS);
    }
}
