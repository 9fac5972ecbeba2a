//! The streams of one HTTP/2 connection that last.
//!
//! A request is answered in a task of its own, so that the requests of a connection run beside each other. A watch would
//! keep that task for hours, and an event for a hundred watches of a connection would wake a hundred tasks, each fighting
//! the others and the connection's own for the connection's lock. So once a stream turns out to be a watch it moves into
//! its connection's task: an event wakes that task once, and what all its watches have to say leaves in one write.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use futures::task::AtomicWaker;
use parking_lot::Mutex;

type Stream = BoxFuture<'static, ()>;

/// The lasting streams of a connection, polled by its task. Dropped with it.
pub(super) struct Pool {
    door: Arc<Door>,
    streams: FuturesUnordered<Stream>,
}

/// Where streams come in.
#[derive(Clone)]
pub(super) struct Entrance(Arc<Door>);

struct Door {
    /// `None` once the connection is gone.
    waiting: Mutex<Option<Vec<Stream>>>,
    pool: AtomicWaker,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            door: Arc::new(Door {
                waiting: Mutex::new(Some(Vec::new())),
                pool: AtomicWaker::new(),
            }),
            streams: FuturesUnordered::new(),
        }
    }

    pub(super) fn entrance(&self) -> Entrance {
        Entrance(self.door.clone())
    }

    /// Lets every stream that has something to do do it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        // Before the look: who comes in after it then wakes this task.
        self.door.pool.register(cx.waker());
        if let Some(waiting) = self.door.waiting.lock().as_mut() {
            self.streams.extend(waiting.drain(..));
        }
        while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(cx) {}
    }
}

impl Drop for Pool {
    /// The streams that wait hold the door through their executor: without this they would keep each other alive.
    fn drop(&mut self) {
        let waiting = self.door.waiting.lock().take();
        drop(waiting);
    }
}

impl Entrance {
    /// From now on the connection's task polls the stream. If the connection is gone, so is the stream.
    pub(super) fn enter(&self, stream: Stream) {
        let refused = match self.0.waiting.lock().as_mut() {
            Some(waiting) => {
                waiting.push(stream);
                None
            }
            None => Some(stream),
        };
        // Outside the lock: what is dropped may do anything.
        drop(refused);
        self.0.pool.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
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
        let (late, gone) = oneshot::channel::<()>();
        entrance.enter(Box::pin(gone.map(|_| ())));
        assert!(late.is_closed());
    }
}
