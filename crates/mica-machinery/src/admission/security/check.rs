//! The checks of the two levels, each from the version on in which it appeared.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Level, Standard, Version};
use crate::field::quote;
use crate::object;

/// The newest version with rules of its own.
const NEWEST: u32 = 35;

/// One rule that a pod breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub reason: String,
    pub detail: String,
}

impl Violation {
    fn new(reason: &str, detail: impl Into<String>) -> Option<Self> {
        Some(Self {
            reason: reason.to_owned(),
            detail: detail.into(),
        })
    }
}

/// What is judged, by the rules of a minor version.
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    minor: u32,
}

type Check = fn(&Pod<'_>) -> Option<Violation>;

/// Checks of the lower level, with the version from which one of the upper level stands in for it there.
const BASELINE: [(Check, Option<u32>); 12] = [
    (app_armor, None),
    (added_capabilities, Some(22)),
    (host_namespaces, None),
    (host_paths, Some(0)),
    (host_ports, None),
    (probe_hosts, None),
    (privileged, None),
    (proc_mount, Some(35)),
    (se_linux, None),
    (seccomp, Some(19)),
    (sysctls, None),
    (host_process, None),
];

/// Checks of the upper level, with the version in which they appeared.
const RESTRICTED: [(Check, u32); 7] = [
    (escalation, 8),
    (capabilities, 22),
    (proc_mount_always, 35),
    (volumes, 0),
    (non_root, 0),
    (run_as_user, 23),
    (seccomp_required, 19),
];

/// What a pod violates of a standard, in upstream's order.
pub fn violations(standard: Standard, metadata: &Value, spec: &Value) -> Vec<Violation> {
    let minor = match standard.version {
        Version::Latest => NEWEST,
        Version::Minor(minor) => minor.min(NEWEST),
    };
    let pod = Pod { metadata, spec, minor };
    let restricted = match standard.level {
        Level::Privileged => return Vec::new(),
        Level::Baseline => false,
        Level::Restricted => true,
    };
    let overridden = |from: Option<u32>| restricted && from.is_some_and(|from| minor >= from);
    let lower = BASELINE
        .iter()
        .filter(|(_, from)| !overridden(*from))
        .map(|(check, _)| check);
    let upper = RESTRICTED.iter().filter(|(_, from)| restricted && minor >= *from);
    lower
        .chain(upper.map(|(check, _)| check))
        .filter_map(|check| check(&pod))
        .collect()
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |list| object::list(spec, &[list]))
    }

    /// The names of containers of which something holds.
    fn which(&self, is_bad: impl FnMut(&&'a Value) -> bool) -> Vec<&'a str> {
        let bad = self.containers().filter(is_bad);
        bad.map(|container| object::string(container, &["name"])).collect()
    }

    fn is_windows(&self) -> bool {
        object::string(self.spec, &["os", "name"]) == "windows"
    }

    /// Whether the pod's users are not those of its host.
    fn has_own_users(&self) -> bool {
        object::get(self.spec, &["hostUsers"]) == Some(&Value::Bool(false))
    }
}

fn context<'a>(of: &'a Value, field: &str) -> Option<&'a Value> {
    object::get(of, &["securityContext", field]).filter(|value| !value.is_null())
}

fn joined<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("\"{item}\"")).collect();
    items.join(", ")
}

fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"`, or `containers "a", "b"`.
fn named(containers: &[&str]) -> String {
    let noun = plural("container", "containers", containers.len());
    format!("{noun} {}", joined(containers.iter().copied()))
}

/// The pod, its containers, or both.
fn setters(pod: bool, containers: &[&str]) -> Vec<String> {
    let mut setters = Vec::new();
    if pod {
        setters.push("pod".to_owned());
    }
    if !containers.is_empty() {
        setters.push(named(containers));
    }
    setters
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut values = BTreeSet::new();
    let mut is_bad = |of: &Value| {
        let Some(profile) = context(of, "appArmorProfile") else {
            return false;
        };
        let kind = object::string(profile, &["type"]);
        let bad = !matches!(kind, "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    };
    let whole = is_bad(pod.spec);
    let containers = pod.which(|container| is_bad(container));
    let mut setters = setters(whole, &containers);
    let annotations = object::map(pod.metadata, &["annotations"]).into_iter().flatten();
    let mut annotations: Vec<String> = annotations
        .filter_map(|(key, value)| {
            let value = value.as_str()?;
            let good = value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
            (key.starts_with(ANNOTATION) && !good).then(|| format!("{key}={}", quote(value)))
        })
        .collect();
    let mut values: Vec<String> = values.into_iter().collect();
    if !annotations.is_empty() {
        annotations.sort();
        setters.push(plural("annotation", "annotations", annotations.len()).to_owned());
        values.extend(annotations);
    }
    if setters.is_empty() {
        return None;
    }
    let reason = plural(
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
        values.len(),
    );
    let (setters, values) = (setters.join(" and "), joined(values.iter().map(String::as_str)));
    Violation::new(
        reason,
        format!("{setters} must not set AppArmor profile type to {values}"),
    )
}

const USUAL_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Containers that add capabilities which are not listed, and those capabilities.
fn adding<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut added = BTreeSet::new();
    let containers = pod.which(|container| {
        let adds = object::list(container, &["securityContext", "capabilities", "add"]).iter();
        let bad: Vec<&str> = adds
            .filter_map(Value::as_str)
            .filter(|one| !allowed.contains(one))
            .collect();
        added.extend(bad.iter().copied());
        !bad.is_empty()
    });
    (containers, added)
}

fn added_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let (containers, added) = adding(pod, &USUAL_CAPABILITIES);
    if containers.is_empty() {
        return None;
    }
    let (containers, added) = (named(&containers), joined(added));
    let detail = format!("{containers} must not include {added} in securityContext.capabilities.add");
    Violation::new("non-default capabilities", detail)
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 25 && pod.is_windows() {
        return None;
    }
    let keeps = pod.which(|container| {
        let drops = object::list(container, &["securityContext", "capabilities", "drop"]);
        !drops.iter().any(|one| one == "ALL")
    });
    let mut details = Vec::new();
    if !keeps.is_empty() {
        let keeps = named(&keeps);
        details.push(format!("{keeps} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    let (containers, added) = adding(pod, &["NET_BIND_SERVICE"]);
    if !containers.is_empty() {
        let (containers, added) = (named(&containers), joined(added));
        details.push(format!(
            "{containers} must not include {added} in securityContext.capabilities.add"
        ));
    }
    if details.is_empty() {
        return None;
    }
    Violation::new("unrestricted capabilities", details.join("; "))
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let shared = shared.filter(|field| object::get(pod.spec, &[field]) == Some(&Value::Bool(true)));
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() {
        return None;
    }
    Violation::new("host namespaces", shared.join(", "))
}

fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = object::list(pod.spec, &["volumes"]).iter();
    let bad = volumes.filter(|volume| volume.get("hostPath").is_some_and(|path| !path.is_null()));
    let bad: Vec<&str> = bad.map(|volume| object::string(volume, &["name"])).collect();
    if bad.is_empty() {
        return None;
    }
    let noun = plural("volume", "volumes", bad.len());
    Violation::new("hostPath volumes", format!("{noun} {}", joined(bad)))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let containers = pod.which(|container| {
        let used = object::list(container, &["ports"]).iter();
        let used: Vec<i64> = used
            .filter_map(|port| object::int(port, &["hostPort"]))
            .filter(|port| *port != 0)
            .collect();
        ports.extend(used.iter().map(ToString::to_string));
        !used.is_empty()
    });
    if containers.is_empty() {
        return None;
    }
    let uses = plural("uses", "use", containers.len());
    let noun = plural("hostPort", "hostPorts", ports.len());
    let ports: Vec<String> = ports.into_iter().collect();
    Violation::new(
        "hostPort",
        format!("{} {uses} {noun} {}", named(&containers), ports.join(", ")),
    )
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const PROBES: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    if pod.minor < 34 {
        return None;
    }
    let mut hosts = BTreeSet::new();
    let containers = pod.which(|container| {
        let mut bad = false;
        for probe in PROBES {
            for way in ["httpGet", "tcpSocket"] {
                let host = object::string(container, &[probe, &[way, "host"]].concat());
                if !host.is_empty() {
                    hosts.insert(host);
                    bad = true;
                }
            }
        }
        bad
    });
    if containers.is_empty() {
        return None;
    }
    let containers: Vec<&str> = containers.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let uses = plural("uses", "use", containers.len());
    let noun = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    Violation::new(
        "probe or lifecycle host",
        format!("{} {uses} {noun} {}", named(&containers), joined(hosts)),
    )
}

fn is_true(of: &Value, path: &[&str]) -> bool {
    object::get(of, path) == Some(&Value::Bool(true))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.which(|container| is_true(container, &["securityContext", "privileged"]));
    if containers.is_empty() {
        return None;
    }
    let detail = format!("{} must not set securityContext.privileged=true", named(&containers));
    Violation::new("privileged", detail)
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 35 && pod.has_own_users() {
        return None;
    }
    proc_mount_always(pod)
}

fn proc_mount_always(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let containers = pod.which(|container| {
        let kind = context(container, "procMount").and_then(Value::as_str);
        let kind = kind.filter(|kind| *kind != "Default");
        kinds.extend(kind);
        kind.is_some()
    });
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        named(&containers),
        joined(kinds)
    );
    Violation::new("procMount", detail)
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let engine = pod.minor >= 31;
    let mut is_bad = |of: &Value| {
        let Some(options) = context(of, "seLinuxOptions") else {
            return false;
        };
        let text = |field: &str| object::string(options, &[field]);
        let kind = text("type");
        let known = matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || (engine && kind == "container_engine_t");
        if !known {
            types.insert(kind.to_owned());
        }
        user |= !text("user").is_empty();
        role |= !text("role").is_empty();
        !known || !text("user").is_empty() || !text("role").is_empty()
    };
    let whole = is_bad(pod.spec);
    let containers = pod.which(|container| is_bad(container));
    let setters = setters(whole, &containers);
    if setters.is_empty() {
        return None;
    }
    let mut bad = Vec::new();
    if !types.is_empty() {
        let noun = plural("type", "types", types.len());
        bad.push(format!("{noun} {}", joined(types.iter().map(String::as_str))));
    }
    if user {
        bad.push("user may not be set".to_owned());
    }
    if role {
        bad.push("role may not be set".to_owned());
    }
    let detail = format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        setters.join(" and "),
        bad.join("; ")
    );
    Violation::new("seLinuxOptions", detail)
}

/// What is known of a pod's seccomp profiles.
struct Profiles<'a> {
    /// Of the pod itself.
    whole: Option<bool>,
    explicitly_bad: Vec<&'a str>,
    /// Containers without one.
    unset: Vec<&'a str>,
    values: BTreeSet<String>,
}

fn profiles<'a>(pod: &Pod<'a>) -> Profiles<'a> {
    let mut values = BTreeSet::new();
    let mut good = |of: &Value| {
        let kind = object::string(context(of, "seccompProfile")?, &["type"]);
        let good = matches!(kind, "RuntimeDefault" | "Localhost");
        if !good {
            values.insert(kind.to_owned());
        }
        Some(good)
    };
    let whole = good(pod.spec);
    let explicitly_bad = pod.which(|container| good(container) == Some(false));
    let unset = pod.which(|container| context(container, "seccompProfile").is_none());
    Profiles {
        whole,
        explicitly_bad,
        unset,
        values,
    }
}

fn bad_profiles(profiles: &Profiles<'_>) -> Option<Violation> {
    let setters = setters(profiles.whole == Some(false), &profiles.explicitly_bad);
    if setters.is_empty() {
        return None;
    }
    let values = joined(profiles.values.iter().map(String::as_str));
    let detail = format!(
        "{} must not set securityContext.seccompProfile.type to {values}",
        setters.join(" and ")
    );
    Violation::new("seccompProfile", detail)
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 19 {
        return bad_profiles(&profiles(pod));
    }
    // Before there was a field there were annotations.
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    let containers = pod.which(|_| true).into_iter();
    let keys = containers.map(|name| format!("container.seccomp.security.alpha.kubernetes.io/{name}"));
    let mut forbidden = BTreeSet::new();
    for key in std::iter::once(POD.to_owned()).chain(keys) {
        let value = object::get(pod.metadata, &["annotations", &key]).and_then(Value::as_str);
        let good =
            |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        if let Some(value) = value.filter(|value| !good(value)) {
            forbidden.insert(format!("{key}={}", quote(value)));
        }
    }
    if forbidden.is_empty() {
        return None;
    }
    let noun = plural("annotation", "annotations", forbidden.len());
    let all: Vec<String> = forbidden.into_iter().collect();
    Violation::new("seccompProfile", format!("forbidden {noun} {}", all.join(", ")))
}

fn seccomp_required(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 25 && pod.is_windows() {
        return None;
    }
    let profiles = profiles(pod);
    let bad = bad_profiles(&profiles);
    if bad.is_some() || profiles.whole == Some(true) || profiles.unset.is_empty() {
        return bad;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        named(&profiles.unset)
    );
    Violation::new("seccompProfile", detail)
}

/// Settings of the kernel that are a pod's own, and from which version on they are known to be.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let safe = |name: &str| SYSCTLS.iter().any(|(known, from)| *known == name && pod.minor >= *from);
    let set = object::list(pod.spec, &["securityContext", "sysctls"]).iter();
    let bad = set
        .map(|sysctl| object::string(sysctl, &["name"]))
        .filter(|name| !safe(name));
    let bad: Vec<&str> = bad.collect();
    if bad.is_empty() {
        return None;
    }
    Violation::new("forbidden sysctls", bad.join(", "))
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let asks = |of: &Value| is_true(of, &["securityContext", "windowsOptions", "hostProcess"]);
    let containers = pod.which(|container| asks(container));
    let setters = setters(asks(pod.spec), &containers);
    if setters.is_empty() {
        return None;
    }
    let setters = setters.join(" and ");
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    Violation::new("hostProcess", detail)
}

fn escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 25 && pod.is_windows() {
        return None;
    }
    let path = ["securityContext", "allowPrivilegeEscalation"];
    let containers = pod.which(|container| object::get(container, &path) != Some(&Value::Bool(false)));
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        named(&containers)
    );
    Violation::new("allowPrivilegeEscalation != false", detail)
}

const GOOD_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// In the order in which upstream names them, of which a volume has one.
const BAD_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let has = |volume: &Value, kind: &str| volume.get(kind).is_some_and(|source| !source.is_null());
    let all = object::list(pod.spec, &["volumes"]).iter();
    let bad: Vec<&Value> = all
        .filter(|volume| !GOOD_VOLUMES.iter().any(|kind| has(volume, kind)))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |volume: &&Value| {
        BAD_VOLUMES
            .into_iter()
            .find(|kind| has(volume, kind))
            .unwrap_or("unknown")
    };
    let kinds: BTreeSet<&str> = bad.iter().map(kind).collect();
    let names = bad.iter().map(|volume| object::string(volume, &["name"]));
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", bad.len()),
        joined(names),
        plural("uses", "use", bad.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        joined(kinds)
    );
    Violation::new("restricted volume types", detail)
}

fn non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    if pod.minor >= 35 && pod.has_own_users() {
        return None;
    }
    let says = |of: &Value| context(of, "runAsNonRoot").and_then(Value::as_bool);
    let whole = says(pod.spec);
    let bad = pod.which(|container| says(container) == Some(false));
    let setters = setters(whole == Some(false), &bad);
    if !setters.is_empty() {
        let setters = setters.join(" and ");
        return Violation::new(
            REASON,
            format!("{setters} must not set securityContext.runAsNonRoot=false"),
        );
    }
    let unset = pod.which(|container| says(container).is_none());
    if whole == Some(true) || unset.is_empty() {
        return None;
    }
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", named(&unset));
    Violation::new(REASON, detail)
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 35 && pod.has_own_users() {
        return None;
    }
    let is_root = |of: &Value| context(of, "runAsUser").and_then(Value::as_i64) == Some(0);
    let containers = pod.which(|container| is_root(container));
    let setters = setters(is_root(pod.spec), &containers);
    if setters.is_empty() {
        return None;
    }
    Violation::new(
        "runAsUser=0",
        format!("{} must not set runAsUser=0", setters.join(" and ")),
    )
}
