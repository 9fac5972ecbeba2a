//! What is said in upstream's words, and what comes next.

use std::sync::Arc;

use expect_test::{Expect, expect};

use super::*;
use crate::kinds::Kinds;
use crate::namespace::observe::Left;

const NOW: &str = "2026-01-01T00:00:10Z";

fn found() -> Found {
    Found {
        namespace: json!({
            "metadata": {"name": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Terminating"},
        }),
        kinds: Ok(Arc::default()),
    }
}

fn swept(api_version: &str, resource: &str, left: Result<Left, &str>) -> Swept {
    Swept {
        served: Arc::new(crate::kinds::Served::sample(api_version, resource)),
        left: left.map_err(str::to_owned),
    }
}

fn left(objects: usize, finalizers: &[(&str, usize)], grace: i64) -> Result<Left, &'static str> {
    Ok(Left {
        objects,
        finalizers: finalizers
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect(),
        grace,
    })
}

fn check(found: &Found, swept: &[Swept], expected: Expect) {
    let plan = plan(found, swept, NOW.parse().unwrap());
    let mut text = format!("{:?}\n", plan.next);
    for condition in plan.conditions.iter().flat_map(|all| all.as_array().unwrap()) {
        let part = |field: &str| condition[field].as_str().unwrap();
        if part("status") == "True" {
            text.push_str(&format!("{} {}: {}\n", part("type"), part("reason"), part("message")));
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn an_empty_namespace_is_finalized_and_says_that_all_went_well() {
    check(&found(), &[], expect!["Finalize\n"]);
    let conditions = plan(&found(), &[], NOW.parse().unwrap()).conditions.unwrap();
    let shown: Vec<String> = conditions
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            format!(
                "{}={} {}: {}",
                one["type"], one["status"], one["reason"], one["message"]
            )
            .replace('"', "")
        })
        .collect();
    expect![[r#"
        [
            "NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization",
            "NamespaceContentRemaining=False ContentRemoved: All content successfully removed",
            "NamespaceFinalizersRemaining=False ContentRemoved: All content successfully removed",
        ]
    "#]]
    .assert_debug_eq(&shown);
}

#[test]
fn what_remains_is_named_with_what_it_waits_for() {
    let remaining = [
        swept("v1", "configmaps", left(2, &[("b", 1), ("a", 2)], 0)),
        swept("apps/v1", "deployments", left(1, &[("a", 1)], 0)),
        swept("v1", "secrets", left(0, &[], 0)),
    ];
    check(
        &found(),
        &remaining,
        expect![[r#"
            LookAgain(8s)
            NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances, deployments.apps has 1 resource instances
            NamespaceFinalizersRemaining SomeFinalizerRemain: Some finalizers are remaining: a in 3 resource instances, b in 1 resource instances
        "#]],
    );
}

#[test]
fn pods_have_their_grace_and_no_more() {
    check(
        &found(),
        &[swept("v1", "pods", left(1, &[], 30))],
        expect![[r#"
            LookAgain(16s)
            NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances
        "#]],
    );
    check(
        &found(),
        &[swept("v1", "pods", left(1, &[], 5))],
        expect![[r#"
            TryAgain
            NamespaceDeletionContentFailure ContentDeletionFailed: Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: ns for gvr: /v1, Resource=pods
            NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances
        "#]],
    );
}

#[test]
fn failures_of_discovery_and_deletion_are_told_and_tried_again() {
    let mut failing = found();
    let mut kinds = Kinds::default();
    kinds.failed = vec![("a.io/v1".to_owned(), "stale GroupVersion discovery: a.io/v1".to_owned())];
    failing.kinds = Ok(Arc::new(kinds));
    let remaining = [
        swept("v1", "secrets", Err("z failed")),
        swept("v1", "configmaps", Err("a failed")),
    ];
    check(
        &failing,
        &remaining,
        expect![[r#"
            TryAgain
            NamespaceDeletionDiscoveryFailure DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: a.io/v1: stale GroupVersion discovery: a.io/v1
            NamespaceDeletionContentFailure ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a failed, z failed
        "#]],
    );
}

#[test]
fn conditions_that_stay_the_same_are_not_written_again() {
    let mut again = found();
    let first = plan(&again, &[], "2026-01-01T00:00:01Z".parse().unwrap())
        .conditions
        .unwrap();
    again.namespace["status"]["conditions"] = first.clone();
    assert_eq!(plan(&again, &[], NOW.parse().unwrap()).conditions, None);
    let remaining = [swept("v1", "configmaps", left(1, &[("a", 1)], 0))];
    let changed = plan(&again, &remaining, NOW.parse().unwrap()).conditions.unwrap();
    assert_eq!(changed[3]["lastTransitionTime"], NOW);
    assert_eq!(changed[0], first[0], "what did not change keeps its time");
}
