//! Controllers in the server's process, and as a process of their own.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::process::{Up, mica, run};

/// How long a state may take to come: a machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(90);

async fn client(home: &Path) -> kube::Client {
    let file = home.join(".mica/admin.kubeconfig");
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
struct Controllers(Child);

impl Controllers {
    fn start(home: &Path, arguments: &[&str]) -> Self {
        let mut command = mica(home);
        command
            .args([
                "run",
                "controllers",
                "--kubeconfig",
                ".mica/admin.kubeconfig",
                "--log",
                "warn",
            ])
            .args(arguments)
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn stop(mut self) -> Option<i32> {
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

const CONTROL_PLANES: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplanes";
const REGISTRATIONS: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplaneregistrations";

async fn control_plane(client: &kube::Client, name: &str) {
    let object = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": name}, "spec": {}});
    send(client, "POST", CONTROL_PLANES, &object).await.unwrap();
    let ready = |found: &Result<Value, u16>| {
        let conditions = found
            .as_ref()
            .ok()
            .and_then(|one| one["status"]["conditions"].as_array().cloned());
        let mut all = conditions.into_iter().flatten();
        all.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    until(client, &format!("{CONTROL_PLANES}/{name}"), ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_planes_of_one_server_are_made_on_another() {
    let (management, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _server = Up::start(management.path(), &["--controllers=*,-control-plane"]);
    let other = Up::start(shared.path(), &[]);
    let kubeconfig = shared.path().join(".mica/admin.kubeconfig");
    let arguments = [
        "--controllers",
        "control-plane",
        "--server-kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    let operator = Controllers::start(management.path(), &arguments);
    let (here, there) = (client(management.path()).await, client(shared.path()).await);
    control_plane(&here, "shop").await;
    let plane = "/apis/mica.dev/v1alpha1/planes/shop";
    assert!(send(&there, "GET", plane, &Value::Null).await.is_ok());
    assert_eq!(send(&here, "GET", plane, &Value::Null).await.err(), Some(404));
    // The kubeconfig that commands print here leads there.
    let (code, text, error) = run(management.path(), &["control-plane", "kubeconfig", "shop"]);
    assert_eq!(code, 0, "{error}");
    assert!(
        text.contains(&format!("{}/clusters/shop/control-plane", other.url())),
        "{text}"
    );
    assert_eq!(operator.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_has_controllers_of_its_own_and_nobody_else_has_them() {
    let home = tempfile::tempdir().unwrap();
    let _server = Up::start(home.path(), &["--controllers=control-plane"]);
    let client = client(home.path()).await;
    control_plane(&client, "bank").await;
    control_plane(&client, "other").await;
    let registration = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlaneRegistration",
        "metadata": {"name": "bank-own"},
        "spec": {"controlPlaneRef": {"name": "bank"}, "services": ["controllers"], "mode": "Dedicated"}});
    send(&client, "POST", REGISTRATIONS, &registration).await.unwrap();
    let own = Controllers::start(home.path(), &["--registration", "bank-own"]);
    for plane in ["other", "bank"] {
        let path = format!("/clusters/{plane}/control-plane/api/v1/namespaces");
        send(&client, "POST", &path, &json!({"metadata": {"name": "ns"}}))
            .await
            .unwrap();
    }
    let account = |plane: &str| format!("/clusters/{plane}/control-plane/api/v1/namespaces/ns/serviceaccounts/default");
    until(&client, &account("bank"), Result::is_ok).await;
    assert_eq!(
        send(&client, "GET", &account("other"), &Value::Null).await.err(),
        Some(404)
    );
    let engaged = |found: &Result<Value, u16>| {
        found
            .as_ref()
            .is_ok_and(|one| one["status"]["conditions"].to_string().contains("ControllersEngaged"))
    };
    until(&client, &format!("{REGISTRATIONS}/bank-own"), engaged).await;
    assert_eq!(own.stop(), Some(0));
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/mica-controllers";
const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=2500ms",
    "--leader-elect-retry-period=200ms",
];

/// Who holds the lease.
fn holder(found: &Result<Value, u16>) -> Option<&str> {
    let holder = found.as_ref().ok()?["spec"]["holderIdentity"].as_str();
    holder.filter(|holder| !holder.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_of_controllers_the_second_works_when_the_first_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let _server = Up::start(home.path(), &["--controllers=-*"]);
    assert_eq!(run(home.path(), &["plane", "create", "a"]).0, 0);
    let client = client(home.path()).await;
    let mut first = Controllers::start(home.path(), &QUICK);
    until(&client, LEASE, |found| holder(found).is_some()).await;
    let lease = send(&client, "GET", LEASE, &Value::Null).await;
    let leads = holder(&lease).unwrap().to_owned();
    let second = Controllers::start(home.path(), &QUICK);
    see_controllers_work(&client).await;
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    until(&client, LEASE, |found| holder(found).is_some_and(|now| now != leads)).await;
    see_controllers_work(&client).await;
    // One that stops in order gives the lease away.
    assert_eq!(second.stop(), Some(0));
    let lease = send(&client, "GET", LEASE, &Value::Null).await;
    assert_eq!(holder(&lease), None);
}

#[test]
fn leases_that_could_not_be_renewed_in_time_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for (flag, said) in [
        ("--leader-elect-lease-duration=10s", "leader-elect-lease-duration"),
        ("--leader-elect-retry-period=9s", "leader-elect-renew-deadline"),
        ("--leader-elect-retry-period=often", "leader-elect-retry-period"),
    ] {
        let (code, _, error) = run(home.path(), &["run", "controllers", "--kubeconfig", "x", flag]);
        assert_eq!(code, 2, "{error}");
        assert!(error.starts_with(&format!("error: {said}: ")), "{error}");
    }
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
