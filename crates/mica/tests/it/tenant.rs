//! `mica org`, `mica project` and `mica ctx` on a real server.

use super::process::{Up, run};

#[test]
fn organizations_and_projects_are_made_shown_and_entered() {
    let home = tempfile::tempdir().unwrap();
    let server = Up::start(home.path(), &[]);
    let mica = |arguments: &[&str]| {
        let (code, out, error) = run(home.path(), arguments);
        assert_eq!(code, 0, "{arguments:?}: {error}");
        out
    };
    assert_eq!(
        mica(&["org", "create", "acme", "--display-name", "Acme Inc."]),
        "organization/acme created\n"
    );
    assert_eq!(
        mica(&["org", "create", "umbrella", "-o", "name"]),
        "organization/umbrella\n"
    );
    let table = mica(&["org", "list"]);
    assert!(
        table.starts_with("NAME       DISPLAY NAME   TYPE       READY"),
        "{table}"
    );
    assert!(
        table.contains("acme") && table.contains("Acme Inc.") && table.contains("Standard"),
        "{table}"
    );
    assert!(mica(&["org", "list", "-o", "yaml"]).contains("kind: OrganizationList"));
    mica(&["project", "create", "web", "shop", "--org", "acme", "--no-wait"]);
    mica(&["project", "create", "lab", "--org", "umbrella", "--no-wait"]);
    assert_eq!(
        mica(&["project", "list", "--org", "acme", "-o", "name"]),
        "project/shop\nproject/web\n"
    );
    assert_eq!(
        mica(&["project", "list", "-o", "name"]),
        "project/lab\nproject/shop\nproject/web\n"
    );
    let described = mica(&["org", "describe", "acme"]);
    assert!(
        described.contains("Display Name:  Acme Inc.\n") && described.contains("  shop\n  web\n"),
        "{described}"
    );
    let described = mica(&["project", "describe", "web"]);
    assert!(described.contains("Organization:  acme\n"), "{described}");

    assert_eq!(
        mica(&["ctx"]),
        "* /\n    acme\n      acme/shop\n      acme/web\n    umbrella\n      umbrella/lab\n"
    );
    let there = mica(&["ctx", "acme"]);
    assert!(
        there.starts_with("now at acme (") && there.contains("/organizations/acme/control-plane"),
        "{there}"
    );
    // Commands find the platform from there.
    assert!(mica(&["ctx"]).contains("*   acme\n"));
    assert_eq!(
        mica(&["project", "list", "--org", "umbrella", "-o", "name"]),
        "project/lab\n"
    );
    mica(&["ctx", "/"]);
    assert!(mica(&["ctx"]).starts_with("* /\n"));
    let (code, _, error) = run(home.path(), &["ctx", "umbrella/web"]);
    assert_eq!(code, 2, "{error}");

    let config = mica(&["org", "kubeconfig", "acme"]);
    assert!(
        config.contains(&format!("{}/apis/resourcemanager.miloapis.com", server.url())),
        "{config}"
    );
    std::fs::write(home.path().join("acme.kubeconfig"), config).unwrap();
    // What a view does not have is told plainly.
    let (code, _, error) = run(home.path(), &["project", "create", "x", "--org", "nobody", "--no-wait"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("organizations.resourcemanager.miloapis.com \"nobody\" not found"),
        "{error}"
    );
    let (code, _, error) = run(home.path(), &["project", "create", "Bad_Name", "--org", "acme"]);
    assert_eq!(code, 2, "{error}");
    assert_eq!(
        mica(&["org", "delete", "umbrella", "--no-wait"]),
        "organization/umbrella deletion has begun\n"
    );
}

#[test]
fn a_server_can_be_without_organizations() {
    let home = tempfile::tempdir().unwrap();
    let _server = Up::start(home.path(), &["--tenancy", "absent"]);
    let (code, _, error) = run(home.path(), &["org", "list"]);
    assert_eq!(code, 1, "{error}");
}
