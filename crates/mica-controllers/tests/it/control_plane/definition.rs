//! The kinds as their definitions have them: what is shown of them, and what cannot change.

use super::*;

/// A list as kubectl asks for it.
async fn table(world: &World, path: &str) -> Value {
    let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    world.client.request(request.body(Vec::new()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn every_kind_is_shown_with_upstreams_columns_its_phase_and_its_age() {
    let (world, root) = world().await;
    let class = json!({"services": ["controllers"]});
    make(&root, CLASSES, "ControlPlaneClass", "c", class).await;
    let endpoint = json!({"endpoint": "https://shop.example"});
    make(&root, ENDPOINTS, "ControlPlaneEndpoint", "e", endpoint).await;
    root.patch(
        &format!("{ENDPOINTS}/e/status"),
        json!({"status": {"endpoint": "https://seen.example"}}),
    )
    .await;
    let spec = json!({"classRef": {"name": "c"}, "endpointRef": {"name": "e"}});
    control_plane(&root, "a", spec).await;
    until_ready(&root, "a").await;
    for (path, is_so) in [(REGISTRATIONS, "/status/ready"), (ENDPOINTS, "/status/conditions/0")] {
        let name = if path == ENDPOINTS { "e" } else { "a" };
        root.until(&format!("{path}/{name}"), "looked at", |found| {
            found.and_then(|found| found.pointer(is_so)).is_some()
        })
        .await;
    }
    let address = "https://seen.example/clusters/a/control-plane";
    for (path, columns, cells) in [
        (
            CONTROL_PLANES,
            "Name Mode Endpoint* Ready Phase Age",
            json!(["a", "Virtual", address, "True", "Ready"]),
        ),
        (CLASSES, "Name Age", json!(["c"])),
        (
            ENDPOINTS,
            "Name Endpoint* Ready Age",
            json!(["e", "https://seen.example", "True"]),
        ),
        (REGISTRATIONS, "Name Endpoint* Ready Age", json!(["a", address, true])),
    ] {
        let table = table(&world, path).await;
        // Those with a star are shown where there is room: `kubectl get -o wide`.
        let column = |one: &Value| match one["priority"].as_i64() {
            Some(0) => one["name"].as_str().unwrap().to_owned(),
            _ => format!("{}*", one["name"].as_str().unwrap()),
        };
        let shown: Vec<String> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(column)
            .collect();
        assert_eq!(shown.join(" "), columns, "{path}");
        let mut row = table["rows"][0]["cells"].as_array().unwrap().clone();
        let age = row.pop().unwrap();
        assert!(age.as_str().unwrap().ends_with('s'), "{path}: {age}");
        assert_eq!(Value::Array(row), cells, "{path}");
    }
}

#[tokio::test]
async fn a_path_cannot_change_however_it_is_said() {
    let (world, root) = world().await;
    let said = |path: &str| json!({"virtual": {"clusterPath": path}});
    control_plane(&root, "named", said("p")).await;
    control_plane(&root, "plain", json!({})).await;
    for (name, spec) in [
        ("named", said("q")),
        ("named", json!({})),
        ("named", json!({"virtual": {}})),
        ("plain", said("q")),
    ] {
        let path = format!("{CONTROL_PLANES}/{name}");
        // As it is when its controller has nothing more to write.
        let mut object = until_ready(&root, name).await;
        object["spec"] = spec;
        let refused = ask(&world.client, "PUT", &path, object).await.unwrap_err().to_string();
        assert!(
            refused.contains("spec.virtual.clusterPath is immutable: it names the data"),
            "{refused}"
        );
    }
    // To say what was meant changes nothing.
    root.patch(&format!("{CONTROL_PLANES}/plain"), json!({"spec": said("plain")}))
        .await;
    until_ready(&root, "plain").await;
}
