//! Replicas share the fleet: each has the clusters of the slots that it holds.
//!
//! Each replica renews a Lease of its own, and one ConfigMap says who holds which slot. A replica that comes gets its part as
//! soon as the others have let go of it; one that goes gives its part away first; one that dies is replaced when its lease has
//! run out. The work is the same for 10 clusters and for 100,000: two small reads and one write for each replica now and then.

mod members;
mod shares;
mod table;

use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, select_all};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::{WatchStreamExt as _, watcher};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::lease::{Failed, Leases, Record, Timing, fresh};
use super::rendezvous::{Peer, slot_of};
use super::replica::Replica;
use super::term::Tenure;
use super::{Engages, Epoch, Ownership};
use crate::metrics::Metrics;
use crate::request::ClusterName;
use members::{Members, Said};
use shares::Shares;
use table::Tables;

/// Says on a Lease which group its replica is of.
pub const GROUP_LABEL: &str = "runtime.mica.dev/group";
const REPLICA_ANNOTATION: &str = "runtime.mica.dev/replica";
const WEIGHT_ANNOTATION: &str = "runtime.mica.dev/weight";

/// How often a change of the table is tried when others write it at the same time.
const MOST_TRIES: usize = 5;
/// Changes of the table that follow each other are looked at so much more often than leases are renewed, and no more.
const PACE: u32 = 10;

/// Owns the clusters of the slots that this replica holds. All replicas of one group must use the same names and timing.
pub struct Sharded {
    group: String,
    replica: String,
    weight: f64,
    timing: Timing,
    leases: Leases,
    tables: Tables,
    shares: Mutex<Shares>,
    told: Mutex<u64>,
    changes: watch::Sender<u64>,
    metrics: OnceLock<Metrics>,
}

/// What one run of a replica remembers.
struct Run {
    members: Members,
    lease: Option<Lease>,
    renewed: Option<Instant>,
    begun: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    TakesPart,
    /// It gives everything away: by then its lease says that it has no weight.
    Leaves,
}

impl Sharded {
    /// Shares with all replicas that name the same group in the same namespace of the management cluster.
    #[allow(clippy::new_ret_no_self, reason = "what is new is described first")]
    pub fn new(client: kube::Client, namespace: &str, group: &str) -> ShardedBuilder {
        ShardedBuilder {
            replica: Replica::new(client, namespace, group),
            weight: 1.0,
        }
    }

    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// How many slots this replica works on.
    pub fn slots(&self) -> usize {
        self.shares.lock().count().0
    }

    fn lease_name(&self) -> String {
        format!("{}-{}", self.group, self.replica)
    }

    /// One look at the leases and the table, and what follows from it.
    async fn turn(&self, run: &mut Run) -> Result<(), Failed> {
        let due = run
            .renewed
            .is_none_or(|renewed| Instant::now() >= renewed + self.timing.retry);
        if due {
            self.renew(run).await?;
        }
        for _ in 0..MOST_TRIES {
            match self.take_and_give(run).await {
                Err(Failed::Conflict) => {}
                done => return done,
            }
        }
        Err(Failed::Conflict)
    }

    async fn take_and_give(&self, run: &mut Run) -> Result<(), Failed> {
        let leases = self.leases.list(&format!("{GROUP_LABEL}={}", self.group)).await?;
        let read = self.tables.get().await?;
        let now = Instant::now();
        let holders = read.table.values().map(|holder| holder.replica.as_str());
        run.members.saw(leases.iter().filter_map(said).collect(), holders, now);
        let mut alive = run.members.alive(now);
        alive.retain(|peer| peer.name != self.replica);
        alive.push(Peer {
            name: self.replica.clone(),
            weight: self.weight_in(run.stage),
        });
        let changes = {
            let mut shares = self.shares.lock();
            shares.follow(&read.table);
            shares.plan(&read.table, &alive, now)
        };
        self.tell();
        if !changes.is_empty() {
            let mut table = read.table.clone();
            changes.write_into(&self.replica, &mut table);
            self.tables.put(read, &table).await?;
            self.shares.lock().wrote(&changes, Instant::now());
            self.tell();
        }
        for replica in run.members.litter(now) {
            // Whoever is first removes it.
            let _ = self.leases.delete(&format!("{}-{replica}", self.group)).await;
        }
        Ok(())
    }

    fn weight_in(&self, stage: Stage) -> f64 {
        match stage {
            Stage::TakesPart => self.weight,
            Stage::Leaves => 0.0,
        }
    }

    async fn renew(&self, run: &mut Run) -> Result<(), Failed> {
        let name = self.lease_name();
        if run.lease.is_none() {
            run.lease = self.leases.get(&name).await?;
        }
        let mut lease = run.lease.take().unwrap_or_else(|| fresh(&name));
        let wall = Timestamp::now();
        let before = Record::read(&lease);
        let record = Record {
            holder: self.replica.clone(),
            lasts: self.timing.lease,
            acquired: before.acquired.or(Some(wall)),
            renewed: Some(wall),
            transitions: before.transitions,
        };
        lease.spec = Some(record.write());
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert(GROUP_LABEL.to_owned(), self.group.clone());
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(REPLICA_ANNOTATION.to_owned(), self.replica.clone());
        annotations.insert(WEIGHT_ANNOTATION.to_owned(), self.weight_in(run.stage).to_string());
        let sent = Instant::now();
        let lease = self.leases.write(&lease).await?;
        run.lease = Some(lease);
        run.renewed = Some(sent);
        self.shares.lock().renewed(sent + self.timing.renew, Instant::now());
        Ok(())
    }

    /// Says that answers may differ, if what is held does.
    fn tell(&self) {
        let (version, (owned, leaving)) = {
            let shares = self.shares.lock();
            (shares.version(), shares.count())
        };
        if std::mem::replace(&mut *self.told.lock(), version) == version {
            return;
        }
        if let Some(metrics) = self.metrics.get() {
            metrics.slots(&self.group, owned, leaving);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Until the lease runs out or work must be told to stop.
    async fn due(&self) {
        let due = self.shares.lock().due();
        match due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    fn expire(&self) {
        self.shares.lock().expire(Instant::now());
        self.tell();
    }

    /// Until a slot that is being handed over is through.
    fn through(&self) -> BoxFuture<'static, ()> {
        let through: Vec<_> = self.shares.lock().through().into_iter().map(Box::pin).collect();
        if through.is_empty() {
            return std::future::pending().boxed();
        }
        select_all(through).map(drop).boxed()
    }

    async fn step(&self, run: &mut Run) {
        run.begun = Instant::now();
        tokio::select! {
            biased;
            () = self.due() => {}
            result = self.turn(run) => if let Err(err) = result {
                let error = &err as &dyn std::error::Error;
                tracing::debug!(group = self.group, error, "the replicas' table was not brought up to date");
            },
        }
        self.expire();
    }
}

/// What a replica's lease says; `None` for one that is none.
fn said(lease: &Lease) -> Option<Said> {
    let annotations = lease.metadata.annotations.as_ref()?;
    let weight: f64 = annotations.get(WEIGHT_ANNOTATION)?.parse().ok()?;
    Some(Said {
        replica: annotations.get(REPLICA_ANNOTATION)?.clone(),
        version: lease.metadata.resource_version.clone()?,
        weight: if weight.is_finite() { weight } else { 0.0 },
        lasts: Record::read(lease).lasts,
    })
}

#[async_trait]
impl Ownership for Sharded {
    fn owns(&self, cluster: &ClusterName) -> Option<Epoch> {
        self.shares.lock().owns(slot_of(cluster), Instant::now())
    }

    fn holds(&self, cluster: &ClusterName) -> Option<Epoch> {
        self.shares.lock().holds(slot_of(cluster), Instant::now())
    }

    fn begin(&self, cluster: &ClusterName) -> Option<Tenure> {
        self.shares.lock().begin(slot_of(cluster), Instant::now())
    }

    fn engages(&self, cluster: &ClusterName) -> Engages {
        if cluster.is_local() || self.holds(cluster).is_some() {
            Engages::Yes
        } else {
            Engages::No
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn report_to(&self, metrics: &Metrics) {
        // Only the first is told: there is one manager.
        let _ = self.metrics.set(metrics.clone());
    }

    async fn run(&self, stop: CancellationToken) {
        let mut run = Run {
            members: Members::new(self.timing.lease),
            lease: None,
            renewed: None,
            begun: Instant::now(),
            stage: Stage::TakesPart,
        };
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.group));
        let mut table = watcher(self.tables.api(), only).default_backoff().boxed();
        loop {
            self.step(&mut run).await;
            if run.stage == Stage::Leaves && self.shares.lock().count() == (0, 0) {
                break;
            }
            let (tick, pace) = (run.begun + self.timing.retry, run.begun + self.timing.retry / PACE);
            tokio::select! {
                () = stop.cancelled(), if run.stage == Stage::TakesPart => {
                    run.stage = Stage::Leaves;
                    // The others must know at once: they take nothing that they think is still wanted here.
                    run.renewed = None;
                    continue;
                }
                () = sleep_until(tick) => continue,
                () = self.due() => {}
                () = self.through() => {}
                Some(_) = table.next() => {}
            }
            self.expire();
            sleep_until(pace.min(tick)).await;
        }
        let _ = self.leases.delete(&self.lease_name()).await;
    }
}

/// How to share, if not as usual.
pub struct ShardedBuilder {
    replica: Replica,
    weight: f64,
}

impl ShardedBuilder {
    /// What this replica is called: a DNS label that no other has, nor had before it was started again.
    #[must_use]
    pub fn replica(mut self, replica: impl Into<String>) -> Self {
        self.replica.identity = replica.into();
        self
    }

    /// How much of the fleet this replica takes, compared with others. They take 1.
    #[must_use]
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }

    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.replica.timing = timing;
        self
    }

    /// How long work that is under way may take when its cluster is to be another replica's.
    #[must_use]
    pub fn handover(mut self, handover: Duration) -> Self {
        self.replica.handover = handover;
        self
    }

    pub fn build(self) -> Sharded {
        let Self { replica, weight } = self;
        let limit = replica.timing.request();
        Sharded {
            leases: Leases::new(replica.client.clone(), &replica.namespace, replica.timing),
            tables: Tables::new(replica.client, &replica.namespace, &replica.name, limit),
            shares: Mutex::new(Shares::new(replica.identity.clone(), replica.handover)),
            told: Mutex::new(0),
            group: replica.name,
            replica: replica.identity,
            weight,
            timing: replica.timing,
            changes: watch::Sender::new(0),
            metrics: OnceLock::new(),
        }
    }
}
