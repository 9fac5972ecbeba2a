//! Times as metadata and leases write them: RFC 3339 to the second (`Time`) or with six decimals (`MicroTime`).
//!
//! Reads what Go's `time.Parse` reads, with its error texts, which clients see. Go is lenient where RFC 3339 is not:
//! an hour of one digit, a comma before a fraction, offsets up to 24:60.
//! Holds a civil date in UTC rather than a `jiff::Timestamp`, whose range ends a day before 9999-12-31T23:59:59Z.

use std::fmt::Write as _;

use jiff::civil::{Date, DateTime};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Go's parse error, as text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// A moment, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(DateTime);

/// How finely a time is read and printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// `metav1.Time`.
    Second,
    /// `metav1.MicroTime`.
    Micro,
}

impl Time {
    /// Reads a time as Go would. Only [`Precision::Micro`] insists on its decimals.
    pub fn parse(text: &str, precision: Precision) -> Result<Self, ParseError> {
        Parser {
            text,
            rest: text,
            layout: precision.layout(),
        }
        .parse(precision)
    }

    /// The text of this time; fractions beyond the precision are cut.
    pub fn format(&self, precision: Precision) -> String {
        let t = &self.0;
        let mut out = String::with_capacity(27);
        let (year, month, day) = (t.year(), t.month(), t.day());
        let _ = write!(
            out,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
            t.hour(),
            t.minute(),
            t.second()
        );
        if precision == Precision::Micro {
            let _ = write!(out, ".{:06}", t.subsec_nanosecond() / 1000);
        }
        out.push('Z');
        out
    }

    /// Whether this is Go's zero time, which prints as null.
    pub fn is_zero(&self) -> bool {
        self.0 == DateTime::constant(1, 1, 1, 0, 0, 0, 0)
    }

    /// This many seconds later; the ends of the calendar stay where they are.
    #[must_use]
    pub fn plus_seconds(&self, seconds: i64) -> Self {
        Self(self.0.saturating_add(SignedDuration::from_secs(seconds)))
    }

    /// Seconds since 1970 and nanoseconds after them, as protobuf has it.
    pub fn to_unix(&self) -> (i64, i32) {
        let since = self.0.duration_since(EPOCH);
        let nanos = since.as_nanos();
        (
            nanos.div_euclid(1_000_000_000) as i64,
            nanos.rem_euclid(1_000_000_000) as i32,
        )
    }

    /// The reverse of [`to_unix`](Self::to_unix); `None` outside of the years that have four digits.
    pub fn from_unix(seconds: i64, nanos: i32) -> Option<Self> {
        let since = SignedDuration::from_secs(seconds).checked_add(SignedDuration::from_nanos(nanos.into()))?;
        let time = EPOCH.checked_add(since).ok()?;
        (time.year() >= 0).then_some(Self(time))
    }

    /// Time passed since this time.
    pub fn until(&self, now: Timestamp) -> SignedDuration {
        Time::from(now).0.duration_since(self.0)
    }
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp.to_zoned(TimeZone::UTC).datetime())
    }
}

/// What a timestamp is in an object: `metav1.Time`'s text.
pub fn now_text(now: Timestamp) -> String {
    Time::from(now).format(Precision::Second)
}

impl Precision {
    fn layout(self) -> &'static str {
        match self {
            Self::Second => LAYOUT,
            Self::Micro => MICRO_LAYOUT,
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Parser<'_> {
    fn parse(mut self, precision: Precision) -> Result<Time, ParseError> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", Digits::Two, "month", 1..=12)?;
        self.literal("-")?;
        let day = self.number("02", Digits::Two, "day", 0..=99)?;
        self.literal("T")?;
        let hour = self.number("15", Digits::OneOrTwo, "hour", 0..=23)?;
        self.literal(":")?;
        let minute = self.number("04", Digits::Two, "minute", 0..=59)?;
        self.literal(":")?;
        let second = self.number("05", Digits::Two, "second", 0..=59)?;
        let nanos = match precision {
            Precision::Second => self.optional_fraction(),
            Precision::Micro => self.micros()?,
        };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(self.message(&format!(": extra text: {}", quote(self.rest))));
        }
        let date = Date::new(year, month, day).map_err(|_| self.message(": day out of range"))?;
        let local = date.at(hour, minute, second, nanos);
        // Beyond the calendar's ends Go would go on counting; nobody can mean that.
        let utc = local.checked_sub(SignedDuration::from_secs(offset)).unwrap_or(local);
        Ok(Time(utc))
    }

    fn year(&mut self) -> Result<i16, ParseError> {
        let digits = self
            .rest
            .get(..4)
            .filter(|digits| digits.bytes().all(|c| c.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(year) => {
                self.rest = &self.rest[4..];
                Ok(year)
            }
            None => Err(self.cannot("2006", self.rest)),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), ParseError> {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.cannot(literal, self.rest)),
        }
    }

    fn number(
        &mut self,
        element: &str,
        digits: Digits,
        unit: &str,
        range: std::ops::RangeInclusive<i8>,
    ) -> Result<i8, ParseError> {
        let length = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        if length == 0 || (length == 1 && digits == Digits::Two) {
            return Err(self.cannot(element, self.rest));
        }
        let (number, rest) = self.rest.split_at(length);
        let number = number.parse().expect("two digits fit");
        self.rest = rest;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(self.message(&format!(": {unit} out of range")))
        }
    }

    fn optional_fraction(&mut self) -> i32 {
        let Some(rest) = self.rest.strip_prefix(['.', ',']) else {
            return 0;
        };
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return 0;
        }
        let (digits, rest) = rest.split_at(length);
        self.rest = rest;
        nanos(digits)
    }

    fn micros(&mut self) -> Result<i32, ParseError> {
        let digits = self.rest.strip_prefix(['.', ',']).and_then(|rest| rest.get(..6));
        match digits.filter(|digits| digits.bytes().all(|c| c.is_ascii_digit())) {
            Some(digits) => {
                self.rest = &self.rest[7..];
                Ok(nanos(digits))
            }
            None => Err(self.cannot(".000000", self.rest)),
        }
    }

    /// Seconds east of Greenwich.
    fn zone(&mut self) -> Result<i64, ParseError> {
        let whole = self.rest;
        if let Some(rest) = whole.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bad = || self.cannot("Z07:00", whole);
        let zone = whole.get(..6).ok_or_else(bad)?;
        let number = |range: std::ops::Range<usize>| {
            zone.get(range)
                .filter(|text| text.bytes().all(|c| c.is_ascii_digit()))
                .and_then(|text| text.parse().ok())
        };
        let (Some(hours), Some(minutes), b':') = (number(1..3), number(4..6), zone.as_bytes()[3]) else {
            return Err(bad());
        };
        let (hours, minutes): (i64, i64) = (hours, minutes);
        if hours > 24 {
            return Err(self.message(": time zone offset hour out of range"));
        }
        if minutes > 60 {
            return Err(self.message(": time zone offset minute out of range"));
        }
        let sign = match zone.as_bytes()[0] {
            b'+' => 1,
            b'-' => -1,
            _ => return Err(bad()),
        };
        self.rest = &whole[6..];
        Ok(sign * (hours * 60 + minutes) * 60)
    }

    fn cannot(&self, element: &str, at: &str) -> ParseError {
        let (text, layout) = (quote(self.text), self.layout);
        ParseError(format!(
            "parsing time {text} as \"{layout}\": cannot parse {} as \"{element}\"",
            quote(at)
        ))
    }

    fn message(&self, message: &str) -> ParseError {
        ParseError(format!("parsing time {}{message}", quote(self.text)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Digits {
    Two,
    OneOrTwo,
}

/// Nanoseconds of decimals; those beyond nine are cut.
fn nanos(digits: &str) -> i32 {
    let mut value = 0;
    for at in 0..9 {
        value = value * 10 + digits.as_bytes().get(at).map_or(0, |c| i32::from(c - b'0'));
    }
    value
}

/// Quotes as Go's `time` package does: everything but printable ASCII byte by byte.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            0x20..0x80 => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(texts: &[&str], precision: Precision, expected: Expect) {
        let lines: Vec<String> = texts
            .iter()
            .map(|text| match Time::parse(text, precision) {
                Ok(time) => format!("{text} = {}", time.format(precision)),
                Err(error) => error.to_string(),
            })
            .collect();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn times_are_read_as_go_reads_them() {
        check(
            &[
                "2024-02-29T01:02:03Z",
                "2024-02-29T01:02:03.123456789Z",
                "2024-02-29T01:02:03,5+02:30",
                "2024-02-29T1:02:03-07:00",
                "9999-12-31T23:59:59Z",
                "0001-01-01T00:00:00Z",
            ],
            Precision::Second,
            expect![[r#"
                2024-02-29T01:02:03Z = 2024-02-29T01:02:03Z
                2024-02-29T01:02:03.123456789Z = 2024-02-29T01:02:03Z
                2024-02-29T01:02:03,5+02:30 = 2024-02-28T22:32:03Z
                2024-02-29T1:02:03-07:00 = 2024-02-29T08:02:03Z
                9999-12-31T23:59:59Z = 9999-12-31T23:59:59Z
                0001-01-01T00:00:00Z = 0001-01-01T00:00:00Z"#]],
        );
        assert!(
            Time::parse("0001-01-01T00:00:00Z", Precision::Second)
                .unwrap()
                .is_zero()
        );
    }

    #[test]
    fn bad_times_have_gos_sentences() {
        check(
            &[
                "",
                "yesterday",
                "2024-02-30T00:00:00Z",
                "2024-13-01T00:00:00Z",
                "2024-01-01",
                "2024-01-01 00:00:00Z",
                "2024-01-01T24:00:00Z",
                "2024-01-01T00:00:00",
                "2024-01-01T00:00:00+25:00",
                "2024-01-01T00:00:00ZZ",
                "2024-01-01T00:00:0é",
            ],
            Precision::Second,
            expect![[r#"
                parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"
                parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"
                parsing time "2024-02-30T00:00:00Z": day out of range
                parsing time "2024-13-01T00:00:00Z": month out of range
                parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"
                parsing time "2024-01-01 00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T"
                parsing time "2024-01-01T24:00:00Z": hour out of range
                parsing time "2024-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"
                parsing time "2024-01-01T00:00:00+25:00": time zone offset hour out of range
                parsing time "2024-01-01T00:00:00ZZ": extra text: "Z"
                parsing time "2024-01-01T00:00:0\xc3\xa9" as "2006-01-02T15:04:05Z07:00": cannot parse "0\xc3\xa9" as "05""#]],
        );
    }

    #[test]
    fn micro_times_need_six_decimals() {
        check(
            &[
                "2024-01-01T00:00:00.123456Z",
                "2024-01-01T00:00:00Z",
                "2024-01-01T00:00:00.1234567Z",
            ],
            Precision::Micro,
            expect![[r#"
                2024-01-01T00:00:00.123456Z = 2024-01-01T00:00:00.123456Z
                parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"
                parsing time "2024-01-01T00:00:00.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#]],
        );
    }

    proptest::proptest! {
        #[test]
        fn reading_never_panics(text in "([0-9]{4}-[0-9]{2}-[0-9]{2}T)?\\PC{0,20}") {
            let _ = Time::parse(&text, Precision::Second);
            let _ = Time::parse(&text, Precision::Micro);
        }
    }
}
