//! ConversionReviews: the question that a webhook gets, and what counts as an answer.

use std::collections::HashMap;

use mica_machinery::admission::{ReviewVersion, check_kind};
use mica_machinery::codec::text::quote;
use mica_machinery::codec::{self, write_string};
use serde_json::value::RawValue;

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";
/// Upstream names the place in its source where the scheme was made.
const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:71";

/// The document that asks for objects, given as JSON separated by commas, in another version.
pub(super) fn request(version: ReviewVersion, uid: &str, desired: &str, objects: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(objects.len() + 512);
    out.extend_from_slice(format!(r#"{{"kind":"{KIND}","apiVersion":"{GROUP}/{}","#, version.as_str()).as_bytes());
    out.extend_from_slice(format!(r#""request":{{"uid":"{uid}","desiredAPIVersion":"#).as_bytes());
    write_string(desired, &mut out);
    out.extend_from_slice(br#","objects":["#);
    out.extend_from_slice(objects);
    // Upstream sends an empty response along, and webhooks have been seen to fill it in place.
    out.extend_from_slice(br#"]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}"#);
    out
}

/// Why an answer does not count.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is no review.
    Undecodable(String),
    /// It is not a review that says yes to this question.
    Malformed(String),
}

type Fields<'a> = HashMap<String, &'a RawValue>;

/// The converted objects of an answer, each as it was sent.
pub(super) fn converted(version: ReviewVersion, uid: &str, reply: &[u8]) -> Result<Vec<Box<RawValue>>, Refused> {
    let undecodable = Refused::Undecodable;
    let typed = codec::interpret(reply).map_err(|error| undecodable(error.to_string()))?;
    check_type(version, &typed)?;
    // Its syntax was checked above, so what fails here is its type.
    let review: Fields<'_> = serde_json::from_slice(reply).map_err(|error| undecodable(error.to_string()))?;
    let response = present(&review, "response")
        .map(|raw| fields(raw, "ConversionReview.response", "v1.ConversionResponse"))
        .transpose()?;
    let response_uid = text(response.as_ref(), "uid", "ConversionResponse.response.uid", "types.UID")?;
    let objects = response
        .as_ref()
        .and_then(|response| present(response, "convertedObjects"))
        .map(objects)
        .transpose()?
        .unwrap_or_default();
    let result = response
        .as_ref()
        .and_then(|response| present(response, "result"))
        .map(|raw| fields(raw, "ConversionResponse.response.result", "v1.Status"))
        .transpose()?;
    let status = text(result.as_ref(), "status", "Status.response.result.status", "string")?;
    let message = text(result.as_ref(), "message", "Status.response.result.message", "string")?;

    let malformed = |why: String| Err(Refused::Malformed(why));
    if version == ReviewVersion::V1 {
        check_kind((GROUP, KIND), &typed.api_version, &typed.kind).map_err(Refused::Malformed)?;
    }
    if response.is_none() {
        return malformed("no response provided".to_owned());
    }
    if version == ReviewVersion::V1 && response_uid != uid {
        return malformed(format!(
            "expected response.uid={}, got {}",
            quote(uid),
            quote(&response_uid)
        ));
    }
    if status != "Success" {
        return malformed(if message.is_empty() {
            format!("response.result.status was '{status}', not 'Success'")
        } else {
            message
        });
    }
    Ok(objects)
}

/// A document that names another type is not decoded. One that names none, or half a one, is.
fn check_type(version: ReviewVersion, typed: &codec::Interpreted) -> Result<(), Refused> {
    let (api_version, kind) = (typed.api_version.as_str(), typed.kind.as_str());
    if api_version.is_empty() || kind.is_empty() {
        return Ok(());
    }
    let wanted = version.as_str();
    let other = match api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/')) {
        Some(named @ ("v1" | "v1beta1")) if kind == KIND => {
            if named == wanted {
                return Ok(());
            }
            Some(format!("{named}.{KIND}"))
        }
        _ if api_version == "v1" && kind == "Status" => Some("v1.Status".to_owned()),
        _ => None,
    };
    Err(Refused::Undecodable(match other {
        Some(other) => format!("converting ({other}) to ({wanted}.{KIND}): unknown conversion"),
        None => format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(kind),
            quote(api_version),
            quote(SCHEME)
        ),
    }))
}

fn present<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a RawValue> {
    fields.get(name).copied().filter(|raw| raw.get() != "null")
}

fn fields<'a>(raw: &'a RawValue, field: &str, go_type: &str) -> Result<Fields<'a>, Refused> {
    serde_json::from_str(raw.get()).map_err(|_| mismatch(raw, field, go_type))
}

fn text(fields: Option<&Fields<'_>>, name: &str, field: &str, go_type: &str) -> Result<String, Refused> {
    let Some(raw) = fields.and_then(|fields| present(fields, name)) else {
        return Ok(String::new());
    };
    serde_json::from_str(raw.get()).map_err(|_| mismatch(raw, field, go_type))
}

fn objects(raw: &RawValue) -> Result<Vec<Box<RawValue>>, Refused> {
    let field = "ConversionResponse.response.convertedObjects";
    serde_json::from_str(raw.get()).map_err(|_| mismatch(raw, field, "[]runtime.RawExtension"))
}

/// Go's words for JSON of the wrong type.
fn mismatch(raw: &RawValue, field: &str, go_type: &str) -> Refused {
    let found = match raw.get().as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "bool",
        _ => "number",
    };
    Refused::Undecodable(format!(
        "json: cannot unmarshal {found} into Go struct field {field} of type {go_type}"
    ))
}
