//! `mica control-plane` and `mica definitions` on a real server.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response, StatusCode};
use mica_server::http::{Body, Context, RequestBody, Service};
use serde_json::{Value, json};

use super::fake::serve_with;
use super::process::{Up, mica, run};

#[test]
fn control_planes_are_asked_for_listed_described_and_let_go() {
    let home = tempfile::tempdir().unwrap();
    // Nobody runs them: what commands say of a control plane that nobody looks at is told at once.
    let _server = Up::start(home.path(), &["--controllers=*,-control-plane"]);
    let mica = |arguments: &[&str]| {
        let (code, out, error) = run(home.path(), arguments);
        assert_eq!(code, 0, "{arguments:?}: {error}");
        out
    };
    let (_, out, error) = run(home.path(), &["control-plane", "list"]);
    assert_eq!((out.as_str(), error.as_str()), ("", "No control planes found.\n"));
    assert_eq!(
        mica(&[
            "control-plane",
            "create",
            "shop",
            "--no-wait",
            "--deletion-policy",
            "destroy"
        ]),
        "controlplane/shop created\n"
    );
    assert_eq!(
        mica(&[
            "cp",
            "create",
            "bank",
            "--mode",
            "dedicated",
            "--version",
            "v2",
            "--no-wait",
            "-o",
            "name"
        ]),
        "controlplane/bank\n"
    );
    let table = mica(&["cp", "list"]);
    assert!(table.starts_with("NAME   MODE        READY"), "{table}");
    assert!(mica(&["cp", "list", "-o", "yaml"]).contains("version: v2"));
    let described = mica(&["cp", "describe", "shop"]);
    assert!(described.contains("Namespace:     kplane-cp-shop\n"), "{described}");

    let (code, _, error) = run(home.path(), &["cp", "kubeconfig", "shop"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("\"shop\" has no kubeconfig yet: nobody has looked at it yet"),
        "{error}"
    );
    let (code, _, error) = run(home.path(), &["cp", "create", "slow", "--timeout", "10ms"]);
    assert_eq!(code, 1);
    assert!(error.contains("\"slow\" is not ready after 0 s"), "{error}");
    let (code, _, error) = run(home.path(), &["cp", "create", "Bad_Name"]);
    assert_eq!(code, 2, "{error}");

    let begun = mica(&[
        "cp",
        "migrate",
        "shop",
        "--to",
        "dedicated",
        "--provider",
        "Etcd",
        "--no-wait",
    ]);
    assert_eq!(begun, "controlplane/shop migration to Dedicated has begun\n");
    assert!(mica(&["cp", "list", "-o", "json"]).contains("\"Etcd\""));

    let (code, _, error) = run(home.path(), &["cp", "delete", "shop", "bank"]);
    assert_eq!(code, 2, "nobody can be asked: {error}");
    assert!(
        error.contains("controlplane/shop (Destroy)") && error.contains("for ever"),
        "{error}"
    );
    assert!(
        error.contains("controlplane/bank (Retain)") && error.contains("can adopt it"),
        "{error}"
    );
    assert_eq!(
        mica(&["cp", "delete", "shop", "bank", "slow", "--yes"]),
        "controlplane/shop deleted\ncontrolplane/bank deleted\ncontrolplane/slow deleted\n"
    );
    let (code, _, error) = run(home.path(), &["cp", "describe", "shop"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("controlplanes.controlplane.kplane.dev \"shop\" not found"),
        "{error}"
    );
}

#[test]
fn definitions_and_the_role_of_the_operator_are_printed_to_be_applied() {
    let home = tempfile::tempdir().unwrap();
    let (code, out, error) = run(home.path(), &["definitions", "control-plane"]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(out.matches("kind: CustomResourceDefinition").count(), 4, "{out}");
    assert!(out.contains("name: controlplaneregistrations.controlplane.kplane.dev"));
    let (code, out, error) = run(home.path(), &["definitions", "control-plane-roles"]);
    assert_eq!(code, 0, "{error}");
    assert!(
        out.contains("kind: ClusterRole\n")
            && out.contains("kind: Role\n")
            && out.matches("name: mica-control-plane-operator").count() == 2,
        "{out}"
    );
}

/// A server with one ControlPlane, which is in another state each time it is looked at, and in the last one for ever.
struct States {
    looks: AtomicUsize,
    states: Vec<Value>,
}

impl Service for States {
    async fn call(&self, _context: &Context, request: Request<RequestBody>) -> Response<Body> {
        let look = match *request.method() {
            Method::GET => self.looks.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        let state = &self.states[look.min(self.states.len() - 1)];
        let mut response = Response::new(Body::full(state.to_string()));
        if !request.uri().path().contains("/controlplanes") {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        response
    }
}

fn control_plane(ready: &str, message: &str, migration: Value) -> Value {
    json!({"metadata": {"name": "shop"}, "spec": {}, "status": {"endpoint": "https://shop.example", "migration": migration,
        "conditions": [{"type": "Ready", "status": ready, "message": message}]}})
}

/// What a command shows that is run in a directory.
type Showing = fn(&Path, &str) -> String;

async fn shows(states: &[Value], showing: Showing, arguments: &'static str) -> String {
    let home = tempfile::tempdir().unwrap();
    let service = States {
        looks: AtomicUsize::default(),
        states: states.to_vec(),
    };
    serve_with(home.path(), service).await;
    tokio::task::spawn_blocking(move || showing(home.path(), arguments))
        .await
        .unwrap()
}

fn without_a_terminal(home: &Path, arguments: &str) -> String {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let (code, out, error) = run(home, &arguments);
    assert_eq!(code, 0, "{error}");
    error + &out
}

fn on_a_terminal(home: &Path, arguments: &str) -> String {
    let mut command = Command::new("script");
    command.args([
        "-qec",
        &format!("{} {arguments}", env!("CARGO_BIN_EXE_mica")),
        "/dev/null",
    ]);
    for (name, value) in mica(home).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // Its input stays open: the end of it would be shown, too.
    command.current_dir(home).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = child.stdin.take();
    let mut shown = String::new();
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success(), "{shown}");
    shown
}

#[tokio::test]
async fn on_a_terminal_create_shows_what_it_waits_for_and_takes_it_away() {
    let states = [
        control_plane("False", "the plane is being made", Value::Null),
        control_plane("False", "credentials are being made", Value::Null),
        control_plane("True", "", Value::Null),
    ];
    let create = "control-plane create shop";
    assert_eq!(
        shows(&states, on_a_terminal, create).await,
        "\r\x1b[Kshop: the plane is being made\r\x1b[Kshop: credentials are being made\r\x1b[K\
         controlplane/shop is ready at https://shop.example\r\n"
    );
    assert_eq!(
        shows(&states, without_a_terminal, create).await,
        "controlplane/shop is ready at https://shop.example\n"
    );
}

#[tokio::test]
async fn on_a_terminal_migrate_shows_how_far_a_step_is_and_elsewhere_the_steps_alone() {
    let at = |step: &str, message: &str| {
        let migration = json!({"step": step, "to": "Dedicated", "startedAt": "t", "message": message});
        control_plane("True", "", migration)
    };
    let before = control_plane("True", "all is well", Value::Null);
    let states = [
        // It is looked at before it is changed, and to change it.
        before.clone(),
        before.clone(),
        before,
        at("Copying", "0 KiB were sent"),
        at("Copying", "8 KiB were sent"),
        at("Draining", "the old address passes requests on"),
        at("Completed", ""),
    ];
    let migrate = "control-plane migrate shop --to dedicated";
    assert_eq!(
        shows(&states, on_a_terminal, migrate).await,
        "\r\x1b[Kshop: all is well\r\x1b[Kshop: Copying\r\n\r\x1b[Kshop: Copying: 8 KiB were sent\r\x1b[K\
         shop: Draining\r\ncontrolplane/shop is Dedicated at https://shop.example\r\n"
    );
    assert_eq!(
        shows(&states, without_a_terminal, migrate).await,
        "shop: Copying\nshop: Draining\ncontrolplane/shop is Dedicated at https://shop.example\n"
    );
}
