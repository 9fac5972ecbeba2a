//! `mica up`: starting, stopping, and refusing to start.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;

use super::process::{Up, run};

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_first_start_makes_what_a_second_start_finds() {
    let home = home();
    let first = Up::start(home.path(), &[]);
    let kubeconfig = home.path().join(".mica/admin.kubeconfig");
    assert_eq!(
        std::fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    assert!(
        text.contains("current-context: \"root\"") && text.contains(first.url()),
        "{text}"
    );
    assert!(
        first
            .ready
            .ends_with("Try: kubectl --kubeconfig ./.mica/admin.kubeconfig get namespaces\n"),
        "{}",
        first.ready
    );
    let authority = std::fs::read(home.path().join(".mica/pki/ca.crt")).unwrap();
    let (code, listed, _) = run(home.path(), &["plane", "list", "-o", "json"]);
    assert_eq!((code, listed.contains("\"PlaneList\"")), (0, true), "{listed}");
    first.signal("-TERM");
    assert_eq!(first.wait(), (Some(0), String::new()), "one line only, and a clean end");

    let second = Up::start(home.path(), &["--san", "mica.example"]);
    assert_eq!(std::fs::read(home.path().join(".mica/pki/ca.crt")).unwrap(), authority);
    assert_eq!(run(home.path(), &["plane", "list"]).0, 0);
    second.signal("-INT");
    assert_eq!(second.wait().0, Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_takes_no_huge_pages() {
    let home = home();
    let server = Up::start(home.path(), &[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("THP_enabled:"));
    // Kernels that cannot tell are older than 5.0.
    assert_eq!(line, Some("THP_enabled:\t0"), "{status}");
}

#[test]
fn writes_are_audited_unless_told_otherwise_for_the_owner_alone() {
    let home = home();
    let server = Up::start(home.path(), &[]);
    assert_eq!(run(home.path(), &["plane", "create", "a"]).0, 0);
    assert_eq!(run(home.path(), &["plane", "list"]).0, 0);
    server.signal("-TERM");
    assert_eq!(server.wait().0, Some(0));
    let path = home.path().join(".mica/audit/audit.log");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // What was asked last is there: the end waited for it.
    let text = std::fs::read_to_string(&path).unwrap();
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 1, "{text}");
    assert_eq!(
        (&events[0]["verb"], &events[0]["objectRef"]["name"]),
        (&"create".into(), &"a".into())
    );
    assert!(events[0].get("requestObject").is_none());
}

#[test]
fn planes_are_made_used_copied_and_deleted_on_a_real_server() {
    let home = home();
    let _server = Up::start(home.path(), &[]);
    let mica = |arguments: &[&str]| run(home.path(), arguments);
    assert_eq!(
        mica(&["plane", "create", "a", "b"]),
        (0, "plane/a created\nplane/b created\n".into(), String::new())
    );
    let (code, table, _) = mica(&["plane", "list"]);
    assert_eq!(code, 0);
    assert!(table.starts_with("NAME") && table.lines().count() == 3, "{table}");
    assert_eq!(mica(&["plane", "list", "-o", "name"]).1, "plane/a\nplane/b\n");
    assert_eq!(mica(&["plane", "snapshot", "a", "-f", "a.snapshot"]).0, 0);
    assert_eq!(
        mica(&["plane", "restore", "d", "-f", "a.snapshot"]),
        (0, "plane/d restored\n".into(), String::new())
    );
    assert_eq!(
        mica(&["plane", "fork", "a", "c"]),
        (0, "plane/c forked from plane/a\n".into(), String::new())
    );
    assert_eq!(
        mica(&["plane", "rebase", "a", "d"]),
        (0, "plane/a rebased\nplane/d rebased\n".into(), String::new())
    );
    let (code, config, _) = mica(&["plane", "kubeconfig", "c"]);
    assert_eq!(
        (code, config.contains("/clusters/c/control-plane\"")),
        (0, true),
        "{config}"
    );
    let deleted = "plane/a deleted\nplane/b deleted\nplane/c deleted\nplane/d deleted\n";
    assert_eq!(
        mica(&["plane", "delete", "a", "b", "c", "d"]),
        (0, deleted.into(), String::new())
    );
    let missing = "error: planes.mica.dev \"a\" not found\n";
    assert_eq!(mica(&["plane", "delete", "a"]), (1, String::new(), missing.into()));
}

#[test]
fn a_directory_in_use_names_who_holds_it() {
    let home = home();
    let server = Up::start(home.path(), &[]);
    let (code, _, error) = run(home.path(), &["up", "--listen", "127.0.0.1:0"]);
    let expected = format!(
        "error: data directory ./.mica is in use by process {} ({})\n",
        server.pid(),
        server.url()
    );
    assert_eq!((code, error), (1, expected));
}

#[test]
fn a_port_in_use_names_who_holds_it() {
    let (first, second) = (home(), home());
    let server = Up::start(first.path(), &[]);
    let address = format!("127.0.0.1:{}", server.port());
    let (code, _, error) = run(second.path(), &["up", "--listen", &address]);
    let expected = format!(
        "error: cannot listen on {address}: the port is in use by process {} (mica)\n",
        server.pid()
    );
    assert_eq!((code, error), (1, expected));
}

#[test]
fn a_bad_start_is_one_line_and_no_success() {
    let home = home();
    std::fs::write(home.path().join("file"), "in the way").unwrap();
    std::fs::write(home.path().join("bad.yaml"), "listen: 127.0.0.1:0\nlissten: x\n").unwrap();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let etcd = format!("etcd://{free}");
    for (arguments, code, part) in [
        (&["--data-dir", "file"][..], 1, "error: data directory file: "),
        (&["--data-dir", "file/below"], 1, "error: data directory file/below: "),
        (&["--config", "bad.yaml"], 2, "error: bad.yaml: "),
        (
            &["--config", "none.yaml"],
            2,
            "error: none.yaml: No such file or directory",
        ),
        (
            &["--listen", "nowhere"],
            2,
            "error: listen: \"nowhere\" is not HOST:PORT",
        ),
        (&["--listen", "192.0.2.1:1"], 1, "error: cannot listen on 192.0.2.1:1: "),
        (
            &["--log", "what=ever=this"],
            2,
            "error: log: \"what=ever=this\" is no level or filter",
        ),
        (
            &["--store", "floppy"],
            2,
            "error: store: \"floppy\" is neither embedded nor etcd://HOST:PORT",
        ),
        (&["--store", &etcd], 1, "error: store: "),
    ] {
        let listen: &[&str] = if arguments[0] == "--listen" {
            &[]
        } else {
            &["--listen", "127.0.0.1:0"]
        };
        let (got, out, error) = run(home.path(), &[&["up"], listen, arguments].concat());
        assert_eq!((got, out.as_str()), (code, ""), "{arguments:?}: {error}");
        assert!(error.starts_with(part), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    }
    let (_, _, error) = run(home.path(), &["up", "--config", "bad.yaml"]);
    assert!(error.contains("lissten"), "{error}");
}

#[test]
fn an_unknown_flag_is_a_usage_error() {
    let home = home();
    let (code, _, error) = run(home.path(), &["up", "--lisen", "x"]);
    assert_eq!(code, 2);
    assert!(error.contains("--listen"), "a similar flag is suggested: {error}");
}

#[test]
fn variables_and_the_file_are_settings_too() {
    let home = home();
    std::fs::write(
        home.path().join("mica.yaml"),
        "data-dir: from-file\nlisten: 127.0.0.1:0\nlog: error\n",
    )
    .unwrap();
    let mut command = super::process::mica(home.path());
    command
        .args(["up", "--config", "mica.yaml"])
        .env("MICA_LISTEN", "not an address");
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        error,
        "error: listen: \"not an address\" is not HOST:PORT, such as 127.0.0.1:6440 or [::]:6440\n"
    );
    let server = Up::start(home.path(), &["--config", "mica.yaml"]);
    assert!(
        server.ready.contains("--kubeconfig from-file/admin.kubeconfig"),
        "{}",
        server.ready
    );
}

#[test]
fn clients_are_told_the_address_that_is_advertised() {
    let home = home();
    let server = Up::start(home.path(), &["--advertise", "https://mica.example:7443"]);
    let kubeconfig = std::fs::read_to_string(home.path().join(".mica/admin.kubeconfig")).unwrap();
    assert!(kubeconfig.contains("https://mica.example:7443"), "{kubeconfig}");
    assert_eq!(server.url(), "https://mica.example:7443", "{}", server.ready);
}

#[test]
fn variables_that_are_set_to_nothing_are_not_set() {
    let home = home();
    let pages = [
        &["up", "--help"][..],
        &["plane", "list", "--help"],
        &["store", "check", "--help"],
    ];
    let help: String = pages.map(|arguments| run(home.path(), arguments).1).concat();
    let named = help.split("[env: ").skip(1);
    let named: std::collections::BTreeSet<&str> = named.filter_map(|rest| rest.split(['=', ']']).next()).collect();
    assert!(named.contains("MICA_KUBECONFIG") && named.len() > 10, "{named:?}");
    let empty = |arguments: &[&str]| {
        let mut command = super::process::mica(home.path());
        command.args(arguments);
        command.envs(named.iter().map(|name| (name, "")));
        command
    };
    let server = Up::run(empty(&["up", "--listen", "127.0.0.1:0", "--log", "warn"]));
    let default = "--kubeconfig ./.mica/admin.kubeconfig";
    assert!(server.ready.contains(default), "{}", server.ready);
    let output = empty(&["plane", "list"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_log_tells_of_the_server_and_not_of_its_libraries_unless_asked() {
    let home = home();
    let stop = |server: Up| {
        server.signal("-TERM");
        assert_eq!(server.wait().0, Some(0));
    };
    // What is there to be read again is what the index tells of.
    stop(Up::start(home.path(), &[]));
    let logged = |level: &str| {
        let log = home.path().join("log");
        let mut command = super::process::mica(home.path());
        command.args(["up", "--listen", "127.0.0.1:0", "--log", level]);
        command.stderr(std::fs::File::create(&log).unwrap());
        stop(Up::run(command));
        std::fs::read_to_string(log).unwrap()
    };
    let usual = logged("info");
    assert!(!usual.contains("lsm_tree"), "{usual}");
    assert!(logged("warn,lsm_tree=info").contains("lsm_tree"), "it can be asked for");
}

#[test]
fn what_was_acknowledged_survives_a_kill_and_a_backup_brings_it_back() {
    let home = home();
    let server = Up::start(home.path(), &[]);
    assert_eq!(run(home.path(), &["plane", "create", "kept"]).0, 0);
    server.signal("-KILL");
    assert_eq!(server.wait().0, None);

    let server = Up::start(home.path(), &[]);
    assert_eq!(run(home.path(), &["plane", "list", "-o", "name"]).1, "plane/kept\n");
    let (code, _, saved) = run(home.path(), &["store", "backup", "-f", "all.backup"]);
    assert_eq!(code, 0);
    assert!(saved.starts_with("store saved to all.backup ("), "{saved}");
    let (code, checked, _) = run(home.path(), &["store", "check"]);
    assert!(code == 0 && checked.contains("keys"), "{checked}");
    let (code, _, error) = run(home.path(), &["store", "check", "--data-dir", ".mica"]);
    assert!(code == 1 && error.contains("is in use by process"), "{error}");
    let (code, _, error) = run(home.path(), &["store", "restore", "-f", "all.backup"]);
    assert!(code == 1 && error.contains("is in use by process"), "{error}");
    server.signal("-TERM");
    assert_eq!(server.wait().0, Some(0));

    let (code, restored, _) = run(
        home.path(),
        &["store", "restore", "-f", "all.backup", "--data-dir", "again"],
    );
    assert!(
        code == 0 && restored.starts_with("store restored to again: "),
        "{restored}"
    );
    let (code, _, error) = run(
        home.path(),
        &["store", "restore", "-f", "all.backup", "--data-dir", "again"],
    );
    assert!(code == 1 && error.contains("is not empty"), "{error}");
    assert_eq!(
        run(home.path(), &["store", "check", "--data-dir", "again", "-o", "json"]).0,
        0
    );
    let _again = Up::start(home.path(), &["--data-dir", "again"]);
    let authority = |directory: &str| std::fs::read(home.path().join(directory).join("pki/ca.crt")).unwrap();
    assert_eq!(
        authority("again"),
        authority(".mica"),
        "who trusted the old server trusts this one"
    );
    let listed = run(
        home.path(),
        &["plane", "list", "-o", "name", "--kubeconfig", "again/admin.kubeconfig"],
    );
    assert_eq!(listed.1, "plane/kept\n");
}
