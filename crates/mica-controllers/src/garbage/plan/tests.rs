//! What becomes of an object, by what becomes of its owners and dependents.

use super::*;
use crate::meta::{Meta, Object, Owner, What};
use crate::place::Place;

fn object(meta: Meta) -> Object {
    Object {
        place: Place::root(),
        what: What {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            resource: "configmaps".into(),
        },
        meta: Meta {
            name: "it".into(),
            uid: "it".into(),
            ..meta
        },
    }
}

fn owner(uid: &str, blocks: bool) -> Owner {
    Owner {
        uid: uid.into(),
        block_owner_deletion: Some(blocks),
        ..Owner::default()
    }
}

fn going(finalizers: &[&str]) -> Meta {
    Meta {
        deletion_timestamp: Some("2026-01-01T00:00:00Z".into()),
        finalizers: finalizers.iter().map(|one| (*one).into()).collect(),
        ..Meta::default()
    }
}

fn dependent(blocks: bool, meta: Meta) -> Object {
    object(Meta {
        owner_references: vec![owner("it", blocks)],
        ..meta
    })
}

fn check(meta: Meta, owners: &[(&str, State)], dependents: Vec<Object>, expected: Plan) {
    let found = Found {
        latest: object(meta),
        owners: owners.iter().map(|(uid, state)| (owner(uid, true), *state)).collect(),
        dependents,
    };
    assert_eq!(plan(&found), expected, "{found:?}");
}

use State::{Absent, AwaitsDependents, Impossible, Solid};

#[test]
fn an_object_goes_when_none_of_its_owners_is_there() {
    check(Meta::default(), &[], vec![], Plan::Nothing);
    check(Meta::default(), &[("a", Solid)], vec![], Plan::Nothing);
    check(
        Meta::default(),
        &[("a", Absent)],
        vec![],
        Plan::Delete(Propagation::Background),
    );
    check(
        Meta::default(),
        &[("a", Absent), ("b", Absent)],
        vec![],
        Plan::Delete(Propagation::Background),
    );
    check(going(&["x"]), &[], vec![], Plan::Nothing);
}

#[test]
fn a_second_owner_saves_it_and_the_lost_ones_are_taken_off() {
    check(
        Meta::default(),
        &[("a", Absent), ("b", Solid)],
        vec![],
        Plan::Disown(vec!["a".into()]),
    );
    check(
        Meta::default(),
        &[("a", AwaitsDependents), ("b", Solid), ("c", Absent)],
        vec![],
        Plan::Disown(vec!["a".into(), "c".into()]),
    );
}

#[test]
fn an_owner_of_a_kind_that_cannot_own_it_leaves_it_alone() {
    check(
        Meta::default(),
        &[("a", Impossible), ("b", Absent)],
        vec![],
        Plan::Nothing,
    );
}

#[test]
fn what_it_asked_for_its_own_dependents_counts() {
    let with = |finalizer: &str| Meta {
        finalizers: vec![finalizer.into()],
        ..Meta::default()
    };
    check(
        with(ORPHAN),
        &[("a", Absent)],
        vec![],
        Plan::Delete(Propagation::Orphan),
    );
    check(
        with(FOREGROUND),
        &[("a", Absent)],
        vec![],
        Plan::Delete(Propagation::Foreground),
    );
    check(
        with("other"),
        &[("a", Absent)],
        vec![],
        Plan::Delete(Propagation::Background),
    );
}

#[test]
fn a_dependent_of_what_goes_in_the_foreground_goes_after_its_own() {
    let waits = &[("a", AwaitsDependents)];
    check(Meta::default(), waits, vec![], Plan::Delete(Propagation::Background));
    check(
        Meta::default(),
        waits,
        vec![dependent(true, Meta::default())],
        Plan::Delete(Propagation::Foreground),
    );
    check(
        Meta::default(),
        waits,
        vec![dependent(true, going(&[FOREGROUND]))],
        Plan::Unblock,
    );
}

#[test]
fn an_owner_in_the_foreground_waits_for_those_that_block_it() {
    let owner = || going(&[FOREGROUND]);
    check(owner(), &[], vec![], Plan::Release(FOREGROUND));
    check(
        owner(),
        &[],
        vec![dependent(false, Meta::default())],
        Plan::Release(FOREGROUND),
    );
    let both = vec![dependent(false, Meta::default()), dependent(true, going(&["x"]))];
    check(owner(), &[], both, Plan::Await(vec![0, 1]));
}

#[test]
fn an_owner_that_orphans_lets_all_go_first() {
    let owner = || going(&[ORPHAN, "x"]);
    check(
        owner(),
        &[],
        vec![dependent(true, Meta::default())],
        Plan::Orphan(vec![0]),
    );
    check(owner(), &[], vec![], Plan::Release(ORPHAN));
}
