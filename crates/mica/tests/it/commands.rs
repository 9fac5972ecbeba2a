//! Commands beside `up`: what they print and how they fail.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::fake::{Script, serve};
use super::process::{mica, run};

/// Runs commands against a scripted server.
async fn check(script: Script, arguments: &[&str]) -> (i32, String, String) {
    let home = tempfile::tempdir().unwrap();
    serve(home.path(), script).await;
    run_in(home.path().to_owned(), arguments).await
}

async fn run_in(home: PathBuf, arguments: &[&str]) -> (i32, String, String) {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    tokio::task::spawn_blocking(move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run(&home, &arguments)
    })
    .await
    .unwrap()
}

#[test]
fn help_and_version_and_completion_print() {
    let home = Path::new(".");
    let (code, help, _) = run(home, &["--help"]);
    assert_eq!(code, 0);
    for word in ["up", "plane", "store", "completion", "version"] {
        assert!(help.contains(word), "{word}");
    }
    assert!(run(home, &["up", "--help"]).1.contains("MICA_DATA_DIR"));
    assert!(
        run(home, &["plane", "snapshot", "--help"])
            .1
            .contains("mica plane snapshot team-a -f team-a.snapshot")
    );
    let (code, version, _) = run(home, &["version", "-o", "json"]);
    assert_eq!((code, version.contains("\"kubernetes\": \"1.36")), (0, true));
    let version: serde_json::Value = serde_json::from_str(&version).unwrap();
    assert_eq!(version["store"], serde_json::json!({"embedded": 1, "etcd": 1}));
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = run(home, &["completion", shell]);
        assert_eq!((code, script.contains("kubeconfig")), (0, true), "{shell}");
    }
    assert_eq!(run(home, &[]).0, 2);
}

#[test]
fn a_reader_that_goes_early_is_no_failure_worth_a_word() {
    let mut command = mica(Path::new("."));
    command
        .args(["completion", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn no_kubeconfig_and_no_server_are_said_plainly() {
    let home = tempfile::tempdir().unwrap();
    let (code, _, error) = run(home.path(), &["plane", "list"]);
    assert_eq!(code, 1);
    assert!(
        error.starts_with("error: no kubeconfig: ./.mica/admin.kubeconfig is not there"),
        "{error}"
    );
    let (code, _, error) = run(home.path(), &["plane", "create", "Not_A_Name"]);
    assert_eq!(code, 2);
    assert!(
        error.starts_with("error: \"Not_A_Name\" is not a plane name"),
        "{error}"
    );
    let config = r#"{"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": ""}}], "current-context": "a"}"#;
    std::fs::write(home.path().join("config"), config).unwrap();
    let (code, _, error) = run(home.path(), &["plane", "list", "--kubeconfig", "config"]);
    assert_eq!(code, 1);
    assert!(
        error.starts_with("error: cannot reach https://127.0.0.1:1: Connection refused"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
}

#[tokio::test]
async fn a_refusal_is_the_servers_own_words() {
    let forbidden: Script = |_| {
        (
            403,
            r#"{"kind": "Status", "message": "planes.mica.dev is forbidden: no"}"#,
        )
    };
    let (code, out, error) = check(forbidden, &["plane", "list"]).await;
    assert_eq!(
        (code, out.as_str(), error.as_str()),
        (1, "", "error: planes.mica.dev is forbidden: no\n")
    );
    let plain: Script = |_| (404, "404 page not found\n");
    let (_, _, error) = check(plain, &["plane", "list"]).await;
    assert_eq!(error, "error: the server answered 404 Not Found: 404 page not found\n");
}

#[tokio::test]
async fn an_answer_that_breaks_off_leaves_no_file() {
    let home = tempfile::tempdir().unwrap();
    serve(home.path(), |_| (200, "half a snapshotCUT")).await;
    let (code, _, error) = run_in(home.path().to_owned(), &["plane", "snapshot", "a", "-f", "a.snapshot"]).await;
    assert_eq!(code, 1);
    // Whether the head of the answer still gets out before the connection is dropped is a race.
    let told = error.starts_with("error: the answer broke off") || error.ends_with(" hung up without an answer\n");
    assert!(told && error.lines().count() == 1, "{error}");
    let left: Vec<_> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        left.iter().all(|name| !name.to_string_lossy().contains("snapshot")),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_plane_that_is_held_says_by_what() {
    let held: Script = |line| match line {
        line if line.contains("watch=1") => (200, ""),
        _ => (
            200,
            r#"{"metadata": {"resourceVersion": "5"}, "status": {"conditions": [
                {"type": "Drained", "status": "False", "message": "configmaps default/a has finalizers"}]}}"#,
        ),
    };
    let (code, _, error) = check(held, &["plane", "delete", "p", "--timeout", "100ms"]).await;
    let expected = "error: plane \"p\" is still being deleted after 0 s: configmaps default/a has finalizers\n";
    assert_eq!((code, error.as_str()), (1, expected));
    let (code, out, _) = check(held, &["plane", "delete", "p", "--no-wait"]).await;
    assert_eq!((code, out.as_str()), (0, "plane/p deletion has begun\n"));
}

#[tokio::test]
async fn a_damaged_store_is_no_success() {
    let sound: Script = |_| (200, r#"{"records": 12, "problems": []}"#);
    let (code, out, _) = check(sound, &["store", "check"]).await;
    assert_eq!((code, out.as_str()), (0, "WHAT      VALUE\nrecords   12\n"));
    let damaged: Script = |_| {
        (
            200,
            r#"{"records": 12, "problems": ["segment 3, offset 99: bad checksum"]}"#,
        )
    };
    let (code, _, error) = check(damaged, &["store", "check"]).await;
    assert_eq!(
        (code, error.as_str()),
        (1, "error: the store is damaged: segment 3, offset 99: bad checksum\n")
    );
}
