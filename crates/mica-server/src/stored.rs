//! The bytes of a stored object.
//!
//! A value is a 16-byte header and the object's JSON as clients get it, without kind, apiVersion and resourceVersion. The
//! first two are the same for all objects of a resource (custom objects keep them: they may be of an older version) and the
//! last is the store's revision, known only once the write is done: reads put them in. No read of a current object parses it.
//!
//! ```text
//! byte 0      format, 1
//! byte 1      flags: 1 = a mark that hides an object of the base layer; no JSON follows
//!             2 = the object is as another base layer than the plane's has it; that layer's id follows
//!             4 = never stored: the value was hidden otherwise than it would be now, so an update is to rewrite it
//!             8 = the plane moved here with it: the revision that it had at home follows the header (8 bytes), and is its
//!             resourceVersion in place of the store's. Wherever 16 bytes are spoken of it is 24 then
//! bytes 4-7   offset in the JSON of the hole for `,"resourceVersion":"…"`: right after metadata's uid, or right before it in
//!             custom objects, whose fields are in the order of their names
//! bytes 8-15  hash of the normaliser (schema and defaults) that the JSON went through; another hash takes the parse path
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use mica_store::{Record, Revision};

use crate::error::ApiError;

const FORMAT: u8 = 1;
const FLAG_HIDDEN: u8 = 1;
const FLAG_BASED: u8 = 2;
const FLAG_STALE: u8 = 4;
const FLAG_KEPT: u8 = 8;
/// The format of what stands for a value that cannot be opened; never stored.
const UNREADABLE: u8 = 0xff;
const HEADER: usize = 16;
/// The revision that a moved value keeps, behind the header.
const KEPT: usize = 8;

/// An object as it was read, still encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    json: Bytes,
    hole: usize,
    pub normaliser: u64,
    /// What clients see as resourceVersion.
    pub revision: Revision,
    /// The store's own revision of the record: another only while the object is as it came with its plane.
    pub own: Revision,
    stale: bool,
}

/// What a record of the store means to the plane that holds it.
#[derive(Clone, Debug)]
pub enum Content {
    Object(Stored),
    /// The plane deleted an object that its base layer has.
    Hidden,
    /// What the base layer of this id has here, if anything: the plane has moved on from the layer it was born with.
    Based(String),
}

impl Content {
    pub fn read(record: &Record) -> Result<Self, ApiError> {
        let damaged = |what: &str| ApiError::internal("stored data is damaged").because(what.to_owned());
        let value = &record.value;
        if let Some((&UNREADABLE, why)) = value.split_first() {
            return Err(ApiError::internal(&String::from_utf8_lossy(why)));
        }
        if value.len() < HEADER || value[0] != FORMAT {
            return Err(damaged("a stored value has no header of a known format"));
        }
        let Some((revision, header)) = revision_of(value, record.revision) else {
            return Err(damaged("a stored value is shorter than its header"));
        };
        if value[1] & FLAG_HIDDEN != 0 {
            return Ok(Self::Hidden);
        }
        if value[1] & FLAG_BASED != 0 {
            let id = std::str::from_utf8(&value[header..]).map_err(|_| damaged("the id of a base layer is no text"))?;
            return Ok(Self::Based(id.to_owned()));
        }
        let hole = u32::from_le_bytes(value[4..8].try_into().expect("four bytes")) as usize;
        let normaliser = u64::from_le_bytes(value[8..16].try_into().expect("eight bytes"));
        let json = value.slice(header..);
        if hole == 0 || hole >= json.len() {
            return Err(damaged("a stored value's hole lies outside it"));
        }
        Ok(Self::Object(Stored {
            json,
            hole,
            normaliser,
            revision,
            own: record.revision,
            stale: value[1] & FLAG_STALE != 0,
        }))
    }

    /// The object that the record itself holds.
    pub fn object(self) -> Option<Stored> {
        match self {
            Self::Object(stored) => Some(stored),
            Self::Hidden | Self::Based(_) => None,
        }
    }
}

/// What stands for a value that cannot be opened: whoever reads it is told why.
pub fn unreadable(why: &str) -> Bytes {
    [&[UNREADABLE], why.as_bytes()].concat().into()
}

pub fn is_unreadable(value: &[u8]) -> bool {
    value.first() == Some(&UNREADABLE)
}

/// The value, marked as one that an update is to rewrite.
pub fn stale(value: &Bytes) -> Bytes {
    with_flags(value, |flags| flags | FLAG_STALE)
}

/// The value as it is stored.
pub fn without_stale(value: Bytes) -> Bytes {
    match value.get(1) {
        Some(flags) if value[0] == FORMAT && flags & FLAG_STALE != 0 => with_flags(&value, |flags| flags & !FLAG_STALE),
        _ => value,
    }
}

/// The revision that a value is shown with, if the record's own is `own`, and where its content begins.
fn revision_of(value: &[u8], own: Revision) -> Option<(Revision, usize)> {
    if value.get(1)? & FLAG_KEPT == 0 {
        return Some((own, HEADER));
    }
    let kept = value.get(HEADER..HEADER + KEPT)?;
    let kept = u64::from_le_bytes(kept.try_into().expect("eight bytes"));
    Some((Revision(kept), HEADER + KEPT))
}

/// The revision that a record is shown with: the store's, or the one that it kept when its plane moved here.
pub fn shown_revision(record: &Record) -> Revision {
    match record.value.first() {
        Some(&FORMAT) => revision_of(&record.value, record.revision).map_or(record.revision, |(shown, _)| shown),
        _ => record.revision,
    }
}

/// The value, to be shown with this revision wherever it is stored. What is no stored value stays as it is.
pub fn keep(value: &Bytes, revision: Revision) -> Bytes {
    let plain = without_kept(value.clone());
    if plain.len() < HEADER || plain[0] != FORMAT {
        return plain;
    }
    let mut kept = BytesMut::with_capacity(plain.len() + KEPT);
    kept.put_slice(&plain[..HEADER]);
    kept[1] |= FLAG_KEPT;
    kept.put_u64_le(revision.0);
    kept.put_slice(&plain[HEADER..]);
    kept.freeze()
}

/// The value without a revision of its own: it is shown with the store's.
pub fn without_kept(value: Bytes) -> Bytes {
    let keeps = value.first() == Some(&FORMAT) && value.get(1).is_some_and(|flags| flags & FLAG_KEPT != 0);
    if !keeps || value.len() < HEADER + KEPT {
        return value;
    }
    let mut plain = BytesMut::with_capacity(value.len() - KEPT);
    plain.put_slice(&value[..HEADER]);
    plain[1] &= !FLAG_KEPT;
    plain.put_slice(&value[HEADER + KEPT..]);
    plain.freeze()
}

fn with_flags(value: &Bytes, change: impl Fn(u8) -> u8) -> Bytes {
    let mut value = BytesMut::from(&value[..]);
    if let Some(flags) = value.get_mut(1) {
        *flags = change(*flags);
    }
    value.freeze()
}

/// The mark that hides a base object.
pub fn hidden() -> Bytes {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (FORMAT, FLAG_HIDDEN);
    Bytes::copy_from_slice(&header)
}

/// The mark that an object is as the base layer of this id has it.
pub fn based(layer: &str) -> Bytes {
    let mut value = BytesMut::from(&[0; HEADER][..]);
    (value[0], value[1]) = (FORMAT, FLAG_BASED);
    value.put_slice(layer.as_bytes());
    value.freeze()
}

/// The stored form of JSON that has no kind, apiVersion and resourceVersion and whose metadata has this uid.
pub fn pack(json: &[u8], uid: &str, normaliser: u64) -> Bytes {
    pack_at(json, find_hole(json, uid), normaliser)
}

/// The stored form of JSON whose resourceVersion goes where `hole` says.
pub fn pack_at(json: &[u8], hole: usize, normaliser: u64) -> Bytes {
    let mut value = BytesMut::with_capacity(HEADER + json.len());
    value.put_slice(&[FORMAT, 0, 0, 0]);
    value.put_u32_le(u32::try_from(hole).expect("a body is at most 3 MiB"));
    value.put_u64_le(normaliser);
    value.put_slice(json);
    value.freeze()
}

/// Right after `"uid":"…"`. Only names, which hold no quotes, precede the uid in encoded metadata.
fn find_hole(json: &[u8], uid: &str) -> usize {
    let needle = format!("\"uid\":\"{uid}\"");
    memchr::memmem::find(json, needle.as_bytes()).expect("stored metadata has its uid") + needle.len()
}

impl Stored {
    /// The same object, read at another revision: what a DELETED event carries.
    #[must_use]
    pub fn at(mut self, revision: Revision) -> Self {
        (self.revision, self.own) = (revision, revision);
        self
    }

    /// The same object with the store's own revision, which is in the order of everybody's changes.
    #[must_use]
    pub fn in_store_order(self) -> Self {
        let own = self.own;
        self.at(own)
    }

    /// Whether a client that names this version means the object as it is: by what its plane shows, or by what is shown
    /// over all planes. The two are never mistaken: a record's own revision is greater than any it had before.
    pub fn is_version(&self, revision: Revision) -> bool {
        revision == self.revision || revision == self.own
    }

    /// The bytes that it takes in the store, its key aside.
    pub fn stored_len(&self) -> usize {
        HEADER + self.json.len()
    }

    /// Whether an update is to rewrite the object even if it changes nothing.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// The JSON without kind, apiVersion and resourceVersion.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// Where in the JSON the resourceVersion goes: inside metadata, right after its uid.
    pub fn hole(&self) -> usize {
        self.hole
    }

    /// Bytes that [`Stored::write`] will add with this head. Exact, so that what is written needs no second allocation to be
    /// shared.
    pub fn len_with(&self, head: &[u8]) -> usize {
        let version = match self.revision.0.checked_ilog10() {
            Some(more) => r#","resourceVersion":"""#.len() + 1 + more as usize,
            None => 0,
        };
        head.len() + self.json.len() - 1 + version
    }

    /// Writes the whole object. `head` is `{"kind":"…","apiVersion":"…",`, or `{` for a list's items.
    pub fn write(&self, head: &[u8], out: &mut impl BufMut) {
        let mut digits = itoa::Buffer::new();
        out.put_slice(head);
        out.put_slice(&self.json[1..self.hole]);
        // What was only tried has no revision.
        if self.revision != Revision(0) {
            out.put_slice(br#","resourceVersion":""#);
            out.put_slice(digits.format(self.revision.0).as_bytes());
            out.put_slice(b"\"");
        }
        out.put_slice(&self.json[self.hole..]);
    }

    /// The whole object as one buffer.
    pub fn to_bytes(&self, head: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(self.len_with(head));
        self.write(head, &mut out);
        debug_assert_eq!(out.len(), self.len_with(head), "the length is exact");
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_puts_in_what_the_write_left_out() {
        let value = pack(
            br#"{"metadata":{"name":"a","uid":"u-1","labels":{"x":"y"}},"data":{}}"#,
            "u-1",
            7,
        );
        let record = Record {
            value,
            revision: Revision(12),
        };
        let Content::Object(stored) = Content::read(&record).unwrap() else {
            panic!("an object")
        };
        assert_eq!(stored.normaliser, 7);
        assert_eq!(
            stored.to_bytes(br#"{"kind":"K","apiVersion":"v1","#),
            r#"{"kind":"K","apiVersion":"v1","metadata":{"name":"a","uid":"u-1","resourceVersion":"12","labels":{"x":"y"}},"data":{}}"#
        );
        assert_eq!(
            stored.at(Revision(13)).to_bytes(b"{"),
            r#"{"metadata":{"name":"a","uid":"u-1","resourceVersion":"13","labels":{"x":"y"}},"data":{}}"#
        );
    }

    #[test]
    fn what_moved_is_shown_with_the_revision_that_it_kept() {
        let packed = pack(br#"{"metadata":{"name":"a","uid":"u-1"}}"#, "u-1", 7);
        let kept = keep(&keep(&packed, Revision(3)), Revision(12));
        assert_eq!(without_kept(kept.clone()), packed);
        let record = |value: &Bytes| Record {
            value: value.clone(),
            revision: Revision(90),
        };
        assert_eq!(
            (shown_revision(&record(&kept)), shown_revision(&record(&packed))),
            (Revision(12), Revision(90))
        );
        let Content::Object(stored) = Content::read(&record(&kept)).unwrap() else {
            panic!("an object")
        };
        assert!(stored.is_version(Revision(12)) && stored.is_version(Revision(90)) && !stored.is_version(Revision(3)));
        assert_eq!(
            stored.to_bytes(b"{"),
            r#"{"metadata":{"name":"a","uid":"u-1","resourceVersion":"12"}}"#
        );
        assert_eq!(stored.in_store_order().revision, Revision(90));
        let marks = [keep(&hidden(), Revision(5)), keep(&based("0a1b"), Revision(5))];
        assert!(matches!(Content::read(&record(&marks[0])), Ok(Content::Hidden)));
        assert!(matches!(Content::read(&record(&marks[1])), Ok(Content::Based(id)) if id == "0a1b"));
        for cut in 0..kept.len() {
            let _ = Content::read(&record(&kept.slice(..cut)));
            let _ = shown_revision(&record(&kept.slice(..cut)));
        }
    }

    #[test]
    fn damage_is_an_error_and_marks_are_told_apart() {
        for value in [
            &b""[..],
            b"short",
            &[9; 20],
            &[1, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'],
        ] {
            let record = Record {
                value: Bytes::copy_from_slice(value),
                revision: Revision(1),
            };
            assert!(Content::read(&record).is_err());
        }
        let record = Record {
            value: hidden(),
            revision: Revision(1),
        };
        assert!(matches!(Content::read(&record), Ok(Content::Hidden)));
        let record = Record {
            value: based("0a1b"),
            revision: Revision(1),
        };
        assert!(matches!(Content::read(&record), Ok(Content::Based(id)) if id == "0a1b"));
    }
}
