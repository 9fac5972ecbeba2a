//! ResourceQuotas: what an object counts for, and whether its namespace has that left.
//!
//! What a quota allows and what is used of it is its status's to say, as with upstream; who keeps the status true is not
//! decided here. A charge is a function of the quotas as they are read: whoever stores the object stores the new use along,
//! and starts over if a quota has changed meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::device;
use super::limit::{Amounts, add, amounts, pod_amounts};
use super::request::Operation;
use crate::object;
use crate::quantity::{Format, Quantity};
use crate::select::{Operator, Requirement};

/// A write that may count.
#[derive(Clone, Copy, Debug)]
pub struct Charged<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub operation: Operation,
    pub object: &'a Value,
    pub old: Option<&'a Value>,
    pub now: Timestamp,
}

/// Which rules count an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    Pod,
    Service,
    Claim,
    Devices,
    Object,
}

const POD_RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// What every container must say if a quota limits it.
const SAID_BY_CONTAINERS: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];
const SERVICE_RESOURCES: [&str; 4] = [
    "count/services",
    "services",
    "services.nodeports",
    "services.loadbalancers",
];
const CLAIM_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
const CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const ALIASED: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];

impl<'a> Charged<'a> {
    /// An object as if it were new.
    fn create(group: &'a str, resource: &'a str, object: &'a Value, now: Timestamp) -> Self {
        Self {
            group,
            resource,
            subresource: "",
            operation: Operation::Create,
            object,
            old: None,
            now,
        }
    }
}

impl Charged<'_> {
    /// Whether the write can count at all.
    pub fn counts(&self) -> bool {
        let ignored = matches!(
            (self.group, self.resource),
            ("" | "events.k8s.io", "events")
                | ("", "bindings" | "componentstatuses")
                | ("authentication.k8s.io" | "authorization.k8s.io", _)
        );
        !ignored && self.is_handled()
    }

    fn counted(&self) -> Counted {
        match (self.group, self.resource) {
            ("", "pods") => Counted::Pod,
            ("", "services") => Counted::Service,
            ("", "persistentvolumeclaims") => Counted::Claim,
            ("resource.k8s.io", "resourceclaims") => Counted::Devices,
            _ => Counted::Object,
        }
    }

    fn is_handled(&self) -> bool {
        let (creates, updates) = (self.operation == Operation::Create, self.operation == Operation::Update);
        match (self.counted(), self.subresource) {
            (Counted::Pod, "") => {
                creates || (updates && self.old.is_some_and(|old| terminates(old) != terminates(self.object)))
            }
            (Counted::Pod, "resize") => updates,
            (Counted::Service | Counted::Devices, "") => creates || updates,
            (Counted::Claim, "" | "status") => creates || updates,
            (Counted::Object, "") => creates,
            _ => false,
        }
    }

    /// What an object counts for.
    fn usage(&self, object: &Value) -> Amounts {
        match self.counted() {
            Counted::Pod => pod_usage(object, self.now),
            Counted::Service => service_usage(object),
            Counted::Claim => claim_usage(object),
            Counted::Devices => device::usage(object),
            Counted::Object => {
                let mut usage = Amounts::from([(self.count_name(), count(1))]);
                if self.group.is_empty() && ALIASED.contains(&self.resource) {
                    usage.insert(self.resource.to_owned(), count(1));
                }
                usage
            }
        }
    }

    fn count_name(&self) -> String {
        match self.group {
            "" => format!("count/{}", self.resource),
            group => format!("count/{}.{group}", self.resource),
        }
    }

    /// Whether a quota's resource is one that the object may count for.
    fn concerns(&self, name: &str) -> bool {
        match self.counted() {
            Counted::Pod => {
                POD_RESOURCES.contains(&name)
                    || name.starts_with("hugepages-")
                    || name.starts_with("requests.hugepages-")
                    || name
                        .strip_prefix("requests.")
                        .is_some_and(|rest| rest.contains('/') && !rest.contains("kubernetes.io/"))
            }
            Counted::Service => SERVICE_RESOURCES.contains(&name),
            Counted::Devices => name == device::CLAIMS || name.ends_with(device::DEVICES),
            Counted::Claim => {
                name == "count/persistentvolumeclaims"
                    || CLAIM_RESOURCES.contains(&name)
                    || CLAIM_RESOURCES
                        .iter()
                        .any(|one| name.ends_with(&format!("{CLASS_SUFFIX}{one}")))
            }
            Counted::Object => {
                name == self.count_name() || (self.group.is_empty() && ALIASED.contains(&name) && name == self.resource)
            }
        }
    }

    /// Whether a quota is about the object: it limits something of it, and its scopes hold.
    fn matches(&self, quota: &Value, object: &Value) -> bool {
        let limits = hard(quota).keys().any(|name| self.concerns(name));
        limits && scopes(quota).iter().all(|scope| self.in_scope(scope, object))
    }

    fn in_scope(&self, scope: &Scope<'_>, object: &Value) -> bool {
        match (self.counted(), scope.name) {
            (Counted::Pod, "Terminating") => terminates(object),
            (Counted::Pod, "NotTerminating") => !terminates(object),
            (Counted::Pod, "BestEffort") => is_best_effort(object),
            (Counted::Pod, "NotBestEffort") => !is_best_effort(object),
            (Counted::Pod, "PriorityClass") => {
                let class = object::string(object, &["spec", "priorityClassName"]);
                scope.selects(class)
            }
            (Counted::Pod, "CrossNamespacePodAffinity") => crosses_namespaces(object),
            (Counted::Claim, "VolumeAttributesClass") => {
                let classes = [
                    &["spec", "volumeAttributesClassName"][..],
                    &["status", "currentVolumeAttributesClassName"],
                    &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
                ];
                let mut named = classes
                    .iter()
                    .map(|path| object::string(object, path))
                    .filter(|name| !name.is_empty());
                match named.clone().next() {
                    None => scope.selects(""),
                    Some(_) => named.any(|name| scope.selects(name)),
                }
            }
            _ => false,
        }
    }

    /// What is used of each quota after the write; `None` for those that it does not change. The error is why it may not be.
    pub fn charge(&self, quotas: &[Value]) -> Result<Vec<Option<Amounts>>, String> {
        let mut concerned = Vec::new();
        for (at, quota) in quotas.iter().enumerate() {
            if !self.matches(quota, self.object) {
                continue;
            }
            let hard = hard(quota);
            let restricted: Vec<&str> = hard
                .keys()
                .map(String::as_str)
                .filter(|name| self.concerns(name))
                .collect();
            if let Some(missing) = self.unsaid(&restricted) {
                return Err(format!("failed quota: {}: {missing}", object::name(quota)));
            }
            let used = used(quota);
            if restricted.iter().any(|name| !used.contains_key(*name)) {
                let names = restricted.join(",");
                return Err(format!(
                    "status unknown for quota: {}, resources: {names}",
                    object::name(quota)
                ));
            }
            concerned.push(at);
        }
        let usage = self.usage(self.object);
        let negative: Vec<&str> = usage
            .iter()
            .filter(|(_, amount)| amount.signum() < 0)
            .map(|(name, _)| name.as_str())
            .collect();
        if !negative.is_empty() {
            return Err(format!(
                "quota usage is negative for resource(s): {}",
                negative.join(",")
            ));
        }
        let mut changes = vec![None; quotas.len()];
        for at in concerned {
            changes[at] = self.charge_one(&quotas[at], &usage)?;
        }
        Ok(changes)
    }

    fn charge_one(&self, quota: &Value, usage: &Amounts) -> Result<Option<Amounts>, String> {
        let delta = match self.old.filter(|_| self.operation == Operation::Update) {
            Some(old) if self.matches(quota, old) => {
                let before = self.usage(old);
                let more = usage.iter().map(|(name, amount)| {
                    let more = before
                        .get(name)
                        .map_or_else(|| amount.clone(), |held| amount.minus(held));
                    (name.clone(), more)
                });
                more.filter(|(_, more)| more.signum() > 0).collect()
            }
            _ => usage.clone(),
        };
        let (hard, used) = (hard(quota), used(quota));
        let requested: Amounts = delta
            .into_iter()
            .filter(|(name, amount)| !amount.is_zero() && hard.contains_key(name))
            .collect();
        if requested.is_empty() {
            return Ok(None);
        }
        let mut after = used.clone();
        add(&mut after, &requested);
        let exceeded: Vec<&String> = requested.keys().filter(|name| after[*name] > hard[*name]).collect();
        if !exceeded.is_empty() && self.subresource != "status" {
            let shown = |amounts: &Amounts| {
                let parts = exceeded
                    .iter()
                    .filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?)));
                parts.collect::<Vec<_>>().join(",")
            };
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                object::name(quota),
                shown(&requested),
                shown(&used),
                shown(&hard)
            ));
        }
        Ok(Some(after))
    }

    /// What containers must say and do not.
    fn unsaid(&self, restricted: &[&str]) -> Option<String> {
        if self.counted() != Counted::Pod {
            return None;
        }
        let whole = |of: &str| !amounts(self.object, &["spec", "resources", of]).is_empty();
        if whole("requests") || whole("limits") {
            return None;
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for list in ["containers", "initContainers"] {
            for container in object::list(self.object, &["spec", list]) {
                let of = |field| amounts(container, &["resources", field]);
                let said = compute(&of("requests"), &of("limits"));
                let wanted = restricted.iter().filter(|name| SAID_BY_CONTAINERS.contains(name));
                for name in wanted.filter(|name| !said.contains_key(**name)) {
                    missing
                        .entry(name)
                        .or_default()
                        .insert(object::string(container, &["name"]));
                }
            }
        }
        let parts: Vec<String> = missing
            .into_iter()
            .map(|(name, containers)| {
                let containers: Vec<&str> = containers.into_iter().collect();
                format!("{name} for: {}", containers.join(","))
            })
            .collect();
        (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
    }
}

/// The group and resource whose objects count for a name that a quota limits; `None` for names that nothing counts for.
pub fn counted_by(name: &str) -> Option<(&str, &str)> {
    if let Some(counted) = name.strip_prefix("count/") {
        return Some(match counted.split_once('.') {
            None => ("", counted),
            Some((resource, group)) => (group, resource),
        });
    }
    let object = Value::Null;
    let of = |(group, resource)| {
        let charged = Charged::create(group, resource, &object, Timestamp::UNIX_EPOCH);
        charged.concerns(name).then_some((group, resource))
    };
    let special = [
        ("", "pods"),
        ("", "services"),
        ("", "persistentvolumeclaims"),
        ("resource.k8s.io", "resourceclaims"),
    ];
    let aliased = ALIASED.map(|resource| ("", resource));
    special.into_iter().chain(aliased).find_map(of)
}

/// Whether every object of a resource counts for one and nothing else, so that counting them is enough.
pub fn is_plain(group: &str, resource: &str) -> bool {
    let object = Value::Null;
    Charged::create(group, resource, &object, Timestamp::UNIX_EPOCH).counted() == Counted::Object
}

/// Whether a quota is about some objects only.
pub fn is_scoped(quota: &Value) -> bool {
    !scopes(quota).is_empty()
}

/// What objects of a resource use of what a quota's spec limits.
pub fn used_by(quota: &Value, group: &str, resource: &str, objects: &[Value], now: Timestamp) -> Amounts {
    let nothing = Value::Null;
    let charged = |object| Charged::create(group, resource, object, now);
    let scopes = scopes(quota);
    let mut sum = Amounts::new();
    for object in objects {
        let charged = charged(object);
        if scopes.iter().all(|scope| charged.in_scope(scope, object)) {
            add(&mut sum, &charged.usage(object));
        }
    }
    let limited = amounts(quota, &["spec", "hard"]).into_keys();
    let concerned = limited.filter(|name| charged(&nothing).concerns(name));
    concerned
        .map(|name| {
            let used = sum.remove(&name).unwrap_or_else(|| count(0));
            (name, used)
        })
        .collect()
}

pub(super) fn count(number: i64) -> Quantity {
    Quantity::new(number, Format::DecimalSi)
}

fn hard(quota: &Value) -> Amounts {
    amounts(quota, &["status", "hard"])
}

fn used(quota: &Value) -> Amounts {
    amounts(quota, &["status", "used"])
}

/// One scope of a quota.
struct Scope<'a> {
    name: &'a str,
    /// `None`: it only has to be there.
    requirement: Option<Requirement>,
}

impl Scope<'_> {
    fn selects(&self, value: &str) -> bool {
        let Some(requirement) = &self.requirement else {
            return !value.is_empty();
        };
        let mut labels = serde_json::Map::new();
        if !value.is_empty() {
            labels.insert(self.name.to_owned(), value.into());
        }
        requirement.matches(&labels)
    }
}

fn scopes(quota: &Value) -> Vec<Scope<'_>> {
    let named = object::list(quota, &["spec", "scopes"])
        .iter()
        .filter_map(Value::as_str);
    let named = named.map(|name| Scope {
        name,
        requirement: None,
    });
    let selected = object::list(quota, &["spec", "scopeSelector", "matchExpressions"]).iter();
    let selected = selected.map(|one| {
        let name = object::string(one, &["scopeName"]);
        let values = object::list(one, &["values"])
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned);
        let operator = match object::string(one, &["operator"]) {
            "In" => Some(Operator::In),
            "NotIn" => Some(Operator::NotIn),
            "DoesNotExist" => Some(Operator::DoesNotExist),
            _ => None,
        };
        Scope {
            name,
            requirement: operator.and_then(|operator| Requirement::new(name, operator, values.collect()).ok()),
        }
    });
    named.chain(selected).collect()
}

fn terminates(pod: &Value) -> bool {
    object::int(pod, &["spec", "activeDeadlineSeconds"]).is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    let says = |of: &Value| {
        let amounts = ["requests", "limits"].map(|field| amounts(of, &["resources", field]));
        let mut all = amounts.iter().flatten();
        all.any(|(name, amount)| ["cpu", "memory"].contains(&name.as_str()) && !amount.is_zero())
    };
    let mut containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| object::list(pod, &["spec", list]));
    let null = Value::Null;
    !containers.any(says) && !says(pod.get("spec").unwrap_or(&null))
}

fn crosses_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        !object::list(term, &["namespaces"]).is_empty()
            || object::get(term, &["namespaceSelector"]).is_some_and(Value::is_object)
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let of = |when| object::list(pod, &["spec", "affinity", kind, when]).iter();
        let required = of("requiredDuringSchedulingIgnoredDuringExecution").any(crosses);
        let mut preferred = of("preferredDuringSchedulingIgnoredDuringExecution");
        required || preferred.any(|term| term.get("podAffinityTerm").is_some_and(crosses))
    })
}

/// Whether a pod still runs or will.
fn lives(pod: &Value, now: Timestamp) -> bool {
    if ["Failed", "Succeeded"].contains(&object::string(pod, &["status", "phase"])) {
        return false;
    }
    let grace = object::int(pod, &["metadata", "deletionGracePeriodSeconds"]);
    let marked: Option<Timestamp> = object::string(pod, &["metadata", "deletionTimestamp"]).parse().ok();
    match (marked, grace) {
        (Some(marked), Some(grace)) => now <= marked + jiff::SignedDuration::from_secs(grace),
        _ => true,
    }
}

fn pod_usage(pod: &Value, now: Timestamp) -> Amounts {
    let mut usage = Amounts::from([("count/pods".to_owned(), count(1))]);
    if !lives(pod, now) {
        return usage;
    }
    let (mut requests, mut limits) = (pod_amounts(pod, "requests"), pod_amounts(pod, "limits"));
    let overhead = amounts(pod, &["spec", "overhead"]);
    add(&mut requests, &overhead);
    let known: Amounts = overhead
        .into_iter()
        .filter(|(name, _)| limits.contains_key(name))
        .collect();
    add(&mut limits, &known);
    add(&mut usage, &compute(&requests, &limits));
    usage
}

/// Requests and limits by the names that quotas have for them.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_owned(), count(1))]);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            usage.insert(name.to_owned(), request.clone());
            usage.insert(format!("requests.{name}"), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            usage.insert(format!("limits.{name}"), limit.clone());
        }
    }
    for (name, request) in requests {
        let huge = name.starts_with("hugepages-");
        if huge {
            usage.insert(name.clone(), request.clone());
        }
        if huge || (name.contains('/') && !name.contains("kubernetes.io/")) {
            usage.insert(format!("requests.{name}"), request.clone());
        }
    }
    usage
}

fn service_usage(service: &Value) -> Amounts {
    let ports = object::list(service, &["spec", "ports"]);
    let with_port = |port: &&Value| object::int(port, &["nodePort"]).is_some_and(|port| port != 0);
    let own_ports = object::get(service, &["spec", "allocateLoadBalancerNodePorts"]) == Some(&Value::Bool(false));
    let (node_ports, balancers) = match object::string(service, &["spec", "type"]) {
        "NodePort" => (ports.len(), 0),
        "LoadBalancer" if own_ports => (ports.iter().filter(with_port).count(), 1),
        "LoadBalancer" => (ports.len(), 1),
        _ => (0, 0),
    };
    Amounts::from([
        ("count/services".to_owned(), count(1)),
        ("services".to_owned(), count(1)),
        (
            "services.nodeports".to_owned(),
            count(i64::try_from(node_ports).unwrap_or(i64::MAX)),
        ),
        ("services.loadbalancers".to_owned(), count(balancers)),
    ])
}

fn claim_usage(claim: &Value) -> Amounts {
    const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    let mut usage = Amounts::from([
        ("persistentvolumeclaims".to_owned(), count(1)),
        ("count/persistentvolumeclaims".to_owned(), count(1)),
    ]);
    let class = match object::string(claim, &["metadata", "annotations", OLD_CLASS]) {
        "" => object::string(claim, &["spec", "storageClassName"]),
        old => old,
    };
    let mut storage = amounts(claim, &["spec", "resources", "requests"]).remove("storage");
    let allocated = amounts(claim, &["status", "allocatedResources"]).remove("storage");
    if let (Some(asked), Some(allocated)) = (&storage, allocated)
        && allocated > *asked
    {
        storage = Some(allocated);
    }
    if !class.is_empty() {
        usage.insert(format!("{class}{CLASS_SUFFIX}persistentvolumeclaims"), count(1));
    }
    if let Some(storage) = storage {
        if !class.is_empty() {
            usage.insert(format!("{class}{CLASS_SUFFIX}requests.storage"), storage.clone());
        }
        usage.insert("requests.storage".to_owned(), storage);
    }
    usage
}
