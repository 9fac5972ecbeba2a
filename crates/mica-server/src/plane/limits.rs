//! What bounds a plane: numbers that its Plane object or its class states.

use mica_machinery::field::{Error, ErrorList, Path};
use mica_machinery::object;
use mica_machinery::quantity::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bounds on what a plane holds and does. `None`: nothing was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watches: Option<u64>,
}

/// The fields that are plain numbers.
const COUNTS: [&str; 4] = ["objects", "requestsPerSecond", "requestsInFlight", "watches"];
const STORED_BYTES: &str = "storedBytes";

impl Limits {
    /// The limits in an object that is valid.
    pub fn of(limits: &Value) -> Self {
        let count = |field: &str| object::int(limits, &[field]).and_then(|count| u64::try_from(count).ok());
        let [objects, requests_per_second, requests_in_flight, watches] = COUNTS.map(count);
        Self {
            objects,
            stored_bytes: Quantity::parse(object::string(limits, &[STORED_BYTES]))
                .ok()
                .and_then(|bytes| u64::try_from(bytes.value()).ok()),
            requests_per_second,
            requests_in_flight,
            watches,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and the others where these say nothing.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            objects: self.objects.or(others.objects),
            stored_bytes: self.stored_bytes.or(others.stored_bytes),
            requests_per_second: self.requests_per_second.or(others.requests_per_second),
            requests_in_flight: self.requests_in_flight.or(others.requests_in_flight),
            watches: self.watches.or(others.watches),
        }
    }
}

/// What is wrong with stated limits. Zero is none: to let nothing through, suspend the plane.
pub fn validate(limits: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    for field in COUNTS {
        if let Some(count) = object::int(limits, &[field]).filter(|count| *count < 1) {
            errors.push(Error::invalid(&path.child(field), count, "must be greater than zero"));
        }
    }
    let bytes = object::string(limits, &[STORED_BYTES]);
    if !bytes.is_empty() && Quantity::parse(bytes).is_ok_and(|bytes| bytes.signum() < 1) {
        errors.push(Error::invalid(
            &path.child(STORED_BYTES),
            bytes,
            "must be greater than zero",
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plane_s_own_limits_stand_before_those_of_its_class() {
        let own = Limits::of(&json!({"objects": 5, "storedBytes": "1Mi"}));
        let class = Limits::of(&json!({"objects": 9, "watches": 3, "requestsPerSecond": 7, "requestsInFlight": 2}));
        let expected = Limits {
            objects: Some(5),
            stored_bytes: Some(1 << 20),
            requests_per_second: Some(7),
            requests_in_flight: Some(2),
            watches: Some(3),
        };
        assert_eq!(own.or(class), expected);
        assert!(Limits::of(&Value::Null).is_empty());
    }

    #[test]
    fn a_limit_is_at_least_one() {
        let path = Path::new("limits");
        let errors = validate(
            &json!({"objects": 0, "watches": -1, "storedBytes": "-1Gi", "requestsPerSecond": 1}),
            &path,
        );
        let fields: Vec<String> = errors.iter().map(ToString::to_string).collect();
        expect_test::expect![[r#"
            [
                "limits.objects: Invalid value: 0: must be greater than zero",
                "limits.watches: Invalid value: -1: must be greater than zero",
                "limits.storedBytes: Invalid value: \"-1Gi\": must be greater than zero",
            ]
        "#]]
        .assert_debug_eq(&fields);
    }
}
