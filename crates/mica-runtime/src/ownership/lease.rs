//! Leases as objects: their timing, their fields as client-go writes them, and the requests about them.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};

/// How long leases last and how often they are renewed.
///
/// A replica that could not renew for `renew` stops by itself; another takes over after `lease`. What lies between is what a
/// request that was sent at the last moment has to arrive, and what the replicas' clocks may run apart in that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    pub lease: Duration,
    pub renew: Duration,
    pub retry: Duration,
}

impl Default for Timing {
    /// Those of client-go's users.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// What one request may take: two fit into the time in which one must succeed.
    pub(super) fn request(&self) -> Duration {
        self.renew / 2
    }
}

/// What went wrong with a request about a lease or the table.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// Another was first.
    #[error("it has changed since it was read")]
    Conflict,
    #[error("the server did not answer in time")]
    Late,
    #[error("the server refused")]
    Refused(#[source] kube::Error),
}

impl From<kube::Error> for Failed {
    fn from(err: kube::Error) -> Self {
        match &err {
            kube::Error::Api(status) if status.is_conflict() || status.is_already_exists() => Self::Conflict,
            _ => Self::Refused(err),
        }
    }
}

/// One request, with a deadline.
pub(super) async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failed> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(Failed::from),
        Err(_) => Err(Failed::Late),
    }
}

/// What a lease says.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Record {
    pub(super) holder: String,
    pub(super) lasts: Duration,
    pub(super) acquired: Option<Timestamp>,
    pub(super) renewed: Option<Timestamp>,
    pub(super) transitions: i32,
}

impl Record {
    pub(super) fn read(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.unwrap_or_default();
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            lasts: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    pub(super) fn write(&self) -> LeaseSpec {
        // Whole seconds, and never fewer than are meant: others would take over too early.
        let seconds = self.lasts.as_secs() + u64::from(self.lasts.subsec_nanos() > 0);
        LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            acquire_time: self.acquired.map(MicroTime),
            renew_time: self.renewed.map(MicroTime),
            lease_transitions: Some(self.transitions),
            ..LeaseSpec::default()
        }
    }
}

/// Leases of one namespace.
#[derive(Clone)]
pub(super) struct Leases {
    api: Api<Lease>,
    limit: Duration,
}

impl Leases {
    pub(super) fn new(client: kube::Client, namespace: &str, timing: Timing) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            limit: timing.request(),
        }
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<Lease>, Failed> {
        within(self.limit, self.api.get_opt(name)).await
    }

    pub(super) async fn list(&self, selector: &str) -> Result<Vec<Lease>, Failed> {
        let params = ListParams::default().labels(selector);
        Ok(within(self.limit, self.api.list(&params)).await?.items)
    }

    /// Makes a lease that has no `resourceVersion`, and replaces one that has, if it is still that version.
    pub(super) async fn write(&self, lease: &Lease) -> Result<Lease, Failed> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let params = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            within(self.limit, self.api.replace(name, &params, lease)).await
        } else {
            within(self.limit, self.api.create(&params, lease)).await
        }
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), Failed> {
        let params = DeleteParams::default();
        within(self.limit, self.api.delete(name, &params)).await.map(drop)
    }
}

/// A lease that is not there yet.
pub(super) fn fresh(name: &str) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    }
}

/// What replicas are called if nothing else is said: the host (the pod) and a part by chance, so that one that is started again
/// is another.
pub fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_default();
    let host: String = host
        .to_ascii_lowercase()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(40)
        .collect();
    let host = host.trim_matches('-');
    let chance = uuid::Uuid::new_v4().simple().to_string();
    let host = if host.is_empty() { "replica" } else { host };
    format!("{host}-{}", &chance[..8])
}
