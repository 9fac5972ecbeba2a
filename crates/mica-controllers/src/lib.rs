//! The controllers that a Kubernetes API needs beside its server: one set for all planes of a server.
//!
//! They meet the server over its API alone, in the same process or elsewhere ([`run`] takes a client), and follow it by one
//! watch of root and one of all planes. There is no task, watch or cache for a plane: work is proportional to what changes.
//!
//! Each controller is a folder of one shape: `mod.rs` (what it watches), `observe` (reads), `plan` (decides, without I/O) and
//! `apply` (writes).

mod aggregation;
mod api;
pub mod census;
mod class;
mod companion;
mod condition;
pub mod control_plane;
pub mod dedicated;
mod dependent;
mod echo;
mod endpoint;
mod engine;
mod event;
mod fleet;
mod follow;
mod garbage;
mod inputs;
mod kinds;
mod membership;
mod meta;
mod migration;
mod namespace;
mod organization;
mod place;
mod project;
mod quota;
mod registration;
mod route;
mod select;
mod status;
mod token;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use mica_runtime::{ClusterName, Ownership};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use aggregation::Aggregation;
pub use api::{Api, Refusal};
use class::Classes;
use companion::{Companion, Companions};
use control_plane::{ControlPlanes, Whereabouts};
use dependent::{Dependents, ServerIndex};
use endpoint::Endpoints;
use engine::{Controller, Engine};
pub use fleet::run_fleet;
use follow::Server;
use follow::graph::{Graph, GraphIndex};
use garbage::Garbage;
use kinds::Catalog;
use membership::Memberships;
use namespace::Namespaces;
use organization::Organizations;
use project::Projects;
use quota::Quotas;
use registration::Registrations;
use route::Routes;
pub use select::{Name, Selection, Unknown};
use token::Tokens;
use turn::Turn;

/// Between tries to reach a server that does not answer yet.
const PAUSE: Duration = Duration::from_secs(1);

/// How controllers are to run.
#[derive(Clone, Default)]
pub struct Options {
    pub controllers: Selection,
    /// Who signs the server's certificate, in PEM, as every namespace is told. Without it none is.
    pub root_ca: Option<String>,
    /// How control planes are run. Without it none are: their objects are left to somebody else.
    pub control_planes: Option<control_plane::Settings>,
}

/// Runs controllers against a server and all its planes until told to stop. What they are about when that happens is given
/// up: everything they do can be done again.
pub async fn run(client: kube::Client, options: Options, stop: CancellationToken) {
    run_in(client, options, Turn::always(), stop).await;
}

/// The same as one of several replicas: it works while `ownership`, which somebody else runs, says so, and stands by warm
/// otherwise. What happens meanwhile waits in its queues; when they are full it reads on as soon as it works.
pub async fn run_owned(client: kube::Client, options: Options, ownership: Arc<dyn Ownership>, stop: CancellationToken) {
    run_in(client, options, Turn::new(ownership, ClusterName::local()), stop).await;
}

async fn run_in(client: kube::Client, options: Options, turn: Turn, stop: CancellationToken) {
    if options.controllers.is_empty() {
        return;
    }
    let api = Api::new(client).in_turn(turn.clone());
    let server = tokio::select! {
        () = stop.cancelled() => return,
        server = reach(&api) => server,
    };
    let catalog = Arc::new(Catalog::new(api.clone()));
    let graph = Arc::new(Graph::default());
    let dependents: Arc<dyn Dependents> = match server {
        Server::Planes | Server::Plane => Arc::new(ServerIndex { api: api.clone() }),
        Server::Foreign => Arc::new(GraphIndex {
            graph: graph.clone(),
            api: api.clone(),
            catalog: catalog.clone(),
        }),
    };
    let engine = Arc::new(Engine {
        controllers: controllers(server, &api, &catalog, &dependents, &options),
        catalog: catalog.clone(),
        turn,
    });
    let tasks = TaskTracker::new();
    engine.start(&tasks, &stop);
    follow::follow(server, &api, &catalog, &graph, &engine, &stop).await;
    tasks.close();
    tasks.wait().await;
}

/// What the server is, as soon as it answers.
async fn reach(api: &Api) -> Server {
    loop {
        match Server::detect(api).await {
            Ok(server) => return server,
            Err(refusal) => {
                tracing::warn!(%refusal, "controllers cannot reach the server; they try again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn controllers(
    server: Server,
    api: &Api,
    catalog: &Arc<Catalog>,
    dependents: &Arc<dyn Dependents>,
    options: &Options,
) -> Vec<Arc<dyn Controller>> {
    let mut all: Vec<Arc<dyn Controller>> = Vec::new();
    for name in Name::ALL.into_iter().filter(|name| options.controllers.has(*name)) {
        let (api, catalog) = (api.clone(), catalog.clone());
        all.push(match name {
            Name::Namespace => Arc::new(Namespaces::new(api, catalog)),
            Name::Garbage => Arc::new(Garbage::new(api, catalog, dependents.clone())),
            Name::Quota => Arc::new(Quotas::new(api, catalog)),
            Name::Account => Arc::new(Companions::new(api, Companion::Account)),
            Name::RootCa => match &options.root_ca {
                Some(certificates) => Arc::new(Companions::new(api, Companion::RootCa(certificates.clone()))),
                None => continue,
            },
            // A Mica server does it itself.
            Name::Token if server != Server::Foreign => continue,
            Name::Token => Arc::new(Tokens::new(api)),
            Name::Aggregation => Arc::new(Aggregation::new(api)),
            // Only where there are planes are there projects.
            Name::Project | Name::Organization | Name::Membership if server != Server::Planes => continue,
            Name::Project => Arc::new(Projects::new(api)),
            Name::Organization => Arc::new(Organizations::new(api)),
            Name::Membership => Arc::new(Memberships::new(api)),
            name => {
                all.extend(operator(name, server, api, options));
                continue;
            }
        });
    }
    all
}

/// The controllers of control planes. They run where they were told how, on servers of any make, and never inside a plane.
fn operator(name: Name, server: Server, api: Api, options: &Options) -> Vec<Arc<dyn Controller>> {
    let Some(settings) = &options.control_planes else {
        return Vec::new();
    };
    let runs = match server {
        Server::Planes => true,
        Server::Plane => false,
        Server::Foreign => settings.server == Whereabouts::Elsewhere,
    };
    if !runs {
        return Vec::new();
    }
    let settings = settings.clone().in_turn(api.turn());
    match name {
        Name::ControlPlane => vec![Arc::new(ControlPlanes::new(api, settings))],
        Name::ControlPlaneRegistration => vec![Arc::new(Registrations::new(api))],
        Name::ControlPlaneEndpoint => vec![
            Arc::new(Endpoints::new(api.clone())),
            Arc::new(Routes::new(api, settings.home, settings.providers)),
        ],
        Name::ControlPlaneClass => vec![Arc::new(Classes::new(api, settings.addons))],
        _ => Vec::new(),
    }
}
