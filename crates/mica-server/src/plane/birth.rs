//! What a plane was born from, as root keeps it: the base layer, what uids follow from, and where the plane came from.

use mica_machinery::kind::Profile;
use mica_store::Revision;
use serde::{Deserialize, Serialize};

use super::Arrival;
use crate::base::Seed;

/// What a plane was born from, as stored.
#[derive(Clone, Serialize, Deserialize)]
pub struct BirthRecord {
    pub(super) name: String,
    pub(super) base: String,
    pub(super) seed: Seed,
    pub(super) created: jiff::Timestamp,
    /// Root has none: it has what the server was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) profile: Option<Profile>,
    /// What base objects are shown with, where that is not this record's revision: they came from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<Revision>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arrival: Option<Arrival>,
}

impl BirthRecord {
    /// The same birth for a copy, which is no plane that came from elsewhere.
    #[must_use]
    pub fn copied(self) -> Self {
        Self {
            kept: None,
            arrival: None,
            ..self
        }
    }

    /// The same birth where base objects keep the revision that they had.
    #[must_use]
    pub fn keeping(self, revision: Option<Revision>) -> Self {
        Self {
            kept: revision,
            ..self.copied()
        }
    }

    pub fn arrival(&self) -> Option<Arrival> {
        self.arrival
    }

    #[must_use]
    pub fn arrived(self, arrival: Arrival) -> Self {
        Self {
            arrival: Some(arrival),
            ..self
        }
    }

    /// The profile that the plane was born with, if that was written down.
    pub fn profile(&self) -> Option<Profile> {
        self.profile
    }

    /// The id of the layer that the plane was born with.
    pub fn base(&self) -> &str {
        &self.base
    }
}
