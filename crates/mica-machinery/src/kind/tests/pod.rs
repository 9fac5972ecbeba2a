//! Pods: what is refused, what is filled in, what may change, and what their rows say.

use expect_test::{Expect, expect};

use super::*;
use crate::kind::pod::{evict, priority, runtime};

fn pod(spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    for (field, value) in spec.as_object().expect("an object") {
        whole[field] = value.clone();
    }
    json!({"spec": whole})
}

fn container(container: Value) -> Value {
    let mut whole = json!({"name": "c", "image": "i"});
    for (field, value) in container.as_object().expect("an object") {
        whole[field] = value.clone();
    }
    pod(json!({"containers": [whole]}))
}

fn check(body: Value, wanted: Expect) {
    wanted.assert_eq(&refusals("pods", body));
}

#[test]
fn containers_must_be_able_to_run() {
    assert_eq!(refusals("pods", pod(json!({}))), "");
    check(
        container(json!({
            "image": " i",
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['a']"}}}],
            "resources": {"requests": {"cpu": "2", "example.com/gpu": "1"}, "limits": {"cpu": "1"}},
            "volumeMounts": [{"name": "v", "mountPath": "/a"}],
        })),
        expect![[r#"
            spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name['a']": error converting fieldPath: field label does not support subscript: metadata.name['a']
            spec.containers[0].volumeMounts[0].name: Not found: "v"
            spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1
            spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources
            spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace
        "#]],
    );
    check(
        container(json!({
            "livenessProbe": {"httpGet": {"port": "x_"}, "exec": {}, "successThreshold": 2},
            "lifecycle": {"preStop": {"sleep": {"seconds": 31}}, "stopSignal": "SIGTERM"},
            "securityContext": {"privileged": true, "allowPrivilegeEscalation": false, "seccompProfile": {"type": "Localhost"}},
        })),
        expect![[r#"
            spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost
            spec.containers[0].securityContext: Invalid value: {"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":{"Type":"Localhost","LocalhostProfile":null},"AppArmorProfile":null}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true
            spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)
            spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`
            spec.containers[0].livenessProbe.exec.command: Required value
            spec.containers[0].livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type
            spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1
        "#]],
    );
}

#[test]
fn places_must_be_able_to_be_found() {
    check(
        pod(json!({
            "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": {"topologyKey": ""}}]}},
            "tolerations": [{"operator": "Equal"}, {"key": "k", "operator": "Exists", "value": "v", "effect": "Never"}],
            "topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "Cry"}],
            "dnsPolicy": "None",
            "hostAliases": [{"ip": "x"}],
        })),
        expect![[r#"
            spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100
            spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Required value: can not be empty
            spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Invalid value: "": name part must be non-empty
            spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None
            spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero
            spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Cry": supported values: "DoNotSchedule", "ScheduleAnyway"
            spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys"
            spec.tolerations[1].operator: Invalid value: "v": value must be empty when `operator` is 'Exists'
            spec.tolerations[1].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"
            spec.hostAliases[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        "#]],
    );
}

#[test]
fn a_pods_class_of_service_follows_its_resources() {
    let class = |resources: Value| {
        let (_, pod) = prepared("pods", container(json!({"resources": resources})));
        pod["status"]["qosClass"].as_str().expect("a class").to_owned()
    };
    let both = json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(class(json!({})), "BestEffort");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(class(json!({"limits": both})), "Guaranteed");
    assert_eq!(class(json!({"limits": both, "requests": {"cpu": "500m"}})), "Burstable");
}

#[test]
fn a_pod_keeps_nearly_all_it_was_made_with() {
    let change = |new: Value| update_refusals("pods", "", pod(json!({})), new);
    assert_eq!(change(container(json!({"image": "other"}))), "");
    assert_eq!(change(pod(json!({"activeDeadlineSeconds": 5}))), "");
    let found = change(pod(json!({"restartPolicy": "Never"})));
    assert!(
        found.contains("\n- \"RestartPolicy\": \"Always\",\n+ \"RestartPolicy\": \"Never\",\n"),
        "{found}"
    );
    assert_eq!(
        change(pod(json!({"containers": []}))),
        "spec.containers: Required value\nspec.containers: Forbidden: pod updates may not add or remove containers\n"
    );
    let gated = |gates: Value| pod(json!({"schedulingGates": gates}));
    let one = json!([{"name": "a.b/c"}]);
    assert_eq!(update_refusals("pods", "", gated(one.clone()), gated(json!([]))), "");
    assert_eq!(
        update_refusals("pods", "", gated(json!([])), gated(one)),
        "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a.b/c'\n"
    );
}

#[test]
fn resizing_changes_processor_and_memory_only() {
    let sized = |resources: Value| container(json!({"resources": resources}));
    let resize = |old: Value, new: Value| update_refusals("pods", "resize", sized(old), sized(new));
    assert_eq!(
        resize(json!({"requests": {"cpu": "1"}}), json!({"requests": {"cpu": "2"}})),
        ""
    );
    assert_eq!(
        resize(
            json!({"requests": {"cpu": "1", "memory": "1"}}),
            json!({"requests": {"cpu": "1"}})
        ),
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed\n"
    );
    assert_eq!(
        resize(json!({}), json!({"requests": {"cpu": "2"}})),
        "spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing\n"
    );
    assert_eq!(
        resize(
            json!({"requests": {"cpu": "1", "ephemeral-storage": "1"}}),
            json!({"requests": {"cpu": "1", "ephemeral-storage": "2"}})
        ),
        "spec: Forbidden: only cpu and memory resources are mutable\n"
    );
}

#[test]
fn a_pod_waits_where_it_runs() {
    let strategy = resource("pods").strategy;
    let grace = |pod: Value, asked| strategy.grace(&pod, asked);
    let running = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
    assert_eq!(
        grace(json!({"spec": {"terminationGracePeriodSeconds": 30}}), None),
        Some(0)
    );
    assert_eq!(grace(running.clone(), None), Some(30));
    assert_eq!(grace(running.clone(), Some(5)), Some(5));
    assert_eq!(grace(running.clone(), Some(-1)), Some(1));
    let mut ended = running;
    object::set(&mut ended, &["status", "phase"], "Failed");
    assert_eq!(grace(ended, None), Some(0));
}

#[test]
fn a_class_decides_a_pods_priority() {
    let admit = |spec: Value, class: Option<Value>| {
        let mut pod = json!({"spec": spec});
        priority::admit(&mut pod, class.as_ref()).map(|()| pod["spec"].clone())
    };
    let high = json!({"metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"});
    assert_eq!(
        admit(json!({}), None),
        Ok(json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}))
    );
    assert_eq!(
        admit(json!({"priority": 9}), Some(high)),
        Ok(json!({"priority": 9, "preemptionPolicy": "Never", "priorityClassName": "high"}))
    );
    assert_eq!(
        admit(json!({"priority": 5}), None),
        Err("the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name".to_owned())
    );
    let classes = [
        json!({"value": 1}),
        json!({"value": 3, "globalDefault": true}),
        json!({"value": 2, "globalDefault": true}),
    ];
    assert_eq!(priority::default_class(classes.iter()), Some(&classes[2]));
}

#[test]
fn a_runtime_class_decides_a_pods_overhead_and_where_it_runs() {
    let admit = |spec: Value, class: Option<Value>| {
        let mut pod = json!({"spec": spec});
        runtime::admit(&mut pod, class.as_ref()).map(|()| pod["spec"].clone())
    };
    let class = json!({
        "overhead": {"podFixed": {"cpu": "10m"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "x", "operator": "Exists"}]},
    });
    let lost = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    assert_eq!(
        admit(
            json!({"nodeSelector": {"c": "d"}, "tolerations": [{"key": "x", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]}),
            Some(class.clone())
        ),
        Ok(json!({
            "overhead": {"cpu": "10m"},
            "nodeSelector": {"a": "b", "c": "d"},
            // The class tolerates all that the pod itself does.
            "tolerations": [lost("not-ready"), lost("unreachable"), {"key": "x", "operator": "Exists"}],
        }))
    );
    let refused = |spec: Value, class: Option<&Value>| admit(spec, class.cloned()).expect_err("refused");
    assert_eq!(
        refused(json!({"overhead": {"cpu": "1"}}), Some(&class)),
        "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    );
    assert_eq!(
        refused(json!({"nodeSelector": {"a": "z"}}), Some(&class)),
        "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = z"
    );
    // An overhead that no class has is refused when all else is right.
    let told = json!({"overhead": {"cpu": "1"}});
    assert!(admit(told.clone(), None).is_ok());
    let check = |spec: &Value, class: Option<&Value>| runtime::check(&json!({"spec": spec}), class);
    let unfounded = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    let mismatch = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
    for (spec, class, outcome) in [
        (json!({}), None, Ok(())),
        (json!({"overhead": {}}), None, Ok(())),
        (told.clone(), None, Err(unfounded)),
        (told.clone(), Some(json!({})), Err(unfounded)),
        (told, Some(class.clone()), Err(mismatch)),
        (json!({}), Some(class.clone()), Err(mismatch)),
        (json!({"overhead": {"cpu": "10m"}}), Some(class), Ok(())),
    ] {
        assert_eq!(
            check(&spec, class.as_ref()),
            outcome.map_err(ToOwned::to_owned),
            "{spec}"
        );
    }
}

#[test]
fn budgets_are_spent_one_by_one() {
    let now = NOW.parse().expect("a time");
    let budget = |allowed: i64, observed: i64| {
        json!({
            "metadata": {"name": "b", "generation": 1},
            "status": {"observedGeneration": observed, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1},
        })
    };
    let spent = evict::disrupt(&budget(1, 1), "p", now).expect("one is left");
    assert_eq!(
        (
            &spent["status"]["disruptionsAllowed"],
            &spent["status"]["disruptedPods"]["p"]
        ),
        (&json!(0), &json!(NOW))
    );
    let refused = |budget| match evict::disrupt(&budget, "p", now) {
        Err(evict::Refusal::TooMany { cause, retry, .. }) => (cause, retry),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(budget(0, 1)),
        (
            "The disruption budget b needs 1 healthy pods and has 1 currently".to_owned(),
            None
        )
    );
    assert_eq!(
        refused(budget(1, 0)),
        (
            "The disruption budget b is still being processed by the server.".to_owned(),
            Some(10)
        )
    );
}

#[test]
fn rows_tell_how_far_a_pod_is() {
    let row = |status: Value| {
        let pod = json!({
            "metadata": {"name": "p", "creationTimestamp": NOW},
            "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]},
            "status": status,
        });
        let cells = resource("pods").strategy.cells(&pod, NOW.parse().expect("a time"));
        cells[1..4]
            .iter()
            .map(|cell| cell.as_str().unwrap_or_default())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(row(json!({"phase": "Pending"})), "0/1 Pending 0");
    assert_eq!(
        row(json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]})),
        "0/1 Init:0/1 0"
    );
    assert_eq!(
        row(
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}]})
        ),
        "0/1 Init:ExitCode:2 0"
    );
    let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
    let ran = |state: Value| {
        row(
            json!({"phase": "Running", "initContainerStatuses": [done], "containerStatuses": [
                {"name": "c", "ready": true, "restartCount": 2, "state": state, "lastState": {"terminated": {"finishedAt": "2026-01-02T03:03:05Z"}}},
            ]}),
        )
    };
    assert_eq!(ran(json!({"running": {}})), "1/1 Running 2 (60s ago)");
    assert_eq!(
        ran(json!({"waiting": {"reason": "CrashLoopBackOff"}})),
        "0/1 CrashLoopBackOff 2 (60s ago)"
    );
}

#[test]
fn warnings_name_what_is_written_twice() {
    let (resource, object) = prepared(
        "pods",
        container(json!({
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            "ports": [{"containerPort": 80}, {"containerPort": 80}],
        })),
    );
    let warnings = resource.strategy.warnings(&context(resource, "", &[]), &object, None);
    assert_eq!(
        warnings,
        [
            r#"spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply"#,
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ]
    );
}

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io";

fn annotated(key: &str, value: &str, spec: Value) -> Value {
    let mut whole = pod(spec);
    whole["metadata"] = json!({"name": "p", "annotations": {key: value}});
    whole
}

#[test]
fn a_new_pod_gets_the_app_armor_profile_that_its_annotation_tells() {
    let of_pod = json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}});
    let warned = true;
    for (value, spec, profile, warns) in [
        ("unconfined", json!({}), json!({"type": "Unconfined"}), warned),
        (
            "runtime/default",
            of_pod.clone(),
            json!({"type": "RuntimeDefault"}),
            warned,
        ),
        (
            "localhost/x",
            json!({}),
            json!({"type": "Localhost", "localhostProfile": "x"}),
            warned,
        ),
        ("localhost/ x", json!({}), Value::Null, warned),
        ("odd", json!({}), Value::Null, warned),
        ("unconfined", of_pod, Value::Null, !warned),
        ("unconfined", json!({"os": {"name": "windows"}}), Value::Null, !warned),
    ] {
        let resource = resource("pods");
        let mut object = complete(resource, annotated(&format!("{APP_ARMOR}/c"), value, spec));
        let warnings = resource.strategy.prepare_warnings(&object);
        resource
            .strategy
            .prepare_create(&context(resource, "", &[]), &mut object);
        let found = object.pointer("/spec/containers/0/securityContext/appArmorProfile");
        assert_eq!(found.cloned().unwrap_or_default(), profile, "{value}");
        let text = format!(
            r#"metadata.annotations[{APP_ARMOR}/c]: deprecated since v1.30; use the "appArmorProfile" field instead"#
        );
        assert_eq!(warnings, Vec::from_iter(warns.then_some(text)), "{value}");
    }
}

#[test]
fn annotations_of_profiles_are_of_containers_and_agree_with_fields() {
    check(
        annotated(&format!("{APP_ARMOR}/x"), "odd", json!({})),
        expect![[r#"
        metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "x": container not found
        metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "odd": invalid AppArmor profile name: "odd"
    "#]],
    );
    let local = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}});
    let spec = json!({"containers": [{"name": "c", "image": "i", "securityContext": local}]});
    for value in ["localhost/b", "unconfined"] {
        let refused = refusals("pods", annotated(&format!("{APP_ARMOR}/c"), value, spec.clone()));
        let at = "spec.containers[0].securityContext.appArmorProfile";
        let wanted = match value {
            "unconfined" => format!("{at}.type: Forbidden: apparmor type in annotation and field must match\n"),
            _ => format!("{at}.localhostProfile: Forbidden: apparmor profile in annotation and field must match\n"),
        };
        assert_eq!(refused, wanted);
    }
}

#[test]
fn annotations_of_init_containers_go_unseen() {
    let (_, object) = prepared(
        "pods",
        annotated("pod.beta.kubernetes.io/init-containers", "[]", json!({})),
    );
    assert_eq!(object.pointer("/metadata/annotations"), None);
}

#[test]
fn templates_are_warned_of_annotations_and_of_files_that_overlap() {
    let mut template = annotated(&format!("{APP_ARMOR}/c"), "unconfined", json!({}));
    template["metadata"]["annotations"]["seccomp.security.alpha.kubernetes.io/pod"] = "unconfined".into();
    let items = |paths: &[&str]| -> Vec<Value> { paths.iter().map(|path| json!({"key": "k", "path": path})).collect() };
    template["spec"]["volumes"] = json!([
        {"name": "m", "configMap": {"name": "n", "items": items(&["a/", "b", "a/b"])}},
        {"name": "p", "projected": {"sources": [
            {}, {"secret": {"name": "s", "items": items(&["a"])}}, {"serviceAccountToken": {"path": "a"}},
        ]}},
    ]);
    template["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostIP": "127.0.0.1"}]);
    let (resource, object) = prepared("podtemplates", json!({"template": template}));
    let warnings = resource.strategy.warnings(&context(resource, "", &[]), &object, None);
    expect![[r#"
        volume "m" (ConfigMap "n"): overlapping paths: "a/b" with "a"
        volume "p" (Projected) has no sources provided
        volume "p" (Projected): overlapping paths: "a" (ServiceAccountToken) with "a" (Secret "s")
        template.metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "seccompProfile" field instead
        template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead
        template.spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:127.0.0.1}"#]].assert_eq(&warnings.join("\n"));
}
