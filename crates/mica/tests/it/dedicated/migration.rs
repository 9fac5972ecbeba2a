//! Planes that move between processes which are killed: nothing that was acknowledged is lost, versions stay good, and
//! watches see everything once.
//!
//! What is done to whom and when comes from a seed, which is printed: `MICA_SEED` tries one again. Kills are aimed at steps
//! of the migration, not at times, so a slow machine is killed at the same points as a fast one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mica_api::control_plane::{Migration, MigrationStep};
use mica_controllers::census::STEPS;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::super::process::Up;
use super::shop::PATIENCE;
use super::site::{CONTROL_PLANES, LOOK, Site, crash, get, inside, insist, is_ready, until};
use super::witness::{Creator, MAPS, Updater, Watcher};

const NAME: &str = "a";
/// Kills of one migration, at most.
const KILLS: usize = 3;
/// How long after the step that it is aimed at a kill may come.
const AFTER: Duration = Duration::from_millis(400);
/// What is written between two migrations, at least.
const WRITES: usize = 5;
/// Migrations of one round of a soak, and how many of the rounds that others run one of ours takes as long as.
const SOAKED: usize = 6;
const ROUNDS: u64 = 20;

/// What happens to a migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blow {
    /// The shared server, which is the operator too.
    Operator,
    /// The plane's own server.
    Own,
    Both,
    /// Somebody thinks better of it.
    TurnBack,
}

struct Trial {
    seed: u64,
    site: Site,
    operator: Option<Up>,
    root: kube::Client,
    random: StdRng,
}

fn path() -> String {
    format!("{CONTROL_PLANES}/{NAME}")
}

fn migration(found: &Value) -> Option<Migration> {
    serde_json::from_value(found["status"]["migration"].clone()).ok()
}

fn is_moved(found: &Value, mode: &str) -> bool {
    let lives = |migration: Migration| match migration.step {
        MigrationStep::Completed => format!("{:?}", migration.to) == mode,
        MigrationStep::Cancelled => format!("{:?}", migration.from) == mode,
        _ => false,
    };
    is_ready(found) && found["status"]["phase"] == "Ready" && migration(found).is_some_and(lives)
}

impl Trial {
    async fn begin(seed: u64) -> Self {
        println!("seed {seed}");
        let site = Site::new(&[]);
        let operator = Some(site.start());
        let root = site.administrator().await;
        let made = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
            "metadata": {"name": NAME}, "spec": {"mode": "Virtual"}});
        insist(&root, "POST", CONTROL_PLANES, &made).await;
        until(&root, &path(), "ready", is_ready).await;
        Self {
            seed,
            site,
            operator,
            root,
            random: StdRng::seed_from_u64(seed),
        }
    }

    fn restart(&mut self) {
        if let Some(operator) = self.operator.take() {
            crash(operator);
        }
        self.operator = Some(self.site.start());
    }

    async fn ask_for(&self, mode: &str, drain: &str) {
        let patch = json!({"metadata": {"annotations": {"controlplane.kplane.dev/drain": drain}},
            "spec": {"mode": mode}});
        insist(&self.root, "PATCH", &path(), &patch).await;
    }

    /// Waits until a migration is as far as that, or over.
    async fn until_step(&self, step: MigrationStep) {
        until(&self.root, &path(), &format!("at {step:?}"), |found| {
            let current = found["metadata"]["generation"] == found["status"]["observedGeneration"];
            current && migration(found).is_some_and(|migration| migration.step >= step)
        })
        .await;
    }

    async fn strike(&mut self, blow: Blow, mode: &mut &'static str) {
        match blow {
            Blow::Operator => self.restart(),
            Blow::Own => self.site.kill_own(NAME),
            Blow::Both => {
                self.site.kill_own(NAME);
                self.restart();
            }
            Blow::TurnBack => {
                *mode = other(mode);
                self.ask_for(mode, "0s").await;
            }
        }
    }

    /// A migration that is disturbed. Where the plane is to be in the end.
    async fn disturbed(&mut self, mut mode: &'static str) -> &'static str {
        let drain = ["0s", "1s"][self.random.random_range(0..2)];
        self.ask_for(mode, drain).await;
        let mut aims: Vec<MigrationStep> = Vec::new();
        for _ in 0..self.random.random_range(1..=KILLS) {
            aims.push(STEPS[self.random.random_range(0..STEPS.len())]);
        }
        aims.sort();
        for aim in aims {
            let blow = BLOWS[self.random.random_range(0..BLOWS.len())];
            let after = self.random.random_range(Duration::ZERO..AFTER);
            self.until_step(aim).await;
            // Not a wait for anything: the blow comes whenever it comes.
            tokio::time::sleep(after).await;
            println!("seed {}: to {mode}, {aim:?} and {after:?}: {blow:?}", self.seed);
            self.strike(blow, &mut mode).await;
        }
        mode
    }

    async fn until_moved(&self, mode: &str) {
        until(&self.root, &path(), &format!("{mode} (seed {})", self.seed), |found| {
            is_moved(found, mode)
        })
        .await;
    }
}

const BLOWS: [Blow; 6] = [
    Blow::Operator,
    Blow::Operator,
    Blow::Own,
    Blow::Own,
    Blow::Both,
    Blow::TurnBack,
];

fn other(mode: &str) -> &'static str {
    match mode {
        "Virtual" => "Dedicated",
        _ => "Virtual",
    }
}

/// Waits until more is written than there was.
async fn until_written(creator: &Creator, seed: u64) {
    let (before, begun) = (creator.count(), Instant::now());
    while creator.count() < before + WRITES {
        assert!(begun.elapsed() < PATIENCE, "nothing is written (seed {seed})");
        tokio::time::sleep(LOOK).await;
    }
}

async fn run(seed: u64, disturbed: usize) {
    let mut trial = Box::pin(Trial::begin(seed)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let creator = Creator::begin(trial.root.clone(), NAME, stop.clone());
    let updater = Updater::begin(trial.root.clone(), NAME, stop.clone());
    let watcher = Watcher::begin(trial.root.clone(), NAME);
    until_written(&creator, seed).await;
    let mut mode = "Virtual";
    for _ in 0..disturbed {
        mode = Box::pin(trial.disturbed(other(mode))).await;
        trial.until_moved(mode).await;
        until_written(&creator, seed).await;
        watcher.until_sees(&creator.last()).await;
    }
    // Whoever is not disturbed never has to list again.
    let expired = watcher.expired();
    for _ in 0..2 {
        mode = other(mode);
        trial.ask_for(mode, "0s").await;
        trial.until_moved(mode).await;
        until_written(&creator, seed).await;
        watcher.until_sees(&creator.last()).await;
    }
    assert_eq!(watcher.expired(), expired, "watches did not resume (seed {seed})");
    stop.store(true, Ordering::Release);
    let (created, updated) = (creator.end().await, updater.end().await);
    for name in created.keys() {
        watcher.until_sees(name).await;
    }
    let plane = inside(&trial.root, NAME).await.unwrap();
    for (name, (uid, version)) in &created {
        let found = get(&plane, &format!("{MAPS}/{name}")).await;
        let found = found.unwrap_or_else(|refused| panic!("{name} is lost (seed {seed}): {refused:?}"));
        let meta = &found["metadata"];
        assert_eq!(
            (&meta["uid"], &meta["resourceVersion"]),
            (uid, version),
            "{name} (seed {seed})"
        );
    }
    println!(
        "seed {seed}: {} created, {updated} updated, {} seen, {} lists after 410",
        created.len(),
        watcher.end().await,
        expired
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_when_operator_and_servers_are_killed_while_a_plane_moves() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("MICA_SEED"), number("MICA_SOAK")) {
        (Some(seed), _) => Box::pin(run(seed, SOAKED)).await,
        (None, None) => Box::pin(run(1, 2)).await,
        (None, Some(rounds)) => {
            for _ in 0..rounds.div_ceil(ROUNDS) {
                Box::pin(run(rand::random(), SOAKED)).await;
            }
        }
    }
}
