//! The encoded documents: built when somebody first asks, once for all planes, and kept.
//!
//! Building takes tens of milliseconds, so it happens off the reactor, and whoever asks meanwhile waits for the same result.
//! A document that root and planes have in common is held once; nothing here is per plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mica_machinery::kind::Resource;
use mica_machinery::openapi::{Api, ApiResource, gnostic};
use serde_json::Value;
use sha2::{Digest, Sha512};
use tokio::sync::OnceCell;

use super::describe::Descriptions;
use crate::error::ApiError;
use crate::version;

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

impl Document {
    fn new(document: &Value, to_protobuf: ToProtobuf) -> Self {
        let json = Bytes::from(serde_json::to_vec(document).expect("a value is JSON"));
        let hash = Sha512::digest(&json).iter().map(|byte| format!("{byte:02X}")).collect();
        Self {
            json,
            protobuf: OnceCell::new(),
            to_protobuf,
            hash,
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
}

/// OpenAPI 3.0 documents by name.
pub type Documents = BTreeMap<String, Arc<Document>>;

/// What one scheme serves, and its documents.
pub struct Described {
    resources: Vec<&'static Resource>,
    swagger: OnceCell<Document>,
}

impl Described {
    pub fn new(resources: Vec<&'static Resource>) -> Self {
        Self {
            resources,
            swagger: OnceCell::new(),
        }
    }

    /// The Swagger document of everything.
    pub async fn swagger(&self) -> Result<&Document, ApiError> {
        let build = || {
            let resources = self.resources.clone();
            off_the_reactor(move || describe(&resources, |api| Document::new(&api.swagger(), gnostic::swagger)))
        };
        self.swagger.get_or_try_init(build).await
    }
}

/// The OpenAPI 3.0 documents of root and of planes. Those that say the same are the same.
pub async fn documents(root: &Described, plane: &Described) -> Result<[Documents; 2], ApiError> {
    let (root, plane) = (root.resources.clone(), plane.resources.clone());
    off_the_reactor(move || {
        let build = |resources: &[&'static Resource]| -> Documents {
            let encode =
                |(name, document): (String, Value)| (name, Arc::new(Document::new(&document, gnostic::openapi3)));
            describe(resources, |api| api.documents().into_iter().map(encode).collect())
        };
        let plane = build(&plane);
        let mut root = build(&root);
        for (name, document) in &mut root {
            if let Some(same) = plane.get(name).filter(|same| same.hash == document.hash) {
                *document = same.clone();
            }
        }
        [root, plane]
    })
    .await
}

fn describe<T>(resources: &[&'static Resource], make: impl Fn(&Api<'_>) -> T) -> T {
    let resources: Vec<ApiResource> = resources
        .iter()
        .map(|resource| ApiResource::built_in(resource))
        .collect();
    let version = format!("{}.{}", version::MAJOR, version::MINOR);
    make(&Api {
        resources: &resources,
        describe: &Descriptions::of(&resources),
        version: &version,
    })
}

async fn off_the_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::internal("describing the API").because(error))
}
