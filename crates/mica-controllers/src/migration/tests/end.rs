//! Migrations that do not come to their end: given up, deleted under way, or with a copy that is not the same.

use std::sync::atomic::Ordering;

use mica_api::control_plane::{MigrationStep, Mode};

use super::super::plan::Wanted;
use super::super::{Residence, Rest};
use super::World;

const TO: Wanted = Wanted::At(Mode::Dedicated);
const BACK: Wanted = Wanted::At(Mode::Virtual);

/// A plane whose migration has been told to be this far.
async fn under_way(step: MigrationStep) -> World {
    let world = World::start().await;
    world.at(Mode::Virtual).await.furnish().await;
    world.want(TO);
    world.until("under way", |_| world.step() >= Some(step)).await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn given_up_before_the_switch_the_plane_stays_and_its_copy_goes() {
    for step in [
        MigrationStep::Provisioning,
        MigrationStep::Copying,
        MigrationStep::CatchingUp,
        MigrationStep::Switching,
    ] {
        let world = under_way(step).await;
        let here = world.at(Mode::Virtual).await;
        let before = here.content().await;
        world.want(BACK);
        world.restart_operator();
        assert!(
            matches!(
                world.settle().await,
                Residence::At {
                    mode: Mode::Virtual,
                    ..
                }
            ),
            "{step:?}"
        );
        assert_eq!(world.step(), Some(MigrationStep::Cancelled), "{step:?}");
        assert!(world.own.home().await.is_none(), "{step:?}");
        assert_eq!(here.content().await, before, "{step:?}");
        here.map("after").await.unwrap();
        assert_eq!(world.left().await.unwrap()["spec"]["state"], "Active");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_switch_the_way_back_is_a_migration() {
    for step in [MigrationStep::Draining, MigrationStep::Decommissioning] {
        let world = under_way(step).await;
        let there = world.at(Mode::Dedicated).await;
        there.map("made-there").await.unwrap();
        let before = there.content().await;
        world.want(BACK);
        world.restart_operator();
        world.settle().await;
        let report = world.reported().unwrap();
        assert_eq!(
            (report.step, report.to),
            (MigrationStep::Completed, Mode::Virtual),
            "{step:?}"
        );
        assert_eq!(world.at(Mode::Virtual).await.content().await, before, "{step:?}");
        assert!(world.own.home().await.is_none(), "{step:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_under_way_one_plane_is_left_to_delete() {
    for (step, end) in [
        (MigrationStep::Provisioning, Mode::Virtual),
        (MigrationStep::Copying, Mode::Virtual),
        (MigrationStep::Switching, Mode::Virtual),
        (MigrationStep::Draining, Mode::Dedicated),
        (MigrationStep::Completed, Mode::Dedicated),
    ] {
        let world = under_way(step).await;
        world.want(Wanted::Gone);
        world.restart_operator();
        let Residence::At { mode, .. } = world.settle().await else {
            panic!("one is left");
        };
        assert_eq!(mode, end, "{step:?}");
        match end {
            Mode::Virtual => assert!(world.own.home().await.is_none(), "{step:?}"),
            Mode::Dedicated => assert!(world.left().await.is_none(), "{step:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_differs_is_never_switched_to_and_is_made_again() {
    let world = World::start().await;
    let here = world.at(Mode::Virtual).await;
    here.furnish().await;
    world.own.tampers.store(true, Ordering::Relaxed);
    world.want(TO);
    let differs = |standing: &super::Standing| {
        let condition = standing.report.condition.as_ref();
        condition.is_some_and(|condition| condition.reason == "DigestsDiffer")
    };
    for round in 0..2 {
        let progress = world.until("found to differ", differs).await;
        assert!(matches!(
            progress.residence,
            Residence::At {
                mode: Mode::Virtual,
                ..
            }
        ));
        let condition = progress.report.condition.unwrap();
        assert!(condition.message.contains("is made again"), "{}", condition.message);
        // Writes go on, and the copy is gone.
        let left = world.left().await.unwrap();
        assert_eq!(left["spec"]["state"], "Active");
        here.map(&format!("between-{round}")).await.unwrap();
        world.until("tried again", |standing| !differs(standing)).await;
    }
    world.own.tampers.store(false, Ordering::Relaxed);
    let before = here.content().await;
    world.settle().await;
    assert_eq!(world.step(), Some(MigrationStep::Completed));
    assert_eq!(world.at(Mode::Dedicated).await.content().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_writes_wait_for_a_server_that_went_nobody_takes_the_plane_back() {
    let world = under_way(MigrationStep::Switching).await;
    // Killed after the fence, and the new server with it.
    let shared = world.at(Mode::Virtual).await;
    let fence = serde_json::json!({"spec": {"state": "Moving"}});
    shared.api.merge(super::PLANE, &fence).await.unwrap();
    world.own.silent.store(true, Ordering::Relaxed);
    for wanted in [TO, BACK] {
        world.want(wanted);
        world.restart_operator();
        let progress = world.advance().await.unwrap();
        let Residence::Held { message, .. } = progress.residence else {
            panic!("nobody knows where it is");
        };
        assert!(message.contains("writes wait for the server"), "{message}");
        assert!(matches!(progress.rest, Rest::After(_)));
        assert_eq!(world.left().await.unwrap()["spec"]["state"], "Moving");
    }
    world.own.silent.store(false, Ordering::Relaxed);
    assert!(matches!(
        world.settle().await,
        Residence::At {
            mode: Mode::Virtual,
            ..
        }
    ));
    shared.map("after").await.unwrap();
}
