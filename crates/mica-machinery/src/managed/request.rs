//! Whether a request asks to forget all managers, read from its bytes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::update::Request;

/// Reads `metadata.managedFields` of a JSON body or of a patched document: an empty list asks to forget all managers.
///
/// Decoding loses this, because Go leaves empty lists out.
pub fn request_of(document: &[u8]) -> Request {
    let mut found = Request::Usual;
    // Most say nothing of it. An escape could spell the name otherwise.
    if memchr::memmem::find(document, b"managedFields").is_none() && memchr::memmem::find(document, b"\\u").is_none() {
        return found;
    }
    let seed = Path {
        names: &["metadata", "managedFields"],
        found: &mut found,
    };
    // Whatever is wrong with the document, decoding says.
    let _ = seed.deserialize(&mut serde_json::Deserializer::from_slice(document));
    found
}

struct Path<'p> {
    names: &'p [&'p str],
    found: &'p mut Request,
}

impl<'d> DeserializeSeed<'d> for Path<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'d> Visitor<'d> for Path<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'d>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match self.names.split_first() {
                // The last one of several counts.
                Some((name, names)) if key == *name => {
                    *self.found = Request::Usual;
                    map.next_value_seed(Path {
                        names,
                        found: self.found,
                    })?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'d>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut empty = true;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            empty = false;
        }
        if self.names.is_empty() && empty {
            *self.found = Request::Reset;
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}
