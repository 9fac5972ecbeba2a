//! What a connection offers: protocols, certificates, bodies, many streams.

use std::io::Read as _;
use std::time::SystemTime;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use mica_server::pki::{Authority, serving_names};
use mica_server::tls::certified_key;

use super::client::{Dial, text};
use super::fixture::{HTTP1, HTTP2, PLANE_HOST, Server, client_certificate};

#[tokio::test]
async fn both_protocols_are_spoken_and_client_certificates_seen() {
    let server = Server::start().await;
    let admin = server.client_certificate("kubernetes-admin");
    let theirs = Authority::generate("test-ca", SystemTime::now()).unwrap();
    let stranger = client_certificate(&theirs, "kubernetes-admin");
    for (alpn, version) in [(HTTP1, "http1"), (HTTP2, "http2"), (&[][..], "http1")] {
        for (certificate, who) in [
            (None, "anonymous"),
            (Some(&admin), "O=system:masters, CN=kubernetes-admin"),
            (Some(&stranger), "refused"),
        ] {
            let dial = Dial {
                certificate,
                ..server.dial(alpn)
            };
            let mut connection = dial.connect().await.unwrap();
            assert_eq!(
                connection.get_text("/whoami").await,
                format!("{who} over {version} to localhost")
            );
        }
    }
}

#[tokio::test]
async fn replaced_roots_count_on_open_connections() {
    let server = Server::start().await;
    let admin = server.client_certificate("a");
    let mut connection = Dial {
        certificate: Some(&admin),
        ..server.dial(HTTP2)
    }
    .connect()
    .await
    .unwrap();
    assert!(
        connection
            .get_text("/whoami")
            .await
            .starts_with("O=system:masters, CN=a ")
    );
    server.roots.replace(&[]).unwrap();
    assert!(connection.get_text("/whoami").await.starts_with("refused "));
}

#[tokio::test]
async fn a_plane_host_is_served_with_a_certificate_of_its_own_and_others_are_not() {
    let server = Server::start().await;
    let mut plane = Dial {
        host: PLANE_HOST,
        ..server.dial(HTTP2)
    }
    .connect()
    .await
    .unwrap();
    assert_eq!(
        plane.get_text("/whoami").await,
        format!("anonymous over http2 to {PLANE_HOST}")
    );
    let unknown = Dial {
        host: "milo-apiserver.project-b.svc.cluster.local",
        ..server.dial(HTTP2)
    };
    assert!(
        unknown.tls().await.is_err(),
        "the server's own certificate does not name that host"
    );
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart() {
    let server = Server::start().await;
    let more = Dial {
        host: "new.example",
        ..server.dial(HTTP1)
    };
    assert!(more.tls().await.is_err());
    let names = serving_names(["new.example".to_owned()]);
    let renewed = server
        .authority
        .issue_serving("mica", &names, SystemTime::now())
        .unwrap();
    server.certificates.replace(certified_key(&renewed).unwrap());
    assert!(more.tls().await.is_ok());
}

#[tokio::test]
async fn bodies_travel_both_ways_up_to_the_limit() {
    let server = Server::start().await;
    for alpn in [HTTP1, HTTP2] {
        let mut connection = server.connect(alpn).await;
        for (len, code) in [(0, 200), (1, 200), (1024 * 1024, 200), (1024 * 1024 + 1, 413)] {
            let request = Request::post("/echo")
                .body(Full::new(Bytes::from(vec![b'x'; len])))
                .unwrap();
            let response = connection.send(request).await.unwrap();
            assert_eq!(response.status(), code, "{len}");
            let body = text(response).await.unwrap();
            assert_eq!(body.len() == len, code == 200, "{len}");
            if code == 413 {
                assert_eq!(body, "Request entity too large: limit is 1048576");
                // The rest of a refused body is not read: HTTP/1 needs a new connection after it.
                connection = server.connect(alpn).await;
            }
        }
    }
}

#[tokio::test]
async fn a_panic_costs_its_request_only() {
    let server = Server::start().await;
    for alpn in [HTTP1, HTTP2] {
        let mut connection = server.connect(alpn).await;
        assert_eq!(connection.get("/panic").await.unwrap().status(), 500);
        assert!(connection.get_text("/whoami").await.starts_with("anonymous"));
    }
}

#[tokio::test]
async fn large_answers_are_compressed_on_the_wire() {
    let server = Server::start().await;
    for alpn in [HTTP1, HTTP2] {
        let mut connection = server.connect(alpn).await;
        let request = Request::get("/large")
            .header("accept-encoding", "gzip")
            .body(Full::default())
            .unwrap();
        let response = connection.send(request).await.unwrap();
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let packed = response.into_body().collect().await.unwrap().to_bytes();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_end(&mut plain)
            .unwrap();
        assert_eq!((plain.len(), packed.len() < 20_000), (1_000_000, true));
        let plain = connection.get("/large").await.unwrap();
        assert_eq!(plain.headers()["content-length"], "1000000");
    }
}

#[tokio::test]
async fn one_connection_carries_a_thousand_watches_and_is_counted() {
    let server = Server::start().await;
    let mut connection = server.connect(HTTP2).await;
    let mut watches = Vec::new();
    for _ in 0..1000 {
        let mut response = connection.get("/watch?watch=1").await.unwrap();
        let event = response.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(event, "event\n");
        watches.push(response);
    }
    let metrics = server.registry.encode();
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("apiserver_longrunning_requests{verb=\"GET\"") && line.ends_with(" 1000")),
        "{metrics}"
    );
}
