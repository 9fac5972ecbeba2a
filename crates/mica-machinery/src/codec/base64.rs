//! Base64 as Go's decoder reads it: line ends are skipped, padding is wanted, and the last bits need not be zero.
//!
//! A decoder of its own, because a refusal names the byte at which Go's gives up, which shows in messages.

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;

/// Which characters stand for 62 and 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// `+` and `/`.
    Standard,
    /// `-` and `_`.
    Url,
}

impl Alphabet {
    fn value(self, byte: u8) -> Option<u8> {
        Some(match (byte, self) {
            (b'A'..=b'Z', _) => byte - b'A',
            (b'a'..=b'z', _) => byte - b'a' + 26,
            (b'0'..=b'9', _) => byte - b'0' + 52,
            (b'+', Self::Standard) | (b'-', Self::Url) => 62,
            (b'/', Self::Standard) | (b'_', Self::Url) => 63,
            _ => return None,
        })
    }
}

/// The byte of a text that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct Corrupt(pub usize);

/// Standard base64 with padding.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a text.
pub fn decode(text: &str, alphabet: Alphabet) -> Result<Vec<u8>, Corrupt> {
    let text = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut at = 0;
    while let Some((sextets, after)) = group(text, at, alphabet)? {
        let [a, b, c, d] = sextets.values;
        let bytes = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        out.extend_from_slice(&bytes[..sextets.count - 1]);
        at = after;
    }
    Ok(out)
}

/// Up to four characters' values: three or two where padding stands for the others.
struct Sextets {
    values: [u8; 4],
    count: usize,
}

/// The next four characters from `at` on, and where the ones after them start; nothing at the end.
fn group(text: &[u8], mut at: usize, alphabet: Alphabet) -> Result<Option<(Sextets, usize)>, Corrupt> {
    let mut values = [0; 4];
    let mut count = 0;
    while count < 4 {
        let Some(byte) = text.get(at) else {
            return if count == 0 { Ok(None) } else { Err(Corrupt(at - count)) };
        };
        at += 1;
        match (alphabet.value(*byte), byte) {
            (Some(value), _) => {
                values[count] = value;
                count += 1;
            }
            (None, b'\r' | b'\n') => {}
            (None, b'=') if count >= 2 => {
                let end = after_padding(text, at, count)?;
                return Ok(Some((Sextets { values, count }, end)));
            }
            (None, _) => return Err(Corrupt(at - 1)),
        }
    }
    Ok(Some((Sextets { values, count }, at)))
}

/// The end of the text after its first `=`: nothing but the second, where one is due, and line ends may follow.
fn after_padding(text: &[u8], mut at: usize, count: usize) -> Result<usize, Corrupt> {
    let skip = |mut at: usize| {
        while matches!(text.get(at), Some(b'\r' | b'\n')) {
            at += 1;
        }
        at
    };
    if count == 2 {
        at = skip(at);
        match text.get(at) {
            None => return Err(Corrupt(text.len())),
            Some(b'=') => at += 1,
            Some(_) => return Err(Corrupt(at - 1)),
        }
    }
    match skip(at) {
        end if end == text.len() => Ok(end),
        garbage => Err(Corrupt(garbage)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_refused_where_go_does() {
        let url = |text| decode(text, Alphabet::Url);
        assert_eq!(url(""), Ok(vec![]));
        assert_eq!(url("-_8="), Ok(vec![0xfb, 0xff]));
        assert_eq!(url("aG\nk="), Ok(b"hi".to_vec()));
        assert_eq!(url("aGl="), Ok(b"hi".to_vec()), "the last bits are not looked at");
        assert_eq!(url("a+8="), Err(Corrupt(1)));
        assert_eq!(url("aGkhaG/h"), Err(Corrupt(6)));
        assert_eq!(url("aGk"), Err(Corrupt(0)));
        assert_eq!(url("aGkha"), Err(Corrupt(4)));
        assert_eq!(url("aG="), Err(Corrupt(3)));
        assert_eq!(url("aG=x"), Err(Corrupt(2)));
        assert_eq!(url("aGk=x"), Err(Corrupt(4)));
        assert_eq!(url("="), Err(Corrupt(0)));
        assert_eq!(url("a\nG"), Err(Corrupt(1)));
        assert_eq!(decode("+/8=", Alphabet::Standard), Ok(vec![0xfb, 0xff]));
    }
}
