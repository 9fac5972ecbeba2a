//! The documents of built-in kinds: built when somebody first asks, once for all planes, and kept.
//!
//! Building takes tens of milliseconds, so it happens off the reactor, and whoever asks meanwhile waits for the same result.
//! A document that root and planes of several profiles have in common is held once; nothing here is per plane.

use std::sync::Arc;

use mica_machinery::kind::Resource;
use mica_machinery::openapi::{Api, ApiResource, gnostic};
use tokio::sync::OnceCell;

use super::describe::Descriptions;
use super::document::{Document, Documents, Swagger, off_the_reactor};
use crate::error::ApiError;
use crate::version;

/// What one scheme serves, and its documents.
pub struct Described {
    resources: Vec<&'static Resource>,
    swagger: OnceCell<Arc<Swagger>>,
    /// Those of OpenAPI 3.0.
    documents: OnceCell<Documents>,
}

/// What is described already: by whom, and how.
pub type Built = (Vec<&'static Resource>, Documents);

impl Described {
    pub fn new(resources: Vec<&'static Resource>) -> Self {
        Self {
            resources,
            swagger: OnceCell::new(),
            documents: OnceCell::new(),
        }
    }

    /// What is built of OpenAPI 3.0, if it is.
    pub fn built(&self) -> Option<Built> {
        Some((self.resources.clone(), self.documents.get()?.clone()))
    }

    /// The OpenAPI 3.0 documents. What one of `others` says as well is taken from there.
    pub async fn documents(&self, others: impl FnOnce() -> Vec<Built>) -> Result<&Documents, ApiError> {
        let build = || {
            let (resources, others) = (self.resources.clone(), others());
            off_the_reactor(move || documents(&resources, &others))
        };
        self.documents.get_or_try_init(build).await
    }

    /// The Swagger document of everything.
    pub async fn swagger(&self) -> Result<&Arc<Swagger>, ApiError> {
        let build = || {
            let resources = self.resources.clone();
            off_the_reactor(move || {
                let resources = built_in(&resources);
                let describe = &Descriptions::of(&resources);
                let api = Api {
                    resources: &resources,
                    describe,
                    version: &kubernetes_minor(),
                };
                Arc::new(Swagger::new(&api.swagger()))
            })
        };
        self.swagger.get_or_try_init(build).await
    }
}

fn documents(resources: &[&'static Resource], others: &[Built]) -> Documents {
    let resources = built_in(resources);
    let descriptions = Descriptions::of(&resources);
    let version = kubernetes_minor();
    let describe = |resources| Api {
        resources,
        describe: &descriptions,
        version: &version,
    };
    let api = describe(&resources);
    let others: Vec<(Vec<ApiResource>, &Documents)> = others
        .iter()
        .map(|(resources, built)| (built_in(resources), built))
        .collect();
    let document = |name: &String| {
        // A document says what its group and version have, and nothing else.
        let same = others.iter().find_map(|(theirs, built)| {
            let same = describe(theirs).resources_of(name) == api.resources_of(name);
            built.get(name).filter(|_| same).cloned()
        });
        same.unwrap_or_else(|| {
            let document = api.document(name).expect("there is a document of each name");
            Arc::new(Document::new(&document, gnostic::openapi3))
        })
    };
    let names = api.names();
    names.into_iter().map(|name| (name.clone(), document(&name))).collect()
}

fn built_in(resources: &[&'static Resource]) -> Vec<ApiResource> {
    resources
        .iter()
        .map(|resource| ApiResource::built_in(resource))
        .collect()
}

/// As upstream puts it into documents: without a patch number.
fn kubernetes_minor() -> String {
    format!("{}.{}", version::MAJOR, version::MINOR)
}
