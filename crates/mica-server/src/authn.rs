//! Who asks: the client certificate of the platform's CA, for now the only proof there is.

use http::HeaderMap;
use rustls_pki_types::UnixTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authz::User;
use crate::error::ApiError;
use crate::http::{Context, Protocol};

/// Turns what a connection proved into a user.
#[derive(Clone, Copy, Debug, Default)]
pub struct Authenticator;

impl Authenticator {
    pub fn authenticate(self, context: &Context, headers: &HeaderMap) -> Result<User, ApiError> {
        if context.peer.protocol() == Protocol::InProcess {
            return Ok(User::system());
        }
        let chain = context
            .peer
            .verified_chain(UnixTime::now())
            .map_err(|error| ApiError::unauthorized().because(error))?;
        match chain.and_then(|chain| chain.first()) {
            Some(leaf) => user_of(leaf).ok_or_else(ApiError::unauthorized),
            // A token that nothing can check is a failed proof, not the absence of one.
            None if headers.contains_key(http::header::AUTHORIZATION) => Err(ApiError::unauthorized()),
            None => Ok(User::anonymous()),
        }
    }
}

/// Paths that upstream's default roles open to everybody.
pub fn is_public(segments: &[String]) -> bool {
    matches!(segments.first().map(String::as_str), Some("healthz" | "livez" | "readyz" | "version"))
}

/// The common name is the user, organizations are groups.
fn user_of(leaf: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|group| group.as_str().ok().map(ToOwned::to_owned)).collect();
    groups.push("system:authenticated".to_owned());
    Some(User { name, groups, ..User::default() })
}
