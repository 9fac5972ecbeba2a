//! The controller against a server in this process, with a few control planes.

use std::time::Duration;

use greeting::{Greeting, GreetingSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions::is_crd_established};
use kube::{Api, Client, CustomResourceExt as _};
use mica_runtime::conditions::{READY, Status, status};
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Manager};
use mica_testkit::ControlPlanes;
use tokio_util::sync::CancellationToken;

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

async fn define(client: Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client);
    let params = PatchParams::apply("test");
    let name = Greeting::crd_name();
    definitions
        .patch(name, &params, &Patch::Apply(Greeting::crd()))
        .await
        .unwrap();
    await_condition(definitions, name, is_crd_established()).await.unwrap();
}

async fn until_ready(api: &Api<Greeting>, name: &str) {
    let ready = async {
        loop {
            let found = api.get(name).await.unwrap().status.unwrap_or_default();
            if status(&found.conditions, READY) == Status::True {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready)
        .await
        .expect("it is ready in time");
}

#[tokio::test]
async fn an_object_in_any_plane_becomes_ready() {
    let planes = ControlPlanes::new(3).await;
    for name in planes.names() {
        define(planes.client(name).await).await;
    }
    let server = Access::from_kubeconfig_yaml(&planes.server().kubeconfig()).unwrap();
    let manager = Manager::builder(server.clone()).provider(Planes::new(server));
    let manager = manager.build().unwrap();
    greeting::install(&manager).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { manager.run_until(stop.cancelled_owned()).await }
    });
    for name in planes.names() {
        let client = planes.client(name).await;
        let api: Api<Greeting> = Api::default_namespaced(client.clone());
        let text = format!("Hello, {name}!");
        let object = Greeting::new("first", GreetingSpec { text: text.clone() });
        api.create(&PostParams::default(), &object).await.unwrap();
        until_ready(&api, "first").await;
        let map: ConfigMap = Api::default_namespaced(client).get("first").await.unwrap();
        assert_eq!(map.data.unwrap()["text"], text);
    }
    stop.cancel();
    running.await.unwrap().unwrap();
}
