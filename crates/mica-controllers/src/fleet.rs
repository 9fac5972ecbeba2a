//! Controllers for whatever a fleet engages: a set for each control plane, for as long as it is engaged.
//!
//! This is for control planes that stand by themselves, such as those that registrations name. Planes of a Mica server need
//! no set of their own: that of their server serves them.

use futures::StreamExt as _;
use mica_runtime::{Cluster, Fleet, FleetEvent};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::turn::Turn;
use crate::{Options, run_in};

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
                let turn = Turn::new(fleet.ownership().clone(), cluster.name().clone());
                tasks.spawn(run_engaged(cluster, options.clone(), turn, stop.child_token()));
            }
            // Credentials change inside its client, which says when it is elsewhere; and its end is in its lifetime.
            Some(FleetEvent::Changed(_) | FleetEvent::Gone(_) | FleetEvent::Synced) => {}
        }
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// Runs controllers while the control plane is engaged and this replica's.
async fn run_engaged(cluster: Cluster, options: Options, turn: Turn, stop: CancellationToken) {
    let lifetime = cluster.lifetime();
    loop {
        let epoch = tokio::select! {
            () = lifetime.cancelled() => return,
            () = stop.cancelled() => return,
            epoch = turn.comes() => epoch,
        };
        // A client is good for one epoch. Standing by is cold here: there may be very many such control planes.
        let client = cluster.client_of(Some(epoch));
        let (over, url) = (stop.child_token(), cluster.access().url());
        let ending = async {
            tokio::select! {
                () = lifetime.cancelled() => {}
                () = turn.goes(epoch) => {}
                // Another server counts otherwise: it is read from the beginning.
                () = cluster.moved_from(&url) => {}
            }
            over.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = run_in(client, options.clone(), turn.clone(), over.clone()) => {}
            () = ending => {}
        }
        if !over.is_cancelled() {
            return;
        }
    }
}
