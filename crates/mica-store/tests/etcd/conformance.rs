//! The suite that all backends pass.

use std::sync::Arc;

use mica_store::hub::Limits;
use mica_store::{EtcdStore, Store, conformance};

use crate::server::EtcdServer;

#[tokio::test(flavor = "multi_thread")]
async fn etcd_store_conforms() {
    let etcd = EtcdServer::start();
    conformance::run(|| async { Arc::new(etcd.connect().await) as Arc<dyn Store> }).await;
}

/// Nearly every watch then begins in etcd's history and is handed over to the hub.
#[tokio::test(flavor = "multi_thread")]
async fn etcd_store_conforms_with_hardly_any_memory() {
    let etcd = EtcdServer::start();
    let limits = Limits {
        buffer: 1 << 14,
        ring: 4,
        ..Limits::default()
    };
    conformance::run(|| async {
        Arc::new(EtcdStore::connect_with(etcd.config(), limits).await.unwrap()) as Arc<dyn Store>
    })
    .await;
}
