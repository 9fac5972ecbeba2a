//! The bytes of a snapshot.
//!
//! One line of JSON that says what it is, then each record as two lengths (32-bit little-endian), the key below the plane and
//! the stored value, then two zero lengths and a 64-bit checksum of all that came before. In version 2 the revision that
//! clients see (64-bit) follows the lengths, and a value length of all ones is a deletion.
//!
//! What is read here was written by anybody: nothing is believed before it is looked at, and every length is bounded.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use mica_store::Revision;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::error::ApiError;
use crate::http::RequestBody;
use crate::plane::birth::BirthRecord;

const MAGIC: &str = "plane-snapshot";
/// Records without revisions, for copies.
pub(super) const PLAIN: u32 = 1;
/// Records with revisions, for moves.
pub(super) const WITH_REVISIONS: u32 = 2;
pub(super) const CONTENT_TYPE: &str = "application/vnd.mica.plane-snapshot";
/// No stored object is larger: bodies end at 3 MiB.
const MAX_RECORD: usize = 16 * 1024 * 1024;
/// No key is longer than the store takes.
const MAX_KEY: usize = 4096;
/// The header line is small.
const MAX_HEADER: usize = 64 * 1024;
/// Stands for the length of a value that is not there any more.
const DELETED: u32 = u32::MAX;

#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    mica: String,
    pub(super) version: u32,
    plane: String,
    /// The state or the changes up to this revision.
    pub(super) revision: Revision,
    pub(super) birth: BirthRecord,
    /// Only what changed after this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Revision>,
    /// What clients see as resourceVersion of base objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base_revision: Option<Revision>,
}

impl Header {
    pub(super) fn new(version: u32, plane: &str, revision: Revision, birth: BirthRecord) -> Self {
        Self {
            mica: MAGIC.to_owned(),
            version,
            plane: plane.to_owned(),
            revision,
            birth,
            since: None,
            base_revision: None,
        }
    }
}

/// One record of a plane, by its key below the plane.
pub(super) struct Item {
    pub(super) below: String,
    /// `None` is a deletion.
    pub(super) value: Option<Bytes>,
    pub(super) revision: Revision,
}

/// Puts a snapshot together, piece by piece.
pub(super) struct Writer {
    version: u32,
    sum: Xxh3,
}

impl Writer {
    /// With the header that goes first.
    pub(super) fn new(header: &Header) -> (Self, BytesMut) {
        let mut line = serde_json::to_vec(header).expect("a header is plain JSON");
        line.push(b'\n');
        let mut writer = Self {
            version: header.version,
            sum: Xxh3::new(),
        };
        writer.sum.update(&line);
        (writer, BytesMut::from(&line[..]))
    }

    pub(super) fn write(&mut self, items: &[Item], out: &mut BytesMut) {
        let start = out.len();
        for item in items {
            let length = match &item.value {
                Some(value) => u32::try_from(value.len()).expect("a value is at most a body"),
                None => DELETED,
            };
            out.put_u32_le(u32::try_from(item.below.len()).expect("a key is short"));
            out.put_u32_le(length);
            if self.version == WITH_REVISIONS {
                out.put_u64_le(item.revision.0);
            }
            out.put_slice(item.below.as_bytes());
            out.put_slice(item.value.as_deref().unwrap_or_default());
        }
        self.sum.update(&out[start..]);
    }

    pub(super) fn end(mut self, out: &mut BytesMut) {
        self.sum.update(&[0; 8]);
        out.put_slice(&[0; 8]);
        out.put_u64_le(self.sum.digest());
    }
}

pub(super) fn damaged(what: &str) -> ApiError {
    ApiError::bad_request(format!("the body is no whole plane snapshot: {what}"))
}

/// Reads a snapshot from a request body.
pub(super) struct Reader {
    incoming: RequestBody,
    buffer: BytesMut,
    sum: Xxh3,
    version: u32,
    end: End,
}

/// How a body that could not be read to its end is to be judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It broke off: what came before is as it was sent.
    Cut,
    /// It is not what a server sends.
    Wrong,
}

impl Reader {
    pub(super) fn new(incoming: RequestBody) -> Self {
        Self {
            incoming,
            buffer: BytesMut::new(),
            sum: Xxh3::new(),
            version: PLAIN,
            end: End::Wrong,
        }
    }

    /// What is wrong with a body that could not be read.
    pub(super) fn end(&self) -> End {
        self.end
    }

    /// Reads until so many bytes are there.
    async fn need(&mut self, bytes: usize) -> Result<(), ApiError> {
        while self.buffer.len() < bytes {
            self.end = End::Cut;
            let frame = self.incoming.frame().await.ok_or_else(|| damaged("it ends early"))?;
            let frame = frame.map_err(|error| damaged("it broke off").because(error))?;
            self.end = End::Wrong;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Bytes {
        let taken = self.buffer.split_to(bytes).freeze();
        self.sum.update(&taken);
        taken
    }

    pub(super) async fn header(&mut self) -> Result<Header, ApiError> {
        let end = loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                break end;
            }
            if self.buffer.len() > MAX_HEADER {
                return Err(damaged("it has no header"));
            }
            self.need(self.buffer.len() + 1).await?;
        };
        let line = self.take(end + 1);
        let header: Header =
            serde_json::from_slice(&line).map_err(|error| damaged("its header cannot be read").because(error))?;
        if header.mica != MAGIC {
            return Err(damaged("its header is of something else"));
        }
        if !matches!(header.version, PLAIN | WITH_REVISIONS) {
            return Err(damaged(&format!(
                "it is of version {}, this server reads versions {PLAIN} and {WITH_REVISIONS}",
                header.version
            )));
        }
        self.version = header.version;
        Ok(header)
    }

    /// The next record; `None` after the last, once the checksum is right.
    pub(super) async fn item(&mut self) -> Result<Option<Item>, ApiError> {
        self.need(8).await?;
        let mut lengths = self.take(8);
        let (key_len, value_len) = (lengths.get_u32_le() as usize, lengths.get_u32_le());
        if key_len == 0 {
            let expected = self.sum.digest();
            self.need(8).await?;
            return if self.take(8).get_u64_le() == expected {
                Ok(None)
            } else {
                Err(damaged("its checksum is wrong"))
            };
        }
        let deleted = self.version == WITH_REVISIONS && value_len == DELETED;
        let value_len = if deleted { 0 } else { value_len as usize };
        if key_len > MAX_KEY || value_len > MAX_RECORD {
            return Err(damaged("a record is too large"));
        }
        let mut revision = Revision(0);
        if self.version == WITH_REVISIONS {
            self.need(8).await?;
            revision = Revision(self.take(8).get_u64_le());
        }
        self.need(key_len + value_len).await?;
        let below = String::from_utf8(self.take(key_len).to_vec()).map_err(|_| damaged("a key is no text"))?;
        let value = self.take(value_len);
        Ok(Some(Item {
            below,
            value: (!deleted).then_some(value),
            revision,
        }))
    }
}
