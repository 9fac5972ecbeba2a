//! What updates keep, and what they are refused for.

use expect_test::{Expect, expect};

use super::*;

fn check(plural: &str, subresource: &str, old: Value, new: Value, expected: Expect) {
    expected.assert_eq(&update_refusals(plural, subresource, old, new));
}

#[test]
fn immutable_data_stays() {
    let old = json!({"immutable": true, "data": {"k": "v"}});
    check(
        "configmaps",
        "",
        old.clone(),
        json!({"data": {"k": "w"}}),
        expect![[r#"
            immutable: Forbidden: field is immutable when `immutable` is set
            data: Forbidden: field is immutable when `immutable` is set
        "#]],
    );
    check("configmaps", "", old.clone(), old, expect![""]);
    check(
        "secrets",
        "",
        json!({"type": "a"}),
        json!({"type": "b"}),
        expect![[r#"
            type: Invalid value: "b": field is immutable
        "#]],
    );
}

#[test]
fn role_references_stay() {
    let binding = |name: &str| json!({"roleRef": {"kind": "Role", "name": name}});
    check(
        "rolebindings",
        "",
        binding("r"),
        binding("s"),
        expect![[r#"
            roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"s"}: cannot change roleRef
        "#]],
    );
}

#[test]
fn new_events_change_only_their_series_and_core_events_all() {
    let event = |name: &str, series: Value| {
        json!({
            "eventTime": "2024-01-02T03:04:05.000000Z", "reportingController": "example.com/c", "reportingInstance": "c-1",
            "action": "Test", "reason": "Tested", "regarding": {"namespace": "ns", "name": name}, "type": "Normal", "series": series,
        })
    };
    let series = json!({"count": 4, "lastObservedTime": "2024-01-02T03:04:07.000000Z"});
    check(
        "events.events.k8s.io",
        "",
        event("x", Value::Null),
        event("x", series),
        expect![""],
    );
    check(
        "events.events.k8s.io",
        "",
        event("x", Value::Null),
        event("y", json!({"count": 1})),
        expect![[r#"
            series.count: Invalid value: "": should be at least 2
            series.lastObservedTime: Required value
            involvedObject: Invalid value: {"Kind":"","Namespace":"ns","Name":"y","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""}: field is immutable
        "#]],
    );
    let core = |message: &str| json!({"involvedObject": {"namespace": "ns"}, "message": message});
    check("events", "", core("a"), core("b"), expect![""]);
}

#[test]
fn namespace_phases_follow_deletion() {
    let (resource, old) = prepared("namespaces", json!({}));
    let errors = |change: fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new);
        let context = context(resource, "status", &[]);
        resource.strategy.prepare_update(&context, &mut new, &old);
        lines(&resource.strategy.validate_update(&context, &new, &old))
    };
    assert_eq!(errors(|_| {}), "");
    assert_eq!(
        errors(|new| new["status"]["phase"] = json!("Terminating")),
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty\n"
    );
    assert_eq!(
        errors(|new| crate::kind::core::namespace::terminate(new, NOW.parse().expect("a time"))),
        ""
    );
}

#[test]
fn status_and_spec_are_written_apart() {
    for one in resources()
        .iter()
        .filter(|one| one.subresources.iter().any(|sub| sub.name == "status"))
    {
        let old = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["x"]}, "status": {"phase": "Active"}});
        let new = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["y"]}, "status": {"phase": "Terminating"}});
        let mut object = new.clone();
        one.strategy.prepare_update(&context(one, "", &[]), &mut object, &old);
        assert_eq!(object["status"], old["status"], "{one:?}");
        let mut object = new.clone();
        one.strategy
            .prepare_update(&context(one, "status", &[]), &mut object, &old);
        assert_eq!(object["spec"], old["spec"], "{one:?}");
        assert_eq!(object["status"]["phase"], "Terminating", "{one:?}");
    }
}

#[test]
fn approvals_last_and_exclude_each_other() {
    let resource = resource("certificatesigningrequests");
    let update = |subresource: &str, old: Value, conditions: Value| {
        let base = json!({"spec": {"request": "", "signerName": "e.com/x", "usages": ["any"]}});
        let mut old_object = base.clone();
        old_object["status"] = json!({"conditions": old});
        let mut new = base;
        new["status"] = json!({"conditions": conditions});
        let context = context(resource, subresource, &[]);
        resource.strategy.prepare_update(&context, &mut new, &old_object);
        let errors = resource.strategy.validate_update(&context, &new, &old_object);
        let errors = errors
            .into_iter()
            .filter(|error| error.field != "spec.request")
            .collect();
        (lines(&errors), new)
    };
    let approved = json!([{"type": "Approved", "status": "True", "reason": "R"}]);
    let (errors, object) = update("approval", json!([]), approved.clone());
    assert_eq!(errors, "");
    assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], NOW);
    assert_eq!(
        update("approval", approved.clone(), json!([])).0,
        "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"\n"
    );
    assert_eq!(
        update(
            "approval",
            json!([]),
            json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}])
        )
        .0,
        "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive\n"
    );
    assert_eq!(
        update("status", json!([]), approved).0,
        "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"\n"
    );
}

#[test]
fn certificates_are_set_once_through_status() {
    let resource = resource("certificatesigningrequests");
    let certificate = |text: &str| json!({"spec": {}, "status": {"certificate": text}});
    let errors = |subresource: &str, old: &str, new: &str| {
        let context = context(resource, subresource, &[]);
        let errors = resource
            .strategy
            .validate_update(&context, &certificate(new), &certificate(old));
        lines(
            &errors
                .into_iter()
                .filter(|error| error.field == "status.certificate")
                .collect(),
        )
    };
    assert_eq!(
        errors("status", "", "eA=="),
        "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block\n"
    );
    assert_eq!(
        errors("status", "eA==", "eQ=="),
        "status.certificate: Forbidden: updates may not modify existing certificate content\n"
    );
    assert_eq!(
        errors("approval", "eA==", "eQ=="),
        "status.certificate: Forbidden: updates may not set certificate content\n"
    );
}

#[test]
fn established_definitions_keep_their_names_and_stored_versions() {
    let definition = |kind: &str, version: &str| {
        json!({"spec": {"group": "e.org", "scope": "Cluster", "names": {"kind": kind, "plural": "w"},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    let (resource, mut old) = prepared("customresourcedefinitions", definition("W", "v1"));
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let (_, mut new) = prepared("customresourcedefinitions", definition("X", "v2"));
    let context = context(resource, "", &[]);
    resource.strategy.prepare_update(&context, &mut new, &old);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    expect![[r#"
        spec.names.kind: Invalid value: "X": field is immutable
        status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions
    "#]]
    .assert_eq(&lines(&resource.strategy.validate_update(&context, &new, &old)));
}

#[test]
fn migrations_end_once() {
    let resource = resource("storageversionmigrations");
    let state = |r#type: &str, status: &str| {
        let condition = json!({"type": r#type, "status": status, "reason": "R", "lastTransitionTime": NOW});
        json!({"spec": {}, "status": {"resourceVersion": "5", "conditions": [condition]}})
    };
    let context = context(resource, "status", &[]);
    let errors = resource
        .strategy
        .validate_update(&context, &state("Succeeded", "False"), &state("Succeeded", "True"));
    expect![[r#"
        status.conditions: Invalid value: [{"type":"Succeeded","status":"False","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"R","message":""}]: Success condition cannot be set to false once it is true
    "#]]
    .assert_eq(&lines(&errors));
}

#[test]
fn warnings_are_given() {
    let warn = |plural: &str, body: Value| {
        let (resource, object) = prepared(plural, body);
        resource
            .strategy
            .warnings(&context(resource, "", &[]), &object, None)
            .join("\n")
    };
    assert_eq!(
        warn(
            "secrets",
            json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": "x", "tls.key": "y"}})
        ),
        "tls: failed to find any PEM data in certificate input"
    );
    assert_eq!(
        warn(
            "resourcequotas",
            json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1"}}})
        ),
        "ResourceQuota cpu (2) should be less than limits.cpu (1)"
    );
    assert_eq!(
        warn(
            "serviceaccounts",
            json!({"metadata": {"name": "a", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}})
        ),
        "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    );
    assert_eq!(warn("configmaps", json!({})), "");
}

#[test]
fn a_write_of_status_counts_no_generation() {
    let (resource, mut old) = prepared("deployments", json!({}));
    object::set(&mut old, &["metadata", "generation"], 1);
    let mut new = old.clone();
    object::set(&mut new, &["metadata", "annotations"], json!({"x": "y"}));
    for (subresource, expected) in [("status", 1), ("", 2)] {
        let context = context(resource, subresource, &[]);
        let generation = resource.strategy.generation(&context, &new, Some(&old));
        assert_eq!(generation, Some(expected), "{subresource:?}");
    }
}

#[test]
fn what_is_old_or_ignored_is_warned_of() {
    let claim = json!({"spec": {"resources": {"requests": {"storage": "1m"}}}});
    let fraction = r#"fractional byte value "1m" is invalid, must be an integer"#;
    let os = "deprecated since v1.14; use \"kubernetes.io/os\" instead";
    let expressions = json!([{"key": "beta.kubernetes.io/os", "operator": "Exists"}]);
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": expressions}}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    let cases = [
        ("services", json!({"spec": {"clusterIP": "None", "externalIPs": ["1.2.3.4"], "sessionAffinity": "ClientIP", "loadBalancerIP": "1.2.3.4"}}),
            vec!["spec.loadBalancerIP is ignored for headless services".to_owned(), "spec.externalIPs is ignored for headless services".to_owned(), "spec.SessionAffinity is ignored for headless services".to_owned()]),
        ("services", json!({"spec": {"trafficDistribution": "PreferClose"}}),
            vec!["spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned()]),
        ("persistentvolumeclaims", claim.clone(), vec![format!("spec.resources.requests[storage]: {fraction}")]),
        ("statefulsets", json!({"spec": {"revisionHistoryLimit": -1, "volumeClaimTemplates": [claim]}}),
            vec![format!("spec.volumeClaimTemplates[0].resources.requests[storage]: {fraction}"),
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned()]),
        ("deployments", json!({"metadata": {"name": "a.b"}}),
            vec![format!("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]", crate::names::dns1123_label("a.b").join(" "))]),
        ("persistentvolumes", json!({"spec": {"rbd": {"monitors": ["a"], "image": "i"}}}),
            vec!["spec.rbd: deprecated in v1.28, non-functional in v1.31+".to_owned()]),
        ("storageclasses", json!({"provisioner": "p", "allowedTopologies": [{"matchLabelExpressions": [{"key": "beta.kubernetes.io/os", "values": ["a"]}]}]}),
            vec![format!("allowedTopologies[0].matchLabelExpressions[0].key: {os}")]),
        ("csistoragecapacities", json!({"storageClassName": "x", "nodeTopology": {"matchExpressions": expressions}}),
            vec![format!("nodeTopology.matchExpressions[0].key: beta.kubernetes.io/os is {os}")]),
        ("csidrivers", json!({"spec": {"tokenRequests": [{"audience": "a"}]}}),
            vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned()]),
        ("runtimeclasses", json!({"handler": "h", "scheduling": {"nodeSelector": {"beta.kubernetes.io/os": "l"}}}),
            vec![format!("scheduling.nodeSelector: {os}")]),
        ("endpointslices", json!({"addressType": "FQDN", "endpoints": []}),
            vec!["spec.addressType: FQDN endpoints are deprecated".to_owned()]),
        ("pods", json!({"spec": {"containers": [], "affinity": affinity}}),
            vec![format!("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: beta.kubernetes.io/os is {os}")]),
    ];
    for (plural, body, expected) in cases {
        let (resource, object) = prepared(plural, body);
        let context = context(resource, "", &[]);
        assert_eq!(
            resource.strategy.warnings(&context, &object, None),
            expected,
            "{plural}"
        );
        if plural == "endpointslices" {
            let again = resource.strategy.warnings(&context, &object, Some(&object));
            assert_eq!(again, Vec::<String>::new(), "only who makes one is told");
        }
    }
}

#[test]
fn mount_options_are_for_what_is_mounted() {
    let volume = |field: &str, source: Value| {
        let annotations = json!({"volume.beta.kubernetes.io/mount-options": "ro"});
        json!({"metadata": {"name": "a", "annotations": annotations},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], field: source}})
    };
    let refused = "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type\n";
    assert_eq!(
        refusals("persistentvolumes", volume("hostPath", json!({"path": "/x"}))),
        refused
    );
    assert_eq!(
        refusals("persistentvolumes", volume("nfs", json!({"server": "s", "path": "/x"}))),
        ""
    );
}

#[test]
fn nodes_are_not_selected_by_namespace() {
    let error = |plural: &str| resource(plural).strategy.selector_error("metadata.namespace");
    let text = "field label not supported: metadata.namespace";
    assert_eq!(error("nodes").as_deref(), Some(text));
    assert_eq!(error("services"), None);
}

#[test]
fn a_write_of_a_services_status_is_told_only_of_its_addresses() {
    let (resource, mut service) = prepared("services", json!({"spec": {"trafficDistribution": "PreferClose"}}));
    object::set(
        &mut service,
        &["status", "loadBalancer", "ingress"],
        json!([{"ip": "01.2.3.4"}]),
    );
    let context = context(resource, "status", &[]);
    let warnings = resource.strategy.warnings(&context, &service, Some(&service));
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("status.loadBalancer.ingress[0]: "),
        "{}",
        warnings[0]
    );
}
