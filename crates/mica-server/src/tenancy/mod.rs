//! Organizations and projects in root: installed as definitions, admitted by rules that take a look at other objects, and
//! shown to organizations and users as views of root.
//!
//! The kinds are custom resources of the platform; `docs/design/organizations.md` says why. What is here is what a schema
//! cannot say. Nothing here is done unless the server was made to serve them ([`Tenancy::Served`]).

pub mod index;
mod install;
mod view;
mod within;

use mica_api::GroupResource;
use mica_api::tenancy::{GROUP, MEMBERSHIPS, ORGANIZATIONS, PROJECTS, SUSPENSIONS};
use mica_store::{Key, PlaneKeys, Record, Store};

use crate::error::ApiError;
use crate::scheme::Served;
use crate::stored::{Content, Stored};

pub(crate) use view::View;
pub use view::Viewer;
pub use within::Within;

/// Whether a server serves organizations and projects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tenancy {
    /// Root is a control plane as any other.
    #[default]
    Absent,
    Served,
}

/// The kinds that have rules here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Organization,
    Membership,
    Project,
    Suspension,
}

impl Kind {
    pub(crate) fn of(served: &Served) -> Option<Self> {
        if served.group() != GROUP {
            return None;
        }
        match served.plural() {
            ORGANIZATIONS => Some(Self::Organization),
            MEMBERSHIPS => Some(Self::Membership),
            PROJECTS => Some(Self::Project),
            SUSPENSIONS => Some(Self::Suspension),
            _ => None,
        }
    }
}

pub(crate) fn resource(plural: &str) -> GroupResource {
    GroupResource::new(GROUP, plural)
}

pub(crate) fn key(plural: &str, namespace: Option<&str>, name: &str) -> Key {
    PlaneKeys::ROOT.object(&resource(plural), namespace, name)
}

/// Where the namespace of an organization is.
pub(crate) fn namespace_key(namespace: &str) -> Key {
    PlaneKeys::ROOT.object(&GroupResource::new("", "namespaces"), None, namespace)
}

/// The object at a key of root, and its record.
pub(crate) async fn look(store: &dyn Store, key: &Key) -> Result<Option<(Record, Stored)>, ApiError> {
    let Some(record) = store.get(key).await? else {
        return Ok(None);
    };
    let stored = Content::read(&record)?.object();
    Ok(stored.map(|stored| (record, stored)))
}

/// Whether an object is on its way out.
pub(crate) fn is_leaving(stored: &Stored) -> bool {
    mica_machinery::select::text_at(stored.json(), &["metadata", "deletionTimestamp"]).is_some()
}
