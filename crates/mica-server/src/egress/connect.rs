//! From a place to an encrypted connection: names are resolved, addresses checked, and only checked addresses connected to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::Networks;
use super::failure::Cause;
use super::target::{ChosenBy, Place};
use super::trust::{self, Trust};

/// Names resolved at once. The system's resolver blocks a thread for each, and other work wants threads too.
const LOOKUPS: usize = 64;
/// Addresses of one name that are tried.
const ADDRESSES: usize = 4;
/// Time for one of several addresses: the last has all that is left.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);

pub(super) struct Connector {
    allow: Networks,
    trust: Trust,
    lookups: Arc<Semaphore>,
}

impl Connector {
    pub(super) fn new(allow: Networks) -> Self {
        Self {
            allow,
            trust: Trust::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        }
    }

    /// Connects and shakes hands. The caller bounds the time.
    pub(super) async fn connect(&self, place: &Place) -> Result<TlsStream<TcpStream>, Cause> {
        let config = self
            .trust
            .config(&place.ca_bundle, place.identity.as_ref())
            .map_err(Cause::Tls)?;
        let addresses = self.addresses(place).await?;
        let tcp = dial(&addresses).await?;
        let connecting = TlsConnector::from(config).connect(place.server_name.clone(), tcp);
        connecting
            .await
            .map_err(|error| Cause::Tls(trust::handshake_error(&error, &place.server_name)))
    }

    /// The addresses of a place that its tenant may reach.
    async fn addresses(&self, place: &Place) -> Result<Vec<SocketAddr>, Cause> {
        let found = match place.host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, place.port)],
            Err(_) => self.resolve(&place.host, place.port).await?,
        };
        let Some(first) = found.first().copied() else {
            return Err(Cause::NoHost(place.host.clone()));
        };
        let may = |at: &SocketAddr| {
            let ip = at.ip();
            place.chosen_by == ChosenBy::Operator || self.allow.allow(place.tenant, ip) || place.reach.has(ip)
        };
        let allowed: Vec<SocketAddr> = found.into_iter().filter(may).take(ADDRESSES).collect();
        if allowed.is_empty() {
            return Err(Cause::Forbidden(first));
        }
        Ok(allowed)
    }

    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Cause> {
        let turn = self.lookups.clone().acquire_owned().await;
        let turn = turn.expect("the semaphore is never closed");
        let name = host.to_owned();
        // The turn goes with the lookup, not with the caller: one that is given up goes on blocking its thread.
        let looking = tokio::spawn(async move {
            let _turn = turn;
            let found = tokio::net::lookup_host((name.as_str(), port)).await;
            found.map(Iterator::collect::<Vec<_>>)
        });
        match looking.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) | Err(_) => Err(Cause::NoHost(host.to_owned())),
        }
    }
}

/// Connects to the first address that answers.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, Cause> {
    let mut failure = None;
    for (i, at) in addresses.iter().enumerate() {
        let connecting = TcpStream::connect(at);
        let connected = if i + 1 == addresses.len() {
            connecting.await
        } else {
            match tokio::time::timeout(ADDRESS_PATIENCE, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
            }
        };
        match connected {
            Ok(stream) => {
                // Requests are written in one piece: there is nothing to gather.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => {
                failure.get_or_insert(Cause::connect(*at, &error));
            }
        }
    }
    Err(failure.expect("there is at least one address"))
}
