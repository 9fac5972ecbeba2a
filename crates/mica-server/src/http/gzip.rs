//! Compression of a body while it is sent.

use std::io::Write as _;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::body::{BoxError, Source};

/// Upstream's level: the cheapest, and hardly worse than the next ones on JSON.
const LEVEL: u32 = 1;
/// What is compressed in one go.
const SLICE: usize = 32 * 1024;
/// Slices after which other tasks get their turn: about a millisecond of work.
const SLICES_PER_TURN: u8 = 8;
/// Compressed bytes are handed on in pieces of about this size.
const OUTPUT: usize = 16 * 1024;

pub(super) struct Gzip {
    source: Source,
    input: Bytes,
    /// `None` when the end has been written.
    encoder: Option<GzEncoder<Vec<u8>>>,
    slices: u8,
}

impl Gzip {
    pub(super) fn new(source: Source) -> Self {
        let encoder = GzEncoder::new(Vec::with_capacity(OUTPUT), Compression::new(LEVEL));
        Self {
            source,
            input: Bytes::new(),
            encoder: Some(encoder),
            slices: 0,
        }
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            let Some(encoder) = &mut self.encoder else {
                return Poll::Ready(None);
            };
            if encoder.get_ref().len() >= OUTPUT {
                let output = std::mem::replace(encoder.get_mut(), Vec::with_capacity(OUTPUT + SLICE));
                return Poll::Ready(Some(Ok(output.into())));
            }
            if self.input.is_empty() {
                match ready!(self.source.poll_data(cx)) {
                    Some(Ok(input)) => self.input = input,
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {
                        let encoder = self.encoder.take().expect("the encoder was there above");
                        return Poll::Ready(Some(encoder.finish().map(Bytes::from).map_err(BoxError::from)));
                    }
                }
                continue;
            }
            if self.slices == SLICES_PER_TURN {
                self.slices = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.slices += 1;
            let slice = self.input.len().min(SLICE);
            if let Err(error) = encoder.write_all(&self.input[..slice]) {
                return Poll::Ready(Some(Err(error.into())));
            }
            self.input.advance(slice);
        }
    }
}

/// Whether an `Accept-Encoding` header names gzip, by upstream's rule: a bare token; one with a weight does not count.
pub(super) fn accepted(header: Option<&http::HeaderValue>) -> bool {
    header
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|token| token.trim() == "gzip"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use futures::stream;
    use http_body_util::BodyExt as _;

    use super::super::body::Body;
    use super::*;

    #[tokio::test]
    async fn what_is_compressed_comes_back_whole() {
        let pieces: Vec<Bytes> = (0..2000).map(|i| Bytes::from(format!("{i:>300}"))).collect();
        let plain = pieces.concat();
        for body in [
            Body::chunks(pieces.clone()),
            Body::stream(stream::iter(pieces)),
            Body::full(plain.clone()),
        ] {
            let packed = body.gzipped().collect().await.unwrap().to_bytes();
            assert!(packed.len() < plain.len() / 4);
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(&packed[..])
                .read_to_end(&mut unpacked)
                .unwrap();
            assert!(unpacked == plain);
        }
    }

    #[test]
    fn only_a_bare_gzip_token_counts() {
        for (header, expected) in [
            ("gzip", true),
            ("deflate, gzip", true),
            ("gzip;q=1", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(accepted(Some(&header.parse().unwrap())), expected, "{header}");
        }
        assert!(!accepted(None));
    }
}
