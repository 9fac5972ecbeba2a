//! Client certificates: proof of possession in the handshake, judgement when a request needs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

/// Why a client's certificate does not count. For the log; the client only learns 401.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the client's certificate is refused: {0}")]
pub struct RefusedCertificate(String);

impl RefusedCertificate {
    pub(crate) fn because(why: &dyn std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("not a usable authority certificate")]
pub struct UnusableRoots(#[source] rustls::Error);

/// The authorities whose client certificates count, replaceable at any time.
pub struct ClientRoots {
    current: ArcSwap<Roots>,
    provider: Arc<CryptoProvider>,
}

struct Roots {
    /// Grows with every replacement, so that earlier judgements are not reused.
    generation: u64,
    /// `None` when there are no roots: then nothing counts.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

static GENERATION: AtomicU64 = AtomicU64::new(1);

impl ClientRoots {
    pub fn new(authorities: &[CertificateDer<'static>]) -> Result<Self, UnusableRoots> {
        let provider = super::provider();
        let roots = Roots::new(authorities, &provider)?;
        Ok(Self {
            current: ArcSwap::from_pointee(roots),
            provider,
        })
    }

    /// From now on only certificates of these authorities count, also on connections that are open.
    pub fn replace(&self, authorities: &[CertificateDer<'static>]) -> Result<(), UnusableRoots> {
        self.current.store(Arc::new(Roots::new(authorities, &self.provider)?));
        Ok(())
    }

    /// Grows with every replacement.
    pub fn generation(&self) -> u64 {
        self.current.load().generation
    }

    /// Judges a chain, leaf first. The key's possession must have been proven by a handshake.
    pub fn verify(&self, chain: &[CertificateDer<'static>], now: UnixTime) -> Result<(), RefusedCertificate> {
        self.current.load().verify(chain, now)
    }
}

impl Roots {
    fn new(authorities: &[CertificateDer<'static>], provider: &Arc<CryptoProvider>) -> Result<Self, UnusableRoots> {
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        if authorities.is_empty() {
            return Ok(Self {
                generation,
                verifier: None,
            });
        }
        let mut store = RootCertStore::empty();
        for authority in authorities {
            store.add(authority.clone()).map_err(UnusableRoots)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider.clone())
            .build()
            .map_err(|error| UnusableRoots(rustls::Error::General(error.to_string())))?;
        Ok(Self {
            generation,
            verifier: Some(verifier),
        })
    }

    fn verify(&self, chain: &[CertificateDer<'static>], now: UnixTime) -> Result<(), RefusedCertificate> {
        let verifier = self
            .verifier
            .as_ref()
            .ok_or_else(|| RefusedCertificate("there are no authorities".to_owned()))?;
        let (leaf, intermediates) = chain
            .split_first()
            .ok_or_else(|| RefusedCertificate("there is none".to_owned()))?;
        verifier
            .verify_client_cert(leaf, intermediates, now)
            .map(|_verified| ())
            .map_err(|error| RefusedCertificate(error.to_string()))
    }
}

/// How long a good judgement is reused: expiry is noticed this much late at most. Checking a signature costs more than
/// answering a small request.
pub(crate) const REUSE: Duration = Duration::from_secs(30);

/// The certificates that came with a connection, judged again when the roots change or time has passed.
pub struct PresentedCertificates {
    chain: Vec<CertificateDer<'static>>,
    roots: Arc<ClientRoots>,
    good: ArcSwapOption<Judgement>,
}

struct Judgement {
    generation: u64,
    at: UnixTime,
}

impl PresentedCertificates {
    pub fn new(chain: Vec<CertificateDer<'static>>, roots: Arc<ClientRoots>) -> Self {
        Self {
            chain,
            roots,
            good: ArcSwapOption::empty(),
        }
    }

    /// The chain, leaf first, if it is good at `now`.
    pub fn verified(&self, now: UnixTime) -> Result<&[CertificateDer<'static>], RefusedCertificate> {
        let roots = self.roots.current.load();
        let fresh = self.good.load().as_ref().is_some_and(|good| {
            good.generation == roots.generation && now.as_secs().abs_diff(good.at.as_secs()) < REUSE.as_secs()
        });
        if !fresh {
            roots.verify(&self.chain, now)?;
            self.good.store(Some(Arc::new(Judgement {
                generation: roots.generation,
                at: now,
            })));
        }
        Ok(&self.chain)
    }

    pub fn unverified(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

/// Asks for a client certificate, takes none for an answer, and checks nothing but that the client holds its key.
#[derive(Debug)]
pub(super) struct ProofOfPossession(WebPkiSupportedAlgorithms);

impl ProofOfPossession {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ClientCertVerifier for ProofOfPossession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// No hints: the authorities may change, and a plane may have its own. Clients then send what they have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pki::{Authority, Identity};

    fn now(offset: u64) -> UnixTime {
        UnixTime::since_unix_epoch(
            UnixTime::now()
                .as_secs()
                .checked_add(offset)
                .map(Duration::from_secs)
                .unwrap(),
        )
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        use rustls::pki_types::pem::PemObject as _;
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_chain_counts_under_its_own_roots_until_it_expires_or_they_change() {
        let at = std::time::SystemTime::now();
        let ours = Authority::generate("ours", at).unwrap();
        let theirs = Authority::generate("theirs", at).unwrap();
        let leaf = ours
            .issue_client(
                &Identity {
                    name: "a".into(),
                    group: None,
                },
                at,
            )
            .unwrap();
        let roots = Arc::new(ClientRoots::new(&[ours.certificate().clone()]).unwrap());
        let presented = PresentedCertificates::new(vec![der(&leaf.certificate_pem)], roots.clone());
        assert_eq!(presented.verified(now(0)).unwrap().len(), 1);
        assert!(presented.verified(now(2 * 365 * 24 * 3600)).is_err(), "expired");
        assert!(presented.verified(now(0)).is_ok());
        roots.replace(&[theirs.certificate().clone()]).unwrap();
        assert!(presented.verified(now(0)).is_err(), "judged under the old roots only");
        roots
            .replace(&[theirs.certificate().clone(), ours.certificate().clone()])
            .unwrap();
        assert!(presented.verified(now(0)).is_ok());
        roots.replace(&[]).unwrap();
        assert!(presented.verified(now(0)).is_err());
    }
}
