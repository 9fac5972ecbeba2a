//! The store that the settings name, and the server on it.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use mica_machinery::kind::bootstrap::Companions;
use mica_server::metrics::Registry;
use mica_server::pki::{Authority, PkiDir, shared_authority};
use mica_server::serve::Server;
use mica_server::start::ServerOptions;
use mica_store::embedded::{Durability, Options, Stats};
use mica_store::{EmbeddedStore, EtcdConfig, EtcdStore, Store};

use crate::config::{Settings, StoreAddress};

/// An open store: one of our own, or one that other servers may be on too.
#[derive(Clone)]
pub enum OpenStore {
    Embedded(EmbeddedStore),
    Etcd(Arc<EtcdStore>),
}

/// Where the embedded store is in a data directory.
pub fn store_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

/// Opens the embedded store of a data directory. The caller holds the directory.
pub async fn open_embedded(data_dir: &Path, durability: Durability) -> anyhow::Result<EmbeddedStore> {
    let directory = store_dir(data_dir);
    let options = Options {
        durability,
        ..Options::default()
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .context("store")?;
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&directory, options));
    opened.await?.context("store")
}

pub async fn open_store(settings: &Settings, data_dir: &Path) -> anyhow::Result<OpenStore> {
    match &settings.store {
        StoreAddress::Embedded => Ok(OpenStore::Embedded(open_embedded(data_dir, Durability::Power).await?)),
        StoreAddress::Etcd(config) => {
            let store = EtcdStore::connect(EtcdConfig::clone(config)).await.context("store")?;
            Ok(OpenStore::Etcd(Arc::new(store)))
        }
    }
}

impl OpenStore {
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(store) => Arc::new(store.clone()),
            Self::Etcd(store) => store.clone(),
        }
    }

    /// Shows the sizes of a store of our own; etcd shows its own.
    pub fn measure(&self, metrics: &Registry) {
        type Read = fn(&Stats) -> u64;
        const GAUGES: [(&str, &str, Read); 5] = [
            ("mica_store_log_bytes", "Bytes of log on disk.", |stats| stats.log_bytes),
            (
                "mica_store_live_bytes",
                "Bytes of log that are still needed.",
                |stats| stats.live_bytes,
            ),
            ("mica_store_index_bytes", "Bytes of index on disk.", |stats| {
                stats.index_bytes
            }),
            (
                "mica_store_index_memory_bytes",
                "Bytes of index that are not on disk yet.",
                |stats| stats.index_memory_bytes,
            ),
            ("mica_store_watches", "Watches that are up to date.", |stats| {
                stats.watches
            }),
        ];
        let Self::Embedded(store) = self else { return };
        for (name, help, read) in GAUGES {
            let store = store.clone();
            metrics.gauge_fn(name, help, move || read(&store.stats()) as f64);
        }
    }

    /// The authority, which is in the store: every server on it has the same, and a backup brings it along.
    pub async fn authority(&self, directory: &PkiDir, name: &str, now: SystemTime) -> anyhow::Result<Authority> {
        Ok(shared_authority(&*self.store(), directory, name, now).await?)
    }

    /// Lets go of the store, so that the next start is quick.
    pub async fn close(self) {
        if let Self::Embedded(store) = self
            && let Err(error) = tokio::task::spawn_blocking(move || store.close()).await
        {
            tracing::warn!(%error, "the store was not closed in order");
        }
    }
}

pub async fn open_server(
    settings: &Settings,
    store: Arc<dyn Store>,
    authority: &Arc<Authority>,
    metrics: &Arc<Registry>,
) -> anyhow::Result<Arc<Server>> {
    let mut options = ServerOptions {
        profile: settings.profile.into(),
        companions: Companions::Done {
            root_ca: authority.certificate_pem().to_owned(),
        },
        authority: Some(authority.clone()),
        encryption: settings.encryption.clone(),
        metrics: metrics.clone(),
        egress: settings.egress.clone(),
        accounts: settings.accounts,
        authenticator: settings.authenticator.clone(),
        reload: settings.reload.clone(),
        client_ca: authority.certificate_pem().to_owned(),
        fairness: settings.limits.fairness.clone(),
        limits: settings.limits.planes,
        audit: settings.audit.clone(),
        plugins: settings.plugins.clone(),
        authorization: settings.authorization.load()?,
        tenancy: settings.tenancy.into(),
        ..ServerOptions::default()
    };
    if let Some(url) = &settings.advertise {
        options.issuer.clone_from(url);
    }
    open(store, options).await
}

/// Opens a server; what went wrong inside is told here, to whoever runs it.
pub async fn open(store: Arc<dyn Store>, options: ServerOptions) -> anyhow::Result<Arc<Server>> {
    Server::open(store, options).await.map_err(|error| match error.cause() {
        Some(cause) => anyhow!("{error}: {cause}"),
        None => anyhow!("{error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_sizes_of_the_store_are_metrics() {
        let home = tempfile::tempdir().unwrap();
        let store = OpenStore::Embedded(open_embedded(home.path(), Durability::Power).await.unwrap());
        let metrics = Registry::new();
        store.measure(&metrics);
        let text = metrics.encode();
        assert_eq!(text.matches("# TYPE mica_store_").count(), 5, "{text}");
        store.close().await;
    }
}
