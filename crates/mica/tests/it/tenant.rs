//! `mica org`, `mica project` and `mica ctx` on a real server.

use super::process::{Shell, Up, run};

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
    assert!(mica(&["ctx"]).contains("*   acme\n"));
    assert_eq!(mica(&["project", "list", "-o", "name"]), "project/shop\nproject/web\n");
    // Commands find others from there.
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

/// Makes somebody who is no administrator: a member of acme who may have projects there.
const ANN: &str = r#"
admin() { kubectl --kubeconfig .mica/admin.kubeconfig "$@"; }
admin create serviceaccount ann
admin create role makers -n organization-acme --verb=get,list,create,delete \
  --resource=projects.resourcemanager.miloapis.com --resource=organizationmemberships.resourcemanager.miloapis.com
admin create rolebinding ann -n organization-acme --role=makers --serviceaccount=default:ann
admin apply -f - <<MEMBERSHIP
apiVersion: resourcemanager.miloapis.com/v1alpha1
kind: OrganizationMembership
metadata: {name: ann, namespace: organization-acme}
spec:
  organizationRef: {name: acme}
  userRef: {name: $(admin get serviceaccount ann -o jsonpath={.metadata.uid})}
MEMBERSHIP
cp .mica/admin.kubeconfig ann.kubeconfig
kubectl --kubeconfig ann.kubeconfig config set-credentials ann --token="$(admin create token ann)"
kubectl --kubeconfig ann.kubeconfig config set-context --current --user=ann
until mica project list --org acme --kubeconfig ann.kubeconfig; do sleep 0.05; done
"#;

#[test]
fn a_member_sees_and_uses_what_is_theirs_and_nothing_else() {
    let shell = Shell {
        home: tempfile::tempdir().unwrap(),
    };
    let _server = Up::start(shell.home.path(), &[]);
    shell.run("mica org create acme umbrella; mica project create lab --org umbrella");
    shell.run(ANN);
    let ann = |command: &str| shell.run(&format!("export MICA_KUBECONFIG=ann.kubeconfig\n{command}"));
    assert_eq!(ann("mica ctx"), "* /\n    acme\n");
    assert!(ann("mica ctx acme").starts_with("now at acme ("));
    // Where one is says whose it is.
    assert_eq!(ann("mica project create web"), "project/web created\n");
    assert_eq!(ann("mica project list -o name"), "project/web\n");
    assert!(ann("mica project describe web").contains("Organization:  acme\n"));
    let described = ann("mica org describe acme");
    assert!(described.contains("Projects:\n  web\n"), "{described}");
    ann("mica ctx acme/web");
    assert_eq!(ann("mica ctx"), "  /\n    acme\n*     acme/web\n");
    for refused in [
        "mica ctx umbrella",
        "mica ctx acme/lab",
        "mica org list",
        "mica project list",
        "mica project create web2",
        "mica project describe lab --org acme",
        "mica project create lab2 --org umbrella",
    ] {
        let said = ann(&format!("! {refused}"));
        assert!(!said.is_empty(), "{refused}");
    }
    assert_eq!(ann("mica project delete web --org acme"), "project/web deleted\n");
}

#[test]
fn an_organization_is_deleted_when_all_that_is_its_own_is_gone() {
    let shell = Shell {
        home: tempfile::tempdir().unwrap(),
    };
    let _server = Up::start(shell.home.path(), &[]);
    shell
        .run("mica org create acme; mica project create web --org acme; mica project kubeconfig web -f web.kubeconfig");
    let held = r#"{"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]}}"#;
    shell.run(&format!("kubectl --kubeconfig web.kubeconfig create -f - <<<'{held}'"));
    let said = shell.run("! mica org delete acme --timeout 1s");
    assert!(
        said.starts_with(
            "error: organization \"acme\" is still being deleted after 1 s: its project \"web\" is still there"
        ),
        "{said}"
    );
    assert!(
        said.contains("configmaps \"held\" in namespace \"default\" waits for finalizers: example.com/hold"),
        "{said}"
    );
    shell.run("kubectl --kubeconfig web.kubeconfig patch configmap held --type=merge -p '{\"metadata\":{\"finalizers\":null}}'");
    shell.run("until [ -z \"$(mica project list -o name)\" ]; do sleep 0.05; done");
    // The name is free when a deletion has returned.
    shell.run("until mica org create acme; do sleep 0.05; done; mica org delete acme; mica org create acme");
    assert_eq!(shell.run("mica ctx"), "* /\n    acme\n");
}

#[test]
fn a_server_can_be_without_organizations() {
    let home = tempfile::tempdir().unwrap();
    let _server = Up::start(home.path(), &["--tenancy", "absent"]);
    let (code, _, error) = run(home.path(), &["org", "list"]);
    assert_eq!(code, 1, "{error}");
}
