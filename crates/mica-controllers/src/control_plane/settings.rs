//! What the operator of control planes is told when it starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Home;
use crate::census::Census;
use crate::dedicated::Provider;
use crate::migration::DRAIN;
use crate::turn::Turn;

/// How long credentials are good for unless told otherwise.
pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The shortest that servers issue.
pub const SHORTEST_LIFETIME: Duration = Duration::from_secs(600);

/// How control planes are run.
#[derive(Clone)]
pub struct Settings {
    /// The server that virtual control planes share.
    pub home: Home,
    /// Who runs servers for dedicated ones, found by their kind.
    pub providers: Vec<Arc<dyn Provider>>,
    /// A directory of addons: a folder of manifests each, or a file.
    pub addons: Option<PathBuf>,
    /// How long credentials are good for. They are renewed after two thirds of it.
    pub lifetime: Duration,
    /// How long the old address of a plane that moved passes requests on.
    pub drain: Duration,
    /// Where the server is, seen from the objects.
    pub server: Whereabouts,
    /// What is counted.
    pub census: Census,
}

/// Whether ControlPlanes are objects of the server that their planes are made on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// They are; so that is a Mica server, or nothing is done.
    Here,
    /// They may be any server's.
    Elsewhere,
}

impl Settings {
    /// With a server that is shared, and nothing else.
    pub fn new(home: Home) -> Self {
        Self {
            home,
            providers: Vec::new(),
            addons: None,
            lifetime: LIFETIME,
            drain: DRAIN,
            server: Whereabouts::Here,
            census: Census::default(),
        }
    }

    /// On another server than the one that holds the objects.
    #[must_use]
    pub fn elsewhere(self) -> Self {
        Self {
            server: Whereabouts::Elsewhere,
            ..self
        }
    }

    /// The same, with a server that is changed only in this turn.
    #[must_use]
    pub(crate) fn in_turn(self, turn: &Turn) -> Self {
        Self {
            home: self.home.in_turn(turn),
            ..self
        }
    }

    /// The provider of a kind.
    pub fn provider(&self, kind: &str) -> Option<&Arc<dyn Provider>> {
        self.providers.iter().find(|provider| provider.kind() == kind)
    }
}
