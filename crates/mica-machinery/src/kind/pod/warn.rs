//! What pods and templates are warned of: fields that do nothing any more, and what is written twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::apparmor;
use super::overlap::overlap_warnings;
use super::security::{SECCOMP_CONTAINER, SECCOMP_POD, containers};
use crate::field::{Path, quote};
use crate::kind::check::{entries, is_set, present, strings};
use crate::kind::core::resource::quantity;
use crate::kind::workload::number;
use crate::{names, object};

/// Warnings of one kind that are looked for: more than an answer's headers can hold.
pub const MAX_WARNINGS: usize = 4096;

/// Volume sources that went, and what is said of them.
const GONE: [(&str, &str, &str); 9] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];
/// Labels of nodes that have new names.
const LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

/// What a kind of volume is called, and what is said of it, if it has gone.
pub fn old_source(field: &str) -> Option<(&'static str, &'static str)> {
    let known = GONE.iter().find(|(source, _, _)| *source == field);
    known.map(|(_, shown, text)| (*shown, *text))
}

/// What is said of a node's label that has gone or has a new name.
pub fn old_label(key: &str) -> Option<&'static str> {
    LABELS.iter().find(|(label, _)| *label == key).map(|(_, text)| *text)
}

/// Old labels in the expressions of a node selector's term, or of a label selector of nodes.
pub fn expression_warnings(term: &Value, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, expression) in object::list(term, &["matchExpressions"]).iter().enumerate() {
        let key = object::string(expression, &["key"]);
        if let Some(text) = old_label(key) {
            let path = path.child("matchExpressions").index(i).child("key");
            warnings.push(format!("{path}: {key} is {text}"));
        }
    }
    warnings
}

/// A preference may hold values that no label has; a requirement with them is refused.
fn preference_warnings(term: &Value, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, expression) in object::list(term, &["matchExpressions"]).iter().enumerate() {
        let (key, path) = (
            object::string(expression, &["key"]),
            path.child("matchExpressions").index(i),
        );
        if let Some(text) = old_label(key) {
            warnings.push(format!("{}: {key} is {text}", path.child("key")));
        }
        for (j, value) in strings(expression, &["values"]).into_iter().enumerate() {
            for text in names::label_value(value) {
                let path = path.child("values").index(j);
                warnings.push(format!("{path}: {value} is invalid, {text}"));
            }
        }
    }
    warnings
}

/// A part of a byte can be neither asked for nor given.
pub fn fraction_warning(amount: Option<&Value>, path: &Path) -> Option<String> {
    let amount = amount.map(quantity).filter(|amount| amount.milli_value() % 1000 != 0)?;
    let shown = quote(&amount.to_string());
    Some(format!(
        "{path}: fractional byte value {shown} is invalid, must be an integer"
    ))
}

pub fn pod_warnings(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let texts = names::dns1123_label(object::name(pod));
    if !texts.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            texts.join(" ")
        ));
    }
    warnings.extend(warnings_of(pod, &Path::default()));
    warnings
}

/// Warnings about a template. Those that the old one had too are given again.
pub fn template_warnings(template: Option<&Value>, _old: Option<&Value>, path: &Path) -> Vec<String> {
    template.map(|template| warnings_of(template, path)).unwrap_or_default()
}

fn warnings_of(holder: &Value, path: &Path) -> Vec<String> {
    let null = Value::Null;
    let spec = holder.get("spec").unwrap_or(&null);
    let (spec_path, mut warnings) = (path.child("spec"), Vec::new());
    for (key, _) in entries(spec, &["nodeSelector"]) {
        if let Some((_, text)) = LABELS.iter().find(|(label, _)| *label == key) {
            warnings.push(format!("{}: {text}", spec_path.child("nodeSelector").key(key)));
        }
    }
    node_affinity_warnings(spec, &spec_path, &mut warnings);
    for (i, constraint) in object::list(spec, &["topologySpreadConstraints"]).iter().enumerate() {
        let path = spec_path.child("topologySpreadConstraints").index(i);
        let key = object::string(constraint, &["topologyKey"]);
        if let Some((_, text)) = LABELS.iter().find(|(label, _)| *label == key) {
            warnings.push(format!("{}: {key} is {text}", path.child("topologyKey")));
        }
        if !is_set(constraint, &["labelSelector"]) {
            warnings.push(matches_nothing(&path.child("labelSelector")));
        }
    }
    let annotations = path.child("metadata").child("annotations");
    for (key, text) in ANNOTATIONS {
        if object::get(holder, &["metadata", "annotations", key]).is_some() {
            warnings.push(format!("{}: {text}", annotations.key(key)));
        }
    }
    for (i, volume) in object::list(spec, &["volumes"]).iter().enumerate() {
        for (field, shown, text) in GONE {
            if is_set(volume, &[field]) {
                let path = spec_path.child("volumes").index(i).child(shown);
                warnings.push(format!("{path}: {text}"));
            }
        }
        let claim = spec_path
            .child("volumes")
            .index(i)
            .child("ephemeral")
            .child("volumeClaimTemplate");
        for field in ["requests", "limits"] {
            let at = [
                "ephemeral",
                "volumeClaimTemplate",
                "spec",
                "resources",
                field,
                "storage",
            ];
            let path = claim.child("spec").child("resources").child(field).key("storage");
            warnings.extend(fraction_warning(object::get(volume, &at), &path));
        }
    }
    warnings.extend(overlap_warnings(spec));
    repeated(spec, "hostAliases", "ip", &spec_path, &mut warnings);
    repeated(spec, "imagePullSecrets", "name", &spec_path, &mut warnings);
    for (i, secret) in object::list(spec, &["imagePullSecrets"]).iter().enumerate() {
        if object::string(secret, &["name"]).is_empty() {
            let path = spec_path.child("imagePullSecrets").index(i).child("name");
            warnings.push(format!("{path}: invalid empty name \"\""));
        }
    }
    for name in ["memory", "ephemeral-storage"] {
        let path = spec_path.child("overhead").key(name);
        warnings.extend(fraction_warning(object::get(spec, &["overhead", name]), &path));
    }
    seccomp_warning(holder, spec, SECCOMP_POD, path, &mut warnings);
    container_warnings(holder, path, &mut warnings);
    port_warnings(spec, &spec_path, &mut warnings);
    if object::int(spec, &["terminationGracePeriodSeconds"]).is_some_and(|seconds| seconds < 0) {
        let path = spec_path.child("terminationGracePeriodSeconds");
        warnings.push(format!(
            "{path}: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    affinity_warnings(spec, &spec_path.child("affinity"), &mut warnings);
    address_warnings(spec, &spec_path, &mut warnings);
    warnings
}

fn node_affinity_warnings(spec: &Value, path: &Path, warnings: &mut Vec<String>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let path = path.child("affinity").child("nodeAffinity");
    let at = ["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"];
    for (i, term) in object::list(spec, &at).iter().enumerate() {
        let path = path.child(REQUIRED).child("nodeSelectorTerms").index(i);
        warnings.extend(expression_warnings(term, &path));
    }
    let at = ["affinity", "nodeAffinity", PREFERRED];
    for (i, term) in object::list(spec, &at).iter().enumerate() {
        let path = path.child(PREFERRED).index(i).child("preference");
        warnings.extend(preference_warnings(
            term.get("preference").unwrap_or(&Value::Null),
            &path,
        ));
    }
}

fn matches_nothing(path: &Path) -> String {
    format!("{path}: a null labelSelector results in matching no pod")
}

fn repeated(spec: &Value, list: &str, field: &str, path: &Path, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (i, one) in object::list(spec, &[list]).iter().enumerate() {
        let value = object::string(one, &[field]);
        if !seen.insert(value) {
            let path = path.child(list).index(i).child(field);
            warnings.push(format!("{path}: duplicate {field} {}", quote(value)));
        }
    }
}

/// An annotation of a profile that nothing reads any more, where there is no field instead.
fn seccomp_warning(holder: &Value, of: &Value, key: &str, path: &Path, warnings: &mut Vec<String>) {
    let told = object::get(holder, &["metadata", "annotations", key]).is_some();
    if told && !is_set(of, &["securityContext", "seccompProfile"]) {
        let path = path.child("metadata").child("annotations").key(key);
        warnings.push(format!(
            r#"{path}: non-functional in v1.27+; use the "seccompProfile" field instead"#
        ));
    }
}

fn container_warnings(holder: &Value, above: &Path, warnings: &mut Vec<String>) {
    let null = Value::Null;
    let spec = holder.get("spec").unwrap_or(&null);
    for (path, container) in containers(spec, &above.child("spec")) {
        let key = format!("{SECCOMP_CONTAINER}{}", object::string(container, &["name"]));
        seccomp_warning(holder, container, &key, above, warnings);
        // A pod's own are spoken of when they are copied.
        if *above != Path::default() {
            let annotations = above.child("metadata").child("annotations");
            warnings.extend(apparmor::template_warning(holder, container, &annotations));
        }
        for name in ["memory", "ephemeral-storage"] {
            for field in ["limits", "requests"] {
                let amount = object::get(container, &["resources", field, name]);
                let path = path.child("resources").child(field).key(name);
                warnings.extend(fraction_warning(amount, &path));
            }
        }
        let mut seen = BTreeSet::new();
        for (i, variable) in object::list(container, &["env"]).iter().enumerate() {
            let (name, value) = (
                object::string(variable, &["name"]),
                object::string(variable, &["value"]),
            );
            let reference = format!("$({name})");
            let hides = is_set(variable, &["valueFrom"]) || value == reference || !value.contains(&reference);
            if !seen.insert(name) && hides {
                let path = path.child("env").index(i);
                let shown = quote(name);
                warnings.push(format!(
                    "{path}: hides previous definition of {shown}, which may be dropped when using apply"
                ));
            }
        }
    }
}

/// A container's port and its protocol.
type PortKey<'p> = (i64, &'p str);

/// What tells ports apart.
struct Port<'p> {
    key: PortKey<'p>,
    host_port: i64,
    host_ip: &'p str,
}

/// Ports that were seen, so that those which another is at odds with are found without looking at all.
#[derive(Default)]
struct Ports<'p> {
    all: Vec<(Port<'p>, Path)>,
    by_key: HashMap<PortKey<'p>, Vec<usize>>,
    by_host: HashMap<(PortKey<'p>, i64), Vec<usize>>,
    by_address: HashMap<(PortKey<'p>, i64, &'p str), Vec<usize>>,
}

impl<'p> Ports<'p> {
    /// The first ports, at most `most`, that this one is at odds with, and how.
    fn meet(&self, port: &Port<'p>, most: usize) -> Vec<(&'static str, &Path)> {
        let Port {
            key,
            host_port,
            host_ip,
        } = *port;
        let address = |ip| self.by_address.get(&(key, host_port, ip));
        let lists = match (host_port, host_ip) {
            (0, _) => [self.by_key.get(&key), None, None],
            (_, "") => [self.by_host.get(&(key, 0)), self.by_host.get(&(key, host_port)), None],
            _ => [self.by_host.get(&(key, 0)), address(host_ip), address("")],
        };
        let mut met: Vec<usize> = lists
            .into_iter()
            .flatten()
            .flat_map(|list| list.iter().take(most).copied())
            .collect();
        met.sort_unstable();
        met.truncate(most);
        let how = |other: &Port<'_>| {
            if (host_port, host_ip) == (other.host_port, other.host_ip) {
                "duplicate"
            } else if host_port == 0 || other.host_port == 0 {
                "overlapping"
            } else {
                "dangerously ambiguous"
            }
        };
        met.into_iter().map(|i| (how(&self.all[i].0), &self.all[i].1)).collect()
    }

    fn add(&mut self, port: Port<'p>, path: Path) {
        let i = self.all.len();
        let Port {
            key,
            host_port,
            host_ip,
        } = port;
        self.by_key.entry(key).or_default().push(i);
        self.by_host.entry((key, host_port)).or_default().push(i);
        self.by_address.entry((key, host_port, host_ip)).or_default().push(i);
        self.all.push((port, path));
    }
}

fn port_warnings(spec: &Value, path: &Path, warnings: &mut Vec<String>) {
    let mut ports = Ports::default();
    let mut named: BTreeMap<&str, Path> = BTreeMap::new();
    let mut about_names = Vec::new();
    for (path, container) in containers(spec, path) {
        for (i, port) in object::list(container, &["ports"]).iter().enumerate() {
            let path = path.child("ports").index(i);
            let key = (number(port, &["containerPort"]), object::string(port, &["protocol"]));
            let (host_port, host_ip) = (number(port, &["hostPort"]), object::string(port, &["hostIP"]));
            if host_port == 0 && !host_ip.is_empty() {
                let of = |field| object::string(port, &[field]);
                let (name, number, protocol) = (of("name"), key.0, of("protocol"));
                warnings.push(format!(
                    "{path}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{host_ip}}}"
                ));
            }
            let left = MAX_WARNINGS.saturating_sub(warnings.len());
            let asked = Port {
                key,
                host_port,
                host_ip,
            };
            for (what, other) in ports.meet(&asked, left) {
                warnings.push(format!("{path}: {what} port definition with {other}"));
            }
            ports.add(asked, path.clone());
            let name = object::string(port, &["name"]);
            if name.is_empty() {
                continue;
            }
            match named.get(name) {
                Some(other) => about_names.push(format!(
                    "{path}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                    quote(name)
                )),
                None => drop(named.insert(name, path)),
            }
        }
    }
    warnings.extend(about_names);
}

fn affinity_warnings(spec: &Value, path: &Path, warnings: &mut Vec<String>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    for field in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = present(spec, &["affinity", field]) else {
            continue;
        };
        let path = path.child(field);
        for (i, term) in object::list(pods, &[REQUIRED]).iter().enumerate() {
            if !is_set(term, &["labelSelector"]) {
                warnings.push(matches_nothing(&path.child(REQUIRED).index(i).child("labelSelector")));
            }
        }
        for (i, term) in object::list(pods, &[PREFERRED]).iter().enumerate() {
            if !is_set(term, &["podAffinityTerm", "labelSelector"]) {
                let path = path.child(PREFERRED).index(i).child("podAffinityTerm");
                warnings.push(matches_nothing(&path.child("labelSelector")));
            }
        }
    }
}

fn address_warnings(spec: &Value, path: &Path, warnings: &mut Vec<String>) {
    for (i, server) in object::list(spec, &["dnsConfig", "nameservers"]).iter().enumerate() {
        let path = path.child("dnsConfig").child("nameservers").index(i);
        warnings.extend(names::ip_warnings(&path, server.as_str().unwrap_or_default()));
    }
    for (i, alias) in object::list(spec, &["hostAliases"]).iter().enumerate() {
        let path = path.child("hostAliases").index(i).child("ip");
        warnings.extend(names::ip_warnings(&path, object::string(alias, &["ip"])));
    }
}
