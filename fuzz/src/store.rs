//! What stores read back: the embedded log, keys, and the header of stored objects.

use bytes::Bytes;
use mica_server::stored::Content;
use mica_store::{Key, Record, Revision};

/// Bytes of the log: a segment's header, frames and records, as they are and with their checksums made right.
pub fn log(data: &[u8]) {
    mica_store::embedded::probe(data);
    if let Some(key) = crate::text(data).and_then(Key::from_stored) {
        assert_eq!(Key::from_stored(key.as_str()).as_ref(), Some(&key));
        let _ = (
            key.plane(),
            key.resource().len(),
            key.rest().len(),
            key.namespace(),
            key.name().len(),
        );
        let _ = key.group_resource();
    }
}

/// The value of a stored object.
pub fn stored(data: &[u8]) {
    let record = Record {
        value: Bytes::copy_from_slice(data),
        revision: Revision(7),
    };
    if let Ok(Content::Object(stored)) = Content::read(&record) {
        let head = br#"{"kind":"K","apiVersion":"v1","#;
        assert!(stored.to_bytes(head).len() <= stored.len_with(head));
    }
}
