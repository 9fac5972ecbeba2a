//! Lists: what they show, in pages and as a whole.

use http::Method;
use mica_store::Revision;
use serde_json::{Value, json};

use super::api::{ALL, Api, OBJECTS, config_map, shorts};
use crate::world::text;

#[tokio::test]
async fn a_list_shows_what_planes_hold_themselves_and_where_it_is_from() {
    let api = Api::start().await;
    let id = api.plane("p1").await;
    api.plane("p2").await;
    let uid = api.config_map("p1", "a", &[]).await;
    api.post(
        "/clusters/p2/control-plane/api/v1/namespaces",
        json!({"metadata": {"name": "n"}}),
    )
    .await;
    // Root's own objects are not part of it.
    api.post(
        "/api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "in-root"}}),
    )
    .await;
    let list = api.get(ALL).await;
    assert_eq!(
        (list["kind"].as_str(), list["apiVersion"].as_str()),
        (Some("PartialObjectMetadataList"), Some("mica.dev/v1alpha1"))
    );
    let mut shown = shorts(&list);
    shown.sort();
    assert_eq!(shown, ["p1 ConfigMap a", "p2 Namespace n"]);
    let item = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["metadata"]["name"] == "a")
        .unwrap();
    assert_eq!(item["kind"], "PartialObjectMetadata");
    assert_eq!(item["metadata"]["uid"], uid.as_str());
    assert_eq!(
        item["metadata"]["annotations"],
        json!({"mica.dev/plane": "p1", "mica.dev/plane-id": id, "mica.dev/api-version": "v1",
            "mica.dev/kind": "ConfigMap", "mica.dev/resource": "configmaps"})
    );
    let object = api.get(&config_map("p1", "a")).await;
    assert_eq!(
        item["metadata"]["resourceVersion"],
        object["metadata"]["resourceVersion"]
    );
    assert_eq!(item["metadata"]["managedFields"], object["metadata"]["managedFields"]);
    assert!(item.get("data").is_none());
}

#[tokio::test]
async fn one_plane_and_root_list_their_own() {
    let api = Api::start().await;
    for plane in ["p1", "p2"] {
        api.plane(plane).await;
        api.config_map(plane, "a", &[]).await;
    }
    let one = "/clusters/p1/control-plane/apis/mica.dev/v1alpha1/objects";
    assert_eq!(shorts(&api.get(one).await), ["p1 ConfigMap a"]);
    let mut root = shorts(&api.get("/apis/mica.dev/v1alpha1/objects").await);
    root.sort();
    assert_eq!(root, ["- Plane p1", "- Plane p2"]);
    api.patch(
        "/apis/mica.dev/v1alpha1/planes/p1",
        json!({"spec": {"state": "Suspended"}}),
    )
    .await;
    let (code, status) = api.call(Method::GET, one, None).await;
    assert_eq!(
        (code.as_u16(), status["reason"].as_str()),
        (403, Some("PlaneSuspended"))
    );
}

#[tokio::test]
async fn pages_together_are_the_list_as_it_was_at_the_first() {
    let api = Api::start().await;
    for plane in ["p1", "p2", "p3"] {
        api.plane(plane).await;
        for name in ["a", "b", "c"] {
            api.config_map(plane, name, &["u"]).await;
        }
    }
    for selector in ["", "&fieldSelector=metadata.ownerReferences.uid%3Du"] {
        let whole = shorts(&api.get(&format!("{ALL}?{selector}")).await);
        assert_eq!(whole.len(), 9);
        let mut paged = Vec::new();
        let mut path = format!("{ALL}?limit=2{selector}");
        loop {
            let page = api.get(&path).await;
            paged.extend(shorts(&page));
            // Later pages do not see what is written between.
            let extra = format!("extra-{}-{}", paged.len(), selector.len());
            api.config_map("p2", &extra, &["u"]).await;
            match page["metadata"]["continue"].as_str() {
                Some(token) => path = format!("{ALL}?limit=2&continue={token}{selector}"),
                None => break,
            }
        }
        assert_eq!(paged, whole);
        for at in [2, 4, 6, 8, 9] {
            let (code, _) = api
                .call(
                    Method::DELETE,
                    &config_map("p2", &format!("extra-{at}-{}", selector.len())),
                    None,
                )
                .await;
            assert_eq!(code, 200);
        }
    }
}

#[tokio::test]
async fn a_page_whose_state_is_gone_can_be_read_on_from_the_newest() {
    let api = Api::start().await;
    api.plane("p1").await;
    for name in ["a", "b", "c"] {
        api.config_map("p1", name, &[]).await;
    }
    let page = api.get(&format!("{ALL}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    api.config_map("p1", "d", &[]).await;
    let newest: u64 = api.get(ALL).await["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    api.store.compact(Revision(newest)).await.unwrap();
    let (code, status) = api
        .call(Method::GET, &format!("{ALL}?limit=9&continue={token}"), None)
        .await;
    assert_eq!((code.as_u16(), status["reason"].as_str()), (410, Some("Expired")));
    let fresh = status["metadata"]["continue"].as_str().unwrap();
    let rest = shorts(&api.get(&format!("{ALL}?limit=9&continue={fresh}")).await);
    assert_eq!(rest, ["p1 ConfigMap b", "p1 ConfigMap c", "p1 ConfigMap d"]);
}

#[tokio::test]
async fn selectors_choose_by_metadata_and_kind() {
    let api = Api::start().await;
    let id = api.plane("p1").await;
    api.plane("p2").await;
    for plane in ["p1", "p2"] {
        api.config_map(plane, "a", &[]).await;
        api.config_map(plane, "b", &[]).await;
    }
    api.post(
        "/clusters/p2/control-plane/api/v1/namespaces",
        json!({"metadata": {"name": "a"}}),
    )
    .await;
    for (query, expected) in [
        ("labelSelector=app%3Db", &["p1 ConfigMap b", "p2 ConfigMap b"][..]),
        (
            "fieldSelector=metadata.name%3Da,metadata.namespace%3Ddefault",
            &["p1 ConfigMap a", "p2 ConfigMap a"],
        ),
        ("fieldSelector=metadata.namespace%3D", &["p2 Namespace a"]),
        (
            &format!("fieldSelector=mica.dev/plane-id%3D{id}"),
            &["p1 ConfigMap a", "p1 ConfigMap b"],
        ),
        ("fieldSelector=mica.dev/kind!%3DConfigMap", &["p2 Namespace a"]),
        ("fieldSelector=mica.dev/resource%3Dnamespaces", &["p2 Namespace a"]),
    ] {
        let mut shown = shorts(&api.get(&format!("{ALL}?{query}")).await);
        shown.sort();
        assert_eq!(shown, expected, "{query}");
    }
    for (query, message) in [
        ("fieldSelector=spec.x%3D1", "field label not supported: spec.x"),
        (
            "fieldSelector=mica.dev/plane-id%3Droot",
            "\"root\" is not the id of a plane",
        ),
        ("continue=x", "invalid continue token: continue key is not valid"),
    ] {
        let (code, status) = api.call(Method::GET, &format!("{ALL}?{query}"), None).await;
        assert_eq!((code.as_u16(), status["message"].as_str()), (400, Some(message)));
    }
}

#[tokio::test]
async fn it_is_discovered_read_only_and_guarded() {
    let api = Api::start().await;
    api.plane("p1").await;
    for prefix in ["", "/clusters/p1/control-plane", "/clusters/*/control-plane"] {
        let version = api.get(&format!("{prefix}/apis/mica.dev/v1alpha1")).await;
        let resources = version["resources"].as_array().unwrap();
        let objects = resources.iter().find(|resource| resource["name"] == "objects").unwrap();
        assert_eq!(objects["verbs"], json!(["list", "watch"]), "{prefix}");
        let base = format!("{prefix}/apis/mica.dev/v1alpha1/objects");
        for (method, path) in [
            (Method::POST, base.clone()),
            (Method::DELETE, base.clone()),
            (Method::GET, format!("{base}/x")),
        ] {
            let (code, _) = api.call(method, &path, Some(&json!({}))).await;
            assert_eq!(code, 405, "{path}");
        }
    }
    for path in [ALL, "/clusters/p1/control-plane/apis/mica.dev/v1alpha1/objects"] {
        let (code, status) = api.get_as_member_of("nobody", path).await;
        assert_eq!(
            (code.as_u16(), status["reason"].as_str()),
            (403, Some("Forbidden")),
            "{path}"
        );
    }
    // Clients that know metadata of any kind ask for it by its common name.
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (code, list) = api.accepting(metadata, ALL).await;
    assert_eq!(
        (code.as_u16(), list["apiVersion"].as_str()),
        (200, Some("meta.k8s.io/v1"))
    );
    let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    for (accept, code) in [
        ("application/yaml", 406),
        ("application/vnd.kubernetes.protobuf", 406),
        (kubectl, 200),
        ("*/*", 200),
    ] {
        assert_eq!(api.accepting(accept, ALL).await.0, code, "{accept}");
    }
}

#[tokio::test]
async fn people_get_a_table_that_says_where_each_object_is() {
    let api = Api::start().await;
    for plane in ["p1", "p2"] {
        api.plane(plane).await;
        api.config_map(plane, "a", &[]).await;
    }
    let roles = "/clusters/p2/control-plane/apis/rbac.authorization.k8s.io/v1/clusterroles";
    api.post(roles, json!({"metadata": {"name": "r"}})).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    let (_, all) = api.accepting(table, ALL).await;
    assert_eq!(
        (all["kind"].as_str(), all["apiVersion"].as_str()),
        (Some("Table"), Some("meta.k8s.io/v1"))
    );
    let columns: Vec<&str> = all["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| text(c, "/name"))
        .collect();
    assert_eq!(
        columns,
        ["Plane", "Resource", "Namespace", "Name", "Age", "Kind", "API Version"]
    );
    let cells = |table: &Value, columns: std::ops::Range<usize>| -> Vec<String> {
        let rows = table["rows"].as_array().unwrap().iter();
        let joined = rows.map(|row| {
            let cells: Vec<&str> = row["cells"]
                .as_array()
                .unwrap()
                .iter()
                .map(|cell| cell.as_str().unwrap())
                .collect();
            cells[columns.clone()].join(" ")
        });
        let mut rows: Vec<String> = joined.collect();
        rows.sort();
        rows
    };
    assert_eq!(
        cells(&all, 0..4),
        [
            "p1 configmaps default a",
            "p2 clusterroles.rbac.authorization.k8s.io  r",
            "p2 configmaps default a"
        ]
    );
    assert_eq!(
        cells(&all, 5..7),
        [
            "ClusterRole rbac.authorization.k8s.io/v1",
            "ConfigMap v1",
            "ConfigMap v1"
        ]
    );
    let row = &all["rows"][0]["object"];
    assert_eq!(
        (row["kind"].as_str(), row["apiVersion"].as_str()),
        (Some("PartialObjectMetadata"), Some("meta.k8s.io/v1"))
    );
    assert!(row["metadata"]["annotations"]["mica.dev/plane"].is_string());
    // In one plane nobody asks which.
    let (_, one) = api
        .accepting(
            table,
            &format!("/clusters/p1/control-plane{OBJECTS}?includeObject=None"),
        )
        .await;
    assert_eq!(cells(&one, 0..3), ["configmaps default a"]);
    assert_eq!(one["rows"][0]["object"], Value::Null);
    let (code, _) = api.accepting(table, &format!("{ALL}?includeObject=Everything")).await;
    assert_eq!(code, 400);
    let (_, page) = api.accepting(table, &format!("{ALL}?limit=2")).await;
    let token = text(&page, "/metadata/continue");
    let (_, rest) = api.accepting(table, &format!("{ALL}?limit=2&continue={token}")).await;
    assert_eq!((cells(&page, 0..1).len(), cells(&rest, 0..1).len()), (2, 1));
    let (_, none) = api.accepting(table, &format!("{ALL}?labelSelector=no%3Dne")).await;
    assert_eq!(none["rows"], json!([]));
    let beta = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    assert_eq!(api.accepting(beta, ALL).await.1["apiVersion"], "meta.k8s.io/v1beta1");
}
