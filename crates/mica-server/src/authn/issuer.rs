//! Tokens that others issue: their keys, fetched when first needed and kept, and the users that their claims name.
//!
//! An issuer's document and keys are read through egress, bounded in bytes and time, by one task at a time. A token that
//! names an unknown key has the keys fetched again, within a budget, so that strangers cannot make the server ask for ever.
//! One whose issuer does not answer is refused after a few seconds, and at once while that is known; no other issuer's waits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use mica_machinery::authentication::{self, Identity};
use mica_machinery::field::{ErrorList, Path, quote};
use mica_machinery::object;
use quick_cache::sync::Cache;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::jwt::Token;
use super::key::{ALGORITHMS, KeySet};
use crate::egress::{Call, ClientConfig, Egress, Repeat, Tenant};

const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// Largest document of an issuer: hundreds of keys.
const MAX_DOCUMENT: usize = 1 << 20;
/// How long an issuer has for both documents, and a request waits for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an issuer that failed is left alone: as often as upstream asks.
const PAUSE: Duration = Duration::from_secs(10);
/// Fetches in a row, after which there is one for each [`PAUSE`].
const BURST: u32 = 4;
/// Keys older than this are fetched again when used, so that those which were withdrawn end to count.
const MAX_AGE: Duration = Duration::from_secs(600);
/// How long a token that was found good is not looked at again: as long as upstream does.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Tokens that are remembered. An entry is about 500 bytes.
const CACHED_TOKENS: usize = 10_000;
/// Different lists of planes' issuers that stay compiled, with their keys: tens of KiB each.
const CACHED_SETS: usize = 1_000;
/// Clocks differ by this much, as go-oidc has it for tokens that are not valid yet.
const LEEWAY: i64 = 300;

/// The issuers whose tokens count: the platform's, and those of planes by their content.
#[derive(Clone, Default)]
pub struct Issuers(Arc<Shared>);

struct Shared {
    platform: ArcSwap<Set>,
    planes: Cache<[u8; 32], Arc<Set>>,
    good: Cache<[u8; 32], Good>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            platform: ArcSwap::default(),
            planes: Cache::new(CACHED_SETS),
            good: Cache::new(CACHED_TOKENS),
        }
    }
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls = self.0.platform.load();
        let urls = urls.remotes.iter().map(|remote| &remote.issuer.url);
        f.debug_list().entries(urls).finish()
    }
}

#[derive(Clone)]
struct Good {
    identity: Arc<Identity>,
    until: Instant,
}

/// A list of issuers that were configured together.
pub struct Set {
    /// Tokens that were good under another list are not good under this.
    generation: u64,
    remotes: Vec<Arc<Remote>>,
}

impl Default for Set {
    fn default() -> Self {
        Self::new(Vec::new(), &ALGORITHMS)
    }
}

static GENERATION: AtomicU64 = AtomicU64::new(1);

impl Set {
    /// Issuers whose signatures count if they are by one of the algorithms.
    pub fn new(issuers: Vec<authentication::Issuer>, algorithms: &[&str]) -> Self {
        let algorithms: Arc<[String]> = algorithms.iter().map(|&one| one.to_owned()).collect();
        let remotes = issuers.into_iter().map(|issuer| {
            Arc::new(Remote {
                issuer,
                algorithms: algorithms.clone(),
                keys: ArcSwapOption::empty(),
                fetch: tokio::sync::Mutex::new(Fetch::new(Instant::now())),
            })
        });
        Self {
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
            remotes: remotes.collect(),
        }
    }
}

impl Issuers {
    /// From now on the platform's issuers are these.
    pub fn replace(&self, set: Set) {
        self.0.platform.store(Arc::new(set));
    }

    pub fn platform(&self) -> Arc<Set> {
        self.0.platform.load_full()
    }

    /// The issuers that a Plane names. Planes that name the same share them, and their keys.
    pub fn of_plane(&self, plane: &Value) -> Result<Option<Arc<Set>>, ErrorList> {
        let jwt = object::list(plane, &["spec", "authentication", "jwt"]);
        if jwt.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_vec(jwt).expect("a value is JSON");
        let hash: [u8; 32] = Sha256::digest(text).into();
        let made = self.0.planes.get_or_insert_with(&hash, || {
            let issuers = authentication::compile(jwt, &Path::new("jwt"), &[])?;
            Ok(Arc::new(Set::new(issuers, &ALGORITHMS)))
        });
        made.map(Some)
    }

    /// Whom a token of one of these issuers names; `None` if it is of none of them. The error is what a review says.
    pub async fn check(&self, set: &Set, egress: &Egress, text: &str) -> Result<Option<Arc<Identity>>, String> {
        if set.remotes.is_empty() {
            return Ok(None);
        }
        let mut hash = Sha256::new_with_prefix(set.generation.to_be_bytes());
        hash.update(text);
        let hash: [u8; 32] = hash.finalize().into();
        if let Some(good) = self.0.good.get(&hash).filter(|good| good.until > Instant::now()) {
            return Ok(Some(good.identity));
        }
        let Some(token) = Token::parse(text) else {
            return Ok(None);
        };
        let issuer = match object::string(&token.claims, &["iss"]) {
            // Google's tokens have said this for long, and clients rely on it.
            "accounts.google.com" => "https://accounts.google.com",
            issuer => issuer,
        };
        let Some(remote) = set.remotes.iter().find(|remote| remote.issuer.url == issuer) else {
            return Ok(None);
        };
        let left = remote
            .verify(egress, &token)
            .await
            .map_err(|why| format!("oidc: verify token: {why}"))?;
        let identity = remote
            .issuer
            .identify(&token.claims)
            .map_err(|refused| refused.to_string())?;
        let good = Good {
            identity: Arc::new(identity),
            until: Instant::now() + REMEMBERED.min(left),
        };
        self.0.good.insert(hash, good.clone());
        Ok(Some(good.identity))
    }
}

/// An issuer, and its keys as last fetched.
struct Remote {
    issuer: authentication::Issuer,
    algorithms: Arc<[String]>,
    keys: ArcSwapOption<Keys>,
    /// Held by who fetches.
    fetch: tokio::sync::Mutex<Fetch>,
}

struct Keys {
    set: KeySet,
    /// Grows with every fetch.
    serial: u64,
    at: Instant,
}

/// What is known of fetching.
struct Fetch {
    serial: u64,
    /// Where the keys are, as the issuer's document says.
    keys_at: Option<String>,
    failed: Option<(Instant, String)>,
    /// Fetches that may be made at once, as of a time.
    budget: (u32, Instant),
}

impl Fetch {
    fn new(now: Instant) -> Self {
        Self {
            serial: 0,
            keys_at: None,
            failed: None,
            budget: (BURST, now),
        }
    }

    /// Takes one fetch out of the budget, if there is one.
    fn may(&mut self, now: Instant) -> bool {
        let (left, since) = &mut self.budget;
        let earned = u32::try_from((now - *since).as_secs() / PAUSE.as_secs()).unwrap_or(BURST);
        if earned > 0 {
            *left = left.saturating_add(earned).min(BURST);
            *since = now;
        }
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }
}

impl Remote {
    /// For how long the token is good, if it is.
    async fn verify(self: &Arc<Self>, egress: &Egress, token: &Token<'_>) -> Result<Duration, String> {
        let left = self.check_claims(token)?;
        if !self.algorithms.contains(&token.algorithm) {
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected [{}] got {}",
                self.algorithms
                    .iter()
                    .map(|one| quote(one))
                    .collect::<Vec<_>>()
                    .join(" "),
                quote(&token.algorithm)
            ));
        }
        let known = self.keys.load_full();
        let serial = known.as_ref().map_or(0, |keys| keys.serial);
        if let Some(keys) = known.filter(|keys| keys.set.signed(token)) {
            if keys.at.elapsed() < MAX_AGE || self.fetch.try_lock().is_err() {
                return Ok(left);
            }
            // Who has no newer keys goes on with the old ones.
            let keys = self.refresh(egress, serial).await.unwrap_or(keys);
            return match keys.set.signed(token) {
                true => Ok(left),
                false => Err("failed to verify signature: failed to verify id token signature".to_owned()),
            };
        }
        let keys = self.refresh(egress, serial).await?;
        match keys.set.signed(token) {
            true => Ok(left),
            false => Err("failed to verify signature: failed to verify id token signature".to_owned()),
        }
    }

    /// What needs no keys.
    fn check_claims(&self, token: &Token<'_>) -> Result<Duration, String> {
        let now = jiff::Timestamp::now().as_second();
        let second = |name: &str| {
            token
                .claims
                .get(name)
                .and_then(Value::as_f64)
                .map(|second| second as i64)
        };
        let audiences: Vec<&str> = match token.claims.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !self
            .issuer
            .audiences
            .iter()
            .any(|one| audiences.contains(&one.as_str()))
        {
            let list = |texts: &mut dyn Iterator<Item = &str>| texts.map(quote).collect::<Vec<_>>().join(" ");
            let got = list(&mut audiences.iter().copied());
            return Err(match &self.issuer.audiences[..] {
                [one] => format!("oidc: expected audience {} got [{got}]", quote(one)),
                all => {
                    let wanted = list(&mut all.iter().map(String::as_str));
                    format!("oidc: expected audience in [{wanted}] got [{got}]")
                }
            });
        }
        let expires = second("exp").unwrap_or_default();
        if expires < now {
            return Err("oidc: token is expired".to_owned());
        }
        if second("nbf").is_some_and(|from| from > now + LEEWAY) {
            return Err("oidc: current time is before the nbf (not before) time".to_owned());
        }
        Ok(Duration::from_secs(u64::try_from(expires - now).unwrap_or_default()))
    }

    /// Keys that are newer than the ones of a serial. The fetch goes on if its requester goes away: who starts one and leaves
    /// must not be able to spoil it for others.
    async fn refresh(self: &Arc<Self>, egress: &Egress, seen: u64) -> Result<Arc<Keys>, String> {
        let (remote, egress) = (self.clone(), egress.clone());
        let fetching = tokio::spawn(async move { remote.fetch(&egress, seen).await });
        match tokio::time::timeout(PATIENCE, fetching).await {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(_)) | Err(_) => Err("fetching keys oidc: the issuer does not answer".to_owned()),
        }
    }

    async fn fetch(&self, egress: &Egress, seen: u64) -> Result<Arc<Keys>, String> {
        let mut fetch = self.fetch.lock().await;
        if let Some(keys) = self.keys.load_full().filter(|keys| keys.serial != seen) {
            return Ok(keys);
        }
        let now = Instant::now();
        if let Some((at, why)) = &fetch.failed
            && now - *at < PAUSE
        {
            return Err(why.clone());
        }
        if !fetch.may(now) {
            return Err("fetching keys oidc: they were fetched just now".to_owned());
        }
        let read = tokio::time::timeout(PATIENCE, self.read(egress, &mut fetch.keys_at)).await;
        let read = read.unwrap_or_else(|_| Err("the issuer does not answer".to_owned()));
        match read {
            Ok(set) => {
                fetch.failed = None;
                fetch.serial += 1;
                let keys = Arc::new(Keys {
                    set,
                    serial: fetch.serial,
                    at: Instant::now(),
                });
                self.keys.store(Some(keys.clone()));
                Ok(keys)
            }
            Err(why) => {
                tracing::warn!(
                    issuer = self.issuer.url,
                    "the keys of an issuer of tokens cannot be read: {why}"
                );
                let why = format!("fetching keys oidc: {why}");
                // The document may name another place by then.
                fetch.keys_at = None;
                fetch.failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    async fn read(&self, egress: &Egress, keys_at: &mut Option<String>) -> Result<KeySet, String> {
        if keys_at.is_none() {
            *keys_at = Some(self.discover(egress).await?);
        }
        let url = keys_at.as_deref().expect("it was just found");
        KeySet::parse(&self.get(egress, url).await?)
    }

    async fn discover(&self, egress: &Egress) -> Result<String, String> {
        let own = format!("{}{WELL_KNOWN}", self.issuer.url.trim_end_matches('/'));
        let url = self.issuer.discovery_url.as_ref().unwrap_or(&own);
        let document = self.get(egress, url).await?;
        let document: Value = serde_json::from_slice(&document)
            .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
        let says = object::string(&document, &["issuer"]);
        if says != self.issuer.url {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {} got {}",
                quote(&self.issuer.url),
                quote(says)
            ));
        }
        match object::string(&document, &["jwks_uri"]) {
            "" => Err("provider did not return JWKS URL".to_owned()),
            url => Ok(url.to_owned()),
        }
    }

    async fn get(&self, egress: &Egress, url: &str) -> Result<bytes::Bytes, String> {
        let to = ClientConfig::at_url(url, &self.issuer.certificate_authority);
        let call = Call {
            // The platform chose it, also for planes.
            tenant: Tenant::Platform,
            to: &to,
            timeout: PATIENCE,
            max_reply: MAX_DOCUMENT,
            repeat: Repeat::Safe,
        };
        egress.get(&call).await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn fetches_come_in_a_burst_and_then_one_for_each_pause() {
        let now = Instant::now();
        let mut fetch = Fetch::new(now);
        let count = |fetch: &mut Fetch, at: Instant| (0..100).filter(|_| fetch.may(at)).count();
        assert_eq!(count(&mut fetch, now), BURST as usize);
        assert_eq!(count(&mut fetch, now + PAUSE / 2), 0);
        assert_eq!(count(&mut fetch, now + PAUSE), 1);
        assert_eq!(count(&mut fetch, now + PAUSE * 100), BURST as usize);
    }
}
