//! Encoded documents: JSON, and protobuf when somebody asks for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mica_machinery::openapi::custom::{Addition, Taken};
use mica_machinery::openapi::gnostic;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};
use tokio::sync::OnceCell;

use crate::error::ApiError;

/// Writes a document as protobuf.
type ToProtobuf = fn(&Value) -> Vec<u8>;

/// One document in both encodings.
pub struct Document {
    json: Bytes,
    /// Made from the JSON when it is first asked for: most documents never are.
    protobuf: OnceCell<Bytes>,
    to_protobuf: ToProtobuf,
    /// The hash of the JSON, which stands for both encodings.
    pub hash: String,
}

/// OpenAPI 3.0 documents by name.
pub type Documents = BTreeMap<String, Arc<Document>>;

impl Document {
    pub fn new(document: &Value, to_protobuf: ToProtobuf) -> Self {
        Self::from_json(serde_json::to_vec(document).expect("a value is JSON"), to_protobuf)
    }

    fn from_json(json: Vec<u8>, to_protobuf: ToProtobuf) -> Self {
        Self {
            hash: hash(&[&json]),
            json: json.into(),
            protobuf: OnceCell::new(),
            to_protobuf,
        }
    }

    pub fn json(&self) -> Bytes {
        self.json.clone()
    }

    pub async fn protobuf(&self) -> Result<Bytes, ApiError> {
        let encode = || {
            let (json, to_protobuf) = (self.json.clone(), self.to_protobuf);
            off_the_reactor(move || {
                let document: Value = serde_json::from_slice(&json).expect("it was written as JSON");
                Bytes::from(to_protobuf(&document))
            })
        };
        self.protobuf.get_or_try_init(encode).await.cloned()
    }

    /// What it costs to keep.
    pub fn weight(&self) -> u64 {
        // The protobuf form is about as long.
        2 * self.json.len() as u64
    }
}

/// The sections of a Swagger document that custom resources add to, in the order in which they are written.
const SECTIONS: [&str; 3] = ["definitions", "parameters", "paths"];

/// The Swagger document of built-in kinds, ready to be added to.
pub struct Swagger {
    pub document: Document,
    /// Where the sections end: before their closing braces.
    ends: [usize; 3],
    pub taken: Taken,
}

/// What custom resources add to a Swagger document, encoded.
pub struct Added {
    /// The members of each section, without braces.
    sections: [Bytes; 3],
    /// Parsers merge messages that follow each other.
    protobuf: Bytes,
    hash: String,
}

impl Swagger {
    pub fn new(document: &Value) -> Self {
        let mut json = b"{".to_vec();
        let mut ends = [0; 3];
        for (key, value) in document.as_object().into_iter().flatten() {
            if json.len() > 1 {
                json.push(b',');
            }
            json.extend_from_slice(format!("{}:{value}", Value::from(key.as_str())).as_bytes());
            if let Some(section) = SECTIONS.iter().position(|section| section == key) {
                ends[section] = json.len() - 1;
            }
        }
        json.push(b'}');
        Self {
            document: Document::from_json(json, gnostic::swagger),
            ends,
            taken: Taken::by(document),
        }
    }

    /// The JSON with what is added: copied together, because keeping it would cost a megabyte for each set of definitions.
    pub fn json_with(&self, added: &Added) -> Bytes {
        let own = &self.document.json;
        let length: usize = added.sections.iter().map(|section| section.len() + 1).sum();
        let mut json = Vec::with_capacity(own.len() + length);
        let mut from = 0;
        for (end, members) in self.ends.into_iter().zip(&added.sections) {
            json.extend_from_slice(&own[from..end]);
            if !members.is_empty() {
                if !own[from..end].ends_with(b"{") {
                    json.push(b',');
                }
                json.extend_from_slice(members);
            }
            from = end;
        }
        json.extend_from_slice(&own[from..]);
        json.into()
    }

    pub async fn protobuf_with(&self, added: &Added) -> Result<Bytes, ApiError> {
        let own = self.document.protobuf().await?;
        Ok([own.as_ref(), added.protobuf.as_ref()].concat().into())
    }

    pub fn hash_with(&self, added: &Added) -> String {
        hash(&[self.document.hash.as_bytes(), added.hash.as_bytes()])
    }
}

impl Added {
    pub fn new(addition: Addition) -> Self {
        let Addition {
            definitions,
            parameters,
            paths,
        } = addition;
        let members = |section: &Map<String, Value>| {
            let mut text = serde_json::to_vec(section).expect("a map is JSON");
            text.pop();
            Bytes::from(text).slice(1..)
        };
        let sections = [members(&definitions), members(&parameters), members(&paths)];
        let document = json!({"definitions": definitions, "parameters": parameters, "paths": paths});
        Self {
            hash: hash(&[&sections[0], &sections[1], &sections[2]]),
            protobuf: gnostic::swagger(&document).into(),
            sections,
        }
    }

    /// What it costs to keep.
    pub fn weight(&self) -> u64 {
        let sections: usize = self.sections.iter().map(Bytes::len).sum();
        (sections + self.protobuf.len()) as u64
    }
}

fn hash(parts: &[&[u8]]) -> String {
    let mut hasher = Sha512::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
}

pub async fn off_the_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::internal("describing the API").because(error))
}
