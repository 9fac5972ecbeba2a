//! What a plane serves: every resource, found by group, version and plural.
//!
//! Two schemes exist in a process: root's, which has the kinds of the platform too, and the one that all planes share.

use std::collections::HashMap;
use std::sync::Arc;

use mica_api::GroupResource;
use mica_machinery::facts::{TypeId, facts};
use mica_machinery::kind::{self, Profile, Resource, Scope, Strategy};
use xxhash_rust::xxh3::xxh3_64;

/// One resource of one group and version, ready to be served.
#[derive(Debug)]
pub struct Served {
    pub resource: &'static Resource,
    /// As in the request's path, for messages.
    pub name: GroupResource,
    /// Where its objects are stored.
    pub storage: GroupResource,
    /// The type clients read and write.
    pub ty: TypeId,
    /// The type that is stored: the same, but for kinds with two faces.
    pub stored_ty: TypeId,
    pub api_version: String,
    /// `{"kind":"…","apiVersion":"…",`: what precedes a stored object's JSON.
    pub head: Box<[u8]>,
    /// Hash of everything that decides how this resource's objects are normalised.
    pub normaliser: u64,
}

impl Served {
    fn new(resource: &'static Resource) -> Self {
        let (group, version, kind) = (resource.group, resource.version, resource.kind);
        let known = |group, version, kind| match kind {
            // Metadata of other kinds' objects, whatever group it is served in.
            "PartialObjectMetadata" => facts().well_known().partial_object_metadata,
            _ => facts()
                .kind(group, version, kind)
                .unwrap_or_else(|| panic!("{group}/{version} {kind} is in the fact table")),
        };
        let ty = known(group, version, kind);
        let (stored_group, stored_ty) = match &resource.stored_as {
            Some(stored) => (stored.group, known(stored.group, stored.version, stored.kind)),
            None => (group, ty),
        };
        let api_version = join_version(group, version);
        let head = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","#);
        Self {
            resource,
            name: GroupResource::new(group, resource.plural),
            storage: GroupResource::new(stored_group, resource.plural),
            ty,
            stored_ty,
            normaliser: xxh3_64(format!("{NORMALISER}/{group}/{version}/{kind}").as_bytes()),
            head: head.into_bytes().into_boxed_slice(),
            api_version,
        }
    }

    pub fn kind(&self) -> &'static str {
        self.resource.kind
    }

    pub fn list_kind(&self) -> String {
        format!("{}List", self.resource.kind)
    }

    /// Whether this is the core kind Namespace, which the deletion of others depends on.
    pub fn is_namespaces(&self) -> bool {
        self.resource.group.is_empty() && self.resource.kind == "Namespace"
    }

    pub fn namespaced(&self) -> bool {
        self.resource.scope == Scope::Namespaced
    }

    pub fn strategy(&self) -> &'static dyn Strategy {
        self.resource.strategy
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.resource.verbs.contains(&verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&'static kind::Subresource> {
        self.resource
            .subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    /// Whether empty lists and maps are lost when objects are stored, as in upstream's protobuf. Extensions are stored as
    /// JSON there.
    pub fn forgets_empty(&self) -> bool {
        facts().ty(self.stored_ty).protobuf
            && !matches!(self.resource.group, "apiextensions.k8s.io" | "apiregistration.k8s.io")
    }

    /// Whether what is stored is, but for kind and apiVersion, what clients get.
    pub fn stores_as_served(&self) -> bool {
        self.ty == self.stored_ty
    }
}

/// Raised when built-in kinds are normalised or defaulted in another way than before: older objects then take the parse path.
const NORMALISER: u32 = 1;

/// `group/version`, or `version` for the core group.
pub fn join_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

#[derive(Debug)]
pub struct Scheme {
    served: Vec<Arc<Served>>,
    /// Group, version and plural to index.
    index: HashMap<(&'static str, &'static str, &'static str), usize>,
}

impl Scheme {
    pub fn new(profile: Profile, own: &[&'static Resource]) -> Self {
        let built_in = kind::resources().iter().filter(|resource| resource.profile <= profile);
        let served: Vec<Arc<Served>> = built_in
            .chain(own.iter().copied())
            .map(|r| Arc::new(Served::new(r)))
            .collect();
        let index = served
            .iter()
            .enumerate()
            .map(|(i, served)| {
                (
                    (served.resource.group, served.resource.version, served.resource.plural),
                    i,
                )
            })
            .collect();
        Self { served, index }
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.index.get(&(group, version, plural)).map(|i| &self.served[*i])
    }

    pub fn has_group(&self, group: &str) -> bool {
        self.served.iter().any(|served| served.resource.group == group)
    }

    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.served
            .iter()
            .any(|served| served.resource.group == group && served.resource.version == version)
    }

    /// Every resource, in discovery order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    /// The resource that objects of a kind belong to.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Served>> {
        self.served.iter().find(|served| {
            let resource = served.resource;
            (resource.group, resource.version, resource.kind) == (group, version, kind)
        })
    }

    /// The resource whose objects are stored under this name, as stored.
    pub fn by_storage(&self, storage: &str) -> Option<&Arc<Served>> {
        self.served
            .iter()
            .find(|served| served.storage.as_key() == storage && served.stores_as_served())
    }
}
