//! The store that the settings name, and the server on it.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use mica_machinery::kind;
use mica_server::metrics::Registry;
use mica_server::pki::{Authority, PkiDir, shared_authority};
use mica_server::serve::Server;
use mica_server::start::ServerOptions;
use mica_store::{EtcdConfig, EtcdStore, MemStore, Store};

use super::hold::DataDir;
use crate::cli::Profile;
use crate::config::{Settings, StoreAddress};

/// An open store, and whether other servers may be on it too.
pub enum OpenStore {
    Own(Arc<dyn Store>),
    Shared(Arc<dyn Store>),
}

pub async fn open_store(settings: &Settings, _home: &DataDir) -> anyhow::Result<OpenStore> {
    match &settings.store {
        StoreAddress::Embedded => Ok(OpenStore::Own(Arc::new(MemStore::new()))),
        StoreAddress::Etcd(config) => {
            let store = EtcdStore::connect(EtcdConfig::clone(config)).await.context("store")?;
            Ok(OpenStore::Shared(Arc::new(store)))
        }
    }
}

impl OpenStore {
    pub fn shared(&self) -> Arc<dyn Store> {
        match self {
            Self::Own(store) | Self::Shared(store) => store.clone(),
        }
    }

    /// The authority: of a store of our own it is in the directory beside it, of a shared one in the store.
    pub async fn authority(&self, directory: &PkiDir, name: &str, now: SystemTime) -> anyhow::Result<Authority> {
        Ok(match self {
            Self::Own(_) => directory.authority_or_new(name, now)?,
            Self::Shared(store) => shared_authority(&**store, directory, name, now).await?,
        })
    }

    /// Lets go of the store when nothing uses it any more.
    pub async fn close(self) {}
}

pub async fn open_server(
    settings: &Settings,
    store: Arc<dyn Store>,
    root_ca: &str,
    metrics: &Arc<Registry>,
) -> anyhow::Result<Arc<Server>> {
    let profile = match settings.profile {
        Profile::Generic => kind::Profile::Generic,
        Profile::Kubernetes => kind::Profile::Kubernetes,
    };
    let options = ServerOptions {
        profile,
        root_ca: root_ca.to_owned(),
        metrics: metrics.clone(),
    };
    Server::open(store, options).await.map_err(|error| match error.cause() {
        Some(cause) => anyhow!("{error}: {cause}"),
        None => anyhow!("{error}"),
    })
}

/// Whether a host from a handshake is a plane's: by its project, or because the plane claims it.
pub async fn is_plane_host(server: &Server, host: &str) -> bool {
    let project = host
        .strip_prefix("milo-apiserver.project-")
        .and_then(|rest| rest.strip_suffix(".svc.cluster.local"));
    let found = match project {
        Some(project) => server.directory.by_address("Project", project).await,
        None => server.directory.by_address("Host", host).await,
    };
    matches!(found, Ok(Some(_)))
}
