//! Who is engaged: clusters by name, and planes by their server and id.
//!
//! One roster serves all kinds and controllers, so that an engaged plane costs one entry here however many kinds are
//! watched in it. It is changed by one task, which follows the fleet.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use compact_str::CompactString;
use parking_lot::RwLock;

use crate::cluster::{Access, Cluster};
use crate::request::ClusterName;

#[derive(Default)]
pub(crate) struct Roster {
    clusters: RwLock<HashMap<ClusterName, Member>>,
    servers: RwLock<HashMap<String, Arc<Planes>>>,
}

struct Member {
    cluster: Cluster,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not all feeds have heard of it: whether they have everything of it cannot be said yet.
    Coming,
    Here,
}

impl Roster {
    /// A cluster that every feed has heard of.
    pub(crate) fn get(&self, name: &ClusterName) -> Option<Cluster> {
        let clusters = self.clusters.read();
        let member = clusters.get(name).filter(|member| member.stage == Stage::Here)?;
        Some(member.cluster.clone())
    }

    pub(crate) fn all(&self) -> Vec<Cluster> {
        let clusters = self.clusters.read();
        clusters.values().map(|member| member.cluster.clone()).collect()
    }

    /// The planes of the server that shows this cluster with others, if one does.
    pub(crate) fn planes_of(&self, cluster: &Cluster) -> Option<Arc<Planes>> {
        let wildcard = cluster.wildcard()?;
        self.servers.read().get(&wildcard.server.url()).cloned()
    }

    pub(crate) fn insert(&self, cluster: &Cluster) {
        if let Some(wildcard) = cluster.wildcard() {
            let mut servers = self.servers.write();
            let planes = servers
                .entry(wildcard.server.url())
                .or_insert_with(|| Arc::new(Planes::new(wildcard.server.clone())));
            let id = CompactString::from(&wildcard.plane_id);
            planes.by_id.write().insert(id, cluster.clone());
        }
        let member = Member {
            cluster: cluster.clone(),
            stage: Stage::Coming,
        };
        self.clusters.write().insert(cluster.name().clone(), member);
    }

    /// All feeds have heard of it.
    pub(crate) fn admit(&self, name: &ClusterName) {
        if let Some(member) = self.clusters.write().get_mut(name) {
            member.stage = Stage::Here;
        }
    }

    pub(crate) fn remove(&self, name: &ClusterName) -> Option<Cluster> {
        let cluster = self.clusters.write().remove(name)?.cluster;
        if let Some(wildcard) = cluster.wildcard() {
            let url = wildcard.server.url();
            let mut servers = self.servers.write();
            if let Some(planes) = servers.get(&url) {
                planes.by_id.write().remove(wildcard.plane_id.as_str());
                if planes.is_empty() {
                    servers.remove(&url);
                }
            }
        }
        Some(cluster)
    }
}

/// The engaged planes of one server.
pub(crate) struct Planes {
    server: Access,
    by_id: RwLock<HashMap<CompactString, Cluster>>,
}

impl Planes {
    fn new(server: Access) -> Self {
        Self {
            server,
            by_id: RwLock::default(),
        }
    }

    pub(crate) fn server(&self) -> &Access {
        &self.server
    }

    pub(crate) fn get(&self, id: &CompactString) -> Option<Cluster> {
        self.by_id.read().get(id).cloned()
    }

    pub(crate) fn clusters(&self) -> Vec<Cluster> {
        self.by_id.read().values().cloned().collect()
    }

    /// Whether a cluster is engaged still.
    pub(crate) fn has(&self, cluster: &Cluster) -> bool {
        let id = cluster.wildcard().map(|wildcard| wildcard.plane_id.as_str());
        let known = id.and_then(|id| self.by_id.read().get(id).cloned());
        known.is_some_and(|known| known.is_same(cluster))
    }

    pub(crate) fn names(&self) -> HashSet<ClusterName> {
        self.by_id
            .read()
            .values()
            .map(|cluster| cluster.name().clone())
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.read().is_empty()
    }
}
