//! The cheapest HTTP/1.1 client that is still correct: writes requests made beforehand, skips bodies without looking.
//!
//! The load generator shares the machine with what it measures, so everything it does not do makes the numbers truer.
//! It understands `Content-Length` and chunked answers, which is all that API servers send.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::endpoint::{Endpoint, Protocol, Stream};

/// One TLS record holds at most 16 KiB; a few of them per read keep big lists cheap.
const BUFFER: usize = 64 * 1024;
/// An API server's answer head is a few hundred bytes.
const LONGEST_HEAD: usize = 16 * 1024;
/// How much of an unexpected answer is kept to be shown.
const SHOWN: usize = 400;
/// A server that takes longer than this for one request is stuck, not slow.
const STUCK: Duration = Duration::from_secs(120);

pub struct Connection {
    stream: Stream,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// What came back; the body only where it was asked for or is an error's.
pub struct Reply {
    pub status: u16,
    pub length: u64,
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Body {
    Skip,
    Keep,
}

enum Length {
    Known(u64),
    Chunked,
}

impl Connection {
    pub async fn open(endpoint: &Endpoint) -> Result<Self> {
        let stream = endpoint.connect(Protocol::Http1).await?;
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
        })
    }

    /// Sends one request and reads its answer to the end.
    pub async fn exchange(&mut self, request: &[u8], body: Body) -> Result<Reply> {
        tokio::time::timeout(STUCK, self.exchange_unbounded(request, body))
            .await
            .context("no answer in 120 s")?
    }

    async fn exchange_unbounded(&mut self, request: &[u8], body: Body) -> Result<Reply> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let (status, length) = self.read_head().await?;
        let keep = match body {
            Body::Keep => usize::MAX,
            Body::Skip if status >= 400 => SHOWN,
            Body::Skip => 0,
        };
        let mut reply = Reply {
            status,
            length: 0,
            body: Vec::new(),
        };
        match length {
            Length::Known(bytes) => self.read_body(bytes, keep, &mut reply).await?,
            Length::Chunked => loop {
                let size = self.read_chunk_size().await?;
                self.read_body(size, keep, &mut reply).await?;
                ensure!(self.read_line().await?.is_empty(), "a chunk without its end");
                if size == 0 {
                    break;
                }
            },
        }
        Ok(reply)
    }

    async fn read_head(&mut self) -> Result<(u16, Length)> {
        let line = self.read_line().await?;
        let status = line
            .get(9..12)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|s| s.parse().ok());
        let status: u16 = status.with_context(|| format!("no status in {:?}", String::from_utf8_lossy(&line)))?;
        let mut length = Length::Known(0);
        let mut read = line.len();
        loop {
            let line = self.read_line().await?;
            if line.is_empty() {
                return Ok((status, length));
            }
            read += line.len();
            ensure!(read < LONGEST_HEAD, "an endless answer head");
            let Some(colon) = memchr::memchr(b':', &line) else {
                bail!("a header without a colon")
            };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                length = Length::Known(std::str::from_utf8(value)?.parse()?);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") && value.eq_ignore_ascii_case(b"chunked") {
                length = Length::Chunked;
            }
        }
    }

    async fn read_chunk_size(&mut self) -> Result<u64> {
        let line = self.read_line().await?;
        let digits = line.split(|b| *b == b';').next().unwrap_or_default();
        u64::from_str_radix(std::str::from_utf8(digits)?.trim(), 16).context("a chunk's size")
    }

    /// The next line without its end. Lines are short, so the copy is cheap.
    async fn read_line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let ready = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', ready) {
                line.extend_from_slice(&ready[..at]);
                self.start += at + 1;
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            line.extend_from_slice(ready);
            ensure!(line.len() < LONGEST_HEAD, "an endless line");
            self.fill().await?;
        }
    }

    async fn read_body(&mut self, bytes: u64, keep: usize, reply: &mut Reply) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            if self.start == self.end {
                self.fill().await?;
            }
            let taken = (self.end - self.start).min(usize::try_from(left).unwrap_or(usize::MAX));
            let room = keep.saturating_sub(reply.body.len()).min(taken);
            reply
                .body
                .extend_from_slice(&self.buffer[self.start..self.start + room]);
            self.start += taken;
            left -= taken as u64;
        }
        reply.length += bytes;
        Ok(())
    }

    /// Replaces what was read, all of which has been used.
    async fn fill(&mut self) -> Result<()> {
        self.start = 0;
        self.end = self.stream.read(&mut self.buffer).await?;
        ensure!(self.end > 0, "the server closed the connection");
        Ok(())
    }
}
