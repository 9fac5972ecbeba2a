//! Connections made to hurt: slow, huge, many, half-open. Each is ended or refused, and others go on.

use std::time::Duration;

use mica_server::http::ListenOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::client::{Connection, Dial};
use super::fixture::{HTTP1, HTTP2, Server};

const QUICK: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(30);

async fn tls(server: &Server, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
    let dial = Dial {
        addr: server.addr,
        authority: server.authority.certificate(),
        host: "localhost",
        alpn,
        certificate: None,
    };
    dial.tls().await
}

async fn connect(server: &Server, alpn: &[&str]) -> std::io::Result<Connection> {
    let dial = Dial {
        addr: server.addr,
        authority: server.authority.certificate(),
        host: "localhost",
        alpn,
        certificate: None,
    };
    dial.connect().await
}

/// All that comes until the server closes.
async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    let read = stream.read_to_end(&mut all);
    // A connection that is cut off without a farewell is closed too.
    let _ = tokio::time::timeout(PATIENCE, read).await.expect("the server closes");
    all
}

async fn still_serves(server: &Server) {
    for alpn in [HTTP1, HTTP2] {
        let answer = connect(server, alpn).await.unwrap().get_text("/whoami").await;
        assert!(answer.starts_with("anonymous"), "{answer}");
    }
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off() {
    let server = Server::start_with(ListenOptions {
        idle_timeout: QUICK,
        ..ListenOptions::default()
    })
    .await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = tls(&server, HTTP1).await.unwrap();
        stream.write_all(b"GET /whoami HTTP/1.1\r\nhost: local").await.unwrap();
        slow.push(stream);
    }
    still_serves(&server).await;
    for mut stream in slow {
        let said = String::from_utf8(rest(&mut stream).await).unwrap();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
    }
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let server = Server::start().await;
    let large = "x".repeat(300 * 1024);
    let many = (0..500).map(|n| format!("x-{n}: y\r\n")).collect::<String>();
    for (head, codes) in [
        (
            format!("GET /whoami HTTP/1.1\r\nhost: localhost\r\nx-large: {large}\r\n\r\n"),
            ["431"].as_slice(),
        ),
        (
            format!("GET /whoami HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
            &["431"],
        ),
        (
            format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", &large[..100_000]),
            &["414", "431"],
        ),
    ] {
        let mut stream = tls(&server, HTTP1).await.unwrap();
        // The server may answer before it has read all.
        let _ = stream.write_all(head.as_bytes()).await;
        let said = String::from_utf8(rest(&mut stream).await).unwrap();
        let code = said.split(' ').nth(1).unwrap_or_default();
        assert!(codes.contains(&code), "{said}");
    }
    let mut connection = connect(&server, HTTP2).await.unwrap();
    let request = http::Request::get("/whoami").header("x-large", &large);
    let answer = connection
        .send(request.body(http_body_util::Full::default()).unwrap())
        .await;
    assert!(
        answer.as_ref().map_or(true, |answer| answer.status() == 431),
        "{answer:?}"
    );
    still_serves(&server).await;
}

#[tokio::test]
async fn half_open_handshakes_stop_nobody_and_end() {
    let server = Server::start_with(ListenOptions {
        handshake_timeout: QUICK,
        ..ListenOptions::default()
    })
    .await;
    let mut open = Vec::new();
    for n in 0..200 {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        if n % 2 == 0 {
            // The beginning of a greeting.
            stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        }
        open.push(stream);
    }
    still_serves(&server).await;
    for mut stream in open {
        rest(&mut stream).await;
    }
}

#[tokio::test]
async fn an_address_has_as_many_connections_as_it_may() {
    let server = Server::start_with(ListenOptions {
        connections_per_address: Some(3),
        ..ListenOptions::default()
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(connect(&server, HTTP1).await.unwrap());
    }
    assert!(connect(&server, HTTP1).await.is_err(), "a fourth is closed");
    drop(open.pop());
    let end = tokio::time::Instant::now() + PATIENCE;
    while connect(&server, HTTP1).await.is_err() {
        assert!(tokio::time::Instant::now() < end, "there is no room for the next");
    }
    assert!(open[0].get_text("/whoami").await.starts_with("anonymous"));
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

#[tokio::test]
async fn a_flood_of_streams_that_are_reset_at_once_hurts_nobody() {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    let server = Server::start().await;
    let stream = tls(&server, HTTP2).await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = tokio::spawn(async move { rest(&mut reader).await });
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(SETTINGS, 0, 0, &[]));
    // GET https://localhost/watch
    let mut head = vec![0x82, 0x87, 0x41, 9];
    head.extend(b"localhost");
    head.extend([0x44, 6]);
    head.extend(b"/watch");
    for n in 0..10_000 {
        flood.extend(frame(HEADERS, 0x5, 2 * n + 1, &head));
        flood.extend(frame(RESET, 0, 2 * n + 1, &8u32.to_be_bytes()));
    }
    // The server ends the connection when it has seen enough of this, which may be before all is written.
    let _ = tokio::time::timeout(PATIENCE, writer.write_all(&flood))
        .await
        .expect("all is taken, or refused");
    still_serves(&server).await;
    let _ = writer.shutdown().await;
    drop(writer);
    reading.await.unwrap();
    still_serves(&server).await;
}
