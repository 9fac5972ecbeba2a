//! The one response body type.
//!
//! Bytes are never copied unless small pieces are joined into one. A body that lasts (a watch) costs one boxed stream while idle.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures::stream::{Stream, StreamExt};
use http_body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::gzip::Gzip;
use super::limit::{JOINED_CHUNK, SMALL_CHUNK};
use super::stall::{self, Progress};
use crate::quiet::Quiet;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send>>;

/// Whether a stream ends by itself soon, or lasts as long as the client stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasting {
    /// A list: it may be compressed.
    Finite,
    /// A watch: every piece goes out as it comes.
    LongRunning,
}

/// Told once when a body is finished or given up, with the number of bytes handed to the connection.
pub trait Observer: Send {
    fn ended(self: Box<Self>, sent: u64);
}

/// Two who are told of one end.
struct Both(Box<dyn Observer>, Box<dyn Observer>);

impl Observer for Both {
    fn ended(self: Box<Self>, sent: u64) {
        self.0.ended(sent);
        self.1.ended(sent);
    }
}

pub struct Body {
    source: Source,
    sent: u64,
    progress: Option<Arc<Progress>>,
    observer: Option<Box<dyn Observer>>,
}

pub(super) enum Source {
    Empty,
    Full(Bytes),
    Chunks(Chunks),
    Stream(Streamed),
    Watch(Watched),
    Gzip(Box<Gzip>),
}

pub(super) struct Chunks {
    queue: VecDeque<Bytes>,
    remaining: u64,
}

pub(super) struct Streamed {
    /// Pieces taken from the stream but not yet sent.
    ahead: VecDeque<Bytes>,
    /// `None` once the stream has ended: it must not be polled again.
    pieces: Option<Pieces>,
    failed: Option<BoxError>,
}

/// A stream that tells how much came of it, when it ends or is given up.
struct Counted<F: FnOnce(Option<u64>)> {
    pieces: Pieces,
    bytes: u64,
    ended: bool,
    made: Option<F>,
}

impl<F: FnOnce(Option<u64>) + Unpin> Stream for Counted<F> {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = ready!(self.pieces.as_mut().poll_next(cx));
        match &piece {
            Some(Ok(bytes)) => self.bytes += bytes.len() as u64,
            Some(Err(_)) => {}
            None => self.ended = true,
        }
        Poll::Ready(piece)
    }
}

impl<F: FnOnce(Option<u64>)> Drop for Counted<F> {
    fn drop(&mut self) {
        if let Some(made) = self.made.take() {
            made(self.ended.then_some(self.bytes));
        }
    }
}

/// Pieces that are sent as they come, until they end or the server drains.
pub(super) struct Watched {
    pieces: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    drain: Quiet<WaitForCancellationFutureOwned>,
    ended: bool,
}

impl Body {
    fn new(source: Source) -> Self {
        Self {
            source,
            sent: 0,
            progress: None,
            observer: None,
        }
    }

    pub fn empty() -> Self {
        Self::new(Source::Empty)
    }

    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::new(if bytes.is_empty() {
            Source::Empty
        } else {
            Source::Full(bytes)
        })
    }

    /// A body of known pieces, sent with a `Content-Length`.
    pub fn chunks(queue: impl Into<VecDeque<Bytes>>) -> Self {
        Self::new(Source::Chunks(Chunks::new(queue.into())))
    }

    /// A body whose length is not known yet, such as a list that is read while it is sent.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::try_stream(pieces.map(Ok::<_, Infallible>))
    }

    /// As [`Body::stream`]; an error cuts the answer off, so that the client sees that it is incomplete.
    pub fn try_stream<E: Into<BoxError>>(pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static) -> Self {
        Self::new(Source::Stream(Streamed {
            ahead: VecDeque::new(),
            pieces: Some(Box::pin(pieces.map(|piece| piece.map_err(Into::into)))),
            failed: None,
        }))
    }

    /// A watch: pieces go out as they come, uncompressed, and the body ends cleanly between two pieces when `drain` is cancelled.
    pub fn watch(pieces: impl Stream<Item = Bytes> + Send + 'static, drain: CancellationToken) -> Self {
        Self::new(Source::Watch(Watched {
            pieces: Box::pin(pieces),
            drain: Quiet::new(drain.cancelled_owned()),
            ended: false,
        }))
    }

    /// Calls `made` when all of this body is made: now, unless it is a list that is made while it is sent. It is told how
    /// large the body was, if it was made to its end.
    #[must_use]
    pub fn then(mut self, made: impl FnOnce(Option<u64>) + Send + Unpin + 'static) -> Self {
        if let Source::Stream(streamed) = &mut self.source
            && let Some(pieces) = streamed.pieces.take()
        {
            streamed.pieces = Some(Box::pin(Counted {
                pieces,
                bytes: streamed.ahead.iter().map(|piece| piece.len() as u64).sum(),
                ended: false,
                made: Some(made),
            }));
        } else {
            made(self.len());
        }
        self
    }

    /// Calls `observer` when this body is finished or dropped, after those who asked before.
    #[must_use]
    pub fn observed(mut self, observer: Box<dyn Observer>) -> Self {
        self.observer = Some(match self.observer.take() {
            None => observer,
            Some(before) => Box::new(Both(before, observer)),
        });
        self
    }

    /// The pieces of a body that is all there, shared and not copied.
    pub(crate) fn pieces(&self) -> Option<Vec<Bytes>> {
        match &self.source {
            Source::Empty => Some(Vec::new()),
            Source::Full(bytes) => Some(vec![bytes.clone()]),
            Source::Chunks(chunks) => Some(chunks.queue.iter().cloned().collect()),
            Source::Stream(_) | Source::Watch(_) | Source::Gzip(_) => None,
        }
    }

    /// Shows each piece of a stream as it is sent, before it is compressed.
    #[must_use]
    pub(crate) fn seen(mut self, mut see: impl FnMut(&Bytes) + Send + 'static) -> Self {
        if let Source::Stream(streamed) = &mut self.source {
            streamed.ahead.iter().for_each(&mut see);
            let pieces = streamed.pieces.take();
            streamed.pieces = pieces.map(|pieces| -> Pieces {
                Box::pin(pieces.inspect(move |piece| {
                    if let Ok(piece) = piece {
                        see(piece);
                    }
                }))
            });
        }
        self
    }

    /// Lets the connection's stall watch see whether the client takes what is sent. Small bodies are not worth the bookkeeping.
    #[must_use]
    pub(super) fn stall_watched(mut self) -> Self {
        let large = match &self.source {
            Source::Empty => false,
            Source::Full(bytes) => bytes.len() > JOINED_CHUNK,
            Source::Chunks(chunks) => chunks.remaining > JOINED_CHUNK as u64,
            Source::Stream(_) | Source::Watch(_) | Source::Gzip(_) => true,
        };
        if large {
            self.progress = stall::current();
        }
        if let (Source::Watch(_), Some(progress)) = (&self.source, &self.progress) {
            progress.will_last();
        }
        self
    }

    pub fn lasting(&self) -> Lasting {
        match &self.source {
            Source::Watch(_) => Lasting::LongRunning,
            _ => Lasting::Finite,
        }
    }

    /// The number of bytes to come, where it is known.
    pub fn len(&self) -> Option<u64> {
        match &self.source {
            Source::Empty => Some(0),
            Source::Full(bytes) => Some(bytes.len() as u64),
            Source::Chunks(chunks) => Some(chunks.remaining),
            Source::Stream(_) | Source::Watch(_) | Source::Gzip(_) => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether more than `limit` bytes are to come. A finite stream is read ahead to find out, which also makes its length
    /// known if it ends early; a watch is never read ahead and never long.
    pub(super) async fn exceeds(&mut self, limit: usize) -> bool {
        if let Some(len) = self.len() {
            return len > limit as u64;
        }
        let Source::Stream(streamed) = &mut self.source else {
            return false;
        };
        let mut ahead: usize = streamed.ahead.iter().map(Bytes::len).sum();
        while ahead <= limit {
            let Some(pieces) = &mut streamed.pieces else { break };
            match pieces.next().await {
                Some(Ok(piece)) => {
                    ahead += piece.len();
                    streamed.ahead.push_back(piece);
                }
                Some(Err(error)) => {
                    (streamed.failed, streamed.pieces) = (Some(error), None);
                    return false;
                }
                None => streamed.pieces = None,
            }
        }
        if streamed.pieces.is_none() {
            self.source = Source::Chunks(Chunks::new(std::mem::take(&mut streamed.ahead)));
        }
        ahead > limit
    }

    /// Compresses what is to come.
    #[must_use]
    pub(super) fn gzipped(mut self) -> Self {
        let source = std::mem::replace(&mut self.source, Source::Empty);
        self.source = Source::Gzip(Box::new(Gzip::new(source)));
        self
    }
}

impl Chunks {
    fn new(mut queue: VecDeque<Bytes>) -> Self {
        queue.retain(|piece| !piece.is_empty());
        let remaining = queue.iter().map(|piece| piece.len() as u64).sum();
        Self { queue, remaining }
    }

    fn take(&mut self) -> Option<Bytes> {
        let piece = join(&mut self.queue)?;
        self.remaining -= piece.len() as u64;
        Some(piece)
    }
}

/// Takes the next piece off the queue, joined with its successors while they are small.
fn join(queue: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = queue.pop_front()?;
    let follows = |len: usize, next: &Bytes| next.len() <= SMALL_CHUNK && len + next.len() <= JOINED_CHUNK;
    if first.len() > SMALL_CHUNK || !queue.front().is_some_and(|next| follows(first.len(), next)) {
        return Some(first);
    }
    let wanted: usize = first.len() + queue.iter().take(JOINED_CHUNK / 64).map(Bytes::len).sum::<usize>();
    let mut joined = BytesMut::with_capacity(wanted.min(JOINED_CHUNK));
    joined.extend_from_slice(&first);
    while let Some(next) = queue.pop_front_if(|next| follows(joined.len(), next)) {
        joined.extend_from_slice(&next);
    }
    Some(joined.freeze())
}

impl Streamed {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        // Take what is ready, so that a burst of small pieces becomes one frame; never wait for more.
        let mut ahead: usize = self.ahead.iter().map(Bytes::len).sum();
        while ahead < JOINED_CHUNK
            && let Some(pieces) = &mut self.pieces
        {
            match pieces.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    ahead += piece.len();
                    if !piece.is_empty() {
                        self.ahead.push_back(piece);
                    }
                }
                Poll::Ready(Some(Err(error))) => (self.failed, self.pieces) = (Some(error), None),
                Poll::Ready(None) => self.pieces = None,
                Poll::Pending if ahead == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(join(&mut self.ahead).map(Ok).or_else(|| self.failed.take().map(Err)))
    }
}

impl Watched {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = match Pin::new(&mut self.drain).poll(cx) {
            Poll::Ready(()) => None,
            Poll::Pending => ready!(self.pieces.as_mut().poll_next(cx)),
        };
        self.ended = piece.is_none();
        Poll::Ready(piece)
    }
}

impl Source {
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                Poll::Ready(Some(Ok(bytes)))
            }
            Self::Chunks(chunks) => Poll::Ready(chunks.take().map(Ok)),
            Self::Stream(streamed) => streamed.poll_data(cx),
            Self::Watch(watched) => watched.poll_data(cx).map(|piece| piece.map(Ok)),
            Self::Gzip(gzip) => gzip.poll_data(cx),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        // Being asked for more means that what was handed out before has been taken.
        if let Some(progress) = &this.progress {
            progress.taken();
        }
        let polled = ready!(this.source.poll_data(cx));
        if let Some(Ok(bytes)) = &polled {
            this.sent += bytes.len() as u64;
            if let Some(progress) = &this.progress {
                progress.offered();
            }
        }
        Poll::Ready(polled.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.len().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.taken();
        }
        if let Some(observer) = self.observer.take() {
            observer.ended(self.sent);
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::BodyExt;

    use super::*;

    async fn pieces(mut body: Body) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let Some(frame) = body.frame().await {
            lengths.push(frame.unwrap().into_data().unwrap().len());
        }
        lengths
    }

    #[tokio::test]
    async fn small_chunks_are_joined_and_large_ones_left_alone() {
        let piece = |len: usize| Bytes::from(vec![b'x'; len]);
        let body = Body::chunks(vec![piece(10), piece(20), piece(0), piece(100_000), piece(5), piece(6)]);
        assert_eq!(body.len(), Some(100_041));
        assert_eq!(pieces(body).await, [30, 100_000, 11]);
        let many = Body::chunks(vec![piece(1000); 200]);
        assert_eq!(pieces(many).await, [65_000, 65_000, 65_000, 5000]);
    }

    #[tokio::test]
    async fn ready_pieces_of_a_stream_are_joined_and_order_is_kept() {
        let body = Body::stream(stream::iter((0..100).map(|i| Bytes::from(format!("{i},")))));
        assert_eq!(body.len(), None);
        let all = body.collect().await.unwrap().to_bytes();
        assert_eq!(all, (0..100).map(|i| format!("{i},")).collect::<String>());
    }

    #[tokio::test]
    async fn an_error_follows_what_came_before_it() {
        let items: Vec<Result<Bytes, &str>> = vec![Ok("a".into()), Ok("b".into()), Err("broken"), Ok("c".into())];
        let mut body = Body::try_stream(stream::iter(items));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "broken");
    }

    #[tokio::test]
    async fn a_watch_ends_when_the_server_drains() {
        let drain = CancellationToken::new();
        let mut body = Body::watch(
            stream::iter([Bytes::from("event")]).chain(stream::pending()),
            drain.clone(),
        );
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "event");
        drain.cancel();
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn reading_ahead_loses_nothing() {
        let source = || stream::iter((0..10).map(|_| Bytes::from("0123456789")));
        let mut short = Body::stream(source());
        assert!(!short.exceeds(100).await);
        assert_eq!(short.len(), Some(100));
        let mut long = Body::stream(source());
        assert!(long.exceeds(99).await);
        assert_eq!(long.collect().await.unwrap().to_bytes().len(), 100);
        let mut watch = Body::watch(source(), CancellationToken::new());
        assert!(!watch.exceeds(5).await);
    }
}
