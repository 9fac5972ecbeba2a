//! What nodes find in a control plane that they may join: where it is, whom to trust, and a token to begin with.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mica_api::control_plane::MANAGED_LABEL;
use mica_machinery::yaml;
use serde_json::{Map, Value, json};

use super::inside::RBAC;

/// Where tokens are.
pub const TOKEN_NAMESPACE: &str = "kube-system";
/// What names of tokens' Secrets begin with.
pub const TOKEN_PREFIX: &str = "bootstrap-token-";
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
/// Who may ask for what nodes need.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
const NODE_BOOTSTRAPPERS: &str = "system:bootstrappers:kubeadm:default-node-token";
const CHARACTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// A token that nodes begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    pub id: String,
    pub secret: String,
    pub expires: jiff::Timestamp,
}

/// Which tokens there are, and what is to be done about them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    /// Those that are good, the one that lasts longest first.
    pub good: Vec<Token>,
    /// Names of Secrets whose token has expired.
    pub expired: Vec<String>,
}

/// The operator's tokens among the Secrets of a plane. One that is not to be read counts as expired.
pub fn tokens(secrets: &[Value], now: jiff::Timestamp) -> Tokens {
    let mut tokens = Tokens::default();
    for secret in secrets
        .iter()
        .filter(|secret| secret["metadata"]["labels"][MANAGED_LABEL] == "true")
    {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default();
        if !name.starts_with(TOKEN_PREFIX) {
            continue;
        }
        match read(secret).filter(|token| token.expires > now) {
            Some(token) => tokens.good.push(token),
            None => tokens.expired.push(name.to_owned()),
        }
    }
    tokens.good.sort_by_key(|token| std::cmp::Reverse(token.expires));
    tokens
}

fn read(secret: &Value) -> Option<Token> {
    let field = |name: &str| {
        let bytes = STANDARD.decode(secret["data"][name].as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    Some(Token {
        id: field("token-id")?,
        secret: field("token-secret")?,
        expires: field("expiration")?.parse().ok()?,
    })
}

/// Made of numbers that nobody can guess, each below what is asked for.
pub fn mint(random: impl Fn(usize) -> usize, expires: jiff::Timestamp) -> Token {
    let word = |length: usize| -> String {
        (0..length)
            .map(|_| char::from(CHARACTERS[random(CHARACTERS.len()) % CHARACTERS.len()]))
            .collect()
    };
    Token {
        id: word(ID_LENGTH),
        secret: word(SECRET_LENGTH),
        expires,
    }
}

pub fn token_secret(token: &Token) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": TOKEN_TYPE,
    "metadata": {"name": format!("{TOKEN_PREFIX}{}", token.id), "namespace": TOKEN_NAMESPACE,
        "labels": {MANAGED_LABEL: "true"}},
    "stringData": {
        "token-id": token.id,
        "token-secret": token.secret,
        "expiration": token.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": NODE_BOOTSTRAPPERS,
        "description": "for nodes that join this control plane",
    }})
}

/// Everything but the tokens.
pub fn objects(join: &str, ca: Option<&str>, tokens: &[Token]) -> Vec<Value> {
    let host = join.split_once("://").map_or(join, |(_, rest)| rest);
    let configuration = json!({"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration",
        "clusterName": "virtual", "controlPlaneEndpoint": host});
    let kubelet = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failSwapOn": false, "serverTLSBootstrap": true});
    let mut cluster = json!({"server": join});
    if let Some(ca) = ca {
        cluster["certificate-authority-data"] = STANDARD.encode(ca).into();
    }
    let kubeconfig = yaml::from_json(&json!({"apiVersion": "v1", "kind": "Config", "preferences": {},
        "clusters": [{"name": "", "cluster": cluster}], "contexts": [], "users": [], "current-context": ""}));
    let mut info = Map::new();
    for token in tokens {
        let signature = sign(&kubeconfig, token);
        info.insert(format!("jws-kubeconfig-{}", token.id), signature.into());
    }
    info.insert("kubeconfig".to_owned(), kubeconfig.into());
    let map = |namespace: &str, name: &str, data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data});
    let subjects = json!([
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": BOOTSTRAPPERS},
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": NODE_BOOTSTRAPPERS},
    ]);
    let bind = |namespace: &str, name: &str, kind: &str, role: &str| {
        json!({"apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": subjects})
    };
    vec![
        map(
            "kube-system",
            "kubeadm-config",
            json!({"ClusterConfiguration": yaml::from_json(&configuration)}),
        ),
        map(
            "kube-system",
            "kubelet-config",
            json!({"kubelet": yaml::from_json(&kubelet)}),
        ),
        map("kube-public", "cluster-info", info.into()),
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "kubeadm-bootstrapper", "namespace": "kube-system"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]}),
        bind("kube-system", "kubeadm-bootstrapper", "Role", "kubeadm-bootstrapper"),
        bind(
            "kube-public",
            "bootstrap-token-cluster-info",
            "ClusterRole",
            "system:public-info-viewer",
        ),
    ]
}

/// A signature beside what it signs: who knows the token's secret can tell that whoever wrote it does, too.
fn sign(content: &str, token: &Token) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": token.id}).to_string());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, token.secret.as_bytes());
    let tag = ring::hmac::sign(&key, signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}
