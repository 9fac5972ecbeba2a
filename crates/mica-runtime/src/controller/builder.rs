//! How a controller is put together.

use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream::BoxStream;
use kube::core::{ApiResource, DynamicObject};

use super::core::{Core, CoreParts, Filter, Reach};
use super::predicate::Predicate;
use super::trigger::{Input, Map, Maps, OwnerScope, Trigger, Where, itself, owner};
use super::worker::Workshop;
use super::{Controller, Controllers, Reserved};
use crate::cluster::Cluster;
use crate::queue::{Backoff, Limits, Queue};
use crate::reconcile::Reconciler;
use crate::request::Request;
use crate::source::{Feeds, Object, Select};
use crate::store::Located;

/// Reconciles at once, if nothing else is said: enough that some that wait do not keep the rest waiting.
pub const CONCURRENCY: usize = 16;

/// A controller cannot be made so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    #[error("there is a controller {0:?} already")]
    NameTaken(String),
    #[error("the index {0:?} is of a kind that no controller watches whole")]
    IndexOfUnwatched(String),
}

/// One watch of a controller: which objects of a kind, and which changes of them.
pub struct Watch<K: Object> {
    kind: K::DynamicType,
    select: Select<K>,
    when: Vec<Box<dyn Predicate<K>>>,
}

impl<K: Object> Watch<K> {
    /// Of a kind that the type names.
    pub fn new() -> Self
    where
        K::DynamicType: Default,
    {
        Self::of(K::DynamicType::default())
    }

    /// Of a kind that is known only now.
    pub fn of(kind: K::DynamicType) -> Self {
        Self {
            kind,
            select: Select::all(),
            when: Vec::new(),
        }
    }

    /// Only some objects, or parts of them.
    #[must_use]
    pub fn select(mut self, select: Select<K>) -> Self {
        self.select = select;
        self
    }

    /// Only some changes. Of several predicates all must pass.
    #[must_use]
    pub fn when(mut self, predicate: impl Predicate<K>) -> Self {
        self.when.push(Box::new(predicate));
        self
    }
}

impl<K: Object> Default for Watch<K>
where
    K::DynamicType: Default,
{
    fn default() -> Self {
        Self::new()
    }
}

/// A controller that has a name, and no kind yet.
pub struct NewController {
    controllers: Controllers,
    name: String,
}

impl NewController {
    pub(super) fn new(controllers: Controllers, name: String) -> Self {
        Self { controllers, name }
    }

    /// Reconciles objects of this kind.
    pub fn for_<K: Object>(self) -> ControllerBuilder<K>
    where
        K::DynamicType: Default,
    {
        self.for_watch(Watch::new())
    }

    /// Reconciles objects of a kind that is known only now.
    pub fn for_dynamic(self, kind: ApiResource) -> ControllerBuilder<DynamicObject> {
        self.for_watch(Watch::of(kind))
    }

    /// Reconciles those objects that a watch shows.
    pub fn for_watch<K: Object>(self, watch: Watch<K>) -> ControllerBuilder<K> {
        ControllerBuilder {
            reach: self.controllers.default_reach(),
            controllers: self.controllers,
            name: self.name,
            primary: watch,
            others: Vec::new(),
            indexes: Vec::new(),
            channels: Vec::new(),
            filter: None,
            owners: OwnerScope::of::<K>(),
            concurrency: CONCURRENCY,
            per_cluster: None,
            backoff: Backoff::default(),
            timeout: None,
            resync: None,
        }
    }
}

type MakeInput = Box<dyn FnOnce(&Arc<Core>, &Feeds) -> Arc<dyn Input> + Send>;
type MakeIndex = Box<dyn FnOnce(&Feeds) -> Result<(), BuildError> + Send>;

/// A controller in the making. Nothing happens before [`ControllerBuilder::reconcile`].
pub struct ControllerBuilder<K: Object> {
    controllers: Controllers,
    name: String,
    primary: Watch<K>,
    others: Vec<MakeInput>,
    indexes: Vec<MakeIndex>,
    channels: Vec<BoxStream<'static, Request>>,
    filter: Option<Filter>,
    reach: Reach,
    owners: OwnerScope,
    concurrency: usize,
    per_cluster: Option<usize>,
    backoff: Backoff,
    timeout: Option<Duration>,
    resync: Option<Duration>,
}

impl<K: Object> ControllerBuilder<K> {
    /// Only some changes of the reconciled objects. Of several predicates all must pass.
    #[must_use]
    pub fn predicate(mut self, predicate: impl Predicate<K>) -> Self {
        self.primary.when.push(Box::new(predicate));
        self
    }

    /// Whether the reconciled objects have a namespace. Types know that; of a dynamic kind without one it must be said,
    /// before [`ControllerBuilder::owns`].
    #[must_use]
    pub fn scope(mut self, scope: OwnerScope) -> Self {
        self.owners = scope;
        self
    }

    /// Reconciles an object also when something changes that it controls (by its controller reference).
    #[must_use]
    pub fn owns<C: Object>(self) -> Self
    where
        C::DynamicType: Default,
    {
        self.owns_watch(Watch::<C>::new())
    }

    #[must_use]
    pub fn owns_watch<C: Object>(self, watch: Watch<C>) -> Self {
        let map = owner::<K, C>(&self.primary.kind, self.owners);
        self.add(watch, (Where::Clusters, Maps::Within), map)
    }

    /// Reconciles what an object of another kind is about: requests of the same cluster, or of any other. Both what an
    /// object was before a change and what it is after are asked.
    #[must_use]
    pub fn watches<C: Object>(self, map: impl Fn(&Located<C>) -> Vec<Request> + Send + Sync + 'static) -> Self
    where
        C::DynamicType: Default,
    {
        self.watches_watch(Watch::new(), map)
    }

    #[must_use]
    pub fn watches_watch<C: Object>(
        self,
        watch: Watch<C>,
        map: impl Fn(&Located<C>) -> Vec<Request> + Send + Sync + 'static,
    ) -> Self {
        self.add(watch, (Where::Clusters, Maps::Across), Box::new(map))
    }

    /// The same of objects in the local (management) cluster, wherever this controller works.
    #[must_use]
    pub fn watches_local<C: Object>(self, map: impl Fn(&Located<C>) -> Vec<Request> + Send + Sync + 'static) -> Self
    where
        C::DynamicType: Default,
    {
        self.watches_local_watch(Watch::new(), map)
    }

    #[must_use]
    pub fn watches_local_watch<C: Object>(
        self,
        watch: Watch<C>,
        map: impl Fn(&Located<C>) -> Vec<Request> + Send + Sync + 'static,
    ) -> Self {
        self.add(watch, (Where::Local, Maps::Across), Box::new(map))
    }

    /// Reconciles what comes from elsewhere: a channel, a timer, a webhook. How much can wait there is the stream's to say.
    /// Requests for clusters that are not engaged, or not read yet, are dropped: what is there is reconciled once they are.
    #[must_use]
    pub fn on_channel(mut self, requests: impl Stream<Item = Request> + Send + 'static) -> Self {
        self.channels.push(Box::pin(requests));
        self
    }

    /// Finds objects of a kind that this controller watches by values of theirs, in all clusters:
    /// [`Store::by_index`](crate::store::Store::by_index).
    #[must_use]
    pub fn index<C: Object>(
        mut self,
        name: impl Into<String>,
        values: impl Fn(&C) -> Vec<String> + Send + Sync + 'static,
    ) -> Self
    where
        C::DynamicType: Default,
    {
        let name = name.into();
        self.indexes.push(Box::new(move |feeds| {
            let Some(feed) = feeds.find::<C>(&C::DynamicType::default()) else {
                return Err(BuildError::IndexOfUnwatched(name));
            };
            feed.store().add_index(&name, Arc::new(values));
            Ok(())
        }));
        self
    }

    /// Works only on some clusters. Asked again when a cluster's labels change.
    #[must_use]
    pub fn clusters(mut self, filter: impl Fn(&Cluster) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Box::new(filter));
        self
    }

    /// Works on the clusters of providers, the local one, or both. If nothing is said: on those of providers where there
    /// are any, else on the local one.
    #[must_use]
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// How many objects are reconciled at once, over all clusters.
    #[must_use]
    pub fn concurrency(mut self, most: usize) -> Self {
        self.concurrency = most.max(1);
        self
    }

    /// How many objects of one cluster are reconciled at once. If nothing is said, half of all that can be, so that one
    /// cluster whose server is slow leaves workers for the others; all of them where there is only the local cluster.
    #[must_use]
    pub fn per_cluster(mut self, most: usize) -> Self {
        self.per_cluster = Some(most.max(1));
        self
    }

    /// How long what failed waits.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// A reconcile that takes longer is dropped, and counts as failed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Every object is looked at again after this time, changed or not.
    #[must_use]
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = Some(every);
        self
    }

    /// Starts the controller. It works on what is engaged from now on, until it or all controllers are stopped.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn reconcile<R: Reconciler<Kind = K>>(self, reconciler: R) -> Result<Controller, BuildError> {
        let controllers = self.controllers;
        let name: Arc<str> = self.name.into();
        let _building = controllers.0.building.lock();
        let reserved = Reserved::make(&controllers, &name)?;
        let around = &controllers.0.around;
        let share = match self.reach {
            Reach::Local => self.concurrency,
            Reach::Provided | Reach::Everywhere => self.concurrency.div_ceil(2),
        };
        let limits = Limits {
            per_cluster: self.per_cluster.unwrap_or(share),
            backoff: self.backoff,
        };
        let core = Arc::new(Core::new(CoreParts {
            name: name.clone(),
            queue: Queue::new(limits),
            metrics: around.metrics.controller(&name),
            roster: controllers.0.roster.clone(),
            reach: self.reach,
            filter: self.filter,
        }));
        let feeds = &controllers.0.feeds;
        let feed = feeds.get_or_make(self.primary.kind, self.primary.select);
        let within = (Where::Clusters, Maps::Within);
        let primary = Trigger::new(&core, feed.clone(), within, self.primary.when, itself());
        let mut inputs: Vec<Arc<dyn Input>> = vec![Arc::new(primary)];
        inputs.extend(self.others.into_iter().map(|make| make(&core, feeds)));
        for index in self.indexes {
            index(feeds)?;
        }
        core.metrics.workers(self.concurrency);
        let workshop = Arc::new(Workshop {
            core: core.clone(),
            name,
            reconciler,
            feed,
            fleet: controllers.view(),
            events: around.events.clone(),
            timeout: self.timeout,
        });
        reserved.fill(&core);
        let controller = Controller::new(core, &controllers);
        for _ in 0..self.concurrency {
            controller.spawn(workshop.clone().work());
        }
        controller.follow(self.channels, self.resync);
        controller.begin(inputs);
        Ok(controller)
    }

    fn add<C: Object>(mut self, watch: Watch<C>, way: (Where, Maps), map: Map<C>) -> Self {
        self.others.push(Box::new(move |core, feeds| {
            let feed = feeds.get_or_make(watch.kind, watch.select);
            Arc::new(Trigger::new(core, feed, way, watch.when, map))
        }));
        self
    }
}
