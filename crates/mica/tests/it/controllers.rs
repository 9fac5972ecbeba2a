//! Controllers in the server's process, and as a process of their own.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::process::{Up, mica, run};

mod registered;
pub mod settings;
mod turns;

/// How long a state may take to come: a machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(90);
/// Of the server of a home.
const KUBECONFIG: &str = ".mica/admin.kubeconfig";

async fn client(home: &Path) -> kube::Client {
    let file = home.join(KUBECONFIG);
    let kubeconfig = Kubeconfig::read_from(file).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Result<Value, u16> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json");
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    match client.request(request.body(body).unwrap()).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Waits until what is at a path has this answer.
async fn until(client: &kube::Client, path: &str, is_so: impl Fn(&Result<Value, u16>) -> bool) {
    let looking = async {
        while !is_so(&send(client, "GET", path, &Value::Null).await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, looking).await;
    assert!(
        done.is_ok(),
        "{path}: {:?}",
        send(client, "GET", path, &Value::Null).await
    );
}

/// Makes a namespace in root and in a plane, and sees what controllers do about it and its end.
async fn see_controllers_work(client: &kube::Client) {
    for prefix in ["", "/clusters/a/control-plane"] {
        let namespace = json!({"metadata": {"name": "ns"}});
        send(client, "POST", &format!("{prefix}/api/v1/namespaces"), &namespace)
            .await
            .unwrap();
        let path = format!("{prefix}/api/v1/namespaces/ns");
        until(client, &format!("{path}/serviceaccounts/default"), Result::is_ok).await;
        let trusted = |found: &Result<Value, u16>| {
            let certificate = found.as_ref().ok().and_then(|one| one["data"]["ca.crt"].as_str());
            certificate.is_some_and(|text| text.starts_with("-----BEGIN CERTIFICATE-----\n"))
        };
        until(client, &format!("{path}/configmaps/kube-root-ca.crt"), trusted).await;
        send(client, "DELETE", &path, &Value::Null).await.unwrap();
        until(client, &path, |found| *found == Err(404)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_has_its_controllers_and_stops_with_them() {
    let home = tempfile::tempdir().unwrap();
    let server = Up::start(home.path(), &[]);
    assert_eq!(run(home.path(), &["plane", "create", "a"]).0, 0);
    let client = client(home.path()).await;
    see_controllers_work(&client).await;
    // They are somebody, with a role, and what they do is written down.
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:mica-controllers";
    assert!(send(&client, "GET", role, &Value::Null).await.is_ok());
    // Nobody else can open its store: there is no turn to wait for.
    let leases = send(&client, "GET", turns::LEASES, &Value::Null).await.unwrap();
    assert_eq!(leases["items"], json!([]));
    server.signal("-TERM");
    assert_eq!(server.wait().0, Some(0));
    let audit = std::fs::read_to_string(home.path().join(".mica/audit/audit.log")).unwrap();
    let mut writers = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(
        writers.any(|event| event["user"]["username"] == "system:mica-controllers"),
        "{audit}"
    );
}

/// `mica run controllers` for the server of a home.
pub struct Controllers(Child);

impl Controllers {
    pub fn start(home: &Path, arguments: &[&str]) -> Self {
        let mut command = mica(home);
        command
            .args(["run", "controllers", "--kubeconfig", KUBECONFIG, "--log", "warn"])
            .args(arguments)
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub fn stop(mut self) -> Option<i32> {
        let pid = self.0.id().to_string();
        assert!(
            std::process::Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.0.wait().unwrap().code()
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_run_elsewhere_for_a_server_without_any() {
    let home = tempfile::tempdir().unwrap();
    let _server = Up::start(home.path(), &["--controllers=-*"]);
    assert_eq!(run(home.path(), &["plane", "create", "a"]).0, 0);
    let client = client(home.path()).await;
    let path = "/api/v1/namespaces/before";
    send(
        &client,
        "POST",
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "before"}}),
    )
    .await
    .unwrap();
    let deleted = send(&client, "DELETE", path, &Value::Null).await.unwrap();
    assert_eq!(deleted["status"]["phase"], "Terminating");
    let controllers = Controllers::start(home.path(), &[]);
    until(&client, path, |found| *found == Err(404)).await;
    see_controllers_work(&client).await;
    assert_eq!(controllers.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_of_controllers_serves_several_servers() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let _servers = homes
        .each_ref()
        .map(|home| Up::start(home.path(), &["--controllers=-*"]));
    let other = homes[1].path().join(KUBECONFIG);
    let controllers = Controllers::start(homes[0].path(), &["--kubeconfig", other.to_str().unwrap()]);
    for home in &homes {
        assert_eq!(run(home.path(), &["plane", "create", "a"]).0, 0);
        see_controllers_work(&client(home.path()).await).await;
    }
    // They say so at each, by a lease there.
    for home in &homes {
        until(&client(home.path()).await, turns::LEASE, |found| {
            turns::holder(found).is_some()
        })
        .await;
    }
    assert_eq!(controllers.stop(), Some(0));
}

#[test]
fn an_unknown_controller_is_refused_with_those_there_are() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [&["up"][..], &["run", "controllers", "--kubeconfig", "x"]] {
        let (code, _, error) = run(home.path(), &[arguments, &["--controllers", "*,-nodes"]].concat());
        assert_eq!(code, 2, "{error}");
        assert!(
            error.starts_with("error: controllers: \"-nodes\" is not in the list of known controllers: namespace-controller, garbage-collector-controller, "),
            "{error}"
        );
    }
}
