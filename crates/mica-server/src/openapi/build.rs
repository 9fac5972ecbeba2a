//! The documents of built-in kinds: built when somebody first asks, once for all planes, and kept.
//!
//! Building takes tens of milliseconds, so it happens off the reactor, and whoever asks meanwhile waits for the same result.
//! A document that root and planes have in common is held once; nothing here is per plane.

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
}

impl Described {
    pub fn new(resources: Vec<&'static Resource>) -> Self {
        Self {
            resources,
            swagger: OnceCell::new(),
        }
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

/// The OpenAPI 3.0 documents of root and of planes. Those that say the same are the same.
pub async fn documents(root: &Described, plane: &Described) -> Result<[Documents; 2], ApiError> {
    let (root, plane) = (root.resources.clone(), plane.resources.clone());
    off_the_reactor(move || {
        let (root, plane) = (built_in(&root), built_in(&plane));
        let descriptions = Descriptions::of(root.iter().chain(&plane));
        let version = kubernetes_minor();
        let api = |resources| Api {
            resources,
            describe: &descriptions,
            version: &version,
        };
        let (root, plane) = (api(&root), api(&plane));
        let encode = |api: &Api<'_>, name: &str| {
            let document = api.document(name).expect("there is a document of each name");
            Arc::new(Document::new(&document, gnostic::openapi3))
        };
        let planes: Documents = plane
            .names()
            .into_iter()
            .map(|name| (name.clone(), encode(&plane, &name)))
            .collect();
        let share = |name: String| match planes.get(&name) {
            Some(same) if root.resources_of(&name) == plane.resources_of(&name) => (name, same.clone()),
            _ => (name.clone(), encode(&root, &name)),
        };
        [root.names().into_iter().map(share).collect(), planes]
    })
    .await
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
