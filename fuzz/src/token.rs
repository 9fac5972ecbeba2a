//! What decides about tokens of others: configurations of issuers, claims, and sets of keys with a token.

use mica_machinery::authentication::{Configuration, parse};
use mica_server::authn::is_signed;

use crate::{json, parts, text};

/// A configuration; a second part are the claims of a token.
pub fn authentication(data: &[u8]) {
    let parts = parts(data);
    let Ok(document) = parse(parts[0]) else { return };
    let Ok(compiled) = Configuration::compile(&document, &["https://self.example"]) else {
        return;
    };
    let Some(claims) = parts.get(1).and_then(|part| json(part)) else {
        return;
    };
    for issuer in &compiled.issuers {
        assert_ne!(issuer.url, "https://self.example");
        let first = issuer.identify(&claims);
        assert_eq!(first, issuer.identify(&claims), "it depends on nothing else");
    }
}

/// A set of keys, and a token that one of them may have signed. Nobody here knows a private key.
pub fn keys(data: &[u8]) {
    let parts = parts(data);
    let Some(token) = parts.get(1).copied().and_then(text) else {
        return;
    };
    let _ = is_signed(parts[0], token.trim());
}
