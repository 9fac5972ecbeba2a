//! Many watches over few connections, as client-go opens them: HTTP/2, up to a hundred streams each.
//!
//! The least of HTTP/2 that holds watches open: requests with plain headers, windows so large that flow control never
//! acts, frames told apart, events counted as they pass. A library for all of HTTP/2 costs several times what fan-out
//! costs a good server, and then the measurement would be of the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::endpoint::{Endpoint, Protocol, Stream};

/// What kube-apiserver lets one connection have, and so what every client copes with.
const STREAMS: usize = 100;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
/// After so many bytes the connection's window is filled up again.
const REFILL: u32 = 1 << 30;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// Gets every event of the first watch of each connection, as a line.
pub type Look = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Open watches; dropping them closes their connections.
pub struct Watches {
    /// How many events each watch has got.
    pub delivered: Arc<Vec<AtomicU64>>,
    connections: Vec<JoinHandle<Result<()>>>,
}

impl Watches {
    /// Opens so many watches of one path and returns when the server has accepted them all.
    pub async fn open(endpoint: &Endpoint, path: &str, count: usize, look: Option<Look>) -> Result<Self> {
        let delivered: Arc<Vec<_>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
        let mut watches = Self {
            delivered: delivered.clone(),
            connections: Vec::new(),
        };
        for first in (0..count).step_by(STREAMS) {
            let tls = endpoint.connect(Protocol::Http2).await?;
            let (accepted, wait) = oneshot::channel();
            let mut connection = Connection {
                first,
                waiting: STREAMS.min(count - first),
                accepted: Some(accepted),
                delivered: delivered.clone(),
                look: look.clone(),
                line: Vec::new(),
                unreturned: 0,
                out: Vec::new(),
            };
            connection.begin(endpoint, path);
            let task = tokio::spawn(async move { connection.run(tls).await });
            if wait.await.is_err() {
                return Err(task
                    .await?
                    .err()
                    .unwrap_or_else(|| anyhow::anyhow!("a connection ended")));
            }
            watches.connections.push(task);
        }
        Ok(watches)
    }

    /// Why the first of the connections that have ended did so, if any has.
    pub async fn failure(&mut self) -> Option<String> {
        let ended = self
            .connections
            .iter_mut()
            .find(|connection| connection.is_finished())?;
        Some(match ended.await {
            Ok(Err(err)) => format!("{err:#}"),
            _ => "a connection ended".to_owned(),
        })
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.connections.iter().for_each(JoinHandle::abort);
    }
}

struct Connection {
    /// The index of this connection's first watch.
    first: usize,
    /// Watches that the server has not accepted yet.
    waiting: usize,
    accepted: Option<oneshot::Sender<()>>,
    delivered: Arc<Vec<AtomicU64>>,
    look: Option<Look>,
    /// What has come of the first watch's current event.
    line: Vec<u8>,
    unreturned: u32,
    out: Vec<u8>,
}

/// A frame whose payload is being read.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    left: usize,
    /// The payload so far, except of DATA, which is looked at in passing.
    payload: Vec<u8>,
}

impl Connection {
    fn begin(&mut self, endpoint: &Endpoint, path: &str) {
        self.out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // No header table (1), no push (2), the largest window for each stream (4).
        let settings = [(1_u16, 0_u32), (2, 0), (4, LARGEST_WINDOW)];
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        self.send(SETTINGS, 0, 0, &payload);
        self.send(WINDOW_UPDATE, 0, 0, &(LARGEST_WINDOW - 65_535).to_be_bytes());
        let headers = header_block(endpoint, path);
        for watch in 0..self.waiting as u32 {
            self.send(HEADERS, END_STREAM | END_HEADERS, 2 * watch + 1, &headers);
        }
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        self.out.extend_from_slice(&[kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
    }

    async fn run(&mut self, mut tls: Stream) -> Result<()> {
        let (mut head, mut frame) = (Vec::with_capacity(9), None::<Frame>);
        loop {
            if !self.out.is_empty() {
                tls.write_all(&self.out).await?;
                tls.flush().await?;
                self.out.clear();
            }
            // What is decrypted is looked at where it lies.
            let mut rest = tls.fill_buf().await?;
            let read = rest.len();
            ensure!(read > 0, "the server closed the connection");
            while !rest.is_empty() {
                let Some(current) = &mut frame else {
                    let taken = rest.len().min(9 - head.len());
                    head.extend_from_slice(&rest[..taken]);
                    rest = &rest[taken..];
                    if head.len() == 9 {
                        frame = Some(Frame::parse(&head));
                        head.clear();
                        self.end_if_whole(&mut frame)?;
                    }
                    continue;
                };
                let (part, behind) = rest.split_at(rest.len().min(current.left));
                current.left -= part.len();
                rest = behind;
                if current.kind == DATA {
                    self.data(current.stream, part);
                } else {
                    current.payload.extend_from_slice(part);
                }
                self.end_if_whole(&mut frame)?;
            }
            tls.consume(read);
        }
    }

    fn data(&mut self, stream: u32, part: &[u8]) {
        self.unreturned += part.len() as u32;
        let watch = stream as usize / 2;
        let events = memchr::memchr_iter(b'\n', part).count() as u64;
        if let Some(look) = self.look.as_ref().filter(|_| watch == 0) {
            let mut rest = part;
            while let Some(end) = memchr::memchr(b'\n', rest) {
                self.line.extend_from_slice(&rest[..end]);
                look(&self.line);
                self.line.clear();
                rest = &rest[end + 1..];
            }
            self.line.extend_from_slice(rest);
        }
        self.delivered[self.first + watch].fetch_add(events, Ordering::Relaxed);
    }

    fn end_if_whole(&mut self, frame: &mut Option<Frame>) -> Result<()> {
        let Some(frame) = frame.take_if(|frame| frame.left == 0) else {
            return Ok(());
        };
        match frame.kind {
            DATA => {
                ensure!(frame.flags & PADDED == 0, "a padded frame");
                ensure!(frame.flags & END_STREAM == 0, "the server ended a watch");
                if self.unreturned > REFILL {
                    let returned = std::mem::take(&mut self.unreturned);
                    self.send(WINDOW_UPDATE, 0, 0, &returned.to_be_bytes());
                }
            }
            HEADERS => {
                // After an optional change of the table's size, `:status: 200` is the eighth static entry.
                let block = frame.payload.strip_prefix(&[0x20]).unwrap_or(&frame.payload);
                ensure!(block.first() == Some(&0x88), "a watch was not answered with 200");
                ensure!(frame.flags & END_STREAM == 0, "the server ended a watch");
                self.waiting -= 1;
                if let Some(accepted) = self.accepted.take_if(|_| self.waiting == 0) {
                    accepted.send(()).ok().context("nobody waits for the watches")?;
                }
            }
            SETTINGS if frame.flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]),
            PING if frame.flags & ACK == 0 => self.send(PING, ACK, 0, &frame.payload),
            RST_STREAM => bail!("the server reset watch {}: {:?}", frame.stream / 2, frame.payload),
            GOAWAY => bail!("the server says goodbye: {:?}", String::from_utf8_lossy(&frame.payload)),
            _ => {}
        }
        Ok(())
    }
}

impl Frame {
    fn parse(head: &[u8]) -> Self {
        let left = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & LARGEST_WINDOW;
        Self {
            kind: head[3],
            flags: head[4],
            stream,
            left,
            payload: Vec::new(),
        }
    }
}

/// The request's headers as literals; the numbers are the static table's.
fn header_block(endpoint: &Endpoint, path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x87]; // :method GET, :scheme https
    literal(&mut block, 1, &endpoint.authority);
    literal(&mut block, 4, &format!("{}{path}", endpoint.prefix));
    literal(&mut block, 19, "application/json");
    literal(&mut block, 58, "mica-bench");
    if let Some(token) = &endpoint.token {
        literal(&mut block, 23, &format!("Bearer {token}"));
    }
    block
}

fn literal(block: &mut Vec<u8>, name: usize, value: &str) {
    integer(block, 15, name);
    integer(block, 127, value.len());
    block.extend_from_slice(value.as_bytes());
}

/// An integer with a prefix that holds at most `most` (RFC 7541, section 5.1).
fn integer(block: &mut Vec<u8>, most: usize, value: usize) {
    if value < most {
        return block.push(value as u8);
    }
    block.push(most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        block.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    block.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_as_the_standard_shows() {
        // The three examples of RFC 7541, appendix C.1; the last has a prefix of eight bits.
        for (most, value, bytes) in [(31, 10, vec![10]), (31, 1337, vec![31, 154, 10]), (255, 42, vec![42])] {
            let mut block = Vec::new();
            integer(&mut block, most, value);
            assert_eq!(block, bytes);
        }
    }
}
