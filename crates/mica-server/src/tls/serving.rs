//! The certificates the server shows: its own, replaced while it runs, and one per plane host, minted on handshake.
//!
//! rustls chooses without waiting, but whether a host belongs to a plane may take a read of the store. So a handshake has
//! two steps: [`ServingCertificates::prepare`] for the host it names, then the choice, from memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::pki::{Authority, Issued, PkiError, dns_names};

/// Minted certificates kept: a few hundred bytes each, and minting one again costs a signature.
const MAX_HOSTS: usize = 1024;

/// Says whether a host name from a handshake belongs to a plane.
pub type IsKnownHost = Box<dyn Fn(String) -> BoxFuture<'static, bool> + Send + Sync>;

/// Chooses the certificate by the host that the client names.
pub struct ServingCertificates {
    main: ArcSwap<Main>,
    hosts: Option<Hosts>,
}

struct Main {
    key: Arc<CertifiedKey>,
    /// The DNS names in it: handshakes that name one of these need nothing else.
    names: Vec<String>,
}

struct Hosts {
    authority: Arc<Authority>,
    is_known: IsKnownHost,
    minted: Mutex<Minted>,
}

/// Least recently used goes first; ages are turns of a counter.
#[derive(Default)]
struct Minted {
    turn: u64,
    by_host: HashMap<Box<str>, (u64, Arc<CertifiedKey>, SystemTime)>,
}

/// A chain and key as rustls wants them; fails if the two do not belong together.
pub fn certified_key(issued: &Issued) -> Result<CertifiedKey, PkiError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(PkiError::unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).map_err(PkiError::unreadable)?;
    CertifiedKey::from_der(chain, key, &super::provider()).map_err(PkiError::unreadable)
}

impl ServingCertificates {
    pub fn new(main: CertifiedKey) -> Self {
        Self {
            main: ArcSwap::from_pointee(Main::new(main)),
            hosts: None,
        }
    }

    /// Also mints certificates for hosts that `is_known` vouches for.
    #[must_use]
    pub fn with_hosts(mut self, authority: Arc<Authority>, is_known: IsKnownHost) -> Self {
        self.hosts = Some(Hosts {
            authority,
            is_known,
            minted: Mutex::default(),
        });
        self
    }

    /// Handshakes from now on show this certificate.
    pub fn replace(&self, main: CertifiedKey) {
        self.main.store(Arc::new(Main::new(main)));
    }

    /// What handshakes that name no plane's host are shown.
    pub fn shown(&self) -> Arc<CertifiedKey> {
        self.main.load().key.clone()
    }

    /// Makes sure that a handshake which names this host finds a certificate for it, if the host is a plane's.
    pub async fn prepare(&self, host: &str, now: SystemTime) {
        let Some(hosts) = &self.hosts else { return };
        if self.main.load().names.iter().any(|name| name == host) {
            return;
        }
        // Asked each time, not only when minting: a plane that is gone loses its host.
        if !(hosts.is_known)(host.to_owned()).await {
            hosts.minted.lock().by_host.remove(host);
        } else if hosts.minted.lock().get(host, now).is_none() {
            hosts.mint(host, now);
        }
    }

    fn choose(&self, host: Option<&str>, now: SystemTime) -> Arc<CertifiedKey> {
        let minted = host
            .zip(self.hosts.as_ref())
            .and_then(|(host, hosts)| hosts.minted.lock().get(host, now));
        minted.unwrap_or_else(|| self.shown())
    }
}

impl Main {
    fn new(key: CertifiedKey) -> Self {
        let names = key.end_entity_cert().map(|leaf| dns_names(leaf)).unwrap_or_default();
        Self {
            key: Arc::new(key),
            names,
        }
    }
}

impl Hosts {
    fn mint(&self, host: &str, now: SystemTime) {
        let made = self
            .authority
            .issue_serving(host, &[host.to_owned()], now)
            .and_then(|issued| {
                let renew_at = issued.renew_at;
                certified_key(&issued).map(|key| (Arc::new(key), renew_at))
            });
        match made {
            Ok((key, renew_at)) => self.minted.lock().put(host, key, renew_at),
            Err(error) => tracing::warn!(host, %error, "no certificate could be made for a plane's host"),
        }
    }
}

impl Minted {
    fn get(&mut self, host: &str, now: SystemTime) -> Option<Arc<CertifiedKey>> {
        self.turn += 1;
        let (turn, key, renew_at) = self.by_host.get_mut(host)?;
        if *renew_at <= now {
            return None;
        }
        *turn = self.turn;
        Some(key.clone())
    }

    fn put(&mut self, host: &str, key: Arc<CertifiedKey>, renew_at: SystemTime) {
        if self.by_host.len() >= MAX_HOSTS && !self.by_host.contains_key(host) {
            // A scan, but only once per minted certificate, and minting costs far more.
            if let Some(oldest) = self
                .by_host
                .iter()
                .min_by_key(|(_, (turn, ..))| *turn)
                .map(|(host, _)| host.clone())
            {
                self.by_host.remove(&oldest);
            }
        }
        self.turn += 1;
        self.by_host.insert(host.into(), (self.turn, key, renew_at));
    }
}

impl ResolvesServerCert for ServingCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.choose(hello.server_name(), SystemTime::now()))
    }
}

impl std::fmt::Debug for ServingCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCertificates").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn known_hosts_get_their_own_certificate_and_the_cache_is_bounded() {
        let now = SystemTime::now();
        let authority = Arc::new(Authority::generate("ca", now).unwrap());
        let main = authority.issue_serving("main", &["localhost".to_owned()], now).unwrap();
        let is_known: IsKnownHost = Box::new(|host| Box::pin(async move { host.ends_with(".planes.example") }));
        let certificates = ServingCertificates::new(certified_key(&main).unwrap()).with_hosts(authority, is_known);
        let shown = async |host: &str| {
            certificates.prepare(host, now).await;
            certificates.choose(Some(host), now)
        };
        let main = certificates.choose(None, now);
        assert!(Arc::ptr_eq(&main, &shown("elsewhere.example").await));
        assert!(Arc::ptr_eq(&main, &shown("localhost").await));
        let first = shown("p0.planes.example").await;
        assert!(!Arc::ptr_eq(&main, &first));
        assert!(Arc::ptr_eq(&first, &shown("p0.planes.example").await), "cached");
        let hosts = certificates.hosts.as_ref().unwrap();
        for i in 0..MAX_HOSTS + 10 {
            hosts.minted.lock().put(&format!("filler{i}"), first.clone(), now);
        }
        assert_eq!(hosts.minted.lock().by_host.len(), MAX_HOSTS);
        assert!(
            !Arc::ptr_eq(&first, &shown("p0.planes.example").await),
            "evicted and minted again"
        );
    }
}
