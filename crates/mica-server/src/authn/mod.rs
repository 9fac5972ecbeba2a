//! Who asks: what a connection and a request prove, in which realm, and whom they act as.

pub mod account;
mod bearer;
mod bootstrap;
mod front;
pub mod given;
mod impersonate;
mod issuer;
pub(crate) mod jwt;
mod key;
mod legacy;
mod publish;
pub mod reload;
mod tokens;
mod webhook;

use std::sync::Arc;

use http::HeaderMap;
use mica_api::PlaneId;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authz::{Attempt, Realm, User};
use crate::error::ApiError;
use crate::http::{Context, Protocol};
use crate::request::{Address, Located};
use crate::serve::Server;
use crate::tls::RefusedCertificate;

pub use bearer::AuthnMetrics;
pub use bootstrap::BootstrapTokens;
pub use front::{BadAuthorities, FrontProxy, Headers};
pub use issuer::{Issuers, Set as IssuerSet};
pub use key::{ALGORITHMS, is_signed};
pub use tokens::{BadTokens, Tokens};
pub use webhook::{ReviewVersion, TokenWebhook};

/// Which credential a user came with, in the extra of whoever came with a certificate.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Where a proxy in front says that a user is one of the plane, and nobody elsewhere: in an extra of this key.
pub(crate) const REALM: &str = "mica.dev/realm";

/// What a request has that was passed on.
const PASSED_USER: &str = "x-remote-user";

/// What counts as a proof beside the certificates of trusted authorities.
#[derive(Clone, Debug, Default)]
pub struct Authenticator {
    pub tokens: Tokens,
    pub anonymous: Anonymous,
    pub trust: Trust,
    /// Whose tokens count, of those that others issue.
    pub issuers: Issuers,
    pub bootstrap: BootstrapTokens,
    /// Who is asked about tokens that nothing else knows.
    pub webhook: Option<Arc<TokenWebhook>>,
    /// Who may say in headers who asks.
    pub front_proxy: Option<Arc<FrontProxy>>,
}

/// Whether those who prove nothing are somebody: `system:anonymous`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Anonymous {
    #[default]
    Allowed,
    Refused,
    /// Only at these paths of a plane.
    At(Vec<String>),
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
        let proven = match self.authenticator.named(context, headers) {
            Some(user) => Box::pin(self.in_realm(user, &located.address)).await.map(Some),
            None => match Box::pin(self.passed_on(context, headers, &located.address)).await {
                Some(user) => Box::pin(self.in_realm(user, &located.address)).await.map(Some),
                None => Box::pin(self.prove_certificate(context, &located.address)).await,
            },
        };
        let user = match proven {
            Ok(Some(user)) => user,
            // A certificate that proves nothing does not spoil a token that does.
            unproven => match bearer(headers)? {
                Some(token) => Box::pin(self.prove_token(token, &located.address)).await?,
                None => unproven.and_then(|_| self.authenticator.nobody(located))?,
            },
        };
        let user = without_reserved(user);
        // Audit tells of who asked, also where that one acts as another.
        let _ = context.proven.set(user.clone());
        match impersonate::asked(headers)? {
            None => Ok(user),
            Some(other) => {
                let other = Box::pin(self.impersonate(&user, other, &located.address)).await?;
                let _ = context.acting.set(other.clone());
                Ok(other)
            }
        }
    }

    /// The user that a plane's old server names, for that plane and no other.
    async fn passed_on(&self, context: &Context, headers: &HeaderMap, address: &Address) -> Option<Arc<User>> {
        let chain = context.peer.presented_chain();
        if chain.is_empty() || !headers.contains_key(PASSED_USER) {
            return None;
        }
        let plane = match address {
            Address::Plane(_) | Address::Project(_) => self.plane(address).await.ok()?,
            _ => return None,
        };
        let user = plane.moved_from()?.prove(chain, headers)?;
        Some(Arc::new(self.authenticator.trusted(user)))
    }

    /// A user whom a proxy named, as one of the plane that the request is for if that is what the proxy says.
    async fn in_realm(&self, user: Arc<User>, address: &Address) -> Result<Arc<User>, ApiError> {
        if !user.extra.iter().any(|(key, _)| key == REALM) {
            return Ok(user);
        }
        let plane = match address {
            Address::AllPlanes | Address::Root => return Err(ApiError::unauthorized()),
            address => self.plane(address).await.map_err(|_| ApiError::unauthorized())?,
        };
        let mut user = (*user).clone();
        user.extra.retain(|(key, _)| key != REALM);
        user.realm = Realm::Plane(plane.id);
        Ok(Arc::new(user))
    }

    /// The user that a connection proves: of the platform, or else of the plane that the request is for. One of another plane
    /// is nobody.
    async fn prove_certificate(&self, context: &Context, address: &Address) -> Result<Option<Arc<User>>, ApiError> {
        let refused = match self.authenticator.prove(context) {
            Err(refused) if !context.peer.presented_chain().is_empty() => refused,
            proven => return proven,
        };
        let Some(planes) = &self.authorities else {
            return Err(refused);
        };
        let plane = match address {
            Address::AllPlanes | Address::Root => return Err(refused),
            address => self.plane(address).await.map_err(|_| refused)?,
        };
        let now = UnixTime::now();
        let prove = |chain: &[CertificateDer<'static>]| {
            planes.verify(plane.id, chain, now)?;
            let user = chain.first().and_then(|leaf| user_of(leaf));
            let user = user.ok_or_else(|| RefusedCertificate::because(&"it names no user"))?;
            let realm = match plane.id {
                PlaneId::ROOT => Realm::Platform,
                id => Realm::Plane(id),
            };
            Ok(self.authenticator.trusted(User { realm, ..user }))
        };
        match context.peer.user_in(plane.id, planes.generation(), now, prove) {
            Ok(user) => Ok(Some(user)),
            Err(error) => Err(ApiError::unauthorized().because(error)),
        }
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
            address => {
                let first = impersonate::actions(&other).into_iter().next();
                let attempt = Attempt::Act(first.unwrap_or_default());
                self.plane_for(user, address, &attempt).await?
            }
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
            return Ok(context.peer.user(|| Some(User::system())).cloned());
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

    /// The user that a proxy in front names.
    fn named(&self, context: &Context, headers: &HeaderMap) -> Option<Arc<User>> {
        let proxy = self.front_proxy.as_ref()?;
        let user = proxy.prove(context.peer.presented_chain(), headers)?;
        Some(Arc::new(self.trusted(user)))
    }

    /// Whoever proves nothing.
    fn nobody(&self, located: &Located) -> Result<Arc<User>, ApiError> {
        let allowed = match &self.anonymous {
            Anonymous::Refused => false,
            Anonymous::Allowed => true,
            Anonymous::At(paths) => {
                let asked = format!("/{}", located.segments.join("/"));
                paths.contains(&asked)
            }
        };
        match allowed {
            true => Ok(Arc::new(User::anonymous())),
            false => Err(ApiError::unauthorized()),
        }
    }

    fn trusted(&self, user: User) -> User {
        User {
            trust: self.trust,
            ..user
        }
    }
}

/// Groups of this sort are for planes to give: root's own bindings of them are for nobody.
const RESERVED: &str = "mica:";

/// A user of the platform is in no group that means a plane's own.
fn without_reserved(user: Arc<User>) -> Arc<User> {
    let reserved = |group: &String| group.starts_with(RESERVED);
    if user.realm != Realm::Platform || !user.groups.iter().any(reserved) {
        return user;
    }
    let mut user = (*user).clone();
    user.groups.retain(|group| !reserved(group));
    Arc::new(user)
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
