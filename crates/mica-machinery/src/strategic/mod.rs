//! Strategic merge patch: a merge patch that knows the type, so that lists merge by key and directives act on them.
//!
//! What merges how is in [`facts`](crate::facts): `patchStrategy` and `patchMergeKey` of each field. The texts of errors,
//! and which of them are the client's fault (400, 422) and which are 500, are kube-apiserver's
//! (`apimachinery/pkg/util/strategicpatch`, `runtime/converter.go`).
//!
//! Surprises: the patch is changed while it is applied (directives vanish), and a refusal shows what is left of it;
//! a patch that names another kind is accepted, and the kind stays; `$patch: merge` is refused everywhere.

mod convert;
mod list;
mod lookup;
mod merge;
mod print;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub(crate) use print::plain;

use crate::codec::{self, Decoded, decode_object};
use crate::facts::TypeId;
use crate::field::{Error, Path};
use crate::patch::Strictness;

/// A document after a strategic merge, decoded into its type and not yet defaulted.
#[derive(Clone, PartialEq, Debug)]
pub struct Merged {
    pub value: Value,
    /// What field validation has to say: duplicates in the patch first, then unknown fields of the result.
    pub strict: Vec<String>,
    /// What is left of the patch, as a refusal shows it.
    patch: String,
}

impl Merged {
    /// The one cause of the 422 when strict field validation refuses what [`Merged::strict`] reports.
    pub fn refusal(&self) -> Error {
        let reason = crate::patch::strict_reason(&self.strict);
        Error::invalid(&Path::new("patch"), self.patch.clone(), reason)
    }
}

/// Why a strategic merge patch did not apply. The texts are what clients see.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum StrategicError {
    /// 400 BadRequest with this message.
    #[error("{0}")]
    BadRequest(String),
    /// 422 with this message, no kind and no cause.
    #[error("{0}")]
    Unprocessable(String),
    /// 500 with this message and no reason: upstream does not tell these from its own failures.
    #[error("{0}")]
    Internal(String),
    /// 422 Invalid with this one cause, naming neither kind nor object.
    #[error("{0}")]
    Undecodable(Error),
}

/// Applies a strategic merge patch to an object of the built-in type `ty`.
///
/// `document` is the object as stored, in normal form and with its defaults. The result keeps its apiVersion and kind,
/// whatever the patch says.
pub fn strategic_merge(
    ty: TypeId,
    document: &Value,
    patch: &[u8],
    strictness: Strictness,
) -> Result<Merged, StrategicError> {
    let decoded = decode_object(patch).map_err(|error| StrategicError::BadRequest(error.to_string()))?;
    let mut strict = match strictness {
        Strictness::Report => decoded.strict,
        Strictness::Ignore => Vec::new(),
    };
    let mut patch = match decoded.value {
        Value::Object(members) => members,
        _ => serde_json::Map::new(),
    };
    let original = document.as_object().cloned().unwrap_or_default();
    let merged = merge::merge_map(original, &mut patch, lookup::Node::of(ty)).map_err(refuse)?;
    let mut merged = Value::Object(merged);
    let patch = print::plain(&Value::Object(patch));
    let undecodable =
        |reason: String| StrategicError::Undecodable(Error::invalid(&Path::new("patch"), patch.clone(), reason));
    let decoded = decode_converted(ty, &mut merged).map_err(undecodable)?;
    if strictness == Strictness::Report {
        let mut unknown = decoded.strict;
        unknown.sort_unstable();
        strict.append(&mut unknown);
    }
    let mut value = decoded.value;
    for name in ["apiVersion", "kind"] {
        match document.get(name) {
            Some(own) => value[name] = own.clone(),
            None => drop(value.as_object_mut().and_then(|members| members.remove(name))),
        }
    }
    Ok(Merged { value, strict, patch })
}

fn refuse(error: merge::MergeError) -> StrategicError {
    match error {
        merge::MergeError::Format(text) => StrategicError::BadRequest(text.to_owned()),
        merge::MergeError::ListOfLists => StrategicError::Unprocessable(error.to_string()),
        merge::MergeError::Other(text) => StrategicError::Internal(text),
    }
}

/// An untyped document as its type, by the rules and in the words of upstream's converter.
pub fn decode_converted(ty: TypeId, document: &mut Value) -> Result<Decoded, String> {
    convert::check(ty, document)?;
    codec::decode_tree(ty, document).map_err(|error| error.to_string())
}
