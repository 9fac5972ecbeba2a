//! A provider from any kind of object that stands for clusters: a watch and a mapping.

use async_trait::async_trait;
use futures::{Stream, StreamExt as _};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};

use super::{ClusterSink, ClusterSpec, Provider, ProviderError};
use crate::cluster::{Access, chain};
use crate::request::ClusterName;

type Map = dyn Fn(ClusterName, &DynamicObject) -> Result<Option<ClusterSpec>, ProviderError> + Send + Sync;
type Name = dyn Fn(&DynamicObject) -> ClusterName + Send + Sync;

/// Follows the objects of a kind, each of which stands for at most one cluster.
///
/// ```no_run
/// # fn make(management: mica_runtime::Access) -> impl mica_runtime::Provider {
/// use kube::api::{ApiResource, GroupVersionKind};
/// use mica_runtime::ClusterSpec;
/// use mica_runtime::provider::Mapped;
///
/// let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1", "Cell"));
/// Mapped::new("cells", management.clone(), kind, move |name, cell| {
///     let path = cell.data["status"]["path"].as_str();
///     Ok(path.map(|path| ClusterSpec::new(name, management.at(path))))
/// })
/// # }
/// ```
pub struct Mapped {
    name: String,
    from: Following,
    cluster_name: Box<Name>,
    map: Box<Map>,
}

/// Which objects are followed.
#[derive(Clone)]
pub(super) struct Following {
    pub(super) access: Access,
    pub(super) resource: ApiResource,
    /// All namespaces if there is none.
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<String>,
}

impl Mapped {
    /// `map` says which cluster an object stands for now, if any. It is called again with every change of the object; for
    /// an error what it said last stays.
    pub fn new<F>(name: impl Into<String>, access: Access, resource: ApiResource, map: F) -> Self
    where
        F: Fn(ClusterName, &DynamicObject) -> Result<Option<ClusterSpec>, ProviderError> + Send + Sync + 'static,
    {
        let from = Following {
            access,
            resource,
            namespace: None,
            labels: None,
        };
        Self {
            name: name.into(),
            from,
            cluster_name: Box::new(object_name),
            map: Box::new(map),
        }
    }

    /// Only the objects of a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.from.namespace = Some(namespace.into());
        self
    }

    /// Only objects with these labels. The server selects: an object that no longer has them is one that is gone.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.from.labels = Some(selector.into());
        self
    }

    /// How the cluster of an object is called, if not as the object, with its namespace before it if it has one
    /// (`namespace/name`).
    #[must_use]
    pub fn cluster_names(mut self, name: impl Fn(&DynamicObject) -> ClusterName + Send + Sync + 'static) -> Self {
        self.cluster_name = Box::new(name);
        self
    }

    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    fn tell(&self, sink: &ClusterSink, object: &DynamicObject) {
        let name = (self.cluster_name)(object);
        match (self.map)(name.clone(), object) {
            Ok(Some(mut spec)) => {
                spec.name = name;
                sink.upsert(spec);
            }
            Ok(None) => sink.remove(&name),
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(provider = self.name, cluster = %name, error, "what the object says cannot be used");
                sink.keep(&name);
            }
        }
    }
}

#[async_trait]
impl Provider for Mapped {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let mut events = Box::pin(self.from.events());
        while let Some(event) = events.next().await {
            match note(&self.name, &sink, event) {
                Some(Event::Init) => sink.restart(),
                Some(Event::InitApply(object) | Event::Apply(object)) => self.tell(&sink, &object),
                Some(Event::Delete(object)) => sink.remove(&(self.cluster_name)(&object)),
                Some(Event::InitDone) => sink.synced(),
                None => {}
            }
        }
        Ok(())
    }
}

impl Following {
    pub(super) fn api(&self) -> Api<DynamicObject> {
        let client = self.access.client();
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }

    /// What happens to them, for ever: errors are waited out inside.
    pub(super) fn events(&self) -> impl Stream<Item = watcher::Result<Event<DynamicObject>>> + Send + use<> {
        let mut config = watcher::Config::default();
        if let Some(labels) = &self.labels {
            config = config.labels(labels);
        }
        watch(self.api(), config).default_backoff()
    }
}

/// Shows errors to people. They are waited out, so that a resumable watch is resumed and nothing is listed again.
pub(super) fn note<T>(provider: &str, sink: &ClusterSink, event: watcher::Result<T>) -> Option<T> {
    match event {
        Ok(event) => {
            sink.well();
            Some(event)
        }
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(provider, error, "the watch failed; it goes on");
            sink.trouble(error);
            None
        }
    }
}

/// `name`, or `namespace/name`.
pub(super) fn object_name(object: &DynamicObject) -> ClusterName {
    let name = object.name_any();
    match object.namespace() {
        Some(namespace) => ClusterName::new(format!("{namespace}/{name}")),
        None => ClusterName::new(name),
    }
}

/// Whether a condition of an object is True.
pub(super) fn is_true(object: &DynamicObject, condition: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|found| found["type"] == condition && found["status"] == "True")
}
