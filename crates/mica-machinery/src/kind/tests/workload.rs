//! Workloads: what is refused, what the server fills in, and what may change.

use expect_test::{Expect, expect};

use super::*;

fn check(plural: &str, body: Value, wanted: Expect) {
    wanted.assert_eq(&refusals(plural, body));
}

fn template(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn deployment(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template(json!({"a": "b"}))});
    change(&mut spec);
    json!({"spec": spec})
}

#[test]
fn deployments_select_their_own_pods_and_roll_some_way() {
    assert_eq!(refusals("deployments", deployment(|_| {})), "");
    check(
        "deployments",
        deployment(|spec| spec["selector"] = json!({"matchLabels": {"x": "y"}})),
        expect![[r#"
            spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`
        "#]],
    );
    check(
        "deployments",
        deployment(|spec| {
            spec["selector"] = json!({});
            spec["replicas"] = json!(-1);
            spec["strategy"] = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}});
            spec["minReadySeconds"] = json!(700);
        }),
        expect![[r#"
            spec.replicas: Invalid value: -1: must be greater than or equal to 0
            spec.selector: Invalid value: {}: empty selector is invalid for deployment
            spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0
            spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds
        "#]],
    );
    check(
        "deployments",
        deployment(|spec| spec["strategy"] = json!({"type": "Slowly"})),
        expect![[r#"
            spec.strategy: Unsupported value: {"Type":"Slowly","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate"
        "#]],
    );
}

#[test]
fn what_a_controller_selects_by_stays() {
    let changed = deployment(|spec| {
        spec["selector"] = json!({"matchLabels": {"c": "d"}});
        spec["template"] = template(json!({"c": "d"}));
    });
    expect![[r#"
        spec.selector: Invalid value: {"matchLabels":{"c":"d"}}: field is immutable
    "#]]
    .assert_eq(&update_refusals("deployments", "", deployment(|_| {}), changed));
    let named = |name: &str| deployment(|spec| spec["serviceName"] = json!(name));
    let found = update_refusals("statefulsets", "", named("a"), named("b"));
    assert!(found.starts_with("spec: Forbidden: updates to statefulset spec for fields other than 'replicas'"));
    let scaled = deployment(|spec| {
        spec["serviceName"] = json!("a");
        spec["replicas"] = json!(9);
    });
    assert_eq!(update_refusals("statefulsets", "", named("a"), scaled), "");
}

#[test]
fn a_changed_template_counts_in_a_daemon_sets_annotation() {
    const AT: [&str; 3] = ["metadata", "annotations", "deprecated.daemonset.template.generation"];
    let (resource, old) = prepared("daemonsets", deployment(|_| {}));
    assert_eq!(object::string(&old, &AT), "1");
    let (_, mut new) = prepared(
        "daemonsets",
        deployment(|spec| spec["template"]["spec"]["hostNetwork"] = json!(true)),
    );
    let ctx = context(resource, "", &[]);
    resource.strategy.prepare_update(&ctx, &mut new, &old);
    assert_eq!(object::string(&new, &AT), "2");
    let mut same = old.clone();
    object::set(&mut same, &AT, "9");
    resource.strategy.prepare_update(&ctx, &mut same, &old);
    assert_eq!(object::string(&same, &AT), "1");
}

#[test]
fn jobs_select_their_pods_by_uid() {
    let spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let body = json!({"metadata": {"name": "j", "uid": "u"}, "spec": spec});
    let (resource, job) = prepared("jobs", body.clone());
    assert_eq!(
        job["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
    );
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    assert_eq!(job["metadata"]["labels"]["controller-uid"], "u");
    let errors = resource.strategy.validate(&context(resource, "", &[]), &job);
    assert_eq!(lines(&errors), "");
    let mut manual = body;
    manual["spec"]["selector"] = json!({"matchLabels": {"mine": "yes"}});
    expect![[r#"
        spec.selector: Invalid value: {"matchLabels":{"batch.kubernetes.io/controller-uid":"u","mine":"yes"}}: `selector` not auto-generated
        spec.template.metadata.labels: Invalid value: {"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"}: `selector` does not match template `labels`
    "#]]
    .assert_eq(&refusals("jobs", manual));
}

#[test]
fn a_jobs_end_is_told_with_all_that_belongs_to_it() {
    let job = |status: Value| json!({"spec": {"completionMode": "NonIndexed"}, "status": status});
    let jobs = resource("jobs").strategy;
    let ctx = context(resource("jobs"), "status", &[]);
    let errors = |new: Value, old: Value| lines(&jobs.validate_update(&ctx, &job(new), &job(old)));
    let complete = json!([{"type": "Complete", "status": "True"}]);
    expect![[r#"
        status.completionTime: Required value: completionTime is required for Complete jobs
        status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition
        status.startTime: Required value: startTime is required for finished job
    "#]]
    .assert_eq(&errors(json!({"conditions": complete}), json!({})));
    expect![[r#"
        status.conditions: Invalid value: cannot disable the terminal Complete=True condition
        status.failed: Invalid value: 1: cannot decrease the failed counter
    "#]]
    .assert_eq(&errors(
        json!({"failed": 1}),
        json!({"conditions": complete, "failed": 2}),
    ));
}

#[test]
fn services_need_ports_unless_they_are_names() {
    check(
        "services",
        json!({"spec": {}}),
        expect![[r#"
        spec.ports: Required value
    "#]],
    );
    let of = |spec: Value| json!({"spec": spec});
    assert_eq!(refusals("services", of(json!({"clusterIP": "None"}))), "");
    assert_eq!(
        refusals("services", of(json!({"type": "ExternalName", "externalName": "a.b"}))),
        ""
    );
    check(
        "services",
        of(json!({"type": "NodePort", "clusterIP": "None", "ports": [{"port": 1}, {"port": 1}]})),
        expect![[r#"
            spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services
            spec.ports[0].name: Required value
            spec.ports[1].name: Required value
            spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":1,"TargetPort":0,"NodePort":0}
        "#]],
    );
}

#[test]
fn services_want_what_their_type_needs() {
    use crate::kind::network::service::{Want, wants};
    let wanted = |spec: Value| wants(&prepared("services", json!({"spec": spec})).1);
    let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2, "nodePort": 30_001}]);
    assert_eq!(wanted(json!({"ports": [{"port": 1}]})), [Want::Address]);
    assert_eq!(wanted(json!({"clusterIP": "None"})), []);
    assert_eq!(wanted(json!({"type": "ExternalName", "externalName": "x"})), []);
    assert_eq!(
        wanted(json!({"type": "NodePort", "ports": ports, "clusterIP": "10.96.0.9"})),
        [Want::NodePort(0)]
    );
    assert_eq!(
        wanted(
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 1}], "allocateLoadBalancerNodePorts": false})
        ),
        [Want::Address, Want::HealthCheckPort]
    );
}

#[test]
fn what_a_service_was_given_comes_back_and_goes_with_its_type() {
    let (resource, mut old) = prepared(
        "services",
        json!({"spec": {"type": "NodePort", "ports": [{"port": 1, "nodePort": 30_001}]}}),
    );
    crate::kind::network::service::give_address(&mut old, "10.96.0.7");
    let ctx = context(resource, "", &[]);
    let update = |spec: Value| {
        let (_, mut new) = prepared("services", json!({"spec": spec}));
        resource.strategy.prepare_update(&ctx, &mut new, &old);
        new["spec"].clone()
    };
    let kept = update(json!({"type": "NodePort", "ports": [{"port": 1}]}));
    assert_eq!(
        (&kept["clusterIP"], &kept["ports"][0]["nodePort"]),
        (&json!("10.96.0.7"), &json!(30_001))
    );
    let plain = update(json!({"ports": [{"port": 1, "nodePort": 30_001}]}));
    assert_eq!(plain["ports"][0].get("nodePort"), None);
    let name = update(
        json!({"type": "ExternalName", "externalName": "x", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"]}),
    );
    assert_eq!(name.get("clusterIP"), None);
}

#[test]
fn ingresses_say_where_requests_go() {
    check(
        "ingresses",
        json!({"spec": {}}),
        expect![[r#"
        spec: Invalid value: null: either `defaultBackend` or `rules` must be specified
    "#]],
    );
    let path = |path: Value| json!({"spec": {"rules": [{"http": {"paths": [path]}}]}});
    check(
        "ingresses",
        path(
            json!({"path": "/a/..", "pathType": "Exact", "backend": {"service": {"name": "s", "port": {"number": 0}}}}),
        ),
        expect![[r#"
            spec.rules[0].http.paths[0].path: Invalid value: "/a/..": cannot end with '/..'
            spec.rules[0].http.paths[0].backend: Required value: port name or number is required
        "#]],
    );
}

#[test]
fn volumes_have_one_source() {
    let volume = |spec: Value| {
        let mut whole = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
        for (field, value) in spec.as_object().expect("an object") {
            whole[field] = value.clone();
        }
        json!({"spec": whole})
    };
    assert_eq!(
        refusals("persistentvolumes", volume(json!({"hostPath": {"path": "/x"}}))),
        ""
    );
    check(
        "persistentvolumes",
        volume(
            json!({"nfs": {"server": "s", "path": "x"}, "csi": {"driver": ""}, "accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]}),
        ),
        expect![[r#"
            spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes
            spec.nfs.path: Invalid value: "x": must be an absolute path
            spec.csi: Forbidden: may not specify more than 1 volume type
        "#]],
    );
    check(
        "persistentvolumes",
        volume(json!({"local": {"path": "/a/../b"}})),
        expect![[r#"
            spec.local.path: Invalid value: "/a/../b": must not contain '..'
            spec.nodeAffinity: Required value: Local volume requires node affinity
        "#]],
    );
}

#[test]
fn autoscalers_are_the_same_in_both_versions() {
    use crate::kind::autoscaling::{from_stored, to_stored};
    let stored = json!({
        "metadata": {"name": "a"},
        "spec": {
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
            ],
            "behavior": {"scaleDown": {"selectPolicy": "Max"}},
        },
        "status": {"conditions": [{"type": "AbleToScale", "status": "True"}]},
    });
    let old = from_stored(stored.clone());
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 50);
    assert_eq!(old["spec"].get("metrics"), None);
    assert_eq!(to_stored(old), stored);
}

#[test]
fn nodes_come_with_a_status_and_wait_for_their_controller() {
    let (_, node) = prepared("nodes", json!({"status": {"capacity": {"cpu": "4"}}}));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    check(
        "nodes",
        json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"], "taints": [{"key": "k", "effect": "Some"}]}}),
        expect![[r#"
            metadata.taints[0].effect: Unsupported value: "Some": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"
            spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family
        "#]],
    );
}

#[test]
fn only_services_without_address_and_selector_have_two_families() {
    use crate::kind::network::service::settle_families;
    let resource = resource("services");
    let made = |spec: Value, old: Option<&Value>| {
        let mut service = complete(resource, json!({"spec": spec}));
        match old {
            Some(old) => resource
                .strategy
                .prepare_update(&context(resource, "", &[]), &mut service, old),
            None => resource
                .strategy
                .prepare_create(&context(resource, "", &[]), &mut service),
        }
        let errors = lines(&settle_families(&mut service, old));
        (service, errors)
    };
    let (free, errors) = made(json!({"clusterIP": "None"}), None);
    assert_eq!(errors, "");
    assert_eq!(free["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(free["spec"]["ipFamilyPolicy"], "RequireDualStack");
    let selecting = json!({"clusterIP": "None", "selector": {"a": "b"}, "ipFamilies": ["IPv4", "IPv6"]});
    let (_, errors) = made(selecting.clone(), Some(&free));
    expect![[r#"
        spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services
        spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster
    "#]]
    .assert_eq(&errors);
    let mut single = selecting;
    single["ipFamilyPolicy"] = "SingleStack".into();
    let (single, errors) = made(single, Some(&free));
    assert_eq!((&single["spec"]["ipFamilies"], errors.as_str()), (&json!(["IPv4"]), ""));
    // Who leaves them out does not give one up.
    let preferring = json!({"clusterIP": "None", "selector": {"a": "b"}, "ipFamilyPolicy": "PreferDualStack"});
    assert_eq!(made(preferring, Some(&free)).1, "");
    let (_, errors) = made(json!({"ipFamilies": ["IPv6"]}), None);
    expect![[r#"
        spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster
    "#]]
    .assert_eq(&errors);
}
