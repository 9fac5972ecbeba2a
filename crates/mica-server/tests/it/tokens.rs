//! Tokens of service accounts: issued, accepted in their plane alone, gone with what they are bound to.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use mica_server::pki::Authority;
use serde_json::{Value, json};

use super::fixture::client_certificate;
use super::world::{Answer, Api, MAPS, World, text};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn account(api: &Api, name: &str) {
    let object = json!({"metadata": {"name": name}});
    api.post(ACCOUNTS, &object).await.expect(201);
}

async fn token(api: &Api, name: &str, spec: Value) -> String {
    let answer = api
        .post(&format!("{ACCOUNTS}/{name}/token"), &json!({"spec": spec}))
        .await;
    text(&answer.expect(201), "/status/token").to_owned()
}

/// A request whose only credential is a token.
async fn with(nobody: &Api, token: &str, path: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    match path {
        WHO => nobody.call(Method::POST, path, &headers, "{}").await,
        _ => nobody.call(Method::GET, path, &headers, "").await,
    }
}

#[tokio::test]
async fn a_token_is_its_account_in_its_plane_and_nobody_elsewhere() {
    let world = World::start().await;
    let (root, one, two) = (world.root().await, world.plane("one").await, world.plane("two").await);
    for api in [&root, &one, &two] {
        account(api, "robot").await;
    }
    let nobody = world.as_user(None).await;
    let mine = token(&one, "robot", json!({})).await;
    let me = with(&nobody.at_plane("one"), &mine, WHO).await.expect(201);
    let user = &me["status"]["userInfo"];
    assert_eq!(text(user, "/username"), "system:serviceaccount:default:robot");
    assert_eq!(
        user["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    for elsewhere in [
        nobody.at_plane("two"),
        nobody.clone(),
        nobody.at("/clusters/*/control-plane"),
    ] {
        assert_eq!(with(&elsewhere, &mine, MAPS).await.code(), 401);
    }
    assert_eq!(with(&nobody.at_plane("none"), &mine, MAPS).await.code(), 401);
    // The platform's own account is known in a plane, and has nothing there.
    let roots = token(&root, "robot", json!({})).await;
    assert_eq!(with(&nobody, &roots, WHO).await.code(), 201);
    let guest = with(&nobody.at_plane("one"), &roots, MAPS).await;
    assert!(
        guest.code() == 403 && guest.message().contains("planes/content"),
        "{}",
        guest.message()
    );
    assert_eq!(with(&nobody.at_plane("one"), "nonsense", MAPS).await.code(), 401);
}

#[tokio::test]
async fn a_token_dies_with_what_it_is_bound_to() {
    let world = World::start().await;
    let api = world.plane("p").await;
    account(&api, "robot").await;
    let secret = api.post(SECRETS, &json!({"metadata": {"name": "s"}})).await.expect(201);
    let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": secret["metadata"]["uid"]});
    let bound = token(&api, "robot", json!({"audiences": ["a"], "boundObjectRef": reference})).await;
    let free = token(&api, "robot", json!({"audiences": ["a"]})).await;
    // A review remembers nothing that was not asked before.
    let review = |token: &str| json!({"spec": {"token": token, "audiences": ["a", "b"]}});
    api.delete(&format!("{SECRETS}/s")).await.expect(200);
    let status = api.post(REVIEWS, &review(&bound)).await.expect(201)["status"].clone();
    assert_eq!(
        status,
        json!({"user": {}, "error": "[invalid bearer token, service account token has been invalidated]"})
    );
    let status = api.post(REVIEWS, &review(&free)).await.expect(201)["status"].clone();
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["a"]))
    );
    let other = token(&api, "robot", json!({"audiences": ["b"]})).await;
    api.delete(&format!("{ACCOUNTS}/robot")).await.expect(200);
    account(&api, "robot").await;
    let status = api.post(REVIEWS, &review(&other)).await.expect(201)["status"].clone();
    assert!(text(&status, "/error").contains("does not match claim"), "{status}");
}

#[tokio::test]
async fn a_plane_that_is_made_again_knows_no_token_of_the_old_one() {
    let world = World::start().await;
    let (root, api) = (world.root().await, world.plane("p").await);
    account(&api, "robot").await;
    let old = token(&api, "robot", json!({})).await;
    let plane = format!("{}/p", super::world::PLANES);
    root.delete(&plane).await;
    root.until(&plane, 404).await;
    let api = world.plane("p").await;
    account(&api, "robot").await;
    let nobody = world.as_user(None).await.at_plane("p");
    assert_eq!(with(&nobody, &old, WHO).await.code(), 401);
}

#[tokio::test]
async fn everybody_can_check_a_planes_tokens_by_its_documents() {
    let world = World::start().await;
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    let configuration = one.get("/.well-known/openid-configuration").await.expect(200);
    assert_eq!(
        text(&configuration, "/issuer"),
        "https://mica.test/clusters/one/control-plane"
    );
    let keys = one.get("/openid/v1/jwks").await;
    assert_eq!(keys.header("content-type"), "application/jwk-set+json");
    let (keys, others) = (keys.expect(200), two.get("/openid/v1/jwks").await.expect(200));
    assert_ne!(text(&keys, "/keys/0/kid"), text(&others, "/keys/0/kid"));
    account(&one, "robot").await;
    let issued = token(&one, "robot", json!({})).await;
    let nobody = world.as_user(None).await.at_plane("one");
    assert_eq!(nobody.get("/openid/v1/jwks").await.code(), 403);
    // As upstream's `system:service-account-issuer-discovery` has it.
    assert_eq!(with(&nobody, &issued, "/openid/v1/jwks").await.code(), 200);
}

#[tokio::test]
async fn a_secret_of_an_account_holds_its_token_and_goes_with_it() {
    let world = World::start().await;
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    let nobody = world.as_user(None).await;
    let secret = |name: &str, account: &str| {
        json!({"metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token"})
    };
    for api in [&one, &two] {
        account(api, "robot").await;
        api.post(SECRETS, &secret("s", "robot")).await.expect(201);
    }
    let found = one.get(&format!("{SECRETS}/s")).await.expect(200);
    let data = |key: &str| {
        let bytes = STANDARD.decode(text(&found, &format!("/data/{key}"))).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(data("namespace"), "default");
    assert_eq!(data("ca.crt"), world.authority.certificate_pem());
    let token = data("token");
    let me = with(&nobody.at_plane("one"), &token, WHO).await.expect(201);
    assert_eq!(
        text(&me, "/status/userInfo/username"),
        "system:serviceaccount:default:robot"
    );
    for elsewhere in [nobody.clone(), nobody.at_plane("two")] {
        assert_eq!(with(&elsewhere, &token, WHO).await.code(), 401);
    }
    // Without an account there is nothing to put in.
    let empty = one.post(SECRETS, &secret("t", "nobody")).await.expect(201);
    assert_eq!(empty.get("data"), None);
    // Who takes the token out of one gets it again, and it is the same: nothing in it is of its time.
    one.patch(&format!("{SECRETS}/s"), &json!({"data": {"token": null}}))
        .await
        .expect(200);
    let refilled = one.get(&format!("{SECRETS}/s")).await.expect(200);
    assert_eq!(refilled["data"]["token"], found["data"]["token"]);
    one.delete(&format!("{ACCOUNTS}/robot")).await.expect(200);
    assert_eq!(one.get(&format!("{SECRETS}/s")).await.code(), 404);
    assert_eq!(two.get(&format!("{SECRETS}/s")).await.code(), 200);
}

#[tokio::test]
async fn a_certificate_that_nobody_trusts_does_not_spoil_a_token() {
    let world = World::start().await;
    let root = world.root().await;
    account(&root, "robot").await;
    let token = token(&root, "robot", json!({})).await;
    let stranger = Authority::generate("stranger", SystemTime::now()).unwrap();
    let nobody = world.as_user(Some(&client_certificate(&stranger, "admin"))).await;
    assert_eq!(
        nobody.get("/version").await.code(),
        401,
        "without a token it is a failed proof"
    );
    assert_eq!(with(&nobody, &token, "/version").await.code(), 200);
}
