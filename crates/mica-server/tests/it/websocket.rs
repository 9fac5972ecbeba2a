//! Watches over websockets.

use futures::{SinkExt as _, StreamExt as _};
use mica_server::http::Drain;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::fixture::{HTTP1, Server};

fn handshake(protocol: Option<&str>) -> Request {
    let mut request = Request::get("wss://localhost/socket?watch=1")
        .header("host", "localhost")
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    if let Some(protocol) = protocol {
        request = request.header("sec-websocket-protocol", protocol);
    }
    request.body(()).unwrap()
}

async fn open(server: &Server, protocol: Option<&str>) -> Result<WebSocketStream<TlsStream<TcpStream>>, Error> {
    let tls = server.dial(HTTP1).tls().await.unwrap();
    let (socket, response) = client_async(handshake(protocol), tls).await?;
    let echoed = response
        .headers()
        .get("sec-websocket-protocol")
        .map(|value| value.to_str().unwrap());
    assert_eq!(echoed, protocol);
    assert!(response.headers().contains_key("audit-id"));
    Ok(socket)
}

#[tokio::test]
async fn each_event_is_one_text_message_and_draining_closes_normally() {
    let server = Server::start().await;
    let mut socket = open(&server, None).await.unwrap();
    for expected in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"MODIFIED\"}\n"] {
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(expected));
    }
    socket.send(Message::Ping("hi".into())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong("hi".into()));
    server.drain.cancel();
    let Message::Close(Some(close)) = socket.next().await.unwrap().unwrap() else {
        panic!("no close")
    };
    assert_eq!(u16::from(close.code), 1000);
    while socket.next().await.is_some_and(|message| message.is_ok()) {}
    assert_eq!(server.stop().await, Drain::Clean);
}

#[tokio::test]
async fn a_client_that_closes_ends_its_watch() {
    let server = Server::start().await;
    let mut socket = open(&server, Some("base64.binary.k8s.io")).await.unwrap();
    assert!(socket.next().await.unwrap().is_ok());
    socket.close(None).await.unwrap();
    while socket.next().await.is_some_and(|message| message.is_ok()) {}
    assert_eq!(server.stop().await, Drain::Clean, "no task is left behind");
}

#[tokio::test]
async fn a_bad_handshake_is_400() {
    let server = Server::start().await;
    let Err(Error::Http(response)) = open(&server, Some("a.k8s.io, b.k8s.io")).await else {
        panic!("accepted")
    };
    assert_eq!(response.status(), 400);
    let mut plain = server.connect(HTTP1).await;
    assert_eq!(plain.get("/socket").await.unwrap().status(), 400);
}
