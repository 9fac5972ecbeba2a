//! A control plane as requests see it: where its keys are, what it serves, whether it takes writes.

pub mod birth;
pub mod born;
pub mod cache;
pub(crate) mod claim;
pub mod class;
pub mod digest;
pub mod directory;
pub mod drain;
pub mod kind;
pub mod lasting;
pub mod layer;
pub mod limits;
pub mod loud;
pub mod moved;
pub mod rebase;
pub mod side;
pub mod snapshot;
pub mod usage;

use std::sync::Arc;

use compact_str::CompactString;
use http::StatusCode;
use mica_api::{PlaneId, tenancy};
use mica_machinery::kind::Profile;
use mica_store::{Compare, Key, PlaneKeys, Record, Revision};

use crate::audit::plane::PlaneAudit;
use crate::authn::FrontProxy;
use crate::authz::parent::Parent;
use crate::authz::{Grant, Target};
use crate::base::{BaseLayer, Birth, Layers};
use crate::error::ApiError;
use crate::request::Verb;
use crate::scheme::Scheme;
use crate::stored::{self, Content, Stored};
use class::Class;
use limits::Limits;
use loud::Loud;
pub use moved::{MovedFrom, MovedTo};

/// When to ask again while a plane is moved, in seconds: writes wait no longer than it takes to send the last changes.
const RETRY_AFTER: u64 = 1;

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
    /// It is being filled from the server that it comes from, and not open yet.
    Arriving,
    /// It is about to go to another server: reads go on, writes wait.
    Moving,
    /// It is on another server now.
    Moved,
}

/// What the revisions of a plane's objects are, after it came from another server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Versions {
    /// As they were: what was read from the old server goes on here.
    Kept,
    /// The store's own: what was read from the old server says nothing here.
    New,
}

/// How a plane came from another server. `docs/design/moving-planes.md` says what follows from these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Arrival {
    /// The old server's revision of the whole copy; what came later came change by change.
    pub copied: Revision,
    /// This store's revision when the copy was whole.
    pub copied_at: Revision,
    /// The old server's revision of the last change.
    pub reached: Revision,
    /// This store's revision when the plane was opened: greater than any that the old server ever showed.
    pub opened: Revision,
    pub versions: Versions,
}

/// Where the changes after a version are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// After this revision of the store.
    Here(Revision),
    /// The version is the old server's. The changes that came with the plane are after `start`, up to `until`; those shown
    /// with `seen` or less are known.
    There {
        start: Revision,
        seen: Revision,
        until: Revision,
    },
    /// Nowhere: a reader has to start over. The oldest version that means something.
    Unknown(Revision),
}

/// What a plane is the plane of, which decides what of root is served in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub enum Context {
    /// Nothing but itself.
    #[default]
    Plane,
    /// A project: an address of its type leads here.
    Project,
    /// A ControlPlane, which it says to belong to.
    ControlPlane,
}

impl Context {
    pub const ALL: [Self; 3] = [Self::Plane, Self::Project, Self::ControlPlane];
}

/// One plane, as of the revisions it was read at. Cheap to share; kept in a bounded cache, which may hold very many, and by
/// connections that last asked for it. What only some planes have is [`Uncommon`].
#[derive(Debug)]
pub struct Plane {
    pub id: PlaneId,
    /// Empty for root.
    pub name: CompactString,
    pub scheme: Arc<Scheme>,
    /// Which built-in kinds that scheme has.
    pub profile: Profile,
    /// The layer that the plane was born with; marks among its own records lead to newer ones.
    pub base: Arc<BaseLayer>,
    pub layers: Arc<Layers>,
    pub birth: Birth,
    pub state: State,
    pub context: Context,
    pub class: Arc<Class>,
    uncommon: Option<Box<Uncommon>>,
    /// Of the record at [`Self::state_key`].
    pub state_revision: Revision,
    /// The revision of the birth record, which base objects are shown with unless they came from elsewhere.
    pub birth_revision: Revision,
    /// Whether the plane asks for more than its turns.
    pub loud: Loud,
}

/// With the two counts of an [`Arc`], what the allocator gives for it.
const _: () = assert!(size_of::<Plane>() + 16 <= 192);

/// What only some planes have.
#[derive(Debug)]
struct Uncommon {
    parent: Option<Parent>,
    limits: Option<Box<Limits>>,
    audit: Option<Arc<PlaneAudit>>,
    arrival: Option<Box<Arrival>>,
    moved_to: Option<Box<MovedTo>>,
    moved_from: Option<Arc<FrontProxy>>,
}

/// Every project has a parent.
const _: () = assert!(size_of::<Uncommon>() <= 112);

impl Uncommon {
    /// Nothing, for a plane that has none of it.
    fn boxed(self) -> Option<Box<Self>> {
        let Self {
            parent,
            limits,
            audit,
            arrival,
            moved_to,
            moved_from,
        } = &self;
        let plain = parent.is_none()
            && limits.is_none()
            && audit.is_none()
            && arrival.is_none()
            && moved_to.is_none()
            && moved_from.is_none();
        (!plain).then(|| Box::new(self))
    }
}

impl Plane {
    pub fn is_root(&self) -> bool {
        self.id == PlaneId::ROOT
    }

    /// What makes its keys.
    pub fn keys(&self) -> PlaneKeys {
        PlaneKeys::new(self.id)
    }

    /// What the plane belongs to.
    pub fn parent(&self) -> Option<&Parent> {
        self.uncommon.as_ref()?.parent.as_ref()
    }

    /// What the plane itself wants to have written down.
    pub fn audit(&self) -> Option<&Arc<PlaneAudit>> {
        self.uncommon.as_ref()?.audit.as_ref()
    }

    /// How it came from another server, if it did.
    pub fn arrival(&self) -> Option<&Arrival> {
        self.uncommon.as_ref()?.arrival.as_deref()
    }

    /// Where it is now, if it has moved.
    pub fn moved_to(&self) -> Option<&MovedTo> {
        self.uncommon.as_ref()?.moved_to.as_deref()
    }

    /// Where it was before, if that server's word counts for what it passes on.
    pub fn moved_from(&self) -> Option<&FrontProxy> {
        self.uncommon.as_ref()?.moved_from.as_deref()
    }

    /// The project whose plane this is: its parent's name, or else what its own name says.
    pub fn project(&self) -> &str {
        let parent = self.parent().filter(|parent| parent.kind == "Project");
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
                    revision: stored::shown_revision(record),
                    ..self.birth
                };
                layer
                    .get(&key.group_resource(), key.rest(), &birth)
                    .map_or(Own::Nothing, Own::Based)
            }
        })
    }

    /// What bounds it: its own limits, or else those of its class.
    pub fn limits(&self) -> Limits {
        let own = self.uncommon.as_ref().and_then(|uncommon| uncommon.limits.as_deref());
        own.map_or(self.class.limits, |own| own.or(self.class.limits))
    }

    /// The record of its state. Every write compares it, so that no server writes to a plane that was suspended, moved or
    /// dropped before it heard.
    pub fn state_key(&self) -> Key {
        directory::state_key(self.id)
    }

    fn birth_key(&self) -> Key {
        directory::birth_key(self.id)
    }

    /// The comparison that every write to this plane carries.
    pub fn fence(&self) -> Compare {
        Compare::Unchanged(self.state_key(), self.state_revision)
    }

    /// The further comparison of a write that copies an object out of the base layer.
    pub fn base_fence(&self) -> Compare {
        Compare::Unchanged(self.birth_key(), self.birth_revision)
    }

    /// Where the changes after a version are that a client read from this plane, here or where it was before.
    pub fn since(&self, version: Revision) -> Since {
        let Some(arrival) = self.arrival().filter(|arrival| version < arrival.opened) else {
            return Since::Here(version);
        };
        match arrival.versions {
            Versions::New => Since::Unknown(arrival.opened),
            Versions::Kept if version >= arrival.reached => Since::Here(arrival.opened),
            Versions::Kept if version >= arrival.copied => Since::There {
                start: arrival.copied_at,
                seen: version,
                until: arrival.opened,
            },
            Versions::Kept => Since::Unknown(arrival.copied),
        }
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
    // Whoever is told so tries again soon, and finds the plane open or elsewhere.
    let wait = |code: StatusCode, reason: &'static str, why: &str| {
        let message = format!("control plane \"{}\" is {why}", plane.name);
        Err(ApiError::new(code, reason, message).with_retry_after(RETRY_AFTER))
    };
    match plane.state {
        State::Active => Ok(()),
        State::ReadOnly | State::Moving if reads => Ok(()),
        State::Moving => wait(
            StatusCode::TOO_MANY_REQUESTS,
            "PlaneMoving",
            "moving to another server: writes go on there in a moment",
        ),
        State::Arriving => wait(
            StatusCode::SERVICE_UNAVAILABLE,
            "PlaneArriving",
            "arriving from another server: it opens when it is complete",
        ),
        // Whoever comes to the old address still has to be known there.
        State::Moved if reads && grant.is_internal() => Ok(()),
        State::Moved => Err(moved::away(plane)),
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
