//! The formats that a string or number may be asked to have.
//!
//! Names that upstream does not know restrict nothing, and a format counts only with the type it is for; but for defaults, which
//! a format of any name and on any type keeps from the check of their type. What each accepts is what kube-openapi's `strfmt` accepts, oddities included: `3 days` is a duration, `192.168.001.001` an IPv4 address.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use serde_json::Value;

use super::matcher::Pattern;
use super::node::{Type, Types};
use super::{address, email};
use crate::{duration, names};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid(Option<char>),
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
    Int32,
    Int64,
    Float,
    Double,
    /// One that nobody knows, of a schema that judges defaults.
    Unknown,
}

const MAX_SHORT_NAME: usize = 63;
const MAX_LONG_NAME: usize = 253;
const MAX_HOSTNAME: usize = 255;
const MAX_HOSTNAME_LABEL: usize = 63;

/// The characters of a host name's labels, dashes apart.
static NAME_CHARACTERS: LazyLock<Pattern> = LazyLock::new(|| Pattern::new(r"^[a-zA-Z0-9\p{S}\p{L}]+$"));
static LETTERS: LazyLock<Pattern> = LazyLock::new(|| Pattern::new(r"^[a-zA-Z\p{L}]+$"));
static CREDIT_CARD: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::new(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
    )
});
static RGB: LazyLock<Pattern> = LazyLock::new(|| {
    const PART: &str = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    Pattern::new(&format!(r"^rgb\({PART},{PART},{PART}\)$"))
});
static BASE64: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::new(r"^(?:[A-Za-z0-9+\/]{4})*(?:[A-Za-z0-9+\/]{2}==|[A-Za-z0-9+\/]{3}=|[A-Za-z0-9+\/]{4})$")
});
static SSN: LazyLock<Pattern> = LazyLock::new(|| Pattern::new(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static CLOCK: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::new(r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
});
static AMOUNT: LazyLock<regex::Regex> =
    LazyLock::new(|| regex::Regex::new(r"([0-9]+)[\t\n\x0C\r ]*([A-Za-zµ]+)").expect("the expression is constant"));

/// The formats in a schema that mean nothing for their types.
pub fn unrecognized(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(schema, &mut found);
    found
}

fn collect(schema: &Value, found: &mut Vec<String>) {
    let text = |word: &str| schema.get(word).and_then(Value::as_str).unwrap_or_default();
    let types = match text("type") {
        "" | "string" => Some(Types::Any),
        "integer" => Some(Types::One(Type::Integer)),
        "number" => Some(Types::One(Type::Number)),
        _ => None,
    };
    let format = text("format");
    if !format.is_empty() && types.and_then(|types| Format::parse(format, types)).is_none() {
        found.push(format.to_owned());
    }
    for word in ["items", "additionalProperties", "not"] {
        schema.get(word).into_iter().for_each(|inner| collect(inner, found));
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        let parts = schema.get(word).and_then(Value::as_array).into_iter().flatten();
        parts.for_each(|inner| collect(inner, found));
    }
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    properties.for_each(|(_, inner)| collect(inner, found));
}

impl Format {
    /// The format of this name, where it means something for the type.
    pub(crate) fn parse(name: &str, types: Types) -> Option<Self> {
        match types {
            Types::One(Type::Integer) => match name {
                "int32" => Some(Self::Int32),
                "int64" => Some(Self::Int64),
                _ => None,
            },
            Types::One(Type::Number) => match name {
                "float" => Some(Self::Float),
                "double" => Some(Self::Double),
                _ => None,
            },
            Types::One(Type::String) | Types::Any | Types::IntOrString => Self::of_text(&name.replace('-', "")),
            Types::One(_) | Types::Unknown => None,
        }
    }

    /// The format of this name, on whatever type it stands.
    pub(crate) fn of_any(name: &str) -> Option<Self> {
        Some(match name {
            "" => return None,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "float" => Self::Float,
            "double" => Self::Double,
            name => Self::of_text(&name.replace('-', "")).unwrap_or(Self::Unknown),
        })
    }

    fn of_text(name: &str) -> Option<Self> {
        Some(match name {
            "bsonobjectid" => Self::BsonObjectId,
            "uri" => Self::Uri,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "uuid" => Self::Uuid(None),
            "uuid3" => Self::Uuid(Some('3')),
            "uuid4" => Self::Uuid(Some('4')),
            "uuid5" => Self::Uuid(Some('5')),
            "isbn" => Self::Isbn,
            "isbn10" => Self::Isbn10,
            "isbn13" => Self::Isbn13,
            "creditcard" => Self::CreditCard,
            "ssn" => Self::Ssn,
            "hexcolor" => Self::HexColor,
            "rgbcolor" => Self::RgbColor,
            "byte" => Self::Byte,
            "password" => Self::Password,
            "date" => Self::Date,
            "duration" => Self::Duration,
            "datetime" => Self::DateTime,
            "k8sshortname" => Self::ShortName,
            "k8slongname" => Self::LongName,
            _ => return None,
        })
    }

    /// Whether a text has the format.
    pub(crate) fn accepts(self, text: &str) -> bool {
        let matches = |pattern: &Pattern| pattern.matches(text) == Ok(true);
        match self {
            Self::Password | Self::Int32 | Self::Int64 | Self::Float | Self::Double | Self::Unknown => true,
            Self::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Self::Uri => address::is_request_uri(text),
            Self::Email => email::is_email(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => text.contains('.') && names::parse_ip_sloppy(text).is_some(),
            Self::Ipv6 => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => names::parse_cidr_sloppy(text).is_some(),
            Self::Mac => address::is_mac(text),
            Self::Uuid(version) => is_uuid(text, version),
            Self::Isbn => is_isbn10(text) || is_isbn13(text),
            Self::Isbn10 => is_isbn10(text),
            Self::Isbn13 => is_isbn13(text),
            Self::CreditCard => is_credit_card(text),
            Self::Ssn => text.len() == 11 && matches(&SSN),
            Self::HexColor => {
                let digits = text.strip_prefix('#').unwrap_or(text);
                matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
            }
            Self::RgbColor => matches(&RGB),
            Self::Byte => matches(&BASE64),
            Self::Date => is_date(text),
            Self::Duration => is_duration(text),
            Self::DateTime => is_date_time(text),
            Self::ShortName => text.len() <= MAX_SHORT_NAME && is_label(text),
            Self::LongName => text.len() <= MAX_LONG_NAME && text.split('.').all(is_label),
        }
    }
}

/// Upstream's expression in code, as it is too large to keep: one label with at most one dash, after its first character; or
/// several labels, of which the last is letters only.
fn is_hostname(text: &str) -> bool {
    let matches = |pattern: &Pattern, text: &str| pattern.matches(text) == Ok(true);
    let named = |text: &str| matches(&NAME_CHARACTERS, &text.replace('-', "")) && !text.starts_with('-');
    let lengths = text.len() <= MAX_HOSTNAME && text.split('.').all(|label| label.len() <= MAX_HOSTNAME_LABEL);
    let shape = match text.rsplit_once('.') {
        None => {
            let first = text.chars().next().map_or(0, char::len_utf8);
            named(text) && !text[first..].strip_prefix('-').unwrap_or(&text[first..]).contains('-')
        }
        Some((labels, last)) => {
            let label = |label: &str| !label.is_empty() && named(label) && !label.ends_with('-');
            labels.split('.').all(label) && matches(&LETTERS, last) && last.chars().count() >= 2
        }
    };
    lengths && shape
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut digits = String::with_capacity(32);
    let mut rest = text;
    for (at, length) in GROUPS.into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(group) = rest.get(..length) else { return false };
        digits.push_str(group);
        rest = &rest[length..];
    }
    if !rest.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return false;
    }
    let nibble = |at: usize| digits.as_bytes()[at].to_ascii_lowercase() as char;
    let variant = version == Some('3') || matches!(nibble(16), '8' | '9' | 'a' | 'b');
    version.is_none_or(|version| nibble(12) == version && variant)
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = without_separators(text);
    let digits: Option<Vec<u32>> = text
        .chars()
        .enumerate()
        .map(|(at, c)| if at == 9 && c == 'X' { Some(10) } else { c.to_digit(10) })
        .collect();
    digits.is_some_and(|digits| {
        let sum: u32 = digits.iter().zip(1..).map(|(digit, factor)| digit * factor).sum();
        digits.len() == 10 && sum.is_multiple_of(11)
    })
}

fn is_isbn13(text: &str) -> bool {
    let text = without_separators(text);
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let sum: u32 = digits
            .iter()
            .zip([1, 3].iter().cycle())
            .map(|(digit, factor)| digit * factor)
            .sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if CREDIT_CARD.matches(&digits) != Ok(true) {
        return false;
    }
    let luhn = |(at, byte): (usize, u8)| {
        let digit = u32::from(byte - b'0');
        match at % 2 {
            0 => digit,
            _ if digit >= 5 => digit * 2 - 9,
            _ => digit * 2,
        }
    };
    digits.bytes().rev().enumerate().map(luhn).sum::<u32>() % 10 == 0
}

fn is_date(text: &str) -> bool {
    let part = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let dashes = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    let (Some(year), Some(month), Some(day)) = (part(0..4), part(5..7), part(8..10)) else {
        return false;
    };
    let month = i8::try_from(month).unwrap_or_default();
    let day = i8::try_from(day).unwrap_or_default();
    dashes && jiff::civil::Date::new(year, month, day).is_ok()
}

fn is_date_time(text: &str) -> bool {
    if text.len() < 4 {
        return false;
    }
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (date, clock) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    is_date(date) && CLOCK.matches(clock) == Ok(true)
}

/// Go's durations, and any text that names an amount of a unit somewhere.
fn is_duration(text: &str) -> bool {
    // All spellings of a unit; whatever begins with the last counts as well.
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    if duration::parse_go(text).is_ok() {
        return true;
    }
    let mut found = false;
    for capture in AMOUNT.captures_iter(text) {
        if capture[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = capture[2].to_lowercase();
        let is_unit =
            |names: &&[&str]| names.contains(&unit.as_str()) || names.last().is_some_and(|n| unit.starts_with(n));
        found |= UNITS.iter().any(is_unit);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, yes: &[&str], no: &[&str]) {
        let format = Format::parse(name, Types::One(Type::String)).expect("a known format");
        for text in yes {
            assert!(format.accepts(text), "{name} takes {text}");
        }
        for text in no {
            assert!(!format.accepts(text), "{name} refuses {text}");
        }
    }

    #[test]
    fn formats_accept_what_upstream_accepts() {
        check(
            "date-time",
            &["2024-01-02T03:04:05.1234+02:00", "2024-01-02t03:04:05z"],
            &["2024-01-02", "x", "2024-13-02T03:04:05Z", "2024-01-02T24:00:00Z"],
        );
        check("date", &["2024-02-29"], &["2023-02-29", "2024-1-1"]);
        check("duration", &["1h5m", "3 days", "2 weeks"], &["x", "5"]);
        check(
            "email",
            &[
                "a@b.example",
                "Bob <a@b.example>",
                "a@b.c (x)",
                " a@ b.c (x(y)z) (w)",
                "\"a b\"@[::1]",
                "Bob \"the.\" . R (x) <a@b>",
                "group: a@b ;",
                "g:x <a@b> (y);(z)",
                "=?utf-8?q?=41?= <a@b>",
                "é@ü",
            ],
            &[
                "a.b",
                "@",
                "a@",
                "a b@c",
                "\"\"@b.c",
                "a.@b",
                "a@b..c",
                "a@b (x",
                "g:;",
                "g:a@b,c@d;",
                "g:h:a@b;;",
                "<a@b",
                "a@[x]",
                "=?koi8-r?q?=41?= <a@b>",
                "a@b (=?koi8-r?b?QQ==?=)",
                "a@b, c@d",
                "",
                "\"a\nb\"@c",
            ],
        );
        check("hostname", &["a.example.org", "A-1"], &["-a", "a..b", "under_score!"]);
        check("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0.256", "::1"]);
        check("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "g::1"]);
        check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]);
        check(
            "mac",
            &["01:23:45:67:89:ab", "0123.4567.89ab"],
            &["01:23", "01:23:45:67:89-ab"],
        );
        check(
            "uri",
            &[
                "https://x.example.org/a?b#c",
                "/a/b",
                "mailto:a@b",
                "http://u:p@h:80/%20",
            ],
            &["a b", "http://[::1", "", "http://a b/", "/%zz", "http://h:x/"],
        );
        check("uuid", &["A987FBC9-4BED-3078-CF07-9141BA07C9F3"], &["a987"]);
        check(
            "uuid4",
            &["57b73598-8764-4ad0-a76a-679bb6640eb1"],
            &["a987fbc9-4bed-3078-cf07-9141ba07c9f3"],
        );
        check("isbn", &["0321751043", "978-0-321-75104-1"], &["0321751044"]);
        check("isbn13", &["978-0-321-75104-1"], &["978-0-321-75104-2"]);
        check("creditcard", &["5398 2287 0787 1527"], &["5398 2287 0787 1528"]);
        check("ssn", &["111-11-1111"], &["1"]);
        check("hexcolor", &["#FFF", "#a1b2c3"], &["#ggg", "fffff"]);
        check("rgbcolor", &["rgb(1,2,255)"], &["rgb(1,2,256)"]);
        check("byte", &["aGVsbG8="], &["aGVsbG8", "***"]);
        check("password", &["anything"], &[]);
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]);
        check("k8s-short-name", &["abc-1"], &["Abc", "a.b"]);
        check("k8s-long-name", &["abc-1.x"], &["Abc", "a..b"]);
    }

    #[test]
    fn formats_count_only_with_their_type() {
        assert_eq!(Format::parse("int32", Types::One(Type::String)), None);
        assert_eq!(Format::parse("date", Types::One(Type::Integer)), None);
        assert_eq!(Format::parse("date", Types::One(Type::Array)), None);
        assert_eq!(Format::parse("no-such-format", Types::One(Type::String)), None);
    }
}
