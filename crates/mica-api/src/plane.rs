//! Identity of control planes.

use std::borrow::Borrow;
use std::fmt;

/// The stored identity of a plane: short, random, never reused. A plane recreated under an old name has another id.
///
/// Text form: 12 characters of lowercase base 32 (60 bits), or `root`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaneId([u8; 12]);

const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
/// `root` padded with NUL, which cannot occur in a random id.
const ROOT: [u8; 12] = *b"root\0\0\0\0\0\0\0\0";

impl PlaneId {
    /// The plane at path `/`.
    pub const ROOT: Self = Self(ROOT);

    /// Makes an id from 60 bits of the caller's randomness; the upper four bits are ignored.
    pub fn from_random(bits: u64) -> Self {
        let mut text = [0; 12];
        for (i, byte) in text.iter_mut().enumerate() {
            *byte = ALPHABET[(bits >> (5 * i) & 31) as usize];
        }
        Self(text)
    }

    pub fn parse(text: &str) -> Result<Self, InvalidPlaneId> {
        if text == "root" {
            return Ok(Self::ROOT);
        }
        match <[u8; 12]>::try_from(text.as_bytes()) {
            Ok(bytes) if bytes.iter().all(|b| ALPHABET.contains(b)) => Ok(Self(bytes)),
            _ => Err(InvalidPlaneId(text.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        let len = if *self == Self::ROOT { 4 } else { 12 };
        std::str::from_utf8(&self.0[..len]).expect("a plane id is ASCII")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a plane id")]
pub struct InvalidPlaneId(String);

impl fmt::Display for PlaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for PlaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name of a Plane object and of its address `/clusters/{name}/control-plane`: a DNS-1123 label of at most 63 characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PlaneName(compact_str::CompactString);

impl PlaneName {
    pub fn parse(text: &str) -> Result<Self, InvalidPlaneName> {
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let ends_well = |b: Option<&u8>| b.is_some_and(|b| alphanumeric(*b));
        let bytes = text.as_bytes();
        let good = bytes.len() <= 63
            && ends_well(bytes.first())
            && ends_well(bytes.last())
            && bytes.iter().all(|b| alphanumeric(*b) || *b == b'-');
        if good {
            Ok(Self(text.into()))
        } else {
            Err(InvalidPlaneName(text.to_owned()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for PlaneName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a plane name")]
pub struct InvalidPlaneName(String);

/// What a server says of an address (`Host`, `Project`) that another plane has.
pub fn address_taken(r#type: &str, value: &str, holder: &str) -> String {
    format!("{} {value:?}{TAKEN_BY}{holder}\"", r#type.to_ascii_lowercase())
}

/// The plane that has an address, if a message says so.
pub fn address_holder(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(TAKEN_BY)?;
    rest.split_once('"').map(|(holder, _)| holder)
}

const TAKEN_BY: &str = " is taken by plane \"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_an_address_is_read_from_what_a_server_says() {
        let said = address_taken("Host", "a.example", "p1");
        assert_eq!(said, r#"host "a.example" is taken by plane "p1""#);
        assert_eq!(address_holder(&format!("cannot: {said}; sorry")), Some("p1"));
        assert_eq!(address_holder("the object has been modified"), None);
    }

    #[test]
    fn ids_round_trip_and_root_is_apart() {
        let id = PlaneId::from_random(0x0123_4567_89ab_cdef);
        assert_eq!(PlaneId::parse(id.as_str()).unwrap(), id);
        assert_eq!(PlaneId::parse("root").unwrap().as_str(), "root");
        assert!(PlaneId::parse("root00000000").is_ok());
        assert_ne!(PlaneId::parse("root00000000").unwrap(), PlaneId::ROOT);
        for bad in ["", "short", "UPPERCASE000", "zzzzzzzzzzzz", "0123456789abc"] {
            assert!(PlaneId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "a-b", "p1", &"x".repeat(63)] {
            assert!(PlaneName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "*", &"x".repeat(64)] {
            assert!(PlaneName::parse(bad).is_err(), "{bad}");
        }
    }
}
