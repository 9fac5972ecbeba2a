//! Flags, as the two programs take and refuse them.

use super::environment::Environment;
use crate::process::run;

#[test]
fn the_name_it_is_called_by_and_the_command_are_the_same() {
    let environment = Environment::new();
    for (name, command) in [("kube-apiserver", "kube-apiserver"), ("etcd", "etcd-stub")] {
        for flag in ["--help", "--version", "--no-such-flag"] {
            let called = environment.command(name).arg(flag).output().unwrap();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            let called = (called.status.code().unwrap(), text(called.stdout), text(called.stderr));
            assert_eq!(called, run(environment.path(), &[command, flag]), "{name} {flag}");
        }
    }
}

#[test]
fn help_has_what_a_test_environment_looks_for() {
    let home = tempfile::tempdir().unwrap();
    let (code, apiserver, _) = run(home.path(), &["kube-apiserver", "--help"]);
    assert_eq!(code, 0);
    let lists = |help: &str, flag: &str| {
        let mut lines = help.lines();
        lines.any(|line| line.split_whitespace().next() == Some(flag))
    };
    assert!(lists(&apiserver, "--secure-port"), "{apiserver}");
    assert!(!lists(&apiserver, "--insecure-port"), "else it would be passed");
    let (code, etcd, _) = run(home.path(), &["etcd-stub", "-h"]);
    assert_eq!(code, 0);
    assert!(lists(&etcd, "--unsafe-no-fsync"), "{etcd}");
}

#[test]
fn what_cannot_be_started_says_why_in_one_line() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, code, words) in [
        (&["kube-apiserver", "--foo"][..], 1, "Error: unknown flag: --foo\n"),
        (
            &["kube-apiserver", "--secure-port"],
            1,
            "Error: flag needs an argument: --secure-port\n",
        ),
        (
            &["kube-apiserver", "extra"],
            1,
            "Error: \"kube-apiserver\" does not take any arguments, got [\"extra\"]\n",
        ),
        (
            &["kube-apiserver", "--secure_port", "1"],
            1,
            "\"command failed\" err=\"--etcd-servers must be specified\"\n",
        ),
        (&["etcd-stub", "--foo"], 2, "flag provided but not defined: -foo\n"),
        (&["etcd-stub", "extra"], 1, "error: \"extra\" is not a valid flag\n"),
        (
            &["etcd-stub", "--listen-client-urls=here"],
            1,
            "error: listen-client-urls: \"here\" is not http://HOST:PORT or https://HOST:PORT\n",
        ),
        (
            &["etcd-stub", "--listen-client-urls=https://127.0.0.1:0"],
            1,
            "error: https needs --cert-file and --key-file\n",
        ),
    ] {
        let (got, out, error) = run(home.path(), arguments);
        assert_eq!((got, out.as_str(), error.as_str()), (code, "", words), "{arguments:?}");
    }
}

#[test]
fn versions_are_told_as_the_programs_tell_them() {
    let home = tempfile::tempdir().unwrap();
    let (code, out, _) = run(home.path(), &["kube-apiserver", "--version"]);
    assert!(code == 0 && out.starts_with("Kubernetes v1.36."), "{out}");
    let (code, out, _) = run(home.path(), &["etcd-stub", "--version"]);
    assert!(code == 0 && out.starts_with("etcd Version: 3."), "{out}");
    assert!(out.contains("Mica's stub"), "{out}");
}

#[test]
fn assets_are_links_and_nobodys_file_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("my-kubectl"), "").unwrap();
    let install = || {
        run(
            home.path(),
            &["envtest", "install", "assets", "--kubectl", "my-kubectl"],
        )
    };
    let assets = home.path().canonicalize().unwrap().join("assets");
    assert_eq!(install(), (0, format!("{}\n", assets.display()), String::new()));
    assert_eq!(install().0, 0, "twice is as good as once");
    assert!(assets.join("kubectl").is_symlink() && assets.join("etcd").is_symlink());
    std::fs::remove_file(assets.join("etcd")).unwrap();
    std::fs::write(assets.join("etcd"), "somebody's").unwrap();
    let (code, _, error) = install();
    assert_eq!(code, 1);
    assert!(error.contains("etcd is a file, not a link"), "{error}");
}
