//! Pods against standards, with upstream's words.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn check(level: Level, version: Version, spec: Value, expected: Expect) {
    let metadata = json!({"annotations": {
        "container.apparmor.security.beta.kubernetes.io/a": "unconfined",
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
    }});
    let metadata = if spec["plain"] == true { Value::Null } else { metadata };
    let found = violations(Standard { level, version }, &metadata, &spec);
    expected.assert_eq(&details(&found).replace(", ", ",\n"));
}

/// Everything that is forbidden at once.
fn worst() -> Value {
    json!({
        "hostNetwork": true, "hostPID": true, "hostIPC": true,
        "securityContext": {
            "appArmorProfile": {"type": "Unconfined"}, "seccompProfile": {"type": "Unconfined"}, "runAsNonRoot": false,
            "runAsUser": 0, "seLinuxOptions": {"type": "x", "user": "u"}, "windowsOptions": {"hostProcess": true},
            "sysctls": [{"name": "a"}, {"name": "net.ipv4.tcp_rmem"}],
        },
        "volumes": [{"name": "v", "hostPath": {}}, {"name": "w", "nfs": {}}, {"name": "x", "emptyDir": {}}],
        "initContainers": [{"name": "i", "ports": [{"hostPort": 80}], "livenessProbe": {"httpGet": {"host": "h"}}}],
        "containers": [{"name": "c", "ports": [{"hostPort": 81}, {}], "securityContext": {
            "privileged": true, "procMount": "Unmasked", "capabilities": {"add": ["NET_ADMIN", "KILL"]},
            "seLinuxOptions": {"role": "r"}, "allowPrivilegeEscalation": true, "runAsUser": 0,
            "seccompProfile": {"type": "Unconfined"},
        }}],
    })
}

#[test]
fn baseline_forbids_what_reaches_the_host() {
    let expected = expect![[r#"
        forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to "Unconfined",
        "container.apparmor.security.beta.kubernetes.io/a="unconfined""),
        non-default capabilities (container "c" must not include "NET_ADMIN" in securityContext.capabilities.add),
        host namespaces (hostNetwork=true,
        hostPID=true,
        hostIPC=true),
        hostPath volumes (volume "v"),
        hostPort (containers "i",
        "c" use hostPorts 80,
        81),
        probe or lifecycle host (container "i" uses probe or lifecycle host "h"),
        privileged (container "c" must not set securityContext.privileged=true),
        procMount (container "c" must not set securityContext.procMount to "Unmasked"),
        seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: type "x"; user may not be set; role may not be set),
        seccompProfile (pod and container "c" must not set securityContext.seccompProfile.type to "Unconfined"),
        forbidden sysctls (a),
        hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)"#]];
    check(Level::Baseline, Version::Latest, worst(), expected);
}

#[test]
fn restricted_asks_for_the_rest() {
    let expected = expect![[r#"
        allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false),
        unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]),
        restricted volume types (volume "v" uses restricted volume type "nfs"),
        runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true),
        seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#]];
    let spec = json!({"plain": true, "containers": [{"name": "c"}], "volumes": [{"name": "v", "nfs": {}}]});
    check(Level::Restricted, Version::Latest, spec.clone(), expected);
    check(Level::Baseline, Version::Latest, spec, expect![""]);
    let good = json!({"plain": true, "containers": [{"name": "c", "securityContext": {
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}]});
    check(Level::Restricted, Version::Latest, good, expect![""]);
}

#[test]
fn older_versions_know_less() {
    let expected = expect![[r#"
        forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to "Unconfined",
        "container.apparmor.security.beta.kubernetes.io/a="unconfined""),
        non-default capabilities (container "c" must not include "NET_ADMIN" in securityContext.capabilities.add),
        host namespaces (hostNetwork=true,
        hostPID=true,
        hostIPC=true),
        hostPort (containers "i",
        "c" use hostPorts 80,
        81),
        privileged (container "c" must not set securityContext.privileged=true),
        procMount (container "c" must not set securityContext.procMount to "Unmasked"),
        seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: type "x"; user may not be set; role may not be set),
        seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined"),
        forbidden sysctls (a,
        net.ipv4.tcp_rmem),
        hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true),
        allowPrivilegeEscalation != false (containers "i",
        "c" must set securityContext.allowPrivilegeEscalation=false),
        restricted volume types (volumes "v",
        "w" use restricted volume types "hostPath",
        "nfs"),
        runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)"#]];
    check(Level::Restricted, Version::Minor(18), worst(), expected);
}

#[test]
fn labels_say_what_is_asked_and_wrong_ones_ask_for_more() {
    let of = |labels: Value| {
        let (policy, errors) = Policy::of(&json!({"metadata": {"labels": labels}}), Policy::default());
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!(
            "{} {} {} {}",
            policy.enforce,
            policy.audit,
            policy.warn,
            errors.join("|")
        )
    };
    let label = |name: &str| format!("pod-security.kubernetes.io/{name}");
    assert_eq!(of(json!({})), "privileged:latest privileged:latest privileged:latest ");
    assert_eq!(
        of(json!({label("enforce"): "baseline", label("enforce-version"): "v1.20"})),
        "baseline:v1.20 privileged:latest baseline:v1.20 "
    );
    assert_eq!(
        of(json!({label("enforce"): "none", label("warn"): "x", label("audit-version"): "1.2"})),
        "restricted:latest privileged:latest privileged:latest \
         metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"none\": must be one of privileged, baseline, restricted|\
         metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\"|\
         metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"x\": must be one of privileged, baseline, restricted"
    );
}

#[test]
fn a_configuration_gives_defaults_and_exemptions() {
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n  \
         configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    \
         defaults: {enforce: baseline, warn-version: v1.30}\n    exemptions: {namespaces: [kube-system], usernames: [ann]}\n";
    let none = |_: &str| Err("none".to_owned());
    let read = Configuration::of_admission(text.as_bytes(), &none).unwrap();
    assert_eq!(read.defaults.enforce.to_string(), "baseline:latest");
    assert_eq!(read.defaults.warn.to_string(), "privileged:v1.30");
    assert_eq!(
        (&read.namespaces[..], &read.users[..]),
        (&["kube-system".to_owned()][..], &["ann".to_owned()][..])
    );
    let refused = |from: &str, to: &str| {
        let text = text.replace(from, to);
        Configuration::of_admission(text.as_bytes(), &none)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused("enforce: baseline", "enforce: some"),
        "defaults.enforce: Invalid value: \"some\": must be one of privileged, baseline, restricted"
    );
    assert_eq!(
        refused("[kube-system]", "[a, a]"),
        "exemptions.namespaces[1]: Duplicate value: \"a\""
    );
    assert_eq!(
        refused("PodSecurityConfiguration", "Other"),
        "no kind \"Other\" is registered for version \"pod-security.admission.config.k8s.io/v1\""
    );
}
