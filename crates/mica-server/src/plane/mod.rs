//! A control plane as requests see it: where its keys are, what it serves, whether it takes writes.

pub mod cache;
pub mod class;
pub mod directory;
pub mod drain;
pub mod kind;
pub mod lasting;
pub mod layer;
pub mod limits;
pub mod rebase;
pub mod side;
pub mod snapshot;
pub mod usage;

use std::sync::Arc;

use http::StatusCode;
use mica_api::{PlaneId, tenancy};
use mica_machinery::kind::Profile;
use mica_store::{Compare, Key, PlaneKeys, Record, Revision};

use crate::audit::plane::PlaneAudit;
use crate::authz::parent::Parent;
use crate::authz::{Grant, Target};
use crate::base::{BaseLayer, Birth, Layers};
use crate::error::ApiError;
use crate::request::Verb;
use crate::scheme::Scheme;
use crate::stored::{Content, Stored};
use class::Class;
use limits::Limits;

/// Whether a plane takes requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum State {
    Active,
    ReadOnly,
    Suspended,
    /// It is being filled from a snapshot or another plane.
    Restoring,
    /// It is being deleted: objects may go, hardly any may come.
    Draining,
}

/// What a plane is the plane of, which decides what of root is served in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub enum Context {
    /// Nothing but itself.
    #[default]
    Plane,
    /// A project: an address of its type leads here.
    Project,
}

/// One plane, as of the revisions it was read at. Cheap to share; kept in a bounded cache only.
#[derive(Debug)]
pub struct Plane {
    pub id: PlaneId,
    /// Empty for root.
    pub name: String,
    pub keys: PlaneKeys,
    pub scheme: Arc<Scheme>,
    /// Which built-in kinds that scheme has.
    pub profile: Profile,
    /// The layer that the plane was born with; marks among its own records lead to newer ones.
    pub base: Arc<BaseLayer>,
    pub layers: Arc<Layers>,
    pub birth: Birth,
    pub state: State,
    pub context: Context,
    /// What the plane belongs to.
    pub parent: Option<Parent>,
    pub class: Arc<Class>,
    /// Its own, or else those of its class.
    pub limits: Limits,
    /// What the plane itself wants to have written down.
    pub audit: Option<Arc<PlaneAudit>>,
    /// The record that says so. Every write compares it, so that no server writes to a plane that was suspended,
    /// moved or dropped before it heard.
    pub state_key: Key,
    pub state_revision: Revision,
    pub birth_key: Key,
}

impl Plane {
    pub fn is_root(&self) -> bool {
        self.id == PlaneId::ROOT
    }

    /// The project whose plane this is: its parent's name, or else what its own name says.
    pub fn project(&self) -> &str {
        let parent = self.parent.as_ref().filter(|parent| parent.kind == "Project");
        let named = || tenancy::project_of_plane(&self.name).unwrap_or(&self.name);
        parent.map_or_else(named, |parent| &parent.name)
    }

    /// What one of the plane's own records stands for.
    pub fn read(&self, key: &Key, record: &Record) -> Result<Own, ApiError> {
        Ok(match Content::read(record)? {
            Content::Object(stored) => Own::Object(stored),
            Content::Hidden => Own::Nothing,
            Content::Based(id) => {
                // Another server that shares the store has a layer that this one has not heard of yet.
                let layer = self.layers.get(&id).ok_or_else(|| {
                    ApiError::unavailable("this server does not know the base layer yet: try again shortly")
                        .with_retry_after(1)
                })?;
                let birth = Birth {
                    revision: record.revision,
                    ..self.birth.clone()
                };
                layer
                    .get(&key.group_resource(), key.rest(), &birth)
                    .map_or(Own::Nothing, Own::Based)
            }
        })
    }

    /// The comparison that every write to this plane carries.
    pub fn fence(&self) -> Compare {
        Compare::Unchanged(self.state_key.clone(), self.state_revision)
    }

    /// The further comparison of a write that copies an object out of the base layer.
    pub fn base_fence(&self) -> Compare {
        Compare::Unchanged(self.birth_key.clone(), self.birth.revision)
    }
}

/// What a plane's own record stands for.
pub enum Own {
    Object(Stored),
    /// An object of a base layer.
    Based(Stored),
    Nothing,
}

impl Own {
    pub fn object(self) -> Option<Stored> {
        match self {
            Self::Object(stored) | Self::Based(stored) => Some(stored),
            Self::Nothing => None,
        }
    }
}

/// Refuses what the plane's state refuses, with a Status that says why and what to do.
pub fn check_state(grant: &Grant) -> Result<(), ApiError> {
    let plane = &grant.target.plane;
    let reads = matches!(grant.verb, Verb::Get | Verb::List | Verb::Watch);
    let refuse = |reason: &'static str, why: &str| {
        let message = format!("control plane \"{}\" is {why}", plane.name);
        Err(ApiError::new(StatusCode::FORBIDDEN, reason, message))
    };
    match plane.state {
        State::Active => Ok(()),
        State::ReadOnly if reads => Ok(()),
        State::ReadOnly => refuse("PlaneReadOnly", "read-only: set spec.state to Active to allow writes"),
        State::Suspended if plane.context == Context::Project => Err(ApiError::project_suspended(plane.project())),
        State::Suspended => refuse("PlaneSuspended", "suspended: set spec.state to Active to resume it"),
        State::Restoring => refuse("PlaneRestoring", "being restored: try again when it is complete"),
        State::Draining if grant.verb != Verb::Create || welcome_while_draining(&grant.target) => Ok(()),
        State::Draining => refuse("PlaneDraining", "being deleted: new objects are refused"),
    }
}

/// Kinds that may still be created while a plane drains: those that finalizers' controllers need to finish.
fn welcome_while_draining(target: &Target) -> bool {
    let (group, plural) = (target.served.group(), target.served.plural());
    matches!(
        group,
        "authentication.k8s.io" | "authorization.k8s.io" | "events.k8s.io" | "coordination.k8s.io"
    ) || (group.is_empty() && plural == "events")
        || target.subresource == "token"
}
