//! Keeps the status of ResourceQuotas true: what is allowed, and what is used.
//!
//! The server charges what is created, in the same transaction. What is deleted, or uses less than before, is counted anew
//! here. Watches quotas, and in namespaces that have some, deletions of anything and changes of what uses more than one.

mod apply;
mod observe;
mod plan;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use compact_str::CompactString;
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};
use parking_lot::Mutex;

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::kinds::Catalog;
use crate::meta::{Notice, Object, Seen};
use crate::place::Place;
use crate::select::Name;

const WORKERS: usize = 8;
/// A namespace from which something went is counted this soon: more will go in the same moment.
const SOON: Duration = Duration::from_millis(50);
/// A namespace with pods that are going is counted again: a pod counts until its grace is over.
const GOING: Duration = Duration::from_secs(30);
/// Kinds whose objects may come to use less while they are there.
const CHANGING: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("resource.k8s.io", "resourceclaims"),
];

pub struct Quotas {
    api: Api,
    catalog: Arc<Catalog>,
    queue: Queue,
    /// Namespaces that have quotas.
    limited: Mutex<HashSet<(Place, CompactString)>>,
}

impl Quotas {
    pub fn new(api: Api, catalog: Arc<Catalog>) -> Self {
        Self {
            api,
            catalog,
            queue: engine::queue(),
            limited: Mutex::default(),
        }
    }

    /// What an object that changed means to the quotas of its namespace.
    fn changed(&self, object: &Object) {
        let Some(namespace) = &object.meta.namespace else {
            return;
        };
        let limited = self.limited.lock();
        if !limited.is_empty() && limited.contains(&(object.place.clone(), namespace.clone())) {
            let request = Request::new(object.place.cluster().clone(), None, namespace);
            self.queue.add_after(request, SOON);
        }
    }
}

#[async_trait]
impl Controller for Quotas {
    fn name(&self) -> Name {
        Name::Quota
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        match &notice.seen {
            Seen::Present(object) if object.is("", "resourcequotas") => {
                let Some(namespace) = &object.meta.namespace else {
                    return;
                };
                self.limited.lock().insert((object.place.clone(), namespace.clone()));
                let request = Request::new(object.place.cluster().clone(), None, namespace);
                self.queue.add(request, notice.priority);
            }
            Seen::Present(object) => {
                if CHANGING.iter().any(|(group, resource)| object.is(group, resource)) {
                    self.changed(object);
                }
            }
            Seen::Gone(object) => self.changed(object),
            Seen::PlaneGone(place) => self.limited.lock().retain(|(at, _)| at != place),
            Seen::Restarted => {}
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let (place, namespace) = (Place::of(&request.cluster), request.name.as_str());
        let found = self.observe(&place, namespace).await?;
        if found.quotas.is_empty() {
            self.limited.lock().remove(&(place, request.name.clone()));
            return Ok(Outcome::Done);
        }
        let statuses = plan::plan(&found, jiff::Timestamp::now());
        self.apply(&place, namespace, &found, statuses).await?;
        Ok(match found.has_going_pods() {
            true => Outcome::Again(GOING),
            false => Outcome::Done,
        })
    }
}
