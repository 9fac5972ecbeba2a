//! JSON in which YAML sees nothing else: most of what is applied, and five times as quick to read as such.
//!
//! Only what cannot mean two things is taken: printable ASCII on one line, no escapes, keys that are short enough for
//! YAML, numbers that both print alike. Everything else, mistakes included, is left to the YAML parser and its texts.

use serde_json::Value;

use crate::codec;

/// YAML gives up looking for the colon of a key after 1,024 characters.
const MAX_KEY: usize = 512;
/// More digits may not fit an int64, or not be exact in a float64.
const MAX_DIGITS: usize = 15;

/// The object that a document is, if it is JSON and YAML reads it as the same.
pub fn plain_object(document: &[u8]) -> Option<Value> {
    let line = document.strip_suffix(b"\n").unwrap_or(document);
    if !line.starts_with(b"{") || !is_plain(line) {
        return None;
    }
    let decoded = codec::decode_object(line).ok()?;
    // Duplicates are told in YAML's words.
    decoded.strict.is_empty().then_some(decoded.value)
}

/// Whether every token means in YAML what it means in JSON. Whether they are in JSON's order is for its decoder to say.
fn is_plain(line: &[u8]) -> bool {
    let mut rest = line;
    loop {
        rest = match rest {
            [] => return true,
            [b'"', text @ ..] => match after_string(text) {
                Some(rest) => rest,
                None => return false,
            },
            [b'-' | b'0'..=b'9', ..] => match after_number(rest) {
                Some(rest) => rest,
                None => return false,
            },
            [b'{' | b'}' | b'[' | b']' | b',' | b' ' | b'a'..=b'z', rest @ ..] => rest,
            _ => return false,
        };
    }
}

/// What follows a string, and its colon if it is a key. `None`: it needs a closer look.
fn after_string(text: &[u8]) -> Option<&[u8]> {
    let end = text
        .iter()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20 | 0x7f..))?;
    match &text[end..] {
        [b'"', b':', rest @ ..] => (end <= MAX_KEY).then_some(rest),
        // A space before the colon would be allowed too, but nobody writes that.
        [b'"', b' ', ..] | [b'"'] => None,
        [b'"', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// What follows a number: a whole one, or one with a fraction that says something.
fn after_number(text: &[u8]) -> Option<&[u8]> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unsigned = match text {
        // YAML knows no negative zero.
        [b'-', b'1'..=b'9', ..] => &text[1..],
        [b'0'..=b'9', ..] => text,
        _ => return None,
    };
    let whole = digits(unsigned);
    if whole > MAX_DIGITS || (whole > 1 && unsigned[0] == b'0') {
        return None;
    }
    let rest = &unsigned[whole..];
    let rest = match rest {
        [b'.', fraction @ ..] => {
            let length = digits(fraction);
            // YAML makes `1.0` a whole number.
            if length == 0 || whole + length > MAX_DIGITS || fraction[length - 1] == b'0' {
                return None;
            }
            &fraction[length..]
        }
        rest => rest,
    };
    // Anything but an end would make it another word in YAML: `1e3`, `1_000`, `1:30`.
    matches!(rest, [b',' | b'}' | b']' | b' ', ..]).then_some(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::yaml::to_json;

    /// What the YAML parser makes of it.
    fn slowly(document: &[u8]) -> Option<Value> {
        let converted = to_json(document).ok().filter(|converted| converted.strict.is_none())?;
        codec::decode_object(&converted.json).ok().map(|decoded| decoded.value)
    }

    #[test]
    fn what_clients_send_is_read_without_yaml() {
        let document =
            r#"{"apiVersion":"v1", "data":{"a b":"x: {y} #z","":""},"n":[0,-12,0.75,10.5,true,false,null,[],{}]}"#;
        let expected = json!({"apiVersion": "v1", "data": {"a b": "x: {y} #z", "": ""},
            "n": [0, -12, 0.75, 10.5, true, false, null, [], {}]});
        assert_eq!(plain_object(document.as_bytes()).as_ref(), Some(&expected));
        assert_eq!(plain_object(format!("{document}\n").as_bytes()), Some(expected.clone()));
        assert_eq!(slowly(document.as_bytes()), Some(expected));
    }

    #[test]
    fn what_yaml_may_read_otherwise_is_left_to_it() {
        let long = format!(r#"{{"{}":1}}"#, "k".repeat(MAX_KEY + 1));
        for document in [
            r#"{"a":1.0}"#,
            r#"{"a":1e3}"#,
            r#"{"a":-0}"#,
            r#"{"a":010}"#,
            r#"{"a":1:30}"#,
            r#"{"a":9223372036854775808}"#,
            r#"{"a":"x\ny"}"#,
            r#"{"a":"\u0041"}"#,
            "{\"a\":\"\u{e9}\"}",
            "{\"a\":\t1}",
            "{\"a\":\n1}",
            r#"{"a" :1}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1}{"#,
            r#"{"a":yes}"#,
            r#"{"a":1,}"#,
            r#"{"a"}"#,
            "{a: 1}",
            "a: 1",
            "[1]",
            "null",
            "",
            &long,
        ] {
            assert_eq!(plain_object(document.as_bytes()), None, "{document}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            any::<i32>().prop_map(Value::from),
            (-1000..1000i32, 0..1000u32).prop_map(|(whole, part)| json!(f64::from(whole) + f64::from(part) / 1000.0)),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            number,
            "[ -~]{0,12}".prop_map(Value::from),
            "(yes|no|on|null|~|<<|=|0x1f|1_000|2001-01-01|[:,#&*!|>'%@?-]{1,3})".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[ -~]{0,8}", inner, 0..5).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn both_ways_read_the_same(value in value(), spaced in any::<bool>()) {
            let value = json!({"k": value});
            let text = if spaced { value.to_string().replace(',', ", ") } else { value.to_string() };
            if let Some(read) = plain_object(text.as_bytes()) {
                prop_assert_eq!(Some(read), slowly(text.as_bytes()), "{}", text);
            }
        }
    }
}
