//! Watches whose events are opened on their way: once for all watches that want them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mica_store::{Change, Event, Record, Revision, Signal, Watch, WatchError, WatchSource};

use super::{Inner, Opened, Telling};

/// A watch over hidden values.
pub struct SealedWatch {
    inner: Arc<Inner>,
    watch: Watch,
    /// An event whose plane's key is being fetched. Nothing that follows it is sent before it.
    waiting: Option<(Arc<Event>, BoxFuture<'static, ()>)>,
}

impl SealedWatch {
    pub fn new(inner: Arc<Inner>, watch: Watch) -> Self {
        Self {
            inner,
            watch,
            waiting: None,
        }
    }

    /// Opens an event, or begins to wait for its key.
    fn open(&mut self, event: Arc<Event>) -> Option<Signal> {
        if let Some(opened) = self.inner.open_event(&event, Patience::Some) {
            return Some(Signal::Event(opened));
        }
        let (inner, plane) = (self.inner.clone(), event.key.plane());
        let fetching = async move { inner.keyring.fetch(plane).await };
        self.waiting = Some((event, fetching.boxed()));
        None
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Option<Signal>> {
        let Some((_, fetching)) = &mut self.waiting else {
            return Poll::Ready(None);
        };
        std::task::ready!(fetching.poll_unpin(cx));
        let (event, _) = self.waiting.take().expect("it was there a moment ago");
        let opened = self.inner.open_event(&event, Patience::None);
        Poll::Ready(opened.map(Signal::Event))
    }
}

impl WatchSource for SealedWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Signal, WatchError>> {
        loop {
            if let Some(signal) = std::task::ready!(self.poll_waiting(cx)) {
                return Poll::Ready(Ok(signal));
            }
            match std::task::ready!(self.watch.poll_next(cx)) {
                Ok(Signal::Event(event)) => {
                    if let Some(signal) = self.open(event) {
                        return Poll::Ready(Ok(signal));
                    }
                }
                other => return Poll::Ready(other),
            }
        }
    }

    fn try_next(&mut self) -> Option<Result<Signal, WatchError>> {
        let mut nobody = Context::from_waker(Waker::noop());
        loop {
            match self.poll_waiting(&mut nobody) {
                Poll::Pending => return None,
                Poll::Ready(Some(signal)) => return Some(Ok(signal)),
                Poll::Ready(None) => {}
            }
            match self.watch.try_next()? {
                Ok(Signal::Event(event)) => {
                    if let Some(signal) = self.open(event) {
                        return Some(Ok(signal));
                    }
                }
                other => return Some(other),
            }
        }
    }

    fn caught_up(&mut self) -> Option<Revision> {
        match self.waiting {
            Some(_) => None,
            None => self.watch.caught_up(),
        }
    }
}

/// Whether a key that is not there yet is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Some,
    None,
}

impl Inner {
    /// The event with plain values: the same one if they are plain already. `None` if a key has to be fetched first.
    pub fn open_event(&self, event: &Arc<Event>, patience: Patience) -> Option<Arc<Event>> {
        let hidden = |value: &[u8]| value.starts_with(super::PREFIX);
        let now = match &event.change {
            Change::Put(value) => Some(value),
            Change::Delete => None,
        };
        let before = event.previous.as_ref();
        let is_hidden = now.is_some_and(|value| hidden(value)) || before.is_some_and(|record| hidden(&record.value));
        if !is_hidden {
            return Some(event.clone());
        }
        let place = (event.revision, event.key.clone());
        if let Some(opened) = self.events.get(&place) {
            return Some(opened);
        }
        let open = |value| match self.try_open(&event.key, value) {
            Opened::NeedsKey if patience == Patience::Some => None,
            opened => Some(self.told(&event.key, opened, Telling::One)),
        };
        let change = match now {
            Some(value) => Change::Put(open(value)?),
            None => Change::Delete,
        };
        let previous = match before {
            Some(record) => Some(Record {
                value: open(&record.value)?,
                revision: record.revision,
            }),
            None => None,
        };
        let failed = |value: &[u8]| crate::stored::is_unreadable(value);
        let lost = matches!(&change, Change::Put(value) if failed(value))
            || previous.as_ref().is_some_and(|record| failed(&record.value));
        let opened = Arc::new(Event::new(event.key.clone(), event.revision, change, previous));
        // What cannot be opened now may be later, with another configuration.
        if !lost {
            self.events.insert(place, opened.clone());
        }
        Some(opened)
    }
}
