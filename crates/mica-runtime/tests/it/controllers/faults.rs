//! What is seen when watches are cut, versions expire and requests are lost.

use std::sync::Arc;

use super::stage::{Plane, Read, Seen, Stage, eventually, request};

async fn watching(stage: &Stage, read: Read) -> (Plane, Arc<Seen>) {
    let plane = stage.plane("p").await;
    for name in ["same", "changes", "goes"] {
        plane.create(name, "1").await;
    }
    let seen = stage.watch();
    stage.sink.upsert(stage.spec("p", &plane, read));
    for name in ["same", "changes", "goes"] {
        seen.shows(&request("p", name), Some("1")).await;
    }
    (plane, seen)
}

/// The address of the stream: what planes are born with is listed too, at another one.
fn listed(read: Read) -> &'static str {
    match read {
        Read::Alone => "/clusters/p/control-plane/api/v1/configmaps",
        Read::Together => "/clusters/*/control-plane/api/v1/configmaps",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_was_cut_goes_on_where_it_was() {
    for read in [Read::Alone, Read::Together] {
        let stage = Stage::new().await;
        let (plane, seen) = watching(&stage, read).await;
        let lists = stage.tap.lists(listed(read));
        for round in 2..5 {
            stage.tap.cut();
            plane.set("changes", &round.to_string()).await;
            seen.shows(&request("p", "changes"), Some(&round.to_string())).await;
        }
        assert_eq!(stage.tap.lists(listed(read)), lists, "{read:?}: nothing was read again");
        assert_eq!(seen.times(&request("p", "same")), 1, "{read:?}");
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_expired_costs_a_list_and_only_what_changed_is_reconciled() {
    for read in [Read::Alone, Read::Together] {
        let stage = Stage::new().await;
        let (plane, seen) = watching(&stage, read).await;
        let lists = stage.tap.lists(listed(read));
        // No watch resumes until the changes are made, so that only a list can show them.
        stage.tap.expire(1);
        stage.tap.pause();
        stage.tap.cut();
        plane.set("changes", "2").await;
        plane.delete("goes").await;
        plane.create("new", "1").await;
        stage.tap.resume();
        seen.shows(&request("p", "changes"), Some("2")).await;
        seen.shows(&request("p", "new"), Some("1")).await;
        seen.shows(&request("p", "goes"), None).await;
        assert_eq!(stage.tap.lists(listed(read)), lists + 1, "{read:?}");
        assert_eq!(seen.times(&request("p", "same")), 1, "{read:?}: it is as it was");
        assert_eq!(seen.times(&request("p", "changes")), 2, "{read:?}");
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_requests_are_made_again() {
    for read in [Read::Alone, Read::Together] {
        let stage = Stage::new().await;
        let (plane, seen) = watching(&stage, read).await;
        stage.tap.lose(2);
        stage.tap.cut();
        plane.set("changes", "2").await;
        seen.shows(&request("p", "changes"), Some("2")).await;
        stage.stop().await;
    }
}

/// Whatever happens on the way, in the end every object was seen as it is, and every deletion was seen.
#[tokio::test(flavor = "multi_thread")]
async fn under_random_faults_nothing_is_missed() {
    let stage = Stage::new().await;
    let planes = stage.planes((0..6).map(|i| format!("p{i}"))).await;
    let seen = stage.watch();
    for plane in &planes {
        stage
            .sink
            .upsert(stage.spec(&format!("a-{}", plane.name), plane, Read::Alone));
        stage
            .sink
            .upsert(stage.spec(&format!("t-{}", plane.name), plane, Read::Together));
    }
    // A fixed sequence that looks random: a failure is the change's, not the dice's.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut live = std::collections::BTreeMap::new();
    for step in 0..120 {
        let plane = &planes[random(planes.len() as u64) as usize];
        let name = format!("o{}", random(5));
        let key = (plane.name.clone(), name.clone());
        match (live.contains_key(&key), random(4)) {
            (false, _) => {
                plane.create(&name, &step.to_string()).await;
                live.insert(key, Some(step.to_string()));
            }
            (true, 0) => {
                plane.delete(&name).await;
                live.remove(&key);
            }
            (true, _) => {
                plane.set(&name, &step.to_string()).await;
                live.insert(key, Some(step.to_string()));
            }
        }
        match random(8) {
            0 => stage.tap.cut(),
            1 => {
                stage.tap.expire(1 + random(3) as usize);
                stage.tap.cut();
            }
            2 => {
                stage.tap.lose(1 + random(3) as usize);
                stage.tap.cut();
            }
            _ => {}
        }
    }
    for plane in &planes {
        for object in 0..5 {
            let name = format!("o{object}");
            let wanted = live.get(&(plane.name.clone(), name.clone())).cloned().flatten();
            for way in ["a", "t"] {
                let request = request(&format!("{way}-{}", plane.name), &name);
                // What came and went unseen was never there.
                eventually(&format!("{request} is {wanted:?}"), || {
                    seen.last(&request).flatten() == wanted
                })
                .await;
            }
        }
    }
    stage.stop().await;
}
