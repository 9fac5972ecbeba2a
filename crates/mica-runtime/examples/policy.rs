//! Labels every namespace of every plane with the tier of its plane, and puts the label back when somebody changes it.
//!
//! Run it against a Mica server: `KUBECONFIG=.mica/admin.kubeconfig cargo run -p mica-runtime --example policy`

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use mica_runtime::controller::predicate::labels_changed;
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Action, Cx, Manager, ReconcileError, Reconciler};
use serde_json::json;

/// On planes: which tier they are of. On namespaces: the same, by this controller.
pub const TIER: &str = "example.com/tier";
const USUAL: &str = "standard";

struct Policy;

#[async_trait]
impl Reconciler for Policy {
    type Kind = Namespace;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<Namespace>) -> Result<Action, ReconcileError> {
        let Some(namespace) = cx.object() else {
            return Ok(Action::await_change());
        };
        let labels = cx.cluster().labels();
        let tier = labels.get(TIER).map_or(USUAL, String::as_str);
        if namespace.labels().get(TIER).map(String::as_str) != Some(tier) {
            let api: Api<Namespace> = Api::all(cx.client());
            let patch = json!({"metadata": {"labels": {TIER: tier}}});
            api.patch(&namespace.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
            cx.events()
                .normal("TierSet", format!("The tier of this plane is {tier}."));
        }
        Ok(Action::await_change())
    }
}

/// Adds the controller to a manager. Planes that are labelled `example.com/frozen` are left alone.
pub fn install(manager: &Manager) -> Result<(), Box<dyn std::error::Error>> {
    manager
        .controller("policy")
        .for_::<Namespace>()
        .predicate(labels_changed())
        .clusters(|cluster| !cluster.labels().contains_key("example.com/frozen"))
        .reconcile(Policy)?;
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
