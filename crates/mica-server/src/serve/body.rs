//! Bodies of writes: from bytes to an object of the right kind, with upstream's words for what is wrong.

use std::borrow::Cow;

use mica_machinery::codec::{self, Decoded, Document};
use mica_machinery::facts::{TypeId, facts};
use mica_machinery::kind::custom::CustomKind;
use mica_machinery::schema::Malformed;
use mica_machinery::{managed, object, protobuf, yaml};
use serde_json::Value;

use crate::error::ApiError;
use crate::negotiate::Format;
use crate::options::FieldValidation;
use crate::scheme::join_version;

/// The kind that a body must be of.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub rules: Rules<'a>,
}

/// What decodes a body.
#[derive(Clone, Copy)]
pub enum Rules<'a> {
    Known(TypeId),
    /// A Scale of a custom object, which upstream reads by a scheme that knows nothing else.
    CustomScale(TypeId),
    Custom(&'a CustomKind),
}

/// A decoded body and the warnings it gave.
pub struct Read {
    pub object: Value,
    /// Whether the body asks to forget who manages its fields, which its object does not show.
    pub managers: managed::Request,
    pub warnings: Vec<String>,
}

/// How many bytes of an unrecognized body an error shows.
const SHOWN: usize = 30;

/// Kinds that are of every version.
const UNVERSIONED: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// Decodes a body of the wanted kind. A body without kind or apiVersion is taken to be of it.
pub fn read(format: Format, body: &[u8], wanted: Wanted<'_>, validation: FieldValidation) -> Result<Read, ApiError> {
    let unrecognized = |what: &dyn std::fmt::Display| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {what} ({})",
            wanted.kind,
            summary(body)
        ))
    };
    let mut extra = None;
    let json = match format {
        Format::Json => Cow::Borrowed(body),
        Format::Yaml => {
            let converted = yaml::to_json(body).map_err(|error| unrecognized(&error))?;
            extra = converted.strict;
            Cow::Owned(converted.json)
        }
        Format::Protobuf => return read_protobuf(body, wanted, &unrecognized),
    };
    let ty = match wanted.rules {
        Rules::Known(ty) | Rules::CustomScale(ty) => ty,
        Rules::Custom(kind) => return read_custom(body, &json, extra, wanted, kind, validation, &unrecognized),
    };
    let (document, stated) = Document::interpret(&json).map_err(|error| unrecognized(&error))?;
    let (group, version) = match stated.api_version.as_str() {
        "" | "/" => (wanted.group, wanted.version),
        text => split_version(text).ok_or_else(|| unrecognized(&format!("unexpected GroupVersion string: {text}")))?,
    };
    let kind = if stated.kind.is_empty() {
        wanted.kind
    } else {
        stated.kind.as_str()
    };
    let cannot = |why: &dyn std::fmt::Display| cannot_handle(kind, version, wanted, why);
    if version.is_empty() {
        return Err(cannot(&no_version(&json)));
    }
    check_kind(group, version, kind, wanted).map_err(|why| {
        match undecodable(group, version, kind, |ty| codec::decode(ty, &json).err()) {
            Some(broken) => cannot(&broken),
            None => other_version(group, version, kind, wanted).unwrap_or_else(|| cannot(&why)),
        }
    })?;
    let Decoded { value, strict } = document.decode(ty).map_err(|error| cannot(&error))?;
    Ok(Read {
        object: typed(value, wanted),
        managers: managed::request_of(&json),
        warnings: judged(extra.into_iter().chain(strict).collect(), validation, &cannot)?,
    })
}

/// What becomes of problems that do not keep a body from being read: an error, warnings, or nothing.
fn judged(
    problems: Vec<String>,
    validation: FieldValidation,
    cannot: &dyn Fn(&dyn std::fmt::Display) -> ApiError,
) -> Result<Vec<String>, ApiError> {
    Ok(match validation {
        FieldValidation::Strict if !problems.is_empty() => {
            return Err(cannot(&format!("strict decoding error: {}", problems.join(", "))));
        }
        FieldValidation::Warn => problems.into_iter().flat_map(warnings_of).collect(),
        _ => Vec::new(),
    })
}

/// Decodes a custom object. Another kind than the wanted is an object all the same, that validation refuses.
fn read_custom(
    body: &[u8],
    json: &[u8],
    extra: Option<String>,
    wanted: Wanted<'_>,
    kind: &CustomKind,
    validation: FieldValidation,
    unrecognized: &dyn Fn(&dyn std::fmt::Display) -> ApiError,
) -> Result<Read, ApiError> {
    let decoded = codec::decode_object(json).map_err(|error| match codec::interpret(json) {
        // Upstream asks for the kind first.
        Err(first) => unrecognized(&first),
        Ok(known) => {
            let version = known.api_version.rsplit('/').next().unwrap_or_default();
            cannot_handle(&known.kind, version, wanted, &error)
        }
    });
    let Decoded { mut value, strict } = decoded?;
    let (stated_kind, api_version) = stated(&value, json).map_err(|why| unrecognized(&why))?;
    if stated_kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        return Err(match validation {
            FieldValidation::Ignore => cannot_handle(wanted.kind, wanted.version, wanted, &why),
            _ => unrecognized(&why),
        });
    }
    let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
    let cannot = |why: &dyn std::fmt::Display| cannot_handle(&stated_kind, &version, wanted, why);
    check_version_text(&value).map_err(|why| cannot(&why))?;
    let expected = kind.api_version();
    let of_group = split_version(&api_version).is_some_and(|(group, _)| group == wanted.group);
    let unknown = if stated_kind != wanted.kind || !of_group {
        Vec::new()
    } else if let Some(schema) = kind.schema_of(&version) {
        let prepared = schema.prepare(&mut value, Malformed::Refuse);
        prepared.map_err(|error| cannot(&unreadable(error)))?
    } else {
        // A version without a schema knows no fields but those that all objects have.
        let fields = object::object_mut(&mut value).keys();
        let own = fields.filter(|field| !["apiVersion", "kind", "metadata"].contains(&field.as_str()));
        own.cloned().collect()
    };
    let unknown = unknown.into_iter().map(|field| format!("unknown field \"{field}\""));
    let problems = extra.into_iter().chain(strict).chain(unknown).collect();
    let warnings = judged(problems, validation, &cannot)?;
    if api_version != expected {
        let why =
            format!("the API version in the data ({api_version}) does not match the expected API version ({expected})");
        return Err(ApiError::bad_request(why).warned(&warnings));
    }
    Ok(Read {
        object: value,
        // An empty list is as good as none in what has no type.
        managers: managed::Request::Usual,
        warnings,
    })
}

/// Why an object's metadata cannot be read. Of its own metadata upstream says no more than the decoder does.
fn unreadable(error: mica_machinery::field::Error) -> String {
    if error.field == "metadata" {
        error.detail
    } else {
        error.to_string()
    }
}

/// The kind and apiVersion that an object says it has, or why they cannot be told.
fn stated(value: &Value, json: &[u8]) -> Result<(String, String), String> {
    if let (Some(Value::String(kind)), Some(Value::String(version))) = (value.get("kind"), value.get("apiVersion"))
        && let Some((group, version)) = split_version(version)
    {
        return Ok((kind.clone(), join_version(group, version)));
    }
    let stated = codec::interpret(json).map_err(|error| error.to_string())?;
    match split_version(&stated.api_version) {
        Some(_) => Ok((stated.kind, stated.api_version)),
        None => Err(format!("unexpected GroupVersion string: {}", stated.api_version)),
    }
}

/// Upstream reads the field of what it decoded, where null is no text.
fn check_version_text(value: &Value) -> Result<(), &'static str> {
    match value.get("apiVersion") {
        Some(Value::Null) => Err(".apiVersion accessor error: <nil> is of the type <nil>, expected string"),
        _ => Ok(()),
    }
}

/// Decodes JSON that a patch left, which must be of the wanted kind. The error is the reason alone.
pub fn read_kind(json: &[u8], wanted: Wanted<'_>, validation: FieldValidation) -> Result<Read, String> {
    let ty = match wanted.rules {
        Rules::Known(ty) | Rules::CustomScale(ty) => ty,
        Rules::Custom(kind) => return read_patched(json, wanted, kind, validation),
    };
    let stated = codec::interpret(json).map_err(|error| error.to_string())?;
    // A patch may take both away: they are known.
    let (group, version) = match stated.api_version.as_str() {
        "" => (wanted.group, wanted.version),
        text => split_version(text).ok_or_else(|| format!("unexpected GroupVersion string: {text}"))?,
    };
    let kind = if stated.kind.is_empty() {
        wanted.kind
    } else {
        &stated.kind
    };
    check_kind(group, version, kind, wanted)?;
    let Decoded { value, strict } = codec::decode(ty, json).map_err(|error| error.to_string())?;
    let warnings = if validation == FieldValidation::Ignore {
        Vec::new()
    } else {
        strict
    };
    Ok(Read {
        object: typed(value, wanted),
        managers: managed::request_of(json),
        warnings,
    })
}

/// The same for a custom object.
fn read_patched(
    json: &[u8],
    wanted: Wanted<'_>,
    kind: &CustomKind,
    validation: FieldValidation,
) -> Result<Read, String> {
    let decoded = codec::decode_object(json).map_err(|error| match (validation, codec::interpret(json)) {
        // Who does not ask for strictness gets the decoder that asks for the kind first.
        (FieldValidation::Ignore, Err(first)) => first.to_string(),
        _ => error.to_string(),
    });
    let Decoded { mut value, strict } = decoded?;
    let (stated_kind, api_version) = stated(&value, json)?;
    if stated_kind.is_empty() {
        return Err(format!(
            "Object 'Kind' is missing in '{}'",
            String::from_utf8_lossy(json)
        ));
    }
    check_version_text(&value)?;
    if value.get("apiVersion").is_some() {
        object::set(&mut value, &["apiVersion"], api_version);
    }
    let mut warnings = strict;
    if stated_kind == wanted.kind {
        let unknown = kind.schema.prepare(&mut value, Malformed::Refuse).map_err(unreadable)?;
        warnings.extend(unknown.into_iter().map(|field| format!("unknown field \"{field}\"")));
    }
    if validation == FieldValidation::Ignore {
        warnings.clear();
    }
    Ok(Read {
        object: value,
        // An empty list is as good as none in what has no type.
        managers: managed::Request::Usual,
        warnings,
    })
}

/// Decodes the DeleteOptions in the body of a DELETE. Upstream takes any apiVersion there, and ignores fields that it does
/// not know.
pub fn read_options(format: Format, body: &[u8]) -> Result<Value, ApiError> {
    let bad = |error: &dyn std::fmt::Display| ApiError::bad_request(error.to_string());
    let ty = facts().well_known().delete_options;
    let json = match format {
        Format::Json => body.to_vec(),
        Format::Yaml => yaml::to_json(body).map_err(|error| bad(&error))?.json,
        Format::Protobuf => {
            let document = protobuf::open(body).map_err(|error| bad(&error))?;
            return protobuf::decode(ty, document.raw).map_err(|error| bad(&error));
        }
    };
    let stated = codec::interpret(&json).map_err(|error| bad(&error))?;
    check_options_kind(&stated, &json).map_err(|why| bad(&why))?;
    codec::decode(ty, &json)
        .map(|decoded| decoded.value)
        .map_err(|error| bad(&error))
}

/// Why a body is none of DeleteOptions.
fn check_options_kind(stated: &codec::Interpreted, json: &[u8]) -> Result<(), String> {
    const SCHEME: &str = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
    let (group, version) = match stated.api_version.as_str() {
        "" | "/" => ("meta.k8s.io", "v1"),
        text => split_version(text).ok_or_else(|| format!("unexpected GroupVersion string: {text}"))?,
    };
    match stated.kind.as_str() {
        _ if version.is_empty() => Err(no_version(json)),
        "" | "DeleteOptions" => Ok(()),
        kind if UNVERSIONED.contains(&kind) => Err(format!(
            "converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion"
        )),
        kind => Err(unregistered(group, version, kind, SCHEME)),
    }
}

fn no_version(json: &[u8]) -> String {
    format!("Object 'apiVersion' is missing in '{}'", String::from_utf8_lossy(json))
}

fn read_protobuf(
    body: &[u8],
    wanted: Wanted<'_>,
    unrecognized: &dyn Fn(&dyn std::fmt::Display) -> ApiError,
) -> Result<Read, ApiError> {
    let document = protobuf::open(body).map_err(|error| unrecognized(&error))?;
    let (group, version) = match document.api_version.as_str() {
        "" => (wanted.group, wanted.version),
        text => split_version(text).ok_or_else(|| unrecognized(&format!("unexpected GroupVersion string: {text}")))?,
    };
    let kind = if document.kind.is_empty() {
        wanted.kind
    } else {
        document.kind.as_str()
    };
    let cannot = |why: &dyn std::fmt::Display| cannot_handle(kind, version, wanted, why);
    check_kind(group, version, kind, wanted).map_err(|why| {
        let broken = undecodable(group, version, kind, |ty| protobuf::decode(ty, document.raw).err());
        cannot(&broken.unwrap_or(why))
    })?;
    let (Rules::Known(ty) | Rules::CustomScale(ty)) = wanted.rules else {
        return Err(cannot(&"custom objects have no protobuf form"));
    };
    let value = protobuf::decode(ty, document.raw).map_err(|error| cannot(&error))?;
    Ok(Read {
        object: typed(value, wanted),
        managers: managed::Request::Usual,
        warnings: Vec::new(),
    })
}

/// The problems of YAML are one error of several lines, but a warning each.
pub fn warnings_of(problem: String) -> Vec<String> {
    match problem.strip_prefix("yaml: unmarshal errors:\n") {
        Some(lines) => lines.lines().map(|line| line.trim().to_owned()).collect(),
        None => vec![problem],
    }
}

fn cannot_handle(kind: &str, version: &str, wanted: Wanted<'_>, why: &dyn std::fmt::Display) -> ApiError {
    let quoted = mica_machinery::field::quote(version);
    ApiError::bad_request(format!(
        "{kind} in version {quoted} cannot be handled as a {}: {why}",
        wanted.kind
    ))
}

/// The refusal of the wanted kind in another version that upstream knows: it can be read, but not here.
fn other_version(group: &str, version: &str, kind: &str, wanted: Wanted<'_>) -> Option<ApiError> {
    if kind != wanted.kind {
        return None;
    }
    facts().kind(group, version, kind)?;
    Some(ApiError::bad_request(format!(
        "the API version in the data ({}) does not match the expected API version ({})",
        join_version(group, version),
        join_version(wanted.group, wanted.version)
    )))
}

/// Why an object of another kind is none of the wanted, in the words of upstream's scheme.
fn check_kind(group: &str, version: &str, kind: &str, wanted: Wanted<'_>) -> Result<(), String> {
    if (group, version, kind) == (wanted.group, wanted.version, wanted.kind) {
        return Ok(());
    }
    // Upstream keeps kinds in several schemes; two of them know nothing of the others' kinds.
    let (scheme, alone) = match wanted.group {
        _ if matches!(wanted.rules, Rules::CustomScale(_)) => ("k8s.io/client-go/scale/util.go:146", true),
        "apiextensions.k8s.io" => ("k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55", true),
        "apiregistration.k8s.io" => ("k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28", true),
        _ => ("pkg/api/legacyscheme/scheme.go:30", false),
    };
    let known = !alone || group == wanted.group || UNVERSIONED.contains(&kind);
    match facts().kind(group, version, kind).filter(|_| known) {
        Some(found) => Err(format!(
            "converting ({}) to ({}.{}): unknown conversion",
            facts().ty(found).go,
            internal_group(wanted.group),
            wanted.kind
        )),
        None => Err(unregistered(group, version, kind, scheme)),
    }
}

fn unregistered(group: &str, version: &str, kind: &str, scheme: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"{scheme}\"",
        mica_machinery::field::quote(kind),
        mica_machinery::field::quote(&join_version(group, version)),
    )
}

/// The package that upstream keeps a group's internal types in. Both groups of events share one.
pub fn internal_group(group: &str) -> &str {
    match group.split('.').next().unwrap_or_default() {
        "" | "events" => "core",
        first => first,
    }
}

/// What is wrong with a body of another kind as one of its own: upstream finds that out first.
fn undecodable<E: std::fmt::Display>(
    group: &str,
    version: &str,
    kind: &str,
    decode: impl FnOnce(TypeId) -> Option<E>,
) -> Option<String> {
    let error = decode(facts().kind(group, version, kind)?)?;
    Some(error.to_string())
}

fn typed(value: Value, wanted: Wanted<'_>) -> Value {
    let mut value = value;
    let map = object::object_mut(&mut value);
    map.insert("kind".to_owned(), wanted.kind.into());
    map.insert(
        "apiVersion".to_owned(),
        join_version(wanted.group, wanted.version).into(),
    );
    value
}

/// Group and version of an apiVersion; `None` if it has more than one slash.
fn split_version(text: &str) -> Option<(&str, &str)> {
    match text.split_once('/') {
        None => Some(("", text)),
        Some((_, version)) if version.contains('/') => None,
        Some(parts) => Some(parts),
    }
}

/// The beginning of a body, as text if it looks like JSON.
fn summary(body: &[u8]) -> String {
    let (shown, more) = if body.len() > SHOWN {
        (&body[..SHOWN], " ...")
    } else {
        (body, "")
    };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => format!(
            "{}{more}",
            shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        ),
    }
}
