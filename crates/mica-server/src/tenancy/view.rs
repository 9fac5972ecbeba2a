//! The views of root: what an organization, or a user, sees of it at an address of its own.
//!
//! A view has no store. It serves fewer kinds ([`Viewer::offers`], and definitions by their contexts), and of those only what
//! lies within it. A kind that nobody can confine is not served at all: what is missing in a view is an inconvenience, what
//! is too much in one is a leak.

use std::sync::Arc;

use mica_api::GroupResource;
use mica_api::tenancy::{self, GROUP, IAM_GROUP, MEMBERSHIPS, ORGANIZATIONS, PROJECTS, VERSION};
use mica_machinery::kind::Profile;
use mica_machinery::names::label_value;

use super::index::Relation;
use super::{Tenancy, Within, key, look};
use crate::authz::parent::Parent;
use crate::authz::{Beside, Realm, User};
use crate::error::ApiError;
use crate::pages::Pages;
use crate::request::{Address, Located, ResourcePath, Verb};
use crate::scheme::Served;
use crate::serve::Server;

/// Index records read at once.
const PAGE: usize = 100;

/// Whose view it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Viewer {
    Organization,
    User,
}

impl Viewer {
    pub const ALL: [Self; 2] = [Self::Organization, Self::User];

    /// As definitions name it in their contexts.
    pub fn context(self) -> &'static str {
        match self {
            Self::Organization => "Organization",
            Self::User => "User",
        }
    }

    /// Whether a built-in kind is served: in an organization what its namespace can hold.
    pub(crate) fn offers(self, served: &Served) -> bool {
        let about_oneself = match (served.group(), served.plural()) {
            ("authorization.k8s.io", plural) => plural.starts_with("selfsubject"),
            ("authentication.k8s.io", plural) => plural == "selfsubjectreviews",
            _ => false,
        };
        let generic = served.row().is_some_and(|row| row.profile == Profile::Generic);
        let held = (served.namespaced() && generic) || served.is_namespaces();
        about_oneself || (self == Self::Organization && held)
    }
}

/// One organization's or user's view of root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct View {
    pub viewer: Viewer,
    pub name: String,
}

impl View {
    pub fn of(address: &Address) -> Option<Self> {
        let (viewer, name) = match address {
            Address::Organization(name) => (Viewer::Organization, name),
            Address::User(name) => (Viewer::User, name),
            _ => return None,
        };
        Some(Self {
            viewer,
            name: name.clone(),
        })
    }

    /// What the view belongs to, as users carry it.
    fn parent(&self) -> Parent {
        let group = match self.viewer {
            Viewer::Organization => GROUP,
            Viewer::User => IAM_GROUP,
        };
        Parent {
            api_group: group.to_owned(),
            kind: self.viewer.context().to_owned(),
            name: self.name.clone(),
        }
    }

    /// What a request at root or at a view belongs to: a view, or the organization or user that it is about itself.
    pub fn parent_of(located: &Located) -> Option<Parent> {
        if let Some(view) = Self::of(&located.address) {
            return Some(view.parent());
        }
        let segments: Vec<&str> = located.segments.iter().map(AsRef::as_ref).collect();
        let (viewer, name) = match &segments[..] {
            ["apis", GROUP, VERSION, ORGANIZATIONS, name, ..] => (Viewer::Organization, name),
            ["apis", IAM_GROUP, VERSION, "users", name, ..] => (Viewer::User, name),
            _ => return None,
        };
        let view = Self {
            viewer,
            name: (*name).to_owned(),
        };
        (located.address == Address::Root).then(|| view.parent())
    }

    /// Refuses names that no label could hold: they would be in selectors and extras.
    pub fn check_name(&self) -> Result<(), ApiError> {
        match label_value(&self.name).first() {
            Some(problem) => Err(ApiError::bad_request(format!(
                "{:?} cannot be the name of a control plane: {problem}",
                self.name
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a view of what is not there. Asked after authorization: strangers must not learn which names are taken.
    pub async fn check_exists(&self, server: &Server) -> Result<(), ApiError> {
        // Users are kept elsewhere until their kind is served.
        if self.viewer == Viewer::User
            || look(&*server.store, &key(ORGANIZATIONS, None, &self.name))
                .await?
                .is_some()
        {
            return Ok(());
        }
        Err(self.missing(&self.name))
    }

    fn missing(&self, name: &str) -> ApiError {
        ApiError::not_found(&GroupResource::new(GROUP, ORGANIZATIONS), name)
    }

    /// Whether a request asks for what a view answers although its discovery does not show it: a user's organization, by name.
    pub fn is_own_organization(&self, path: &ResourcePath) -> bool {
        self.viewer == Viewer::User
            && path.group == GROUP
            && path.resource == ORGANIZATIONS
            && path.name.is_some()
            && path.subresource.is_none()
    }

    /// A request as it is meant in this view, and what must be true of the objects that it is about.
    pub fn narrow(
        &self,
        path: &ResourcePath,
        served: &Served,
        verb: Verb,
    ) -> Result<(ResourcePath, Option<Arc<Within>>), ApiError> {
        let mut path = path.clone();
        let within = match self.viewer {
            Viewer::Organization => self.in_organization(&mut path, served, verb)?,
            Viewer::User => self.of_user(&path, served, verb)?,
        };
        Ok((path, within.map(Arc::new)))
    }

    fn in_organization(
        &self,
        path: &mut ResourcePath,
        served: &Served,
        verb: Verb,
    ) -> Result<Option<Within>, ApiError> {
        let own = tenancy::organization_namespace(&self.name);
        let foreign = |name: &str| ApiError::not_found(&GroupResource::new("", "namespaces"), name);
        if served.namespaced() {
            if let Some(other) = path.namespace.as_deref().filter(|namespace| *namespace != own) {
                return Err(foreign(other));
            }
            path.namespace = Some(own.into());
            return Ok(None);
        }
        if served.is_namespaces() {
            if let Some(other) = path.name.as_deref().filter(|name| *name != own) {
                return Err(foreign(other));
            }
            if !matches!(verb, Verb::Get | Verb::List | Verb::Watch) {
                return Err(ApiError::method_not_allowed());
            }
            return Ok(Some(Within::Named(own)));
        }
        if served.custom_kind().is_none() {
            // About the asker, and about nothing that is stored.
            return Ok(None);
        }
        Ok(Some(match (served.group(), served.plural()) {
            (GROUP, PROJECTS) => Within::owned_by(&self.name),
            _ => Within::labelled(&self.name),
        }))
    }

    fn of_user(&self, path: &ResourcePath, served: &Served, verb: Verb) -> Result<Option<Within>, ApiError> {
        if served.custom_kind().is_none() {
            return Ok(None);
        }
        if self.is_own_organization(path) {
            return match verb {
                Verb::Get => Ok(None),
                _ => Err(ApiError::method_not_allowed()),
            };
        }
        let index = (served.group() == GROUP && served.plural() == MEMBERSHIPS).then_some(Relation::UserMemberships);
        Ok(Some(Within::about(&self.name, index)))
    }

    /// What lets a user do things in this view beside what root's roles say of all of root.
    pub fn beside(&self, user: &User, path: &ResourcePath) -> Beside {
        match self.viewer {
            Viewer::Organization if path.namespace.is_none() => {
                Beside::Namespace(tenancy::organization_namespace(&self.name))
            }
            Viewer::User if self.is(user) && path.group == GROUP => Beside::Own,
            _ => Beside::Nothing,
        }
    }

    /// Whether this is the user's own view. Users are known by their uid, and where they have none by their name.
    fn is(&self, user: &User) -> bool {
        let identity = if user.uid.is_empty() { &user.name } else { &user.uid };
        user.realm == Realm::Platform && !user.is_anonymous() && *identity == self.name
    }

    /// Refuses an organization that the user of this view is no member of, as if it were not there.
    pub async fn check_membership(&self, server: &Server, organization: &str) -> Result<(), ApiError> {
        let namespace = tenancy::organization_namespace(organization);
        let range = Relation::UserMemberships.range(&self.name);
        let mut pages = Pages::new(&*server.store, &range, PAGE);
        while let Some(page) = pages.next().await? {
            for (record, _) in &page {
                let membership = Relation::UserMemberships.object(record);
                if membership.namespace() == Some(namespace.as_str()) {
                    return Ok(());
                }
            }
        }
        Err(self.missing(organization))
    }
}

impl Server {
    /// Whether this server has views.
    pub(crate) fn has_views(&self) -> bool {
        self.tenancy == Tenancy::Served
    }
}
