//! What planes are born with, which an all-planes stream does not show.
//!
//! Every plane of a Mica server has system namespaces, roles and so on that it never wrote. The server holds them once, and
//! leaves them out where it shows all planes. A reconciler is to see them all the same. They are not kept here, since they
//! would be the larger part of an idle plane: each plane that engages is listed once, in the background, what is only there
//! is told, and looked up again when it is its turn.
//!
//! Once a plane changes such an object or deletes it, the stream tells that as of any other.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use compact_str::CompactString;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::unclaimed::Place;
use crate::cluster::Cluster;
use crate::queue::Backoff;
use crate::request::{ClusterName, Request};

/// Lists of planes at once, for each kind: in the background.
pub(super) const LOOKS: usize = 4;
/// How many places are remembered. Layers have some hundred objects of a kind; beyond this, any place counts as one.
const PLACES: usize = 4096;
/// After a list that failed.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(500),
    most: Duration::from_secs(60),
    jitter: 0.5,
};

/// Whether planes can be born with objects of a group: only Kubernetes' own are in a layer.
pub(super) fn can_be_of(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// Which planes are still to be listed, and what was found so far.
pub(super) struct Born {
    places: RwLock<Places>,
    due: Mutex<Due>,
    pub(super) changed: Notify,
}

enum Places {
    These(HashSet<Place>),
    Any,
}

#[derive(Default)]
struct Due {
    order: BTreeMap<(Instant, u64), Look>,
    names: HashSet<ClusterName>,
    count: u64,
}

/// A plane that is to be listed.
pub(super) struct Look {
    pub(super) cluster: Cluster,
    failures: u32,
}

/// What to do next.
pub(super) enum Next {
    Look(Look),
    At(Instant),
    Nothing,
}

impl Default for Born {
    fn default() -> Self {
        Self {
            places: RwLock::new(Places::These(HashSet::new())),
            due: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl Born {
    /// Whether something that is not in the store may still be there.
    pub(super) fn may_be(&self, namespace: Option<&CompactString>, name: &CompactString) -> bool {
        match &*self.places.read() {
            Places::These(places) => places.contains(&(namespace.cloned(), name.clone())),
            Places::Any => true,
        }
    }

    pub(super) fn found(&self, place: Place) {
        let mut places = self.places.write();
        if let Places::These(these) = &mut *places {
            these.insert(place);
            if these.len() > PLACES {
                *places = Places::Any;
            }
        }
    }

    /// A plane is to be listed. Said twice before it was, it is listed once.
    pub(super) fn add(&self, cluster: &Cluster) {
        let look = Look {
            cluster: cluster.clone(),
            failures: 0,
        };
        self.put(look, Instant::now());
    }

    /// A list failed, and is tried again later.
    pub(super) fn failed(&self, mut look: Look) {
        look.failures += 1;
        let subject = Request::new(look.cluster.name().clone(), None, "born");
        let wait = RETRY.after(look.failures, &subject);
        self.put(look, Instant::now() + wait);
    }

    pub(super) fn next(&self) -> Next {
        let mut due = self.due.lock();
        let Some(first) = due.order.first_entry() else {
            return Next::Nothing;
        };
        let at = first.key().0;
        if at > Instant::now() {
            return Next::At(at);
        }
        let look = first.remove();
        due.names.remove(look.cluster.name());
        Next::Look(look)
    }

    fn put(&self, look: Look, at: Instant) {
        let mut due = self.due.lock();
        if due.names.insert(look.cluster.name().clone()) {
            due.count += 1;
            let key = (at, due.count);
            due.order.insert(key, look);
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_kubernetes_are_in_layers() {
        for (group, wanted) in [
            ("", true),
            ("apps", true),
            ("rbac.authorization.k8s.io", true),
            ("example.com", false),
            ("resourcemanager.miloapis.com", false),
        ] {
            assert_eq!(can_be_of(group), wanted, "{group}");
        }
    }

    #[test]
    fn what_was_found_in_one_plane_may_be_in_any() {
        let born = Born::default();
        born.found((Some("kube-system".into()), "ca".into()));
        assert!(born.may_be(Some(&"kube-system".into()), &"ca".into()));
        assert!(!born.may_be(Some(&"other".into()), &"ca".into()) && !born.may_be(None, &"ca".into()));
        for i in 0..=PLACES {
            born.found((None, i.to_string().into()));
        }
        assert!(born.may_be(None, &"anything".into()), "too many to remember");
    }
}
