//! The stub and the server on it.

use super::environment::{Environment, Program, free_port, get_plain};

#[test]
fn a_pair_serves_and_what_it_was_told_is_there_after_a_restart() {
    let environment = Environment::new();
    let (etcd, port) = (free_port(), free_port());
    let stub = environment.stub(etcd, &["--unsafe-no-fsync=true"]);
    assert_eq!(get_plain(etcd, "/health").unwrap().0, 200);
    assert_eq!(get_plain(etcd, "/readyz").unwrap().0, 200);
    let (code, version) = get_plain(etcd, "/version").unwrap();
    assert!(code == 200 && version.contains("\"stub\":\"mica\""), "{version}");
    assert_eq!(get_plain(etcd, "/v2/keys").unwrap().0, 404);
    let mut server = environment.apiserver(port, etcd, &[]);
    environment.ready(&mut server, port);
    let (code, out, error) = environment.mica(&["plane", "create", "kept"]);
    assert_eq!((code, out.as_str()), (0, "plane/kept created\n"), "{error}");
    assert_eq!(server.stop(), Some(0));
    assert_eq!(stub.stop(), Some(0));

    // Other ports, the same directory.
    let (etcd, port) = (free_port(), free_port());
    let _stub = environment.stub(etcd, &["--unsafe-no-fsync=true"]);
    let mut server = environment.apiserver(port, etcd, &[]);
    environment.ready(&mut server, port);
    assert_eq!(environment.mica(&["plane", "list", "-o", "name"]).1, "plane/kept\n");
    // Killed, it leaves nothing that is in the way of the next.
    server.signal("-KILL");
    assert_eq!(server.end().0, None);
    let mut server = environment.apiserver(port, etcd, &[]);
    environment.ready(&mut server, port);
    assert_eq!(environment.mica(&["plane", "list", "-o", "name"]).1, "plane/kept\n");
    server.signal("-INT");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_cluster_is_as_kube_apiserver_alone_makes_it() {
    let environment = Environment::new();
    let (etcd, port) = (free_port(), free_port());
    let _stub = environment.stub(etcd, &[]);
    let mut server = environment.apiserver(port, etcd, &["--advertise-address=10.20.30.40"]);
    environment.ready(&mut server, port);
    let admin = environment.user("admin", Some("system:masters"));
    let get = |path: &str| {
        let (code, body) = environment.get(port, path, Some(&admin), "").unwrap();
        assert_eq!(code, 200, "{path}: {body}");
        body
    };
    let service = get("/api/v1/namespaces/default/services/kubernetes");
    assert!(service.contains("\"clusterIP\":\"10.0.0.1\""), "{service}");
    assert!(service.contains(&format!("\"targetPort\":{port}")), "{service}");
    for path in [
        "/api/v1/namespaces/default/endpoints/kubernetes",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
    ] {
        let endpoints = get(path);
        let here = endpoints.contains("10.20.30.40") && endpoints.contains(&format!("\"port\":{port}"));
        assert!(here, "{endpoints}");
    }
    let range = get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes");
    assert!(range.contains("[\"10.0.0.0/24\"]"), "{range}");
    // What controllers make is not there without them.
    assert!(get("/api/v1/serviceaccounts").contains("\"items\":[]"));
    assert!(!get("/api/v1/configmaps").contains("kube-root-ca.crt"));
}

#[test]
fn the_unknown_see_health_and_the_known_are_told_apart() {
    let environment = Environment::new();
    let (etcd, port) = (free_port(), free_port());
    std::fs::write(
        environment.path().join("tokens"),
        "secret,ann,1,\"system:masters\"\nother,bob,2\n",
    )
    .unwrap();
    let _stub = environment.stub(etcd, &[]);
    let mut server = environment.apiserver(port, etcd, &["--token-auth-file=tokens"]);
    environment.ready(&mut server, port);
    let code = |path: &str, group: Option<Option<&str>>, token: &str| {
        let user = group.map(|group| environment.user("somebody", group));
        environment.get(port, path, user.as_ref(), token).unwrap().0
    };
    const NAMESPACES: &str = "/api/v1/namespaces";
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(code(path, None, ""), 200, "{path}");
    }
    assert_eq!(code(NAMESPACES, Some(Some("system:masters")), ""), 200);
    assert_eq!(code(NAMESPACES, Some(None), ""), 403);
    assert_eq!(code(NAMESPACES, None, "secret"), 200);
    assert_eq!(code(NAMESPACES, None, "other"), 403);
    assert_eq!(code(NAMESPACES, None, "guessed"), 401);
    // The file counts as it is now.
    std::fs::write(
        environment.path().join("tokens"),
        "third,cleo,3,\"system:masters\"\nother,bob,2\n",
    )
    .unwrap();
    server.says("tokens has changed and counts from now on");
    assert_eq!(code(NAMESPACES, None, "third"), 200);
    assert_eq!(code(NAMESPACES, None, "secret"), 401);
    // Service account tokens are checked with the key that was given, which others read here.
    let admin = environment.user("admin", Some("system:masters"));
    let (_, keys) = environment.get(port, "/openid/v1/jwks", Some(&admin), "").unwrap();
    assert!(keys.contains("\"alg\":\"ES256\""), "{keys}");
    drop(server);

    let port = free_port();
    let more = [
        "--token-auth-file=tokens",
        "--authorization-mode=AlwaysAllow",
        "--anonymous-auth=false",
    ];
    let mut server = environment.apiserver(port, etcd, &more);
    server.says("serving on");
    let get = |path: &str, token: &str| environment.get(port, path, None, token).unwrap().0;
    assert_eq!(get(NAMESPACES, "other"), 200);
    assert_eq!(get("/healthz", ""), 401);
    assert!(!server.has_ended());
}

#[test]
fn one_directory_has_one_server_unless_their_prefixes_differ() {
    let environment = Environment::new();
    let (etcd, port) = (free_port(), free_port());
    let stub = environment.stub(etcd, &[]);
    let mut server = environment.apiserver(port, etcd, &[]);
    environment.ready(&mut server, port);
    let (code, said) = environment.apiserver(free_port(), etcd, &[]).end();
    let holder = format!("is in use by process {} (https://127.0.0.1:{port})", server.pid());
    assert!(code == Some(1) && said.contains(&holder), "{said}");
    let other = free_port();
    let mut second = environment.apiserver(other, etcd, &["--etcd-prefix=/other"]);
    environment.ready(&mut second, other);
    // The port is named with its holder, too.
    let (code, said) = environment.apiserver(port, etcd, &[]).end();
    let taken = format!(
        "cannot listen on 127.0.0.1:{port}: the port is in use by process {}",
        server.pid()
    );
    assert!(code == Some(1) && said.contains(&taken), "{said}");
    // A second stub on the directory is told so, and one on its port.
    let url = |port: u16| format!("--listen-client-urls=http://127.0.0.1:{port}");
    let again = |directory: &str, port: u16| {
        let mut command = environment.command("etcd");
        command.args([&url(port), "--listen-peer-urls=http://127.0.0.1:0", directory]);
        Program::start(command, environment.path().join("again.log")).end()
    };
    let (code, said) = again("--data-dir=etcd", free_port());
    let held = format!("data directory etcd is in use by process {}", stub.pid());
    assert!(code == Some(1) && said.contains(&held), "{said}");
    let (code, said) = again("--data-dir=elsewhere", etcd);
    assert!(code == Some(1) && said.contains("the port is in use"), "{said}");
}

#[test]
fn a_certificate_is_made_where_there_is_none_and_kept() {
    let environment = Environment::new();
    let (etcd, port) = (free_port(), free_port());
    let _stub = environment.stub(etcd, &[]);
    let made = environment.path().join("made/apiserver.crt");
    let mut first = None;
    for _ in 0..2 {
        let server = environment.apiserver(port, etcd, &["--cert-dir=made"]);
        server.says("serving on");
        let text = std::fs::read_to_string(&made).unwrap();
        assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2, "its authority is in it");
        assert_eq!(*first.get_or_insert(text.clone()), text);
        assert_eq!(server.stop(), Some(0));
    }
    let (code, said) = environment.apiserver(port, etcd, &["--tls-cert-file=none.crt"]).end();
    assert!(code == Some(1) && said.contains("must be specified together"), "{said}");
    let files = ["--tls-cert-file=none.crt", "--tls-private-key-file=none.key"];
    let (code, said) = environment.apiserver(port, etcd, &files).end();
    assert!(code == Some(1) && said.contains("none.crt: No such file"), "{said}");
}
