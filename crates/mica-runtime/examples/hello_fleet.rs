//! Counts the ConfigMaps of every plane, and keeps the counts in one ConfigMap of the management cluster.
//!
//! Run it against a Mica server: `KUBECONFIG=.mica/admin.kubeconfig cargo run -p mica-runtime --example hello_fleet`

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Action, Cx, Manager, ReconcileError, Reconciler};
use serde_json::json;

/// The ConfigMap with the counts, in namespace `default` of the management cluster.
pub const COUNTS: &str = "hello-fleet";

struct HelloFleet;

#[async_trait]
impl Reconciler for HelloFleet {
    type Kind = ConfigMap;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, ReconcileError> {
        // What is there is known already: this asks no server.
        let here = cx.fleet().store::<ConfigMap>()?.list_in(cx.cluster().name());
        let ours = here.iter().filter(|map| map.name_any() != "kube-root-ca.crt").count();
        let counts: Api<ConfigMap> = Api::namespaced(cx.local(), "default");
        let patch = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "data": {cx.cluster().name().as_str(): ours.to_string()},
        });
        counts
            .patch(COUNTS, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(Action::await_change())
    }
}

/// Adds the controller to a manager.
pub async fn install(manager: &Manager) -> Result<(), Box<dyn std::error::Error>> {
    let counts: Api<ConfigMap> = Api::namespaced(manager.local(), "default");
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": COUNTS}});
    counts
        .patch(COUNTS, &PatchParams::apply("hello-fleet"), &Patch::Apply(&empty))
        .await?;
    manager
        .controller("hello-fleet")
        .for_::<ConfigMap>()
        .reconcile(HelloFleet)?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Access::infer().await?;
    let manager = Manager::builder(server.clone()).provider(Planes::new(server)).build()?;
    install(&manager).await?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    Ok(manager.run_until(interrupted).await?)
}
