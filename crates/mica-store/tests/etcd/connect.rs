//! Getting in: addresses, certificates, passwords, and clear words when it fails.

use std::time::{Duration, Instant};

use mica_store::etcd::{ConnectError, Credentials, TlsFiles};
use mica_store::{EtcdConfig, EtcdStore, Store};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::admin;
use crate::server::{
    EtcdServer, PATIENCE, commit, config, eventually, free_port, next, plane, put, thing, value, within,
};

async fn refusal(config: EtcdConfig) -> ConnectError {
    match within("connecting", EtcdStore::connect(config)).await {
        Ok(_) => panic!("it let us in"),
        Err(err) => err,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_etcd_is_named_with_the_reason_in_bounded_time() {
    let (one, two) = (free_port(), free_port());
    let mut config = EtcdConfig::from_url(&format!("etcd://127.0.0.1:{one},127.0.0.1:{two}")).unwrap();
    config.connect_timeout = Duration::from_millis(500);
    let begun = Instant::now();
    let err = refusal(config).await;
    assert!(begun.elapsed() < PATIENCE / 2);
    let message = err.to_string();
    assert!(matches!(err, ConnectError::Unreachable { .. }), "{message}");
    for part in [
        "cannot reach etcd",
        &one.to_string(),
        &two.to_string(),
        "onnection refused",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn something_that_is_not_etcd_is_refused_in_bounded_time() {
    // Accepts connections (the kernel does) and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = EtcdConfig::new([format!("http://{}", silent.local_addr().unwrap())]);
    config.connect_timeout = Duration::from_millis(500);
    let err = refusal(config).await;
    assert!(
        err.to_string().contains(&silent.local_addr().unwrap().to_string()),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_dead_endpoint_among_several_does_no_harm() {
    let etcd = EtcdServer::start();
    let dead = format!("http://127.0.0.1:{}", free_port());
    let store = EtcdStore::connect(config([dead, etcd.endpoint()])).await.unwrap();
    let key = thing(plane(), "a");
    let created = commit(&store, put(&key, "1")).await;
    let mut watch = store
        .watch(mica_store::KeyRange::One(key.clone()), created)
        .await
        .unwrap();
    commit(&store, put(&key, "2")).await;
    assert_eq!(next(&mut watch).await, "a=2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_format_is_refused() {
    let etcd = EtcdServer::start();
    drop(etcd.connect().await);
    admin::put(&etcd.endpoint(), "/mica/format", "mica-etcd-99".into()).await;
    let message = refusal(etcd.config()).await.to_string();
    assert!(
        message.contains("mica-etcd-99") && message.contains("mica-etcd-1"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_passwords_are_checked_and_logins_renewed() {
    let mut etcd = EtcdServer::start();
    drop(etcd.connect().await);
    admin::protect(&etcd.endpoint(), "mica", "secret", "/mica").await;
    let with = |username: &str, password: &str| {
        let mut config = etcd.config();
        config.credentials = Some(Credentials {
            username: username.into(),
            password: password.into(),
        });
        config
    };
    for config in [with("mica", "wrong"), with("nobody", "secret"), etcd.config()] {
        let err = refusal(config).await;
        assert!(matches!(err, ConnectError::Denied { .. }), "{err}");
    }
    let mut elsewhere = with("mica", "secret");
    elsewhere.prefix = "/not-ours".into();
    assert!(matches!(refusal(elsewhere).await, ConnectError::Denied { .. }));

    let store = EtcdStore::connect(with("mica", "secret")).await.unwrap();
    let key = thing(plane(), "a");
    let created = commit(&store, put(&key, "1")).await;
    let mut watch = store
        .watch(mica_store::KeyRange::One(key.clone()), created)
        .await
        .unwrap();
    // A restarted etcd knows no login any more.
    etcd.kill();
    etcd.restart();
    eventually("a write after the restart", || async {
        store.commit(put(&key, "2")).await.is_ok()
    })
    .await;
    assert_eq!(next(&mut watch).await, "a=2");
    assert_eq!(value(&store, &key).await.as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_client_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new("etcd authority"), Authority::new("somebody else"));
    let (server_cert, server_key) = authority.sign("etcd server");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (name, text) in [("ca", &authority.pem), ("cert", &server_cert), ("key", &server_key)] {
        std::fs::write(path(name), text).unwrap();
    }
    let (ca, cert, key) = (path("ca"), path("cert"), path("key"));
    let etcd = EtcdServer::start_with(&[
        "--cert-file",
        &cert,
        "--key-file",
        &key,
        "--trusted-ca-file",
        &ca,
        "--client-cert-auth",
    ]);
    let with = |trusted: &Authority, identity: Option<(String, String)>| {
        let mut config = etcd.config();
        let identity = identity.map(|(cert, key)| (cert.into_bytes(), key.into_bytes()));
        config.tls = Some(TlsFiles {
            ca: trusted.pem.clone().into_bytes(),
            identity,
            server_name: None,
        });
        config
    };
    let store = EtcdStore::connect(with(&authority, Some(authority.sign("mica"))))
        .await
        .unwrap();
    let object = thing(plane(), "a");
    commit(&store, put(&object, "1")).await;
    assert_eq!(value(&store, &object).await.as_deref(), Some("1"));

    let wrong = [
        with(&stranger, Some(authority.sign("mica"))),
        with(&authority, Some(stranger.sign("mica"))),
        with(&authority, None),
    ];
    for mut config in wrong {
        config.connect_timeout = Duration::from_secs(1);
        let err = refusal(config).await;
        assert!(err.to_string().contains(&etcd.endpoint()), "{err}");
    }

    // The same from an address, as on a command line.
    let (client_cert, client_key) = authority.sign("mica");
    std::fs::write(path("client-cert"), client_cert).unwrap();
    std::fs::write(path("client-key"), client_key).unwrap();
    let files = format!("ca={ca}&cert={}&key={}", path("client-cert"), path("client-key"));
    let address = format!("etcds://localhost:{}?{files}", etcd.client_port);
    let store = EtcdStore::connect(EtcdConfig::from_url(&address).unwrap())
        .await
        .unwrap();
    assert_eq!(value(&store, &object).await.as_deref(), Some("1"));
}

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate and its key, for both sides of a connection to this machine.
    fn sign(&self, name: &str) -> (String, String) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
