//! What rows of tables show.

use super::*;

fn cells(plural: &str, object: Value) -> Value {
    let mut object = object;
    object::set(&mut object, &["metadata", "name"], "a");
    object::set(&mut object, &["metadata", "creationTimestamp"], "2026-01-02T03:00:05Z");
    resource(plural)
        .strategy
        .cells(&object, NOW.parse().expect("a time"))
        .into()
}

#[test]
fn rows_show_what_matters() {
    let cases = [
        (
            "namespaces",
            json!({"status": {"phase": "Active"}}),
            json!(["a", "Active", "4m"]),
        ),
        (
            "configmaps",
            json!({"data": {"a": ""}, "binaryData": {"b": ""}}),
            json!(["a", 2, "4m"]),
        ),
        ("secrets", json!({"type": "T"}), json!(["a", "T", 0, "4m"])),
        ("roles", json!({}), json!(["a", "2026-01-02T03:00:05Z"])),
        (
            "leases",
            json!({"spec": {"holderIdentity": "me"}}),
            json!(["a", "me", "4m"]),
        ),
        (
            "resourcequotas",
            json!({"status": {"hard": {"limits.cpu": "2", "pods": "4", "secrets": "1"}, "used": {"pods": "1"}}}),
            json!(["a", "pods: 1/4, secrets: 0/1", "limits.cpu: 0/2", "4m"]),
        ),
        (
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
                {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
            ]}),
            json!(["a", "Role/r", "4m", "u, v", "", "n/s"]),
        ),
        (
            "certificatesigningrequests",
            json!({"spec": {"username": "u", "expirationSeconds": 3600}, "status": {"certificate": "x", "conditions": [{"type": "Approved"}]}}),
            json!(["a", "4m", "<none>", "u", "60m", "Approved,Issued"]),
        ),
        (
            "apiservices",
            json!({"spec": {"service": {"name": "s", "namespace": "n"}}, "status": {"conditions": [{"type": "Available", "status": "False", "reason": "R"}]}}),
            json!(["a", "n/s", "False (R)", "4m"]),
        ),
        (
            "validatingadmissionpolicybindings",
            json!({"spec": {"policyName": "p", "paramRef": {"selector": {"matchLabels": {"a": "b"}}}}}),
            json!([
                "a",
                "p",
                "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}",
                "4m"
            ]),
        ),
        (
            "flowschemas",
            json!({"spec": {"matchingPrecedence": 7, "priorityLevelConfiguration": {"name": "l"}}}),
            json!(["a", "l", 7, "<none>", "4m", "?"]),
        ),
        (
            "storageversionmigrations",
            json!({"spec": {"resource": {"group": "g", "resource": "r"}}, "status": {"conditions": [{"type": "Running", "status": "True"}]}}),
            json!(["a", "r.g", "Running"]),
        ),
        (
            "podtemplates",
            json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}}),
            json!(["a", "c,d", "i,j", "<none>"]),
        ),
    ];
    for (plural, object, expected) in cases {
        assert_eq!(cells(plural, object), expected, "{plural}");
    }
}

#[test]
fn events_show_when_they_were_seen() {
    let event = json!({
        "type": "Normal", "reason": "R", "message": " m ", "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"},
        "source": {"component": "c", "host": "h"}, "firstTimestamp": "2026-01-02T03:02:05Z", "lastTimestamp": null,
    });
    let row = json!(["2m", "Normal", "R", "pod/p", "f", "c, h", "m", "2m", 1, "a"]);
    assert_eq!(cells("events", event.clone()), row);
    let mut repeated = event;
    repeated["series"] = json!({"count": 9, "lastObservedTime": "2026-01-02T03:04:04.000000Z"});
    assert_eq!(cells("events", repeated)[0], "1s");
}

#[test]
fn rows_of_ended_pods_say_that_they_ended() {
    let conditions = |phase: &str| {
        resource("pods")
            .strategy
            .row_conditions(&json!({"status": {"phase": phase}}))
    };
    let ended = |reason: &str, message: &str| {
        Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
    };
    let succeeded = ended("Succeeded", "The pod has completed successfully.");
    assert_eq!(conditions("Succeeded"), succeeded);
    assert_eq!(conditions("Failed"), ended("Failed", "The pod failed."));
    assert_eq!(conditions("Running"), None);
}
