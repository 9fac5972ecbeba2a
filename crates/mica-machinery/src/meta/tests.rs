//! Refusals, effects and deletion decisions, measured by what a real kube-apiserver answered.

use expect_test::{Expect, expect};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::field::{ErrorList, Path, aggregate};
use crate::kind::Scope;
use crate::names::name_is_dns_subdomain;

fn path() -> Path {
    Path::new("metadata")
}

fn now() -> Timestamp {
    "2024-05-01T10:00:00Z".parse().unwrap()
}

fn texts(errors: &ErrorList) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn check_create(metadata: &Value, expected: Expect) {
    let mut metadata = metadata.clone();
    if metadata.get("namespace").is_none() {
        metadata["namespace"] = "ns".into();
    }
    let mut errors = create_errors(&metadata, Scope::Namespaced, name_is_dns_subdomain, &path());
    errors.extend(kube_finalizer_errors(&metadata, &path()));
    expected.assert_eq(&texts(&errors));
}

#[test]
fn good_metadata_has_no_errors() {
    check_create(
        &json!({"name": "a", "labels": {"a": "b"}, "annotations": {"x.io/y": "z"}, "finalizers": ["orphan", "a.io/b"]}),
        expect![""],
    );
}

#[test]
fn every_problem_is_reported_in_order() {
    check_create(
        &json!({"generateName": "Bad_", "name": "", "namespace": "A", "generation": -1, "labels": {"a b": "x y"},
            "annotations": {"b c": ""}, "ownerReferences": [{}], "finalizers": ["nope"],
            "managedFields": [{"operation": "X", "fieldsType": "Y", "manager": "a\u{7}é\u{200b}"}]}),
        expect![[r#"
            metadata.generateName: Invalid value: "Bad_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            metadata.name: Required value: name or generateName is required
            metadata.namespace: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            metadata.generation: Invalid value: -1: must be greater than or equal to 0
            metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.labels: Invalid value: "x y": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            metadata.annotations: Invalid value: "b c": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty
            metadata.ownerReferences.kind: Invalid value: "": must not be empty
            metadata.ownerReferences.name: Invalid value: "": must not be empty
            metadata.ownerReferences.uid: Invalid value: "": must not be empty
            metadata.managedFields[0].operation: Invalid value: "X": must be `Apply` or `Update`
            metadata.managedFields[0].fieldsType: Invalid value: "Y": must be `FieldsV1`
            metadata.managedFields[0].manager: Invalid value: "a\aé\u200b": invalid character U+0007 (at position 1)
            metadata.managedFields[0].manager: Invalid value: "a\aé\u200b": invalid character U+200B (at position 4)
            metadata.finalizers[0]: Invalid value: "nope": name is neither a standard finalizer name nor is it fully qualified"#]],
    );
}

#[test]
fn finalizers_and_owners_are_refused_with_upstreams_sentences() {
    check_create(
        &json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}),
        expect![[
            r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#
        ]],
    );
    check_create(
        &json!({"name": "a", "ownerReferences": [
            {"apiVersion": "v1", "controller": true, "kind": "ConfigMap", "name": "o", "uid": "u-1"},
            {"apiVersion": "v1", "controller": true, "kind": "ConfigMap", "name": "p", "uid": "u-2"},
            {"apiVersion": "v1", "kind": "Event", "name": "o", "uid": "u-1"},
            {"apiVersion": "a/b/c", "kind": "X", "name": "o", "uid": "u-1"}]}),
        expect![[r#"
            metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-1","controller":true},{"apiVersion":"v1","kind":"ConfigMap","name":"p","uid":"u-2","controller":true},{"apiVersion":"v1","kind":"Event","name":"o","uid":"u-1"},{"apiVersion":"a/b/c","kind":"X","name":"o","uid":"u-1"}]: Only one reference can have Controller set to true. Found "true" in references for ConfigMap/o and ConfigMap/p
            metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"o","uid":"u-1"}: /v1, Kind=Event is disallowed from being an owner
            metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty"#]],
    );
}

#[test]
fn a_cluster_scoped_kind_has_no_namespace() {
    let errors = create_errors(
        &json!({"name": "a", "namespace": "b"}),
        Scope::Cluster,
        name_is_dns_subdomain,
        &path(),
    );
    assert_eq!(
        texts(&errors),
        "metadata.namespace: Forbidden: not allowed on this type"
    );
    let errors = create_errors(&json!({"name": "a"}), Scope::Namespaced, name_is_dns_subdomain, &path());
    assert_eq!(texts(&errors), "metadata.namespace: Required value");
}

#[test]
fn an_update_keeps_what_is_not_the_clients_and_refuses_the_rest() {
    let old = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2024-01-01T00:00:00Z", "generation": 3});
    let mut new = json!({"name": "a", "namespace": "n", "resourceVersion": "7", "creationTimestamp": "1999-01-01T00:00:00Z", "generation": 9, "generateName": "y-"});
    keep_generation(&mut new, &old);
    keep_system_fields(&mut new, &old);
    assert_eq!(before_update_errors(&new, &old, Scope::Namespaced, &path()), []);
    assert_eq!(
        (&new["uid"], &new["generation"], &new["creationTimestamp"]),
        (&old["uid"], &old["generation"], &old["creationTimestamp"])
    );

    let mut new = json!({"name": "b", "namespace": "n", "uid": "v", "deletionTimestamp": "1999-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5});
    keep_generation(&mut new, &old);
    keep_system_fields(&mut new, &old);
    expect![[r#"
        metadata.resourceVersion: Invalid value: "": must be specified for an update
        metadata.name: Invalid value: "b": field is immutable
        metadata.uid: Invalid value: "v": field is immutable
        metadata.deletionTimestamp: Invalid value: "1999-01-01T00:00:00Z": field is immutable
        metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable"#]]
    .assert_eq(&texts(&before_update_errors(&new, &old, Scope::Namespaced, &path())));
}

#[test]
fn an_object_being_deleted_gains_no_finalizers() {
    let old = json!({"name": "a", "namespace": "n", "resourceVersion": "7", "finalizers": ["a.io/x"],
        "deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    let mut new =
        json!({"name": "a", "namespace": "n", "resourceVersion": "7", "finalizers": ["a.io/x", "a.io/z", "a.io/y"]});
    keep_system_fields(&mut new, &old);
    expect![[r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"a.io/y", "a.io/z"}"#]]
        .assert_eq(&aggregate(&update_errors(&new, &old, &path())));
    assert!(!is_deleted_by_update(&new, &old));
    assert!(is_deleted_by_update(&json!({}), &old));
    assert!(!is_deleted_by_update(&json!({}), &json!({"finalizers": []})));
    assert!(!is_deleted_by_update(
        &json!({}),
        &json!({"deletionTimestamp": "x", "deletionGracePeriodSeconds": 30})
    ));
}

#[test]
fn a_create_wipes_system_fields_and_names_the_object() {
    let mut metadata = json!({"generateName": "a-", "uid": "mine", "selfLink": "/x", "deletionTimestamp": "x", "deletionGracePeriodSeconds": 1});
    wipe_system_fields(&mut metadata);
    fill_system_fields(&mut metadata, "u-1", now());
    generate_name(&mut metadata, || 0x0000_0012_3456_789f);
    assert_eq!(
        metadata,
        json!({"generateName": "a-", "name": "a-gqh9l", "uid": "u-1", "creationTimestamp": "2024-05-01T10:00:00Z"})
    );
    let long = name_from_prefix(&"x".repeat(100), || 0);
    assert_eq!(long, format!("{}bbbbb", "x".repeat(58)));
}

#[test]
fn the_namespace_comes_from_the_request() {
    let run = |own: &str, request: &str| {
        let mut metadata = json!({"namespace": own});
        ensure_namespace(&mut metadata, request).map(|()| metadata)
    };
    assert_eq!(run("a", "a"), Ok(json!({"namespace": "a"})));
    assert_eq!(run("", "a"), Ok(json!({"namespace": "a"})));
    assert_eq!(run("a", ""), Ok(json!({})));
    assert_eq!(run("a", "b"), Err(NamespaceMismatch));
}

#[test]
fn duplicate_owners_are_merged_with_a_warning() {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"});
    let mut metadata = json!({"ownerReferences": [owner, owner, {"uid": "u-1"}, owner]});
    expect!["Some(\".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u-1, u-1\")"]
        .assert_eq(&format!("{:?}", dedup_owner_references(&mut metadata, Admission::Before)));
    assert_eq!(metadata["ownerReferences"].as_array().unwrap().len(), 2);
    assert_eq!(dedup_owner_references(&mut metadata, Admission::After), None);
}

fn plan(metadata: &Value, options: Value) -> Deletion {
    deletion_plan(
        metadata,
        &DeleteOptions::from_value(&options),
        GarbagePolicy::DeleteDependents,
        |_| None,
        now(),
    )
}

fn marked(metadata: Value) -> Deletion {
    Deletion::Mark {
        metadata,
        next: Next::Keep,
    }
}

#[test]
fn an_object_without_finalizers_is_deleted_now() {
    assert_eq!(plan(&json!({"name": "a"}), json!({})), Deletion::Now);
    assert_eq!(
        plan(
            &json!({"name": "a"}),
            json!({"propagationPolicy": "Background", "gracePeriodSeconds": -5})
        ),
        Deletion::Now
    );
    assert_eq!(
        plan(&json!({"finalizers": ["orphan"]}), json!({"orphanDependents": false})),
        Deletion::Now
    );
}

#[test]
fn finalizers_and_policies_mark_the_object() {
    assert_eq!(
        plan(&json!({"finalizers": ["a.io/x"], "generation": 2}), json!({})),
        marked(
            json!({"finalizers": ["a.io/x"], "generation": 3, "deletionTimestamp": "2024-05-01T10:00:00Z", "deletionGracePeriodSeconds": 0})
        )
    );
    for (options, finalizer) in [
        (json!({"propagationPolicy": "Foreground"}), "foregroundDeletion"),
        (json!({"propagationPolicy": "Orphan"}), "orphan"),
        (json!({"orphanDependents": true}), "orphan"),
    ] {
        assert_eq!(
            plan(&json!({}), options),
            marked(
                json!({"finalizers": [finalizer], "deletionTimestamp": "2024-05-01T10:00:00Z", "deletionGracePeriodSeconds": 0})
            )
        );
    }
}

#[test]
fn a_second_delete_changes_nothing() {
    let metadata = json!({"finalizers": ["a.io/x"], "deletionTimestamp": "2024-04-01T10:00:00Z", "deletionGracePeriodSeconds": 0, "generation": 2});
    assert_eq!(plan(&metadata, json!({})), marked(metadata.clone()));
}

#[test]
fn a_kind_outside_of_garbage_collection_gets_none_of_its_finalizers() {
    let options = DeleteOptions::from_value(&json!({"propagationPolicy": "Foreground"}));
    assert_eq!(
        deletion_plan(&json!({}), &options, GarbagePolicy::Unsupported, |_| None, now()),
        Deletion::Now
    );
}

#[test]
fn a_graceful_kind_waits_and_may_only_shorten() {
    let graceful = |requested: Option<i64>| Some(requested.unwrap_or(30));
    let run = |metadata: &Value, options: Value| {
        let options = DeleteOptions::from_value(&options);
        deletion_plan(metadata, &options, GarbagePolicy::DeleteDependents, graceful, now())
    };
    let waiting = json!({"deletionTimestamp": "2024-05-01T10:00:30Z", "deletionGracePeriodSeconds": 30});
    assert_eq!(run(&json!({}), json!({})), marked(waiting.clone()));
    assert_eq!(run(&waiting, json!({})), Deletion::Pending);
    assert_eq!(run(&waiting, json!({"gracePeriodSeconds": 40})), Deletion::Pending);
    assert_eq!(
        run(&waiting, json!({"gracePeriodSeconds": 10})),
        marked(json!({"deletionTimestamp": "2024-05-01T10:00:10Z", "deletionGracePeriodSeconds": 10}))
    );
    let zero = json!({"deletionTimestamp": "2024-05-01T10:00:00Z", "deletionGracePeriodSeconds": 0});
    assert_eq!(
        run(&waiting, json!({"gracePeriodSeconds": 0})),
        Deletion::Mark {
            metadata: zero.clone(),
            next: Next::Remove
        }
    );
    assert_eq!(run(&zero, json!({})), Deletion::Now);
    let late = json!({"deletionTimestamp": "2024-05-01T09:00:30Z", "deletionGracePeriodSeconds": 30});
    assert_eq!(
        run(&late, json!({"gracePeriodSeconds": 10})),
        marked(json!({"deletionTimestamp": "2024-05-01T10:00:00Z", "deletionGracePeriodSeconds": 1}))
    );
}

#[test]
fn preconditions_and_options_are_checked() {
    let metadata = json!({"uid": "u", "resourceVersion": "7"});
    let conflict = |options: Value| match unmet_precondition(&metadata, &DeleteOptions::from_value(&options)) {
        Some(unmet) => unmet.to_string(),
        None => String::new(),
    };
    let of_itself = DeleteOptions::from_value(&json!({"preconditions": {"uid": "v"}}));
    expect!["Precondition failed: UID in precondition: v, UID in object meta: u"]
        .assert_eq(&unmet_precondition(&metadata, &of_itself).map_or_else(String::new, |unmet| unmet.of_itself()));
    assert_eq!(
        conflict(json!({"preconditions": {"uid": "u", "resourceVersion": "7"}})),
        ""
    );
    expect!["the UID in the precondition (v) does not match the UID in record (u). The object might have been deleted and then recreated"]
        .assert_eq(&conflict(json!({"preconditions": {"uid": "v"}})));
    expect!["the ResourceVersion in the precondition (6) does not match the ResourceVersion in record (7). The object might have been modified"]
        .assert_eq(&conflict(json!({"preconditions": {"resourceVersion": "6"}})));
    let options = json!({"propagationPolicy": "Frob", "orphanDependents": true, "dryRun": ["x"],
        "ignoreStoreReadErrorWithClusterBreakingPotential": true, "preconditions": {}});
    expect![[r#"
        propagationPolicy: Invalid value: "Frob": orphanDependents and deletionPropagation cannot be both set
        propagationPolicy: Unsupported value: "Frob": supported values: "Foreground", "Background", "Orphan", "nil"
        dryRun: Unsupported value: ["x"]: supported values: "All"
        ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .dryRun
        ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .propagationPolicy
        ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .orphanDependents
        ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .preconditions"#]]
    .assert_eq(&texts(&delete_options_errors(&DeleteOptions::from_value(&options))));
    assert_eq!(
        texts(&field_validation_errors("x", &Path::new("fieldValidation"))),
        r#"fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn""#
    );
}

#[test]
fn the_generation_counts_changes_of_its_fields() {
    let old = json!({"metadata": {"generation": 4}, "spec": 1, "data": 1});
    assert_eq!(next_generation(&json!({"spec": 1}), None, &["spec"]), 1);
    assert_eq!(
        next_generation(&json!({"spec": 1, "data": 2}), Some(&old), &["spec"]),
        4
    );
    assert_eq!(next_generation(&json!({"spec": 2}), Some(&old), &["spec"]), 5);
}
