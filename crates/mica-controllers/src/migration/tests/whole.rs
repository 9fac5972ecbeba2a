//! A plane goes to a server of its own, and comes back.

use futures::StreamExt as _;
use mica_api::control_plane::{MigrationStep, Mode};
use serde_json::json;

use super::super::plan::Wanted;
use super::super::{Residence, Rest};
use super::{At, MAPS, World};
use crate::api::{EventType, Partial};

const TO: Wanted = Wanted::At(Mode::Dedicated);
const BACK: Wanted = Wanted::At(Mode::Virtual);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_goes_to_a_server_of_its_own_and_comes_back_as_it_was() {
    let world = World::start().await;
    let here = world.at(Mode::Virtual).await;
    here.furnish().await;
    assert!(matches!(
        world.settle().await,
        Residence::At {
            mode: Mode::Virtual,
            ..
        }
    ));
    assert!(world.reported().is_none());
    let before = here.content().await;

    world.want(TO);
    assert!(matches!(
        world.settle().await,
        Residence::At {
            mode: Mode::Dedicated,
            ..
        }
    ));
    let report = world.reported().unwrap();
    assert_eq!(
        (report.step, report.from, report.to),
        (MigrationStep::Completed, Mode::Virtual, Mode::Dedicated)
    );
    assert!(report.completed_at.is_some());
    let there = world.at(Mode::Dedicated).await;
    assert_eq!(there.content().await, before);
    // The old address holds the name, and says where the plane is.
    let old = world.old_address().await;
    let refused = old.map("a").await.unwrap_err();
    assert_eq!(refused.code(), 421, "{refused}");
    let own = world.own.home().await.unwrap();
    assert!(refused.to_string().ends_with(&own.plane_url("p")), "{refused}");
    let left = world.left().await.unwrap();
    assert_eq!(left["spec"]["state"], "Moved");

    there.map("made-there").await.unwrap();
    let before = there.content().await;
    world.want(BACK);
    assert!(matches!(
        world.settle().await,
        Residence::At {
            mode: Mode::Virtual,
            ..
        }
    ));
    assert_eq!(world.step(), Some(MigrationStep::Completed));
    assert!(world.own.home().await.is_none(), "its server is not needed any more");
    assert_eq!(here.content().await, before);
    here.map("made-at-home").await.unwrap();
    // And once more: what was left behind the first time is in nobody's way.
    world.want(TO);
    world.settle().await;
    let there = world.at(Mode::Dedicated).await;
    assert!(there.map("made-at-home").await.unwrap_err().is_conflict());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_are_told_one_by_one_and_the_old_address_passes_requests_on_meanwhile() {
    let world = World::start().await;
    world.at(Mode::Virtual).await.furnish().await;
    world.want(TO);
    let mut told = Vec::new();
    loop {
        let progress = world.until("anything", |_| true).await;
        told.extend(progress.report.told.iter().map(|(reason, _)| reason.clone()));
        if world.step() == Some(MigrationStep::Draining) && told.last().is_some_and(|last| last == "MigrationSwitched")
        {
            // Both addresses are the plane's.
            let old = world.old_address().await;
            old.map("through-the-old-address").await.unwrap();
            let there = world.at(Mode::Dedicated).await;
            assert!(there.map("through-the-old-address").await.unwrap_err().is_conflict());
            let message = world.reported().unwrap().message;
            println!("a switch: {message}");
            assert!(message.contains("writes waited for"), "{message}");
        }
        if progress.rest == Rest::Settled {
            break;
        }
    }
    told.retain(|reason| reason != "MigrationCatchingUp");
    assert_eq!(
        told,
        [
            "MigrationStarted",
            "MigrationCopying",
            "MigrationSwitching",
            "MigrationSwitched",
            "MigrationDrained",
            "MigrationCompleted"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_the_old_server_goes_on_at_the_new_one_and_misses_nothing() {
    let world = World::start().await;
    let here = world.at(Mode::Virtual).await;
    here.furnish().await;
    world.want(TO);
    // What is written before the copy is whole only the old server can tell.
    world
        .until("caught up", |_| {
            matches!(world.step(), Some(MigrationStep::CatchingUp | MigrationStep::Switching))
        })
        .await;
    let listed = here.api.list(&At::path(MAPS), "").await.unwrap();
    let watch = |version: &str| At::path(&format!("{MAPS}?watch=1&resourceVersion={version}"));
    let mut old = Box::pin(here.api.watch::<Partial>(&watch(&listed.version)).await.unwrap());
    let mut names = Vec::new();
    let mut version = listed.version;
    for i in 0..3 {
        here.map(&format!("before-{i}")).await.unwrap();
    }
    // It sees some of it, and then its server is gone.
    for _ in 0..2 {
        let line = old.next().await.unwrap().unwrap();
        names.push(line.object.metadata.name.to_string());
        version = line.object.metadata.resource_version.to_string();
    }
    drop(old);
    here.api.delete_any(&At::path(&format!("{MAPS}/m5"))).await.unwrap();
    world.settle().await;
    let there = world.at(Mode::Dedicated).await;
    there.map("after").await.unwrap();
    let mut new = Box::pin(there.api.watch::<Partial>(&watch(&version)).await.unwrap());
    while names.last().is_none_or(|last| last != "after") {
        let line = new.next().await.unwrap().unwrap();
        if line.kind != EventType::Bookmark {
            names.push(line.object.metadata.name.to_string());
        }
    }
    assert_eq!(names, ["before-0", "before-1", "before-2", "m5", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_that_was_born_on_its_own_server_can_go_to_the_shared_one() {
    let world = World::start().await;
    let shared = world.at(Mode::Virtual).await;
    shared.api.delete_any(super::PLANE).await.unwrap();
    while world.left().await.is_some() {
        tokio::task::yield_now().await;
    }
    world.want(TO);
    let progress = world
        .until("ready to be made", |progress| progress.rest == Rest::Settled)
        .await;
    let Residence::At { home, .. } = progress.residence else {
        panic!("it is new, and may be made there");
    };
    // Of another profile than planes are of on the shared server, where its name is held.
    let mut made = super::plane(Mode::Dedicated);
    made["spec"]["profile"] = "Generic".into();
    home.api
        .create(crate::control_plane::Home::plane_objects(), &made)
        .await
        .unwrap();
    world.settle().await;
    assert!(world.reported().is_none(), "it has not moved");
    let left = world.left().await.unwrap();
    let address = home.plane_url("p");
    assert_eq!(left["spec"]["movedTo"]["server"], address, "its name is held");
    assert!(shared.map("a").await.unwrap_err().to_string().contains(&address));
    let there = world.at(Mode::Dedicated).await;
    there.map("a").await.unwrap();
    assert_eq!(left["spec"]["profile"], "Kubernetes");
    world.want(BACK);
    world.settle().await;
    assert_eq!(world.left().await.unwrap()["spec"]["profile"], "Generic");
    assert!(shared.map("a").await.unwrap_err().is_conflict());
    let patch = json!({"data": {"k": "3"}});
    let changed = shared.api.merge(&At::path(&format!("{MAPS}/a")), &patch).await;
    assert_eq!(changed.unwrap()["data"]["k"], "3");
}
