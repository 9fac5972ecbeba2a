//! What a plane's own definitions add to it: custom resources, loaded when the plane is used and shared by content.
//!
//! A definition that many planes hold is compiled once ([`Versions`], found by the hash of what it says), and planes with
//! the same definitions share one [`Set`]. A plane in use costs a pointer to its set and one revision: a write of an object
//! compares that its definition is no newer than that. One watch over the definitions of all planes keeps the cache true.
//!
//! Project planes also serve the definitions of root that are marked for projects ([`CONTEXTS`]), without a copy: their
//! writes compare root's record. A definition of the plane's own hides one of root's with the same name.

pub mod everywhere;
pub mod index;
pub mod rival;
mod set;
pub mod source;
pub mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use mica_api::{GroupResource, PlaneId};
use mica_store::{Compare, Key, PlaneKeys, Record, Revision, Store};

use crate::error::ApiError;
use crate::pages::Pages;
use crate::plane::cache::{Followed, PLANES};
use crate::plane::{Context, Plane};
use crate::scheme::{Scheme, Served};
use crate::stored::{Content, Stored};
use crate::tenancy::Viewer;
pub(crate) use set::Weakly;
use set::{Homed, Shared};
pub use set::{Set, Versions};

/// Definitions read at once: each may be large.
const PAGE: usize = 50;

/// The annotation of root's definitions that says in which planes they are served.
pub const CONTEXTS: &str = "discovery.miloapis.com/parent-contexts";

/// The resource whose objects are definitions.
pub fn definitions() -> GroupResource {
    GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Whether a change of a definition changes how its objects are served: what it says, or which names it has.
pub fn serves_otherwise(event: &mica_store::Event) -> bool {
    let said = |value: &bytes::Bytes| {
        let record = mica_store::Record {
            value: value.clone(),
            revision: event.revision,
        };
        let stored = crate::stored::Content::read(&record).ok()?.object()?;
        set::said(&stored).ok()
    };
    match (&event.previous, &event.change) {
        (Some(previous), mica_store::Change::Put(value)) => said(&previous.value) != said(value),
        _ => true,
    }
}

/// The definitions of all planes.
pub struct Definitions {
    store: Arc<dyn Store>,
    planes: Followed<Whose, Loaded>,
    shared: Shared,
}

/// Whose definitions are loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    Plane(PlaneId),
    /// What root defines for projects.
    Projects,
    /// What root defines for a view.
    View(Viewer),
}

/// What is kept of somebody's definitions.
#[derive(Clone, Debug)]
struct Loaded {
    set: Arc<Set>,
    /// The revision that they were read at; of two reads, the earlier one's.
    read_at: Revision,
}

/// What one plane's definitions are.
#[derive(Clone, Debug)]
pub struct Customs {
    keys: PlaneKeys,
    loaded: Loaded,
}

/// Where a definition is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    /// In the plane itself.
    Plane,
    /// In root, for all project planes.
    Root,
}

/// The definition that a resource is from, as it was read.
#[derive(Clone, Debug)]
pub struct Definition {
    versions: Arc<Versions>,
    key: Key,
    read_at: Revision,
}

impl Definition {
    pub fn versions(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.versions.served.iter()
    }

    /// The version that objects are stored in.
    pub fn storage(&self) -> Option<&Arc<Served>> {
        self.versions.storage()
    }

    /// A version, if clients may ask for it.
    pub fn offered(&self, version: &str) -> Option<&Arc<Served>> {
        self.versions.offered(version)
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether this record is still what was read.
    pub fn is(&self, record: &Record) -> bool {
        record.revision <= self.read_at
    }

    /// The comparison that every write of its objects carries.
    pub fn fence(&self) -> Compare {
        Compare::UnchangedSince(self.key.clone(), self.read_at)
    }
}

impl Definitions {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            planes: Followed::new(PLANES),
            shared: Shared::default(),
        }
    }

    /// What a plane's definitions add to it.
    pub async fn of(&self, plane: &Plane) -> Result<Customs, ApiError> {
        let load = async {
            let mut found = Found::default();
            if plane.context == Context::Project {
                self.read(Home::Root, PlaneKeys::ROOT, Wanted::InProjects, &mut found)
                    .await?;
            }
            self.read(Home::Plane, plane.keys(), Wanted::All, &mut found).await?;
            Ok(self.loaded(&plane.scheme, found))
        };
        self.kept(Whose::Plane(plane.id), plane.keys(), load).await
    }

    /// What root defines for projects: all that planes have in common.
    pub async fn platform(&self, scheme: &Arc<Scheme>) -> Result<Customs, ApiError> {
        let load = self.of_root(Wanted::InProjects, scheme);
        self.kept(Whose::Projects, PlaneKeys::ROOT, load).await
    }

    /// What root defines for a view.
    pub async fn shown_to(&self, viewer: Viewer, scheme: &Arc<Scheme>) -> Result<Customs, ApiError> {
        let load = self.of_root(Wanted::In(viewer), scheme);
        self.kept(Whose::View(viewer), PlaneKeys::ROOT, load).await
    }

    async fn kept(
        &self,
        whose: Whose,
        keys: PlaneKeys,
        load: impl Future<Output = Result<Loaded, ApiError>>,
    ) -> Result<Customs, ApiError> {
        let loaded = self.planes.get(&whose, async { load.await.map(Some) }).await?;
        let loaded = loaded.expect("a load gives something");
        Ok(Customs { keys, loaded })
    }

    /// Forgets what is loaded of a plane: its definitions changed, or a write found them stale.
    pub fn forget(&self, plane: PlaneId) {
        if plane == PlaneId::ROOT {
            // Root's may be served anywhere.
            self.planes.forget_all();
        }
        self.planes.forget(&Whose::Plane(plane));
    }

    async fn of_root(&self, wanted: Wanted, scheme: &Arc<Scheme>) -> Result<Loaded, ApiError> {
        let mut found = Found::default();
        self.read(Home::Root, PlaneKeys::ROOT, wanted, &mut found).await?;
        Ok(self.loaded(scheme, found))
    }

    fn loaded(&self, scheme: &Arc<Scheme>, found: Found) -> Loaded {
        Loaded {
            set: self.shared.set(scheme, found.by_name.into_values().collect()),
            read_at: found.read_at.expect("something was read"),
        }
    }

    /// Adds the definitions that a plane holds.
    async fn read(&self, home: Home, keys: PlaneKeys, wanted: Wanted, found: &mut Found) -> Result<(), ApiError> {
        let range = keys.resource(&definitions());
        let mut pages = Pages::new(&*self.store, &range, PAGE);
        while let Some(page) = pages.next().await? {
            for (key, record) in &page {
                // No base layer has definitions.
                let Some(stored) = Content::read(record)?.object() else {
                    continue;
                };
                if !wanted.has(&stored) {
                    continue;
                }
                let versions = self.shared.versions(key.name(), &stored).await?;
                let name = key.name().to_owned();
                found.by_name.insert(name, Homed { versions, home });
            }
        }
        // Of two reads the earlier counts: what changed between them is not known to be the same.
        let read_at = pages.revision();
        found.read_at = Some(found.read_at.map_or(read_at, |earlier| earlier.min(read_at)));
        Ok(())
    }

    /// Forgets planes as their definitions change, on whatever server that happens. Ends when the store closes.
    ///
    /// Nothing is cached while this does not run.
    pub async fn follow(&self) {
        let forget = |plane| self.forget(plane);
        self.planes
            .follow(&*self.store, &[definitions()], "definitions", forget)
            .await;
    }
}

/// Definitions that were read.
#[derive(Default)]
struct Found {
    by_name: BTreeMap<String, Homed>,
    read_at: Option<Revision>,
}

/// Which definitions of a plane are read.
#[derive(Clone, Copy)]
enum Wanted {
    All,
    /// Those that projects serve too.
    InProjects,
    /// Those that a view shows.
    In(Viewer),
}

impl Wanted {
    fn has(self, stored: &Stored) -> bool {
        match self {
            Self::All => true,
            Self::InProjects => is_for_projects(stored),
            Self::In(viewer) => is_shown_to(viewer, stored),
        }
    }
}

/// Whether a definition of root's is served in project planes.
pub fn is_for_projects(stored: &Stored) -> bool {
    is_in(stored, "Project") == Some(true)
}

/// Whether a definition's contexts name one; `None` if it says nothing about contexts.
fn is_in(stored: &Stored, context: &str) -> Option<bool> {
    let contexts = mica_machinery::select::text_at(stored.json(), &["metadata", "annotations", CONTEXTS])?;
    let mut named = contexts.split([',', ';']).map(str::trim);
    Some(named.any(|named| named == context || named == "*"))
}

/// Whether a definition of root's is served in a view. One that says nothing is, where its objects are in a namespace: that
/// is an organization's or not.
fn is_shown_to(viewer: Viewer, stored: &Stored) -> bool {
    let namespaced = || {
        mica_machinery::select::text_at(stored.json(), &["spec", "scope"]).is_some_and(|scope| scope == "Namespaced")
    };
    is_in(stored, viewer.context()).unwrap_or_else(|| viewer == Viewer::Organization && namespaced())
}

impl Customs {
    /// The resource at a path, if a definition serves it.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<(Arc<Served>, Definition)> {
        let at = self.set().position(group, plural)?;
        let served = self.set().definitions()[at].versions.offered(version)?;
        Some((served.clone(), self.definition(at)))
    }

    /// The plane's own definition of this name.
    fn own(&self, name: &str) -> Option<Definition> {
        let at = self.set().place(name)?;
        (self.set().definitions()[at].home == Home::Plane).then(|| self.definition(at))
    }

    /// The resource whose objects are stored under this name, as stored, whether clients may ask for it or not.
    pub fn by_storage(&self, storage: &str) -> Option<(Arc<Served>, Definition)> {
        let (group, plural) = storage.split_once('/')?;
        let at = self.set().position(group, plural)?;
        let served = self.set().definitions()[at].versions.storage()?.clone();
        Some((served, self.definition(at)))
    }

    pub fn set(&self) -> &Arc<Set> {
        &self.loaded.set
    }

    /// All definitions.
    pub fn definitions(&self) -> impl Iterator<Item = Definition> {
        (0..self.set().definitions().len()).map(|at| self.definition(at))
    }

    fn definition(&self, at: usize) -> Definition {
        let Homed { versions, home } = &self.set().definitions()[at];
        let keys = match home {
            Home::Plane => self.keys,
            Home::Root => PlaneKeys::ROOT,
        };
        Definition {
            key: keys.object(&definitions(), None, &versions.name),
            versions: versions.clone(),
            read_at: self.loaded.read_at,
        }
    }
}
