//! The table itself: it agrees with the facts, with discovery's order and with itself.

use super::super::{NameUse, PRIORITIES, Scope, resources};
use super::*;

#[test]
fn every_kind_is_in_the_fact_table() {
    for one in resources() {
        assert!(facts().kind(one.group, one.version, one.kind).is_some(), "{one:?}");
        for subresource in one.subresources {
            let (group, version, kind) = subresource.kind.unwrap_or((one.group, one.version, one.kind));
            assert!(facts().kind(group, version, kind).is_some(), "{one:?} {subresource:?}");
        }
    }
}

#[test]
fn resources_stand_in_the_order_of_discovery() {
    let place = |one: &Resource| {
        let group = PRIORITIES
            .iter()
            .position(|(group, version, ..)| (*group, *version) == (one.group, one.version));
        (group.expect("a group with a priority"), one.plural)
    };
    assert!(resources().is_sorted_by_key(place));
    // Groups of one priority stand by name.
    let priorities: Vec<_> = PRIORITIES
        .iter()
        .map(|(name, _, group, version)| (-group, name, -version))
        .collect();
    assert!(priorities.is_sorted());
    assert!(resources().iter().all(|one| one.verbs.is_sorted()));
    assert!(
        resources()
            .iter()
            .all(|one| one.subresources.is_sorted_by_key(|sub| sub.name))
    );
}

#[test]
fn every_row_has_a_cell_for_each_column() {
    let now = NOW.parse().expect("a time");
    for one in resources().iter().filter(|one| one.verbs.contains(&"list")) {
        let cells = one.strategy.cells(&json!({"metadata": {"name": "a"}}), now);
        // Upstream gives addresses an age that it has no column for.
        let beyond = usize::from(one.plural == "ipaddresses");
        assert_eq!(cells.len(), one.strategy.columns().len() + beyond, "{one:?}");
    }
}

#[test]
fn kinds_that_are_only_created_are_no_tables() {
    for one in resources().iter().filter(|one| one.verbs == ["create"]) {
        assert!(one.strategy.columns().is_empty(), "{one:?}");
    }
}

#[test]
fn field_selectors_take_the_labels_that_objects_have() {
    for one in resources() {
        let object = json!({"metadata": {"name": "a"}});
        let labels: Vec<&str> = one
            .strategy
            .selectable(&object)
            .iter()
            .map(|(label, _)| *label)
            .collect();
        assert_eq!(labels, one.strategy.selectable_labels());
        assert!(labels.iter().all(|label| one.strategy.selector_error(label).is_none()));
        assert!(one.strategy.selector_error("metadata.name").is_none());
        assert!(one.strategy.selector_error("nonsense").is_some());
    }
    let error = |plural: &str, label: &str| resource(plural).strategy.selector_error(label).unwrap_or_default();
    assert_eq!(
        error("configmaps", "data"),
        r#""data" is not a known field selector: only "metadata.name", "metadata.namespace""#
    );
    assert_eq!(error("secrets", "data"), "field label not supported: data");
    assert_eq!(
        error("namespaces", "metadata.namespace"),
        "field label not supported: metadata.namespace"
    );
    assert_eq!(
        error("events.events.k8s.io", "involvedObject.name"),
        "field label not supported: involvedObject.name"
    );
    assert_eq!(error("events.events.k8s.io", "regarding.name"), "");
}

#[test]
fn an_empty_object_is_handled_by_every_kind() {
    for one in resources() {
        let mut object = json!({});
        let context = context(one, "", &[]);
        one.strategy.default(&mut object);
        one.strategy.prepare_create(&context, &mut object);
        one.strategy.validate(&context, &object);
        for subresource in one.subresources.iter().map(|sub| sub.name).chain([""]) {
            let context = super::context(one, subresource, &[]);
            let mut new = object.clone();
            one.strategy.prepare_update(&context, &mut new, &object);
            one.strategy.validate_update(&context, &new, &object);
        }
        one.strategy.canonicalize(&mut object);
    }
}

#[test]
fn names_follow_the_kinds_rule() {
    let errors = |plural: &str, name: &str| resource(plural).strategy.name_errors(name, NameUse::Name).len();
    assert_eq!([errors("configmaps", "a.b"), errors("namespaces", "a.b")], [0, 1]);
    assert_eq!([errors("roles", "system:X"), errors("roles", "a/b")], [0, 1]);
    assert_eq!(errors("events", "A_b"), 0);
    assert_eq!(errors("events.events.k8s.io", "A_b"), 1);
}

#[test]
fn namespaces_cannot_be_deleted_together() {
    let namespaces = resource("namespaces");
    assert!(!namespaces.verbs.contains(&"deletecollection"));
    assert_eq!(namespaces.scope, Scope::Cluster);
}
