//! What a store promises, in tables.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn config_map(namespace: &str, name: &str, version: u32) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("{namespace}-{name}")),
            resource_version: Some(version.to_string()),
            labels: Some([("app".to_owned(), format!("v{version}"))].into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn request(cluster: &str, name: &str) -> Request {
    Request::new(ClusterName::new(cluster), Some("ns"), name)
}

fn apply(store: &Store<ConfigMap>, cluster: &str, name: &str, version: u32, list: ListId) -> String {
    let change = store.apply(&request(cluster, name), Arc::new(config_map("ns", name, version)), list);
    shown(change.as_ref())
}

fn shown(change: Option<&Change<ConfigMap>>) -> String {
    let version = |object: &ConfigMap| object.metadata.resource_version.clone().unwrap();
    match change {
        None => "nothing".to_owned(),
        Some(Change::Added(new)) => format!("added {}", version(new)),
        Some(Change::Updated { old, new }) => format!("{} became {}", version(old), version(new)),
        Some(Change::Deleted(old)) => format!("deleted {}", version(old)),
    }
}

fn names(found: &[Arc<ConfigMap>]) -> Vec<&str> {
    found
        .iter()
        .map(|object| object.metadata.name.as_deref().unwrap())
        .collect()
}

#[test]
fn only_another_version_of_an_object_is_a_change() {
    let store = Store::default();
    let list = store.begin_list();
    for (version, wanted) in [(1, "added 1"), (1, "nothing"), (2, "1 became 2"), (2, "nothing")] {
        assert_eq!(apply(&store, "a", "x", version, list), wanted);
    }
    assert_eq!(shown(store.delete(&request("a", "x")).as_ref()), "deleted 2");
    assert_eq!(shown(store.delete(&request("a", "x")).as_ref()), "nothing");
    assert_eq!(apply(&store, "a", "x", 2, list), "added 2");
    let mut again = config_map("ns", "x", 2);
    again.metadata.uid = Some("another".to_owned());
    let change = store.apply(&request("a", "x"), Arc::new(again), list);
    assert_eq!(shown(change.as_ref()), "2 became 2", "an object of that name made anew");
}

#[test]
fn a_second_list_finds_what_changed_and_what_is_gone_and_nothing_else() {
    let store = Store::default();
    let first = store.begin_list();
    for name in ["same", "changed", "gone"] {
        apply(&store, "a", name, 1, first);
        apply(&store, "b", name, 1, first);
    }
    let second = store.begin_list();
    assert_eq!(apply(&store, "a", "same", 1, second), "nothing");
    assert_eq!(apply(&store, "a", "changed", 2, second), "1 became 2");
    assert_eq!(apply(&store, "a", "new", 3, second), "added 3");
    let gone = store.sweep(&ClusterName::new("a"), second);
    assert_eq!(gone.len(), 1);
    assert_eq!(
        (&gone[0].0, shown(Some(&gone[0].1)).as_str()),
        (&request("a", "gone"), "deleted 1")
    );
    assert_eq!(
        names(&store.list_in(&ClusterName::new("b"))),
        ["changed", "gone", "same"]
    );

    let third = store.begin_list();
    store.keep(&request("b", "same"), third);
    let covered = |cluster: &ClusterName| cluster.as_str() == "b";
    let mut gone: Vec<_> = store
        .sweep_where(third, covered)
        .into_iter()
        .map(|(gone, _)| gone)
        .collect();
    gone.sort();
    assert_eq!(gone, [request("b", "changed"), request("b", "gone")]);
    assert_eq!(
        names(&store.list_in(&ClusterName::new("a"))),
        ["changed", "new", "same"]
    );
}

#[test]
fn a_purged_cluster_leaves_nothing_behind_in_entries_and_indexes() {
    let store = Store::default();
    let by_label = |object: &ConfigMap| {
        object
            .metadata
            .labels
            .iter()
            .flatten()
            .map(|(_, value)| value.clone())
            .collect()
    };
    apply(&store, "a", "early", 1, ListId::NONE);
    store.add_index("app", Arc::new(by_label));
    for cluster in ["a", "aa", "b"] {
        apply(&store, cluster, "x", 1, ListId::NONE);
        apply(&store, cluster, "y", 2, ListId::NONE);
    }
    let a = ClusterName::new("a");
    assert_eq!(
        names(&store.by_index_in(&a, "app", "v1")),
        ["early", "x"],
        "what was there before the index too"
    );
    assert_eq!(store.by_index("app", "v1").len(), 4);
    apply(&store, "a", "x", 2, ListId::NONE);
    assert_eq!(names(&store.by_index_in(&a, "app", "v1")), ["early"]);
    store.purge(&a);
    assert_eq!((store.len(), store.by_index("app", "v2").len()), (4, 2));
    assert!(store.list_in(&a).is_empty() && store.by_index_in(&a, "app", "v1").is_empty());
    assert!(store.by_index("nobody declared this", "v1").is_empty());
}

#[test]
fn an_index_is_bounded_and_outlives_a_function_that_panics() {
    let store = Store::default();
    store.add_index(
        "many",
        Arc::new(|_: &ConfigMap| (0..1000).map(|i| i.to_string()).collect()),
    );
    store.add_index("broken", Arc::new(|_: &ConfigMap| panic!("on purpose")));
    assert_eq!(apply(&store, "a", "x", 1, ListId::NONE), "added 1");
    assert_eq!(store.by_index("many", &(INDEX_VALUES - 1).to_string()).len(), 1);
    assert_eq!(store.by_index("many", &INDEX_VALUES.to_string()).len(), 0);
    assert!(store.by_index("broken", "").is_empty());
    store.delete(&request("a", "x"));
    assert!(store.is_empty());
}
