//! Copies ConfigMaps between planes: one that is labelled `example.com/copy-to: PLANE` is copied there, kept up to date, and
//! taken away again when it goes.
//!
//! Run it against a Mica server: `KUBECONFIG=.mica/admin.kubeconfig cargo run -p mica-runtime --example cross_sync`

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use mica_runtime::apply::Applier;
use mica_runtime::finalizer::{Cleaned, Finalizer};
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Action, ClusterName, Cx, Manager, ReconcileError, Reconciler};

pub const COPY_TO: &str = "example.com/copy-to";
static FINALIZER: Finalizer = Finalizer::new("example.com/cross-sync");

/// A plane that is not there yet is looked for again after this time.
const AGAIN: Duration = Duration::from_secs(10);

struct CrossSync {
    applier: Applier,
}

impl CrossSync {
    async fn copy(&self, source: &ConfigMap, to: &Api<ConfigMap>) -> Result<Action, ReconcileError> {
        let mut copy = ConfigMap::default();
        copy.metadata.name = source.metadata.name.clone();
        copy.metadata.namespace = source.metadata.namespace.clone();
        copy.data = source.data.clone();
        copy.binary_data = source.binary_data.clone();
        self.applier.apply(to, &copy).await?;
        Ok(Action::await_change())
    }

    async fn take_away(&self, source: &ConfigMap, to: &Api<ConfigMap>) -> Result<Cleaned<Action>, ReconcileError> {
        match to.delete(&source.name_any(), &DeleteParams::default()).await {
            Ok(_) => Ok(Cleaned::Done),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Cleaned::Done),
            Err(other) => Err(other.into()),
        }
    }
}

#[async_trait]
impl Reconciler for CrossSync {
    type Kind = ConfigMap;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, ReconcileError> {
        let Some(source) = cx.object() else {
            return Ok(Action::await_change());
        };
        let Some(target) = source.labels().get(COPY_TO).cloned() else {
            return Ok(Action::await_change());
        };
        let namespace = source.namespace().unwrap_or_default();
        let here: Api<ConfigMap> = Api::namespaced(cx.client(), &namespace);
        // A plane that nobody has is like one that has let the copy go.
        let Ok(there) = cx.fleet().get(&ClusterName::new(&target)) else {
            if source.metadata.deletion_timestamp.is_some() {
                FINALIZER.remove(&here, &*source).await?;
            }
            return Ok(Action::requeue(AGAIN));
        };
        let there: Api<ConfigMap> = Api::namespaced(there.client(), &namespace);
        let done = FINALIZER
            .run(
                &here,
                Some(source),
                async |source: Arc<ConfigMap>| self.copy(&source, &there).await,
                async |source: Arc<ConfigMap>| self.take_away(&source, &there).await,
            )
            .await?;
        Ok(done.unwrap_or_default())
    }
}

/// Adds the controller to a manager.
pub fn install(manager: &Manager) -> Result<(), Box<dyn std::error::Error>> {
    let applier = Applier::new("cross-sync");
    manager
        .controller("cross-sync")
        .for_::<ConfigMap>()
        .reconcile(CrossSync { applier })?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Access::infer().await?;
    let manager = Manager::builder(server.clone()).provider(Planes::new(server)).build()?;
    install(&manager)?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    Ok(manager.run_until(interrupted).await?)
}
