//! Users named in headers by a proxy that stands in front, which proves itself with a certificate of its own authority.
//!
//! The headers of everybody else name nobody. Nothing here passes headers on, so that there is nothing to take out of requests.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use quick_cache::sync::Cache;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::authz::{ANONYMOUS, User};
use crate::tls::ClientRoots;

/// Chains that were found good and are not looked at again for a while.
const CACHED_CHAINS: usize = 256;
/// How long: expiry is noticed this much late at most.
const REUSE: u64 = 30;

/// Which headers name what. Several names of one are tried in turn.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    pub username: Vec<String>,
    pub uid: Vec<String>,
    pub group: Vec<String>,
    /// What headers of extras begin with.
    pub extra_prefixes: Vec<String>,
}

impl Headers {
    /// Those that proxies of Kubernetes use.
    pub fn usual() -> Self {
        let list = |name: &str| vec![name.to_owned()];
        Self {
            username: list("X-Remote-User"),
            uid: list("X-Remote-Uid"),
            group: list("X-Remote-Group"),
            extra_prefixes: list("X-Remote-Extra-"),
        }
    }
}

/// Why a text names no authorities.
#[derive(Debug, thiserror::Error)]
pub enum BadAuthorities {
    #[error("data does not contain any valid RSA or ECDSA certificates")]
    None,
    #[error("{0}")]
    Unreadable(String),
}

/// A proxy that may say who asks.
pub struct FrontProxy {
    roots: ClientRoots,
    /// The same, in PEM.
    authorities: ArcSwap<String>,
    /// Common names that its certificate may have; any, if there are none.
    names: Vec<String>,
    headers: Headers,
    good: Cache<[u8; 32], (u64, u64)>,
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, BadAuthorities> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => Err(BadAuthorities::None),
        Ok(found) => Ok(found),
        Err(error) => Err(BadAuthorities::Unreadable(error.to_string())),
    }
}

impl fmt::Debug for FrontProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontProxy")
            .field("names", &self.names)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl FrontProxy {
    /// Proxies that have a certificate of one of these authorities (PEM).
    pub fn new(authorities: &str, names: Vec<String>, headers: Headers) -> Result<Self, BadAuthorities> {
        let roots = ClientRoots::new(&certificates(authorities)?);
        Ok(Self {
            roots: roots.map_err(|error| BadAuthorities::Unreadable(error.to_string()))?,
            authorities: ArcSwap::from_pointee(authorities.to_owned()),
            names,
            headers,
            good: Cache::new(CACHED_CHAINS),
        })
    }

    /// From now on proxies need a certificate of one of these.
    pub fn replace(&self, authorities: &str) -> Result<(), BadAuthorities> {
        let replaced = self.roots.replace(&certificates(authorities)?);
        replaced.map_err(|error| BadAuthorities::Unreadable(error.to_string()))?;
        self.authorities.store(Arc::new(authorities.to_owned()));
        Ok(())
    }

    pub fn authorities(&self) -> String {
        self.authorities.load().to_string()
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The user that headers name, if who sends them is the proxy.
    pub(super) fn prove(&self, chain: &[CertificateDer<'static>], headers: &HeaderMap) -> Option<User> {
        let leaf = chain.first()?;
        let texts = |names: &[String]| -> Vec<String> {
            let values = names.iter().flat_map(|name| headers.get_all(name.as_str()));
            let texts = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
            texts.filter(|text| !text.is_empty()).map(ToOwned::to_owned).collect()
        };
        let first = |names: &[String]| texts(names).into_iter().next();
        let name = first(&self.headers.username)?;
        if !self.is_proxy(leaf, chain) {
            return None;
        }
        let mut groups = texts(&self.headers.group);
        if name != ANONYMOUS && !groups.iter().any(|group| group == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        Some(User {
            name,
            uid: first(&self.headers.uid).unwrap_or_default(),
            groups,
            extra: self.extra(headers),
            ..User::default()
        })
    }

    fn extra(&self, headers: &HeaderMap) -> Vec<(String, Vec<String>)> {
        let mut extra: Vec<(String, Vec<String>)> = Vec::new();
        for name in headers.keys() {
            for prefix in &self.headers.extra_prefixes {
                let Some(key) = name.as_str().strip_prefix(prefix.to_ascii_lowercase().as_str()) else {
                    continue;
                };
                let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
                let values = headers.get_all(name).iter();
                let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
                match extra.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, known)) => known.extend(values),
                    None => extra.push((key, values.collect())),
                }
            }
        }
        extra.sort();
        extra
    }

    fn is_proxy(&self, leaf: &CertificateDer<'static>, chain: &[CertificateDer<'static>]) -> bool {
        let mut hash = Sha256::new();
        chain.iter().for_each(|one| hash.update(one));
        let hash: [u8; 32] = hash.finalize().into();
        let (now, generation) = (UnixTime::now(), self.roots.generation());
        let known = self.good.get(&hash);
        if known.is_some_and(|(at, of)| of == generation && now.as_secs().abs_diff(at) < REUSE) {
            return true;
        }
        if self.roots.verify(chain, now).is_err() {
            return false;
        }
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
            return false;
        };
        let name = certificate.subject().iter_common_name().next();
        let name = name.and_then(|name| name.as_str().ok()).unwrap_or_default();
        let is = self.names.is_empty() || self.names.iter().any(|known| known == name);
        if is {
            self.good.insert(hash, (now.as_secs(), generation));
        }
        is
    }
}
