//! Bootstrap tokens: `bootstrap-token-<id>` Secrets of a plane's kube-system, by which machines that have nothing else begin.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_machinery::object;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::account;
use crate::authz::{Realm, User};
use crate::plane::Plane;
use crate::registry::Registry;

const GROUP: &str = "system:bootstrappers";
const MAX_GROUP: usize = 256;

/// Whether such tokens count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BootstrapTokens {
    Accepted,
    #[default]
    Refused,
}

/// Whom a token of the form `id.secret` names in a plane, if a Secret there says so.
pub(super) async fn check(registry: &Registry, plane: &Arc<Plane>, token: &str) -> Option<User> {
    let plain = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let (id, secret) = token.split_once('.')?;
    if !plain(id, 6) || !plain(secret, 16) {
        return None;
    }
    let name = format!("bootstrap-token-{id}");
    let found = account::read(registry, plane, "secrets", "kube-system", &name)
        .await
        .ok()?;
    let groups = groups(&found, id, secret, jiff::Timestamp::now())?;
    Some(User {
        realm: Realm::of(plane.id),
        name: format!("system:bootstrap:{id}"),
        groups,
        ..User::default()
    })
}

/// The groups that a Secret gives to who knows it; `None` if it does not count.
fn groups(found: &Value, id: &str, secret: &str, now: jiff::Timestamp) -> Option<Vec<String>> {
    let data = |key: &str| {
        let text = object::string(found, &["data", key]);
        STANDARD
            .decode(text)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let is_gone = object::get(found, &["metadata", "deletionTimestamp"]).is_some();
    let is_token = object::string(found, &["type"]) == "bootstrap.kubernetes.io/token";
    // Hashes are compared: how long that takes says nothing about the secret.
    let same = Sha256::digest(data("token-secret")?) == Sha256::digest(secret);
    if is_gone || !is_token || !same || data("token-id")? != id {
        return None;
    }
    // One that cannot be read has ended, too.
    let expires = data("expiration")?;
    if !expires.is_empty() && expires.parse::<jiff::Timestamp>().ok()? <= now {
        return None;
    }
    if data("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in data("auth-extra-groups")?.split(',').filter(|group| !group.is_empty()) {
        let rest = group.strip_prefix("system:bootstrappers:")?;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let good = rest.len() <= MAX_GROUP
            && rest.bytes().last().is_some_and(plain)
            && rest.bytes().all(|b| plain(b) || b == b':' || b == b'-');
        if !good {
            return None;
        }
        if !groups.iter().any(|known| known == group) {
            groups.push(group.to_owned());
        }
    }
    groups.push("system:authenticated".to_owned());
    Some(groups)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_counts_until_it_ends_for_who_knows_it_whole() {
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let check = |changes: &[(&str, &str)], secret: &str| {
            let mut data = serde_json::Map::new();
            for (key, value) in [
                ("token-id", "abcdef"),
                ("token-secret", "0123456789abcdef"),
                ("usage-bootstrap-authentication", "true"),
                ("expiration", "2026-01-01T00:00:01Z"),
                ("auth-extra-groups", "system:bootstrappers:a,system:bootstrappers:b-c"),
            ]
            .iter()
            .chain(changes)
            {
                data.insert((*key).to_owned(), STANDARD.encode(value).into());
            }
            let found = json!({"type": "bootstrap.kubernetes.io/token", "data": data});
            groups(&found, "abcdef", secret, now).map(|groups| groups.join(" "))
        };
        const SECRET: &str = "0123456789abcdef";
        assert_eq!(
            check(&[], SECRET).as_deref(),
            Some("system:bootstrappers system:bootstrappers:a system:bootstrappers:b-c system:authenticated")
        );
        assert!(check(&[("expiration", ""), ("auth-extra-groups", "")], SECRET).is_some());
        assert_eq!(check(&[], "0123456789abcdee"), None);
        for change in [
            ("token-id", "abcdee"),
            ("expiration", "2026-01-01T00:00:00Z"),
            ("expiration", "soon"),
            ("usage-bootstrap-authentication", "false"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:"),
        ] {
            assert_eq!(check(&[change], SECRET), None, "{change:?}");
        }
    }
}
