//! Who may do what. Makes the [`Grant`] without which nothing reaches the registry.
//!
//! Until per-plane policies exist, one identity is let in: the platform's administrators (group `system:masters` of the
//! platform's realm). Everybody else is refused.

use std::sync::Arc;

use compact_str::CompactString;
use mica_api::GroupResource;

use crate::authn::is_public;
use crate::custom::Definition;
use crate::error::ApiError;
use crate::plane::Plane;
use crate::request::{Query, ResourcePath, Verb};
use crate::scheme::Served;

/// Who asks, proven by authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

pub const ANONYMOUS: &str = "system:anonymous";
const MASTERS: &str = "system:masters";

impl User {
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// The server itself, for the loops that run inside it.
    pub fn system() -> Self {
        Self {
            name: "system:apiserver".to_owned(),
            groups: vec![MASTERS.to_owned()],
            ..Self::default()
        }
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// What a request is about: a resource of a plane, and perhaps one object and one of its subresources.
#[derive(Clone, Debug)]
pub struct Target {
    pub plane: Arc<Plane>,
    pub served: Arc<Served>,
    /// The namespace asked for; `None` for cluster-scoped resources and for all namespaces.
    pub namespace: Option<CompactString>,
    pub name: Option<CompactString>,
    /// Empty for the object itself.
    pub subresource: CompactString,
    /// What defines the resource, if it is a custom one.
    pub definition: Option<Definition>,
}

impl Target {
    pub fn object(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// Permission to do one thing to one target. Only this module makes one.
#[derive(Clone, Debug)]
#[expect(
    clippy::manual_non_exhaustive,
    reason = "modules of this crate must not make one either"
)]
pub struct Grant {
    pub target: Target,
    pub verb: Verb,
    pub user: Arc<User>,
    _made_by_authorization: (),
}

impl Grant {
    /// The same permission for another object of the same collection: what deletecollection does to each.
    #[must_use]
    pub fn for_object(&self, namespace: Option<&str>, name: &str) -> Self {
        let mut grant = self.clone();
        grant.target.namespace = namespace.map(CompactString::from);
        grant.target.name = Some(name.into());
        grant
    }
}

/// A decision in favour of a request, before it is known whether what it asks for exists.
pub struct Permit {
    user: Arc<User>,
    verb: Verb,
}

impl Permit {
    /// The grant for what the request turned out to be about.
    pub fn grant(self, target: Target) -> Grant {
        Grant {
            target,
            verb: self.verb,
            user: self.user,
            _made_by_authorization: (),
        }
    }
}

/// Decides about a request for a resource, whether that exists or not: strangers must not learn which.
pub fn authorize(user: &Arc<User>, verb: Verb, path: &ResourcePath, query: &Query) -> Result<Permit, ApiError> {
    if user.is_administrator() {
        return Ok(Permit {
            user: user.clone(),
            verb,
        });
    }
    let place = match &path.namespace {
        Some(namespace) => format!(" in the namespace \"{namespace}\""),
        None => " at the cluster scope".to_owned(),
    };
    let shown = match &path.subresource {
        Some(subresource) => format!("{}/{subresource}", path.resource),
        None => path.resource.to_string(),
    };
    let why = format!(
        "User {} cannot {} resource \"{shown}\" in API group \"{}\"{place}",
        mica_machinery::field::quote(&user.name),
        verb.as_str(),
        path.group
    );
    let resource = GroupResource::new(&path.group, &path.resource);
    Err(ApiError::forbidden(
        &resource,
        &path.about(query).unwrap_or_default(),
        &why,
    ))
}

/// Decides about a request for a path that is no resource.
pub fn authorize_path(user: &User, method: &str, segments: &[impl AsRef<str>], path: &str) -> Result<(), ApiError> {
    if user.is_administrator() || (is_public(segments) && method == "GET") {
        return Ok(());
    }
    let verb = method.to_ascii_lowercase();
    Err(ApiError::forbidden_path(&format!(
        "User {} cannot {verb} path \"{path}\"",
        mica_machinery::field::quote(&user.name)
    )))
}

/// Permission that the server gives its own loops.
pub(crate) fn system(verb: Verb, target: Target) -> Grant {
    Grant {
        target,
        verb,
        user: Arc::new(User::system()),
        _made_by_authorization: (),
    }
}
