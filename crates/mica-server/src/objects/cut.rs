//! Cuts metadata out of stored bytes and marks where it is from.

use std::ops::Range;

use mica_api::PlaneId;
use serde_json::{Map, Value};

use super::What;
use crate::error::ApiError;
use crate::negotiate::MetaVersion;
use crate::stored::Stored;
use crate::wildcard::{PLANE_ANNOTATION, PLANE_ID_ANNOTATION};

/// Say what an object is: its own kind is PartialObjectMetadata.
pub const API_VERSION_ANNOTATION: &str = "mica.dev/api-version";
pub const KIND_ANNOTATION: &str = "mica.dev/kind";
pub const RESOURCE_ANNOTATION: &str = "mica.dev/resource";

/// Which group's `PartialObjectMetadata` is sent. The fields are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Ours, as discovery has it: what generic clients can find the resource of.
    Served,
    /// `meta.k8s.io`, which metadata clients ask for.
    Meta(MetaVersion),
}

impl Form {
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Served => "mica.dev/v1alpha1",
            Self::Meta(version) => version.api_version(),
        }
    }

    /// The beginning of an object: everything up to its metadata.
    fn head(self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":""#);
        out.extend_from_slice(self.api_version().as_bytes());
        out.extend_from_slice(br#"","metadata":"#);
    }
}

/// Where an object is from and what it is.
pub struct Origin<'a> {
    /// Empty if it is not known any more.
    pub plane: &'a str,
    pub id: PlaneId,
    pub kind: &'a What,
}

impl Origin<'_> {
    fn annotations(&self) -> [(&'static str, &str); 5] {
        [
            (PLANE_ANNOTATION, self.plane),
            (PLANE_ID_ANNOTATION, self.id.as_str()),
            (API_VERSION_ANNOTATION, self.kind.api_version()),
            (KIND_ANNOTATION, self.kind.kind()),
            (RESOURCE_ANNOTATION, self.kind.plural()),
        ]
    }

    /// The members of an annotations object. Names of planes and kinds hold nothing that JSON escapes.
    fn write(&self, out: &mut Vec<u8>) {
        let known = self.annotations().into_iter().filter(|(_, value)| !value.is_empty());
        for (at, (name, value)) in known.enumerate() {
            let comma = if at > 0 { "," } else { "" };
            out.extend_from_slice(format!("{comma}\"{name}\":\"{value}\"").as_bytes());
        }
    }
}

/// Appends the object's metadata as an object of its own.
pub fn partial(form: Form, stored: &Stored, origin: &Origin<'_>, out: &mut Vec<u8>) -> Result<(), ApiError> {
    let damaged = || ApiError::internal("stored data is damaged").because("a stored object's metadata cannot be found");
    let (json, hole) = (&stored.json()[..], stored.hole());
    let metadata = member(json, "metadata")
        .filter(|at| at.contains(&hole))
        .ok_or_else(damaged)?;
    let inside = member(&json[metadata.clone()], "annotations");
    let annotations = inside.map(|at| at.start + metadata.start..at.end + metadata.start);
    let marked = |at: &Range<usize>, out: &mut Vec<u8>| -> Result<(), ApiError> {
        out.push(b'{');
        origin.write(out);
        let own = without_reserved(&json[at.clone()], origin)?;
        if own.len() > 2 {
            out.push(b',');
        }
        out.extend_from_slice(&own[1..]);
        Ok(())
    };
    let version = format!(",\"resourceVersion\":\"{}\"", stored.revision);
    form.head(out);
    match annotations {
        None => {
            out.extend_from_slice(&json[metadata.start..hole]);
            out.extend_from_slice(version.as_bytes());
            out.extend_from_slice(b",\"annotations\":{");
            origin.write(out);
            out.push(b'}');
            out.extend_from_slice(&json[hole..metadata.end]);
        }
        // Built-in metadata is written in one order, in which annotations follow the uid and so the hole.
        Some(at) if at.start > hole => {
            out.extend_from_slice(&json[metadata.start..hole]);
            out.extend_from_slice(version.as_bytes());
            out.extend_from_slice(&json[hole..at.start]);
            marked(&at, out)?;
            out.extend_from_slice(&json[at.end..metadata.end]);
        }
        // In custom objects they come first.
        Some(at) => {
            out.extend_from_slice(&json[metadata.start..at.start]);
            marked(&at, out)?;
            out.extend_from_slice(&json[at.end..hole]);
            out.extend_from_slice(version.as_bytes());
            out.extend_from_slice(&json[hole..metadata.end]);
        }
    }
    out.push(b'}');
    Ok(())
}

/// The object's own annotations. Writes strip ours, but older data and other ways in may have some.
fn without_reserved<'a>(annotations: &'a [u8], origin: &Origin<'_>) -> Result<std::borrow::Cow<'a, [u8]>, ApiError> {
    if memchr::memmem::find(annotations, b"\"mica.dev/").is_none() {
        return Ok(annotations.into());
    }
    let mut map: Map<String, Value> = serde_json::from_slice(annotations)
        .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
    for (name, _) in origin.annotations() {
        map.remove(name);
    }
    Ok(Value::Object(map).to_string().into_bytes().into())
}

/// Where the value of a member lies in an object of compact JSON, as everything stored is.
fn member(object: &[u8], name: &str) -> Option<Range<usize>> {
    let mut at = 1;
    while object.get(at) == Some(&b'"') {
        let key_end = string_end(object, at)?;
        let value = key_end + 1;
        let end = value_end(object, value)?;
        if &object[at + 1..key_end - 1] == name.as_bytes() {
            return Some(value..end);
        }
        at = end + 1;
    }
    None
}

/// Right after the string that begins at `at`.
fn string_end(json: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Right after the value that begins at `at`.
fn value_end(json: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match json.get(at)? {
            b'"' => at = string_end(json, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' | b',' if depth == 0 => return Some(at),
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            _ => at += 1,
        }
        if depth == 0 && matches!(json.get(at), Some(b',' | b'}' | b']')) {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use mica_machinery::kind::Profile;
    use mica_store::{Record, Revision};

    use super::*;
    use crate::scheme::Scheme;
    use crate::stored::{Content, pack};

    fn check(json: &str) -> String {
        let scheme = Scheme::new(Profile::Generic, &[]);
        let kind = &What::BuiltIn(scheme.find("", "v1", "configmaps").unwrap().clone());
        let record = Record {
            value: pack(json.as_bytes(), "u1", 1),
            revision: Revision(12),
        };
        let stored = Content::read(&record).unwrap().object().unwrap();
        let origin = Origin {
            plane: "p1",
            id: PlaneId::parse("0123456789ab").unwrap(),
            kind,
        };
        let mut out = Vec::new();
        let form = Form::Meta(MetaVersion::V1);
        partial(form, &stored, &origin, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["metadata"]["annotations"]["mica.dev/plane"], "p1", "{text}");
        assert_eq!(value["metadata"]["resourceVersion"], "12");
        let ours = r#""mica.dev/plane":"p1","mica.dev/plane-id":"0123456789ab","mica.dev/api-version":"v1","mica.dev/kind":"ConfigMap","mica.dev/resource":"configmaps""#;
        let mut head = Vec::new();
        form.head(&mut head);
        text.strip_prefix(std::str::from_utf8(&head).unwrap())
            .unwrap()
            .replace(ours, "OURS")
            .replace(r#","resourceVersion":"12""#, ",RV")
    }

    #[test]
    fn metadata_is_cut_out_and_marked() {
        assert_eq!(
            check(r#"{"metadata":{"name":"a","uid":"u1","labels":{"x":"y"}},"data":{"k":"}"}}"#),
            r#"{"name":"a","uid":"u1",RV,"annotations":{OURS},"labels":{"x":"y"}}}"#
        );
        assert_eq!(
            check(r#"{"metadata":{"name":"a","uid":"u1","annotations":{"n":"\"}\\"},"finalizers":["f"]}}"#),
            r#"{"name":"a","uid":"u1",RV,"annotations":{OURS,"n":"\"}\\"},"finalizers":["f"]}}"#
        );
    }

    #[test]
    fn annotations_of_ours_that_an_object_holds_are_replaced() {
        assert_eq!(
            check(r#"{"metadata":{"name":"a","uid":"u1","annotations":{"mica.dev/plane":"lie","z":"1"}}}"#),
            r#"{"name":"a","uid":"u1",RV,"annotations":{OURS,"z":"1"}}}"#
        );
        assert_eq!(
            check(r#"{"metadata":{"name":"a","uid":"u1","annotations":{"mica.dev/kind":"lie"}}}"#),
            r#"{"name":"a","uid":"u1",RV,"annotations":{OURS}}}"#
        );
    }

    #[test]
    fn only_members_of_metadata_itself_count() {
        let managed = r#"{"metadata":{"name":"a","uid":"u1","managedFields":[{"fieldsV1":{"annotations":{"f:n":{}}}}]},"annotations":{}}"#;
        let expected = r#"{"name":"a","uid":"u1",RV,"annotations":{OURS},"managedFields":[{"fieldsV1":{"annotations":{"f:n":{}}}}]}}"#;
        assert_eq!(check(managed), expected);
        assert_eq!(member(br#"{"a":1,"b":[{"c":2}],"c":null}"#, "c"), Some(25..29));
        assert_eq!(member(br"{}", "c"), None);
        assert_eq!(member(br#"{"a""#, "a"), None);
    }
}
