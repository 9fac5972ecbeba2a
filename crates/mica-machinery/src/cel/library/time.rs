//! Timestamps and durations: parsing, formatting, parts.

use std::cmp::Ordering;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};

use super::{EvalError, Implementation, Outcome};
use crate::cel::value::Val;
use crate::duration::parse_go;
use crate::field::quote;

/// The first second of year 1 and the last of year 9999: what a timestamp may be.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

/// A moment, with the offset that it was written with: it prints with it, and is compared without.
#[derive(Debug, Clone, Copy)]
pub struct Instant {
    pub seconds: i64,
    pub nanos: u32,
    /// Seconds east of Greenwich.
    pub offset: i32,
}

/// Why a text is no timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unparsed {
    Malformed,
    OutOfRange,
}

impl PartialEq for Instant {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Instant {}

impl PartialOrd for Instant {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Instant {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

pub fn in_range(seconds: i64) -> bool {
    (FIRST..=LAST).contains(&seconds)
}

impl Instant {
    pub fn from_unix(seconds: i64) -> Option<Self> {
        in_range(seconds).then_some(Self {
            seconds,
            nanos: 0,
            offset: 0,
        })
    }

    /// This moment moved by a duration in nanoseconds.
    pub fn plus(&self, nanos: i64) -> Option<Self> {
        let total = self.total().checked_add(i128::from(nanos))?;
        let seconds = i64::try_from(total.div_euclid(1_000_000_000))
            .ok()
            .filter(|seconds| in_range(*seconds))?;
        Some(Self {
            seconds,
            nanos: total.rem_euclid(1_000_000_000) as u32,
            offset: self.offset,
        })
    }

    /// Nanoseconds from `other` to here.
    pub fn since(&self, other: &Self) -> Option<i64> {
        i64::try_from(self.total() - other.total()).ok()
    }

    fn total(&self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }

    /// Date and time of day `east` seconds east of Greenwich.
    fn civil(&self, east: i32) -> Option<DateTime> {
        let days = (self.seconds + i64::from(east)).div_euclid(86_400);
        let rest = (self.seconds + i64::from(east)).rem_euclid(86_400);
        let epoch = jiff::civil::date(1970, 1, 1);
        let date = epoch.checked_add(jiff::Span::new().try_days(days).ok()?).ok()?;
        let at = |value: i64| value as i8;
        Some(date.at(at(rest / 3600), at(rest / 60 % 60), at(rest % 60), self.nanos as i32))
    }
}

impl fmt::Display for Instant {
    /// RFC 3339 with as many digits of the second as there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(at) = self.civil(self.offset) else {
            return Ok(());
        };
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            at.year(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        )?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let minutes = self.offset.abs() / 60;
        let sign = if self.offset < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// Go's duration syntax.
pub fn parse_duration(text: &str) -> Option<i64> {
    parse_go(text).ok()
}

/// Seconds with their fraction and an `s`.
pub fn format_duration(nanos: i64) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    // In two steps, as Go does it: there is no more exact sum.
    format!("{}s", seconds as f64 + rest as f64 / 1e9)
}

/// RFC 3339.
pub fn parse_timestamp(text: &str) -> Result<Instant, Unparsed> {
    parse_datetime(text, ZoneRule::Required).filter_range()
}

trait FilterRange {
    fn filter_range(self) -> Result<Instant, Unparsed>;
}

impl FilterRange for Option<Instant> {
    fn filter_range(self) -> Result<Instant, Unparsed> {
        let instant = self.ok_or(Unparsed::Malformed)?;
        if in_range(instant.seconds) {
            Ok(instant)
        } else {
            Err(Unparsed::OutOfRange)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ZoneRule {
    Required,
    Optional,
}

fn parse_datetime(text: &str, zone: ZoneRule) -> Option<Instant> {
    let (date, rest) = text.split_at_checked(10)?;
    let date = civil_date(date)?;
    let rest = rest.strip_prefix('T')?;
    // Of all numbers only the hour may have one digit.
    let (hour, rest) = rest.split_once(':').filter(|(hour, _)| matches!(hour.len(), 1 | 2))?;
    let (clock, mut rest) = rest.split_at_checked(5)?;
    let (minute, second) = clock.split_once(':').filter(|(minute, _)| minute.len() == 2)?;
    let (hour, minute, second) = (digits(hour, 23)?, digits(minute, 59)?, digits(second, 59)?);
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return None;
        }
        let shown = &fraction[..length.min(9)];
        nanos = shown.parse::<u32>().ok()? * 10u32.pow(9 - shown.len() as u32);
        rest = &fraction[length..];
    }
    let offset = match rest {
        "Z" => 0,
        "" if zone == ZoneRule::Optional => 0,
        _ => parse_offset(rest)?,
    };
    let days = i64::from(
        date.since((jiff::Unit::Day, jiff::civil::date(1970, 1, 1)))
            .ok()?
            .get_days(),
    );
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - i64::from(offset);
    Some(Instant { seconds, nanos, offset })
}

fn parse_offset(text: &str) -> Option<i32> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    if text.len() != 6 || text.as_bytes()[3] != b':' {
        return None;
    }
    let (hours, minutes) = (digits(text.get(1..3)?, 24)?, digits(text.get(4..6)?, 60)?);
    Some(sign * (hours * 3600 + minutes * 60) as i32)
}

fn digits(text: &str, max: i64) -> Option<i64> {
    let value = text
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()?;
    (value <= max).then_some(value)
}

fn civil_date(text: &str) -> Option<Date> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let year = digits(text.get(0..4)?, 9999)? as i16;
    let (month, day) = (digits(text.get(5..7)?, 12)? as i8, digits(text.get(8..10)?, 31)? as i8);
    Date::new(year, month, day).ok()
}

/// A string of the format `date`.
pub fn parse_date(text: &str) -> Result<Instant, String> {
    let whole = civil_date(text).and_then(|_| parse_datetime(&format!("{text}T00:00:00Z"), ZoneRule::Required));
    whole.ok_or_else(|| {
        format!("Invalid date formatted string {text}: parsing time \"{text}\" as \"2006-01-02\": cannot parse \"{text}\" as \"2006\"")
    })
}

/// A string of the format `date-time`: RFC 3339, or without a zone.
pub fn parse_openapi_datetime(text: &str) -> Result<Instant, String> {
    if text.is_empty() {
        return Ok(Instant {
            seconds: 0,
            nanos: 0,
            offset: 0,
        });
    }
    parse_datetime(text, ZoneRule::Optional).ok_or_else(|| {
        format!("Invalid date-time formatted string {text}: parsing time \"{text}\" as \"2006-01-02T15:04:05\": cannot parse \"{text}\" as \"2006\"")
    })
}

/// Units of the format `duration` beyond Go's: the last name of each is a prefix of what it matches.
const UNITS: &[(&[&str], i64)] = &[
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// A string of the format `duration`: Go's syntax, or numbers with words (`2 weeks`).
pub fn parse_openapi_duration(text: &str) -> Result<i64, String> {
    if let Some(nanos) = parse_duration(text) {
        return Ok(nanos);
    }
    let failed = || format!("Invalid duration {text}: unable to parse {text} as duration");
    let mut total = 0i64;
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let number_end = rest[start..]
            .find(|c: char| !c.is_ascii_digit())
            .map_or(rest.len(), |i| start + i);
        let factor: i64 = rest[start..number_end].parse().map_err(|_| failed())?;
        let after = rest[number_end..].trim_start_matches([' ', '\t', '\n', '\u{c}', '\r']);
        let end = after
            .find(|c: char| !c.is_ascii_alphabetic() && c != 'µ')
            .unwrap_or(after.len());
        let unit = after[..end].to_lowercase();
        for (names, scale) in UNITS {
            let last = names[names.len() - 1];
            let hits = names
                .iter()
                .filter(|name| **name == unit || (**name == last && unit.starts_with(last)))
                .count();
            for _ in 0..hits {
                found = true;
                total = total.wrapping_add(factor.wrapping_mul(*scale));
            }
        }
        rest = &after[end..];
    }
    if found { Ok(total) } else { Err(failed()) }
}

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "getFullYear" => |_, args| part(args, None, |at| i64::from(at.year())),
        "getMonth" => |_, args| part(args, None, |at| i64::from(at.month()) - 1),
        "getDayOfYear" => |_, args| part(args, None, |at| i64::from(at.day_of_year()) - 1),
        "getDayOfMonth" => |_, args| part(args, None, |at| i64::from(at.day()) - 1),
        "getDate" => |_, args| part(args, None, |at| i64::from(at.day())),
        "getDayOfWeek" => |_, args| part(args, None, |at| i64::from(at.weekday().to_sunday_zero_offset())),
        "getHours" => |_, args| part(args, Some(3_600_000_000_000), |at| i64::from(at.hour())),
        "getMinutes" => |_, args| part(args, Some(60_000_000_000), |at| i64::from(at.minute())),
        "getSeconds" => |_, args| part(args, Some(1_000_000_000), |at| i64::from(at.second())),
        "getMilliseconds" => |_, args| {
            part(args, Some(1_000_000), |at| {
                i64::from(at.subsec_nanosecond()) / 1_000_000
            })
        },
        _ => return None,
    })
}

fn part<'a>(args: &[Val<'a>], scale: Option<i64>, of: fn(DateTime) -> i64) -> Outcome<'a> {
    let east = match (args, scale) {
        ([Val::Duration(nanos)], Some(scale)) => return Ok(Val::Int(nanos / scale)),
        ([Val::Timestamp(_)], _) => 0,
        ([Val::Timestamp(instant), Val::String(zone)], _) => zone_offset(instant, zone)?,
        _ => return Err(EvalError::no_overload()),
    };
    let Val::Timestamp(instant) = &args[0] else {
        return Err(EvalError::no_overload());
    };
    let civil = instant
        .civil(east)
        .ok_or_else(|| EvalError::failed("timestamp overflow"))?;
    Ok(Val::Int(of(civil)))
}

/// Seconds east of Greenwich in `zone`, a name or `+hh:mm`.
fn zone_offset(instant: &Instant, zone: &str) -> Result<i32, EvalError> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let number = |text: &str| -> Result<i64, EvalError> {
            let invalid = || EvalError::failed(format!("strconv.Atoi: parsing {}: invalid syntax", quote(text)));
            text.parse().map_err(|_| invalid())
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let hours = hours.saturating_mul(60);
        let total = if zone.starts_with('-') {
            hours.saturating_sub(minutes)
        } else {
            hours.saturating_add(minutes)
        };
        return Ok((total.clamp(-1_000_000, 1_000_000) * 60) as i32);
    }
    if zone.is_empty() || zone == "UTC" || zone == "Local" {
        return Ok(0);
    }
    if zone.split('/').any(|part| part == "..") || zone.starts_with('/') || zone.contains('\\') {
        return Err(EvalError::failed("time: invalid location name"));
    }
    let unknown = || EvalError::failed(format!("unknown time zone {zone}"));
    let found = TimeZone::get(zone).map_err(|_| unknown())?;
    // Zones are known up to a day before the last timestamp, and are the same on that day.
    let known = instant
        .seconds
        .clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    let at = Timestamp::from_second(known).map_err(|_| unknown())?;
    Ok(Offset::seconds(found.to_offset(at)))
}
