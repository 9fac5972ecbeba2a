//! Matching, answers of webhooks, limits and quotas, in tables.

use expect_test::{Expect, expect};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::quota::Charged;
use super::*;
use crate::kind::User;

fn face<'a>(group: &'a str, version: &'a str, resource: &'a str, kind: &'a str) -> Face<'a> {
    Face {
        resource: Resource {
            group,
            version,
            resource,
        },
        kind: Kind { group, version, kind },
    }
}

fn attributes<'a>(
    face: Face<'a>,
    equivalents: &'a [Face<'a>],
    subresource: &'a str,
    namespace: &'a str,
) -> Attributes<'a> {
    Attributes {
        face,
        equivalents,
        subresource,
        name: "n",
        namespace,
        operation: Operation::Update,
        user: User::default(),
        dry_run: false,
        options: &Value::Null,
    }
}

fn rule(change: Value) -> Value {
    let mut rule =
        json!({"operations": ["UPDATE"], "apiGroups": ["g"], "apiVersions": ["v1"], "resources": ["things"]});
    for (field, value) in change.as_object().into_iter().flatten() {
        rule[field] = value.clone();
    }
    rule
}

#[test]
fn a_rule_matches_what_all_of_its_parts_match() {
    let asked = attributes(face("g", "v1", "things", "Thing"), &[], "", "ns");
    let status = attributes(face("g", "v1", "things", "Thing"), &[], "status", "ns");
    let cluster = attributes(face("g", "v1", "things", "Thing"), &[], "", "");
    let namespace = attributes(face("", "v1", "namespaces", "Namespace"), &[], "", "ns");
    for (request, change, expected) in [
        (&asked, json!({}), true),
        (&asked, json!({"operations": ["*"]}), true),
        (&asked, json!({"operations": ["CREATE", "DELETE"]}), false),
        (
            &asked,
            json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}),
            true,
        ),
        (&asked, json!({"apiGroups": ["h"]}), false),
        (&asked, json!({"apiVersions": ["v2"]}), false),
        (&asked, json!({"resources": ["things/status"]}), false),
        (&asked, json!({"resources": ["*/*"]}), true),
        (&asked, json!({"scope": "Cluster"}), false),
        (&asked, json!({"scope": "Namespaced"}), true),
        (&status, json!({}), false),
        (&status, json!({"resources": ["things/*"]}), true),
        (&status, json!({"resources": ["*/status"]}), true),
        (&status, json!({"resources": ["*"]}), false),
        (&cluster, json!({"scope": "Cluster"}), true),
        (&cluster, json!({"scope": "Namespaced"}), false),
        (
            &namespace,
            json!({"apiGroups": [""], "resources": ["namespaces"], "scope": "Cluster"}),
            true,
        ),
        (
            &namespace,
            json!({"apiGroups": [""], "resources": ["namespaces"], "scope": "Namespaced"}),
            false,
        ),
    ] {
        let criteria = Criteria::of_webhook(&json!({"rules": [rule(change.clone())]}));
        assert_eq!(criteria.may_match(request), expected, "{change} {request:?}");
    }
}

#[test]
fn an_equivalent_resource_matches_in_its_own_form() {
    let others = [face("g", "v1", "things", "Thing"), face("g", "v3", "things", "Thing")];
    let asked = attributes(face("g", "v2", "things", "Thing"), &others, "", "ns");
    let matched = |policy: &str, rules: Value| {
        let criteria = Criteria::of_resources(
            &json!({"matchPolicy": policy, "resourceRules": rules, "namespaceSelector": {}, "objectSelector": {}}),
        );
        let face = criteria.matches(&asked, Objects::default(), None).unwrap();
        face.map(|face| face.resource.version.to_owned())
    };
    assert_eq!(matched("Equivalent", json!([rule(json!({}))])).as_deref(), Some("v1"));
    assert_eq!(matched("Exact", json!([rule(json!({}))])), None);
    let both = json!([rule(json!({})), rule(json!({"apiVersions": ["v2"]}))]);
    assert_eq!(matched("Equivalent", both).as_deref(), Some("v2"));
    assert_eq!(
        matched("Equivalent", json!([rule(json!({"resourceNames": ["other"]}))])),
        None
    );
    assert_eq!(matched("Exact", json!([])).as_deref(), Some("v2"));
}

#[test]
fn what_does_not_apply_does_not_fail_for_its_namespace() {
    let asked = attributes(face("g", "v1", "things", "Thing"), &[], "", "gone");
    let said = |group: &str| {
        let selector = json!({"matchLabels": {"a": "b"}});
        Criteria::of_resources(
            &json!({"namespaceSelector": selector, "objectSelector": {}, "resourceRules": [rule(json!({"apiGroups": [group]}))]}),
        )
    };
    assert_eq!(said("other").matches(&asked, Objects::default(), None), Ok(None));
    assert_eq!(
        said("g").matches(&asked, Objects::default(), None),
        Err(Problem::NoNamespace("gone".to_owned()))
    );
    let space = json!({"metadata": {"labels": {"a": "b"}}});
    assert!(
        said("g")
            .matches(&asked, Objects::default(), Some(&space))
            .unwrap()
            .is_some()
    );
}

fn check_response(mutating: bool, response: Value, expected: Expect) {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    let read = read_response(
        ReviewVersion::V1,
        "u",
        mutating,
        "h.example",
        review.to_string().as_bytes(),
    );
    expected.assert_eq(&match read {
        Err(why) => format!("invalid: {why}"),
        Ok(Response { denied: Some(no), .. }) => format!("{} {} {}", no.code, no.reason, no.message),
        Ok(response) => format!("yes {}", String::from_utf8_lossy(&response.patch)),
    });
}

#[test]
fn an_answer_counts_if_it_is_whole() {
    check_response(true, json!({"uid": "u", "allowed": true}), expect!["yes "]);
    let patch = json!({"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": "W10="});
    check_response(true, patch.clone(), expect!["yes []"]);
    check_response(
        false,
        patch,
        expect!["invalid: validating webhook may not return response.patch"],
    );
    check_response(
        true,
        json!({"uid": "u", "allowed": true, "patch": "W10="}),
        expect!["invalid: webhook returned response.patch but not response.patchType"],
    );
    check_response(
        true,
        json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"}),
        expect!["invalid: webhook returned response.patchType but not response.patch"],
    );
    check_response(
        true,
        json!({"uid": "x", "allowed": true}),
        expect![[r#"invalid: expected response.uid="u", got "x""#]],
    );
    check_response(
        true,
        json!({"uid": "u"}),
        expect![[r#"400  admission webhook "h.example" denied the request without explanation"#]],
    );
    check_response(
        true,
        json!({"uid": "u", "status": {"code": 200, "reason": "R", "message": "m"}}),
        expect![[r#"400 R admission webhook "h.example" denied the request: m"#]],
    );
    check_response(true, Value::Null, expect!["invalid: webhook response was absent"]);
}

fn quota(name: &str, hard: Value, used: Value) -> Value {
    json!({"metadata": {"name": name}, "status": {"hard": hard, "used": used}})
}

fn check_charge(group: &str, resource: &str, object: &Value, old: Option<&Value>, quotas: &[Value], expected: Expect) {
    let charged = Charged {
        group,
        resource,
        subresource: "",
        operation: if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        },
        object,
        old,
        now: Timestamp::UNIX_EPOCH,
    };
    assert!(charged.counts());
    expected.assert_eq(&match charged.charge(quotas) {
        Err(why) => why,
        Ok(after) => {
            let shown = after.iter().map(|used| match used {
                None => "-".to_owned(),
                Some(used) => used.iter().map(|(name, amount)| format!("{name}={amount} ")).collect(),
            });
            shown.collect::<Vec<_>>().join("| ")
        }
    });
}

#[test]
fn a_write_is_charged_to_every_quota_that_counts_it() {
    let none = json!({});
    let quotas = [
        quota("a", json!({"configmaps": "2"}), json!({"configmaps": "1"})),
        quota(
            "b",
            json!({"count/configmaps": "9", "pods": "1"}),
            json!({"count/configmaps": "8", "pods": "1"}),
        ),
        quota("c", json!({"secrets": "1"}), json!({"secrets": "1"})),
    ];
    check_charge(
        "",
        "configmaps",
        &none,
        None,
        &quotas,
        expect!["configmaps=2 | count/configmaps=9 pods=1 | -"],
    );
    check_charge(
        "",
        "secrets",
        &none,
        None,
        &quotas,
        expect!["exceeded quota: c, requested: secrets=1, used: secrets=1, limited: secrets=1"],
    );
    let custom = [quota(
        "q",
        json!({"count/things.g": "1"}),
        json!({"count/things.g": "0"}),
    )];
    check_charge("g", "things", &none, None, &custom, expect!["count/things.g=1 "]);
    let unknown = [quota("q", json!({"configmaps": "1"}), json!({}))];
    check_charge(
        "",
        "configmaps",
        &none,
        None,
        &unknown,
        expect!["status unknown for quota: q, resources: configmaps"],
    );
}

#[test]
fn pods_services_and_claims_count_for_what_they_ask() {
    let hard = json!({"requests.cpu": "2", "limits.memory": "1Gi", "pods": "5", "requests.example.com/gpu": "1"});
    let used = json!({"requests.cpu": "0", "limits.memory": "0", "pods": "0", "requests.example.com/gpu": "0"});
    let resources = json!({"requests": {"cpu": "500m", "example.com/gpu": "1"}, "limits": {"memory": "64Mi"}});
    let pod = json!({"spec": {"containers": [{"name": "a", "resources": resources}, {"name": "b", "resources": {
        "requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Mi"}}}]}});
    check_charge(
        "",
        "pods",
        &pod,
        None,
        &[quota("q", hard, used)],
        expect!["limits.memory=128Mi pods=1 requests.cpu=1 requests.example.com/gpu=1 "],
    );
    let service = |kind: &str| json!({"metadata": {"resourceVersion": "1"}, "spec": {"type": kind, "ports": [{"port": 1}, {"port": 2}]}});
    let ports = [quota(
        "q",
        json!({"services.nodeports": "3", "services": "9"}),
        json!({"services.nodeports": "2", "services": "1"}),
    )];
    let (plain, balanced) = (service("ClusterIP"), service("LoadBalancer"));
    check_charge(
        "",
        "services",
        &plain,
        None,
        &ports,
        expect!["services=2 services.nodeports=2 "],
    );
    check_charge(
        "",
        "services",
        &balanced,
        Some(&plain),
        &ports,
        expect![
            "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=2, limited: services.nodeports=3"
        ],
    );
    check_charge("", "services", &plain, Some(&balanced), &ports, expect!["-"]);
    let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}}});
    let storage = [quota(
        "q",
        json!({"fast.storageclass.storage.k8s.io/requests.storage": "4Gi", "requests.storage": "9Gi"}),
        json!({"fast.storageclass.storage.k8s.io/requests.storage": "1Gi", "requests.storage": "1Gi"}),
    )];
    check_charge(
        "",
        "persistentvolumeclaims",
        &claim,
        None,
        &storage,
        expect!["fast.storageclass.storage.k8s.io/requests.storage=4Gi requests.storage=4Gi "],
    );
}

#[test]
fn what_no_quota_counts_is_not_looked_at() {
    for (group, resource, subresource) in [
        ("", "events", ""),
        ("authorization.k8s.io", "localsubjectaccessreviews", ""),
        ("", "configmaps", "status"),
        ("", "pods", "status"),
    ] {
        let charged = Charged {
            group,
            resource,
            subresource,
            operation: Operation::Create,
            object: &Value::Null,
            old: None,
            now: Timestamp::UNIX_EPOCH,
        };
        assert!(!charged.counts(), "{resource}/{subresource}");
    }
}

#[test]
fn a_claim_counts_for_the_devices_that_it_may_get() {
    let exactly =
        |count: i64| json!({"exactly": {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": count}});
    let either = json!({"firstAvailable": [
        {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2},
        {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 3},
        {"deviceClassName": "lead", "allocationMode": "All"},
    ]});
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [exactly(1), either]}}});
    let zero = json!({"count/resourceclaims.resource.k8s.io": "0", "gold.deviceclass.resource.k8s.io/devices": "0", "lead.deviceclass.resource.k8s.io/devices": "0"});
    let hard = json!({"count/resourceclaims.resource.k8s.io": "9", "gold.deviceclass.resource.k8s.io/devices": "9", "lead.deviceclass.resource.k8s.io/devices": "40"});
    check_charge(
        "resource.k8s.io",
        "resourceclaims",
        &claim,
        None,
        &[quota("q", hard, zero)],
        expect![
            "count/resourceclaims.resource.k8s.io=1 gold.deviceclass.resource.k8s.io/devices=4 lead.deviceclass.resource.k8s.io/devices=32 "
        ],
    );
}
