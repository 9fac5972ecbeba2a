//! The envelope without a connection: requests in, answers out.

use bytes::Bytes;
use futures::stream;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::Registry;

/// Answers by path.
struct Sample;

impl Service for Sample {
    async fn call(&self, context: &Context, request: Request<RequestBody>) -> Response<Body> {
        match request.uri().path() {
            "/panic" => panic!("a bug"),
            "/never" => std::future::pending().await,
            "/large" => Response::new(Body::full(vec![b'x'; 200_000])),
            "/small" => Response::new(Body::full("small")),
            "/list" => Response::new(Body::stream(stream::iter(vec![Bytes::from(vec![b'x'; 1000]); 200]))),
            "/short-list" => Response::new(Body::stream(stream::iter(vec![Bytes::from("xy"); 2]))),
            "/watch" => Response::new(Body::watch(stream::pending(), context.peer.drain().clone())),
            "/deadline" => {
                let left = context.deadline.map(|at| at.duration_since(context.received).as_secs());
                Response::new(Body::full(format!("{left:?}")))
            }
            "/cached" => {
                let mut response = Response::new(Body::empty());
                response
                    .headers_mut()
                    .insert(CACHE_CONTROL, HeaderValue::from_static("public"));
                response
            }
            other => panic!("no sample at {other}"),
        }
    }
}

fn envelope() -> Envelope<Sample> {
    let options = EnvelopeOptions {
        hsts: Some(HeaderValue::from_static("max-age=31536000")),
        ..Default::default()
    };
    Envelope::new(Sample, options, HttpMetrics::new(&Registry::default()))
}

async fn ask(uri: &str, headers: &[(&'static str, &str)]) -> Response<Body> {
    let mut request = Request::get(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let peer = Arc::new(Peer::in_process(CancellationToken::new()));
    envelope().answer(peer, request.body(RequestBody::Empty).unwrap()).await
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn every_answer_has_the_common_headers() {
    for path in ["/small", "/panic", "/small?timeout=x"] {
        let response = ask(path, &[]).await;
        let header = |name: HeaderName| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header(CACHE_CONTROL), "no-cache, private", "{path}");
        assert_eq!(header(STRICT_TRANSPORT_SECURITY), "max-age=31536000");
        assert_eq!(header(AUDIT_ID).len(), 36);
    }
    assert_eq!(ask("/small", &[("audit-id", "mine")]).await.headers()[AUDIT_ID], "mine");
    assert_eq!(ask("/cached", &[]).await.headers()[CACHE_CONTROL], "public");
}

#[tokio::test]
async fn a_panic_is_one_500_status() {
    let response = ask("/panic", &[]).await;
    assert_eq!(response.status(), 500);
    let status: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(status["kind"], "Status");
    assert_eq!(
        status["message"],
        "This request caused apiserver to panic. Look in the logs for details."
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_504() {
    let started = tokio::time::Instant::now();
    let response = ask("/never?timeout=5s", &[]).await;
    assert_eq!((response.status().as_u16(), started.elapsed().as_secs()), (504, 5));
    assert!(
        text(response)
            .await
            .contains("Timeout: request did not complete within the allotted timeout")
    );
}

#[tokio::test]
async fn the_deadline_is_the_shorter_of_ours_and_the_clients() {
    for (query, expected) in [
        ("", "Some(60)"),
        ("?timeout=10s", "Some(10)"),
        ("?timeout=0s", "Some(60)"),
        ("?timeout=2h", "Some(60)"),
        ("?timeout=", "Some(60)"),
        ("?watch=true&timeout=nonsense", "None"),
        ("?watch=false&timeout=7s", "Some(7)"),
        ("?timeoutSeconds=3", "Some(60)"),
    ] {
        assert_eq!(
            text(ask(&format!("/deadline{query}"), &[]).await).await,
            expected,
            "{query}"
        );
    }
    let refused = ask("/small?timeout=5", &[]).await;
    assert_eq!(refused.status(), 400);
    let message = r#"invalid timeout specified in the request URL - time: missing unit in duration \"5\""#;
    assert!(text(refused).await.contains(message));
}

#[tokio::test]
async fn only_large_finite_answers_are_compressed() {
    let gzip = [("accept-encoding", "gzip")];
    for (path, compressed) in [
        ("/large", true),
        ("/list", true),
        ("/small", false),
        ("/short-list", false),
    ] {
        let response = ask(path, &gzip).await;
        assert_eq!(response.headers().get(CONTENT_ENCODING).is_some(), compressed, "{path}");
        assert_eq!(response.headers().get(VARY).is_some(), compressed, "{path}");
    }
    assert_eq!(ask("/short-list", &gzip).await.body().len(), Some(4));
    assert!(ask("/large", &[]).await.headers().get(CONTENT_ENCODING).is_none());
    assert!(
        ask("/watch?watch=1", &gzip)
            .await
            .headers()
            .get(CONTENT_ENCODING)
            .is_none()
    );
}
