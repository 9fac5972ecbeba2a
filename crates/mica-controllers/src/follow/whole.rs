//! One watch of everything: the resource `objects` of a Mica server, for root or for all planes.
//!
//! It goes on where it was cut. Only when the server does not know the place any more is everything told again, and then
//! listeners hear `Restarted` first.

use std::sync::Arc;

use compact_str::CompactString;
use futures::StreamExt as _;
use mica_runtime::queue::Priority;

use super::{Listener, OBJECTS, Pause};
use crate::api::{Api, EventType, Line, Partial, Refusal};
use crate::meta::{Notice, Object, Seen, What};
use crate::place::{Place, query_value};

const ALL_PLANES: &str = "/clusters/*/control-plane";
const PLANE_KIND: (&str, &str) = ("mica.dev", "planes");

pub struct Stream {
    api: Api,
    scope: Scope,
    /// The label that objects must have to be told of; any if none.
    label: Option<&'static str>,
    /// The version that was heard last; none before the whole state was.
    heard: Option<CompactString>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Root,
    Planes,
}

/// Why a watch ended, if not by an error.
enum End {
    Closed,
}

impl Stream {
    pub fn root(api: Api) -> Self {
        Self {
            api,
            scope: Scope::Root,
            label: None,
            heard: None,
        }
    }

    pub fn planes(api: Api) -> Self {
        Self {
            api,
            scope: Scope::Planes,
            label: None,
            heard: None,
        }
    }

    /// Only what has a label, whatever its value.
    pub fn labelled(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }

    pub async fn follow(mut self, listener: &impl Listener) {
        let mut pause = Pause::new();
        loop {
            let before = self.heard.clone();
            match self.watch(listener).await {
                Ok(End::Closed) => {}
                Err(refusal) if refusal.is_expired() => {
                    self.heard = None;
                    listener.hear(&Notice {
                        seen: Seen::Restarted,
                        priority: Priority::Low,
                    });
                }
                Err(refusal) => tracing::debug!(%refusal, "a watch of all objects ended; it goes on"),
            }
            // A watch that told something was a good one.
            if self.heard != before {
                pause.reset();
            }
            pause.wait().await;
        }
    }

    fn path(&self) -> String {
        let prefix = match self.scope {
            Scope::Root => "",
            Scope::Planes => ALL_PLANES,
        };
        let from = match &self.heard {
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
            Some(version) => format!("resourceVersion={version}"),
        };
        let label = self.label.map(|label| format!("&labelSelector={}", query_value(label)));
        let label = label.unwrap_or_default();
        format!("{prefix}{OBJECTS}?watch=true&allowBookmarks=true&{from}{label}")
    }

    async fn watch(&mut self, listener: &impl Listener) -> Result<End, Refusal> {
        let mut events = std::pin::pin!(self.api.watch::<Partial>(&self.path()).await?);
        while let Some(line) = events.next().await {
            self.tell(line?, listener);
            listener.room().await;
        }
        Ok(End::Closed)
    }

    fn tell(&mut self, line: Line<Partial>, listener: &impl Listener) {
        let Line { kind, object } = line;
        let version = object.metadata.resource_version.clone();
        if kind == EventType::Bookmark {
            if self.heard.is_some() || object.metadata.annotations.initial_events_end.is_some() {
                self.heard = Some(version);
            }
            return;
        }
        let priority = match self.heard {
            // The state so far comes in the order of names: only its end is a place to go on from.
            None => Priority::Low,
            Some(_) => {
                self.heard = Some(version);
                Priority::Normal
            }
        };
        if let Some(seen) = self.seen(kind, object) {
            listener.hear(&Notice { seen, priority });
        }
    }

    fn seen(&self, kind: EventType, object: Partial) -> Option<Seen> {
        let mut meta = object.metadata;
        let marks = &mut meta.annotations;
        let (plane, id) = (marks.plane.take(), marks.plane_id.take());
        let what = What {
            api_version: marks.api_version.take()?,
            kind: marks.kind.take()?,
            resource: marks.resource.take()?,
        };
        let place = match self.scope {
            Scope::Root => Place::root(),
            Scope::Planes if what.is(PLANE_KIND.0, PLANE_KIND.1) => {
                return Some(Seen::PlaneGone(Place::plane(&meta.name, &id?)));
            }
            // A plane that has no name any more is gone, and with it whatever could be done about this.
            Scope::Planes => Place::plane(&plane?, &id?),
        };
        let object = Arc::new(Object { place, what, meta });
        Some(match kind {
            EventType::Deleted => Seen::Gone(object),
            _ => Seen::Present(object),
        })
    }
}
