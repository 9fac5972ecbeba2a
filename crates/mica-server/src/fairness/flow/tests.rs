//! Which schema takes which request, by what planes are born with and by rules of one's own.

use mica_machinery::kind::bootstrap;
use serde_json::json;

use super::*;

fn born() -> (Vec<Value>, Vec<Value>) {
    bootstrap::flow::objects("")
        .into_iter()
        .partition(|object| object["kind"] == "FlowSchema")
}

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..User::default()
    }
}

fn about<'a>(resource: &'a str, namespace: &'a str) -> What<'a> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (group, resource) = resource.split_once(':').unwrap_or(("", resource));
    What::Resource {
        group,
        resource,
        subresource,
        namespace,
    }
}

fn found(flows: &Flows, user: &User, verb: &str, what: What<'_>) -> String {
    let schema = &flows.schemas[flows.find(&Digest { user, verb, what })];
    format!("{} {}", schema.name, flows.levels.all[schema.level].name)
}

#[test]
fn requests_find_the_schemas_that_upstream_finds() {
    let (schemas, levels) = born();
    let flows = Flows::new(schemas.iter(), levels.iter());
    let any = "system:authenticated";
    let account = "system:serviceaccounts";
    let cases = [
        (
            user("root", &["system:masters", any]),
            "get",
            about("pods", "a"),
            "exempt exempt",
        ),
        (user("ann", &[any]), "get", What::Path("/healthz"), "probes exempt"),
        (user("ann", &[any]), "get", What::Path("/livez/etcd"), "probes exempt"),
        (
            user("ann", &[any]),
            "list",
            about("pods", ""),
            "global-default global-default",
        ),
        (
            user("system:anonymous", &["system:unauthenticated"]),
            "get",
            What::Path("/api"),
            "global-default global-default",
        ),
        (user("nobody", &[]), "get", What::Path("/api"), "catch-all catch-all"),
        (
            user("system:kube-controller-manager", &[any]),
            "update",
            about("coordination.k8s.io:leases", "kube-system"),
            "system-leader-election leader-election",
        ),
        (
            user("system:kube-controller-manager", &[any]),
            "update",
            about("pods", "kube-system"),
            "kube-controller-manager workload-high",
        ),
        (
            user("system:serviceaccount:kube-system:x", &[account, any]),
            "get",
            about("pods", ""),
            "kube-system-service-accounts workload-high",
        ),
        (
            user("system:serviceaccount:kube-systems:x", &[account, any]),
            "get",
            about("pods", ""),
            "service-accounts workload-low",
        ),
        (
            user("system:node:n", &["system:nodes", any]),
            "patch",
            about("nodes/status", ""),
            "system-node-high node-high",
        ),
        (
            user("system:node:n", &["system:nodes", any]),
            "get",
            about("pods", "a"),
            "system-nodes system",
        ),
    ];
    for (user, verb, what, wanted) in cases {
        assert_eq!(
            found(&flows, &user, verb, what),
            wanted,
            "{} {verb} {what:?}",
            user.name
        );
    }
}

fn schema(name: &str, level: &str, precedence: i64, rules: Value) -> Value {
    json!({
        "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "rules": rules},
    })
}

#[test]
fn precedence_then_name_decide_and_schemas_without_a_level_do_not_count() {
    let (mut schemas, levels) = born();
    let ann = json!([{
        "subjects": [{"kind": "User", "user": {"name": "ann"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}],
    }]);
    schemas.push(schema("b", "system", 50, ann.clone()));
    schemas.push(schema("a", "node-high", 50, ann.clone()));
    schemas.push(schema("first", "missing", 1, ann.clone()));
    let flows = Flows::new(schemas.iter(), levels.iter());
    let ann = user("ann", &["system:authenticated"]);
    assert_eq!(found(&flows, &ann, "get", about("pods", "x")), "a node-high");
    // Not clusterScope: what is in no namespace goes elsewhere.
    assert_eq!(
        found(&flows, &ann, "get", about("nodes", "")),
        "global-default global-default"
    );
}

#[test]
fn what_must_be_there_is_there_without_being_stored() {
    let flows = Flows::new(std::iter::empty(), std::iter::empty());
    let anybody = user("ann", &["system:authenticated"]);
    assert_eq!(
        found(&flows, &anybody, "get", about("pods", "x")),
        "catch-all catch-all"
    );
    let master = user("root", &["system:masters"]);
    assert_eq!(found(&flows, &master, "get", about("pods", "x")), "exempt exempt");
}

#[test]
fn subresources_are_named_with_their_resource() {
    let names = Names::Some(vec!["pods".into(), "nodes/status".into()]);
    assert!(names.has_part("pods", "") && !names.has_part("pods", "log"));
    assert!(names.has_part("nodes", "status") && !names.has_part("nodes", ""));
}

#[test]
fn paths_cover_what_is_below_them() {
    let cases = [
        ("*", "/x", true),
        ("/healthz", "/healthz", true),
        ("/healthz", "/healthz/etcd", true),
        ("/healthz", "/healthzz", false),
        ("/api/*", "/api/v1", true),
        ("/api/*", "/api", false),
        ("/apis*", "/apis/x", true),
    ];
    for (rule, path, wanted) in cases {
        assert_eq!(covers(rule, path), wanted, "{rule} {path}");
    }
}

#[test]
fn flows_are_told_apart_as_their_schema_says() {
    let (schemas, levels) = born();
    let flows = Flows::new(schemas.iter(), levels.iter());
    let flow = |user: &User, namespace| {
        let digest = Digest {
            user,
            verb: "get",
            what: about("pods", namespace),
        };
        flows.schemas[flows.find(&digest)].flow(&digest)
    };
    let (ann, bob) = (
        user("ann", &["system:authenticated"]),
        user("bob", &["system:authenticated"]),
    );
    assert_ne!(flow(&ann, "a"), flow(&bob, "a"));
    assert_eq!(flow(&ann, "a"), flow(&ann, "b"));
    let scheduler = user("system:kube-scheduler", &["system:authenticated"]);
    assert_ne!(flow(&scheduler, "a"), flow(&scheduler, "b"));
}
