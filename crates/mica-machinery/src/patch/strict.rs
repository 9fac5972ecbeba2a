//! What strict field validation says about a JSON patch: upstream decodes it into a struct for that, and so do we.

use std::collections::HashSet;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::codec::decode_untyped;
use crate::codec::text::quote;

/// Upstream stops counting here.
const MAX_REPORTS: usize = 100;

/// The reports about unknown and duplicate members, in document order; or Go's error.
pub(super) fn check_operations(patch: &str) -> Result<Vec<String>, String> {
    let mut check = Check::default();
    for (at, operation) in list(patch, "[]handlers.jsonPatchOp")?.into_iter().enumerate() {
        check.operation(at, operation.get());
    }
    match check.error {
        Some(error) => Err(error),
        None => Ok(check.reports),
    }
}

/// The elements of a list; null is empty.
pub(super) fn list<'a>(text: &'a str, go_type: &str) -> Result<Vec<&'a RawValue>, String> {
    decode_untyped(text.as_bytes()).map_err(|error| error.to_string())?;
    match describe(text) {
        "array" => serde_json::from_str(text).map_err(|error| error.to_string()),
        "null" => Ok(Vec::new()),
        other => Err(format!(
            "json: cannot unmarshal {other} into Go value of type {go_type}"
        )),
    }
}

/// Go's word for what a JSON text is.
pub(super) fn describe(text: &str) -> &'static str {
    match text.trim_start().as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "bool",
        Some(b'n') => "null",
        _ => "number",
    }
}

#[derive(Default)]
struct Check {
    reports: Vec<String>,
    error: Option<String>,
}

impl Check {
    fn operation(&mut self, at: usize, text: &str) {
        match describe(text) {
            "object" => {}
            "null" => return,
            other => {
                self.fail(format!(
                    "json: cannot unmarshal {other} into Go value of type handlers.jsonPatchOp"
                ));
                return;
            }
        }
        let mut seen = HashSet::new();
        for (key, value) in members(text) {
            let known = matches!(&*key, "op" | "path" | "from" | "value");
            if !known || seen.contains(&key) {
                let what = if known { "duplicate" } else { "unknown" };
                self.report(format!("{what} field {}", quote(&format!("[{at}].{key}"))));
            }
            if key == "value" {
                self.value(at, value.get());
            } else if known && !matches!(describe(value.get()), "string" | "null") {
                let found = describe(value.get());
                self.fail(format!(
                    "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{key} of type string"
                ));
            }
            seen.insert(key);
        }
    }

    /// Duplicates inside a value, under the path that it has in the patch.
    fn value(&mut self, at: usize, text: &str) {
        let Ok(decoded) = decode_untyped(text.as_bytes()) else {
            return;
        };
        for report in decoded.strict {
            if let Some(field) = report.strip_prefix("duplicate field \"") {
                let dot = if field.starts_with('[') { "" } else { "." };
                self.report(format!("duplicate field \"[{at}].value{dot}{field}"));
            }
        }
    }

    fn report(&mut self, report: String) {
        let report = format!("json patch {report}");
        if self.reports.len() < MAX_REPORTS && !self.reports.contains(&report) {
            self.reports.push(report);
        }
    }

    fn fail(&mut self, error: String) {
        self.error.get_or_insert(error);
    }
}

/// The members of an object in document order, duplicates included.
fn members(text: &str) -> Vec<(String, Box<RawValue>)> {
    struct Members;
    impl<'a> Visitor<'a> for Members {
        type Value = Vec<(String, Box<RawValue>)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(text)
        .deserialize_map(Members)
        .unwrap_or_default()
}
