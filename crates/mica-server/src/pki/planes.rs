//! The authorities of planes.
//!
//! Each plane signs with keys of its own, derived from one secret of the store, the store's authority and the plane's id:
//! nothing is kept for a plane, all servers of a store agree, a plane that is made again under an old name has other keys,
//! and a new authority of the store means new ones for every plane.
//!
//! Invariant: what a plane signs counts in that plane only. Its clients' intermediate is signed by the store's authority, but
//! for a purpose that nobody knows: whoever trusts the store's authority and checks a chain for clients or servers refuses
//! it there. Only [`PlaneAuthorities::verify`], asked about one plane, takes it. What is for servers is signed by an
//! authority of the plane that nothing stands above.

use std::sync::Arc;

use arc_swap::ArcSwap;
use mica_api::PlaneId;
use quick_cache::sync::Cache;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::PkiError;
use super::authority::Authority;
use crate::authn::jwt::Key;
use crate::tls::{RefusedCertificate, provider};

/// Planes whose verifiers are kept. One is about 2 KB, and making it takes a tenth of a millisecond.
const CACHED: usize = 4096;

/// The purpose of intermediates: one of the ids that everybody may take without asking. Go's parser refuses a certificate with
/// a part of more than 31 bits.
const PURPOSE: [u64; 3] = [2, 25, 1_887_420_659];
const _: () = assert!(PURPOSE[2] < 1 << 31);

/// What the keys of a plane are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    Clients,
    Servers,
}

/// Signs for planes, and checks what was signed.
pub struct PlaneAuthorities {
    secret: [u8; 32],
    trusted: ArcSwap<Trusted>,
    verifiers: Cache<(u64, PlaneId), Arc<Verifiers>>,
}

struct Trusted {
    /// Grows with every change.
    generation: u64,
    current: Arc<Authority>,
    /// Those that signed before and are still believed.
    previous: Vec<CertificateDer<'static>>,
}

/// One for each authority of the store that is believed.
type Verifiers = Vec<Arc<dyn ClientCertVerifier>>;

impl PlaneAuthorities {
    pub fn new(secret: [u8; 32], current: Arc<Authority>) -> Self {
        Self {
            secret,
            trusted: ArcSwap::from_pointee(Trusted {
                generation: 0,
                current,
                previous: Vec::new(),
            }),
            verifiers: Cache::new(CACHED),
        }
    }

    /// From now on the store's authority is another; what planes signed under those before it counts while they are named.
    pub fn replace(&self, current: Arc<Authority>, previous: Vec<CertificateDer<'static>>) {
        let generation = self.generation() + 1;
        self.trusted.store(Arc::new(Trusted {
            generation,
            current,
            previous,
        }));
    }

    /// Tells apart what was found before and after [`PlaneAuthorities::replace`].
    pub fn generation(&self) -> u64 {
        self.trusted.load().generation
    }

    /// The authority that signs for a plane. Root's is the store's own.
    pub fn of(&self, plane: PlaneId, what: For) -> Result<Arc<Authority>, PkiError> {
        let trusted = self.trusted.load();
        if plane == PlaneId::ROOT {
            return Ok(trusted.current.clone());
        }
        let store = trusted.current.certificate();
        let key = self.key(store, plane, what)?;
        let key_pem = key.serialize_pem();
        let params = params(store, plane, what)?;
        let certificate = match what {
            For::Clients => trusted.current.certify(params, &key)?,
            For::Servers => params.self_signed(&key).map_err(PkiError::NotMade)?.pem(),
        };
        Authority::from_pem(&certificate, &key_pem).map(Arc::new)
    }

    /// Judges a chain, leaf first, at a plane: whether that very plane signed it, under an authority that is believed.
    pub fn verify(
        &self,
        plane: PlaneId,
        chain: &[CertificateDer<'static>],
        now: UnixTime,
    ) -> Result<(), RefusedCertificate> {
        let refused = |why: &dyn std::fmt::Display| RefusedCertificate::because(why);
        let leaf = chain.first().ok_or_else(|| refused(&"there is none"))?;
        let mut last = refused(&"there are no authorities");
        for verifier in self.verifiers(plane).map_err(|error| refused(&error))?.iter() {
            // What else the client sent does not count: planes sign leaves only.
            match verifier.verify_client_cert(leaf, &[], now) {
                Ok(_) => return Ok(()),
                Err(error) => last = refused(&error),
            }
        }
        Err(last)
    }

    fn verifiers(&self, plane: PlaneId) -> Result<Arc<Verifiers>, PkiError> {
        let trusted = self.trusted.load();
        let place = (trusted.generation, plane);
        if let Some(known) = self.verifiers.get(&place) {
            return Ok(known);
        }
        let stores = std::iter::once(trusted.current.certificate()).chain(&trusted.previous);
        let made: Result<Verifiers, _> = stores.map(|store| self.verifier(store, plane)).collect();
        let verifiers = Arc::new(made?);
        self.verifiers.insert(place, verifiers.clone());
        Ok(verifiers)
    }

    /// What takes certificates of a plane's key alone. An anchor is a name and a key: who signed it does not matter here.
    fn verifier(
        &self,
        store: &CertificateDer<'static>,
        plane: PlaneId,
    ) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
        let key = self.key(store, plane, For::Clients)?;
        let mut params = params(store, plane, For::Clients)?;
        params.extended_key_usages.clear();
        let anchor = params.self_signed(&key).map_err(PkiError::NotMade)?;
        let mut roots = RootCertStore::empty();
        roots.add(anchor.der().clone()).map_err(PkiError::unreadable)?;
        let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        built.map_err(PkiError::unreadable).map(|verifier| verifier as _)
    }

    fn key(&self, store: &CertificateDer<'_>, plane: PlaneId, what: For) -> Result<KeyPair, PkiError> {
        let (_, parsed) = X509Certificate::from_der(store).map_err(PkiError::unreadable)?;
        let under: String = Sha256::digest(parsed.public_key().raw)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let whose = match what {
            For::Clients => "clients",
            For::Servers => "servers",
        };
        let key = Key::derive(
            &self.secret,
            &format!("certificates of {whose} of {plane} under {under}"),
        );
        KeyPair::try_from(key.to_pkcs8()).map_err(PkiError::NotMade)
    }
}

/// What a plane's authority says of itself: as long-lived as the store's, below it nothing but leaves.
fn params(store: &CertificateDer<'_>, plane: PlaneId, what: For) -> Result<CertificateParams, PkiError> {
    let (_, parsed) = X509Certificate::from_der(store).map_err(PkiError::unreadable)?;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |seconds: i64| epoch + std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let (name, purposes) = match what {
        For::Clients => (
            format!("mica plane {plane}"),
            vec![ExtendedKeyUsagePurpose::Other(PURPOSE.to_vec())],
        ),
        For::Servers => (format!("mica plane {plane} servers"), Vec::new()),
    };
    params.distinguished_name.push(DnType::CommonName, name);
    let uri = format!("urn:mica:plane:{plane}")
        .try_into()
        .map_err(PkiError::NotMade)?;
    params.subject_alt_names = vec![SanType::URI(uri)];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = purposes;
    params.not_before = at(parsed.validity().not_before.timestamp());
    params.not_after = at(parsed.validity().not_after.timestamp());
    Ok(params)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::pki::Identity;
    use crate::tls::ClientRoots;

    fn masters(authority: &Authority) -> Vec<CertificateDer<'static>> {
        let identity = Identity {
            name: "mallory".to_owned(),
            group: Some("system:masters".to_owned()),
        };
        let issued = authority.issue_client(&identity, SystemTime::now()).unwrap();
        let leaf = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        vec![leaf, authority.certificate().clone()]
    }

    #[test]
    fn a_plane_signs_for_itself_alone() {
        let store = Arc::new(Authority::generate("ca", SystemTime::now()).unwrap());
        let planes = PlaneAuthorities::new([7; 32], store.clone());
        let again = PlaneAuthorities::new([7; 32], store.clone());
        let (one, two) = (PlaneId::from_random(1), PlaneId::from_random(2));
        let now = UnixTime::now();
        let chain = masters(&planes.of(one, For::Clients).unwrap());
        assert!(planes.verify(one, &chain, now).is_ok());
        assert!(
            again.verify(one, &chain[..1], now).is_ok(),
            "all servers of a store agree"
        );
        assert!(planes.verify(two, &chain, now).is_err());
        let roots = ClientRoots::new(&[store.certificate().clone()]).unwrap();
        assert!(roots.verify(&chain, now).is_err(), "nobody of the platform");
        assert!(roots.verify(&chain[..1], now).is_err());
        assert!(
            planes.verify(one, &masters(&store), now).is_err(),
            "the platform signs for no plane"
        );
        let other = PlaneAuthorities::new([8; 32], store.clone());
        assert!(other.verify(one, &chain, now).is_err(), "another store has other keys");
        let servers = masters(&planes.of(one, For::Servers).unwrap());
        assert!(
            planes.verify(one, &servers, now).is_err(),
            "what signs servers signs no clients"
        );
        assert!(roots.verify(&servers, now).is_err());
        let (_, intermediate) = X509Certificate::from_der(&chain[1]).unwrap();
        let (_, ca) = X509Certificate::from_der(store.certificate()).unwrap();
        intermediate.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(intermediate.subject().to_string(), format!("CN=mica plane {one}"));
    }

    #[test]
    fn what_was_signed_under_an_authority_counts_while_that_is_believed() {
        let at = SystemTime::now();
        let old = Arc::new(Authority::generate("ca", at).unwrap());
        let new = Arc::new(Authority::generate("ca-2", at).unwrap());
        let planes = PlaneAuthorities::new([7; 32], old.clone());
        let plane = PlaneId::from_random(1);
        let before = masters(&planes.of(plane, For::Clients).unwrap());
        planes.replace(new.clone(), vec![old.certificate().clone()]);
        let after = masters(&planes.of(plane, For::Clients).unwrap());
        let now = UnixTime::now();
        assert!(planes.verify(plane, &before, now).is_ok() && planes.verify(plane, &after, now).is_ok());
        planes.replace(new, Vec::new());
        assert!(planes.verify(plane, &before, now).is_err() && planes.verify(plane, &after, now).is_ok());
    }
}
