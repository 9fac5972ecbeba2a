//! Tokens of others' issuers: a real one over TLS, whose keys rotate, grow or do not come, and the planes that trust one of their own.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use mica_machinery::authentication::Configuration;
use mica_server::authn::{ALGORITHMS, Authenticator, IssuerSet};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA384, RsaKeyPair,
    RsaPublicKeyComponents,
};
use serde_json::{Value, json};

use super::hook::{Answer, Hook, Seen};
use super::world::{Answer as Reply, Api, MAPS, PLANES, World, text};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn encode(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

/// A key of an issuer.
struct Key {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Self { id, pair }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": part(1..33), "y": part(33..65)})
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({"alg": "ES256", "kid": self.id}), claims)
    }

    fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// What an issuer does when it is asked for its keys.
enum Serves {
    Keys(Vec<Value>),
    Huge,
    Nothing,
}

/// An issuer that answers over TLS.
struct Issuer {
    hook: Hook,
    serves: Arc<Mutex<Serves>>,
}

impl Issuer {
    async fn start(keys: &[&Key]) -> Self {
        let serves = Arc::new(Mutex::new(Serves::Keys(keys.iter().map(|key| key.jwk()).collect())));
        let shown = serves.clone();
        let hook = Hook::start(move |seen: &Seen| {
            let lines = seen.head.lines();
            let host = lines.filter_map(|line| line.split_once(": ")).find_map(|(name, host)| {
                let is = name.eq_ignore_ascii_case("host");
                is.then(|| host.trim().to_owned())
            });
            let url = format!("https://{}", host.unwrap());
            match (seen.path(), &*shown.lock()) {
                ("/.well-known/openid-configuration", _) => {
                    Answer::Json(json!({"issuer": url, "jwks_uri": format!("{url}/keys?now=1")}))
                }
                ("/keys?now=1", Serves::Keys(keys)) => Answer::Json(json!({"keys": keys})),
                ("/keys?now=1", Serves::Huge) => Answer::Json(json!({"keys": ["x".repeat(2 << 20)]})),
                ("/keys?now=1", Serves::Nothing) => Answer::Hang(Vec::new()),
                (path, _) => panic!("nothing is at {path}"),
            }
        });
        Self {
            hook: hook.await,
            serves,
        }
    }

    fn url(&self) -> String {
        format!("https://{}", self.hook.addr)
    }

    /// The entry of a list of issuers.
    fn entry(&self) -> Value {
        json!({
            "issuer": {"url": self.url(), "audiences": ["mica"], "certificateAuthority": self.hook.ca_pem()},
            "claimMappings": {
                "username": {"claim": "sub", "prefix": "oidc:"},
                "groups": {"expression": "claims.?roles.orValue([])"},
            },
        })
    }

    /// Good claims of a subject.
    fn claims(&self, subject: &str) -> Value {
        let now = jiff::Timestamp::now().as_second();
        json!({"iss": self.url(), "aud": "mica", "sub": subject, "iat": now, "exp": now + 600, "roles": ["devs"]})
    }
}

fn trusting(issuers: &[&Issuer]) -> Authenticator {
    let document = json!({"jwt": issuers.iter().map(|issuer| issuer.entry()).collect::<Vec<_>>()});
    let compiled = Configuration::compile(&document, &[]).expect("a good configuration");
    let authenticator = Authenticator::default();
    authenticator
        .issuers
        .replace(IssuerSet::new(compiled.issuers, &ALGORITHMS));
    authenticator
}

/// Who a token is.
async fn who(nobody: &Api, token: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    nobody.call(Method::POST, WHO, &headers, "{}").await
}

async fn get(nobody: &Api, token: &str, path: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    nobody.call(Method::GET, path, &[("authorization", &bearer)], "").await
}

#[tokio::test]
async fn a_token_of_the_platforms_issuer_is_a_user_of_the_platform() {
    let key = Key::new("k1");
    let issuer = Issuer::start(&[&key]).await;
    let world = World::proving(trusting(&[&issuer])).await;
    let (root, nobody) = (world.root().await, world.as_user(None).await);
    world.plane("p").await;
    let token = key.sign(&issuer.claims("ann"));
    let me = who(&nobody, &token).await.expect(201);
    assert_eq!(text(&me, "/status/userInfo/username"), "oidc:ann");
    assert_eq!(
        me["status"]["userInfo"]["groups"],
        json!(["devs", "system:authenticated"])
    );
    let guest = get(&nobody.at_plane("p"), &token, MAPS).await;
    assert!(
        guest.code() == 403 && guest.message().contains("planes/content"),
        "{}",
        guest.message()
    );
    let review = json!({"spec": {"token": token}});
    let status = root.post(REVIEWS, &review).await.expect(201)["status"].clone();
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["https://mica.test"]))
    );
    // A tenant's question is about its own users: it does not learn whose the platform's tokens are.
    let status = root.at_plane("p").post(REVIEWS, &review).await.expect(201)["status"].clone();
    assert_eq!(status, json!({"user": {}, "error": "invalid bearer token"}));
    assert_eq!(issuer.hook.seen().len(), 2, "one document, one set of keys");
}

#[tokio::test]
async fn what_is_forged_stale_or_for_others_proves_nothing() {
    let (key, other) = (Key::new("k1"), Key::new("k2"));
    let issuer = Issuer::start(&[&key, &Key::new("k3")]).await;
    let world = World::proving(trusting(&[&issuer])).await;
    let (root, nobody) = (world.root().await, world.as_user(None).await);
    let good = issuer.claims("ann");
    let changed = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let now = jiff::Timestamp::now().as_second();
    let unsigned = format!("{}.{}.", encode(&json!({"alg": "none"})), encode(&good));
    // The public key as a secret that is shared: for who believes what a header says about algorithms.
    let shared = {
        let signed = format!("{}.{}", encode(&json!({"alg": "HS256", "kid": "k1"})), encode(&good));
        let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key.pair.public_key().as_ref());
        let tag = ring::hmac::sign(&secret, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let critical = json!({"alg": "ES256", "kid": "k1", "crit": ["x"]});
    let mut tampered: Vec<String> = key.sign(&good).split('.').map(str::to_owned).collect();
    tampered[1] = encode(&issuer.claims("admin"));
    for (what, token) in [
        ("wrong audience", key.sign(&changed("aud", json!(["others"])))),
        ("no audience", key.sign(&changed("aud", Value::Null))),
        ("expired", key.sign(&changed("exp", json!(now - 1)))),
        ("without an end", key.sign(&changed("exp", Value::Null))),
        ("not yet", key.sign(&changed("nbf", json!(now + 3600)))),
        (
            "other issuer",
            key.sign(&changed("iss", json!("https://other.example"))),
        ),
        ("no subject", key.sign(&changed("sub", Value::Null))),
        ("not signed", unsigned),
        ("shared secret", shared),
        ("critical", key.sign_as(&critical, &good)),
        (
            "another's key",
            other.sign_as(&json!({"alg": "ES256", "kid": "k1"}), &good),
        ),
        (
            "name of another key",
            key.sign_as(&json!({"alg": "ES256", "kid": "k3"}), &good),
        ),
        (
            "other algorithm",
            key.sign_as(&json!({"alg": "RS256", "kid": "k1"}), &good),
        ),
        ("tampered", tampered.join(".")),
    ] {
        let answer = who(&nobody, &token).await;
        // A claim that is null names a user without a name, as upstream has it.
        let expected = if what == "no subject" { 201 } else { 401 };
        assert_eq!(answer.code(), expected, "{what}: {}", answer.json());
    }
    assert_eq!(who(&nobody, &key.sign(&good)).await.code(), 201);
    let review = json!({"spec": {"token": key.sign(&changed("aud", json!("others")))}});
    let status = root.post(REVIEWS, &review).await.expect(201)["status"].clone();
    assert_eq!(
        text(&status, "/error"),
        "[invalid bearer token, oidc: verify token: oidc: expected audience \"mica\" got [\"others\"]]"
    );
}

#[tokio::test]
async fn rsa_signs_in_both_ways_and_no_key_needs_a_name() {
    let pair = RsaKeyPair::from_pkcs8(&pem(include_str!("rsa.pem"))).unwrap();
    let parts = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
    let (n, e) = (URL_SAFE_NO_PAD.encode(&parts.n), URL_SAFE_NO_PAD.encode(&parts.e));
    let issuer = Issuer::start(&[]).await;
    *issuer.serves.lock() = Serves::Keys(vec![
        Key::new("x").jwk(),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"}),
        json!({"kty": "RSA", "n": n, "e": e}),
    ]);
    let world = World::proving(trusting(&[&issuer])).await;
    let nobody = world.as_user(None).await;
    for (name, algorithm) in [
        ("RS256", &RSA_PKCS1_SHA256 as &dyn ring::signature::RsaEncoding),
        ("PS384", &RSA_PSS_SHA384),
    ] {
        let signed = format!("{}.{}", encode(&json!({"alg": name})), encode(&issuer.claims(name)));
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(algorithm, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .unwrap();
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        assert_eq!(who(&nobody, &token).await.code(), 201, "{name}");
    }
}

fn pem(text: &str) -> Vec<u8> {
    let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    base64::engine::general_purpose::STANDARD.decode(body).unwrap()
}

#[tokio::test]
async fn keys_rotate_and_strangers_do_not_make_the_server_ask_for_ever() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let issuer = Issuer::start(&[&old]).await;
    let world = World::proving(trusting(&[&issuer])).await;
    let nobody = world.as_user(None).await;
    assert_eq!(who(&nobody, &old.sign(&issuer.claims("a"))).await.code(), 201);
    *issuer.serves.lock() = Serves::Keys(vec![new.jwk()]);
    assert_eq!(who(&nobody, &new.sign(&issuer.claims("b"))).await.code(), 201);
    assert_eq!(who(&nobody, &old.sign(&issuer.claims("c"))).await.code(), 401);
    for i in 0..50 {
        let stranger = old.sign_as(&json!({"alg": "ES256", "kid": format!("k{i}")}), &issuer.claims("d"));
        assert_eq!(who(&nobody, &stranger).await.code(), 401);
    }
    let asked = issuer.hook.seen().len();
    assert!(asked < 10, "{asked} requests to the issuer");
    assert_eq!(who(&nobody, &new.sign(&issuer.claims("e"))).await.code(), 201);
}

#[tokio::test]
async fn an_issuer_that_hangs_or_sends_too_much_is_its_own_problem() {
    let key = Key::new("k");
    let (good, hanging, huge) = (
        Issuer::start(&[&key]).await,
        Issuer::start(&[]).await,
        Issuer::start(&[]).await,
    );
    *hanging.serves.lock() = Serves::Nothing;
    *huge.serves.lock() = Serves::Huge;
    let world = World::proving(trusting(&[&hanging, &huge, &good])).await;
    let nobody = world.as_user(None).await;
    let (waiting, token) = (nobody.clone(), key.sign(&hanging.claims("a")));
    let stuck = tokio::spawn(async move { who(&waiting, &token).await.code() });
    hanging.hook.saw(2).await;
    assert_eq!(who(&nobody, &key.sign(&good.claims("a"))).await.code(), 201);
    assert_eq!(who(&nobody, &key.sign(&huge.claims("a"))).await.code(), 401);
    assert_eq!(stuck.await.unwrap(), 401);
    // That it does not answer is known for a while.
    let asked = hanging.hook.seen().len();
    assert_eq!(who(&nobody, &key.sign(&hanging.claims("b"))).await.code(), 401);
    assert_eq!(hanging.hook.seen().len(), asked);
}

#[tokio::test]
async fn a_planes_own_issuer_names_users_of_that_plane_who_are_nobody_elsewhere() {
    let key = Key::new("k");
    let (issuer, unused) = (Issuer::start(&[&key]).await, Issuer::start(&[]).await);
    let world = World::proving(trusting(&[&unused])).await;
    let (root, nobody) = (world.root().await, world.as_user(None).await);
    let plane = |name: &str, jwt: Value| {
        json!({"apiVersion": "mica.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name},
            "spec": {"authentication": {"jwt": jwt}}})
    };
    let mut bad = issuer.entry();
    bad["issuer"]["audiences"] = json!([]);
    let refused = root.post(PLANES, &plane("bad", json!([bad]))).await;
    assert!(
        refused.code() == 422
            && refused
                .message()
                .contains("at least one spec.authentication.jwt[0].issuer.audiences"),
        "{}",
        refused.message()
    );
    for name in ["one", "two"] {
        root.post(PLANES, &plane(name, json!([issuer.entry()])))
            .await
            .expect(201);
    }
    world.plane("other").await;
    let mut claims = issuer.claims("ann");
    claims["roles"] = json!(["system:masters"]);
    let token = key.sign(&claims);
    for name in ["one", "two"] {
        let me = who(&nobody.at_plane(name), &token).await.expect(201);
        assert_eq!(text(&me, "/status/userInfo/username"), "oidc:ann");
        // Whoever the issuer calls a master is one, of this plane.
        assert_eq!(get(&nobody.at_plane(name), &token, MAPS).await.code(), 200);
        let status = root
            .at_plane(name)
            .post(REVIEWS, &json!({"spec": {"token": token}}))
            .await;
        assert_eq!(status.expect(201)["status"]["authenticated"], true);
    }
    for elsewhere in [
        nobody.clone(),
        nobody.at_plane("other"),
        nobody.at("/clusters/*/control-plane"),
    ] {
        assert_eq!(get(&elsewhere, &token, MAPS).await.code(), 401);
    }
    assert_eq!(issuer.hook.seen().len(), 2, "planes that name the same share its keys");
    // What the Plane no longer says counts no longer, also for a token that was just good.
    root.patch(&format!("{PLANES}/one"), &json!({"spec": {"authentication": null}}))
        .await
        .expect(200);
    assert_eq!(who(&nobody.at_plane("one"), &token).await.code(), 401);
    assert_eq!(who(&nobody.at_plane("two"), &token).await.code(), 201);
}
