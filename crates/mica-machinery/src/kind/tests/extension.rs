//! What definitions, API services and storage migrations refuse.

use expect_test::{Expect, expect};

use super::*;

fn check(plural: &str, body: Value, expected: Expect) {
    expected.assert_eq(&refusals(plural, body));
}

fn definition(change: impl FnOnce(&mut Value)) -> Value {
    let mut body = json!({
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version("v1", true)],
        },
    });
    change(&mut body);
    body
}

fn version(name: &str, storage: bool) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}})
}

#[test]
fn definitions_are_named_after_plural_and_group() {
    check("customresourcedefinitions", definition(|_| {}), expect![""]);
    check(
        "customresourcedefinitions",
        definition(|body| {
            body["spec"]["group"] = json!("example");
            body["spec"]["names"] =
                json!({"plural": "Widgets", "kind": "Wid_get", "listKind": "Wid_get", "shortNames": ["W"]});
            body["spec"]["scope"] = json!("Everywhere");
        }),
        expect![[r#"
            metadata.name: Invalid value: "widgets.example.org": must be spec.names.plural+"."+spec.group
            spec.group: Invalid value: "example": should be a domain with at least one dot
            spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"
            spec.names.plural: Invalid value: "Widgets": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.names.singular: Invalid value: "wid_get": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.names.kind: Invalid value: "Wid_get": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.names.listKind: Invalid value: "Wid_get": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.names.shortNames[0]: Invalid value: "W": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.names.listKind: Invalid value: "Wid_get": kind and listKind may not be the same
        "#]],
    );
}

#[test]
fn a_stem_of_a_definitions_name_is_asked_for_the_same() {
    check(
        "customresourcedefinitions",
        definition(|body| body["metadata"]["generateName"] = json!("x")),
        expect![[r#"
            metadata.generateName: Invalid value: "x": must be spec.names.plural+"."+spec.group
        "#]],
    );
}

#[test]
fn a_webhook_that_says_nothing_is_none() {
    for (webhook, kept) in [
        (json!({}), Value::Null),
        (json!({"conversionReviewVersions": null}), Value::Null),
        (
            json!({"conversionReviewVersions": []}),
            json!({"conversionReviewVersions": []}),
        ),
    ] {
        let mut body = definition(|body| body["spec"]["conversion"] = json!({"strategy": "None", "webhook": webhook}));
        resource("customresourcedefinitions").strategy.default(&mut body);
        assert_eq!(body["spec"]["conversion"]["webhook"], kept);
    }
}

#[test]
fn values_in_schemas_are_read_and_printed_again() {
    let known = resource("customresourcedefinitions");
    let ty = facts()
        .kind(known.group, known.version, known.kind)
        .expect("a known kind");
    for (literal, printed) in [
        ("1.0", "1"),
        ("1e3", "1000"),
        ("-0.0", "0"),
        ("1.50", "1.5"),
        ("1e-400", "0"),
        ("1e-6", "0.000001"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("9223372036854775808", "9223372036854776000"),
        ("12345678901234567.0", "12345678901234568"),
        (r#"{"b":[2.0],"a":null}"#, r#"{"a":null,"b":[2]}"#),
    ] {
        let inner = format!(r#"{{"default":{literal},"example":{literal},"enum":[{literal}],"maximum":-0.0}}"#);
        let schema = format!(r#"{{"properties":{{"default":{{"items":{inner}}}}}}}"#);
        let body = format!(r#"{{"spec":{{"versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#);
        let mut value = codec::decode(ty, body.as_bytes()).expect("decodes").value;
        known.strategy.default(&mut value);
        let mut text = Vec::new();
        codec::encode(ty, &value, &mut text);
        let text = String::from_utf8(text).expect("UTF-8");
        let wanted = format!(r#"{{"default":{printed},"maximum":-0,"enum":[{printed}],"example":{printed}}}"#);
        assert!(text.contains(&wanted), "{literal}: {text}");
    }
}

#[test]
fn resources_in_defaults_have_metadata_in_form() {
    let given = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "unknown": 1, "labels": {}}});
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true});
    let mut body = definition(|body| {
        body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({
            "one": {"type": "object", "x-kubernetes-embedded-resource": true, "default": given},
            "many": {"type": "array", "items": embedded, "default": [given]},
            "other": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": given},
        });
    });
    resource("customresourcedefinitions").strategy.canonicalize(&mut body);
    let kept = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}});
    let properties = &body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(properties["one"]["default"], kept);
    assert_eq!(properties["many"]["default"], json!([kept]));
    assert_eq!(properties["other"]["default"], given);
}

#[test]
fn definitions_have_one_storage_version_and_schemas() {
    check(
        "customresourcedefinitions",
        definition(|body| body["spec"]["versions"] = json!([])),
        expect![[r#"
            spec.versions: Invalid value: []: must have exactly one version marked as storage version
            status.storedVersions: Invalid value: null: must have at least one stored version
        "#]],
    );
    check(
        "customresourcedefinitions",
        definition(|body| body["spec"]["versions"] = json!([version("v1", true), version("v1", true)])),
        expect![[r#"
            spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null},{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]: must contain unique version names
            spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null},{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]: must have exactly one version marked as storage version
            status.storedVersions: Invalid value: ["v1"]: must have the storage version v1
        "#]],
    );
    check(
        "customresourcedefinitions",
        definition(|body| {
            let version = &mut body["spec"]["versions"][0];
            version["schema"] = json!({});
            version["deprecationWarning"] = json!("old");
            version["additionalPrinterColumns"] = json!([{"name": "", "type": "color", "jsonPath": "spec"}]);
            version["subresources"] = json!({"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": "y"}});
        }),
        expect![[r#"
            spec.versions[0].schema.openAPIV3Schema: Required value
            spec.versions[0].deprecationWarning: Invalid value: "old": can only be set for deprecated versions
            spec.subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec
            spec.subresources.scale.statusReplicasPath: Invalid value: "y": must be a simple json path starting with .
            spec.additionalPrinterColumns[0].name: Required value
            spec.additionalPrinterColumns[0].type: Invalid value: "color": must be one of boolean,date,integer,number,string
            spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with .
        "#]],
    );
}

#[test]
fn selectable_fields_are_looked_for_beside_them() {
    let selectable = |shared: bool| {
        definition(|body| {
            let (mut one, mut two) = (version("v1", true), version("v2", false));
            one["schema"]["openAPIV3Schema"]["properties"] = json!({"a": {"type": "string"}});
            if shared {
                two["schema"] = one["schema"].clone();
            }
            one["selectableFields"] = json!([{"jsonPath": ".a"}]);
            // Beside nothing, something empty is something.
            one["subresources"] = json!({});
            body["spec"]["versions"] = json!([one, two]);
        })
    };
    check("customresourcedefinitions", selectable(false), expect![""]);
    check(
        "customresourcedefinitions",
        selectable(true),
        expect![[r#"
            spec.versions[0].selectableFields: Invalid value: "": may only be set when `version.schema.openAPIV3Schema` is not included
        "#]],
    );
}

#[test]
fn conversion_by_webhook_needs_a_webhook() {
    let conversion = |conversion: Value| definition(|body| body["spec"]["conversion"] = conversion);
    check(
        "customresourcedefinitions",
        conversion(json!({"strategy": "Webhook"})),
        expect![[r#"
            spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook
            spec.conversion.conversionReviewVersions: Required value
        "#]],
    );
    check(
        "customresourcedefinitions",
        conversion(json!({"strategy": "None", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}})),
        expect![[r#"
            spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook
            spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook
        "#]],
    );
    check(
        "customresourcedefinitions",
        conversion(
            json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "conversionReviewVersions": ["v9"]}}),
        ),
        expect![[r#"
            spec.conversion.conversionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1
        "#]],
    );
}

#[test]
fn protected_groups_need_an_approval() {
    let approved = |annotation: &str| {
        definition(|body| {
            body["metadata"] =
                json!({"name": "widgets.x.k8s.io", "annotations": {"api-approved.kubernetes.io": annotation}});
            body["spec"]["group"] = json!("x.k8s.io");
        })
    };
    check(
        "customresourcedefinitions",
        approved("https://example.com/1"),
        expect![""],
    );
    check("customresourcedefinitions", approved("unapproved, a test"), expect![""]);
    check(
        "customresourcedefinitions",
        approved(""),
        expect![[r#"
            metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111
        "#]],
    );
    check(
        "customresourcedefinitions",
        approved("yes"),
        expect![[r#"
            metadata.annotations[api-approved.kubernetes.io]: Invalid value: "yes": protected groups must have approval annotation "api-approved.kubernetes.io" with either a URL or a reason starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111
        "#]],
    );
}

#[test]
fn a_definition_being_deleted_waits_for_its_objects() {
    use crate::kind::extension::definition::begin_delete;
    let mut object = definition(|body| body["metadata"]["finalizers"] = json!(["example.com/own"]));
    begin_delete(&mut object, NOW.parse().expect("a time"));
    let before = object.clone();
    begin_delete(&mut object, "2027-01-01T00:00:00Z".parse().expect("a time"));
    assert_eq!(object, before);
    assert_eq!(
        object["metadata"]["finalizers"],
        json!(["example.com/own", "customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(object["status"]["conditions"][0]["type"], "Terminating");
    assert_eq!(object["metadata"]["deletionTimestamp"], NOW);
}

#[test]
fn api_services_are_named_after_version_and_group() {
    let service = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let good = json!({"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10});
    check("apiservices", service("v1.x.example.com", good), expect![""]);
    check(
        "apiservices",
        service(
            "wrong",
            json!({"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 20001, "insecureSkipTLSVerify": true,
                "caBundle": "eA==", "service": {"name": "", "namespace": "n", "port": 70000}}),
        ),
        expect![[r#"
            metadata.name: Invalid value: "wrong": must be `spec.version+"."+spec.group`: "v1.x.example.com"
            spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000
            spec.versionPriority: Invalid value: 0: must be positive and less than 1000
            spec.service.name: Required value
            spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive
            spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present
        "#]],
    );
    check(
        "apiservices",
        service(
            "v1.",
            json!({"version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "caBundle": "eA=="}),
        ),
        expect![[r#"
            spec.caBundle: Invalid value: "1 bytes": local APIServices may not have a caBundle
        "#]],
    );
}

#[test]
fn migrations_name_a_resource() {
    check(
        "storageversionmigrations",
        json!({"spec": {"resource": {"group": "X"}}}),
        expect![[r#"
            spec.resource.resource: Required value: resource is required to be set
            spec.resource.group: Invalid value: "X": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        "#]],
    );
}
