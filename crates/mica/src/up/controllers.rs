//! The controllers in the server's own process: they reach it by its API, without a connection.

use std::sync::Arc;

use anyhow::anyhow;
use mica_controllers::control_plane::{self, Home};
use mica_controllers::dedicated::{Process, Provider};
use mica_controllers::{Api, Options};
use mica_server::http::{InProcess, Service};
use mica_server::pki::Authority;

use super::running::Running;
use crate::config::{Settings, StoreAddress};
use crate::dedicated::OnExit;

/// Starts the controllers that the settings choose. They are somebody to the server: what they may do is a role of root.
pub async fn start(settings: &Settings, running: &Running, authority: &Authority, url: &str) -> anyhow::Result<()> {
    let admitted = running.server().admit_controllers().await;
    admitted.map_err(|error| anyhow!("letting controllers in: {error}"))?;
    let client = client(running.inside.clone());
    let home = Home {
        api: Api::new(client.clone()),
        url: url.to_owned(),
        ca: Some(authority.certificate_pem().to_owned()),
    };
    let mut control_planes = control_plane::Settings::new(home);
    control_planes.providers = providers(settings, running);
    let options = Options {
        controllers: settings.controllers.clone(),
        root_ca: Some(authority.certificate_pem().to_owned()),
        control_planes: Some(control_planes),
    };
    running
        .tasks
        .spawn(mica_controllers::run(client, options, running.drain.clone()));
    Ok(())
}

/// Those who run servers for dedicated control planes. Their servers end with this one only if that is wanted.
fn providers(settings: &Settings, running: &Running) -> Vec<Arc<dyn Provider>> {
    let reserved = match &settings.store {
        StoreAddress::Etcd(config) => Some(config.prefix.clone()),
        StoreAddress::Embedded => None,
    };
    let providers: [Arc<Process>; 2] = settings.dedicated.providers(reserved);
    if settings.dedicated.on_exit == OnExit::Stop {
        let (ending, drain) = (providers.clone(), running.drain.clone());
        running.tasks.spawn(async move {
            drain.cancelled().await;
            for provider in ending {
                provider.halt().await;
            }
        });
    }
    providers.map(|provider| provider as Arc<dyn Provider>).to_vec()
}

/// A client whose requests are calls.
fn client<S: Service>(inside: InProcess<S>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let inside = inside.clone();
        async move { Box::pin(inside.call(request)).await }
    });
    kube::Client::new(service, "default")
}
