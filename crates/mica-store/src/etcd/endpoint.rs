//! The endpoints of one etcd, and how connections to them are made.
//!
//! Surprise: a connection to a process that hangs is made all the same, by its kernel. That nobody answers is noticed by
//! timeouts and pings, never by dialling.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::config::{EtcdConfig, InvalidConfig};
use super::failure::{Cause, Failure};

/// One attempt to connect, handshakes included.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// etcd closes connections that are pinged more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

pub struct Endpoints {
    targets: Vec<Target>,
    serial: AtomicU64,
}

struct Target {
    endpoint: Endpoint,
    name: String,
}

/// A connection to one endpoint.
pub struct Connection {
    pub channel: Channel,
    /// The number of the endpoint.
    pub target: usize,
    /// No two connections have the same.
    pub serial: u64,
}

/// When keep-alive pings are sent. etcd takes offence at pings on a connection without any stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pings {
    DuringRequests,
    Always,
}

impl Endpoints {
    pub fn new(config: &EtcdConfig) -> Result<Self, InvalidConfig> {
        let targets = config.endpoints.iter().map(|name| target(name, config));
        Ok(Self {
            targets: targets.collect::<Result<_, _>>()?,
            serial: AtomicU64::new(0),
        })
    }

    /// All of them, for messages.
    pub fn names(&self) -> String {
        let names: Vec<_> = self.targets.iter().map(|target| target.name.as_str()).collect();
        names.join(", ")
    }

    pub fn name(&self, target: usize) -> &str {
        &self.targets[target].name
    }

    /// Connects to the first endpoint that answers, beginning with number `first` (counted round and round).
    pub async fn dial(&self, first: usize, pings: Pings) -> Result<Connection, Failure> {
        let mut reasons: Vec<String> = Vec::new();
        for offset in 0..self.targets.len() {
            let number = first.wrapping_add(offset) % self.targets.len();
            let target = &self.targets[number];
            let endpoint = target.endpoint.clone().keep_alive_while_idle(pings == Pings::Always);
            let reason = match timeout(DIAL_TIMEOUT, endpoint.connect()).await {
                Ok(Ok(channel)) => {
                    let serial = self.serial.fetch_add(1, Ordering::Relaxed);
                    return Ok(Connection {
                        channel,
                        target: number,
                        serial,
                    });
                }
                Ok(Err(err)) => Cause::from(err).to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            reasons.push(format!("{}: {reason}", target.name));
        }
        Err(Failure::not_done(reasons.join("; ")))
    }
}

fn target(name: &str, config: &EtcdConfig) -> Result<Target, InvalidConfig> {
    let unusable = |err| InvalidConfig::new(format!("cannot use {name}: {}", Cause::from(err)));
    let mut endpoint = Endpoint::from_shared(name.to_owned())
        .map_err(unusable)?
        .connect_timeout(DIAL_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if let Some(tls) = config.tls.as_ref().filter(|_| name.starts_with("https://")) {
        let mut files = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
        if let Some((certificate, key)) = &tls.identity {
            files = files.identity(Identity::from_pem(certificate, key));
        }
        if let Some(server_name) = &tls.server_name {
            files = files.domain_name(server_name);
        }
        endpoint = endpoint.tls_config(files).map_err(unusable)?;
    }
    Ok(Target {
        endpoint,
        name: name.to_owned(),
    })
}
