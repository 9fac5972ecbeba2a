//! A real etcd behind the server that stands in for kube-apiserver.

use std::process::{Command, Stdio};

use super::environment::{Environment, Program, free_port};

/// The etcd on the PATH, on ports and in a directory of its own.
fn real_etcd(environment: &Environment, port: u16) -> Program {
    let peer = format!("http://127.0.0.1:{}", free_port());
    let url = format!("http://127.0.0.1:{port}");
    let mut command = Command::new("etcd");
    command.current_dir(environment.path()).stdout(Stdio::null()).args([
        "--data-dir=real".to_owned(),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]);
    Program::start(command, environment.path().join("real.log"))
}

#[test]
fn a_real_etcd_that_comes_late_is_waited_for_and_used() {
    let environment = Environment::new();
    let (etcd, port) = (free_port(), free_port());
    let mut server = environment.apiserver(port, etcd, &[]);
    server.says("waiting for etcd");
    let _etcd = real_etcd(&environment, etcd);
    environment.ready(&mut server, port);
    assert!(!server.log().contains("stub"), "{}", server.log());
    assert_eq!(environment.mica(&["plane", "create", "kept"]).0, 0);
    assert_eq!(server.stop(), Some(0));
    let mut server = environment.apiserver(port, etcd, &[]);
    environment.ready(&mut server, port);
    assert_eq!(environment.mica(&["plane", "list", "-o", "name"]).1, "plane/kept\n");
}

#[test]
fn who_takes_connections_and_does_not_answer_is_waited_for_but_not_for_ever() {
    let environment = Environment::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let etcd = silent.local_addr().unwrap().port();
    let server = environment.apiserver(free_port(), etcd, &["--storage-initialization-timeout=1ms"]);
    let (code, said) = server.end();
    assert!(
        code == Some(1) && said.contains("etcd did not answer within 1ms") && said.contains("no answer in time"),
        "{said}"
    );
}

#[test]
fn asked_to_end_while_it_waits_it_ends() {
    let environment = Environment::new();
    let server = environment.apiserver(free_port(), free_port(), &[]);
    server.says("waiting for etcd");
    assert_eq!(server.stop(), Some(0));
}
