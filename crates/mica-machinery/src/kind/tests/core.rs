//! What kinds of the core group and leases refuse.

use expect_test::{Expect, expect};

use super::*;

fn check(plural: &str, body: Value, expected: Expect) {
    expected.assert_eq(&refusals(plural, body));
}

#[test]
fn namespaces_need_good_finalizers() {
    check(
        "namespaces",
        json!({"spec": {"finalizers": ["example.com/own", "orphan"]}}),
        expect![""],
    );
    check(
        "namespaces",
        json!({"spec": {"finalizers": ["bad"]}}),
        expect![[r#"
            spec.finalizers: Invalid value: "bad": name is neither a standard finalizer name nor is it fully qualified
        "#]],
    );
}

#[test]
fn configmaps_check_keys_across_both_maps_and_their_size() {
    check(
        "configmaps",
        json!({"data": {"a.b-c_D": "x"}, "binaryData": {"e": "AA=="}}),
        expect![""],
    );
    check(
        "configmaps",
        json!({"data": {"k": "x", "a b": ""}, "binaryData": {"k": "AA=="}}),
        expect![[r#"
            data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
            data[k]: Invalid value: "k": duplicate of key present in binaryData
        "#]],
    );
    check(
        "configmaps",
        json!({"data": {"k": "x".repeat(1024 * 1024), "l": "y"}}),
        expect![[r#"
            []: Too long: may not be more than 1048576 bytes
        "#]],
    );
}

#[test]
fn secrets_hold_what_their_type_asks_for() {
    let cases = [
        ("any thing", json!({})),
        ("kubernetes.io/service-account-token", json!({})),
        ("kubernetes.io/dockercfg", json!({"x": ""})),
        ("kubernetes.io/dockercfg", json!({".dockercfg": "[]"})),
        ("kubernetes.io/dockerconfigjson", json!({".dockerconfigjson": "{"})),
        ("kubernetes.io/basic-auth", json!({"x": ""})),
        ("kubernetes.io/basic-auth", json!({"password": ""})),
        ("kubernetes.io/ssh-auth", json!({"ssh-privatekey": ""})),
        ("kubernetes.io/tls", json!({"tls.crt": "x"})),
    ];
    let found: String = cases
        .into_iter()
        .map(|(r#type, data)| {
            format!(
                "{}\n",
                refusals("secrets", json!({"type": r#type, "stringData": data})).trim_end()
            )
        })
        .collect();
    expect![[r#"

        metadata.annotations[kubernetes.io/service-account.name]: Required value
        data[.dockercfg]: Required value
        data[.dockercfg]: Invalid value: "<secret contents redacted>": json: cannot unmarshal array into Go value of type map[string]interface {}
        data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input
        data[username]: Required value
        data[password]: Required value

        data[ssh-privatekey]: Required value
        data[tls.key]: Required value
    "#]]
    .assert_eq(&found);
}

#[test]
fn quotas_know_their_resources_and_scopes() {
    check(
        "resourcequotas",
        json!({"spec": {"hard": {"cpu": "1", "count/things.example.com": "3", "requests.storage": "1Gi"}}}),
        expect![""],
    );
    check(
        "resourcequotas",
        json!({"spec": {"hard": {"pods": "1500m", "nonsense": "1", "secrets": "-1"}}}),
        expect![[r#"
            spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource type or fully qualified
            spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource for quota
            spec.hard[pods]: Invalid value: "1500m": must be an integer
            spec.hard[secrets]: Invalid value: "-1": must be greater than or equal to 0
        "#]],
    );
    check(
        "resourcequotas",
        json!({"spec": {"hard": {"configmaps": "1"}, "scopes": ["Terminating", "NotTerminating", "Nope"]}}),
        expect![[r#"
            spec.scopes: Invalid value: ["Terminating","NotTerminating","Nope"]: unsupported scope applied to resource
            spec.scopes: Invalid value: ["Terminating","NotTerminating","Nope"]: unsupported scope applied to resource
            spec.scopes: Invalid value: ["Terminating","NotTerminating","Nope"]: unsupported scope
            spec.scopes: Invalid value: ["Terminating","NotTerminating","Nope"]: conflicting scopes
        "#]],
    );
    check(
        "resourcequotas",
        json!({"spec": {"hard": {"secrets": "1"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "BestEffort", "operator": "In"},
            {"scopeName": "PriorityClass", "operator": "Exists", "values": ["x"]},
        ]}}}),
        expect![[r#"
            spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"In","Values":null},{"ScopeName":"PriorityClass","Operator":"Exists","Values":["x"]}]}: unsupported scope applied to resource
            spec.scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity
            spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector
            spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"In","Values":null},{"ScopeName":"PriorityClass","Operator":"Exists","Values":["x"]}]}: unsupported scope applied to resource
            spec.scopeSelector.matchExpressions.values: Invalid value: ["x"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector
        "#]],
    );
}

#[test]
fn limit_ranges_compare_their_amounts() {
    check(
        "limitranges",
        json!({"spec": {"limits": [
            {"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}},
            {"type": "Container"},
            {"type": "Pod", "default": {"cpu": "1"}},
            {"type": "PersistentVolumeClaim"},
            {"type": "Moon"},
        ]}}),
        expect![[r#"
            spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1
            spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1
            spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1
            spec.limits[1].type: Duplicate value: "Container"
            spec.limits[2].default: Forbidden: may not be specified when `type` is 'Pod'
            spec.limits[3].limits: Required value: either minimum or maximum storage value is required, but neither was provided
            spec.limits[4].type: Invalid value: "Moon": must be a standard limit type or fully qualified
        "#]],
    );
    check(
        "limitranges",
        json!({"spec": {"limits": [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "3"},
            "maxLimitRequestRatio": {"cpu": "2"}}]}}),
        expect![[r#"
            spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "2": ratio 2 is greater than max/min = 1.500000
        "#]],
    );
}

#[test]
fn core_events_are_about_objects_of_their_namespace() {
    check("events", json!({"involvedObject": {"namespace": "ns"}}), expect![""]);
    check(
        "events",
        json!({"involvedObject": {"namespace": "other"}}),
        expect![[r#"
            involvedObject.namespace: Invalid value: "other": does not match event.namespace
        "#]],
    );
    check(
        "events",
        json!({"eventTime": "2024-01-02T03:04:05.000000Z", "involvedObject": {"namespace": "ns"}, "reason": "r"}),
        expect![[r#"
            reportingComponent: Required value
            reportingComponent: Invalid value: "": name part must be non-empty
            reportingComponent: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            reportingInstance: Required value
            action: Required value
        "#]],
    );
}

#[test]
fn new_events_need_a_reporter_and_no_deprecated_fields() {
    let event = json!({
        "eventTime": "2024-01-02T03:04:05.000000Z", "reportingController": "example.com/c", "reportingInstance": "c-1",
        "action": "Test", "reason": "Tested", "regarding": {"namespace": "ns"}, "type": "Normal",
    });
    check("events.events.k8s.io", event.clone(), expect![""]);
    let mut bad = event;
    for (field, value) in [
        ("type", json!("Loud")),
        ("series", json!({"count": 1})),
        ("deprecatedCount", json!(2)),
        ("deprecatedSource", json!({"component": "c"})),
        ("reportingController", json!("")),
    ] {
        bad[field] = value;
    }
    check(
        "events.events.k8s.io",
        bad,
        expect![[r#"
            reportingController: Required value
            reportingController: Invalid value: "": name part must be non-empty
            reportingController: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            series.count: Invalid value: "": should be at least 2
            series.lastObservedTime: Required value
            type: Invalid value: "": has invalid value: Loud
            count: Invalid value: "": needs to be unset
            source: Invalid value: "": needs to be unset
        "#]],
    );
}

#[test]
fn leases_have_positive_durations() {
    check(
        "leases",
        json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
        expect![[r#"
            spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0
            spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0
        "#]],
    );
}

#[test]
fn pod_templates_must_be_able_to_become_pods() {
    check(
        "podtemplates",
        json!({"template": {"metadata": {"labels": {"a b": ""}}, "spec": {"restartPolicy": "Often", "volumes": [{"name": "v"}],
        "containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 0, "protocol": "IP"}], "volumeMounts": [{"name": "w", "mountPath": "/w"}]},
            {"name": "c", "image": " ", "env": [{"name": ""}]},
        ]}}}),
        expect![[r#"
            template.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            template.spec.containers[0].ports[0].containerPort: Required value
            template.spec.containers[0].ports[0].protocol: Unsupported value: "IP": supported values: "SCTP", "TCP", "UDP"
            template.spec.containers[0].volumeMounts[0].name: Not found: "w"
            template.spec.containers[1].env[0].name: Required value
            template.spec.containers[1].name: Duplicate value: "c"
            template.spec.restartPolicy: Unsupported value: "Often": supported values: "Always", "OnFailure", "Never"
        "#]],
    );
}

#[test]
fn token_requests_live_between_ten_minutes_and_an_age() {
    use crate::kind::core::serviceaccount::{default_token_request, validate_token_request};
    let errors = |seconds: Value| {
        let mut request = json!({"spec": {"expirationSeconds": seconds}});
        default_token_request(&mut request);
        lines(&validate_token_request(&request))
    };
    assert_eq!(
        [errors(Value::Null), errors(json!(600)), errors(json!(1_i64 << 32))].concat(),
        ""
    );
    assert_eq!(
        errors(json!(599)),
        "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes\n"
    );
    assert_eq!(
        errors(json!((1_i64 << 32) + 1)),
        "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds\n"
    );
}
