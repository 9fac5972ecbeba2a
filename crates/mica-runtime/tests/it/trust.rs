//! Whom clusters are trusted to be, and what is not trusted.

use http::{Request, Response};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::client::Body;
use mica_runtime::cluster::AccessError;
use mica_runtime::{Access, ClusterName, ClusterSpec};
use mica_testkit::TestServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::support::{Told, engaged, fleet, next, root, soon};

#[tokio::test]
async fn another_authority_is_taken_in_place() {
    let (server, other) = (TestServer::start().await, TestServer::start().await);
    // The right certificate for clients, and the authority of somebody else.
    let ours = server.kubeconfig();
    let field = |yaml: &str| {
        let line = yaml.lines().find(|line| line.contains("certificate-authority-data:"));
        line.unwrap().trim().to_owned()
    };
    let wrong = ours.replace(&field(&ours), &field(&other.kubeconfig()));
    let spec = |yaml: &str| ClusterSpec::new(ClusterName::new("a"), Access::from_kubeconfig_yaml(yaml).unwrap());
    let (specs, told) = watch::channel(vec![spec(&wrong)]);
    let fleet = fleet();
    fleet.add(Told(told)).unwrap();
    let mut events = fleet.events();
    let cluster = engaged(&mut events, "a").await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    assert!(
        namespaces.get("default").await.is_err(),
        "nobody who is not trusted is asked"
    );
    specs.send_replace(vec![spec(&ours)]);
    next(&mut events).await;
    assert!(namespaces.get("default").await.is_ok());
    assert!(!cluster.lifetime().is_cancelled());
}

#[tokio::test]
async fn kubeconfigs_from_elsewhere_run_nothing_and_read_no_files() {
    let server = TestServer::start().await;
    let kubeconfig = server.kubeconfig();
    assert!(Access::from_foreign_kubeconfig(&kubeconfig).is_ok());
    let user = "    client-certificate-data:";
    assert!(kubeconfig.contains(user), "{kubeconfig}");
    for (field, value) in [
        ("tokenFile", "/etc/hostname"),
        ("client-key", "/etc/hostname"),
        (
            "exec",
            "{command: touch, args: [/tmp/x], apiVersion: client.authentication.k8s.io/v1}",
        ),
        ("auth-provider", "{name: gcp, config: {cmd-path: touch}}"),
    ] {
        let hostile = kubeconfig.replace(user, &format!("    {field}: {value}\n{user}"));
        match Access::from_foreign_kubeconfig(&hostile) {
            Err(AccessError::NotSelfContained(found)) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    let hostile = kubeconfig.replace("certificate-authority-data:", "certificate-authority: /etc/hostname #");
    let refused = Access::from_foreign_kubeconfig(&hostile);
    assert!(
        matches!(refused, Err(AccessError::NotSelfContained("certificate-authority"))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_asked_over_http_1() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .await
            .unwrap();
        String::from_utf8(request).unwrap()
    });
    let config = kube::Config::new(format!("http://{address}/base/").parse().unwrap());
    let client = Access::from_config(config).unwrap().client();
    let request = Request::get("/version?x=y").body(Vec::new()).unwrap();
    assert_eq!(soon("an answer", client.request_text(request)).await.unwrap(), "ok");
    let request = answering.await.unwrap();
    assert!(request.starts_with("GET /base/version?x=y HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: {address}\r\n")) && request.contains("user-agent: mica-runtime/"));
}

#[tokio::test]
async fn a_service_in_this_process_needs_no_connection() {
    let access = Access::in_process(tower::service_fn(async |request: Request<Body>| {
        Ok::<_, std::convert::Infallible>(Response::new(Body::from(request.uri().to_string().into_bytes())))
    }));
    let client = access.at("/clusters/a/control-plane").client();
    let request = Request::get("/api").body(Vec::new()).unwrap();
    assert_eq!(
        client.request_text(request).await.unwrap(),
        "/clusters/a/control-plane/api"
    );
    let another = Access::in_process(tower::service_fn(async |_: Request<Body>| {
        Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
    }));
    assert!(matches!(access.rotate(&another), Err(AccessError::OtherPlace(..))));
    assert!(access.at_host("a:1").is_err() && access.at_url("https://a").is_err());
    let server = TestServer::start().await;
    assert!(root(&server).at_url("ftp://a").is_err());
    let mut proxied = kube::Config::new("https://a".parse().unwrap());
    proxied.proxy_url = Some("http://proxy".parse().unwrap());
    assert!(matches!(Access::from_config(proxied), Err(AccessError::Proxy(_))));
}
