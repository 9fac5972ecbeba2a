//! Every bound of the outside of the server, by name, with the reason for its value.

use std::time::Duration;

/// Bodies above this are refused with 413, as upstream does.
pub const MAX_REQUEST_BODY: usize = 3 * 1024 * 1024;

/// Time for a request to be answered, unless it is long-running; `?timeout=` can only shorten it. Upstream's default.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Open connections. One more is closed at once: a quick refusal is better than a slow collapse.
pub const MAX_CONNECTIONS: usize = 131_072;

/// One address may have one of so many parts of all connections, unless told: the others must find some.
pub const ADDRESS_PARTS: usize = 2;

/// Time for a TLS handshake, so that silent peers cannot hold slots.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two requests of an HTTP/1 connection, headers included: Go clients drop idle connections after 90 s, and
/// a server that is quicker than its client makes the client's next request fail.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(95);

/// Request line and headers. Upstream allows 1 MiB; nothing real comes near this.
pub const MAX_HEADERS: u32 = 128 * 1024;

/// Streams of one HTTP/2 connection. client-go puts all its watches on one connection and opens another only above this.
pub const MAX_STREAMS: u32 = 1000;

/// Streams that a client has opened and reset again before we took them up; one more ends the connection. Honest clients
/// reset what they no longer want now and then, and a flood of resets costs us more than them.
pub const MAX_RESET_UNSEEN: usize = 32;

/// Streams that we had to reset because a client broke the protocol; one more ends the connection. They count for as long as
/// it lasts, and an honest client breaks it too: what it still sends of a body that was refused unread comes too late.
pub const MAX_BROKEN: usize = 1024;

/// How long a body may stand still: a request holds a seat of its plane while it is read.
pub const BODY_PAUSE: Duration = Duration::from_secs(15);

/// What a client may send on one stream before we read it: 99 % of bodies fit, upstream uses the same.
pub const STREAM_WINDOW: u32 = 256 * 1024;

/// What a client may send on one connection before we read it, over all its streams: the most that a connection can make us hold.
pub const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// What we queue on one HTTP/2 stream beyond what the client has room for. Nothing of it is allocated for an idle watch.
pub const STREAM_SEND_BUFFER: usize = 128 * 1024;

/// What an HTTP/1 connection buffers in each direction; it starts at 8 KiB and grows on demand.
pub const CONNECTION_BUFFER: usize = 256 * 1024;

/// A silent HTTP/2 connection is pinged after this long.
pub const PING_INTERVAL: Duration = Duration::from_secs(60);

/// A ping not answered after this long ends the connection and with it the watches of a client that is gone.
pub const PING_TIMEOUT: Duration = Duration::from_secs(30);

/// TCP keep-alive, for peers that vanish without a word while we have nothing to send.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// A client that takes nothing for this long while we have something for it is cut off.
pub const WRITE_STALL: Duration = Duration::from_secs(60);

/// Time for requests to finish after shutdown began.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(60);

/// Pieces of a body below this size are joined: each piece would be an HTTP/2 frame with its own bookkeeping.
pub const SMALL_CHUNK: usize = 16 * 1024;

/// Joined pieces do not grow above this.
pub const JOINED_CHUNK: usize = 64 * 1024;

/// Answers above this are compressed for clients that accept gzip. Upstream's threshold.
pub const GZIP_THRESHOLD: usize = 128 * 1024;
