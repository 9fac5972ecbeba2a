//! Tokens in requests and reviews: every way in which one can prove somebody, in upstream's order.
//!
//! Each plane has its own ways: its service accounts, its bootstrap tokens and its issuers. The platform's are root's, and
//! count in planes as guests.

use std::sync::Arc;

use mica_machinery::authentication::Identity;
use mica_machinery::object;

use super::account::{Proven, read_kind};
use super::bootstrap::{self, BootstrapTokens};
use super::webhook::Answer;
use super::{INVALID, Trust};
use crate::authz::{Realm, User};
use crate::error::ApiError;
use crate::metrics::{self, Counter, Family, Label};
use crate::plane::Plane;
use crate::plane::kind::{GROUP, PLURAL, VERSION};
use crate::request::Address;
use crate::serve::Server;

/// How proofs go.
pub struct AuthnMetrics {
    attempts: Arc<Family<Counter>>,
    webhook: Arc<Family<Counter>>,
}

impl AuthnMetrics {
    pub fn new(registry: &metrics::Registry) -> Self {
        Self {
            attempts: registry.register(Arc::new(Family::new(
                "authentication_attempts",
                "Counter of tokens that were looked at.",
                &[Label::Closed("result")],
            ))),
            webhook: registry.register(Arc::new(Family::new(
                "mica_authentication_webhook_total",
                "Counter of tokens that the webhook was asked about, or whose answer was known.",
                &[Label::Closed("result")],
            ))),
        }
    }
}

impl Server {
    /// The user that a token proves: of the plane that the request is for, or of the platform.
    pub(super) async fn prove_token(&self, token: &str, address: &Address) -> Result<Arc<User>, ApiError> {
        let root = self.directory.root();
        let plane = match address {
            Address::AllPlanes => None,
            address => self.plane(address).await.ok().filter(|plane| !plane.is_root()),
        };
        for plane in plane.iter().chain([&root]) {
            let audiences = self.accounts.audiences(plane);
            if let Ok(proven) = self.prove_at(plane, token, &audiences).await {
                self.authn_metrics.attempts.with(&["success"], Counter::inc);
                return Ok(match self.authenticator.trust {
                    Trust::Authorized => proven.user,
                    Trust::Everything => Arc::new(self.authenticator.trusted((*proven.user).clone())),
                });
            }
        }
        self.authn_metrics.attempts.with(&["failure"], Counter::inc);
        Err(ApiError::unauthorized())
    }

    /// Whom a token proves at a plane as one of its own, for one of the audiences; else what a review says about it, which
    /// holds no secret.
    pub(crate) async fn review_token(
        &self,
        plane: &Arc<Plane>,
        token: &str,
        audiences: &[String],
    ) -> Result<Proven, String> {
        let reasons = match self.prove_at(plane, token, audiences).await {
            Ok(proven) => return Ok(proven),
            Err(reasons) => reasons,
        };
        Err(match reasons.is_empty() {
            true => INVALID.to_owned(),
            false => format!("[{INVALID}, {}]", reasons.join(", ")),
        })
    }

    async fn prove_at(&self, plane: &Arc<Plane>, token: &str, audiences: &[String]) -> Result<Proven, Vec<String>> {
        // Most ways know nothing of audiences: what they prove is proven to the server itself.
        let own = self.accounts.audiences(plane);
        let common: Vec<String> = audiences.iter().filter(|one| own.contains(one)).cloned().collect();
        let of = |user: User| Proven {
            user: Arc::new(user),
            audiences: common.clone(),
        };
        let for_us = !common.is_empty();
        let authenticator = &self.authenticator;
        if plane.is_root()
            && for_us
            && let Some(user) = authenticator.tokens.user(token)
        {
            return Ok(of(user));
        }
        let mut reasons = Vec::new();
        match self.accounts.check(&self.registry, plane, token, audiences).await {
            Ok(proven) => return Ok(proven),
            Err(why) => reasons.extend(why),
        }
        if for_us
            && authenticator.bootstrap == BootstrapTokens::Accepted
            && let Some(user) = bootstrap::check(&self.registry, plane, token).await
        {
            return Ok(of(user));
        }
        if for_us {
            match Box::pin(self.prove_by_issuer(plane, token)).await {
                Ok(Some(user)) => return Ok(of(user)),
                Ok(None) => {}
                Err(why) => reasons.push(why),
            }
        }
        if plane.is_root()
            && let Some(webhook) = &authenticator.webhook
        {
            let asked = Box::pin(webhook.check(&self.egress, token, audiences)).await;
            let count = |result: &str| self.authn_metrics.webhook.with(&[result], Counter::inc);
            match asked {
                Ok(Answer::Known(user, audiences)) => {
                    count("success");
                    return Ok(Proven { user, audiences });
                }
                Ok(Answer::Unknown(why)) => {
                    count("failure");
                    reasons.extend(Some(why).filter(|why| !why.is_empty()));
                }
                Err(why) => {
                    count("error");
                    tracing::warn!("the webhook that knows tokens cannot be asked: {why}");
                    reasons.push(why);
                }
            }
        }
        Err(reasons)
    }

    /// The user that a token of one of a plane's issuers names; of the platform's, if the plane is root.
    async fn prove_by_issuer(&self, plane: &Arc<Plane>, token: &str) -> Result<Option<User>, String> {
        let issuers = &self.authenticator.issuers;
        let set = if plane.is_root() {
            issuers.platform()
        } else {
            match self.issuers_of(plane).await {
                Some(set) => set,
                None => return Ok(None),
            }
        };
        let found = issuers.check(&set, &self.egress, token).await?;
        Ok(found.map(|identity| user_of(&identity, Realm::of(plane.id))))
    }

    /// The issuers that the Plane object names.
    async fn issuers_of(&self, plane: &Plane) -> Option<Arc<super::issuer::Set>> {
        let kind = (GROUP, VERSION, PLURAL);
        let object = read_kind(&self.registry, &self.directory.root(), kind, "", &plane.name).await;
        let object = object.ok()?;
        // The name may lead to another plane by now.
        if object::string(&object, &["status", "id"]) != plane.id.as_str() {
            return None;
        }
        match self.authenticator.issuers.of_plane(&object) {
            Ok(set) => set,
            Err(errors) => {
                let errors = mica_machinery::field::aggregate(&errors);
                tracing::warn!(
                    plane = plane.name.as_str(),
                    "the issuers of a plane cannot be used: {errors}"
                );
                None
            }
        }
    }
}

fn user_of(identity: &Identity, realm: Realm) -> User {
    let mut groups = identity.groups.clone();
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".to_owned());
    }
    User {
        realm,
        name: identity.name.clone(),
        uid: identity.uid.clone(),
        groups,
        extra: identity.extra.clone(),
        ..User::default()
    }
}
