//! Controllers for whatever a fleet engages: a set for each control plane, for as long as it is engaged.
//!
//! This is for control planes that stand by themselves, such as those that registrations name. Planes of a Mica server need
//! no set of their own: that of their server serves them.

use futures::StreamExt as _;
use mica_runtime::{Cluster, Fleet, FleetEvent};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{Options, run};

/// Runs controllers against every control plane that a fleet engages, until told to stop.
pub async fn run_fleet(fleet: &Fleet, options: Options, stop: CancellationToken) {
    let (tasks, stop) = (TaskTracker::new(), stop.child_token());
    let mut events = fleet.events();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => break,
            event = events.next() => event,
        };
        match event {
            None => break,
            Some(FleetEvent::Engaged(cluster)) => {
                tracing::info!(plane = %cluster.name(), "controllers run for a control plane");
                tasks.spawn(run_engaged(cluster, options.clone(), stop.child_token()));
            }
            // Credentials change inside its client, and its end is in its lifetime.
            Some(FleetEvent::Changed(_) | FleetEvent::Gone(_) | FleetEvent::Synced) => {}
        }
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

async fn run_engaged(cluster: Cluster, options: Options, stop: CancellationToken) {
    let lifetime = cluster.lifetime().clone();
    let ending = async {
        lifetime.cancelled().await;
        stop.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = run(cluster.client(), options, stop.clone()) => {}
        () = ending => {}
    }
}
