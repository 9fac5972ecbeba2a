//! Who asks: the client certificate of the platform's CA, for now the only proof there is.

use std::sync::Arc;

use http::HeaderMap;
use mica_api::GroupResource;
use mica_machinery::field::quote;
use rustls_pki_types::UnixTime;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authz::User;
use crate::error::ApiError;
use crate::http::{Context, Protocol};

/// Which credential a user came with, in the extra of whoever came with a certificate.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Turns what a connection proved into a user.
#[derive(Default)]
pub struct Authenticator;

impl Authenticator {
    /// `public`: whether everybody may ask for the path, known or not.
    pub fn authenticate(&self, context: &Context, headers: &HeaderMap, public: bool) -> Result<Arc<User>, ApiError> {
        if context.peer.protocol() == Protocol::InProcess {
            return Ok(Arc::new(User::system()));
        }
        let chain = context
            .peer
            .verified_chain(UnixTime::now())
            .map_err(|error| ApiError::unauthorized().because(error))?;
        let user = match chain.and_then(|chain| chain.first()) {
            Some(leaf) => context
                .peer
                .user(|| user_of(leaf))
                .cloned()
                .ok_or_else(ApiError::unauthorized)?,
            // A token that nothing can check is a failed proof, not the absence of one.
            None if headers.contains_key(http::header::AUTHORIZATION) => return Err(ApiError::unauthorized()),
            None if public => Arc::new(User::anonymous()),
            None => return Err(ApiError::unauthorized()),
        };
        match impersonated(headers)? {
            None => Ok(user),
            Some(other) if user.is_administrator() => Ok(Arc::new(other)),
            Some(other) => {
                let users = GroupResource::new("", "users");
                let why = format!(
                    "User {} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
                    quote(&user.name)
                );
                Err(ApiError::forbidden(&users, &other.name, &why))
            }
        }
    }
}

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that the headers ask to act as, if they do.
fn impersonated(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let texts = |name: &str| -> Vec<String> {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok().map(ToOwned::to_owned))
            .collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let mut user = User {
        name: first(USER),
        uid: first(UID),
        groups: texts(GROUP),
        extra: Vec::new(),
    };
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = percent_encoding::percent_decode_str(key)
                .decode_utf8_lossy()
                .into_owned();
            user.extra.push((key, texts(name.as_str())));
        }
    }
    user.extra.sort();
    if user.name.is_empty() {
        let asked = !user.uid.is_empty() || !user.groups.is_empty() || !user.extra.is_empty();
        return if asked {
            Err(ApiError::bad_request(format!(
                "requested {} without impersonating a user name",
                go_syntax(&user)
            )))
        } else {
            Ok(None)
        };
    }
    let account = user
        .name
        .strip_prefix(SERVICE_ACCOUNT)
        .and_then(|rest| rest.split_once(':'));
    if let Some((namespace, _)) = account
        && user.groups.is_empty()
    {
        user.groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    let added = if user.is_anonymous() {
        "system:unauthenticated"
    } else {
        "system:authenticated"
    };
    if !user.groups.iter().any(|group| group == added) {
        user.groups.push(added.to_owned());
    }
    Ok(Some(user))
}

/// The user as Go prints it in upstream's message.
fn go_syntax(user: &User) -> String {
    let list = |values: &[String]| match values {
        [] => "[]string(nil)".to_owned(),
        values => format!(
            "[]string{{{}}}",
            values.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ")
        ),
    };
    let extra = match &user.extra[..] {
        [] => "map[string][]string(nil)".to_owned(),
        extra => {
            let entries: Vec<String> = extra
                .iter()
                .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
                .collect();
            format!("map[string][]string{{{}}}", entries.join(", "))
        }
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid),
        list(&user.groups)
    )
}

/// Paths that upstream's `system:public-info-viewer` opens to everybody. A single check is not among them: it says why it
/// fails.
pub fn is_public(segments: &[impl AsRef<str>]) -> bool {
    matches!(segments, [only] if matches!(only.as_ref(), "healthz" | "livez" | "readyz" | "version"))
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
