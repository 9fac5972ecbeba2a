//! Control planes that are registered for a service: ControlPlaneRegistrations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::mapped::{Following, note, object_name};
use super::secrets::{KUBECONFIG_KEY, kubeconfig};
use super::{ClusterSink, ClusterSpec, Provider, ProviderError};
use crate::cluster::{Access, Health, chain};
use crate::conditions::{self, Change, Status, Wanted};
use crate::request::ClusterName;

/// The condition that says how a registered control plane is, after the name of the service if there is one.
const ENGAGED: &str = "Engaged";
/// The mode of registrations that say none.
const SHARED: &str = "Shared";
/// Its reason where the registration is not engaged.
const NOT_ENGAGED: &str = "NotEngaged";
/// The label of Secrets that kplane writes: changes of those are seen at once.
const SECRET_LABEL: &str = "controlplane.kplane.dev/name";
/// How often every Secret is read again, for those that are not seen to change.
const READ_AGAIN: Duration = Duration::from_secs(300);
/// Secrets read at once.
const READS: usize = 16;
/// How often a status is written that somebody else writes at the same time.
const WRITES: usize = 5;

/// Engages what ControlPlaneRegistrations resolve to: the address in `status.resolvedEndpoint`, as it stands there, with
/// the trust and credentials of the Secret in `status.resolvedKubeconfigSecretRef`.
///
/// A registration that is not resolved, is not ready or is being deleted is let go. How it is, is written back as its
/// condition `Engaged`, or `ControllersEngaged` where it is for the service `Controllers`: others may engage it too. New credentials in the Secret are taken without a relist: at once if it has kplane's label or the
/// old ones are refused, else within minutes.
pub struct Registrations {
    name: String,
    from: Following,
    service: Option<String>,
    mode: Option<String>,
    /// Only the registration of this name.
    only: Option<String>,
    /// Not what is at this server.
    except: Option<String>,
    key: String,
    /// Those whose credentials were refused.
    refused: Mutex<BTreeSet<ClusterName>>,
    wake: Notify,
    /// Which version of a Secret was read last: what its watch shows of that one is no news.
    versions: Mutex<HashMap<(String, String), Option<String>>>,
}

type All = BTreeMap<ClusterName, Registration>;

/// What a registration says.
#[derive(Clone, PartialEq)]
struct Registration {
    endpoint: String,
    secret: (String, String),
    labels: BTreeMap<String, String>,
    identity: Option<String>,
}

impl Registrations {
    pub fn new(access: Access) -> Self {
        let kind = GroupVersionKind::gvk("controlplane.kplane.dev", "v1alpha1", "ControlPlaneRegistration");
        let resource = ApiResource::from_gvk_with_plural(&kind, "controlplaneregistrations");
        let from = Following {
            access,
            resource,
            namespace: None,
            labels: None,
        };
        Self {
            name: "registrations".to_owned(),
            from,
            service: None,
            mode: None,
            only: None,
            except: None,
            key: KUBECONFIG_KEY.to_owned(),
            refused: Mutex::default(),
            wake: Notify::new(),
            versions: Mutex::default(),
        }
    }

    /// Only what is registered for this service (`Controllers`, `Scheduler`, `Workloads`, or another), in any case of
    /// letters.
    #[must_use]
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = Some(service.into());
        self
    }

    /// Only what is registered with this mode: `Shared`, which is also meant where none is said, or `Dedicated`.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<String>) -> Self {
        self.mode = Some(mode.into());
        self
    }

    /// Only the registration of this name: for a process that serves one control plane, and no other.
    #[must_use]
    pub fn only(mut self, name: impl Into<String>) -> Self {
        self.only = Some(name.into());
        self
    }

    /// Not the planes of a server, by its address: for who serves all of those already.
    #[must_use]
    pub fn except_planes_of(mut self, server: impl Into<String>) -> Self {
        self.except = Some(server.into());
        self
    }

    /// Only registrations with these labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.from.labels = Some(selector.into());
        self
    }

    /// Another kind with the same fields.
    #[must_use]
    pub fn kind(mut self, kind: ApiResource) -> Self {
        self.from.resource = kind;
        self
    }

    /// Another key of the Secret, such as `kubeconfig-external`.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Another name than `registrations`, where a fleet has several.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Whether a registration is ours to engage, or somebody else's.
    fn is_ours(&self, object: &DynamicObject) -> bool {
        let (spec, status) = (&object.data["spec"], &object.data["status"]);
        let is = |value: &Value, wanted: &str| value.as_str().is_some_and(|value| value.eq_ignore_ascii_case(wanted));
        let services = spec["services"].as_array();
        let serves = |service: &String| services.is_some_and(|all| all.iter().any(|value| is(value, service)));
        let mode = spec["mode"].as_str().filter(|mode| !mode.is_empty()).unwrap_or(SHARED);
        let endpoint = status["resolvedEndpoint"].as_str().unwrap_or_default();
        let at = |server: &String| {
            let rest = endpoint.strip_prefix(server.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.starts_with("/clusters/"))
        };
        self.service.as_ref().is_none_or(serves)
            && self
                .mode
                .as_ref()
                .is_none_or(|wanted| mode.eq_ignore_ascii_case(wanted))
            && self
                .only
                .as_ref()
                .is_none_or(|name| object.metadata.name.as_ref() == Some(name))
            && !self.except.as_ref().is_some_and(at)
    }

    /// What a registration resolves to, if it is for us.
    fn resolved(&self, object: &DynamicObject) -> Option<Registration> {
        let status = &object.data["status"];
        let gone = object.metadata.deletion_timestamp.is_some() || status["ready"] == json!(false);
        if gone || !self.is_ours(object) {
            return None;
        }
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let secret = &status["resolvedKubeconfigSecretRef"];
        // One that is of another control plane from now on is another cluster.
        let of = object.data["spec"]["controlPlaneRef"]["name"]
            .as_str()
            .unwrap_or_default();
        Some(Registration {
            endpoint: text(&status["resolvedEndpoint"])?,
            secret: (text(&secret["namespace"])?, text(&secret["name"])?),
            labels: object.labels().clone(),
            identity: object.uid().map(|uid| format!("{uid}/{of}")),
        })
    }

    /// Reads a registration's Secret and tells the sink.
    async fn engage(&self, sink: &ClusterSink, name: &ClusterName, registration: &Registration) {
        match self.spec(name, registration).await {
            Ok(Some(spec)) => sink.upsert(spec),
            Ok(None) => {
                sink.remove(name);
                self.let_go(name, "the Secret with its kubeconfig is not there").await;
            }
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(provider = self.name, cluster = %name, error, "the registration cannot be used now");
                sink.keep(name);
            }
        }
    }

    async fn spec(&self, name: &ClusterName, found: &Registration) -> Result<Option<ClusterSpec>, ProviderError> {
        let (namespace, secret) = &found.secret;
        let kind = ApiResource::erase::<Secret>(&());
        let secrets: Api<DynamicObject> = Api::namespaced_with(self.from.access.client(), namespace, &kind);
        let Some(secret) = secrets.get_opt(secret).await? else {
            return Ok(None);
        };
        let version = secret.resource_version();
        self.versions.lock().insert(found.secret.clone(), version);
        let access = kubeconfig(&secret.data, &self.key)?.at_url(&found.endpoint)?;
        // Control planes move from server to server.
        let spec = ClusterSpec::new(name.clone(), access).wherever();
        let spec = spec.labels(found.labels.clone());
        Ok(Some(ClusterSpec {
            identity: found.identity.clone(),
            ..spec
        }))
    }

    /// Those of all that are chosen.
    async fn engage_some(&self, sink: &ClusterSink, all: &All, choose: impl Fn(&ClusterName, &Registration) -> bool) {
        let chosen: Vec<_> = all
            .iter()
            .filter(|(name, registration)| choose(name, registration))
            .collect();
        stream::iter(chosen)
            .for_each_concurrent(READS, |(name, registration)| self.engage(sink, name, registration))
            .await;
    }

    fn secret_events(
        &self,
    ) -> impl futures::Stream<Item = watcher::Result<Event<PartialObjectMeta<Secret>>>> + Send + use<> {
        let api: Api<PartialObjectMeta<Secret>> = Api::all(self.from.access.client());
        watch(api, watcher::Config::default().labels(SECRET_LABEL)).default_backoff()
    }
}

#[async_trait]
impl Provider for Registrations {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let mut all = All::new();
        let mut objects = Box::pin(self.from.events());
        let mut secrets = Box::pin(self.secret_events());
        let mut ticks = tokio::time::interval(READ_AGAIN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // While a list comes in, its Secrets are read when it is complete.
        let mut listing = false;
        loop {
            tokio::select! {
                Some(event) = objects.next() => match note(&self.name, &sink, event) {
                    Some(Event::Init) => {
                        all.clear();
                        listing = true;
                    }
                    Some(Event::InitApply(object) | Event::Apply(object)) => {
                        let name = object_name(&object);
                        match self.resolved(&object) {
                            Some(new) if listing => drop(all.insert(name, new)),
                            // A status that says the same, such as our own, is no reason to read the Secret.
                            Some(new) if all.get(&name) == Some(&new) => {}
                            Some(new) => {
                                self.engage(&sink, &name, &new).await;
                                all.insert(name, new);
                            }
                            None => {
                                // What others engage, they tell of.
                                let ours = all.remove(&name).is_some() || self.is_ours(&object);
                                sink.remove(&name);
                                if ours && self.says_otherwise(&object) {
                                    self.let_go(&name, "the registration is not ready").await;
                                }
                            }
                        }
                    }
                    Some(Event::Delete(object)) => {
                        let name = object_name(&object);
                        all.remove(&name);
                        sink.remove(&name);
                    }
                    Some(Event::InitDone) => {
                        listing = false;
                        self.versions.lock().retain(|secret, _| all.values().any(|found| found.secret == *secret));
                        sink.restart();
                        self.engage_some(&sink, &all, |_, _| true).await;
                        sink.synced();
                    }
                    None => {}
                },
                // Without the right to watch Secrets, they are still read again now and then.
                Some(Ok(Event::Apply(secret) | Event::InitApply(secret))) = secrets.next() => {
                    let changed = (secret.namespace().unwrap_or_default(), secret.name_any());
                    if self.versions.lock().get(&changed) == Some(&secret.resource_version()) {
                        continue;
                    }
                    self.engage_some(&sink, &all, |_, registration| registration.secret == changed).await;
                }
                () = self.wake.notified() => {
                    let refused = std::mem::take(&mut *self.refused.lock());
                    self.engage_some(&sink, &all, |name, _| refused.contains(name)).await;
                }
                _ = ticks.tick(), if !listing => self.engage_some(&sink, &all, |_, _| true).await,
            }
        }
    }

    async fn report(&self, cluster: &ClusterName, health: &Health) -> Result<(), ProviderError> {
        if matches!(health, Health::Unauthorized { .. }) {
            self.refused.lock().insert(cluster.clone());
            self.wake.notify_one();
        }
        // Whether anything was asked of it yet is nobody's concern.
        let wanted = match health.is_well() {
            true => Wanted::new(self.condition(), Status::True, ENGAGED).message(Health::Engaged.to_string()),
            false => Wanted::new(self.condition(), Status::False, health.reason()).message(health.to_string()),
        };
        self.write(cluster, &wanted).await
    }
}

impl Registrations {
    /// The type of the condition that is ours.
    fn condition(&self) -> String {
        let service = self.service.as_deref().unwrap_or_default();
        let mut letters = service.chars().filter(char::is_ascii_alphanumeric);
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).chain(ENGAGED.chars()).collect()
    }

    /// Whether a registration that is not engaged is still said to be, or to be dead.
    fn says_otherwise(&self, object: &DynamicObject) -> bool {
        let condition = self.condition();
        let conditions = object.data["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|found| found["type"] == *condition && found["reason"] != NOT_ENGAGED)
    }

    /// Says of a registration that was engaged that it is not any more.
    async fn let_go(&self, name: &ClusterName, message: &str) {
        let wanted = Wanted::new(self.condition(), Status::False, NOT_ENGAGED).message(message);
        if let Err(error) = self.write(name, &wanted).await {
            tracing::warn!(provider = self.name, cluster = %name, error = chain(&error), "its status was not written");
        }
    }

    async fn write(&self, cluster: &ClusterName, wanted: &Wanted) -> Result<(), ProviderError> {
        let client = self.from.access.client();
        let (api, name): (Api<DynamicObject>, &str) = match cluster.as_str().split_once('/') {
            Some((namespace, name)) => (Api::namespaced_with(client, namespace, &self.from.resource), name),
            None => (Api::all_with(client, &self.from.resource), cluster.as_str()),
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(mut object) = api.get_opt(name).await? else {
                return Ok(());
            };
            if set_condition(&mut object, wanted.clone()) == Change::Unchanged {
                return Ok(());
            }
            match api.replace_status(name, &PostParams::default(), &object).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 && tries < WRITES => {}
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Sets the condition on an object, whatever other fields and conditions it has.
fn set_condition(object: &mut DynamicObject, wanted: Wanted) -> Change {
    let wanted = wanted.observed(object);
    let mut conditions: Vec<Condition> = match object.data["status"].get("conditions") {
        None | Some(Value::Null) => Vec::new(),
        Some(found) => match serde_json::from_value(found.clone()) {
            Ok(found) => found,
            // They are somebody's; what is not understood is not overwritten.
            Err(_) => return Change::Unchanged,
        },
    };
    let change = conditions::set(&mut conditions, wanted, Timestamp::now());
    object.data["status"]["conditions"] = json!(conditions);
    change
}
