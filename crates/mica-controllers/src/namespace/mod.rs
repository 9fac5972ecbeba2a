//! Empties namespaces that are being deleted, and lets them go.
//!
//! Watches namespaces that are marked, and the deletions of what such a namespace still holds. Pods go first; the rest waits
//! for them. Finalizers are honoured, and what remains is named in the namespace's conditions, in upstream's words.

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
use crate::meta::{Notice, Seen};
use crate::place::Place;
use crate::select::Name;
use plan::Next;

/// Namespaces emptied at once.
const WORKERS: usize = 16;
/// A namespace from which something went is looked at this soon: more will go in the same moment.
const SOON: Duration = Duration::from_millis(50);

pub struct Namespaces {
    api: Api,
    catalog: Arc<Catalog>,
    queue: Queue,
    /// Namespaces that wait for what is in them: as many as are being deleted and cannot go.
    waiting: Mutex<HashSet<(Place, CompactString)>>,
}

impl Namespaces {
    pub fn new(api: Api, catalog: Arc<Catalog>) -> Self {
        Self {
            api,
            catalog,
            queue: engine::queue(),
            waiting: Mutex::default(),
        }
    }
}

#[async_trait]
impl Controller for Namespaces {
    fn name(&self) -> Name {
        Name::Namespace
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        match &notice.seen {
            Seen::Present(object) if object.is("", "namespaces") && object.meta.is_deleting() => {
                let request = Request::new(object.place.cluster().clone(), None, &object.meta.name);
                self.queue.add(request, notice.priority);
            }
            Seen::Present(object) | Seen::Gone(object) => {
                let mut waiting = self.waiting.lock();
                if waiting.is_empty() {
                    return;
                }
                let name = match (&object.meta.namespace, &notice.seen) {
                    (Some(namespace), _) => namespace,
                    (None, Seen::Gone(_)) if object.is("", "namespaces") => {
                        waiting.remove(&(object.place.clone(), object.meta.name.clone()));
                        return;
                    }
                    _ => return,
                };
                if waiting.contains(&(object.place.clone(), name.clone())) {
                    let request = Request::new(object.place.cluster().clone(), None, name);
                    self.queue.add_after(request, SOON);
                }
            }
            Seen::PlaneGone(place) => self.waiting.lock().retain(|(at, _)| at != place),
            Seen::Restarted => {}
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let (place, name) = (Place::of(&request.cluster), request.name.as_str());
        let Some(found) = self.observe(&place, name).await? else {
            self.waiting.lock().remove(&(place, request.name.clone()));
            return Ok(Outcome::Done);
        };
        // Before it is emptied: what goes from now on is heard of.
        self.waiting.lock().insert((place.clone(), request.name.clone()));
        let swept = self.sweep(&place, name, &found).await;
        let plan = plan::plan(&found, &swept, jiff::Timestamp::now());
        self.apply(&place, name, &found.namespace, &plan).await?;
        match plan.next {
            Next::Finalize => {
                self.waiting.lock().remove(&(place, request.name.clone()));
                Ok(Outcome::Done)
            }
            Next::LookAgain(after) => Ok(Outcome::Again(after)),
            Next::TryAgain => Ok(Outcome::Failed),
        }
    }
}
