//! YAML in and out, as upstream's YAML library reads and prints it: YAML 1.1, with that library's error texts.
//!
//! Clients see those texts (`line 5: key "k" already set in map`), and its taste (`yes` is a boolean, `010` is eight, long
//! lines fold at 80 columns, `a10` sorts after `a9`), so this is a parser and a printer of our own rather than a crate:
//! no crate has them. Only the first document of a stream is read.
//!
//! Invariant: whatever this prints reads back as the same JSON.

mod convert;
mod emit;
mod node;
mod order;
mod parse;
mod plain;
mod property;
mod resolve;
mod scalar;
mod scan;
mod source;
#[cfg(test)]
mod tests;
mod token;

use serde_json::Value;

pub use plain::plain_object;

use crate::codec;

/// A document that is no YAML, or none that JSON can hold; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct YamlError(String);

impl YamlError {
    /// An error at a line; 0 is no line.
    fn at(line: usize, problem: &str) -> Self {
        match line {
            0 => YamlError(format!("yaml: {problem}")),
            _ => YamlError(format!("yaml: line {line}: {problem}")),
        }
    }
}

/// A YAML document as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    pub json: Vec<u8>,
    /// What strict field validation reports of the YAML itself (duplicate keys), as one text of several lines. It goes
    /// before the reports of decoding the JSON.
    pub strict: Option<String>,
}

/// Converts a document to JSON. An empty one is null.
pub fn to_json(yaml: &[u8]) -> Result<Converted, YamlError> {
    let document = parse::parse(source::characters(yaml)?)?;
    let (value, duplicates) = convert::convert(&document)?;
    let mut json = Vec::with_capacity(yaml.len());
    codec::encode_untyped(&value, &mut json);
    let strict = (!duplicates.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", duplicates.join("\n  ")));
    Ok(Converted { json, strict })
}

/// Prints a value as YAML.
pub fn from_json(value: &Value) -> String {
    emit::emit(value)
}
