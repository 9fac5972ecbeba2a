//! One write for many frames.
//!
//! An event that a hundred watches of a connection wait for is a hundred HTTP/2 frames. The h2 library flushes after each
//! larger one, and below it every flush would be a TLS record and a system call. Here writes are gathered, flushes are put
//! off, and whoever polls the connection writes out what one poll left behind.
//!
//! Invariant: nothing waits here longer than the poll that wrote it, unless the socket is full; then the socket wakes the task.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pool::Pool;

/// How much is gathered before it is written in the middle of a poll: a few TLS records.
const MOST: usize = 64 * 1024;

thread_local! {
    /// The buffer that the next connection to write on this thread takes: an idle connection keeps none.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

struct Gathered<IO> {
    io: IO,
    waiting: Vec<u8>,
    /// How much of `waiting` is written.
    written: usize,
    /// How writing failed after a poll was over: the connection learns it from its next read or write.
    failed: Option<io::ErrorKind>,
}

impl<IO: AsyncWrite + Unpin> Gathered<IO> {
    fn check(&self) -> io::Result<()> {
        self.failed.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.waiting.len() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.waiting[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        if self.written > 0 {
            self.written = 0;
            self.waiting.clear();
            SPARE.set(std::mem::take(&mut self.waiting));
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }
}

/// The end that the HTTP library has.
pub(super) struct Gathering<IO>(Arc<Mutex<Gathered<IO>>>);

/// The end that whoever polls the connection has.
pub(super) struct Outlet<IO>(Arc<Mutex<Gathered<IO>>>);

pub(super) fn gather<IO>(io: IO) -> (Gathering<IO>, Outlet<IO>) {
    let shared = Arc::new(Mutex::new(Gathered {
        io,
        waiting: Vec::new(),
        written: 0,
        failed: None,
    }));
    (Gathering(shared.clone()), Outlet(shared))
}

impl<IO> Outlet<IO> {
    /// Runs a connection and its lasting streams, writing out after each poll what that poll gathered.
    pub(super) fn run<'a, C>(&'a self, connection: Pin<&'a mut C>, pool: &'a mut Pool) -> Running<'a, IO, C> {
        Running {
            outlet: self,
            connection,
            pool,
        }
    }
}

pub(super) struct Running<'a, IO, C> {
    outlet: &'a Outlet<IO>,
    connection: Pin<&'a mut C>,
    pool: &'a mut Pool,
}

impl<IO: AsyncWrite + Unpin, C: Future> Future for Running<'_, IO, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        // The streams first: the connection then sends what they have.
        self.pool.poll(cx);
        let polled = self.connection.as_mut().poll(cx);
        let mut gathered = self.outlet.0.lock();
        if gathered.failed.is_none()
            && let Poll::Ready(Err(error)) = gathered.poll_drain(cx)
        {
            gathered.failed = Some(error.kind());
            cx.waker().wake_by_ref();
        }
        polled
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathering<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.lock();
        gathered.check()?;
        Pin::new(&mut gathered.io).poll_read(cx, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Gathering<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut gathered = self.0.lock();
        gathered.check()?;
        if gathered.waiting.len() + bytes.len() > MOST {
            ready!(gathered.poll_drain(cx))?;
        }
        if bytes.len() > MOST {
            return Pin::new(&mut gathered.io).poll_write(cx, bytes);
        }
        if gathered.waiting.capacity() == 0 {
            gathered.waiting = SPARE.take();
            gathered.waiting.reserve(MOST);
        }
        gathered.waiting.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Put off: [`Outlet::run`] does it once the poll is over.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.lock().check())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.lock();
        ready!(gathered.poll_drain(cx))?;
        Pin::new(&mut gathered.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_one_poll_writes_arrives_when_the_poll_is_over_and_in_order() {
        let (near, mut far) = tokio::io::duplex(256 * 1024);
        let (mut gathering, outlet) = gather(near);
        let writer = std::pin::pin!(async move {
            for i in 0..100u8 {
                gathering.write_all(&[i; 1000]).await.unwrap();
                gathering.flush().await.unwrap();
            }
        });
        outlet.run(writer, &mut Pool::new()).await;
        let mut received = vec![0; 100_000];
        far.read_exact(&mut received).await.unwrap();
        assert!(
            received
                .chunks(1000)
                .zip(0u8..)
                .all(|(chunk, i)| chunk.iter().all(|byte| *byte == i))
        );
    }

    #[tokio::test]
    async fn a_full_socket_holds_the_writer_and_loses_nothing() {
        let (near, mut far) = tokio::io::duplex(1024);
        let (mut gathering, outlet) = gather(near);
        let reader = tokio::spawn(async move {
            let mut received = Vec::new();
            far.read_to_end(&mut received).await.unwrap();
            received
        });
        let writer = std::pin::pin!(async move {
            let block: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
            gathering.write_all(&block).await.unwrap();
            gathering.write_all(&block[..10]).await.unwrap();
            gathering.shutdown().await.unwrap();
            block
        });
        let block = outlet.run(writer, &mut Pool::new()).await;
        drop(outlet);
        let received = reader.await.unwrap();
        assert_eq!(received.len(), 200_010);
        assert_eq!((&received[..200_000], &received[200_000..]), (&block[..], &block[..10]));
    }

    #[tokio::test]
    async fn a_write_that_fails_after_the_poll_ends_the_connection() {
        let (near, far) = tokio::io::duplex(16);
        drop(far);
        let (mut gathering, outlet) = gather(near);
        let connection = std::pin::pin!(async move {
            gathering.write_all(b"gathered, not yet written").await.unwrap();
            tokio::task::yield_now().await;
            gathering.write_all(b"more").await.unwrap_err().kind()
        });
        assert_eq!(
            outlet.run(connection, &mut Pool::new()).await,
            io::ErrorKind::BrokenPipe
        );
    }
}
