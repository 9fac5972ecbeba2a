//! Servers of their own for dedicated control planes: what the operator asks of whoever runs them.
//!
//! A dedicated control plane is a plane of the same name on a server that has no other. So a provider gives a [`Home`], and
//! everything else (the plane, credentials, addons, endpoints) is as it is on the shared server.

mod etcd;
mod launch;
mod pid;
mod place;
mod plan;
mod process;
mod record;
mod storage;
mod version;
mod ward;

use std::collections::BTreeMap;

use async_trait::async_trait;
use mica_api::control_plane::{DeletionPolicy, reason};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::control_plane::Home;
pub use etcd::{EtcdOptions, Ranges};
pub use place::{Options, PORTS, Place};
pub use process::Process;
pub use version::{Binary, Versions};

/// The condition that says why a server is not of the version, or on the store, that was asked for.
pub const UPGRADED: &str = "Upgraded";

/// The provider of control planes that name none.
pub const DEFAULT_KIND: &str = "Process";

/// A server that is to be there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    /// The ControlPlane's name.
    pub name: String,
    /// The name of its plane.
    pub cluster_path: String,
    /// Which of the binaries that the provider knows; its own choice if none.
    pub version: Option<String>,
    /// What `parametersRef` holds.
    pub parameters: BTreeMap<String, String>,
    /// The id of a plane that was kept when its ControlPlane went, and that this one takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
}

/// How a server stands.
#[derive(Clone)]
pub enum Provisioned {
    /// It is on its way; [`Provider::changes`] tells when it is there.
    Pending {
        message: String,
    },
    Running {
        home: Home,
        version: String,
    },
}

/// How far the end of a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Retired {
    /// It is on its way; [`Provider::changes`] tells when it is there.
    Pending { message: String },
    /// Nothing runs any more. What it held is kept or gone, as was asked.
    Done,
}

/// Why a server cannot be as it is wanted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// What is asked for cannot be: nothing changes until that does.
    #[error("{message}")]
    Unacceptable { reason: &'static str, message: String },
    /// It failed, and may not the next time.
    #[error("{message}")]
    Failed { message: String },
}

impl Refused {
    fn failed(message: String) -> Self {
        Self::Failed { message }
    }

    fn taken(message: String) -> Self {
        let reason = reason::CLUSTER_PATH_TAKEN;
        Self::Unacceptable { reason, message }
    }

    fn name(message: String) -> Self {
        let reason = reason::INVALID_CLUSTER_PATH;
        Self::Unacceptable { reason, message }
    }

    fn parameters(message: String) -> Self {
        let reason = reason::INVALID_PARAMETERS;
        Self::Unacceptable { reason, message }
    }

    fn version(message: String) -> Self {
        let reason = reason::VERSION_NOT_POSSIBLE;
        Self::Unacceptable { reason, message }
    }

    fn provider(message: String) -> Self {
        let reason = reason::PROVIDER_CHANGED;
        Self::Unacceptable { reason, message }
    }
}

/// Runs servers. Everything here can be asked again at any time, and answers at once: what takes longer goes on by itself and
/// is told by [`Provider::changes`].
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// What `spec.dedicated.providerRef.kind` calls it.
    fn kind(&self) -> &'static str;

    /// Starts what is missing and changes what is otherwise. What is kept is only started for who adopts it.
    async fn provision(&self, wanted: &Wanted) -> Result<Provisioned, Refused>;

    /// The server of a control plane if there is one, running or being started. Makes none.
    async fn find(&self, name: &str) -> Result<Option<Provisioned>, Refused>;

    /// Says which plane it is that a server is about to be retired with: who adopts it will name it so.
    async fn will_keep(&self, name: &str, plane_id: &str) -> Result<(), Refused>;

    /// Ends the server of a control plane; what it held is kept or destroyed. One that is not there is done, and so is one
    /// that is kept already: it is nobody's, and to be destroyed has to be adopted.
    async fn retire(&self, name: &str, policy: DeletionPolicy) -> Result<Retired, Refused>;

    /// Why a server that runs is not what was asked for: it goes on as it was.
    fn held(&self, _name: &str) -> Option<Refused> {
        None
    }

    /// Names of control planes whose server came, went or changed.
    fn changes(&self) -> broadcast::Receiver<String>;
}
