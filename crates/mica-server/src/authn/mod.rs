//! Who asks: what a connection and a request prove, in which realm, and whom they act as.

pub mod account;
mod impersonate;
mod jwt;
mod tokens;

use std::sync::Arc;

use http::HeaderMap;
use rustls_pki_types::UnixTime;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authz::{Realm, User};
use crate::error::ApiError;
use crate::http::{Context, Protocol};
use crate::request::{Address, Located};
use crate::serve::Server;

pub use tokens::{BadTokens, Tokens};

/// Which credential a user came with, in the extra of whoever came with a certificate.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// What counts as a proof beside the certificates of trusted authorities.
#[derive(Clone, Debug, Default)]
pub struct Authenticator {
    pub tokens: Tokens,
    pub anonymous: Anonymous,
    pub trust: Trust,
}

/// Whether those who prove nothing are somebody: `system:anonymous`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Anonymous {
    #[default]
    Allowed,
    Refused,
}

/// What those who proved themselves may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// What roles and bindings say.
    #[default]
    Authorized,
    /// Everything: whoever runs the server asked for no authorization.
    Everything,
}
/// What upstream says about a token that proves nothing.
pub const INVALID: &str = "invalid bearer token";

impl Server {
    /// Whom a request counts as: who proved themselves, or whom they may act as.
    pub(crate) async fn authenticate(
        &self,
        context: &Context,
        headers: &HeaderMap,
        located: &Located,
    ) -> Result<Arc<User>, ApiError> {
        let user = match self.authenticator.prove(context)? {
            Some(user) => user,
            None => match bearer(headers)? {
                Some(token) => Box::pin(self.prove_token(token, &located.address)).await?,
                None => self.authenticator.nobody()?,
            },
        };
        // Audit tells of who asked, also where that one acts as another.
        let _ = context.proven.set(user.clone());
        match impersonate::asked(headers)? {
            None => Ok(user),
            Some(other) => Box::pin(self.impersonate(&user, other, &located.address)).await,
        }
    }

    /// The user that a token proves: of the plane that the request is for, or of the platform.
    async fn prove_token(&self, token: &str, address: &Address) -> Result<Arc<User>, ApiError> {
        if let Some(user) = self.authenticator.tokens.user(token) {
            return Ok(Arc::new(self.authenticator.trusted(user.clone())));
        }
        let root = self.directory.root();
        let plane = match address {
            Address::AllPlanes => None,
            address => self.plane(address).await.ok().filter(|plane| !plane.is_root()),
        };
        for plane in plane.iter().chain([&root]) {
            let audience = [self.accounts.issuer(plane)];
            if let Ok(proven) = self.accounts.check(&self.registry, plane, token, &audience).await {
                return Ok(match self.authenticator.trust {
                    Trust::Authorized => proven.user,
                    Trust::Everything => Arc::new(self.authenticator.trusted((*proven.user).clone())),
                });
            }
        }
        Err(ApiError::unauthorized())
    }

    /// Decides about a request that something beside the API answers, by root's roles for its path.
    pub async fn authorize_path_of_root<B>(
        &self,
        context: &Context,
        request: &http::Request<B>,
    ) -> Result<(), ApiError> {
        let located = Located {
            address: Address::Root,
            segments: Vec::new(),
            prefix: String::new(),
        };
        let user = self.authenticate(context, request.headers(), &located).await?;
        let verb = request.method().as_str().to_ascii_lowercase();
        let root = self.directory.root();
        let authorizer = &self.authorizer;
        let allowed = authorizer.authorize_path(&user, &root, &verb, request.uri().path());
        allowed.await.map(drop)
    }

    /// The user that another wants to act as. It is one of the plane that the request is for.
    async fn impersonate(&self, user: &User, mut other: User, address: &Address) -> Result<Arc<User>, ApiError> {
        let plane = match address {
            Address::AllPlanes => self.directory.root(),
            address => self.plane_for(user, address).await?,
        };
        if !user.administers(plane.id) {
            for action in impersonate::actions(&other) {
                self.authorizer.require(user, &plane, action).await?;
            }
        }
        if !plane.is_root() {
            other.realm = Realm::Plane(plane.id);
        }
        Ok(Arc::new(other))
    }
}

impl Authenticator {
    /// The user that a connection proves.
    fn prove(&self, context: &Context) -> Result<Option<Arc<User>>, ApiError> {
        if context.peer.protocol() == Protocol::InProcess {
            return Ok(Some(Arc::new(User::system())));
        }
        let chain = context
            .peer
            .verified_chain(UnixTime::now())
            .map_err(|error| ApiError::unauthorized().because(error))?;
        let Some(leaf) = chain.and_then(|chain| chain.first()) else {
            return Ok(None);
        };
        let user = context.peer.user(|| user_of(leaf).map(|user| self.trusted(user)));
        user.cloned().map(Some).ok_or_else(ApiError::unauthorized)
    }

    /// Whoever proves nothing.
    fn nobody(&self) -> Result<Arc<User>, ApiError> {
        match self.anonymous {
            Anonymous::Refused => Err(ApiError::unauthorized()),
            Anonymous::Allowed => Ok(Arc::new(User::anonymous())),
        }
    }

    fn trusted(&self, user: User) -> User {
        User {
            trust: self.trust,
            ..user
        }
    }
}

/// The token that a request brings. Credentials of another sort are a failed proof, not the absence of one.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get(http::header::AUTHORIZATION) else {
        return Ok(None);
    };
    let token = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    match token {
        Some(token) if !token.is_empty() => Ok(Some(token)),
        _ => Err(ApiError::unauthorized()),
    }
}

/// The common name is the user, organizations are groups.
fn user_of(leaf: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok().map(ToOwned::to_owned))
        .collect();
    groups.push("system:authenticated".to_owned());
    let fingerprint: String = Sha256::digest(leaf).iter().map(|byte| format!("{byte:02x}")).collect();
    Some(User {
        name,
        groups,
        extra: vec![(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])],
        ..User::default()
    })
}
