//! The controllers in the server's own process: they reach it by its API, without a connection.

use anyhow::anyhow;
use mica_controllers::control_plane::{self, Home};
use mica_controllers::{Api, Options};
use mica_server::http::{InProcess, Service};
use mica_server::pki::Authority;

use super::running::Running;
use crate::config::Settings;

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
    let options = Options {
        controllers: settings.controllers.clone(),
        root_ca: Some(authority.certificate_pem().to_owned()),
        control_planes: Some(control_plane::Settings::new(home)),
    };
    running
        .tasks
        .spawn(mica_controllers::run(client, options, running.drain.clone()));
    Ok(())
}

/// A client whose requests are calls.
fn client<S: Service>(inside: InProcess<S>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let inside = inside.clone();
        async move { Box::pin(inside.call(request)).await }
    });
    kube::Client::new(service, "default")
}
