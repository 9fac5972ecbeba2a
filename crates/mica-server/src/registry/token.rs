//! Continue tokens: where a page of a list ended, in upstream's form and with upstream's words for a bad one.
//!
//! Clients may forge them. All that one can do is to begin at another place of a range that the list may read anyway.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::ApiError;

const VERSION: &str = "meta.k8s.io/v1";

/// What a token says. The fields are upstream's, but for `rem`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Token {
    v: String,
    /// The revision of the list; a negative one stands for the newest.
    pub rv: i64,
    /// The last key that was sent, with a NUL behind it.
    pub start: String,
    /// How many objects remain after the page that this token ended, so that only the first page counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rem: Option<u64>,
}

impl Token {
    pub fn new(rv: i64, start: String, rem: Option<u64>) -> Self {
        Self {
            v: VERSION.to_owned(),
            rv,
            start,
            rem,
        }
    }

    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("a token is plain JSON"))
    }

    pub fn decode(text: &str) -> Result<Self, ApiError> {
        let token = decode_base64(text)
            .and_then(|bytes| Self::read(&bytes))
            .map_err(|why| invalid(&format!(": {why}")))?;
        if token.v != VERSION {
            let what = format!(": server does not recognize this encoded version {}", token.v);
            return Err(invalid(&what));
        }
        if token.rv == 0 {
            return Err(invalid(&format!(
                ": incorrect encoded start resourceVersion (version {VERSION})"
            )));
        }
        if token.start.is_empty() {
            return Err(invalid(&format!(": encoded start key empty (version {VERSION})")));
        }
        Ok(token)
    }

    /// The key that the page ended with; empty for a place before every key.
    pub fn place(&self) -> &str {
        let start = self.start.strip_prefix('/').unwrap_or(&self.start);
        start.trim_end_matches('\0')
    }

    /// Reads the JSON of a token. Errors are Go's.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        mica_machinery::codec::decode_untyped(bytes).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(bytes);
        let mut token = Self {
            v: String::new(),
            rv: 0,
            start: String::new(),
            rem: None,
        };
        let members = match kind_of(text.trim_ascii_start()) {
            "object" => Members::read(&text)?,
            "null" => return Ok(token),
            kind => {
                return Err(format!(
                    "json: cannot unmarshal {kind} into Go value of type storage.continueToken"
                ));
            }
        };
        for (name, value) in members.0 {
            match name.to_ascii_lowercase().as_str() {
                _ if value.get() == "null" => {}
                "v" => token.v = string("v", value)?,
                "start" => token.start = string("start", value)?,
                "rv" => token.rv = integer("rv", value)?,
                "rem" => token.rem = value.get().parse().ok(),
                _ => {}
            }
        }
        Ok(token)
    }
}

/// The members of an object in their order.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'t> Members<'t> {
    fn read(text: &'t str) -> Result<Self, String> {
        let members: serde_json::Result<std::collections::BTreeMap<String, &'t RawValue>> = serde_json::from_str(text);
        let members = members.map_err(|error| error.to_string())?;
        Ok(Self(members.into_iter().collect()))
    }
}

fn string(field: &str, value: &RawValue) -> Result<String, String> {
    serde_json::from_str(value.get()).map_err(|_| mismatch(kind_of(value.get()), field, "string"))
}

fn integer(field: &str, value: &RawValue) -> Result<i64, String> {
    let text = value.get();
    text.parse().map_err(|_| match kind_of(text) {
        "number" => mismatch(&format!("number {text}"), field, "int64"),
        kind => mismatch(kind, field, "int64"),
    })
}

fn mismatch(found: &str, field: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {found} into Go struct field continueToken.{field} of type {wanted}")
}

/// What Go calls a JSON value that begins so.
fn kind_of(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "bool",
        Some(b'n') => "null",
        _ => "number",
    }
}

/// Base64 as Go's `RawURLEncoding` reads it: no padding, line ends skipped, bits that are left over ignored.
fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    let illegal = |at: usize| format!("illegal base64 data at input byte {at}");
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count, mut quantum) = (0_u32, 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            b'\r' | b'\n' => continue,
            _ => return Err(illegal(at)),
        };
        if count == 0 {
            quantum = at;
        }
        bits = bits << 6 | u32::from(value);
        count += 1;
        if count == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, count) = (0, 0);
        }
    }
    match count {
        1 => return Err(illegal(quantum)),
        2 => out.push((bits >> 4) as u8),
        3 => out.extend_from_slice(&((bits >> 2) as u16).to_be_bytes()),
        _ => {}
    }
    Ok(out)
}

/// Whether a place is written as keys are: with no step that is empty or leads elsewhere.
pub(super) fn is_clean(place: &str) -> bool {
    place
        .split('/')
        .all(|part| !part.is_empty() && part != "." && part != "..")
}

/// The refusal of a token whose start is no place in the list.
pub(super) fn invalid_start(start: &str) -> ApiError {
    invalid(&format!(": {start}"))
}

fn invalid(what: &str) -> ApiError {
    ApiError::bad_request(format!("invalid continue token: continue key is not valid{what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        let Err(error) = Token::decode(&URL_SAFE_NO_PAD.encode(json)) else {
            panic!("{json} is no token")
        };
        let message = error.message().to_owned();
        let rest = message.strip_prefix("invalid continue token: continue key is not valid: ");
        rest.expect("upstream's words").to_owned()
    }

    #[test]
    fn tokens_round_trip() {
        let token = Token::new(12, "ns/a\0".to_owned(), Some(3));
        assert_eq!(Token::decode(&token.encode()).unwrap(), token);
        assert_eq!(token.place(), "ns/a");
    }

    #[test]
    fn forged_tokens_are_read_as_upstream_reads_them() {
        for (json, expected) in [
            (
                r#"{"v":1}"#,
                "json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (r#"{}"#, "server does not recognize this encoded version "),
            ("null", "server does not recognize this encoded version "),
            (
                "[]",
                "json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                r#"{"v":"v0","rv":1}"#,
                "server does not recognize this encoded version v0",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":1}"#,
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":1.5}"#,
                "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":99999999999999999999}"#,
                "json: cannot unmarshal number 99999999999999999999 into Go struct field continueToken.rv of type int64",
            ),
        ] {
            assert_eq!(refusal(json), expected, "{json}");
        }
        for (json, place) in [
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/x"}"#, "x"),
            (r#"{"v":"meta.k8s.io/v1","rv":-5,"start":"a/b/c"}"#, "a/b/c"),
            (r#"{"V":"meta.k8s.io/v1","RV":1,"start":"\u0000"}"#, ""),
        ] {
            let token = Token::decode(&URL_SAFE_NO_PAD.encode(json)).unwrap();
            assert_eq!(token.place(), place, "{json}");
        }
    }

    #[test]
    fn base64_is_read_as_go_reads_it() {
        for (text, at) in [("!!!", 0), ("a", 0), ("=", 0), ("abcd=", 4), ("abcda", 4), ("\0", 0)] {
            assert_eq!(
                decode_base64(text),
                Err(format!("illegal base64 data at input byte {at}")),
                "{text:?}"
            );
        }
        assert_eq!(decode_base64("aGk"), Ok(b"hi".to_vec()));
        assert_eq!(decode_base64("aG\nl_-w").map(|bytes| bytes.len()), Ok(4));
        assert_eq!(decode_base64("aR"), Ok(b"i".to_vec()));
    }
}
