//! What operators of control planes are told when they start.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::super::process::{Up, mica};
use super::{KUBECONFIG, PATIENCE, client, send, until};

const GROUP: &str = "/apis/controlplane.kplane.dev/v1alpha1";

/// How many seconds the token of a control plane's Secret is good for, all in all.
pub fn lifetime(secret: &Value) -> i64 {
    let text = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (_, token) = text.split_once("token: ").unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_told_of_addons_and_how_long_credentials_of_control_planes_are_good() {
    let home = tempfile::tempdir().unwrap();
    let file = "control-planes: {addons: ./addons, token-lifetime: 20m}";
    std::fs::write(home.path().join("config.yaml"), file).unwrap();
    let bundle =
        |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: kube-public}}\n");
    let addons = home.path().join("addons");
    std::fs::create_dir(&addons).unwrap();
    std::fs::write(addons.join("tools.yaml"), bundle("one")).unwrap();
    let _server = Up::start(home.path(), &["--config", "config.yaml"]);
    let client = client(home.path()).await;
    for (plural, kind, name, spec) in [
        (
            "controlplaneclasses",
            "ControlPlaneClass",
            "c",
            json!({"addons": ["tools"]}),
        ),
        (
            "controlplanes",
            "ControlPlane",
            "shop",
            json!({"classRef": {"name": "c"}}),
        ),
    ] {
        let object = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name}, "spec": spec});
        send(&client, "POST", &format!("{GROUP}/{plural}"), &object)
            .await
            .unwrap();
    }
    let maps = "/clusters/shop/control-plane/api/v1/namespaces/kube-public/configmaps";
    let is_ready = |found: &Result<Value, u16>| found.as_ref().is_ok_and(|one| one["status"]["phase"] == "Ready");
    until(&client, &format!("{GROUP}/controlplanes/shop"), is_ready).await;
    assert!(send(&client, "GET", &format!("{maps}/one"), &Value::Null).await.is_ok());
    let secret = "/api/v1/namespaces/kplane-cp-shop/secrets/controlplane-shop-kubeconfig";
    let secret = send(&client, "GET", secret, &Value::Null).await.unwrap();
    assert_eq!(lifetime(&secret), 20 * 60);
    std::fs::write(addons.join("tools.yaml"), bundle("two")).unwrap();
    until(&client, &format!("{maps}/two"), Result::is_ok).await;
    until(&client, &format!("{maps}/one"), |found| *found == Err(404)).await;
}

/// What a process of controllers counts.
fn counted_at(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn how_control_planes_stand_is_counted_by_a_server_and_by_an_operator_alone() {
    const READY: &str = "mica_control_planes{phase=\"Ready\"} 1";
    let home = tempfile::tempdir().unwrap();
    let server = Up::start(home.path(), &[]);
    let root = client(home.path()).await;
    let object = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": "shop"}, "spec": {}});
    send(&root, "POST", &format!("{GROUP}/controlplanes"), &object)
        .await
        .unwrap();
    let counted = async {
        loop {
            let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
            if root
                .request_text(request)
                .await
                .unwrap()
                .lines()
                .any(|line| line == READY)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.unwrap();
    server.signal("-TERM");
    server.wait();

    let _server = Up::start(home.path(), &["--controllers=-*"]);
    let mut command = mica(home.path());
    command.args(["run", "controllers", "--kubeconfig", KUBECONFIG, "--log", "warn"]);
    command
        .args(["--metrics-bind-address", "127.0.0.1:0"])
        .stdout(Stdio::piped());
    let mut operator = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(operator.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("Metrics are at http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap().to_owned();
    let counted = async {
        while !counted_at(&address).lines().any(|line| line == READY) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let counted = tokio::time::timeout(PATIENCE, counted).await;
    let text = counted_at(&address);
    let _ = operator.kill();
    let _ = operator.wait();
    assert!(counted.is_ok(), "{text}");
    assert!(text.contains("leader_election_master_status"), "{text}");
}
