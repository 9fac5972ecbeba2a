//! The streams of one HTTP/2 connection that last.
//!
//! A request is answered in a task of its own, so that the requests of a connection run beside each other. A watch would
//! keep that task for hours, and an event for a hundred watches of a connection would wake a hundred tasks, each fighting
//! the others and the connection's own for the connection's lock. So once a stream turns out to be a watch it moves into
//! its connection's task: an event wakes that task once, and what all its watches have to say leaves in one write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use parking_lot::Mutex;

type Stream = BoxFuture<'static, ()>;

/// The lasting streams of a connection, polled by its task. Dropped with it.
///
/// Not the set of futures of a library: that one lets go after two streams that woke themselves, and each of ours does so
/// when it sends, so that every frame would be a write of its own.
pub(super) struct Pool {
    shared: Arc<Shared>,
    streams: Vec<Option<Entry>>,
    /// Places in `streams` that are free.
    free: Vec<usize>,
    /// The list of those that were ready last time, empty; kept for its room.
    spare: Vec<usize>,
}

struct Entry {
    stream: Stream,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Where streams come in.
#[derive(Clone)]
pub(super) struct Entrance(Arc<Shared>);

struct Shared {
    /// Streams that come in; `None` once the connection is gone.
    coming: Mutex<Option<Vec<Stream>>>,
    /// Places of streams that want to be polled.
    ready: Mutex<Vec<usize>>,
    task: AtomicWaker,
}

/// What one stream rings when it wants to be polled.
struct Bell {
    place: usize,
    rung: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let first = {
            let mut ready = self.shared.ready.lock();
            ready.push(self.place);
            ready.len() == 1
        };
        if first {
            self.shared.task.wake();
        }
    }
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                coming: Mutex::new(Some(Vec::new())),
                ready: Mutex::new(Vec::new()),
                task: AtomicWaker::new(),
            }),
            streams: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn entrance(&self) -> Entrance {
        Entrance(self.shared.clone())
    }

    /// Lets every stream that has something to do do it, once.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        // Before the look: who comes in or rings after it then wakes this task.
        self.shared.task.register(cx.waker());
        let coming = self.shared.coming.lock().as_mut().map(std::mem::take);
        for stream in coming.into_iter().flatten() {
            self.take_in(stream);
        }
        let mut ready = std::mem::replace(&mut *self.shared.ready.lock(), std::mem::take(&mut self.spare));
        for place in ready.drain(..) {
            // Nobody there: it was the last ring of a stream that is over.
            let Some(entry) = &mut self.streams[place] else {
                continue;
            };
            entry.bell.rung.store(false, Ordering::Release);
            if entry
                .stream
                .as_mut()
                .poll(&mut Context::from_waker(&entry.waker))
                .is_ready()
            {
                self.streams[place] = None;
                self.free.push(place);
            }
        }
        self.spare = ready;
    }

    fn take_in(&mut self, stream: Stream) {
        let place = self.free.pop().unwrap_or(self.streams.len());
        let bell = Arc::new(Bell {
            place,
            rung: AtomicBool::new(false),
            shared: self.shared.clone(),
        });
        bell.wake_by_ref();
        let waker = Waker::from(bell.clone());
        let entry = Some(Entry { stream, bell, waker });
        match self.streams.get_mut(place) {
            Some(free) => *free = entry,
            None => self.streams.push(entry),
        }
    }
}

impl Drop for Pool {
    /// The streams that wait hold the entrance through their executor: without this they would keep each other alive.
    fn drop(&mut self) {
        let coming = self.shared.coming.lock().take();
        drop(coming);
    }
}

impl Entrance {
    /// From now on the connection's task polls the stream. If the connection is gone, so is the stream.
    pub(super) fn enter(&self, stream: Stream) {
        let refused = match self.0.coming.lock().as_mut() {
            Some(coming) => {
                coming.push(stream);
                None
            }
            None => Some(stream),
        };
        // Outside the lock: what is dropped may do anything.
        drop(refused);
        self.0.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use std::task::Poll;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn streams_run_in_the_connections_task_and_go_with_it() {
        let mut pool = Pool::new();
        let entrance = pool.entrance();
        let (first_done, first) = oneshot::channel::<()>();
        let (second_done, second) = oneshot::channel::<()>();
        let (ended, mut both) = tokio::sync::mpsc::unbounded_channel();
        for (name, until) in [("first", first), ("second", second)] {
            let ended = ended.clone();
            entrance.enter(Box::pin(until.map(move |_| ended.send(name).unwrap())));
        }
        let connection = tokio::spawn(std::future::poll_fn(move |cx| {
            pool.poll(cx);
            Poll::<()>::Pending
        }));
        second_done.send(()).unwrap();
        assert_eq!(both.recv().await, Some("second"));
        connection.abort();
        assert!(connection.await.unwrap_err().is_cancelled());
        assert!(first_done.send(()).is_err(), "its stream is gone");
        drop(both);
        let (late, gone) = oneshot::channel::<()>();
        entrance.enter(Box::pin(gone.map(|_| ())));
        assert!(late.is_closed());
    }

    #[tokio::test]
    async fn a_stream_that_wakes_itself_has_its_next_turn_and_a_place_is_used_again() {
        let mut pool = Pool::new();
        let entrance = pool.entrance();
        for turns in [1, 3, 2] {
            let mut left = turns;
            entrance.enter(Box::pin(std::future::poll_fn(move |cx| {
                left -= 1;
                cx.waker().wake_by_ref();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            })));
        }
        let mut open = Vec::new();
        std::future::poll_fn(|cx| {
            pool.poll(cx);
            open.push(pool.streams.iter().flatten().count());
            // Woken by the streams themselves as long as there is one.
            if open.last() == Some(&0) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        assert_eq!(open, [2, 1, 0]);
        entrance.enter(Box::pin(std::future::pending()));
        std::future::poll_fn(|cx| {
            pool.poll(cx);
            Poll::Ready(())
        })
        .await;
        assert_eq!(pool.streams.len(), 3);
    }
}
