//! Requests that end badly, in an envelope without a connection: each is told of once, as it ended.

use std::path::Path as FilePath;

use http::{Request, Response};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::authz::User;
use crate::egress::EgressOptions;
use crate::http::{Body, Envelope, EnvelopeOptions, Peer, RequestBody, Service};
use crate::metrics::{HttpMetrics, Registry};

/// Follows every request, and answers none.
struct Followed(Arc<Auditor>);

impl Service for Followed {
    async fn call(&self, context: &Context, request: Request<RequestBody>) -> Response<Body> {
        let (parts, _) = request.into_parts();
        let _ = context.proven.set(Arc::new(User::system()));
        let what = What::Path {
            inside: parts.uri.path(),
            answers_object: true,
        };
        self.0.begin(&Asking {
            context,
            parts: &parts,
            address: &Address::Root,
            what,
        });
        match parts.uri.path() {
            "/panic" => panic!("a bug"),
            _ => std::future::pending().await,
        }
    }
}

fn auditor(log: &FilePath) -> Arc<Auditor> {
    let policy = b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    let options = AuditOptions {
        policy: Some(Arc::new(Policy::parse(policy).unwrap().0)),
        log: Some(LogOptions::at(log)),
        ..AuditOptions::default()
    };
    let auditor = Auditor::open(options, Egress::new(EgressOptions::default()), &Registry::default()).unwrap();
    auditor.start();
    auditor
}

/// What is written of one request, which is given up after `patience`.
async fn told(uri: &str, patience: Duration) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("audit.log");
    let auditor = auditor(&log);
    let metrics = HttpMetrics::new(&Registry::default());
    let envelope = Envelope::new(Followed(auditor.clone()), EnvelopeOptions::default(), metrics);
    let peer = Arc::new(Peer::in_process(CancellationToken::new()));
    let request = Request::get(uri).body(RequestBody::Empty).unwrap();
    drop(tokio::time::timeout(patience, envelope.answer(peer, request)).await);
    auditor.close(Duration::from_secs(30)).await;
    let text = std::fs::read_to_string(&log).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events
        .map(|event| {
            let status = &event["responseStatus"];
            let part = |name: &str| status[name].as_str().unwrap_or("-").to_owned();
            let stage = event["stage"].as_str().unwrap();
            format!("{stage} {} {} {}", status["code"], part("reason"), part("message"))
        })
        .collect()
}

const RECEIVED: &str = "RequestReceived null - -";

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_stage_of_its_own() {
    assert_eq!(
        told("/panic", Duration::from_secs(600)).await,
        [RECEIVED, "Panic 500 InternalError APIServer panic'd: a bug"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_told_of_as_it_was_answered() {
    assert_eq!(
        told("/never?timeout=5s", Duration::from_secs(600)).await,
        [
            RECEIVED,
            "ResponseComplete 504 Timeout Timeout: request did not complete within the allotted timeout"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_is_told_of_as_upstream_does() {
    assert_eq!(
        told("/never", Duration::from_secs(1)).await,
        [RECEIVED, "ResponseComplete 200 - Connection closed early"]
    );
}

#[test]
fn proxies_are_named_before_the_peer_and_nobody_twice() {
    let peer: IpAddr = "127.0.0.1".parse().unwrap();
    for (forwarded, real, expected) in [
        ("", "", &["127.0.0.1"][..]),
        (
            "1.2.3.4, nobody, 10.0.0.7",
            "9.9.9.9",
            &["1.2.3.4", "10.0.0.7", "9.9.9.9", "127.0.0.1"],
        ),
        ("1.2.3.4", "1.2.3.4", &["1.2.3.4", "127.0.0.1"]),
        ("1.2.3.4,127.0.0.1", "", &["1.2.3.4", "127.0.0.1"]),
        ("127.0.0.1,1.2.3.4", "", &["127.0.0.1", "1.2.3.4", "127.0.0.1"]),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", forwarded.parse().unwrap());
        headers.insert("x-real-ip", real.parse().unwrap());
        let ips: Vec<String> = source_ips(&headers, peer).iter().map(ToString::to_string).collect();
        assert_eq!(ips, expected);
    }
}
