//! The same on the embedded store, whose ranges and histories are laid out otherwise.

use std::sync::Arc;

use mica_store::EmbeddedStore;

use super::api::{ALL, Api, config_map, next, shorts};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_owners_and_watches_are_the_same_on_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let options = mica_store::embedded::Options::default();
    let store = Arc::new(EmbeddedStore::open(directory.path(), options).unwrap());
    let api = Api::on(store.clone()).await;
    let start = api.get(ALL).await["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut ids = Vec::new();
    for plane in ["p1", "p2", "p3"] {
        ids.push(api.plane(plane).await);
        api.config_map(plane, "a", &["u"]).await;
        api.config_map(plane, "b", &["v", "u"]).await;
    }
    let owned = format!("{ALL}?fieldSelector=metadata.ownerReferences.uid%3Du");
    for list in [ALL, &owned] {
        let mut shown = shorts(&api.get(list).await);
        let separator = if list.contains('?') { '&' } else { '?' };
        let first = api.get(&format!("{list}{separator}limit=4")).await;
        let token = first["metadata"]["continue"].as_str().unwrap();
        let rest = api.get(&format!("{list}{separator}limit=4&continue={token}")).await;
        assert_eq!([shorts(&first), shorts(&rest)].concat(), shown);
        shown.sort();
        let all = [
            "p1 ConfigMap a",
            "p1 ConfigMap b",
            "p2 ConfigMap a",
            "p2 ConfigMap b",
            "p3 ConfigMap a",
            "p3 ConfigMap b",
        ];
        assert_eq!(shown, all, "{list}");
    }
    assert_eq!(
        shorts(&api.get(&format!("{owned},mica.dev/plane-id%3D{}", ids[1])).await),
        ["p2 ConfigMap a", "p2 ConfigMap b"]
    );
    api.delete(&config_map("p1", "a")).await;
    api.drop_plane("p2").await;
    assert_eq!(shorts(&api.get(&owned).await).len(), 3);

    let mut watch = api.watch(&format!("{ALL}?watch=1&resourceVersion={start}")).await;
    let mut events = Vec::new();
    while events.last().is_none_or(|last| last != "DELETED p2 Plane p2") {
        events.push(next(&mut watch).await);
    }
    assert_eq!(
        events.len(),
        10,
        "six made, one deleted, then a plane of two: {events:?}"
    );
    assert_eq!(events[6], "DELETED p1 ConfigMap a");
    store.close();
}
