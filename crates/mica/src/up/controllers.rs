//! The controllers in the server's own process: they reach it by its API, without a connection.
//!
//! Servers that share a store have the same planes: of those that run the same controllers one works, and the others stand by.

use std::sync::Arc;

use anyhow::anyhow;
use mica_controllers::control_plane::Home;
use mica_controllers::{Api, Options, Selection};
use mica_runtime::ownership::{All, Leader, Ownership, Standby};
use mica_server::http::{InProcess, Service};
use mica_server::metrics::Registry;
use mica_server::pki::Authority;
use sha2::{Digest as _, Sha256};

use super::running::Running;
use crate::config::{Settings, StoreAddress};
use crate::metric::Counted;

/// Where the lease is by which servers take turns, and what it is called. Processes of controllers have one of their own.
const NAMESPACE: &str = "kube-system";
const LEASE: &str = "mica-server-controllers";

/// Starts the controllers that the settings choose. They are somebody to the server: what they may do is a role of root.
/// `identity` is what this server is called among those that take turns.
pub async fn start(
    settings: &Settings,
    running: &Running,
    metrics: &Registry,
    (authority, url): (&Authority, &str),
    identity: Option<String>,
) -> anyhow::Result<()> {
    let admitted = running.server().admit_controllers().await;
    admitted.map_err(|error| anyhow!("letting controllers in: {error}"))?;
    let client = client(running.inside.clone());
    let home = Home {
        api: Api::new(client.clone()),
        url: url.to_owned(),
        ca: Some(authority.certificate_pem().to_owned()),
    };
    let reserved = match &settings.store {
        StoreAddress::Etcd(config) => Some(config.prefix.clone()),
        StoreAddress::Embedded => None,
    };
    let control_planes = settings.operator.on(home, reserved, &running.tasks, &running.drain);
    metrics.register(Arc::new(Counted::new([control_planes.census.clone()])));
    let options = Options {
        controllers: settings.controllers.clone(),
        root_ca: Some(authority.certificate_pem().to_owned()),
        control_planes: Some(control_planes),
    };
    if settings.controllers.is_empty() {
        return Ok(());
    }
    let (ownership, stop) = (ownership(settings, client.clone(), identity), running.drain.clone());
    let working = mica_controllers::run_owned(client, options, ownership.clone(), stop.clone());
    running.tasks.spawn(working);
    running.tasks.spawn(async move { ownership.run(stop).await });
    Ok(())
}

/// Whether it is this server that works. Nobody else opens a store of our own, so there it always is.
fn ownership(settings: &Settings, client: kube::Client, identity: Option<String>) -> Arc<dyn Ownership> {
    match settings.store {
        StoreAddress::Embedded => Arc::new(All::new()),
        StoreAddress::Etcd(_) => {
            let mut leader = Leader::new(client, NAMESPACE, &lease(&settings.controllers)).standby(Standby::Warm);
            // Who comes after a kill need not wait for itself.
            if let Some(identity) = identity {
                leader = leader.identity(identity);
            }
            Arc::new(leader.build())
        }
    }
}

/// Only who runs the same controllers can stand by for them: every choice has a lease of its own.
fn lease(chosen: &Selection) -> String {
    if *chosen == Selection::default() {
        return LEASE.to_owned();
    }
    let hash = Sha256::digest(chosen.to_string());
    format!("{LEASE}-{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3])
}

/// A client whose requests are calls.
fn client<S: Service>(inside: InProcess<S>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let inside = inside.clone();
        async move { Box::pin(inside.call(request)).await }
    });
    kube::Client::new(service, "default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_other_controllers_has_another_lease() {
        let of = |words: &[&str]| lease(&Selection::parse(words).unwrap());
        assert_eq!(of(&["*"]), "mica-server-controllers");
        assert_eq!(
            of(&["namespace", "garbagecollector"]),
            of(&["garbagecollector", "namespace-controller"])
        );
        assert_ne!(of(&["namespace"]), of(&["garbagecollector"]));
        assert_ne!(of(&["namespace"]), of(&["*"]));
    }
}
