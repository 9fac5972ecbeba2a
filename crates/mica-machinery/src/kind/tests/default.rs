//! What a create fills in, sets and clears.

use expect_test::{Expect, expect};

use super::*;

/// The object after a create, without type and metadata.
fn check(plural: &str, body: Value, expected: Expect) {
    let (_, mut object) = prepared(plural, body);
    for field in ["apiVersion", "kind", "metadata"] {
        object::remove(&mut object, &[field]);
    }
    expected.assert_eq(&object.to_string());
}

#[test]
fn namespaces_get_phase_finalizer_and_the_name_label() {
    let (_, object) = prepared(
        "namespaces",
        json!({"status": {"phase": "Terminating"}, "spec": {"finalizers": ["e.com/x"]}}),
    );
    assert_eq!(
        object["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "a"})
    );
    assert_eq!(object["spec"], json!({"finalizers": ["e.com/x", "kubernetes"]}));
    assert_eq!(object["status"], json!({"phase": "Active"}));
}

#[test]
fn string_data_of_secrets_goes_into_data_and_wins() {
    check(
        "secrets",
        json!({"data": {"a": "AA==", "b": "AA=="}, "stringData": {"b": "x"}}),
        expect![[r#"{"data":{"a":"AA==","b":"eA=="},"type":"Opaque"}"#]],
    );
}

#[test]
fn service_accounts_keep_only_names_of_secrets() {
    check(
        "serviceaccounts",
        json!({"secrets": [{"name": "s", "namespace": "n", "kind": "Secret"}], "imagePullSecrets": [{"name": "p"}]}),
        expect![[r#"{"imagePullSecrets":[{"name":"p"}],"secrets":[{"name":"s"}]}"#]],
    );
}

#[test]
fn amounts_are_rounded_up_to_thousandths() {
    check(
        "resourcequotas",
        json!({"spec": {"hard": {"cpu": "100u", "memory": "1Gi"}}, "status": {"used": {"cpu": "1"}}}),
        expect![[r#"{"spec":{"hard":{"cpu":"1m","memory":"1Gi"}},"status":{}}"#]],
    );
}

#[test]
fn limits_of_containers_default_each_other() {
    check(
        "limitranges",
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}, {"type": "Container"}]}}),
        expect![[
            r#"{"spec":{"limits":[{"default":{"cpu":"2"},"defaultRequest":{"cpu":"2","memory":"1Mi"},"max":{"cpu":"2"},"min":{"memory":"1Mi"},"type":"Container"},{"type":"Container"}]}}"#
        ]],
    );
}

#[test]
fn subjects_and_role_references_get_their_group() {
    check(
        "rolebindings",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "s"}]}),
        expect![[
            r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"g"},{"kind":"ServiceAccount","name":"s"}]}"#
        ]],
    );
}

#[test]
fn webhooks_get_policies_and_selectors() {
    check(
        "mutatingwebhookconfigurations",
        json!({"webhooks": [{"name": "a.b.c", "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "rules": [{}]}]}),
        expect![[
            r#"{"webhooks":[{"admissionReviewVersions":null,"clientConfig":{"service":{"name":"s","namespace":"n","port":443}},"failurePolicy":"Fail","matchPolicy":"Equivalent","name":"a.b.c","namespaceSelector":{},"objectSelector":{},"reinvocationPolicy":"Never","rules":[{"scope":"*"}],"sideEffects":null,"timeoutSeconds":10}]}"#
        ]],
    );
}

#[test]
fn policies_and_bindings_get_match_rules() {
    check(
        "validatingadmissionpolicies",
        json!({"spec": {"matchConstraints": {"resourceRules": [{}]}}, "status": {"observedGeneration": 4}}),
        expect![[
            r#"{"spec":{"failurePolicy":"Fail","matchConstraints":{"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"resourceRules":[{"scope":"*"}]}},"status":{}}"#
        ]],
    );
    check(
        "mutatingadmissionpolicybindings",
        json!({"spec": {"policyName": "p"}}),
        expect![[r#"{"spec":{"policyName":"p"}}"#]],
    );
}

#[test]
fn priority_levels_get_shares_and_queues() {
    check(
        "prioritylevelconfigurations",
        json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
        expect![[
            r#"{"spec":{"limited":{"lendablePercent":0,"limitResponse":{"queuing":{"handSize":8,"queueLengthLimit":50,"queues":64},"type":"Queue"},"nominalConcurrencyShares":30},"type":"Limited"},"status":{}}"#
        ]],
    );
    check(
        "flowschemas",
        json!({}),
        expect![[r#"{"spec":{"matchingPrecedence":1000,"priorityLevelConfiguration":{"name":""}},"status":{}}"#]],
    );
}

#[test]
fn definitions_get_names_conversion_and_their_stored_version() {
    check(
        "customresourcedefinitions",
        json!({"spec": {"group": "e.org", "scope": "Cluster", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": false}, {"name": "v2", "served": true, "storage": true}]}}),
        expect![[
            r#"{"spec":{"conversion":{"strategy":"None"},"group":"e.org","names":{"kind":"Widget","listKind":"WidgetList","plural":"widgets","singular":"widget"},"scope":"Cluster","versions":[{"name":"v1","served":true,"storage":false},{"name":"v2","served":true,"storage":true}]},"status":{"acceptedNames":{"kind":"","plural":""},"conditions":null,"storedVersions":["v2"]}}"#
        ]],
    );
}

#[test]
fn local_api_services_are_available_at_once() {
    let spec = json!({"version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1});
    check(
        "apiservices",
        json!({"spec": spec}),
        expect![[
            r#"{"spec":{"groupPriorityMinimum":1,"version":"v1","versionPriority":1},"status":{"conditions":[{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"Local APIServices are always available","reason":"Local","status":"True","type":"Available"}]}}"#
        ]],
    );
}

#[test]
fn signing_requests_are_by_who_asks() {
    let resource = resource("certificatesigningrequests");
    let groups = ["g".to_owned()];
    let mut object =
        json!({"spec": {"username": "liar", "uid": "x", "extra": {"a": ["b"]}}, "status": {"certificate": "eA=="}});
    resource
        .strategy
        .prepare_create(&context(resource, "", &groups), &mut object);
    assert_eq!(
        object,
        json!({"spec": {"username": "jane", "groups": ["g"]}, "status": {}})
    );
}

#[test]
fn what_volumes_use_is_kept_until_it_is_let_go() {
    for (plural, finalizer) in [
        ("persistentvolumes", "kubernetes.io/pv-protection"),
        ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
        ("volumeattributesclasses", "kubernetes.io/vac-protection"),
    ] {
        let (_, object) = prepared(plural, json!({"metadata": {"name": "a", "finalizers": ["x.io/y"]}}));
        assert_eq!(
            object["metadata"]["finalizers"],
            json!(["x.io/y", finalizer]),
            "{plural}"
        );
    }
}

#[test]
fn pod_templates_are_filled_in() {
    check(
        "podtemplates",
        json!({"template": {"spec": {
            "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}],
            "containers": [{"name": "c", "image": "img", "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}}, "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
        }}}),
        expect![[
            r#"{"template":{"metadata":{},"spec":{"containers":[{"env":[{"name":"N","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}],"image":"img","imagePullPolicy":"Always","livenessProbe":{"failureThreshold":3,"httpGet":{"path":"/","port":80,"scheme":"HTTP"},"periodSeconds":10,"successThreshold":1,"timeoutSeconds":1},"name":"c","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30,"volumes":[{"emptyDir":{},"name":"e"},{"name":"s","secret":{"defaultMode":420,"secretName":"x"}}]}}}"#
        ]],
    );
}

#[test]
fn events_change_their_form_and_back() {
    let new = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": "2024-01-02T03:04:05.000000Z",
        "reportingController": "c", "regarding": {"kind": "Pod"}, "note": "n", "deprecatedCount": 3, "deprecatedSource": {},
        "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
    });
    let stored = resource("events.events.k8s.io")
        .stored_as
        .expect("stored as another kind");
    let core = (stored.to_stored)(new.clone());
    assert_eq!(
        core,
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": "2024-01-02T03:04:05.000000Z",
            "reportingComponent": "c", "reportingInstance": "", "involvedObject": {"kind": "Pod"}, "message": "n", "count": 3,
            "source": {}, "firstTimestamp": null, "lastTimestamp": null,
        })
    );
    assert_eq!((stored.from_stored)(core), new);
}

#[test]
fn claim_templates_say_what_they_are() {
    let claim = json!({"apiVersion": "v9", "metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let (_, set) = prepared("statefulsets", json!({"spec": {"volumeClaimTemplates": [claim, {}]}}));
    for template in object::list(&set, &["spec", "volumeClaimTemplates"]) {
        assert_eq!(template["apiVersion"], "v1");
        assert_eq!(template["kind"], "PersistentVolumeClaim");
    }
}

#[test]
fn the_old_field_wins_where_one_address_has_two() {
    let cases = [
        (json!({}), json!([null, null])),
        (json!({"one": "1.1.1.1"}), json!(["1.1.1.1", ["1.1.1.1"]])),
        (json!({"all": ["2.2.2.2"]}), json!(["2.2.2.2", ["2.2.2.2"]])),
        (
            json!({"one": "1.1.1.1", "all": ["2.2.2.2", "::1"]}),
            json!(["1.1.1.1", ["1.1.1.1"]]),
        ),
        (
            json!({"one": "1.1.1.1", "all": ["1.1.1.1", "::1"]}),
            json!(["1.1.1.1", ["1.1.1.1", "::1"]]),
        ),
    ];
    for (given, expected) in cases {
        let mut pod = json!({"status": {}});
        let mut node = json!({"spec": {}});
        if let Some(one) = given.get("one") {
            pod["status"]["podIP"] = one.clone();
            node["spec"]["podCIDR"] = one.clone();
        }
        if let Some(all) = given["all"].as_array() {
            pod["status"]["podIPs"] = all.iter().map(|ip| json!({"ip": ip})).collect();
            node["spec"]["podCIDRs"] = all.clone().into();
        }
        resource("pods").strategy.default(&mut pod);
        resource("nodes").strategy.default(&mut node);
        let ips = pod["status"]["podIPs"].as_array();
        let ips = ips.map(|all| all.iter().map(|one| one["ip"].clone()).collect::<Value>());
        assert_eq!(json!([pod["status"]["podIP"], ips]), expected, "pod with {given}");
        assert_eq!(
            json!([node["spec"]["podCIDR"], node["spec"]["podCIDRs"]]),
            expected,
            "node with {given}"
        );
    }
}

#[test]
fn pods_end_in_a_second_at_least_and_templates_say_what_they_like() {
    let spec = json!({"terminationGracePeriodSeconds": -1, "containers": [{"name": "c", "image": "i"}]});
    let (resource, pod) = prepared("pods", json!({"spec": spec}));
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
    let warnings = resource.strategy.warnings(&context(resource, "", &[]), &pod, None);
    assert_eq!(warnings, Vec::<String>::new());
    let (_, set) = prepared("deployments", json!({"spec": {"template": {"spec": spec}}}));
    assert_eq!(set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], -1);
}

#[test]
fn external_services_have_no_internal_traffic() {
    for (r#type, expected) in [("ExternalName", json!(null)), ("ClusterIP", json!("Local"))] {
        let spec = json!({"type": r#type, "internalTrafficPolicy": "Local"});
        let (resource, mut service) = prepared("services", json!({"spec": spec}));
        resource.strategy.canonicalize(&mut service);
        assert_eq!(service["spec"]["internalTrafficPolicy"], expected, "{type}");
    }
}
