//! Traces reach a collector.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use serde_json::Value;

use super::process::{Up, run};

#[test]
fn requests_are_exported_as_spans() {
    let collector = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let home = tempfile::tempdir().unwrap();
    let server = Up::start(
        home.path(),
        &["--otlp-endpoint", &endpoint, "--otlp-sampling", "1", "--controllers=-*"],
    );
    assert_eq!(run(home.path(), &["plane", "list"]).0, 0);
    let (mut stream, _) = collector.accept().unwrap();
    let (head, body) = receive(&mut stream);
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        .unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    let span = &spans[0];
    assert_eq!(span["name"], "request");
    let attribute = |key: &str| {
        let all = span["attributes"].as_array().unwrap();
        all.iter()
            .find(|attribute| attribute["key"] == key)
            .map(|attribute| attribute["value"].clone())
    };
    assert_eq!(
        attribute("url.path").unwrap()["stringValue"],
        "/apis/mica.dev/v1alpha1/planes"
    );
    assert_eq!(attribute("http.response.status_code").unwrap()["intValue"], "200");
    server.signal("-TERM");
    assert_eq!(server.wait().0, Some(0));
}

fn receive(stream: &mut std::net::TcpStream) -> (String, Value) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).unwrap();
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            return (head.to_owned(), body);
        }
        assert!(read > 0, "the exporter hung up");
    }
}
