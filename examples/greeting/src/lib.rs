//! What a `Greeting` is, and what is done about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, CustomResource, ResourceExt as _};
use mica_runtime::apply::{Applier, own};
use mica_runtime::conditions::{self, Change, READY, Status, Wanted};
use mica_runtime::controller::BuildError;
use mica_runtime::{Action, Cx, Manager, ReconcileError, Reconciler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What users ask for.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1alpha1",
    kind = "Greeting",
    namespaced,
    status = "GreetingStatus",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#
)]
pub struct GreetingSpec {
    /// What is to be said.
    pub text: String,
}

/// What was found.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct GreetingStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// Who sets the fields that this controller sets. It must never change.
const MANAGER: &str = "greeting";

struct Controller {
    applier: Applier,
}

impl Controller {
    /// What is to be there: built from nothing each time.
    fn wanted(object: &Greeting) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = object.metadata.name.clone();
        map.metadata.namespace = object.metadata.namespace.clone();
        map.data = Some(BTreeMap::from([("text".to_owned(), object.spec.text.clone())]));
        map
    }

    async fn tell(&self, cx: &Cx<Greeting>, object: &Greeting, wanted: Wanted) -> Result<(), ReconcileError> {
        let mut status = object.status.clone().unwrap_or_default();
        let wanted = wanted.observed(object);
        if conditions::set(&mut status.conditions, wanted, Timestamp::now()) == Change::Changed {
            let api: Api<Greeting> = Api::namespaced(cx.client(), &object.namespace().unwrap_or_default());
            self.applier.apply_status(&api, object, &status).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Reconciler for Controller {
    type Kind = Greeting;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<Greeting>) -> Result<Action, ReconcileError> {
        let object: Arc<Greeting> = match cx.object() {
            Some(object) if object.metadata.deletion_timestamp.is_none() => object,
            // What it owns goes with it. What lives elsewhere needs a finalizer: see `mica_runtime::finalizer`.
            _ => return Ok(Action::await_change()),
        };
        let mut map = Self::wanted(&object);
        own(&*object, &mut map)?;
        let maps: Api<ConfigMap> = Api::namespaced(cx.client(), &object.namespace().unwrap_or_default());
        self.applier.apply(&maps, &map).await?;
        let ready = Wanted::new(READY, Status::True, "Written").message("The text is in a ConfigMap of this name.");
        self.tell(&cx, &object, ready).await?;
        Ok(Action::await_change())
    }
}

/// Adds the controller to a manager.
pub fn install(manager: &Manager) -> Result<(), BuildError> {
    let applier = Applier::new(MANAGER);
    manager
        .controller("greeting")
        .for_::<Greeting>()
        .owns::<ConfigMap>()
        .reconcile(Controller { applier })?;
    Ok(())
}
