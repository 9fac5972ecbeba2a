//! What a controller wrote itself: to hear of it is no reason to look again.
//!
//! A look ends when it has nothing left to do about what it read and wrote, so a notice of exactly what it wrote tells nothing
//! new. Such a notice may come before the answer to the write does, so what is heard of an item while somebody is about it
//! waits for the end of the look, when all that was written is known.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Priority, Queue};
use parking_lot::Mutex;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::Refusal;
use crate::meta::Object;

/// Writes that are not heard of yet. What is forgotten beyond them is looked at once more.
const OWN: usize = 16_384;
/// What is kept of what is heard of an item that waits. With more of it, some is news.
const EARLY: usize = 16;

tokio::task_local! {
    /// What the look of this task wrote.
    static WROTE: RefCell<Vec<Print>>;
}

/// An object at a version, as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Print(u64);

impl Print {
    fn new(uid: &str, version: &str) -> Self {
        Self(xxh3_64(format!("{uid}/{version}").as_bytes()))
    }

    fn of(object: &Object) -> Self {
        Self::new(&object.meta.uid, &object.meta.resource_version)
    }
}

/// Notes what a server says to have stored, if somebody's look goes on in this task.
pub fn note(stored: &Value) {
    let meta = &stored["metadata"];
    let (Some(uid), Some(version)) = (meta["uid"].as_str(), meta["resourceVersion"].as_str()) else {
        return;
    };
    // Outside of a look nobody asks.
    let _ = WROTE.try_with(|wrote| wrote.borrow_mut().push(Print::new(uid, version)));
}

/// Tells a controller's own writes from others'.
#[derive(Default)]
pub struct Echoes(Mutex<State>);

#[derive(Default)]
struct State {
    /// What was heard of items that are being looked at.
    busy: HashMap<Request, Vec<Print>>,
    /// What was written and is not heard of yet.
    own: HashSet<Print>,
    /// What was heard of items that are looked at later.
    later: HashMap<Request, Vec<Print>>,
}

impl Echoes {
    /// Whether an item must be looked at for what is heard of it. What is heard during a look is decided at its end.
    pub fn is_news(&self, request: &Request, object: &Object) -> bool {
        let print = Print::of(object);
        let mut state = self.0.lock();
        if let Some(heard) = state.busy.get_mut(request) {
            heard.push(print);
            return false;
        }
        !state.own.remove(&print)
    }

    /// Something is heard of an item that waits in a queue before it is looked at, whoever writes what belongs to it.
    pub fn hear_early(&self, request: &Request, object: &Object) {
        let mut state = self.0.lock();
        let heard = state.later.entry(request.clone()).or_default();
        if heard.len() < EARLY {
            heard.push(Print::of(object));
        }
    }

    /// Whether an item that waited is to be looked at: not if all that was heard of it was written here.
    pub fn has_news(&self, request: &Request) -> bool {
        let mut state = self.0.lock();
        let Some(heard) = state.later.remove(request) else {
            return true;
        };
        let all = heard.len();
        let own = heard.iter().filter(|print| state.own.remove(print)).count();
        own < all || all == EARLY
    }

    /// Looks at an item, and has it looked at again if others wrote meanwhile.
    pub async fn look(
        &self,
        queue: &Queue,
        request: &Request,
        look: impl Future<Output = Result<Outcome, Refusal>>,
    ) -> Result<Outcome, Refusal> {
        self.0.lock().busy.insert(request.clone(), Vec::new());
        let mut looking = Looking {
            echoes: self,
            queue,
            request,
            wrote: Vec::new(),
        };
        let (outcome, wrote) = WROTE
            .scope(RefCell::default(), async {
                let outcome = look.await;
                (outcome, WROTE.with(RefCell::take))
            })
            .await;
        // After a failure everything is looked at anew.
        if outcome.is_ok() {
            looking.wrote = wrote;
        }
        outcome
    }

    /// Everything is told again.
    pub fn clear(&self) {
        self.0.lock().own.clear();
    }
}

/// A look that goes on, until it ends or is given up.
struct Looking<'a> {
    echoes: &'a Echoes,
    queue: &'a Queue,
    request: &'a Request,
    wrote: Vec<Print>,
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut state = self.echoes.0.lock();
        let mut heard = state.busy.remove(self.request).unwrap_or_default();
        for print in self.wrote.drain(..) {
            let before = heard.len();
            heard.retain(|one| *one != print);
            if heard.len() == before {
                if state.own.len() >= OWN {
                    state.own.clear();
                }
                state.own.insert(print);
            }
        }
        heard.retain(|print| !state.own.remove(print));
        drop(state);
        if !heard.is_empty() {
            self.queue.add(self.request.clone(), Priority::Normal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mica_runtime::ClusterName;
    use serde_json::json;

    use super::*;
    use crate::engine;
    use crate::meta::{Meta, What};
    use crate::place::Place;

    fn object(uid: &str, version: &str) -> Object {
        let what = What {
            api_version: "v1".into(),
            kind: "X".into(),
            resource: "xs".into(),
        };
        let meta = Meta {
            uid: uid.into(),
            resource_version: version.into(),
            ..Meta::default()
        };
        Object {
            place: Place::root(),
            what,
            meta,
        }
    }

    fn stored(uid: &str, version: &str) -> Value {
        json!({"metadata": {"uid": uid, "resourceVersion": version}})
    }

    fn item() -> Request {
        Request::new(ClusterName::local(), None, "a")
    }

    #[tokio::test]
    async fn what_a_look_wrote_is_no_news_before_or_after_its_end() {
        let (echoes, queue, request) = (Echoes::default(), engine::queue(), item());
        let look = async {
            note(&stored("u", "7"));
            assert!(!echoes.is_news(&request, &object("u", "7")), "it waits for the end");
            note(&stored("u", "8"));
            Ok(Outcome::Done)
        };
        echoes.look(&queue, &request, look).await.unwrap();
        assert_eq!(queue.depth(), 0, "nobody else wrote");
        assert!(!echoes.is_news(&request, &object("u", "8")), "it was written here");
        assert!(echoes.is_news(&request, &object("u", "8")), "and is heard of once");
        assert!(echoes.is_news(&request, &object("v", "7")), "another object's version");
    }

    #[tokio::test]
    async fn what_others_wrote_during_a_look_makes_another() {
        let (echoes, queue, request) = (Echoes::default(), engine::queue(), item());
        let look = async {
            note(&stored("u", "7"));
            echoes.is_news(&request, &object("u", "7"));
            echoes.is_news(&request, &object("u", "9"));
            Ok(Outcome::Done)
        };
        echoes.look(&queue, &request, look).await.unwrap();
        assert_eq!(queue.depth(), 1);
    }

    #[tokio::test]
    async fn what_waited_is_looked_at_if_anything_of_it_is_news() {
        let (echoes, queue, request) = (Echoes::default(), engine::queue(), item());
        let other = Request::new(ClusterName::local(), None, "b");
        let look = async {
            note(&stored("u", "7"));
            Ok(Outcome::Done)
        };
        echoes.hear_early(&other, &object("u", "7"));
        echoes.look(&queue, &request, look).await.unwrap();
        assert!(!echoes.has_news(&other));
        echoes.hear_early(&other, &object("u", "8"));
        assert!(echoes.has_news(&other));
        assert!(echoes.has_news(&other), "nobody knows what it waited for");
    }

    #[tokio::test]
    async fn after_a_failure_or_when_given_up_everything_is_news() {
        let (echoes, queue, request) = (Arc::new(Echoes::default()), engine::queue(), item());
        let look = async {
            note(&stored("u", "7"));
            Err(Refusal::Late)
        };
        echoes.look(&queue, &request, look).await.unwrap_err();
        assert!(echoes.is_news(&request, &object("u", "7")));
        let look = Box::pin(echoes.look(&queue, &request, async {
            note(&stored("u", "8"));
            echoes.is_news(&request, &object("u", "8"));
            std::future::pending().await
        }));
        assert!(futures::poll!(look).is_pending());
        assert_eq!(queue.depth(), 1, "what was heard of it is not lost");
        assert!(echoes.is_news(&request, &object("u", "8")));
    }
}
