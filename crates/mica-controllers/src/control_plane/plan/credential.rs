//! Credentials of a control plane's administrator: how long they are good, and the Secret that they are given in.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mica_api::control_plane::{
    CONTROL_PLANE_ANNOTATION, KUBECONFIG, KUBECONFIG_EXTERNAL, SERVER_ANNOTATION, kubeconfig_secret,
    management_namespace,
};
use mica_machinery::yaml;
use serde_json::{Value, json};

use super::endpoint::{Endpoints, Trust};
use super::{Observed, has};

/// A token, and what it says of itself. Nothing here proves it: its server does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    pub text: String,
    /// The uid of the service account that it is for.
    pub account: String,
    /// In seconds.
    issued: i64,
    expires: i64,
}

impl Token {
    pub fn read(text: &str) -> Option<Self> {
        let claims = URL_SAFE_NO_PAD.decode(text.split('.').nth(1)?).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let account = claims.pointer("/kubernetes.io/serviceaccount/uid")?.as_str()?;
        Some(Self {
            text: text.to_owned(),
            account: account.to_owned(),
            issued: claims["iat"].as_i64()?,
            expires: claims["exp"].as_i64()?,
        })
    }

    /// How long it is still good enough; none if it is to be renewed. Two thirds of its life are used: there is time left for
    /// whoever holds it, and for tries that fail.
    pub fn fresh_for(&self, now: jiff::Timestamp) -> Option<Duration> {
        fresh_for(self.issued, self.expires, now)
    }
}

/// How long it is until two thirds of a life are over.
pub fn fresh_for(begin: i64, end: i64, now: jiff::Timestamp) -> Option<Duration> {
    let renew_at = begin + (end - begin) / 3 * 2;
    let left = u64::try_from(renew_at - now.as_second()).ok()?;
    (left > 0).then(|| Duration::from_secs(left))
}

/// The token of a Secret, if it can be used on: for this account, from this server, and fresh.
pub fn usable(secret: Option<&Value>, account: &str, server: &str, now: jiff::Timestamp) -> Option<Token> {
    let secret = secret?;
    if secret["metadata"]["annotations"][SERVER_ANNOTATION] != server {
        return None;
    }
    let kubeconfig = STANDARD.decode(secret["data"][KUBECONFIG].as_str()?).ok()?;
    let kubeconfig = yaml::to_json(&kubeconfig).ok()?.json;
    let kubeconfig: Value = serde_json::from_slice(&kubeconfig).ok()?;
    let token = Token::read(kubeconfig.pointer("/users/0/user/token")?.as_str()?)?;
    (token.account == account && token.fresh_for(now).is_some()).then_some(token)
}

/// A kubeconfig with one of everything.
fn kubeconfig(server: &str, ca: Option<&str>, token: &str) -> String {
    let mut cluster = json!({"server": server});
    if let Some(ca) = ca {
        cluster["certificate-authority-data"] = STANDARD.encode(ca).into();
    }
    yaml::from_json(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "controlplane", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "controlplane", "context": {"cluster": "controlplane", "user": "admin"}}],
        "current-context": "controlplane",
    }))
}

/// What is put into a control plane's Secret.
pub struct Contents<'a> {
    pub endpoints: &'a Endpoints,
    /// The address of the server that gave the token, and who signs its certificate.
    pub server: &'a str,
    pub ca: Option<&'a str>,
    pub token: &'a str,
}

/// The Secret of a control plane, if it is not so already.
pub fn secret(at: &Observed, contents: &Contents<'_>) -> Option<Value> {
    let Contents {
        endpoints, ca, token, ..
    } = contents;
    let trusted = match endpoints.external_trust {
        Trust::Server => *ca,
        Trust::Everybody => None,
    };
    let wanted = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": kubeconfig_secret(at.name()),
            "namespace": management_namespace(at.name()),
            "labels": at.labels(),
            "annotations": {CONTROL_PLANE_ANNOTATION: at.name(), SERVER_ANNOTATION: contents.server},
            "ownerReferences": [at.owner()],
        },
        "data": {
            KUBECONFIG: STANDARD.encode(kubeconfig(&endpoints.internal, *ca, token)),
            KUBECONFIG_EXTERNAL: STANDARD.encode(kubeconfig(&endpoints.external, trusted, token)),
        },
    });
    let same = at.secret.as_ref().is_some_and(|present| has(present, &wanted));
    (!same).then_some(wanted)
}
