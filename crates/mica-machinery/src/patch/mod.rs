//! JSON patch and JSON merge patch, over bytes.
//!
//! The patched document is shown to clients when it cannot be decoded, so its bytes matter: parts that a patch does not
//! touch stay exactly as they were, and only objects on the way to a change are printed with sorted keys, as
//! kube-apiserver's patch library does. That is also why no JSON tree is built.
//! Surprise: `replace` of a missing member adds it, and `copy` from a missing member adds null.

mod merge;
mod node;
mod operation;
mod strict;
#[cfg(test)]
mod tests;

use crate::codec::{DecodeError, decode_object};
use crate::field::{Error, Path};

/// How many operations a JSON patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// How many bytes the copy operations of one patch may add: the limit on request bodies.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// A patched document, not yet decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patched {
    pub document: Vec<u8>,
    /// What strict field validation has to say about the patch itself, before what it says about the document.
    pub strict: Vec<String>,
}

/// Whether the patch itself is checked for unknown and duplicate fields (`fieldValidation` is Warn or Strict).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strictness {
    Report,
    Ignore,
}

/// Why there is no patched document.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatchError {
    /// 400 BadRequest with this message.
    #[error("{0}")]
    BadRequest(String),
    /// 413 RequestEntityTooLarge; clients see it behind "Request entity too large: ".
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// 422 Invalid: clients see only [`UNPROCESSABLE`], with empty details; this text is for the log.
    #[error("{0}")]
    Unprocessable(String),
}

/// All that a client is told when a JSON patch does not apply.
pub const UNPROCESSABLE: &str = "the server rejected our request due to an error in our request";

/// Applies an RFC 6902 patch.
pub fn json_patch(document: &[u8], patch: &[u8], strictness: Strictness) -> Result<Patched, PatchError> {
    let patch = String::from_utf8_lossy(patch);
    let strict = match strictness {
        Strictness::Report => strict::check_operations(&patch)
            .map_err(|text| PatchError::BadRequest(format!("error decoding patch: {text}")))?,
        Strictness::Ignore => Vec::new(),
    };
    let operations = operation::decode(&patch).map_err(PatchError::BadRequest)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    let document = String::from_utf8_lossy(document);
    let document = operation::apply(&document, &operations).map_err(PatchError::Unprocessable)?;
    Ok(Patched { document, strict })
}

/// Applies an RFC 7396 patch.
pub fn merge_patch(document: &[u8], patch: &[u8], strictness: Strictness) -> Result<Patched, PatchError> {
    let patch = String::from_utf8_lossy(patch);
    let decoded = decode_object(patch.as_bytes());
    let strict = match (strictness, decoded) {
        (Strictness::Report, Err(error)) => {
            return Err(PatchError::BadRequest(format!("error decoding patch: {error}")));
        }
        (Strictness::Report, Ok(decoded)) => decoded.strict,
        // Upstream would go on; nothing so deep can be decoded afterwards.
        (Strictness::Ignore, Err(error @ DecodeError::TooDeep)) => {
            return Err(PatchError::BadRequest(error.to_string()));
        }
        (Strictness::Ignore, _) => Vec::new(),
    };
    let document = String::from_utf8_lossy(document);
    let document = merge::apply(&document, &patch).map_err(|text| PatchError::BadRequest(text.to_owned()))?;
    Ok(Patched { document, strict })
}

/// The one cause of the 422 for a patched document that cannot be decoded, or that strict validation refuses.
///
/// Upstream names neither kind nor object in that Status: its message begins with ` "" is invalid: `.
pub fn undecodable(document: &[u8], reason: &str) -> Error {
    Error::invalid(
        &Path::new("patch"),
        String::from_utf8_lossy(document).into_owned(),
        reason,
    )
}

/// The reason for [`undecodable`] when strict validation has reports: the patch's own first, then the document's.
pub fn strict_reason(reports: &[String]) -> String {
    format!("strict decoding error: {}", reports.join(", "))
}
