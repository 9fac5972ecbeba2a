//! Documents of custom resources, shared by all planes that have the same definitions, and let go when room is needed.
//!
//! Nothing here is per plane. What a set of definitions has is found by the set's hash; a document by the hash of the resources
//! that it is about, so that sets that differ elsewhere share it. Definitions are read again when a document was let go:
//! keeping them costs more than building it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mica_machinery::openapi::custom::{self, ContentHash, CustomResource};
use mica_machinery::openapi::gnostic;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::Value;

use super::describe::Descriptions;
use super::document::{Added, Document, Swagger, off_the_reactor};
use crate::error::ApiError;

/// Indexes kept, of as many sets of definitions: some hundred bytes for each group and version.
const INDEXES: usize = 10_000;
/// Bytes of OpenAPI 3.0 documents that are kept: a few hundred of them.
const DOCUMENT_BYTES: u64 = 64 << 20;
/// Bytes of additions to Swagger documents that are kept.
const SWAGGER_BYTES: u64 = 32 << 20;

/// What a plane's definitions are.
#[async_trait]
pub trait Source: Send + Sync {
    /// What tells this set of definitions, and the built-in kinds beside them, from others. None: there are no definitions.
    fn hash(&self) -> Option<[u8; 32]>;

    /// The definitions that are served, exactly as of the hash.
    async fn read(&self) -> Result<Vec<Value>, ApiError>;
}

/// There are none.
#[cfg(test)]
pub struct NoDefinitions;

#[cfg(test)]
#[async_trait]
impl Source for NoDefinitions {
    fn hash(&self) -> Option<[u8; 32]> {
        None
    }

    async fn read(&self) -> Result<Vec<Value>, ApiError> {
        Ok(Vec::new())
    }
}

/// One document of a set of definitions.
#[derive(Clone, Debug)]
pub struct Entry {
    content: ContentHash,
    /// Of the document.
    pub hash: String,
}

/// The OpenAPI 3.0 documents of a set of definitions, by name.
pub type Index = BTreeMap<String, Entry>;

pub struct CustomDocuments {
    indexes: Cache<[u8; 32], Arc<Index>>,
    documents: Cache<ContentHash, Arc<Document>, Weight>,
    swaggers: Cache<[u8; 32], Arc<Added>, Weight>,
}

#[derive(Clone)]
struct Weight;

impl<K> Weighter<K, Arc<Document>> for Weight {
    fn weight(&self, _key: &K, document: &Arc<Document>) -> u64 {
        document.weight()
    }
}

impl<K> Weighter<K, Arc<Added>> for Weight {
    fn weight(&self, _key: &K, added: &Arc<Added>) -> u64 {
        added.weight()
    }
}

impl Default for CustomDocuments {
    fn default() -> Self {
        Self {
            indexes: Cache::new(INDEXES),
            documents: Cache::with_weighter(500, DOCUMENT_BYTES, Weight),
            swaggers: Cache::with_weighter(50, SWAGGER_BYTES, Weight),
        }
    }
}

impl CustomDocuments {
    /// Which documents there are. Making it builds them all, because their addresses hold their hashes.
    pub async fn index(&self, definitions: &dyn Source) -> Result<Arc<Index>, ApiError> {
        let Some(hash) = definitions.hash() else {
            return Ok(Arc::default());
        };
        let build = async {
            let mut index = Index::new();
            for (name, (content, resources)) in by_version(definitions.read().await?).await? {
                let document = self.build(content, resources).await?;
                let hash = document.hash.clone();
                index.insert(name, Entry { content, hash });
            }
            Ok(Arc::new(index))
        };
        self.indexes.get_or_insert_async(&hash, build).await
    }

    /// The document of that name, if there is one.
    pub async fn document(&self, name: &str, definitions: &dyn Source) -> Result<Option<Arc<Document>>, ApiError> {
        let index = self.index(definitions).await?;
        let Some(entry) = index.get(name) else {
            return Ok(None);
        };
        if let Some(kept) = self.documents.get(&entry.content) {
            return Ok(Some(kept));
        }
        let mut versions = by_version(definitions.read().await?).await?;
        match versions.remove(name) {
            Some((content, resources)) => self.build(content, resources).await.map(Some),
            None => Ok(None),
        }
    }

    #[cfg(test)]
    pub fn let_documents_go(&self) {
        self.documents.clear();
    }

    async fn build(&self, content: ContentHash, resources: Vec<CustomResource>) -> Result<Arc<Document>, ApiError> {
        let build = off_the_reactor(move || {
            let document = custom::document(&resources, Descriptions::of_custom());
            Arc::new(Document::new(&document, gnostic::openapi3))
        });
        self.documents.get_or_insert_async(&content, build).await
    }

    /// What the definitions add to the Swagger document.
    pub async fn swagger(
        &self,
        definitions: &dyn Source,
        built_in: Arc<Swagger>,
    ) -> Result<Option<Arc<Added>>, ApiError> {
        let Some(hash) = definitions.hash() else {
            return Ok(None);
        };
        let build = async {
            let definitions = definitions.read().await?;
            off_the_reactor(move || {
                let resources: Vec<CustomResource> = definitions.iter().flat_map(CustomResource::served_by).collect();
                let addition = custom::addition(&resources, &built_in.taken, Descriptions::of_custom());
                Arc::new(Added::new(addition))
            })
            .await
        };
        self.swaggers.get_or_insert_async(&hash, build).await.map(Some)
    }
}

/// The resources of each group and version, by the name of their document, with the hash of all of them.
type Versions = BTreeMap<String, (ContentHash, Vec<CustomResource>)>;

async fn by_version(definitions: Vec<Value>) -> Result<Versions, ApiError> {
    off_the_reactor(move || {
        let mut versions: BTreeMap<String, Vec<CustomResource>> = BTreeMap::new();
        for resource in definitions.iter().flat_map(CustomResource::served_by) {
            let name = format!("apis/{}/{}", resource.group, resource.version);
            versions.entry(name).or_default().push(resource);
        }
        let hashed = |(name, mut resources): (String, Vec<CustomResource>)| {
            resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            let content = ContentHash::of(resources.iter().map(CustomResource::content_hash));
            (name, (content, resources))
        };
        versions.into_iter().map(hashed).collect()
    })
    .await
}
