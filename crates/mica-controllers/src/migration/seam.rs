//! What the controller of control planes asks for until it gives a whole [`super::Case`]: planes stay where they are wanted.

use std::time::Duration;

use mica_api::control_plane::{Migration, Mode};

use crate::api::Refusal;
use crate::condition::Change;
use crate::control_plane::Home;

/// A control plane whose plane may have to move.
pub struct Move<'a> {
    pub name: &'a str,
    /// The ControlPlane's uid: what tells its plane from others of that name.
    pub uid: &'a str,
    pub cluster_path: &'a str,
    /// Where it is to be.
    pub wanted: Mode,
    pub shared: &'a Home,
    /// Its own server, if there is one and it answers.
    pub dedicated: Option<&'a Home>,
    /// What was reported last.
    pub reported: Option<&'a Migration>,
    pub now: &'a str,
}

/// Where the plane is, and how far its move.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Where the plane is served now: what clients are sent to.
    pub residence: Mode,
    /// What is reported of the move, if there is or was one.
    pub report: Option<Migration>,
    /// The condition `Migrated`.
    pub condition: Option<Change>,
    /// What happened: reasons and messages of events.
    pub told: Vec<(String, String)>,
    /// When to go on, if nothing else wakes before.
    pub again: Option<Duration>,
}

/// Takes the next step of a move, if there is one to take.
pub async fn advance(at: &Move<'_>) -> Result<Progress, Refusal> {
    Ok(Progress {
        residence: at.wanted,
        report: at.reported.cloned(),
        condition: None,
        told: Vec::new(),
        again: None,
    })
}
