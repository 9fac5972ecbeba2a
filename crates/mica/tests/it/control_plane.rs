//! `mica control-plane` and `mica definitions` on a real server.

use super::process::{Up, run};

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
