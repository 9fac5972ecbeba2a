//! One replica works, the others stand by.

use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::election::{Attempt, Election};
use super::lease::{Failed, Leases, Record, Timing, fresh};
use super::replica::Replica;
use super::term::{Tenure, Term};
use super::{Engages, Epoch, Ownership};
use crate::metrics::{Leadership, Metrics};
use crate::request::ClusterName;

/// What a replica does that does not lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standby {
    /// It watches everything, so that it can begin at once when it leads.
    Warm,
    /// It watches only the local cluster, and costs next to nothing.
    #[default]
    Cold,
}

/// Owns every cluster while it holds a Lease, which is the one that client-go's `leaderelection` would use: the two can take over from
/// each other. Who loses the lease stops work and stands by again; the process need not end.
pub struct Leader {
    name: String,
    leases: Leases,
    identity: String,
    timing: Timing,
    standby: Standby,
    handover: Duration,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    metrics: OnceLock<Metrics>,
}

struct State {
    election: Election,
    term: Option<Term>,
}

impl Leader {
    /// By the Lease of this name, on the management cluster.
    #[allow(clippy::new_ret_no_self, reason = "what is new is described first")]
    pub fn new(client: kube::Client, namespace: &str, name: &str) -> LeaderBuilder {
        LeaderBuilder {
            replica: Replica::new(client, namespace, name),
            standby: Standby::default(),
        }
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Reads the lease if need be, and takes or renews it if that is due.
    async fn turn(&self, known: &mut Option<Lease>) -> Result<(), Failed> {
        let reads = {
            let state = self.state.lock();
            state.election.leads(Instant::now()).is_none() || known.is_none()
        };
        if reads {
            *known = self.leases.get(&self.name).await?;
            let seen = known.as_ref().map(|lease| (Record::read(lease), version(lease)));
            self.state.lock().election.saw(seen, Instant::now());
        }
        let attempt = self.state.lock().election.attempt(Timestamp::now(), Instant::now());
        let Some(attempt) = attempt else {
            return Ok(());
        };
        self.send(attempt, known).await
    }

    async fn send(&self, attempt: Attempt, known: &mut Option<Lease>) -> Result<(), Failed> {
        let mut lease = known.clone().unwrap_or_else(|| fresh(&self.name));
        lease.metadata.resource_version = attempt.version.clone();
        let written = attempt.record.write();
        let before = lease.spec.unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            preferred_holder: before.preferred_holder,
            strategy: before.strategy,
            ..written
        });
        match self.leases.write(&lease).await {
            Ok(lease) => {
                let version = version(&lease);
                *known = Some(lease);
                self.state.lock().election.won(attempt, version, Instant::now());
                Ok(())
            }
            Err(err) => {
                // Whether it was written is not known: the next turn reads.
                *known = None;
                self.state.lock().election.lost();
                Err(err)
            }
        }
    }

    /// Makes the term what the election says.
    fn settle(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let leads = state.election.leads(Instant::now());
        if leads == state.term.as_ref().map(Term::epoch) {
            return;
        }
        if let Some(term) = state.term.take() {
            term.end();
            tracing::info!(lease = self.name, identity = self.identity, "leads no more");
        }
        state.term = leads.map(Term::new);
        if let Some(epoch) = leads {
            tracing::info!(lease = self.name, identity = self.identity, epoch, "leads");
        }
        if let Some(metrics) = self.metrics.get() {
            let leadership = leads.map_or(Leadership::StandsBy, |_| Leadership::Leads);
            metrics.leadership(&self.name, leadership);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Until leading runs out.
    async fn lapse(&self) {
        let until = {
            let state = self.state.lock();
            state.term.as_ref().and(state.election.until())
        };
        match until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    async fn step(&self, known: &mut Option<Lease>) {
        tokio::select! {
            biased;
            () = self.lapse() => {}
            result = self.turn(known) => if let Err(err) = result {
                let error = &err as &dyn std::error::Error;
                match err {
                    Failed::Conflict => tracing::debug!(lease = self.name, error, "another was first to write the lease"),
                    // Nobody may lead: that is to be seen.
                    Failed::Late | Failed::Refused(_) => {
                        tracing::warn!(lease = self.name, error, "the lease was neither taken nor renewed");
                    }
                }
            },
        }
        self.settle();
    }

    /// Lets what is under way finish, renewing meanwhile, and then gives the lease to whoever comes first.
    async fn leave(&self, known: &mut Option<Lease>) {
        let ended = {
            let state = self.state.lock();
            state.term.as_ref().map(|term| {
                term.close();
                term.ended()
            })
        };
        self.changes.send_modify(|count| *count += 1);
        let Some(ended) = ended else { return };
        let mut ended = Box::pin(ended);
        let deadline = Instant::now() + self.handover;
        loop {
            tokio::select! {
                () = &mut ended => break,
                () = sleep_until(deadline) => {
                    self.end_term();
                    // It was told to stop; who does not is overtaken when the lease has run out, and cannot write by then.
                    tokio::select! {
                        () = &mut ended => break,
                        () = tokio::time::sleep(self.timing.renew) => return,
                    }
                }
                () = tokio::time::sleep(self.timing.retry) => self.step(known).await,
            }
        }
        let release = self.state.lock().election.release(Timestamp::now(), Instant::now());
        self.settle();
        if let Some(release) = release
            && let Err(err) = self.send(release, known).await
        {
            let error = &err as &dyn std::error::Error;
            tracing::debug!(lease = self.name, error, "the lease was not released and runs out");
        }
    }

    fn end_term(&self) {
        if let Some(term) = &self.state.lock().term {
            term.end();
        }
    }
}

fn version(lease: &Lease) -> String {
    lease.metadata.resource_version.clone().unwrap_or_default()
}

#[async_trait]
impl Ownership for Leader {
    fn owns(&self, _: &ClusterName) -> Option<Epoch> {
        let state = self.state.lock();
        state.election.leads(Instant::now())?;
        state.term.as_ref()?.begins()
    }

    fn holds(&self, _: &ClusterName) -> Option<Epoch> {
        let state = self.state.lock();
        let leads = state.election.leads(Instant::now())?;
        state.term.as_ref().map(Term::epoch).filter(|epoch| *epoch == leads)
    }

    fn begin(&self, _: &ClusterName) -> Option<Tenure> {
        let state = self.state.lock();
        state.election.leads(Instant::now())?;
        state.term.as_ref()?.begin()
    }

    fn engages(&self, cluster: &ClusterName) -> Engages {
        let watches = cluster.is_local() || self.standby == Standby::Warm || self.holds(cluster).is_some();
        if watches { Engages::Yes } else { Engages::No }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn report_to(&self, metrics: &Metrics) {
        metrics.leadership(&self.name, Leadership::StandsBy);
        // Only the first is told: there is one manager.
        let _ = self.metrics.set(metrics.clone());
    }

    async fn run(&self, stop: CancellationToken) {
        let mut known = None;
        while !stop.is_cancelled() {
            self.step(&mut known).await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.lapse() => self.settle(),
                () = tokio::time::sleep(self.timing.retry) => {}
            }
        }
        self.leave(&mut known).await;
        self.settle();
    }
}

/// How to lead, if not as usual.
pub struct LeaderBuilder {
    replica: Replica,
    standby: Standby,
}

impl LeaderBuilder {
    /// What this replica is called in the lease. No two may have the same.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.replica.identity = identity.into();
        self
    }

    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.replica.timing = timing;
        self
    }

    #[must_use]
    pub fn standby(mut self, standby: Standby) -> Self {
        self.standby = standby;
        self
    }

    /// How long work that is under way may take when the process stops.
    #[must_use]
    pub fn handover(mut self, handover: Duration) -> Self {
        self.replica.handover = handover;
        self
    }

    pub fn build(self) -> Leader {
        let Self { replica, standby } = self;
        Leader {
            leases: Leases::new(replica.client, &replica.namespace, replica.timing),
            state: Mutex::new(State {
                election: Election::new(replica.identity.clone(), replica.timing),
                term: None,
            }),
            name: replica.name,
            identity: replica.identity,
            timing: replica.timing,
            standby,
            handover: replica.handover,
            changes: watch::Sender::new(0),
            metrics: OnceLock::new(),
        }
    }
}
