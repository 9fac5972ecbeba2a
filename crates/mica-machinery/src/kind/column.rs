//! Columns and cells that many kinds share.
//!
//! Descriptions are what upstream serves in `columnDefinitions`; clients show them in `kubectl explain`-like views.

use serde_json::{Value, json};

use super::Column;
use crate::object;

/// What a time that is not set prints as.
const UNKNOWN: &str = "<unknown>";

pub const NAME: Column = Column {
    name: "Name",
    r#type: "string",
    format: "name",
    description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    priority: 0,
};

const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

pub const AGE: Column = text("Age", CREATED);

pub const CREATED_AT: Column = Column { r#type: "date", ..text("Created At", CREATED) };

/// The columns of kinds that have none of their own.
pub const DEFAULT: &[Column] = &[NAME, CREATED_AT];

/// A column of text that is always shown.
pub const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, r#type: "string", format: "", description, priority: 0 }
}

/// A column of whole numbers that is always shown.
pub const fn integer(name: &'static str, description: &'static str) -> Column {
    Column { r#type: "integer", ..text(name, description) }
}

/// The same column, shown only when a client asks for wide output.
pub const fn wide(column: Column) -> Column {
    Column { priority: 1, ..column }
}

/// The cells of [`DEFAULT`].
pub fn default_cells(object: &Value) -> Vec<Value> {
    let created = match object::string(object, &["metadata", "creationTimestamp"]) {
        "" => "0001-01-01T00:00:00Z",
        created => created,
    };
    vec![object::name(object).into(), created.into()]
}

/// How long ago the object was created.
pub fn age(object: &Value, now: jiff::Timestamp) -> Value {
    json!(since(object::string(object, &["metadata", "creationTimestamp"]), now))
}

/// How long ago a time was, in short.
pub fn since(time: &str, now: jiff::Timestamp) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(time) => human_duration(now.duration_since(time)),
        Err(_) => UNKNOWN.to_owned(),
    }
}

/// Two or three digits of a duration: the coarser, the longer it is.
pub fn human_duration(duration: jiff::SignedDuration) -> String {
    let seconds = duration.as_secs();
    // A clock that lags by up to a second still prints as "just now".
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    if seconds < 60 * 2 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if minutes < 60 * 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 24 * 8 {
        two(hours / 24, "d", hours % 24, "h")
    } else if hours < 24 * 365 * 2 {
        format!("{}d", hours / 24)
    } else if hours < 24 * 365 * 8 {
        two(hours / 24 / 365, "y", hours / 24 % 365, "d")
    } else {
        format!("{}y", hours / 24 / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_get_coarser_with_time() {
        let cases = [
            (0, "0s"),
            (-1, "0s"),
            (-2, "<invalid>"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600 + 60, "9h"),
            (49 * 3600, "2d1h"),
            (400 * 86_400, "400d"),
            (1000 * 86_400, "2y270d"),
            (4000 * 86_400, "10y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human_duration(jiff::SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn a_time_that_is_not_set_is_unknown() {
        assert_eq!(since("", jiff::Timestamp::UNIX_EPOCH), "<unknown>");
        assert_eq!(since("1969-12-31T23:58:00Z", jiff::Timestamp::UNIX_EPOCH), "2m");
    }
}
