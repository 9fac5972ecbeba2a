//! Cutting off clients that take nothing.
//!
//! Two places can be stuck: the socket (its buffer is full, [`StallGuard`] sees writes pending) and one HTTP/2 stream (its
//! window is closed while the connection is fine; [`StreamExecutor`] sees that its body is not asked for more).
//! Streams that last leave their task for their connection's [`Pool`](super::pool::Pool).

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::pool::Entrance;

/// What a body tells the task that sends it.
#[derive(Default)]
pub(super) struct Progress {
    /// Whether the client has taken what was last handed out: odd while something is on offer, even when taken.
    turn: AtomicU64,
    lasts: AtomicBool,
}

impl Progress {
    pub(super) fn offered(&self) {
        let turn = self.turn();
        self.turn.store(turn | 1, Ordering::Relaxed);
    }

    pub(super) fn taken(&self) {
        let turn = self.turn();
        if turn & 1 == 1 {
            self.turn.store(turn + 1, Ordering::Relaxed);
        }
    }

    /// This is a watch.
    pub(super) fn will_last(&self) {
        self.lasts.store(true, Ordering::Relaxed);
    }

    fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }
}

tokio::task_local! {
    /// Where a body that is worth watching leaves its progress for the task that sends it.
    static SLOT: RefCell<Option<Arc<Progress>>>;
}

/// The progress of the stream whose task is running, if it runs under [`StreamExecutor`].
pub(super) fn current() -> Option<Arc<Progress>> {
    SLOT.try_with(|slot| slot.borrow_mut().get_or_insert_default().clone())
        .ok()
}

/// Spawns the tasks of a connection's streams, each under a stall watch.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    pub(super) patience: Duration,
    pub(super) lasting: Entrance,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let guarded = Guarded {
            stream,
            watch: Watch {
                patience: self.patience,
                armed: None,
                progress: None,
            },
        };
        tokio::spawn(StreamTask {
            stream: Some(Box::pin(guarded)),
            lasting: self.lasting.clone(),
        });
    }
}

/// A stream while it is not known to last.
struct StreamTask<F> {
    /// Boxed, because it may move to another task.
    stream: Option<Pin<Box<Guarded<F>>>>,
    lasting: Entrance,
}

impl<F> Future for StreamTask<F>
where
    F: Future + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(());
        };
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !stream.watch.progress.as_ref().is_some_and(|progress| progress.lasts()) {
            return Poll::Pending;
        }
        // It is polled there at once, so nothing that wakes this task now is missed.
        let stream = self.stream.take().expect("polled above");
        self.lasting.enter(stream);
        Poll::Ready(())
    }
}

pin_project_lite::pin_project! {
    struct Guarded<F> {
        #[pin]
        stream: F,
        watch: Watch,
    }
}

struct Watch {
    patience: Duration,
    progress: Option<Arc<Progress>>,
    armed: Option<Box<Armed>>,
}

struct Armed {
    turn: u64,
    timer: Pin<Box<Sleep>>,
}

impl<F: Future> Future for Guarded<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        // A body says once that it is worth watching.
        if this.watch.progress.is_some() {
            return match this.stream.poll(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => this.watch.poll_stalled(cx),
            };
        }
        let slot = RefCell::new(None);
        let (polled, progress) = SLOT.sync_scope(slot, || {
            let polled = this.stream.poll(cx);
            (polled, SLOT.with(|slot| slot.borrow_mut().take()))
        });
        this.watch.progress = progress;
        match polled {
            Poll::Ready(_) => Poll::Ready(()),
            // Returning drops the stream, which resets it.
            Poll::Pending => this.watch.poll_stalled(cx),
        }
    }
}

impl Watch {
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(progress) = &self.progress else {
            return Poll::Pending;
        };
        let turn = progress.turn();
        if turn & 1 == 0 {
            self.armed = None;
            return Poll::Pending;
        }
        if self.armed.as_ref().is_none_or(|armed| armed.turn != turn) {
            let timer = Box::pin(tokio::time::sleep_until(Instant::now() + self.patience));
            self.armed = Some(Box::new(Armed { turn, timer }));
        }
        let armed = self.armed.as_mut().expect("armed above");
        ready!(armed.timer.as_mut().poll(cx));
        tracing::debug!("an HTTP/2 stream was reset: its client takes nothing");
        Poll::Ready(())
    }
}

/// A connection whose writes fail when the peer takes nothing for `patience`.
pub(super) struct StallGuard<IO> {
    io: IO,
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<IO> StallGuard<IO> {
    pub(super) fn new(io: IO, patience: Duration) -> Self {
        Self {
            io,
            patience,
            timer: None,
        }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.timer = None;
            return polled;
        }
        let patience = self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for StallGuard<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for StallGuard<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.watch(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watch(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_fails_and_a_read_one_does_not() {
        let (near, far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near, Duration::from_secs(60));
        guarded.write_all(&[0; 16]).await.unwrap();
        let started = Instant::now();
        assert_eq!(guarded.write(&[0]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_secs(60));
        drop(far);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_given_up_only_while_something_is_on_offer() {
        let progress = Arc::new(Progress::default());
        let watch = |progress: &Arc<Progress>| Watch {
            patience: Duration::from_secs(60),
            progress: Some(progress.clone()),
            armed: None,
        };
        let mut idle = watch(&progress);
        let waited = tokio::time::timeout(
            Duration::from_secs(600),
            std::future::poll_fn(|cx| idle.poll_stalled(cx)),
        );
        assert!(waited.await.is_err(), "an idle watch is left alone");
        progress.offered();
        let mut stuck = watch(&progress);
        let started = Instant::now();
        std::future::poll_fn(|cx| stuck.poll_stalled(cx)).await;
        assert_eq!(started.elapsed().as_secs(), 60);
        progress.taken();
        assert_eq!(progress.turn() & 1, 0);
    }
}
