//! AdmissionReviews: the question that a webhook gets, and what counts as an answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::codec::text::quote;
use crate::codec::{encode_untyped, write_string};
use crate::object;

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// A version of the reviews that webhooks get. They look the same; the older one's answers are checked less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    /// The first that is known, in the webhook's order.
    pub fn first_of(listed: &[Value]) -> Option<Self> {
        listed.iter().find_map(|version| match version.as_str()? {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1beta1),
            _ => None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

/// The document that is sent. `object` and `old` are JSON, `request` is [`super::request_value`]'s.
pub fn review(
    version: ReviewVersion,
    uid: &str,
    request: &Map<String, Value>,
    object: Option<&[u8]>,
    old: Option<&[u8]>,
) -> Vec<u8> {
    let room = object.map_or(0, <[u8]>::len) + old.map_or(0, <[u8]>::len);
    let mut out = Vec::with_capacity(room + 1024);
    out.extend_from_slice(format!(r#"{{"kind":"{KIND}","apiVersion":"{GROUP}/{}","#, version.as_str()).as_bytes());
    out.extend_from_slice(br#""request":{"uid":"#);
    write_string(uid, &mut out);
    for (field, value) in request {
        // The objects come before these two, as upstream orders its fields.
        if field == "dryRun" {
            for (name, json) in [("object", object), ("oldObject", old)] {
                out.extend_from_slice(format!(r#","{name}":"#).as_bytes());
                out.extend_from_slice(json.unwrap_or(b"null"));
            }
        }
        out.push(b',');
        write_string(field, &mut out);
        out.push(b':');
        encode_untyped(value, &mut out);
    }
    out.extend_from_slice(b"}}");
    out
}

/// What a webhook said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Response {
    pub denied: Option<Denied>,
    /// The JSON patch; empty if there is none.
    pub patch: Vec<u8>,
    pub patch_type: String,
    pub annotations: Vec<(String, String)>,
    pub warnings: Vec<String>,
}

/// A no.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Denied {
    pub code: u16,
    pub reason: String,
    pub message: String,
    pub details: Option<Map<String, Value>>,
}

/// Reads an answer. An error is what is wrong with it, in upstream's words.
pub fn read_response(
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
    name: &str,
    reply: &[u8],
) -> Result<Response, String> {
    let review: Value = serde_json::from_slice(reply).map_err(|error| error.to_string())?;
    let response = review
        .get("response")
        .filter(|response| response.is_object())
        .ok_or("webhook response was absent")?;
    let patch_type = object::get(response, &["patchType"]).filter(|value| !value.is_null());
    let patch = STANDARD
        .decode(object::string(response, &["patch"]))
        .map_err(|error| format!("response.patch is not base64: {error}"))?;
    let (patch, patch_type) = match version {
        ReviewVersion::V1 => {
            check_identity(uid, &review, response)?;
            (
                patch_of(mutating, patch, patch_type)?,
                patch_type.and_then(Value::as_str).unwrap_or_default().to_owned(),
            )
        }
        ReviewVersion::V1beta1 if !mutating || patch.is_empty() => (Vec::new(), String::new()),
        ReviewVersion::V1beta1 => (patch, "JSONPatch".to_owned()),
    };
    let allowed = response.get("allowed").and_then(Value::as_bool).unwrap_or(false);
    let annotations = object::map(response, &["auditAnnotations"]).into_iter().flatten();
    let warnings = object::list(response, &["warnings"]).iter();
    Ok(Response {
        denied: (!allowed).then(|| denied(name, response.get("status"))),
        patch,
        patch_type,
        annotations: annotations
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

fn check_identity(uid: &str, review: &Value, response: &Value) -> Result<(), String> {
    let got = object::string(response, &["uid"]);
    if got != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(got)));
    }
    check_kind(
        (GROUP, KIND),
        object::string(review, &["apiVersion"]),
        object::string(review, &["kind"]),
    )
}

/// Refuses an answer that is not of the first version of a kind.
pub fn check_kind((group, kind): (&str, &str), got_version: &str, got_kind: &str) -> Result<(), String> {
    let wanted = format!("{group}/v1, Kind={kind}");
    let (group, version) = got_version.split_once('/').unwrap_or(("", got_version));
    let got = format!("{group}/{version}, Kind={got_kind}");
    if got == wanted {
        return Ok(());
    }
    Err(format!("expected webhook response of {wanted}, got {got}"))
}

fn patch_of(mutating: bool, patch: Vec<u8>, patch_type: Option<&Value>) -> Result<Vec<u8>, String> {
    let wrong = match (mutating, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, _, Some(named)) if named == "" => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(patch),
    };
    Err(wrong.to_owned())
}

/// The Status that clients get for a no.
fn denied(name: &str, status: Option<&Value>) -> Denied {
    let null = Value::Null;
    let status = status.unwrap_or(&null);
    let by = format!("admission webhook {} denied the request", quote(name));
    let (message, reason) = (
        object::string(status, &["message"]),
        object::string(status, &["reason"]),
    );
    let message = match (message, reason) {
        ("", "") => format!("{by} without explanation"),
        ("", why) | (why, _) => format!("{by}: {why}"),
    };
    let code = object::int(status, &["code"]).unwrap_or(0);
    Denied {
        code: u16::try_from(code)
            .ok()
            .filter(|code| (400..1000).contains(code))
            .unwrap_or(400),
        reason: reason.to_owned(),
        message,
        details: object::map(status, &["details"]).cloned(),
    }
}
