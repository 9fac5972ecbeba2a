//! The flow schemas and priority levels of a new plane: those upstream cannot do without, and those it suggests.

use std::sync::LazyLock;

use serde_json::{Value, json};

const EVERYBODY: &[&str] = &["Group system:unauthenticated", "Group system:authenticated"];
const LEADERS: &[&str] = &[
    "User system:kube-controller-manager",
    "User system:kube-scheduler",
    "ServiceAccount kube-system/*",
];
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// Kinds and names whose spec never changes.
const MANDATORY: [&str; 2] = ["catch-all", "exempt"];

static MANDATORY_OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let is_mandatory = |object: &Value| MANDATORY.contains(&crate::object::name(object));
    levels().into_iter().chain(schemas("")).filter(is_mandatory).collect()
});

/// All priority levels and flow schemas. `created` is the time of the schemas' only condition.
pub fn objects(created: &str) -> Vec<Value> {
    let mut objects = levels();
    objects.extend(schemas(created));
    objects
}

/// The object of this kind and name that must stay as it is, if there is one.
pub fn mandatory(kind: &str, name: &str) -> Option<&'static Value> {
    MANDATORY_OBJECTS
        .iter()
        .find(|object| object["kind"] == kind && crate::object::name(object) == name)
}

fn levels() -> Vec<Value> {
    let queue = |queues, hand| json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}});
    vec![
        limited("catch-all", 5, 0, json!({"type": "Reject"})),
        level(
            "exempt",
            json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
        ),
        limited("global-default", 20, 50, queue(128, 6)),
        limited("leader-election", 10, 0, queue(16, 4)),
        limited("node-high", 40, 25, queue(64, 6)),
        limited("system", 30, 33, queue(64, 6)),
        limited("workload-high", 40, 50, queue(128, 6)),
        limited("workload-low", 100, 90, queue(128, 6)),
    ]
}

fn limited(name: &str, shares: i32, lendable: i32, response: Value) -> Value {
    let limited = json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
    level(name, json!({"type": "Limited", "limited": limited}))
}

fn level(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name, "generation": 1, "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec,
        "status": {},
    })
}

/// A schema: its name, level, precedence, how flows are told apart, whose requests, and which.
struct Schema<'a>(&'a str, &'a str, i32, Option<&'a str>, &'a [&'a str], Requests);

/// Which requests a schema takes.
enum Requests {
    All,
    Health,
    Leases,
    Nodes,
}

fn schemas(created: &str) -> Vec<Value> {
    let (by_user, by_namespace) = (Some("ByUser"), Some("ByNamespace"));
    [
        Schema("catch-all", "catch-all", 10_000, by_user, EVERYBODY, Requests::All),
        Schema("exempt", "exempt", 1, None, &["Group system:masters"], Requests::All),
        Schema(
            "global-default",
            "global-default",
            9900,
            by_user,
            EVERYBODY,
            Requests::All,
        ),
        Schema(
            "kube-controller-manager",
            "workload-high",
            800,
            by_namespace,
            &LEADERS[..1],
            Requests::All,
        ),
        Schema(
            "kube-scheduler",
            "workload-high",
            800,
            by_namespace,
            &LEADERS[1..2],
            Requests::All,
        ),
        Schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            by_namespace,
            &LEADERS[2..],
            Requests::All,
        ),
        Schema("probes", "exempt", 2, None, EVERYBODY, Requests::Health),
        Schema(
            "service-accounts",
            "workload-low",
            9000,
            by_user,
            &["Group system:serviceaccounts"],
            Requests::All,
        ),
        Schema(
            "system-leader-election",
            "leader-election",
            100,
            by_user,
            LEADERS,
            Requests::Leases,
        ),
        Schema(
            "system-node-high",
            "node-high",
            400,
            by_user,
            &["Group system:nodes"],
            Requests::Nodes,
        ),
        Schema(
            "system-nodes",
            "system",
            500,
            by_user,
            &["Group system:nodes"],
            Requests::All,
        ),
    ]
    .iter()
    .map(|one| schema(one, created))
    .collect()
}

fn schema(Schema(name, level, precedence, distinguisher, subjects, requests): &Schema<'_>, created: &str) -> Value {
    let subjects: Vec<Value> = subjects.iter().map(|subject| parse_subject(subject)).collect();
    let mut rule = rules(requests);
    rule["subjects"] = subjects.into();
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    });
    if let Some(method) = distinguisher {
        spec["distinguisherMethod"] = json!({"type": method});
    }
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\" and it exists");
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name, "generation": 1, "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec,
        "status": {"conditions": [{
            "type": "Dangling",
            "status": "False",
            "lastTransitionTime": created,
            "reason": "Found",
            "message": message,
        }]},
    })
}

fn parse_subject(text: &str) -> Value {
    let (kind, name) = text.split_once(' ').expect("a subject has a kind and a name");
    match kind {
        "User" => json!({"kind": kind, "user": {"name": name}}),
        "Group" => json!({"kind": kind, "group": {"name": name}}),
        _ => {
            let (namespace, name) = name.split_once('/').expect("a service account has a namespace");
            json!({"kind": kind, "serviceAccount": {"namespace": namespace, "name": name}})
        }
    }
}

fn rules(requests: &Requests) -> Value {
    let leases = |verbs: Value| json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
    let any = |groups: Value, resources: Value| json!({"verbs": ["*"], "apiGroups": groups, "resources": resources, "clusterScope": true, "namespaces": ["*"]});
    match requests {
        Requests::All => json!({
            "resourceRules": [any(json!(["*"]), json!(["*"]))],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
        Requests::Health => json!({
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
        }),
        Requests::Leases => json!({"resourceRules": [leases(json!(["get", "create", "update"]))]}),
        Requests::Nodes => json!({
            "resourceRules": [any(json!([""]), json!(["nodes", "nodes/status"])), leases(json!(["*"]))],
        }),
    }
}
