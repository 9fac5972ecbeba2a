//! Tokens that live in Secrets: the old form, without an end, good for as long as the Secret holds exactly it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_machinery::object;
use serde_json::{Value, json};

use super::account::{Accounts, USER_PREFIX, account_user, is_going, read};
use crate::authz::User;
use crate::plane::Plane;
use crate::registry::Registry;

/// Who such tokens say that they are from, in every plane: the key tells planes apart.
pub(super) const ISSUER: &str = "kubernetes/serviceaccount";
const CLAIMS: &str = "kubernetes.io/serviceaccount/";

impl Accounts {
    /// The token of a Secret for a service account. It names neither an audience nor an end.
    pub fn issue_legacy(&self, plane: &Plane, account: &Value, secret: &str) -> String {
        let (namespace, name) = (object::namespace(account), object::name(account));
        let claim = |name: &str| format!("{CLAIMS}{name}");
        let claims = json!({
            "iss": ISSUER,
            claim("namespace"): namespace,
            claim("secret.name"): secret,
            claim("service-account.name"): name,
            claim("service-account.uid"): object::string(account, &["metadata", "uid"]),
            "sub": format!("{USER_PREFIX}{namespace}:{name}"),
        });
        self.sign(plane, &claims)
    }
}

/// The user that the claims of a signed token name, if its Secret and its account are still there.
pub(super) async fn user(registry: &Registry, plane: &Arc<Plane>, claims: &Value, token: &str) -> Result<User, String> {
    let claim = |name: &str| object::string(claims, &[&format!("{CLAIMS}{name}")]);
    let namespace = claim("namespace");
    let (secret_name, name, uid) = (
        claim("secret.name"),
        claim("service-account.name"),
        claim("service-account.uid"),
    );
    if object::string(claims, &["sub"]) != format!("{USER_PREFIX}{namespace}:{name}") {
        return Err("sub claim is missing".to_owned());
    }
    for (value, what) in [
        (namespace, "namespace"),
        (secret_name, "secretName"),
        (name, "serviceAccountName"),
        (uid, "serviceAccountUID"),
    ] {
        if value.is_empty() {
            return Err(format!("{what} claim is missing"));
        }
    }
    let invalidated = || "service account token has been invalidated".to_owned();
    let secret = read(registry, plane, "secrets", namespace, secret_name).await.ok();
    let secret = secret.filter(|secret| !is_going(secret)).ok_or_else(invalidated)?;
    let held = STANDARD.decode(object::string(&secret, &["data", "token"]));
    if held.ok().as_deref() != Some(token.as_bytes()) {
        return Err("service account token does not match server's copy".to_owned());
    }
    let account = read(registry, plane, "serviceaccounts", namespace, name)
        .await
        .map_err(|error| error.message().to_owned())?;
    if is_going(&account) {
        return Err(format!("service account {namespace}/{name} has been deleted"));
    }
    let found = object::string(&account, &["metadata", "uid"]);
    if found != uid {
        return Err(format!("service account UID ({found}) does not match claim ({uid})"));
    }
    Ok(account_user(plane, namespace, name, uid.to_owned()))
}
