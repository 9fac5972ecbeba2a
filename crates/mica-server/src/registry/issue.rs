//! Secrets that hold a token of a service account: filled when they are written, and gone with their account.
//!
//! Upstream's controller manager does both a moment later; here who creates such a Secret finds the token in the answer.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_machinery::meta::DeleteOptions;
use mica_machinery::object;
use serde_json::Value;

use super::scan::{Extent, Scan};
use super::{Registry, stored_value};
use crate::authn::account::{self, Accounts};
use crate::authz::{self, Target};
use crate::error::ApiError;
use crate::request::Verb;

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

/// What Secrets of accounts are filled with.
pub struct TokenSecrets {
    pub accounts: Arc<Accounts>,
    /// Who signs the server's certificate, in PEM.
    pub root_ca: String,
}

fn annotation<'a>(secret: &'a Value, name: &str) -> &'a str {
    object::string(secret, &["metadata", "annotations", name])
}

impl Registry {
    /// Fills Secrets that are to hold tokens, and deletes them with their accounts.
    #[must_use]
    pub fn with_token_secrets(mut self, secrets: TokenSecrets) -> Self {
        self.token_secrets = Some(Arc::new(secrets));
        self
    }

    /// Puts what is missing into a Secret of an account that is there. One whose account is not stays empty.
    pub(super) async fn fill_secret(&self, target: &Target, secret: &mut Value) -> Result<(), ApiError> {
        let Some(tokens) = &self.token_secrets else {
            return Ok(());
        };
        let is_secret = (target.served.group(), target.served.plural()) == ("", "secrets");
        if !is_secret || object::string(secret, &["type"]) != TYPE {
            return Ok(());
        }
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let (name, uid) = (annotation(secret, NAME).to_owned(), annotation(secret, UID).to_owned());
        if name.is_empty() {
            return Ok(());
        }
        let found = account::read(self, &target.plane, "serviceaccounts", namespace, &name).await;
        let Ok(found) = found else { return Ok(()) };
        let own = object::string(&found, &["metadata", "uid"]);
        // One that was made for an earlier account of the name is not this one's.
        if !uid.is_empty() && uid != own {
            return Ok(());
        }
        let own = own.to_owned();
        object::set(secret, &["metadata", "annotations", UID], own);
        let mut put = |key: &str, value: &str| {
            if object::string(secret, &["data", key]).is_empty() {
                object::set(secret, &["data", key], STANDARD.encode(value));
            }
        };
        put("ca.crt", &tokens.root_ca);
        put("namespace", namespace);
        if object::string(secret, &["data", "token"]).is_empty() {
            let token = tokens
                .accounts
                .issue_legacy(&target.plane, &found, object::name(secret));
            object::set(secret, &["data", "token"], STANDARD.encode(token));
        }
        Ok(())
    }

    /// Deletes the Secrets of an account that was deleted. Their tokens prove nothing any more in any case, so that a failure
    /// is only told.
    pub(super) async fn drop_secrets(&self, target: &Target) {
        let is_account = (target.served.group(), target.served.plural()) == ("", "serviceaccounts");
        if self.token_secrets.is_none() || !is_account || !target.subresource.is_empty() {
            return;
        }
        if let Err(error) = Box::pin(self.try_drop_secrets(target)).await {
            tracing::warn!(%error, "the secrets of a deleted service account could not be deleted");
        }
    }

    async fn try_drop_secrets(&self, target: &Target) -> Result<(), ApiError> {
        let Some(served) = target.plane.scheme.find("", "v1", "secrets").cloned() else {
            return Ok(());
        };
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let extent = Extent::Namespace(namespace.to_owned());
        let plane = target.plane.clone();
        let mut scan = Scan::of_plane(self.clone(), plane.clone(), served.clone(), &extent, None, None);
        let mut names = Vec::new();
        while let Some((_, stored)) = scan.next().await? {
            let secret = stored_value(&served, &stored)?;
            if object::string(&secret, &["type"]) == TYPE && annotation(&secret, NAME) == target.object() {
                names.push(object::name(&secret).to_owned());
            }
        }
        for name in names {
            let secret = Target {
                plane: plane.clone(),
                served: served.clone(),
                namespace: Some(namespace.into()),
                name: Some(name.as_str().into()),
                subresource: "".into(),
                definition: None,
                within: None,
            };
            self.delete(&authz::system(Verb::Delete, secret), &DeleteOptions::default())
                .await?;
        }
        Ok(())
    }
}
