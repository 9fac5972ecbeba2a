//! Endpoints and classes that are told what is wrong with them, and hosts that lead to planes.

use mica_api::control_plane::UID_ANNOTATION;
use mica_server::authz::User;
use mica_testkit::kube;
use serde_json::{Value, json};

use super::registration::{create, path, says, until_told, world};
use super::world::{Place, World};

const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A control plane and its plane, as the operator would have made it.
async fn control_plane(root: &Place, name: &str, spec: Value) -> Value {
    let made = create(root, "ControlPlane", name, spec).await;
    let plane = json!({"apiVersion": "mica.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name,
        "annotations": {UID_ANNOTATION: made["metadata"]["uid"]}}});
    root.create(PLANES, plane).await;
    made
}

/// The names of the ConfigMaps that a request by a host is shown.
async fn shown_at(world: &World, host: &str) -> Vec<String> {
    let client = world.server.client_inside(User::system());
    let request = http::Request::get(MAPS).header("host", host).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.unwrap();
    let names = list["items"].as_array().unwrap().iter();
    names
        .map(|map| map["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn mark(world: &World, plane: &str) {
    let client = world.server.client_inside(User::system());
    let path = format!("/clusters/{plane}/control-plane{MAPS}");
    let object = json!({"metadata": {"name": format!("of-{plane}")}});
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    let made: Result<Value, kube::Error> = client.request(request).await;
    made.unwrap();
}

#[tokio::test]
async fn endpoints_say_what_is_wrong_with_their_urls_and_names_that_do_not_resolve_are_fine() {
    let (_world, root) = world(&["control-plane-endpoint"]).await;
    create(&root, "ControlPlaneEndpoint", "e", json!({"endpoint": "e.example"})).await;
    let endpoint = path("controlplaneendpoints", "e");
    root.until(&endpoint, "refused", |found| {
        says(
            found,
            "Ready",
            "False",
            "InvalidEndpoint",
            "spec.endpoint \"e.example\": it does not begin with https://",
        )
    })
    .await;
    root.patch(&endpoint, json!({"spec": {"endpoint": null}})).await;
    root.until(&endpoint, "pending", |found| {
        says(found, "Ready", "False", "EndpointPending", "set spec.endpoint")
    })
    .await;
    let urls = json!({"spec": {"endpoint": "https://nowhere.invalid/clusters/x/control-plane",
        "externalEndpoint": "https://nowhere.invalid"}});
    root.patch(&endpoint, urls).await;
    let found = root
        .until(&endpoint, "ready", |found| {
            says(found, "Ready", "True", "Reconciled", "")
        })
        .await
        .unwrap();
    assert_eq!(found["status"]["observedGeneration"], found["metadata"]["generation"]);
    assert!(!says(Some(&found), "Routed", "True", "Routed", ""), "nobody names it");
    let told = [
        ("Warning", "InvalidEndpoint", "e.example"),
        ("Normal", "Ready", "can be used"),
    ];
    until_told(&root, "ControlPlaneEndpoint", "e", &told).await;
}

#[tokio::test]
async fn a_host_leads_to_the_plane_of_the_control_plane_that_names_its_endpoint() {
    let (world, root) = world(&["control-plane-endpoint"]).await;
    let urls = json!({"endpoint": "https://shared.example/clusters/a/control-plane",
        "externalEndpoint": "https://a.cp.example"});
    create(&root, "ControlPlaneEndpoint", "e", urls).await;
    control_plane(&root, "a", json!({"endpointRef": {"name": "e"}})).await;
    control_plane(&root, "b", json!({})).await;
    mark(&world, "a").await;
    mark(&world, "b").await;
    let endpoint = path("controlplaneendpoints", "e");
    let leads_to = |whose: &'static str| {
        move |found: Option<&Value>| {
            says(
                found,
                "Routed",
                "True",
                "Routed",
                &format!("leads to ControlPlane {whose:?}"),
            )
        }
    };
    root.until(&endpoint, "routed", leads_to("a")).await;
    assert!(shown_at(&world, "a.cp.example").await.contains(&"of-a".to_owned()));

    // The host follows the endpoint's URL, and the reference to the endpoint.
    root.patch(
        &endpoint,
        json!({"spec": {"externalEndpoint": "https://other.cp.example:8443"}}),
    )
    .await;
    root.until(&endpoint, "routed anew", |found| {
        says(
            found,
            "Routed",
            "True",
            "Routed",
            "other.cp.example leads to ControlPlane \"a\"",
        )
    })
    .await;
    assert!(shown_at(&world, "other.cp.example").await.contains(&"of-a".to_owned()));
    assert!(!shown_at(&world, "a.cp.example").await.contains(&"of-a".to_owned()));
    root.patch(
        &path("controlplanes", "b"),
        json!({"spec": {"endpointRef": {"name": "e"}}}),
    )
    .await;
    root.patch(&path("controlplanes", "a"), json!({"spec": {"endpointRef": null}}))
        .await;
    root.until(&endpoint, "routed to the other", leads_to("b")).await;
    assert!(shown_at(&world, "other.cp.example").await.contains(&"of-b".to_owned()));
    root.patch(&path("controlplanes", "b"), json!({"spec": {"endpointRef": null}}))
        .await;
    root.until(&endpoint, "routed nowhere", |found| {
        let conditions = found.map(|found| found["status"]["conditions"].to_string());
        conditions.is_some_and(|text| !text.contains("Routed"))
    })
    .await;
    root.until(&format!("{PLANES}/b"), "without host", |found| {
        found.is_some_and(|plane| plane["spec"]["addresses"].as_array().is_none_or(Vec::is_empty))
    })
    .await;
    let told = [
        ("Normal", "Routed", "a.cp.example leads to ControlPlane \"a\""),
        ("Normal", "Routed", "other.cp.example leads to ControlPlane \"a\""),
        ("Normal", "Routed", "other.cp.example leads to ControlPlane \"b\""),
        ("Normal", "HostReleased", "other.cp.example leads to ControlPlane"),
    ];
    until_told(&root, "ControlPlaneEndpoint", "e", &told).await;
}

#[tokio::test]
async fn two_planes_cannot_claim_one_host_and_who_waits_gets_it_when_it_is_let_go() {
    let (world, root) = world(&["control-plane-endpoint"]).await;
    let urls = json!({"externalEndpoint": "https://shop.cp.example"});
    for name in ["first", "second"] {
        create(&root, "ControlPlaneEndpoint", name, urls.clone()).await;
        let spec = json!({"endpointRef": {"name": name}});
        control_plane(&root, name, spec).await;
        mark(&world, name).await;
        let endpoint = path("controlplaneendpoints", name);
        match name {
            "first" => {
                root.until(&endpoint, "routed", |found| says(found, "Routed", "True", "Routed", ""))
                    .await
            }
            _ => {
                root.until(&endpoint, "refused", |found| {
                    let words = "shop.cp.example is held by plane \"first\"";
                    says(found, "Routed", "False", "HostTaken", words) && says(found, "Ready", "True", "Reconciled", "")
                })
                .await
            }
        };
    }
    assert!(
        shown_at(&world, "shop.cp.example")
            .await
            .contains(&"of-first".to_owned())
    );
    root.delete(&path("controlplanes", "first")).await;
    root.delete(&format!("{PLANES}/first")).await;
    let second = path("controlplaneendpoints", "second");
    root.until(&second, "routed", |found| says(found, "Routed", "True", "Routed", ""))
        .await;
    assert!(
        shown_at(&world, "shop.cp.example")
            .await
            .contains(&"of-second".to_owned())
    );
    let told = [
        ("Warning", "HostTaken", "is held by plane \"first\""),
        ("Normal", "Routed", "leads to ControlPlane \"second\""),
    ];
    until_told(&root, "ControlPlaneEndpoint", "second", &told).await;
}

#[tokio::test]
async fn templates_of_a_class_give_hosts_and_names_of_the_server_are_refused() {
    let (world, root) = world(&["control-plane-endpoint"]).await;
    world
        .server
        .server()
        .directory
        .reserve_hosts(vec!["mica.example".to_owned()]);
    let templates = json!({"endpoints": {"external": "https://{name}.cp.example"}});
    create(&root, "ControlPlaneClass", "c", templates).await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    let hosts = |found: Option<&Value>, host: &str| {
        found.is_some_and(|plane| plane["spec"]["addresses"] == json!([{"type": "Host", "value": host}]))
    };
    let plane = format!("{PLANES}/a");
    root.until(&plane, "at its host", |found| hosts(found, "a.cp.example"))
        .await;
    let templates = json!({"spec": {"endpoints": {"external": "https://{name}.new.example"}}});
    root.patch(&path("controlplaneclasses", "c"), templates).await;
    root.until(&plane, "at its new host", |found| hosts(found, "a.new.example"))
        .await;

    create(
        &root,
        "ControlPlaneEndpoint",
        "e",
        json!({"endpoint": "https://mica.example:6440"}),
    )
    .await;
    control_plane(&root, "b", json!({"endpointRef": {"name": "e"}})).await;
    root.until(&path("controlplaneendpoints", "e"), "refused", |found| {
        says(found, "Routed", "False", "HostRefused", "a name of the server itself")
    })
    .await;
    let told = [("Warning", "HostRefused", "a name of the server itself")];
    until_told(&root, "ControlPlaneEndpoint", "e", &told).await;
}

/// A definition of routes that takes anything.
pub async fn define_routes(root: &Place) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "httproutes.gateway.networking.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "gateway.networking.k8s.io",
            "names": {"plural": "httproutes", "kind": "HTTPRoute"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    root.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        .await;
}

#[tokio::test]
async fn a_class_with_a_gateway_gives_an_endpoint_and_a_route_as_soon_as_routes_are_served() {
    let (_world, root) = world(&["control-plane-endpoint"]).await;
    let gateway = json!({"gateway": {"parentRef": {"name": "gw", "namespace": "edge"},
        "hostnameTemplate": "{{.Name}}.gw.example",
        "apiServerRef": {"name": "api", "namespace": "servers", "port": 6443}}});
    create(&root, "ControlPlaneClass", "c", gateway).await;
    root.namespace("servers").await;
    let made = control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    let endpoint = path("controlplaneendpoints", "a-endpoint");
    let found = root
        .until(&endpoint, "waiting for routes", |found| {
            says(
                found,
                "Routed",
                "False",
                "RouteNotServed",
                "install the definitions of the Gateway API",
            )
        })
        .await
        .unwrap();
    assert_eq!(found["spec"]["externalEndpoint"], "https://a.gw.example");
    assert_eq!(found["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    define_routes(&root).await;
    root.until(&endpoint, "routed", |found| {
        says(
            found,
            "Routed",
            "True",
            "Routed",
            "a.gw.example leads to ControlPlane \"a\" by a route of its Gateway",
        )
    })
    .await;
    let route = "/apis/gateway.networking.k8s.io/v1/namespaces/servers/httproutes/a-route";
    let found = root.get(route).await.unwrap();
    assert_eq!(found["spec"]["hostnames"], json!(["a.gw.example"]));
    assert_eq!(
        found["spec"]["parentRefs"],
        json!([{"name": "gw", "namespace": "edge"}])
    );
    assert_eq!(found["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);

    // Both are kept as they should be.
    root.patch(route, json!({"spec": {"hostnames": ["stolen.example"]}}))
        .await;
    root.until(route, "set right", |found| {
        found.is_some_and(|route| route["spec"]["hostnames"] == json!(["a.gw.example"]))
    })
    .await;
    let template = json!({"spec": {"gateway": {"hostnameTemplate": "{{.Name}}.new.example"}}});
    root.patch(&path("controlplaneclasses", "c"), template).await;
    root.until(route, "at its new host", |found| {
        found.is_some_and(|route| route["spec"]["hostnames"] == json!(["a.new.example"]))
    })
    .await;
    root.until(&endpoint, "at its new host", |found| {
        found.is_some_and(|one| one["spec"]["externalEndpoint"] == "https://a.new.example")
    })
    .await;
    let plane = root.get(&format!("{PLANES}/a")).await.unwrap();
    assert!(
        plane["spec"]["addresses"].as_array().is_none_or(Vec::is_empty),
        "the Gateway has the host"
    );
}

#[tokio::test]
async fn classes_say_what_cannot_be_given_and_accept_addons_that_come() {
    let (_world, root) = world(&["control-plane-class"]).await;
    let spec = json!({"addons": ["starter", "tools"]});
    create(&root, "ControlPlaneClass", "c", spec).await;
    let class = path("controlplaneclasses", "c");
    root.until(&class, "refused", |found| {
        says(
            found,
            "Accepted",
            "False",
            "AddonNotFound",
            "there is no addon \"tools\"",
        )
    })
    .await;
    root.namespace("kplane-system").await;
    let addon = json!({"metadata": {"name": "tools", "labels": {"controlplane.kplane.dev/addon": "tools"}}});
    root.create("/api/v1/namespaces/kplane-system/configmaps", addon).await;
    root.until(&class, "accepted", |found| {
        says(found, "Accepted", "True", "Accepted", "")
    })
    .await;
    root.patch(
        &class,
        json!({"spec": {"endpoints": {"join": "https://{zone}.example"}}}),
    )
    .await;
    root.until(&class, "refused", |found| {
        says(found, "Accepted", "False", "InvalidEndpoint", "\"{zone}\" is not known")
    })
    .await;
    let told = [
        ("Warning", "AddonNotFound", "\"tools\""),
        ("Normal", "Accepted", ""),
        ("Warning", "InvalidEndpoint", "\"{zone}\""),
    ];
    until_told(&root, "ControlPlaneClass", "c", &told).await;
}
