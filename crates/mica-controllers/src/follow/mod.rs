//! What happens on a server, as one stream of notices, whatever the server is.
//!
//! A Mica server tells of all its planes in one watch and of root in another. Any other server is asked what it serves, and
//! each resource is watched by itself. Controllers see no difference.

pub mod graph;
mod kinds;
pub mod whole;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::api::{Absent as _, Api, Refusal};
use crate::kinds::Catalog;
use crate::meta::{Notice, What};
use graph::Graph;

/// Where the resource `objects` is, in a plane.
pub(crate) const OBJECTS: &str = "/apis/mica.dev/v1alpha1/objects";
/// Between tries to reach a server, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// What a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// A Mica server: root and planes.
    Planes,
    /// One plane of a Mica server, by its own address.
    Plane,
    /// Another API server.
    Foreign,
}

impl Server {
    /// Asks a server what it is.
    pub async fn detect(api: &Api) -> Result<Self, Refusal> {
        let Some(document) = api.get("/apis/mica.dev/v1alpha1").await.or_absent()? else {
            return Ok(Self::Foreign);
        };
        let resources = document["resources"].as_array().map_or(&[][..], Vec::as_slice);
        let has = |name: &str| resources.iter().any(|one| one["name"] == name);
        Ok(match (has("objects"), has("planes")) {
            (true, true) => Self::Planes,
            (true, false) => Self::Plane,
            (false, _) => Self::Foreign,
        })
    }
}

/// Who hears what happens.
pub trait Listener: Send + Sync + 'static {
    /// Whether anybody wants to hear of a kind.
    fn wants(&self, _what: &What) -> bool {
        true
    }
    fn hear(&self, notice: &Notice);
    /// Returns when there is room for more: what waits to be done is bounded.
    fn room(&self) -> impl Future<Output = ()> + Send;
}

/// Follows a server until stopped. A server that does not answer is tried again.
pub async fn follow<L: Listener>(
    server: Server,
    api: &Api,
    catalog: &Arc<Catalog>,
    graph: &Arc<Graph>,
    listener: &Arc<L>,
    stop: &CancellationToken,
) {
    let following = async {
        match server {
            Server::Planes => {
                let root = whole::Stream::root(api.clone());
                let planes = whole::Stream::planes(api.clone());
                tokio::join!(root.follow(&**listener), planes.follow(&**listener));
            }
            Server::Plane => whole::Stream::root(api.clone()).follow(&**listener).await,
            Server::Foreign => kinds::follow(api, catalog, graph, listener).await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = following => {}
    }
}

/// How long to wait before the next try.
struct Pause(Duration);

impl Pause {
    fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    fn reset(&mut self) {
        self.0 = FIRST_PAUSE;
    }

    async fn wait(&mut self) {
        // Not all in the same moment, after a server comes back.
        tokio::time::sleep(self.0.mul_f64(0.5 + rand::random::<f64>())).await;
        self.0 = (self.0 * 2).min(LAST_PAUSE);
    }
}
