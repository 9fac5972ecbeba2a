//! The door: a request goes on when its plane has seats for it.

use std::sync::Arc;

use http::Response;
use http::request::Parts;

use super::Server;
use crate::authz::User;
use crate::budget::Counted;
use crate::error::ApiError;
use crate::fairness::{Classified, Digest, Measured, Seat, What, Width};
use crate::http::{Body, Peer, Protocol};
use crate::plane::Plane;
use crate::plane::kind::{GROUP, PLURAL};
use crate::request::{Address, Located, Path, Query, Verb};

/// What a request holds while it is answered.
#[derive(Default)]
pub struct Entered {
    seat: Option<Seat>,
    request: Option<Counted>,
    watch: Option<Counted>,
    measured: Option<Measured>,
}

impl Entered {
    /// What counts this request as a watch, to be kept as long as it lasts.
    pub fn watching(&mut self) -> Option<Counted> {
        self.watch.take()
    }

    /// Holds on until the answer is made, which for a long list is when it is sent. A watch has begun, and holds nothing.
    pub fn until_made(self, response: Response<Body>) -> Response<Body> {
        if self.seat.is_none() && self.measured.is_none() && self.request.is_none() {
            return response;
        }
        response.map(|body| {
            body.then(move |sent| {
                if let (Some(measured), Some(bytes)) = (&self.measured, sent) {
                    measured.tell(bytes);
                }
                drop((self.seat, self.request));
            })
        })
    }
}

/// Who is at the door.
pub struct Visitor<'a> {
    pub user: &'a User,
    pub located: &'a Located,
    pub path: &'a Result<Path, ApiError>,
    pub query: &'a Query,
    pub parts: &'a Parts,
    pub peer: &'a Peer,
}

impl Server {
    /// Waits until there is room for a request. What it is classified as is told also if it is refused.
    pub(super) async fn enter(&self, visitor: &Visitor<'_>, classified: &mut Classified) -> Result<Entered, ApiError> {
        if visitor.peer.protocol() == Protocol::InProcess {
            return Ok(Entered::default());
        }
        // Who asks for what is not there takes a seat of root's, and does not learn which.
        let (plane, mut untold) = (self.plane_of(&visitor.located.address).await, Classified::default());
        let (plane, classified) = match plane {
            Ok(plane) => (plane, classified),
            Err(_) => (self.directory.root(), &mut untold),
        };
        visitor.peer.asks(&plane);
        match visitor.path {
            Ok(Path::Resource(path)) => {
                // They last, and only root's administrators ask for them.
                let fills = path.group == GROUP && path.resource == PLURAL && path.subresource.is_some();
                if fills {
                    return Ok(Entered::default());
                }
                let verb = Verb::of(&visitor.parts.method, path, visitor.query);
                let whole = path.subresource.as_deref().unwrap_or_default();
                let subresource = whole.split_once('/').map_or(whole, |(first, _)| first);
                // As upstream sees it, a namespace is in itself.
                let of_itself = path.group.is_empty() && path.resource == "namespaces";
                let namespace = if of_itself { &path.name } else { &path.namespace };
                let digest = Digest {
                    user: visitor.user,
                    verb: verb.as_str(),
                    what: What::Resource {
                        group: &path.group,
                        resource: &path.resource,
                        subresource,
                        namespace: namespace.as_deref().unwrap_or_default(),
                    },
                };
                let arrival = self.fairness.classify(&plane, &digest).await?;
                *classified = arrival.classified();
                let request = self.budgets.request(&plane)?;
                let watch = match verb {
                    Verb::Watch => self.budgets.watch(&plane)?,
                    _ => None,
                };
                let (width, measured) = self.fairness.sizes.estimate(plane.id, verb, path, visitor.query);
                let seat = self.fairness.enter(&plane, &arrival, width).await?;
                Ok(Entered {
                    seat,
                    request,
                    watch,
                    measured,
                })
            }
            _ => {
                let mut inside = String::with_capacity(32);
                for segment in &visitor.located.segments {
                    inside.push('/');
                    inside.push_str(segment);
                }
                let verb = visitor.parts.method.as_str().to_ascii_lowercase();
                let digest = Digest {
                    user: visitor.user,
                    verb: &verb,
                    what: What::Path(&inside),
                };
                let arrival = self.fairness.classify(&plane, &digest).await?;
                *classified = arrival.classified();
                if is_probe(visitor.located) {
                    return Ok(Entered::default());
                }
                let request = self.budgets.request(&plane)?;
                let seat = self.fairness.enter(&plane, &arrival, Width::ONE).await?;
                Ok(Entered {
                    seat,
                    request,
                    ..Entered::default()
                })
            }
        }
    }

    /// The plane whose seats a request takes: what is about more than one takes root's.
    async fn plane_of(&self, address: &Address) -> Result<Arc<Plane>, ApiError> {
        match address {
            Address::Root | Address::AllPlanes | Address::Organization(_) | Address::User(_) => {
                Ok(self.directory.root())
            }
            Address::Plane(_) | Address::Project(_) => self.plane(address).await,
        }
    }
}

/// Whether a request asks how the server is: always answered, lest an orchestrator kill a server that is merely busy.
fn is_probe(located: &Located) -> bool {
    let first = located.segments.first().map(compact_str::CompactString::as_str);
    matches!(first, Some("healthz" | "livez" | "readyz"))
}
