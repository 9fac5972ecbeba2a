//! A custom resource over all planes: which definition each object is shown by, and what is left out.
//!
//! Definitions are tenants', so no two planes need agree on what a resource is, and no plane may decide what is seen of
//! another's. Each object is shown by the definition of its own plane; the answer as a whole (its kind, columns and
//! selectable fields) is shaped by the platform's definition if there is one, else by that of the first plane.
//!
//! Left out is what its plane does not serve in the version asked for, what only a webhook of a tenant's could convert (no
//! tenant is called, let alone waited for, on behalf of others), and what cannot be shown at all. Whether an object is
//! left out depends on what is stored, never on how somebody's webhook is today: lists and watches agree.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use mica_api::PlaneId;
use mica_machinery::kind::custom::CustomKind;
use mica_machinery::select::text_at;
use mica_store::{Key, PlaneKeys};

use super::{Customs, Definition, Definitions, Whose, definitions, index};
use crate::error::ApiError;
use crate::pages::Pages;
use crate::plane::directory::Directory;
use crate::plane::{Context, Plane};
use crate::registry::{Registry, Unpresentable, converts_by_webhook, restated};
use crate::scheme::Served;
use crate::stored::{Content, Stored};

/// Records of the index read at once. Most often the first one answers.
const PAGE: usize = 100;
/// Planes whose objects are made ready at once.
const PLANES_AT_ONCE: usize = 8;

/// A custom resource of a version, over all planes.
pub struct Everywhere {
    definitions: Arc<Definitions>,
    directory: Arc<Directory>,
    shape: Arc<Served>,
    /// What shapes answers, if that is the platform's.
    platform: Option<Definition>,
}

/// What the objects of a plane are shown by.
struct Shower {
    served: Arc<Served>,
    definition: Definition,
    /// The plane, where the definition is the platform's: its webhook is asked, in the name of the plane.
    plane: Option<Arc<Plane>>,
}

impl Everywhere {
    /// The resource at a path over all planes, if anybody serves it.
    pub async fn find(
        definitions: &Arc<Definitions>,
        directory: &Arc<Directory>,
        (group, version, plural): (&str, &str, &str),
    ) -> Result<Option<Self>, ApiError> {
        let made = |shape, platform| Self {
            definitions: definitions.clone(),
            directory: directory.clone(),
            shape,
            platform,
        };
        let platform = definitions.platform(directory.plane_scheme()).await?;
        if let Some((shape, definition)) = platform.find(group, version, plural) {
            return Ok(Some(made(shape, Some(definition))));
        }
        let name = format!("{plural}.{group}");
        let range = index::servers(&name);
        let mut pages = Pages::new(&*definitions.store, &range, PAGE);
        while let Some(page) = pages.next().await? {
            let servers = page.iter();
            for plane in servers.filter_map(|(record, _)| index::server(record, version)) {
                // What is served in root is served nowhere else.
                if plane != PlaneId::ROOT
                    && let Some(own) = definitions.own(plane, &name, version).await?
                    && let Some(shape) = own.offered(version)
                {
                    return Ok(Some(made(shape.clone(), None)));
                }
            }
        }
        Ok(None)
    }

    /// How answers as a whole are shaped.
    pub fn shape(&self) -> &Arc<Served> {
        &self.shape
    }

    /// What shapes answers, if that is the platform's and no tenant's.
    pub fn platform(&self) -> Option<&Definition> {
        self.platform.as_ref()
    }

    fn kind(&self) -> &CustomKind {
        self.shape
            .custom_kind()
            .expect("only custom resources differ between planes")
    }

    /// What a plane's objects are shown by; `None` if it does not serve them.
    async fn shower(&self, plane: PlaneId) -> Result<Option<Shower>, ApiError> {
        if plane == PlaneId::ROOT {
            return Ok(None);
        }
        let kind = self.kind();
        let name = format!("{}.{}", kind.plural, kind.group);
        // A definition of the plane's own hides the platform's.
        if let Some(own) = self.definitions.own(plane, &name, &kind.version).await? {
            return Ok(own.offered(&kind.version).cloned().map(|served| Shower {
                served,
                definition: own,
                plane: None,
            }));
        }
        let Some(plane) = self.directory.by_id(plane).await? else {
            return Ok(None);
        };
        if plane.context != Context::Project {
            return Ok(None);
        }
        let platform = self.definitions.platform(self.directory.plane_scheme()).await?;
        let found = platform.find(&kind.group, &kind.version, &kind.plural);
        Ok(found.map(|(served, definition)| Shower {
            served,
            definition,
            plane: Some(plane),
        }))
    }

    /// Objects of many planes as this answer shows them, in the same order, without those that are left out.
    pub(crate) async fn show(
        &self,
        registry: &Registry,
        items: Vec<(Key, Stored)>,
    ) -> Result<Vec<(Key, Stored)>, ApiError> {
        let mut groups: Vec<(PlaneId, Vec<(Key, Stored)>)> = Vec::new();
        for (key, stored) in items {
            let plane = key.plane();
            match groups.last_mut() {
                Some((last, group)) if *last == plane => group.push((key, stored)),
                _ => groups.push((plane, vec![(key, stored)])),
            }
        }
        let shown = stream::iter(groups).map(|(plane, group)| async move {
            match self.shower(plane).await? {
                Some(shower) => shower.show(registry, group).await,
                None => Ok(Vec::new()),
            }
        });
        let shown: Vec<Vec<(Key, Stored)>> = shown.buffered(PLANES_AT_ONCE).try_collect().await?;
        Ok(shown.into_iter().flatten().collect())
    }

    /// An object before and after a change, as this answer shows it.
    ///
    /// A deletion is always told: who saw the object must not keep it because its plane stopped to serve it meanwhile.
    pub(crate) async fn show_change(
        &self,
        registry: &Registry,
        key: &Key,
        before: Option<Stored>,
        after: Option<Stored>,
    ) -> Result<(Option<Stored>, Option<Stored>), ApiError> {
        if key.plane() == PlaneId::ROOT {
            return Ok((None, None));
        }
        let shower = self.shower(key.plane()).await?;
        let show = async |stored: &Option<Stored>| match (&shower, stored) {
            (Some(shower), Some(stored)) => shower.show_one(registry, key, stored.clone()).await,
            _ => Ok(None),
        };
        let mut shown = (show(&before).await?, show(&after).await?);
        if let (Some(gone), None, None) = (&before, &after, &shown.0) {
            shown.0 = Some(restated(&self.shape, gone)?);
        }
        Ok(shown)
    }
}

impl Shower {
    /// Whether only a webhook of a tenant's could show this object.
    fn needs_a_tenant(&self, stored: &Stored) -> bool {
        let Some(kind) = self.served.custom_kind() else {
            return false;
        };
        self.plane.is_none()
            && converts_by_webhook(kind)
            && text_at(stored.json(), &["apiVersion"]).is_none_or(|version| version != self.served.api_version)
    }

    /// Objects of one plane, without those that are left out.
    async fn show(&self, registry: &Registry, items: Vec<(Key, Stored)>) -> Result<Vec<(Key, Stored)>, ApiError> {
        let (plane, served, definition) = (self.plane.as_deref(), &self.served, Some(&self.definition));
        let wanted = items.into_iter().filter(|(_, stored)| !self.needs_a_tenant(stored));
        let wanted: Vec<(Key, Stored)> = wanted.collect();
        match registry.present_all(plane, served, definition, wanted.clone()).await {
            Err(error) if Unpresentable::is_why(&error) => {}
            shown => return shown,
        }
        // One of them is what no version of its definition can be: the others do not go with it.
        let mut shown = Vec::new();
        for item in wanted {
            match registry.present_all(plane, served, definition, vec![item]).await {
                Ok(one) => shown.extend(one),
                Err(error) if Unpresentable::is_why(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(shown)
    }

    /// One object of a change, which others may be watching too: a webhook is asked once for all.
    async fn show_one(&self, registry: &Registry, key: &Key, stored: Stored) -> Result<Option<Stored>, ApiError> {
        let Some(plane) = &self.plane else {
            let shown = self.show(registry, vec![(key.clone(), stored)]).await?;
            return Ok(shown.into_iter().next().map(|(_, stored)| stored));
        };
        let shown = registry.present_event(plane, &self.served, Some(&self.definition), key, stored);
        match shown.await {
            Ok(shown) => Ok(Some(shown)),
            Err(error) if Unpresentable::is_why(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Definitions {
    /// The definition of this name that a plane has of its own, and nothing else of that plane.
    ///
    /// Reads over all planes come by every plane: loading all that each defines would fill the cache with planes that
    /// nobody uses. What is in the cache may be behind the object that is asked about, so it counts only if it serves the
    /// version.
    async fn own(&self, plane: PlaneId, name: &str, version: &str) -> Result<Option<Definition>, ApiError> {
        let keys = PlaneKeys::new(plane);
        let loaded = self
            .planes
            .peek(&Whose::Plane(plane))
            .map(|loaded| Customs { keys, loaded })
            .and_then(|customs| customs.own(name));
        if let Some(loaded) = loaded.filter(|loaded| loaded.offered(version).is_some()) {
            return Ok(Some(loaded));
        }
        let key = keys.object(&definitions(), None, name);
        let Some(record) = self.store.get(&key).await? else {
            return Ok(None);
        };
        let Some(stored) = Content::read(&record)?.object() else {
            return Ok(None);
        };
        Ok(Some(Definition {
            versions: self.shared.versions(name, &stored).await?,
            key,
            read_at: record.revision,
        }))
    }
}
