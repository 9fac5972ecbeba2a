//! Tokens of service accounts: made for who asks, bound to what they name, and good only in the plane that issued them.
//!
//! Each plane signs with a key of its own, which is derived from one secret of the store and the plane's id: nothing is
//! kept for a plane, servers of one store agree, and a plane that is made again under an old name has another key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use mica_api::{GroupResource, PlaneId};
use mica_machinery::field::quote;
use mica_machinery::object;
use mica_store::{CommitError, Compare, PlaneKeys, Store, Txn, Write};
use quick_cache::sync::Cache;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::given::GivenKeys;
use super::jwt::{Key, Token};
use super::{CREDENTIAL_ID, legacy};
use crate::authz::{self, Realm, Target, User};
use crate::error::ApiError;
use crate::plane::Plane;
use crate::registry::Registry;
use crate::request::Verb;

/// How long a token that was found good is not looked at again: as long as upstream does.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Tokens that are remembered. An entry is about 500 bytes.
const CACHED_TOKENS: usize = 10_000;
/// Planes whose keys are kept. An entry is about 300 bytes.
const CACHED_KEYS: usize = 10_000;
/// Clocks of servers may differ by this much.
const LEEWAY: i64 = 60;

pub(super) const USER_PREFIX: &str = "system:serviceaccount:";
const POD: &str = "authentication.kubernetes.io/pod-";
const NODE: &str = "authentication.kubernetes.io/node-";

/// Issues and checks tokens.
pub struct Accounts {
    secret: [u8; 32],
    /// What stands before the path of a plane in its issuer's name; root's issuer.
    issuer: String,
    root: RootAccounts,
    keys: Cache<PlaneId, Arc<Key>>,
    good: Cache<[u8; 32], Good>,
}

#[derive(Clone)]
struct Good {
    user: Arc<User>,
    audiences: Vec<String>,
    until: Instant,
}

/// What root's tokens are, where somebody else has a say in it. Planes have their own.
#[derive(Clone, Debug, Default)]
pub struct RootAccounts {
    /// Issuers whose names count beside the one that tokens are issued under.
    pub also: Vec<String>,
    /// Whom tokens that name no audience are for; the issuer, if there are none.
    pub audiences: Vec<String>,
    /// Where others read the keys.
    pub keys_at: Option<String>,
    /// Keys to use instead of the derived one.
    pub keys: Option<Arc<GivenKeys>>,
}

/// What a token proves.
pub struct Proven {
    pub user: Arc<User>,
    /// Those of the asked audiences that it is for.
    pub audiences: Vec<String>,
}

/// What a token is bound to, beside its service account.
#[derive(Default)]
pub struct Bound {
    pub pod: Option<Value>,
    pub secret: Option<Value>,
    pub node: Option<Value>,
}

impl Accounts {
    /// Takes the store's secret, making it on first use.
    pub async fn open(store: &dyn Store, issuer: String, root: RootAccounts) -> Result<Self, ApiError> {
        Ok(Self {
            secret: secret(store).await?,
            issuer,
            root,
            keys: Cache::new(CACHED_KEYS),
            good: Cache::new(CACHED_TOKENS),
        })
    }

    /// Whom tokens for requests to a plane are for.
    pub fn audiences(&self, plane: &Plane) -> Vec<String> {
        if !plane.is_root() {
            return vec![self.issuer(plane)];
        }
        match self.root.audiences.is_empty() {
            true => [std::slice::from_ref(&self.issuer), &self.root.also].concat(),
            false => self.root.audiences.clone(),
        }
    }

    /// The keys that somebody gave to root.
    fn given(&self, plane: &Plane) -> Option<&GivenKeys> {
        self.root.keys.as_deref().filter(|_| plane.is_root())
    }

    /// The name of a plane as issuer.
    pub fn issuer(&self, plane: &Plane) -> String {
        if plane.is_root() {
            self.issuer.clone()
        } else {
            format!("{}/clusters/{}/control-plane", self.issuer, plane.name)
        }
    }

    /// `/.well-known/openid-configuration` of a plane.
    pub fn configuration(&self, plane: &Plane) -> Value {
        let issuer = self.issuer(plane);
        let keys_at = self.root.keys_at.clone().filter(|_| plane.is_root());
        let algorithms = self.given(plane).map_or(vec!["ES256"], GivenKeys::algorithms);
        json!({
            "issuer": issuer,
            "jwks_uri": keys_at.unwrap_or_else(|| format!("{}/openid/v1/jwks", issuer.trim_end_matches('/'))),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }

    /// `/openid/v1/jwks` of a plane.
    pub fn public_keys(&self, plane: &Plane) -> Value {
        match self.given(plane) {
            Some(given) => json!({"keys": given.shown()}),
            None => json!({"keys": [self.key(plane).shown()]}),
        }
    }

    fn key(&self, plane: &Plane) -> Arc<Key> {
        if let Some(key) = self.keys.get(&plane.id) {
            return key;
        }
        let key = Arc::new(Key::derive(&self.secret, &format!("service accounts of {}", plane.id)));
        self.keys.insert(plane.id, key.clone());
        key
    }

    /// Signs claims as a plane.
    pub(super) fn sign(&self, plane: &Plane, claims: &Value) -> String {
        match self.given(plane).and_then(|given| given.sign(claims)) {
            Some(token) => token,
            None => self.key(plane).sign(claims),
        }
    }

    /// Whether a token is signed by a key of a plane.
    fn signed(&self, plane: &Plane, token: &Token<'_>) -> bool {
        match self.given(plane) {
            Some(given) => given.signed(token) || (!given.signs() && token.is_signed_by(&self.key(plane))),
            None => token.is_signed_by(&self.key(plane)),
        }
    }

    /// A token for a service account, good for some seconds from now.
    pub fn issue(
        &self,
        plane: &Plane,
        account: &Value,
        bound: &Bound,
        audiences: &[String],
        seconds: i64,
        now: jiff::Timestamp,
    ) -> String {
        let (namespace, name) = (object::namespace(account), object::name(account));
        let reference = |object: &Value| {
            let mut reference = json!({"name": object::name(object)});
            let uid = object::string(object, &["metadata", "uid"]);
            if !uid.is_empty() {
                reference["uid"] = uid.into();
            }
            reference
        };
        let mut private = json!({"namespace": namespace, "serviceaccount": reference(account)});
        for (kind, object) in [("pod", &bound.pod), ("secret", &bound.secret), ("node", &bound.node)] {
            if let Some(object) = object {
                private[kind] = reference(object);
            }
        }
        let claims = json!({
            "aud": audiences,
            "exp": now.as_second() + seconds,
            "iat": now.as_second(),
            "iss": self.issuer(plane),
            "jti": uuid::Uuid::new_v4().to_string(),
            "kubernetes.io": private,
            "nbf": now.as_second(),
            "sub": format!("{USER_PREFIX}{namespace}:{name}"),
        });
        self.sign(plane, &claims)
    }

    /// Whom a token proves at a plane, if it is for one of the audiences. The error is what a review says, if anything, and no
    /// secret.
    pub async fn check(
        &self,
        registry: &Registry,
        plane: &Arc<Plane>,
        text: &str,
        audiences: &[String],
    ) -> Result<Proven, Option<String>> {
        let mut hash = Sha256::new_with_prefix(plane.id.as_str());
        hash.update(text);
        let hash: [u8; 32] = hash.finalize().into();
        let remembered = self.good.get(&hash).filter(|good| good.until > Instant::now());
        let good = match remembered {
            Some(good) => good,
            None => {
                let good = self.look(registry, plane, text).await?;
                self.good.insert(hash, good.clone());
                good
            }
        };
        // A legacy token is for whoever asks for the server.
        let own = self.audiences(plane);
        let meant = if good.audiences.is_empty() {
            &own
        } else {
            &good.audiences
        };
        let common: Vec<String> = audiences.iter().filter(|one| meant.contains(one)).cloned().collect();
        if common.is_empty() {
            let list = |texts: &[String]| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(" ");
            return Err(Some(format!(
                "token audiences [{}] is invalid for the target audiences [{}]",
                list(meant),
                list(audiences)
            )));
        }
        Ok(Proven {
            user: good.user,
            audiences: common,
        })
    }

    async fn look(&self, registry: &Registry, plane: &Arc<Plane>, text: &str) -> Result<Good, Option<String>> {
        let token = Token::parse(text).ok_or(None)?;
        let claim = |name: &str| object::string(&token.claims, &[name]);
        let issuer = claim("iss");
        let is_legacy = issuer == legacy::ISSUER;
        let also = plane.is_root() && self.root.also.iter().any(|one| one == issuer);
        if !(is_legacy || also || issuer == self.issuer(plane)) || !self.signed(plane, &token) {
            return Err(None);
        }
        let because = |why: &str| Some(why.to_owned());
        if is_legacy {
            let user = legacy::user(registry, plane, &token.claims, text).await;
            return Ok(Good {
                user: Arc::new(user.map_err(|why| because(&why))?),
                audiences: Vec::new(),
                until: Instant::now() + REMEMBERED,
            });
        }
        let now = jiff::Timestamp::now().as_second();
        let second = |name: &str| object::int(&token.claims, &[name]);
        let expires = second("exp").ok_or(None)?;
        if expires + LEEWAY < now {
            return Err(because("service account token has expired"));
        }
        if second("nbf").is_some_and(|from| from - LEEWAY > now) {
            return Err(because("service account token is not valid yet"));
        }
        let private = token.claims.get("kubernetes.io").ok_or(None)?;
        let user = self.user(registry, plane, private, claim("jti")).await;
        let audiences = object::list(&token.claims, &["aud"]).iter().filter_map(Value::as_str);
        let left = u64::try_from(expires + LEEWAY - now).unwrap_or_default();
        Ok(Good {
            user: Arc::new(user.map_err(|why| because(&why))?),
            audiences: audiences.map(ToOwned::to_owned).collect(),
            until: Instant::now() + REMEMBERED.min(Duration::from_secs(left)),
        })
    }

    /// The user that the claims of a signed token name, if all they name is still there.
    async fn user(&self, registry: &Registry, plane: &Arc<Plane>, private: &Value, jti: &str) -> Result<User, String> {
        let namespace = object::string(private, &["namespace"]);
        let named = |kind: &str| private.get(kind).filter(|reference| reference.is_object());
        let of = |reference: &Value| {
            let part = |field: &str| object::string(reference, &[field]).to_owned();
            (part("name"), part("uid"))
        };
        let (name, uid) = named("serviceaccount").map(of).unwrap_or_default();
        let account = read(registry, plane, "serviceaccounts", namespace, &name)
            .await
            .map_err(|error| error.message().to_owned())?;
        let found = object::string(&account, &["metadata", "uid"]);
        if found != uid {
            return Err(format!("service account UID ({found}) does not match claim ({uid})"));
        }
        if is_going(&account) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        let mut extra = vec![(CREDENTIAL_ID.to_owned(), vec![format!("JTI={jti}")])];
        for (kind, plural, place) in [
            ("secret", "secrets", namespace),
            ("pod", "pods", namespace),
            ("node", "nodes", ""),
        ] {
            let Some((name, uid)) = named(kind).map(of) else {
                continue;
            };
            // The node of a pod is only told.
            if kind != "node" || named("pod").is_none() {
                let bound = read(registry, plane, plural, place, &name).await;
                let bound = bound.ok().filter(|bound| !is_going(bound));
                let bound = bound.ok_or_else(|| "service account token has been invalidated".to_owned())?;
                let found = object::string(&bound, &["metadata", "uid"]);
                if found != uid {
                    return Err(format!(
                        "{kind} UID ({found}) does not match service account {kind} ref claim ({uid})"
                    ));
                }
            }
            let prefix = match kind {
                "pod" => POD,
                "node" => NODE,
                _ => continue,
            };
            extra.push((format!("{prefix}name"), vec![name]));
            extra.push((format!("{prefix}uid"), vec![uid]));
        }
        extra.sort();
        Ok(User {
            extra,
            ..account_user(plane, namespace, &name, uid)
        })
    }
}

/// The user that a service account is.
pub(super) fn account_user(plane: &Plane, namespace: &str, name: &str, uid: String) -> User {
    User {
        realm: Realm::of(plane.id),
        name: format!("{USER_PREFIX}{namespace}:{name}"),
        uid,
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
        ..User::default()
    }
}

pub(super) fn is_going(object: &Value) -> bool {
    !object::string(object, &["metadata", "deletionTimestamp"]).is_empty()
}

/// An object of a built-in kind, for the server's own eyes.
pub async fn read(
    registry: &Registry,
    plane: &Arc<Plane>,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<Value, ApiError> {
    read_kind(registry, plane, ("", "v1", plural), namespace, name).await
}

/// The same of a kind of any group and version.
pub async fn read_kind(
    registry: &Registry,
    plane: &Arc<Plane>,
    (group, version, plural): (&str, &str, &str),
    namespace: &str,
    name: &str,
) -> Result<Value, ApiError> {
    let served = plane.scheme.find(group, version, plural).cloned();
    let served = served.ok_or_else(|| ApiError::not_found(&GroupResource::new(group, plural), name))?;
    let target = Target {
        plane: plane.clone(),
        served: served.clone(),
        namespace: served.namespaced().then(|| namespace.into()),
        name: Some(name.into()),
        subresource: "".into(),
        definition: None,
        within: None,
    };
    let stored = registry.get(&authz::system(Verb::Get, target), "").await?;
    crate::registry::stored_value(&served, &stored)
}

/// The secret of a store that all keys come from. If another server makes it at the same time, that one's counts.
pub(crate) async fn secret(store: &dyn Store) -> Result<[u8; 32], ApiError> {
    let resource = GroupResource::new("mica.internal", "tokensecrets");
    let key = PlaneKeys::new(PlaneId::ROOT).object(&resource, None, "serviceaccounts");
    if let Some(record) = store.get(&key).await? {
        return (&record.value[..])
            .try_into()
            .map_err(|_| ApiError::internal("the secret of service account tokens is damaged"));
    }
    let made: [u8; 32] = rand::random();
    let txn = Txn {
        compares: vec![Compare::Absent(key.clone())],
        writes: vec![Write::Put {
            key,
            value: made.to_vec().into(),
            ttl: None,
        }],
    };
    match store.commit(txn).await {
        Ok(_) => Ok(made),
        Err(CommitError::Conflict { .. }) => Box::pin(secret(store)).await,
        Err(error) => Err(error.into()),
    }
}

/// What upstream says about an object that a request for a token names and that is not the one it was.
pub fn uid_differs(kind: &str, name: &str, uid: &str) -> ApiError {
    let message = format!(
        "Operation cannot be fulfilled on {kind} {}: the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated",
        quote(name)
    );
    let mut details = Map::new();
    details.insert("name".to_owned(), name.into());
    details.insert("kind".to_owned(), kind.into());
    ApiError::new(http::StatusCode::CONFLICT, "Conflict", message).with_details(details)
}

/// The id in a token, which may be known; the token may not.
pub(crate) fn id_of(token: &str) -> Option<String> {
    let claims = token.split('.').nth(1)?;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims["jti"].as_str().map(ToOwned::to_owned)
}
