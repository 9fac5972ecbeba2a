//! Request bodies: the type, and reading one within its limit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::body::BoxError;
use super::limit::{BODY_PAUSE, STREAM_WINDOW};

/// A request body: from a connection, or given whole by a caller in this process.
#[derive(Default)]
pub enum RequestBody {
    #[default]
    Empty,
    Full(Bytes),
    Incoming(Incoming),
    /// From a caller in this process that does not have it whole. Nobody else can reach it: the lock is never waited for.
    Passing(Mutex<UnsyncBoxBody<Bytes, BoxError>>),
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Empty
        } else {
            Self::Full(bytes)
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match this {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Self::Incoming(incoming) => Pin::new(incoming).poll_frame(cx).map_err(BoxError::from),
            Self::Passing(body) => Pin::new(body.get_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(_) => false,
            Self::Incoming(incoming) => incoming.is_end_stream(),
            Self::Passing(body) => body.lock().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Incoming(incoming) => incoming.size_hint(),
            Self::Passing(body) => body.lock().size_hint(),
        }
    }
}

/// How much of a refused body is taken in, and for how long.
const MAX_DISCARDED: usize = 32 * 1024 * 1024;
const DISCARD_PATIENCE: Duration = Duration::from_secs(5);

/// How long is waited for what is under way of a body that nobody looked at.
const UNREAD_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    /// Upstream's sentence, which is also what the client gets.
    #[error("Request entity too large: limit is {limit}")]
    TooLarge { limit: usize },
    #[error("the request body did not arrive in time")]
    Timeout,
    #[error("the request body broke off")]
    Broken(#[source] BoxError),
}

/// Reads a body of at most `limit` bytes. A body that arrives in one piece is not copied.
///
/// One that announces more is refused before it is read; one that says nothing is read no further than the limit.
pub async fn read_body(body: RequestBody, limit: usize, patience: Duration) -> Result<Bytes, ReadBodyError> {
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        if let RequestBody::Incoming(incoming) = body {
            discard(incoming, MAX_DISCARDED, DISCARD_PATIENCE).await;
        }
        return Err(ReadBodyError::TooLarge { limit });
    }
    match body {
        RequestBody::Empty => Ok(Bytes::new()),
        RequestBody::Full(bytes) => Ok(bytes),
        RequestBody::Incoming(incoming) if incoming.is_end_stream() => Ok(Bytes::new()),
        RequestBody::Incoming(incoming) => tokio::time::timeout(patience, collect(incoming, limit))
            .await
            .unwrap_or(Err(ReadBodyError::Timeout)),
        RequestBody::Passing(body) => tokio::time::timeout(patience, collect(body.into_inner(), limit))
            .await
            .unwrap_or(Err(ReadBodyError::Timeout)),
    }
}

/// Takes in what a client still sends of a body that is refused, up to a bound: most clients read the answer only once they
/// have sent everything, and see a broken connection if it is closed under them.
async fn discard<B>(mut body: B, most: usize, patience: Duration)
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let rest = async {
        let mut left = most;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(patience, rest).await;
}

/// Takes in what is already under way of a body that is refused before anybody looked at it.
///
/// On HTTP/2 a piece that comes after the answer counts as broken protocol, and enough of them end the connection with all
/// that is on it: somebody with an old token who goes on writing would lose every watch. On HTTP/1 reading would invite
/// a client that waits for `100 Continue` to send.
pub async fn discard_unread(body: RequestBody, version: Version) {
    if let RequestBody::Incoming(incoming) = body
        && version == Version::HTTP_2
        && !incoming.is_end_stream()
    {
        discard(incoming, STREAM_WINDOW as usize, UNREAD_PATIENCE).await;
    }
}

/// The next piece of a body. One that stands still is given up.
async fn moving<B>(body: &mut B) -> Result<Option<Result<Frame<Bytes>, B::Error>>, ReadBodyError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let next = tokio::time::timeout(BODY_PAUSE, body.frame()).await;
    next.map_err(|_| ReadBodyError::Timeout)
}

async fn collect<B>(mut body: B, limit: usize) -> Result<Bytes, ReadBodyError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(limit);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = moving(&mut body).await? {
        let frame = frame.map_err(|error| ReadBodyError::Broken(error.into()))?;
        let Ok(piece) = frame.into_data() else { continue };
        if first.len() + rest.len() + piece.len() > limit {
            discard(body, MAX_DISCARDED, DISCARD_PATIENCE).await;
            return Err(ReadBodyError::TooLarge { limit });
        }
        if first.is_empty() && rest.is_empty() {
            first = piece;
            continue;
        }
        if rest.is_empty() {
            rest.reserve(announced.max(first.len() + piece.len()));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&piece);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    async fn check(pieces: &[&'static str], limit: usize) -> Result<Bytes, String> {
        let frames: Vec<Result<Frame<Bytes>, BoxError>> = pieces
            .iter()
            .map(|piece| Ok(Frame::data(Bytes::from(*piece))))
            .collect();
        collect(StreamBody::new(stream::iter(frames)), limit)
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_given_up_and_a_slow_one_is_not() {
        let piece = |pause: Duration| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, BoxError>(Frame::data(Bytes::from("x")))
        };
        let pieces = |pause: Duration| {
            let three = (0..3).map(move |_| pause);
            collect(
                StreamBody::new(Box::pin(futures::StreamExt::then(stream::iter(three), piece))),
                100,
            )
        };
        assert_eq!(pieces(BODY_PAUSE - Duration::from_secs(1)).await.unwrap(), "xxx");
        let stuck = pieces(BODY_PAUSE + Duration::from_secs(1)).await;
        assert!(matches!(stuck, Err(ReadBodyError::Timeout)));
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_their_limit() {
        assert_eq!(check(&[], 4).await.unwrap(), "");
        assert_eq!(check(&["abcd"], 4).await.unwrap(), "abcd");
        assert_eq!(check(&["a", "", "b", "cd"], 4).await.unwrap(), "abcd");
        assert_eq!(
            check(&["ab", "cde"], 4).await.unwrap_err(),
            "Request entity too large: limit is 4"
        );
        let full = RequestBody::from(Bytes::from("abcde"));
        let refused = read_body(full, 4, Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(refused, ReadBodyError::TooLarge { limit: 4 }));
    }
}
