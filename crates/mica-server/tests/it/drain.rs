//! Shutting down: what is in flight finishes, watches end, nothing new begins, and a deadline bounds it all.

use std::time::Duration;

use http_body_util::BodyExt as _;
use mica_server::http::{Drain, ListenOptions};

use super::client::text;
use super::fixture::{HTTP1, HTTP2, Server};

#[tokio::test]
async fn requests_in_flight_finish_and_watches_end_cleanly() {
    for alpn in [HTTP1, HTTP2] {
        let server = Server::start().await;
        let mut watching = server.connect(alpn).await;
        let mut watch = watching.get("/watch?watch=1").await.unwrap();
        assert!(watch.frame().await.unwrap().is_ok());
        let mut busy = server.connect(alpn).await;
        let in_flight = tokio::spawn(async move { text(busy.get("/wait").await.unwrap()).await });
        server.waiting.notified().await;
        let mut idle = server.connect(alpn).await;
        idle.get_text("/whoami").await;

        server.drain.cancel();
        let rest = watch
            .into_body()
            .collect()
            .await
            .expect("the watch ends without an error");
        assert!(rest.to_bytes().is_empty());
        idle.closed().await;
        server.go_on.notify_one();
        assert_eq!(in_flight.await.unwrap().unwrap(), "done");
        let addr = server.addr;
        assert_eq!(server.stop().await, Drain::Clean);
        assert!(
            tokio::net::TcpStream::connect(addr).await.is_err(),
            "nothing listens any more"
        );
    }
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut_off() {
    for alpn in [HTTP1, HTTP2] {
        let options = ListenOptions {
            drain_deadline: Duration::from_millis(50),
            ..ListenOptions::default()
        };
        let server = Server::start_with(options).await;
        let mut busy = server.connect(alpn).await;
        let in_flight = tokio::spawn(async move { busy.get("/wait").await.is_err() });
        server.waiting.notified().await;
        assert_eq!(server.stop().await, Drain::CutOff { connections: 1 });
        assert!(in_flight.await.unwrap(), "the client sees that it was cut off");
    }
}
