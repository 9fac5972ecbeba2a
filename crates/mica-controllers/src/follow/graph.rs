//! Who owns whom on a server that has no index of owners: kept from what its watches tell.
//!
//! The watches of different kinds do not agree on how far they are. So what matters most, that an owner has no dependents
//! left, is not believed of the graph alone: the server is asked for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use compact_str::CompactString;
use futures::{FutureExt as _, StreamExt as _, stream};
use parking_lot::Mutex;

use crate::api::{Api, Refusal};
use crate::dependent::Dependents;
use crate::kinds::{Catalog, Scope, Served};
use crate::meta::{Object, Seen, What};
use crate::place::{self, Place};

/// Kinds that are listed at once when an owner's last dependents are looked for.
const LISTS: usize = 8;

/// Every object that was seen and is not gone, by uid.
#[derive(Default)]
pub struct Graph(Mutex<Nodes>);

#[derive(Default)]
struct Nodes {
    objects: HashMap<CompactString, Arc<Object>>,
    dependents: HashMap<CompactString, HashSet<CompactString>>,
}

impl Nodes {
    fn take(&mut self, uid: &str) -> Option<Arc<Object>> {
        let object = self.objects.remove(uid)?;
        for owner in &object.meta.owner_references {
            if let Some(known) = self.dependents.get_mut(&owner.uid) {
                known.remove(uid);
                if known.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        Some(object)
    }

    fn put(&mut self, object: Arc<Object>) {
        let uid = object.meta.uid.clone();
        self.take(&uid);
        for owner in &object.meta.owner_references {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        self.objects.insert(uid, object);
    }
}

impl Graph {
    /// Takes in what was seen.
    pub fn note(&self, seen: &Seen) {
        match seen {
            Seen::Present(object) => self.0.lock().put(object.clone()),
            Seen::Gone(object) => {
                self.0.lock().take(&object.meta.uid);
            }
            Seen::PlaneGone(_) | Seen::Restarted => {}
        }
    }

    /// The objects of a kind that are not among these uids.
    pub fn others(&self, what: &What, listed: &HashSet<CompactString>) -> Vec<Arc<Object>> {
        let nodes = self.0.lock();
        let others = nodes
            .objects
            .values()
            .filter(|one| one.what == *what && !listed.contains(&one.meta.uid));
        others.cloned().collect()
    }

    /// The objects of a resource, in whatever version.
    pub fn of(&self, group: &str, resource: &str) -> Vec<Arc<Object>> {
        let nodes = self.0.lock();
        nodes
            .objects
            .values()
            .filter(|one| one.is(group, resource))
            .cloned()
            .collect()
    }

    /// A kind is not served any more: nothing is known of its objects.
    pub fn forget(&self, what: &What) {
        let mut nodes = self.0.lock();
        let of_kind = nodes.objects.values().filter(|one| one.what == *what);
        let doomed: Vec<CompactString> = of_kind.map(|one| one.meta.uid.clone()).collect();
        for uid in doomed {
            nodes.take(&uid);
        }
    }

    fn dependents(&self, uid: &str) -> Vec<Object> {
        let nodes = self.0.lock();
        let known = nodes.dependents.get(uid).into_iter().flatten();
        known
            .filter_map(|uid| Some((**nodes.objects.get(uid)?).clone()))
            .collect()
    }
}

/// The dependents by the graph, and by the server where that is not enough.
pub struct GraphIndex {
    pub graph: Arc<Graph>,
    pub api: Api,
    pub catalog: Arc<Catalog>,
}

#[async_trait]
impl Dependents for GraphIndex {
    async fn of(&self, _place: &Place, uid: &str) -> Result<Vec<Object>, Refusal> {
        Ok(self.graph.dependents(uid))
    }

    async fn of_going(&self, owner: &Object) -> Result<Vec<Object>, Refusal> {
        let known = self.graph.dependents(&owner.meta.uid);
        let decides = |one: &Object| owner.meta.orphans_dependents() || one.meta.blocks(&owner.meta.uid);
        if known.iter().any(decides) {
            return Ok(known);
        }
        // A watch may be behind the one that told of the owner.
        let kinds = self.catalog.of(&owner.place).await?;
        let reaches = |served: &&Arc<Served>| {
            let near = owner.meta.namespace.is_none() || served.scope == Scope::Namespaced;
            near && is_followed(served)
        };
        let lists = kinds
            .preferred
            .iter()
            .filter(reaches)
            .map(|served| self.owned(owner, served.clone()).boxed());
        let found: Vec<Vec<Object>> = stream::iter(lists.collect::<Vec<_>>()).buffered(LISTS).collect().await;
        Ok(found.into_iter().flatten().collect())
    }
}

impl GraphIndex {
    /// The dependents of one kind, as the server has them now. A kind that cannot be listed holds up nobody else.
    async fn owned(&self, owner: &Object, served: Arc<Served>) -> Vec<Object> {
        let what = &served.what;
        let namespace = owner.meta.namespace.as_deref();
        let path = place::collection(&owner.place, &what.api_version, &what.resource, namespace);
        let listed = match self.api.list_metadata(&path, "").await {
            Ok(listed) => listed.items,
            Err(refusal) => {
                tracing::debug!(path, %refusal, "dependents cannot be looked for here");
                return Vec::new();
            }
        };
        let owned = listed.into_iter().filter(|one| {
            let owners = &one.metadata.owner_references;
            owners.iter().any(|one| one.uid == owner.meta.uid)
        });
        owned
            .map(|one| Object {
                place: owner.place.clone(),
                what: what.clone(),
                meta: one.metadata,
            })
            .collect()
    }
}

/// Whether objects of a resource are followed. Events are left out: they own nothing, and there are many.
pub fn is_followed(served: &Served) -> bool {
    let is_event = served.what.resource == "events" && ["", "events.k8s.io"].contains(&served.what.group());
    !is_event && ["list", "watch", "delete"].iter().all(|verb| served.can(verb))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Meta, Owner};

    fn object(uid: &str, owners: &[&str]) -> Arc<Object> {
        let owner = |uid: &&str| Owner {
            uid: (*uid).into(),
            ..Owner::default()
        };
        Arc::new(Object {
            place: Place::root(),
            what: What {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                resource: "configmaps".into(),
            },
            meta: Meta {
                uid: uid.into(),
                owner_references: owners.iter().map(owner).collect(),
                ..Meta::default()
            },
        })
    }

    fn dependents(graph: &Graph, uid: &str) -> Vec<String> {
        let mut found: Vec<String> = graph
            .dependents(uid)
            .iter()
            .map(|one| one.meta.uid.to_string())
            .collect();
        found.sort();
        found
    }

    #[test]
    fn the_graph_is_what_was_seen_last() {
        let graph = Graph::default();
        for seen in [object("a", &["o"]), object("b", &["o", "p"]), object("o", &[])] {
            graph.note(&Seen::Present(seen));
        }
        assert_eq!(
            (dependents(&graph, "o"), dependents(&graph, "p")),
            (vec!["a".into(), "b".into()], vec!["b".into()])
        );
        graph.note(&Seen::Present(object("b", &["p"])));
        graph.note(&Seen::Gone(object("a", &[])));
        assert_eq!(
            (dependents(&graph, "o"), dependents(&graph, "p")),
            (vec![], vec!["b".into()])
        );
        let listed = HashSet::from(["o".into()]);
        let others = graph.others(&object("x", &[]).what, &listed);
        assert_eq!(others.len(), 1, "b was not listed");
        graph.forget(&object("x", &[]).what);
        assert_eq!(dependents(&graph, "p"), Vec::<String>::new());
        assert!(graph.0.lock().dependents.is_empty());
    }
}
