//! Somebody writes all the time while a plane goes back and forth, the operator dies and servers start again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mica_api::control_plane::Mode;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::super::Rest;
use super::super::plan::Wanted;
use super::{At, MAPS, PATIENCE, World};

/// Migrations of one run, there and back.
const TRIPS: usize = 4;
/// Writes that must have been acknowledged on the way, so that they were in every step.
const WRITES: usize = 40;

/// Writes at either address, whichever takes it, until told to stop. What was acknowledged, with its uid.
async fn write(world: Arc<World>, stop: Arc<AtomicBool>, count: Arc<AtomicUsize>) -> BTreeMap<String, String> {
    let mut acknowledged = BTreeMap::new();
    let old = world.old_address().await;
    let mut n = 0;
    while !stop.load(Ordering::Acquire) {
        let name = format!("w{n}");
        let mut addresses = vec![old.clone()];
        if let Some(home) = world.own.home().await {
            addresses.push(At { api: home.api });
        }
        for at in addresses {
            match at.map(&name).await {
                Ok(made) => {
                    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
                    acknowledged.insert(name.clone(), uid);
                    count.fetch_add(1, Ordering::Release);
                    break;
                }
                // Answered and then cut off: whether it was done is not known, and nothing was promised.
                Err(refusal) if refusal.is_conflict() => break,
                Err(_) => {}
            }
        }
        n += 1;
        tokio::task::yield_now().await;
    }
    acknowledged
}

async fn run(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let world = Arc::new(World::start().await);
    world.at(Mode::Virtual).await.furnish().await;
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writer = tokio::spawn(write(world.clone(), stop.clone(), count.clone()));
    let mut mode = Mode::Virtual;
    for trip in 0..TRIPS {
        mode = super::super::plan::other(mode);
        world.want(Wanted::At(mode));
        let trip_over = async {
            let mut aborted = 0;
            loop {
                // Killed in the middle of whatever it does, a few times; then it is let.
                let life = match aborted {
                    0..12 => Duration::from_micros(random.random_range(200..60_000)),
                    _ => PATIENCE,
                };
                let looking = world.until("settled", |progress| progress.rest == Rest::Settled);
                if tokio::time::timeout(life, looking).await.is_ok() {
                    break;
                }
                aborted += 1;
                world.restart_operator();
                if random.random_range(0..5) == 0 {
                    world.own.restart().await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, trip_over)
            .await
            .unwrap_or_else(|_| panic!("trip {trip} of seed {seed}"));
        let target = count.load(Ordering::Acquire) + WRITES / TRIPS;
        while count.load(Ordering::Acquire) < target {
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Release);
    let acknowledged = writer.await.unwrap();
    assert!(acknowledged.len() >= WRITES, "{}", acknowledged.len());
    let at = world.at(mode).await;
    let listed = at.api.list(&At::path(MAPS), "").await.unwrap().items;
    let found: BTreeMap<&str, &str> = listed
        .iter()
        .filter_map(|map| Some((map["metadata"]["name"].as_str()?, map["metadata"]["uid"].as_str()?)))
        .collect();
    for (name, uid) in &acknowledged {
        assert_eq!(found.get(name.as_str()), Some(&uid.as_str()), "{name} of seed {seed}");
    }
    println!("seed {seed}: {} writes in {TRIPS} migrations", acknowledged.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_however_often_the_operator_dies() {
    for seed in 1..=3 {
        run(seed).await;
    }
}
