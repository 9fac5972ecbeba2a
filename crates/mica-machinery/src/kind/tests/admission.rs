//! What webhook configurations, policies, bindings and flow control refuse.

use expect_test::{Expect, expect};

use super::*;

fn check(plural: &str, body: Value, expected: Expect) {
    expected.assert_eq(&refusals(plural, body));
}

fn rules() -> Value {
    json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}])
}

fn hook(change: impl FnOnce(&mut Value)) -> Value {
    let mut hook = json!({
        "name": "a.example.com", "clientConfig": {"url": "https://example.com/x"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "rules": rules(),
    });
    change(&mut hook);
    json!({"webhooks": [hook]})
}

#[test]
fn webhooks_are_called_at_one_good_place() {
    check("validatingwebhookconfigurations", hook(|_| {}), expect![""]);
    check(
        "validatingwebhookconfigurations",
        hook(|hook| hook["clientConfig"] = json!({})),
        expect![[r#"
            webhooks[0].clientConfig: Required value: exactly one of url or service is required
        "#]],
    );
    check(
        "validatingwebhookconfigurations",
        hook(|hook| {
            hook["clientConfig"] = json!({"service": {"name": "", "namespace": "n", "path": "x//y", "port": 70000}});
        }),
        expect![[r#"
            webhooks[0].clientConfig.service.namespace: Required value
            webhooks[0].clientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive
            webhooks[0].clientConfig.service.path: Invalid value: "x//y": must start with a '/'
            webhooks[0].clientConfig.service.path: Invalid value: "x//y": segment[0] may not be empty
            webhooks[0].clientConfig.service.path: Invalid value: "x//y": segment[1] may not be empty
        "#]],
    );
}

#[test]
fn webhooks_have_known_policies_and_rules() {
    check(
        "mutatingwebhookconfigurations",
        hook(|hook| {
            for (field, value) in [
                ("name", json!("short")),
                ("failurePolicy", json!("Perhaps")),
                ("matchPolicy", json!("Some")),
                ("reinvocationPolicy", json!("Often")),
                ("sideEffects", json!("Unknown")),
                ("timeoutSeconds", json!(31)),
                ("admissionReviewVersions", json!(["v9", "v9"])),
                ("matchConditions", json!([{"name": "", "expression": " "}])),
                (
                    "rules",
                    json!([{"apiVersions": ["*", "v1"], "operations": ["FLY"], "resources": ["a/*", "a/b"], "scope": "Moon"}]),
                ),
            ] {
                hook[field] = value;
            }
        }),
        expect![[r#"
            webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated by dots
            webhooks[0].rules[0].operations[0]: Unsupported value: "FLY": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"
            webhooks[0].rules[0].apiGroups: Required value
            webhooks[0].rules[0].apiVersions: Invalid value: ["*","v1"]: if '*' is present, must not specify other API versions
            webhooks[0].rules[0].resources[1]: Invalid value: "a/b": if 'a/*' is present, must not specify a/b
            webhooks[0].rules[0].scope: Unsupported value: "Moon": supported values: "*", "Cluster", "Namespaced"
            webhooks[0].failurePolicy: Unsupported value: "Perhaps": supported values: "Fail", "Ignore"
            webhooks[0].matchPolicy: Unsupported value: "Some": supported values: "Equivalent", "Exact"
            webhooks[0].sideEffects: Unsupported value: "Unknown": supported values: "None", "NoneOnDryRun"
            webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds
            webhooks[0].reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"
            webhooks[0].matchConditions[0].expression: Required value
            webhooks[0].matchConditions[0].name: Required value
            webhooks[0].admissionReviewVersions[1]: Invalid value: "v9": duplicate version
            webhooks[0].admissionReviewVersions: Invalid value: ["v9","v9"]: must include at least one of v1, v1beta1
        "#]],
    );
}

#[test]
fn policies_match_something_and_say_something() {
    let good =
        json!({"spec": {"matchConstraints": {"resourceRules": rules()}, "validations": [{"expression": "true"}]}});
    check("validatingadmissionpolicies", good, expect![""]);
    check(
        "validatingadmissionpolicies",
        json!({"spec": {"failurePolicy": "Maybe", "paramKind": {"apiVersion": "a/b/c", "kind": "1x"}, "matchConstraints": {}}}),
        expect![[r#"
            spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"
            spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c
            spec.paramKind.kind: Invalid value: "1x": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.matchConstraints.resourceRules: Required value
            spec.validations: Required value: validations or auditAnnotations must contain at least one item
            spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item
        "#]],
    );
    check(
        "validatingadmissionpolicies",
        json!({"spec": {"matchConstraints": {"resourceRules": rules()},
            "variables": [{"name": "a-b", "expression": "true"}, {"name": "x", "expression": ""}],
            "validations": [{"expression": "  ", "message": "a\nb", "messageExpression": " ", "reason": "Because"}],
            "auditAnnotations": [{"key": "k", "valueExpression": ""}, {"key": "k", "valueExpression": "1"}],
        }}),
        expect![[r#"
            spec.variables[0].name: Invalid value: "a-b": must be a valid CEL identifier
            spec.variables[1].expression: Required value: expression is not specified
            spec.validations[0].expression: Required value: expression is not specified
            spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified
            spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks
            spec.validations[0].reason: Unsupported value: "Because": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"
            spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified
            spec.auditAnnotations[1].valueExpression: Invalid value: "1": must evaluate to one of [string null_type] but got int
            spec.auditAnnotations[1].key: Duplicate value: "k"
        "#]],
    );
}

#[test]
fn mutating_policies_hold_the_patch_of_their_type() {
    let mut deleting = rules();
    deleting[0]["operations"] = json!(["DELETE"]);
    check(
        "mutatingadmissionpolicies",
        json!({"spec": {"matchConstraints": {"resourceRules": deleting}, "mutations": [
            {"patchType": "JSONPatch"},
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": ""}, "jsonPatch": {"expression": "[]"}},
            {"patchType": "Other"},
            {},
        ]}}),
        expect![[r#"
            spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"
            spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch
            spec.mutations[1].applyConfiguration.expression: Required value
            spec.mutations[1].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration
            spec.mutations[2].patchType: Unsupported value: "Other": supported values: "ApplyConfiguration", "JSONPatch"
            spec.mutations[3].patchType: Required value
            spec.reinvocationPolicy: Required value
        "#]],
    );
}

#[test]
fn bindings_name_a_policy_its_parameters_and_actions() {
    check(
        "validatingadmissionpolicybindings",
        json!({"spec": {"paramRef": {"name": "x", "selector": {}}, "validationActions": ["Deny", "Warn", "Nope", "Warn"]}}),
        expect![[r#"
            spec.policyName: Required value
            spec.paramRef.name: Forbidden: name and selector are mutually exclusive
            spec.paramRef.selector: Forbidden: name and selector are mutually exclusive
            spec.paramRef.parameterNotFoundAction: Required value
            spec.validationActions[2]: Unsupported value: "Nope": supported values: "Audit", "Deny", "Warn"
            spec.validationActions[3]: Duplicate value: "Warn"
            spec.validationActions: Invalid value: ["Deny","Warn","Nope","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)
        "#]],
    );
    check(
        "mutatingadmissionpolicybindings",
        json!({"spec": {"policyName": "p"}}),
        expect![""],
    );
}

#[test]
fn flow_schemas_need_subjects_and_rules() {
    check(
        "flowschemas",
        json!({"spec": {"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "x"}, "distinguisherMethod": {"type": "ByHat"},
            "rules": [{"subjects": [
                {"kind": "Robot"}, {"kind": "User"}, {"kind": "Group", "group": {"name": "g"}, "user": {"name": "u"}},
                {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": ""}},
            ], "nonResourceRules": [{"verbs": ["fly"], "nonResourceURLs": ["x", "/a*"]}],
            "resourceRules": [{"verbs": ["get", "*"], "apiGroups": [""], "resources": ["x"]}]}]}}),
        expect![[r#"
            spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1
            spec.distinguisherMethod.type: Unsupported value: {"Type":"ByHat"}: supported values: "ByNamespace", "ByUser"
            spec.rules[0].subjects[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"
            spec.rules[0].subjects[1].user: Required value: user is required when subject kind is 'User'
            spec.rules[0].subjects[2].user: Forbidden: user is forbidden when subject kind is not 'User'
            spec.rules[0].subjects[3].serviceAccount.namespace: Required value: must specify namespace for service account
            spec.rules[0].resourceRules[0].verbs: Invalid value: ["get","*"]: if '*' is present, must not specify other verbs
            spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace
            spec.rules[0].nonResourceRules[0].verbs: Unsupported value: ["fly"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"
            spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "x": must start with slash
            spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a*": wildcard can only do suffix matching
        "#]],
    );
}

#[test]
fn priority_levels_are_limited_or_exempt() {
    let limited = |limited: Value| json!({"spec": {"type": "Limited", "limited": limited}});
    check(
        "prioritylevelconfigurations",
        limited(json!({"limitResponse": {"type": "Reject"}})),
        expect![""],
    );
    check(
        "prioritylevelconfigurations",
        json!({"spec": {}}),
        expect![[r#"
        spec.type: Required value
    "#]],
    );
    check(
        "prioritylevelconfigurations",
        limited(
            json!({"lendablePercent": 101, "borrowingLimitPercent": -1, "nominalConcurrencyShares": -1,
            "limitResponse": {"type": "Queue", "queuing": {"handSize": 20, "queues": 1000, "queueLengthLimit": -1}}}),
        ),
        expect![[r#"
            spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer
            spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive
            spec.limited.limitResponse.queuing.handSize: Invalid value: 20: required entropy bits of deckSize 1000 and handSize 20 should not be greater than 60
            spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive
            spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer
        "#]],
    );
}

#[test]
fn mandatory_flow_objects_stay_as_they_are() {
    let level = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    check(
        "prioritylevelconfigurations",
        level("exempt", json!({"type": "Exempt", "exempt": {"lendablePercent": 7}})),
        expect![""],
    );
    check(
        "prioritylevelconfigurations",
        level(
            "catch-all",
            json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}),
        ),
        expect![[r#"
            spec: Invalid value: {"Type":"Limited","Limited":{"NominalConcurrencyShares":30,"LimitResponse":{"Type":"Reject","Queuing":null},"LendablePercent":0,"BorrowingLimitPercent":null},"Exempt":null}: spec of 'catch-all' must equal the fixed value
        "#]],
    );
}

#[test]
fn expressions_of_policies_and_match_conditions_must_compile() {
    check(
        "validatingwebhookconfigurations",
        hook(|hook| hook["matchConditions"] = json!([{"name": "a", "expression": " params.x "}])),
        expect![[r#"
            webhooks[0].matchConditions[0].expression: Invalid value: "params.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')
             | params.x
             | ^
        "#]],
    );
    let constraints = json!({"resourceRules": rules()});
    let policy = json!({"spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": constraints,
        "matchConditions": [{"name": "a", "expression": "variables.a"}],
        "variables": [{"name": "a", "expression": "params.data.size()"}, {"name": "b", "expression": "variables.c"}],
        "validations": [{"expression": "variables.a > 1 && variables.b", "messageExpression": "authorizer"}],
        "auditAnnotations": [{"key": "k", "valueExpression": " variables.a "}],
    }});
    check(
        "validatingadmissionpolicies",
        policy,
        expect![[r#"
            spec.matchConditions[0].expression: Invalid value: "variables.a": compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')
             | variables.a
             | ^
            spec.variables[1].expression: Invalid value: "variables.c": compilation failed: ERROR: <input>:1:10: undefined field 'c'
             | variables.c
             | .........^
            spec.validations[0].messageExpression: Invalid value: "authorizer": compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')
             | authorizer
             | ^
            spec.auditAnnotations[0].valueExpression: Invalid value: " variables.a ": must evaluate to one of [string null_type] but got int
        "#]],
    );
    let policy = json!({"spec": {
        "matchConstraints": constraints, "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": " [JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a')}] "}},
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": " object "}},
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "'a'.matches('(') ? Object{} : Object{}"}},
        ],
    }});
    check(
        "mutatingadmissionpolicies",
        policy,
        expect![[r#"
            spec.mutations[1].applyConfiguration.expression: Invalid value: "object": must evaluate to Object but got dyn
            spec.mutations[2].applyConfiguration.expression: Invalid value: "'a'.matches('(') ? Object{} : Object{}": compilation failed: ERROR: <input>:1:13: invalid matches argument
             | 'a'.matches('(') ? Object{} : Object{}
             | ............^
        "#]],
    );
}
