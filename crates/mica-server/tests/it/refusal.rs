//! Peers that would wear the server out are let go.

use std::time::Duration;

use http_body_util::BodyExt as _;
use mica_server::http::ListenOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::fixture::{HTTP1, HTTP2, Server};

#[tokio::test]
async fn a_connection_too_many_is_closed_and_a_free_slot_is_used_again() {
    let server = Server::start_with(ListenOptions {
        max_connections: 1,
        ..ListenOptions::default()
    })
    .await;
    let mut first = server.connect(HTTP2).await;
    first.get_text("/whoami").await;
    assert!(server.dial(HTTP2).tls().await.is_err());
    assert!(
        first.get_text("/whoami").await.starts_with("anonymous"),
        "the others are not disturbed"
    );
    drop(first);
    // The slot is free as soon as the server has seen the end of the first connection.
    while server.dial(HTTP2).tls().await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_peer_that_does_not_speak_is_let_go() {
    let options = ListenOptions {
        handshake_timeout: Duration::from_millis(50),
        ..ListenOptions::default()
    };
    let server = Server::start_with(options).await;
    let mut silent = TcpStream::connect(server.addr).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0, "closed by the server");
    assert!(
        server
            .registry
            .encode()
            .contains("apiserver_tls_handshake_errors_total 1\n")
    );
}

#[tokio::test]
async fn plain_http_is_told_so() {
    let server = Server::start().await;
    let mut plain = TcpStream::connect(server.addr).await.unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).await.unwrap();
    assert_eq!(
        String::from_utf8(answer).unwrap(),
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    );
}

#[tokio::test]
async fn an_idle_http1_connection_is_let_go() {
    let options = ListenOptions {
        idle_timeout: Duration::from_millis(50),
        ..ListenOptions::default()
    };
    let server = Server::start_with(options).await;
    let mut idle = server.connect(HTTP1).await;
    idle.get_text("/whoami").await;
    idle.closed().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_and_its_neighbour_is_not() {
    let options = ListenOptions {
        write_stall: Duration::from_millis(200),
        ..ListenOptions::default()
    };
    let server = Server::start_with(options).await;
    for alpn in [HTTP1, HTTP2] {
        let mut connection = server.connect(alpn).await;
        let mut neighbour = server.connect(HTTP2).await;
        let mut watch = neighbour.get("/watch?watch=1").await.unwrap();
        assert!(watch.frame().await.unwrap().is_ok());
        let before = streaming(&server);
        // The body is not polled, so its window (HTTP/2) or the socket (HTTP/1) fills up.
        let mut stuck = connection.get("/endless").await.unwrap();
        while streaming(&server) > before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut ended = Ok(());
        while let Some(frame) = stuck.frame().await {
            if let Err(error) = frame {
                ended = Err(error);
                break;
            }
        }
        assert!(ended.is_err(), "the client learns that the answer is not whole");
        if alpn == HTTP2 {
            assert!(
                connection.get_text("/whoami").await.starts_with("anonymous"),
                "only the stream is reset"
            );
        }
        assert!(
            futures::poll!(std::pin::pin!(watch.frame())).is_pending(),
            "an idle watch is left alone"
        );
    }
}

#[tokio::test]
async fn a_watch_that_nobody_reads_is_cut_off_and_its_neighbours_on_the_connection_are_not() {
    let options = ListenOptions {
        write_stall: Duration::from_millis(200),
        ..ListenOptions::default()
    };
    let server = Server::start_with(options).await;
    let mut connection = server.connect(HTTP2).await;
    let mut watch = connection.get("/watch?watch=1").await.unwrap();
    assert!(watch.frame().await.unwrap().is_ok());
    let mut stuck = connection.get("/endless-watch?watch=1").await.unwrap();
    while watching(&server) > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut reset = false;
    while let Some(frame) = stuck.frame().await {
        reset = frame.is_err();
        if reset {
            break;
        }
    }
    assert!(reset, "the client learns that there is no more");
    assert!(futures::poll!(std::pin::pin!(watch.frame())).is_pending());
    assert!(connection.get_text("/whoami").await.starts_with("anonymous"));
    drop(watch);
    while watching(&server) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Watches that are open.
fn watching(server: &Server) -> u64 {
    let text = server.registry.encode();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("apiserver_longrunning_requests{"));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Answers that are being sent.
fn streaming(server: &Server) -> u64 {
    let text = server.registry.encode();
    let line = text
        .lines()
        .find(|line| line.starts_with("apiserver_current_inflight_requests{request_kind=\"readOnly\"}"));
    line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
}
