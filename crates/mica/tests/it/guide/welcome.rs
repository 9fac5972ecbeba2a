//! Welcomes every project of a server.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::ObjectMeta;
use mica_runtime::apply::Applier;
use mica_runtime::provider::{Discovery, Milo};
use mica_runtime::{Access, Action, Cx, Manager, ReconcileError, Reconciler};

struct Welcome;

#[async_trait]
impl Reconciler for Welcome {
    type Kind = Namespace;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<Namespace>) -> Result<Action, ReconcileError> {
        if cx.object().is_some() && cx.request().name == "default" {
            let welcome = ConfigMap {
                metadata: ObjectMeta {
                    name: Some("welcome".into()),
                    ..ObjectMeta::default()
                },
                data: Some([("project".into(), cx.cluster().name().to_string())].into()),
                ..ConfigMap::default()
            };
            let maps = Api::<ConfigMap>::default_namespaced(cx.client());
            Applier::new("welcome").apply(&maps, &welcome).await?;
        }
        Ok(Action::await_change())
    }
}

/// Puts a ConfigMap into every project there is, and every one that comes.
pub fn manager(server: Access) -> Result<Manager, Box<dyn std::error::Error>> {
    let projects = Milo::new(server.clone(), Discovery::External);
    let manager = Manager::builder(server).provider(projects).build()?;
    manager.controller("welcome").for_::<Namespace>().reconcile(Welcome)?;
    Ok(manager)
}
