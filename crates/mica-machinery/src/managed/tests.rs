//! Sets and their laws, and what writes do to managed fields, measured by what a real kube-apiserver answered.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::schema::TypeRef;
use super::*;
use crate::codec::decode_value;
use crate::facts::facts;
use crate::object;

fn set(fields: Value) -> Set {
    Set::from_fields(&fields).unwrap()
}

#[test]
fn fields_are_read_and_written_as_upstream_does() {
    let fields = json!({
        "f:spec": {".": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
        "f:metadata": {"f:finalizers": {"v:\"a.io/x\"": {}}},
        "f:list": {"i:3": {}},
    });
    assert_eq!(set(fields.clone()).to_fields(), fields);
    let paths: Vec<String> = set(fields).paths().iter().map(|path| path_text(path)).collect();
    expect![[r#"
        .spec
        .list[3]
        .metadata.finalizers[="a.io/x"]
        .spec.ports[port=80,protocol="TCP"]
        .spec.ports[port=80,protocol="TCP"].name"#]]
    .assert_eq(&paths.join("\n"));
}

#[test]
fn steps_of_the_future_are_dropped_and_broken_ones_refused() {
    assert_eq!(
        set(json!({"z:what": {"f:a": {}}, "f:a": {}})).to_fields(),
        json!({"f:a": {}})
    );
    for broken in [
        json!({"f": {}}),
        json!({"fa": {}}),
        json!({"v:": {}}),
        json!({"k:[]": {}}),
        json!({"i:x": {}}),
        json!({"f:a": 1}),
        json!([]),
    ] {
        assert!(Set::from_fields(&broken).is_err(), "{broken}");
    }
}

#[test]
fn differences_mind_parents_only_when_recursive() {
    let owned = set(json!({"f:a": {".": {}, "f:b": {"f:c": {}}}, "f:d": {}}));
    let other = set(json!({"f:a": {"f:b": {}}, "f:d": {}}));
    assert_eq!(
        owned.difference(&other).to_fields(),
        json!({"f:a": {".": {}, "f:b": {"f:c": {}}}})
    );
    assert_eq!(owned.recursive_difference(&other).to_fields(), json!({"f:a": {}}));
    assert_eq!(
        owned.leaves().to_fields(),
        json!({"f:a": {"f:b": {"f:c": {}}}, "f:d": {}})
    );
}

fn any_set() -> impl Strategy<Value = Set> {
    let element = prop_oneof![
        "[a-c]".prop_map(|name| PathElement::field(&name)),
        (0i64..3).prop_map(|n| PathElement::Key(vec![("k".into(), n.into())])),
        "[a-c]".prop_map(|text| PathElement::Value(text.into())),
    ];
    proptest::collection::vec(proptest::collection::vec(element, 1..4), 0..12).prop_map(|paths| {
        let mut set = Set::new();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

fn model(set: &Set) -> BTreeSet<String> {
    set.paths().iter().map(|path| path_text(path)).collect()
}

proptest! {
    #[test]
    fn set_algebra_agrees_with_plain_sets(a in any_set(), b in any_set()) {
        let (x, y) = (model(&a), model(&b));
        prop_assert_eq!(model(&a.union(&b)), x.union(&y).cloned().collect());
        prop_assert_eq!(model(&a.intersection(&b)), x.intersection(&y).cloned().collect());
        prop_assert_eq!(model(&a.difference(&b)), x.difference(&y).cloned().collect());
        let below = |path: &String| y.iter().any(|gone| path.starts_with(gone.as_str()) && matches!(path.as_bytes().get(gone.len()), None | Some(b'.' | b'[')));
        prop_assert_eq!(model(&a.recursive_difference(&b)), x.iter().filter(|path| !below(path)).cloned().collect());
        prop_assert_eq!(a.len(), x.len());
        prop_assert!(a.paths().iter().all(|path| a.has(path)));
        prop_assert_eq!(Set::from_fields(&a.to_fields()).unwrap(), a);
    }
}

fn kind(group: &str, version: &str, kind: &str) -> TypeRef<'static> {
    TypeRef::kind(facts().kind(group, version, kind).unwrap())
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// An object that is written to, one write after another.
struct Story {
    schema: TypeRef<'static>,
    api_version: &'static str,
    reset: Set,
    object: Option<Value>,
    second: i64,
}

impl Story {
    fn config_map() -> Self {
        Self {
            schema: kind("", "v1", "ConfigMap"),
            api_version: "v1",
            reset: Set::new(),
            object: None,
            second: 0,
        }
    }

    fn write(&mut self, manager: &str, new: Value) -> &mut Self {
        self.write_as(manager, "", Request::Usual, new)
    }

    fn write_as(&mut self, manager: &str, subresource: &str, request: Request, mut new: Value) -> &mut Self {
        object::set(&mut new, &["metadata", "uid"], "u");
        self.second += 1;
        let write = Write {
            manager,
            api_version: self.api_version,
            subresource,
            time: time(self.second),
            schema: self.schema,
            reset: &self.reset,
            versions: &OneVersion,
        };
        update(self.object.as_ref(), &mut new, request, &write);
        self.object = Some(new);
        self
    }

    fn managed(&self) -> Value {
        object::get(self.object.as_ref().unwrap(), &["metadata", "managedFields"])
            .cloned()
            .unwrap_or_default()
    }

    fn check(&mut self, expected: Expect) -> &mut Self {
        let lines: Vec<String> = self
            .managed()
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| {
                let text = |field: &str| object::string(entry, &[field]);
                format!(
                    "{} {} {}{} {}",
                    text("manager"),
                    text("operation"),
                    text("subresource"),
                    text("time"),
                    entry["fieldsV1"]
                )
            })
            .collect();
        expected.assert_eq(&lines.join("\n"));
        self
    }
}

#[test]
fn a_create_records_all_but_system_metadata() {
    let mut story = Story::config_map();
    story
        .write("", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}, "metadata": {
            "name": "a", "generateName": "x-", "labels": {"g": "1"}, "finalizers": ["a.io/x"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u-1"}]}}))
        .check(expect![[r#"unknown Update 2023-11-14T22:13:21Z {"f:data":{".":{},"f:k":{}},"f:metadata":{"f:finalizers":{".":{},"v:\"a.io/x\"":{}},"f:generateName":{},"f:labels":{".":{},"f:g":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"u-1\"}":{}}}}"#]]);
}

#[test]
fn an_object_without_fields_has_no_managers() {
    Story::config_map()
        .write("m", json!({"metadata": {"name": "a"}}))
        .check(expect![""]);
}

#[test]
fn two_managers_split_the_fields() {
    let mut story = Story::config_map();
    story
        .write("one", json!({"data": {"a": "1", "b": "1"}}))
        .write("two", json!({"data": {"a": "1", "b": "2", "c": "2"}}))
        .check(expect![[r#"
            one Update 2023-11-14T22:13:21Z {"f:data":{".":{},"f:a":{}}}
            two Update 2023-11-14T22:13:22Z {"f:data":{"f:b":{},"f:c":{}}}"#]])
        .write("two", json!({"data": {"b": "2", "c": "2"}}))
        .check(expect![[r#"
            one Update 2023-11-14T22:13:21Z {"f:data":{}}
            two Update 2023-11-14T22:13:22Z {"f:data":{"f:b":{},"f:c":{}}}"#]])
        .write("three", json!({}))
        .check(expect![""]);
}

#[test]
fn a_write_that_changes_nothing_keeps_times() {
    let mut story = Story::config_map();
    story.write("one", json!({"data": {"a": "1"}}));
    let before = story.managed();
    story.write("one", json!({"data": {"a": "1"}}));
    assert_eq!(story.managed(), before);
    story.write("two", json!({"data": {"a": "1"}}));
    assert_eq!(story.managed(), before);
}

#[test]
fn a_subresource_has_its_own_entry_and_reset_fields_are_not_recorded() {
    let mut story = Story {
        schema: kind("", "v1", "Namespace"),
        api_version: "v1",
        reset: Set::of_fields(&[&["status"]]),
        object: None,
        second: 0,
    };
    story.write("m", json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}, "metadata": {"labels": {"a": "b"}}}));
    story.reset = Set::of_fields(&[&["spec"]]);
    story
        .write_as(
            "m",
            "status",
            Request::Usual,
            json!({"spec": {"finalizers": []}, "status": {"phase": "Terminating"}, "metadata": {"labels": {"a": "b"}}}),
        )
        .check(expect![[r#"
            m Update 2023-11-14T22:13:21Z {"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:finalizers":{}}}
            m Update status2023-11-14T22:13:22Z {"f:status":{"f:phase":{}}}"#]]);
}

#[test]
fn clearing_stops_tracking() {
    let mut story = Story::config_map();
    story.write("one", json!({"data": {"a": "1"}}));
    story
        .write_as("one", "", Request::Reset, json!({"data": {"a": "2"}}))
        .check(expect![""]);
    story.write("one", json!({"data": {"a": "3"}})).check(expect![""]);
    let mut story = Story::config_map();
    story.write("one", json!({"data": {"a": "1"}}));
    story
        .write("one", json!({"data": {"a": "2"}, "metadata": {"managedFields": [{}]}}))
        .check(expect![""]);
}

#[test]
fn a_list_in_the_request_counts_unless_it_is_broken() {
    let entry = |operation: &str| json!([{"manager": "m", "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}]);
    let mut story = Story::config_map();
    story.write("one", json!({"data": {"a": "1"}}));
    story
        .write(
            "two",
            json!({"data": {"a": "1"}, "metadata": {"managedFields": entry("Update")}}),
        )
        .check(expect![[r#"m Update  {"f:data":{"f:a":{}}}"#]])
        .write(
            "two",
            json!({"data": {"a": "1"}, "metadata": {"managedFields": entry("Frob")}}),
        )
        .check(expect![[r#"m Update  {"f:data":{"f:a":{}}}"#]])
        .write_as(
            "two",
            "status",
            Request::Usual,
            json!({"data": {"a": "1"}, "metadata": {"managedFields": []}}),
        )
        .check(expect![[r#"m Update  {"f:data":{"f:a":{}}}"#]]);
}

#[test]
fn the_oldest_of_more_than_ten_updaters_are_merged() {
    let mut story = Story::config_map();
    for at in 0..13 {
        let data: serde_json::Map<String, Value> = (0..=at).map(|key| (format!("k{key:02}"), "v".into())).collect();
        story.write(&format!("m{at:02}"), json!({"data": data}));
    }
    story.check(expect![[r#"
        ancient-changes Update 2023-11-14T22:13:24Z {"f:data":{".":{},"f:k00":{},"f:k01":{},"f:k02":{},"f:k03":{}}}
        m04 Update 2023-11-14T22:13:25Z {"f:data":{"f:k04":{}}}
        m05 Update 2023-11-14T22:13:26Z {"f:data":{"f:k05":{}}}
        m06 Update 2023-11-14T22:13:27Z {"f:data":{"f:k06":{}}}
        m07 Update 2023-11-14T22:13:28Z {"f:data":{"f:k07":{}}}
        m08 Update 2023-11-14T22:13:29Z {"f:data":{"f:k08":{}}}
        m09 Update 2023-11-14T22:13:30Z {"f:data":{"f:k09":{}}}
        m10 Update 2023-11-14T22:13:31Z {"f:data":{"f:k10":{}}}
        m11 Update 2023-11-14T22:13:32Z {"f:data":{"f:k11":{}}}
        m12 Update 2023-11-14T22:13:33Z {"f:data":{"f:k12":{}}}"#]]);
}

#[test]
fn entries_of_versions_that_are_gone_are_dropped() {
    let mut story = Story::config_map();
    let old = json!([{"manager": "m", "operation": "Update", "apiVersion": "v0", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}]);
    story.object = Some(json!({"metadata": {"uid": "u", "managedFields": old}, "data": {"a": "1"}}));
    story
        .write("two", json!({"data": {"a": "1", "b": "2"}}))
        .check(expect![[r#"two Update 2023-11-14T22:13:21Z {"f:data":{"f:b":{}}}"#]]);
}

fn check_compare(schema: TypeRef<'_>, old: &Value, new: &Value, expected: Expect) {
    let text = match compare_objects(old, new, schema) {
        Ok(changes) => format!(
            "+{}\n~{}\n-{}",
            changes.added.to_fields(),
            changes.modified.to_fields(),
            changes.removed.to_fields()
        ),
        Err(errors) => errors.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn lists_compare_by_key_and_atomic_ones_whole() {
    let service = kind("", "v1", "Service");
    check_compare(
        service,
        &json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "a"}, {"port": 81}], "externalIPs": ["1.1.1.1"]}}),
        &json!({"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 443, "protocol": "UDP"}], "externalIPs": ["2.2.2.2"]}}),
        expect![[r#"
            +{"f:spec":{"f:ports":{"k:{\"port\":443,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}}}}}
            ~{"f:spec":{"f:externalIPs":{},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:name":{}}}}}
            -{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:protocol":{}},"k:{\"port\":81,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}}"#]],
    );
}

#[test]
fn duplicates_are_one_leaf() {
    let service = kind("", "v1", "Service");
    let two = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "a"}, {"port": 80, "protocol": "TCP", "name": "b"}]}});
    let one = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "a"}]}});
    check_compare(
        service,
        &one,
        &two,
        expect![[r#"
        +{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{}}}}
        ~{}
        -{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}}"#]],
    );
    check_compare(
        service,
        &two,
        &one,
        expect![[r#"
        +{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}}
        ~{}
        -{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{}}}}"#]],
    );
    check_compare(
        service,
        &two,
        &two,
        expect![[r#"
        +{}
        ~{}
        -{}"#]],
    );
}

#[test]
fn objects_without_a_schema_compare_maps_by_member_and_lists_whole() {
    check_compare(
        TypeRef::DEDUCED,
        &json!({"spec": {"a": 1, "b": {"c": [1], "d": {}}, "e": "text", "n": null}}),
        &json!({"spec": {"a": 1.0, "b": {"c": [2]}, "e": {"f": 1}, "n": 5}}),
        expect![[r#"
            +{"f:spec":{"f:e":{"f:f":{}}}}
            ~{"f:spec":{"f:b":{"f:c":{}},"f:e":{},"f:n":{}}}
            -{"f:spec":{"f:b":{"f:d":{}}}}"#]],
    );
}

#[test]
fn what_does_not_fit_its_type_is_refused() {
    check_compare(
        kind("", "v1", "ConfigMap"),
        &json!({}),
        &json!({"frob": 1}),
        expect![".frob: field not declared in schema"],
    );
    check_compare(
        kind("", "v1", "Pod"),
        &json!({}),
        &json!({"spec": {"containers": [null]}}),
        expect![".spec.containers: element 0: associative list with keys may not have a null element"],
    );
}

#[test]
fn a_field_that_became_atomic_is_owned_whole() {
    let entry = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:selector": {"f:a": {}}, "f:clusterIP": {}}}}]);
    let mut story = Story {
        schema: kind("", "v1", "Service"),
        api_version: "v1",
        reset: Set::new(),
        object: None,
        second: 0,
    };
    story.object = Some(
        json!({"metadata": {"uid": "u", "managedFields": entry}, "spec": {"selector": {"a": "b"}, "clusterIP": "x"}}),
    );
    story
        .write("n", json!({"spec": {"selector": {"a": "b"}, "clusterIP": "y"}}))
        .check(expect![[r#"
        m Update  {"f:spec":{"f:selector":{}}}
        n Update 2023-11-14T22:13:21Z {"f:spec":{"f:clusterIP":{}}}"#]]);
}

#[test]
fn times_go_back_when_only_times_changed() {
    let entry = |time: &str| json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]);
    let old = json!({"metadata": {"name": "a", "resourceVersion": "1", "managedFields": entry("2024-01-01T00:00:00Z")}, "data": {"k": "v"}});
    let mut new =
        json!({"metadata": {"name": "a", "managedFields": entry("2024-01-02T00:00:00Z")}, "data": {"k": "v"}});
    keep_times_of_noop(&mut new, &old);
    assert_eq!(new["metadata"]["managedFields"], old["metadata"]["managedFields"]);
    let mut new =
        json!({"metadata": {"name": "a", "managedFields": entry("2024-01-02T00:00:00Z")}, "data": {"k": "w"}});
    keep_times_of_noop(&mut new, &old);
    assert_ne!(new["metadata"]["managedFields"], old["metadata"]["managedFields"]);
}

#[test]
fn an_empty_list_in_the_request_is_a_reset() {
    for (body, expected) in [
        (r#"{"metadata":{"managedFields":[]}}"#, Request::Reset),
        (
            r#"{"metadata":{"a":1,"managedFields": [ ] ,"b":[{}]},"x":"y"}"#,
            Request::Reset,
        ),
        (r#"{"metadata":{"managedFields":[{}]}}"#, Request::Usual),
        (r#"{"metadata":{"managedFields":null}}"#, Request::Usual),
        (
            r#"{"metadata":{"managedFields":[],"managedFields":null}}"#,
            Request::Usual,
        ),
        (r#"{"managedFields":[]}"#, Request::Usual),
        (r#"{"spec":{"metadata":{"managedFields":[]}}}"#, Request::Usual),
        ("nonsense", Request::Usual),
        ("[]", Request::Usual),
    ] {
        assert_eq!(request_of(body.as_bytes()), expected, "{body}");
    }
}

#[test]
fn the_manager_is_the_first_word_of_the_user_agent() {
    assert_eq!(manager_of_user_agent(b"kubectl/v1.36 (linux/amd64)"), "kubectl");
    assert_eq!(manager_of_user_agent("my tool\u{7}\u{200b}".as_bytes()), "my tool");
    assert_eq!(manager_of_user_agent("é".repeat(100).as_bytes()).len(), 128);
    assert_eq!(manager_of_user_agent(b"a\xff\xe2\x82b/c"), "a\u{fffd}\u{fffd}\u{fffd}b");
    assert_eq!(manager_of_user_agent(b""), "");
}

proptest! {
    #[test]
    fn any_value_can_be_tracked_without_a_schema(old in json_object(), new in json_object()) {
        let mut story = Story { schema: TypeRef::DEDUCED, api_version: "x/v1", reset: Set::new(), object: None, second: 0 };
        story.write("one", old);
        let live = story.object.clone().unwrap();
        story.write("two", new.clone());
        let changes = compare_objects(&live, story.object.as_ref().unwrap(), TypeRef::DEDUCED).unwrap();
        // Nobody owns what is gone, and whoever wrote last owns what it changed.
        let entries = Entries::from_list(story.managed().as_array().map_or(&[], Vec::as_slice)).unwrap();
        for entry in entries.iter() {
            prop_assert!(entry.fields.intersection(&changes.removed).is_empty());
            if entry.manager.name == "two" {
                prop_assert_eq!(&entry.fields, &changes.added.union(&changes.modified));
            }
        }
    }

    #[test]
    fn any_entry_list_is_safe(list in proptest::collection::vec(json_value(), 0..3)) {
        let _ = Entries::from_list(&list);
        let _ = Set::from_fields(&Value::Array(list));
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i8>().prop_map(Into::into),
        any::<bool>().prop_map(Into::into),
        "[a-c]{0,2}".prop_map(Into::into)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            proptest::collection::btree_map("[a-c.:{}\"]{1,2}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn json_object() -> impl Strategy<Value = Value> {
    let member = prop_oneof![
        Just("spec".to_owned()),
        Just("status".to_owned()),
        Just("data".to_owned())
    ];
    proptest::collection::btree_map(member, json_value(), 0..4).prop_map(|map| map.into_iter().collect())
}

#[test]
fn a_create_of_a_config_map_is_cheap() {
    let ty = facts().kind("", "v1", "ConfigMap").unwrap();
    let object = decode_value(
        ty,
        &json!({"metadata": {"name": "a", "namespace": "b", "labels": {"app": "x"}}, "data": {"a": "1", "b": "2"}}),
    )
    .unwrap()
    .value;
    let reset = Set::new();
    let write = Write {
        manager: "m",
        api_version: "v1",
        subresource: "",
        time: time(0),
        schema: TypeRef::kind(ty),
        reset: &reset,
        versions: &OneVersion,
    };
    let start = std::time::Instant::now();
    const ROUNDS: u32 = 2000;
    for _ in 0..ROUNDS {
        let mut new = object.clone();
        update(None, &mut new, Request::Usual, &write);
    }
    // Unoptimised and on a busy machine; optimised it is a few microseconds.
    assert!(
        start.elapsed() / ROUNDS < std::time::Duration::from_millis(1),
        "{:?}",
        start.elapsed() / ROUNDS
    );
}
