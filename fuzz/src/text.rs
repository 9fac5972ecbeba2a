//! Short texts: selectors, quantities, times, durations.

use mica_machinery::quantity::Quantity;
use mica_machinery::select::{FieldSelector, LabelSelector, RawMeta};
use mica_machinery::time::{Precision, Time};
use mica_machinery::{duration as durations, names};

use crate::text;

/// A label selector; a second part is the JSON of an object to try it on.
pub fn label_selector(data: &[u8]) {
    let parts = crate::parts(data);
    let Some(source) = text(parts[0]) else { return };
    let object = parts
        .get(1)
        .copied()
        .unwrap_or(br#"{"metadata":{"labels":{"a":"b","n":"1"}}}"#);
    let Ok(selector) = LabelSelector::parse(source) else {
        return;
    };
    let printed = selector.to_string();
    let again = LabelSelector::parse(&printed).expect("the canonical form is a selector");
    assert_eq!(again.to_string(), printed);
    let Ok(meta) = RawMeta::parse(object) else { return };
    let matches = selector.matches(&meta);
    assert_eq!(matches, again.matches(&meta), "{printed}");
    if let Some(value) = crate::json(object) {
        // A key that is there twice has another value in each reading.
        let labels = &value["metadata"]["labels"];
        let plain = labels
            .as_object()
            .is_none_or(|labels| labels.len() == meta.labels.len());
        assert!(
            !plain || matches == selector.matches_object(&value),
            "{printed} on {value}"
        );
    }
}

/// A field selector.
pub fn field_selector(data: &[u8]) {
    let Some(source) = text(data) else { return };
    let Ok(selector) = FieldSelector::parse(source) else {
        return;
    };
    let printed = selector.to_string();
    let again = FieldSelector::parse(&printed).expect("what was printed can be read");
    // Terms are sorted by how they are written, `==` or `=`, so that their order may change once.
    let sorted = |selector: &FieldSelector| {
        let mut terms: Vec<String> = selector.terms().iter().map(|term| format!("{term:?}")).collect();
        terms.sort_unstable();
        terms
    };
    assert_eq!(sorted(&again), sorted(&selector));
    let _ = selector.matches(str::to_owned);
}

/// Two quantities.
pub fn quantity(data: &[u8]) {
    let parts = crate::parts(data);
    let parse = |part: Option<&&[u8]>| {
        part.and_then(|part| text(part))
            .and_then(|part| Quantity::parse(part).ok())
    };
    let Some(one) = parse(parts.first()) else { return };
    let printed = one.to_string();
    assert!(printed.len() <= data.len() + 64, "{printed}");
    if let Ok(again) = Quantity::parse(&printed) {
        assert_eq!(again.to_string(), printed, "printing is stable");
    }
    let _ = (
        one.value(),
        one.milli_value(),
        one.as_i64(),
        one.as_f64(),
        one.scaled_value(-9),
        one.scaled_value(18),
    );
    assert_eq!(one.negated().negated(), one);
    let Some(other) = parse(parts.get(1)) else { return };
    assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
    assert_eq!(one.plus(&other), other.plus(&one));
    let _ = one.minus(&other).to_string();
}

/// A time, and a number of seconds.
pub fn time(data: &[u8]) {
    if let Some(source) = text(data) {
        for precision in [Precision::Second, Precision::Micro] {
            let Ok(time) = Time::parse(source, precision) else {
                continue;
            };
            let printed = time.format(precision);
            let again = Time::parse(&printed, precision).expect("what was printed can be read");
            assert_eq!(again.format(precision), printed);
            let (seconds, nanos) = time.to_unix();
            assert_eq!(
                Time::from_unix(seconds, nanos).expect("a time").to_unix(),
                (seconds, nanos)
            );
            let _ = (
                time.is_zero(),
                time.plus_seconds(i64::MAX),
                time.plus_seconds(i64::MIN),
                time.until(NOW),
            );
        }
        let _ = durations::age(source, NOW);
    }
    let mut number = [0; 12];
    let length = data.len().min(12);
    number[..length].copy_from_slice(&data[..length]);
    let seconds = i64::from_le_bytes(number[..8].try_into().expect("eight bytes"));
    let nanos = i32::from_le_bytes(number[8..].try_into().expect("four bytes"));
    if let Some(time) = Time::from_unix(seconds, nanos) {
        let printed = time.format(Precision::Micro);
        Time::parse(&printed, Precision::Micro).expect("what was printed can be read");
    }
}

const NOW: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

/// A duration as Go writes it, and names of all sorts.
pub fn duration(data: &[u8]) {
    let Some(source) = text(data) else { return };
    if let Ok(nanos) = durations::parse_go(source) {
        let printed = durations::format_go(nanos);
        assert_eq!(durations::parse_go(&printed), Ok(nanos), "{printed}");
        let duration = jiff::SignedDuration::from_nanos(nanos);
        let _ = (durations::human(duration), durations::short_human(duration));
    }
    let _ = mica_server::http::parse_go_duration(source);
    let _ = (
        names::percent(source),
        names::config_map_key(source),
        names::port_name(source),
    );
    let _ = (names::path_segment_name(source), names::http_header_name(source));
}
