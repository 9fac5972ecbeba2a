//! The certificates of a Mica server: an authority, what it issues, where it is kept, and how it is renewed.
//!
//! [`Authority`] knows only PEM, so that it can come from a shared store as well as from a directory ([`PkiDir`]). Keys are
//! ECDSA P-256 in PKCS#8. Time is an argument everywhere but in the renewal loop.

mod authority;
mod der;
mod directory;
mod kubeconfig;
mod planes;
mod renewal;
mod request;
mod shared;

pub(crate) use authority::dns_names;
pub use authority::{ADMIN_GROUP, ADMIN_NAME, Authority, Identity, Issued, serving_names};
pub use directory::{PkiDir, write_private};
pub use kubeconfig::{Kubeconfig, admin_kubeconfig};
pub use planes::{For, PlaneAuthorities};
pub use renewal::Renewal;
pub use request::{SigningRequest, ask};
pub use shared::{SharedAuthorityError, shared_authority};

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("a certificate or key could not be made")]
    NotMade(#[source] rcgen::Error),
    #[error("a certificate or key cannot be read: {0}")]
    Unreadable(String),
    #[error("the authority's certificate and key do not belong together")]
    Mismatch,
    #[error("the authority in {0} is not the one of the store: they must be the same, or the directory's removed")]
    OtherAuthority(String),
    #[error("{path}: {action} failed")]
    Io {
        path: String,
        action: &'static str,
        #[source]
        source: std::io::Error,
    },
}

impl PkiError {
    pub(crate) fn unreadable(error: impl std::fmt::Display) -> Self {
        Self::Unreadable(error.to_string())
    }
}
