//! The nouns of Mica: identifiers, names and the kinds we own. No I/O and no behaviour beyond parsing.

pub mod control_plane;
mod definition;
pub mod plane;
pub mod resource;
pub mod tenancy;

pub use plane::{PlaneId, PlaneName};
pub use resource::GroupResource;
