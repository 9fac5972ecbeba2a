//! From a change of one object to the requests that follow from it.

use std::any::TypeId;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use super::core::Core;
use super::predicate::Predicate;
use crate::cluster::Cluster;
use crate::queue::Priority;
use crate::request::{ClusterName, Request};
use crate::source::{AnyFeed, Feed, Listener, Object, Roster};
use crate::store::{Change, Located};

/// Which requests an object is about.
pub(super) type Map<K> = Box<dyn Fn(&Located<K>) -> Vec<Request> + Send + Sync>;

/// Where a watch looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Where {
    /// In the clusters that the controller works on.
    Clusters,
    /// In the local cluster alone.
    Local,
}

/// Whether an object can be about requests of other clusters than its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Maps {
    Within,
    Across,
}

/// One watch of a controller.
pub(super) struct Trigger<K: Object> {
    controller: Weak<Core>,
    feed: Arc<Feed<K>>,
    looks: Where,
    maps: Maps,
    when: Vec<Box<dyn Predicate<K>>>,
    map: Map<K>,
}

/// A trigger of any kind, as its controller sees it.
pub(super) trait Input: Send + Sync {
    fn feed(&self) -> Arc<dyn AnyFeed>;
    fn looks(&self) -> Where;
    /// Whether all that this watch can say about work in a cluster is in the store.
    fn synced(&self, cluster: &Cluster, roster: &Roster) -> bool;
    /// Makes requests of everything that is in the store: of one cluster, or of all.
    fn replay(&self, of: Option<&ClusterName>);
    fn maps(&self) -> Maps;
    /// Makes those requests of other clusters' objects that are for these clusters: they have just become ready.
    fn replay_into(&self, arrived: &HashSet<ClusterName>);
    fn subscribe(self: Arc<Self>);
    fn unsubscribe(self: Arc<Self>);
}

impl<K: Object> Trigger<K> {
    pub(super) fn new(
        controller: &Arc<Core>,
        feed: Arc<Feed<K>>,
        (looks, maps): (Where, Maps),
        when: Vec<Box<dyn Predicate<K>>>,
        map: Map<K>,
    ) -> Self {
        Self {
            controller: Arc::downgrade(controller),
            feed,
            looks,
            maps,
            when,
            map,
        }
    }

    fn covers(&self, controller: &Core, cluster: &Cluster) -> bool {
        match self.looks {
            Where::Clusters => controller.wants(cluster),
            Where::Local => cluster.name().is_local(),
        }
    }

    /// What follows from a change. A function of the author's that panics costs what it would have said.
    fn requests(&self, cluster: &ClusterName, change: &Change<K>) -> Vec<Request> {
        let requests = catch_unwind(AssertUnwindSafe(|| {
            if !self.when.iter().all(|predicate| predicate.passes(change)) {
                return Vec::new();
            }
            // What it was about before must hear of it too.
            let mut requests = Vec::new();
            for object in change.old().into_iter().chain(change.new()) {
                requests.extend((self.map)(&Located {
                    cluster: cluster.clone(),
                    object: object.clone(),
                }));
            }
            requests
        }));
        requests.unwrap_or_else(|_| {
            let kind = K::kind(self.feed.kind());
            tracing::error!(%kind, %cluster, "a predicate or mapping panicked");
            Vec::new()
        })
    }
}

impl<K: Object> Listener<K> for Trigger<K> {
    fn wants(&self, cluster: &Cluster) -> bool {
        let controller = self.controller.upgrade();
        controller.is_some_and(|controller| self.covers(&controller, cluster))
    }

    fn changed(&self, cluster: &Cluster, change: &Change<K>) {
        if let Some(controller) = self.controller.upgrade()
            && self.covers(&controller, cluster)
        {
            for request in self.requests(cluster.name(), change) {
                controller.enqueue(request, Priority::Normal);
            }
        }
    }

    fn born(&self, cluster: &Cluster, object: &Arc<K>) {
        if let Some(controller) = self.controller.upgrade()
            && self.covers(&controller, cluster)
        {
            for request in self.requests(cluster.name(), &Change::Added(object.clone())) {
                controller.enqueue(request, Priority::Low);
            }
        }
    }

    fn synced(&self, cluster: &Cluster) {
        if let Some(controller) = self.controller.upgrade() {
            controller.synced(cluster);
        }
    }

    fn all_synced(&self) {
        if let Some(controller) = self.controller.upgrade() {
            controller.replay(None);
        }
    }
}

impl<K: Object> Input for Trigger<K> {
    fn feed(&self) -> Arc<dyn AnyFeed> {
        self.feed.clone()
    }

    fn looks(&self) -> Where {
        self.looks
    }

    fn synced(&self, cluster: &Cluster, roster: &Roster) -> bool {
        match self.looks {
            Where::Clusters => self.feed.synced(cluster),
            Where::Local => {
                let local = roster.get(&ClusterName::local());
                local.is_some_and(|local| self.feed.synced(&local))
            }
        }
    }

    fn replay(&self, of: Option<&ClusterName>) {
        let Some(controller) = self.controller.upgrade() else {
            return;
        };
        let pull = |request: &Request, object: &Arc<K>| {
            for request in self.requests(&request.cluster, &Change::Added(object.clone())) {
                controller.enqueue(request, Priority::Low);
            }
        };
        let covered = |name: &ClusterName| {
            let cluster = controller.roster().get(name);
            cluster.is_some_and(|cluster| self.covers(&controller, &cluster))
        };
        match of {
            Some(cluster) if covered(cluster) => self.feed.store().visit_in(cluster, pull),
            Some(_) => {}
            None => self.feed.store().visit(|request, object| {
                if covered(&request.cluster) {
                    pull(request, object);
                }
            }),
        }
        if self.looks == Where::Clusters {
            let one = of.map(|name| controller.roster().get(name));
            let clusters = one.map_or_else(|| controller.roster().all(), |one| one.into_iter().collect());
            for cluster in clusters.iter().filter(|cluster| self.covers(&controller, cluster)) {
                self.feed.look_for_born(cluster);
            }
        }
    }

    fn maps(&self) -> Maps {
        self.maps
    }

    fn replay_into(&self, arrived: &HashSet<ClusterName>) {
        let Some(controller) = self.controller.upgrade() else {
            return;
        };
        self.feed.store().visit(|place, object| {
            for request in self.requests(&place.cluster, &Change::Added(object.clone())) {
                if request.cluster != place.cluster && arrived.contains(&request.cluster) {
                    controller.enqueue(request, Priority::Low);
                }
            }
        });
    }

    fn subscribe(self: Arc<Self>) {
        let feed = self.feed.clone();
        feed.subscribe(self);
    }

    fn unsubscribe(self: Arc<Self>) {
        let feed = self.feed.clone();
        let listener: Arc<dyn Listener<K>> = self;
        feed.unsubscribe(&listener);
    }
}

/// An object is about itself.
pub(super) fn itself<K: Resource>() -> Map<K> {
    Box::new(|located| {
        let meta = located.object.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        vec![Request::new(located.cluster.clone(), meta.namespace.as_deref(), name)]
    })
}

/// An object is about the one of a kind that controls it.
pub(super) fn owner<P: Resource, K: Resource>(kind: &P::DynamicType, scope: OwnerScope) -> Map<K> {
    let (group, kind) = (P::group(kind).into_owned(), P::kind(kind).into_owned());
    Box::new(move |located| {
        let meta = located.object.meta();
        let owners = meta.owner_references.iter().flatten();
        let controller = owners.filter(|owner| owner.controller == Some(true));
        let ours = controller.filter(|owner| owner.kind == kind && group_of(owner) == group);
        let namespace = match scope {
            OwnerScope::Namespaced => meta.namespace.as_deref(),
            OwnerScope::Cluster => None,
        };
        ours.map(|owner| Request::new(located.cluster.clone(), namespace, &owner.name))
            .collect()
    })
}

/// Whether owners are in the namespace of what they own, or in none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerScope {
    Namespaced,
    Cluster,
}

impl OwnerScope {
    /// What a type says of itself. Dynamic ones say nothing: most kinds have namespaces.
    pub(super) fn of<K: Object>() -> Self {
        if TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>() {
            Self::Cluster
        } else {
            Self::Namespaced
        }
    }
}

/// Owners are named with the version that somebody wrote: only the group tells kinds apart.
fn group_of(owner: &OwnerReference) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{Namespace, Pod};
    use kube::api::ObjectMeta;

    use super::*;

    fn owned(api_version: &str, kind: &str, controller: Option<bool>) -> Located<Pod> {
        let owner = OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: "owner".to_owned(),
            uid: "u".to_owned(),
            controller,
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            name: Some("pod".to_owned()),
            namespace: Some("ns".to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Located {
            cluster: ClusterName::new("c"),
            object: Arc::new(Pod {
                metadata,
                ..Pod::default()
            }),
        }
    }

    fn shown(requests: &[Request]) -> String {
        requests.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_owned_object_is_about_its_controller_in_the_same_cluster() {
        let map = owner::<ReplicaSet, Pod>(&(), OwnerScope::Namespaced);
        for (api_version, kind, controller, wanted) in [
            ("apps/v1", "ReplicaSet", Some(true), "cluster://c/ns/owner"),
            ("apps/v1beta1", "ReplicaSet", Some(true), "cluster://c/ns/owner"),
            ("apps/v1", "ReplicaSet", Some(false), ""),
            ("apps/v1", "ReplicaSet", None, ""),
            ("apps/v1", "Deployment", Some(true), ""),
            ("example.com/v1", "ReplicaSet", Some(true), ""),
            ("v1", "ReplicaSet", Some(true), ""),
        ] {
            let found = map(&owned(api_version, kind, controller));
            assert_eq!(shown(&found), wanted, "{api_version} {kind} {controller:?}");
        }
        let map = owner::<Namespace, Pod>(&(), OwnerScope::Cluster);
        assert_eq!(shown(&map(&owned("v1", "Namespace", Some(true)))), "cluster://c/owner");
        assert_eq!(shown(&itself()(&owned("v1", "Namespace", None))), "cluster://c/ns/pod");
    }
}
