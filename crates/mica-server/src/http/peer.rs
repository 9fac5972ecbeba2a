//! Who is at the other end of a connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use mica_api::PlaneId;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::aside::Company;
use crate::authz::User;
use crate::plane::Plane;
use crate::tls::{PresentedCertificates, REUSE, RefusedCertificate};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Http1,
    Http2,
    /// A call from inside this process, not over a connection.
    InProcess,
}

/// One per connection, shared by its requests.
pub struct Peer {
    addr: SocketAddr,
    protocol: Protocol,
    server_name: Option<Box<str>>,
    certificates: Option<PresentedCertificates>,
    /// Whom the certificate names, read once.
    user: OnceLock<Option<Arc<User>>>,
    /// Whom it names in the plane that was asked about last.
    in_plane: ArcSwapOption<InPlane>,
    /// The plane that was asked last, which may be loud.
    company: Company,
    drain: CancellationToken,
    tasks: TaskTracker,
}

/// A user that a plane's own authority vouched for.
struct InPlane {
    plane: PlaneId,
    generation: u64,
    at: UnixTime,
    user: Arc<User>,
}

impl Peer {
    pub(super) fn connected(
        addr: SocketAddr,
        protocol: Protocol,
        server_name: Option<&str>,
        certificates: Option<PresentedCertificates>,
        drain: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            addr,
            protocol,
            server_name: server_name.map(Box::from),
            certificates,
            user: OnceLock::new(),
            in_plane: ArcSwapOption::empty(),
            company: Company::default(),
            drain,
            tasks,
        }
    }

    /// The peer of calls from inside this process.
    pub fn in_process(drain: CancellationToken) -> Self {
        Self {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            protocol: Protocol::InProcess,
            server_name: None,
            certificates: None,
            user: OnceLock::new(),
            in_plane: ArcSwapOption::empty(),
            company: Company::default(),
            drain,
            tasks: TaskTracker::new(),
        }
    }

    /// The peer of calls from inside this process by somebody in particular, who may do what authorization says.
    pub fn in_process_as(user: User, drain: CancellationToken) -> Self {
        Self {
            user: OnceLock::from(Some(Arc::new(user))),
            ..Self::in_process(drain)
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The host that the client named in the handshake.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The chain that the client proved to hold the key of, leaf first, if it is good at `now` under the server's own roots.
    ///
    /// `Ok(None)` when no certificate was presented. A bad one is no failed handshake but an error here, so that the request
    /// can be answered with 401 as upstream does.
    pub fn verified_chain(&self, now: UnixTime) -> Result<Option<&[CertificateDer<'static>]>, RefusedCertificate> {
        self.certificates
            .as_ref()
            .map(|presented| presented.verified(now))
            .transpose()
    }

    /// The chain as presented, for roots other than the server's own (a plane's). It is proven that the client holds the key,
    /// nothing else.
    pub fn presented_chain(&self) -> &[CertificateDer<'static>] {
        self.certificates
            .as_ref()
            .map_or(&[], PresentedCertificates::unverified)
    }

    /// The user that `read` finds in this connection's certificate, which does not change. Whether it counts is another
    /// question: see [`Peer::verified_chain`].
    pub fn user(&self, read: impl FnOnce() -> Option<User>) -> Option<&Arc<User>> {
        self.user.get_or_init(|| read().map(Arc::new)).as_ref()
    }

    /// The user of a plane that `prove` finds in the chain as presented. What was found is reused for as long as other good
    /// judgements are, while `generation` is the same.
    pub fn user_in(
        &self,
        plane: PlaneId,
        generation: u64,
        now: UnixTime,
        prove: impl FnOnce(&[CertificateDer<'static>]) -> Result<User, RefusedCertificate>,
    ) -> Result<Arc<User>, RefusedCertificate> {
        if let Some(known) = &*self.in_plane.load()
            && (known.plane, known.generation) == (plane, generation)
            && now.as_secs().abs_diff(known.at.as_secs()) < REUSE.as_secs()
        {
            return Ok(known.user.clone());
        }
        let user = Arc::new(prove(self.presented_chain())?);
        self.in_plane.store(Some(Arc::new(InPlane {
            plane,
            generation,
            at: now,
            user: user.clone(),
        })));
        Ok(user)
    }

    /// A request of this connection is for this plane.
    pub fn asks(&self, plane: &Arc<Plane>) {
        self.company.keep(plane);
    }

    /// Whether the connection serves a loud plane.
    pub fn is_loud(&self) -> bool {
        self.company.is_loud()
    }

    /// Cancelled when the server drains: watches end then.
    pub fn drain(&self) -> &CancellationToken {
        &self.drain
    }

    /// Runs what outlives the request, such as an upgraded connection. Shutdown waits for it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}
