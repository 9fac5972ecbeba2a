//! Calls out of the server, against a real HTTPS server.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mica_api::PlaneId;
use mica_server::egress::{
    Call, ClientConfig, Egress, EgressOptions, MAX_REPLY, Network, Repeat, Services, TENANT_CALLS, Tenant,
};
use mica_server::pki::{Authority, Issued};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::hook::{Answer, Hook, authority, reply, serving};

const PATIENCE: Duration = Duration::from_secs(30);
/// For what never comes.
const HASTE: Duration = Duration::from_millis(300);

fn plane(n: u64) -> Tenant {
    Tenant::Plane(PlaneId::from_random(n))
}

struct Asking<'a> {
    egress: &'a Egress,
    tenant: Tenant,
    timeout: Duration,
    repeat: Repeat,
}

impl<'a> Asking<'a> {
    fn new(egress: &'a Egress) -> Self {
        Self {
            egress,
            tenant: Tenant::Platform,
            timeout: PATIENCE,
            repeat: Repeat::Safe,
        }
    }

    async fn ask(&self, config: &Value) -> Result<String, String> {
        let to = ClientConfig::from_value(config).unwrap();
        let call = Call {
            tenant: self.tenant,
            to: &to,
            timeout: self.timeout,
            max_reply: 1000,
            repeat: self.repeat,
        };
        let body = Bytes::from_static(b"{\"asked\":1}");
        match self.egress.post(&call, body).await {
            Ok(bytes) => Ok(String::from_utf8(bytes.to_vec()).unwrap()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn egress() -> Egress {
    Egress::new(EgressOptions::default())
}

async fn good() -> Hook {
    Hook::start(|_| Answer::Json(json!({"fine": true}))).await
}

#[tokio::test]
async fn a_call_looks_as_upstreams_and_keeps_its_connection() {
    let (hook, egress) = (good().await, egress());
    let asking = Asking::new(&egress);
    for _ in 0..3 {
        assert_eq!(
            asking.ask(&hook.client_config("/a//b/")).await.unwrap(),
            r#"{"fine":true}"#
        );
    }
    assert_eq!(hook.connections(), 1);
    let seen = &hook.seen()[0];
    assert_eq!(seen.body, json!({"asked": 1}));
    let head = seen.head.to_lowercase();
    assert!(head.starts_with("post /a/b?timeout=30s http/1.1\r\n"), "{head}");
    for header in [
        format!("host: {}", hook.addr),
        "user-agent: kube-apiserver-admission".to_owned(),
        "accept: application/json, */*".to_owned(),
        "content-type: application/json".to_owned(),
        "content-length: 11".to_owned(),
    ] {
        assert!(head.contains(&format!("{header}\r\n")), "{header}: {head}");
    }
}

#[tokio::test]
async fn a_server_that_closed_a_waiting_connection_is_asked_again_on_another() {
    let hook = Hook::start(|_| Answer::JsonThenClose(json!({}))).await;
    let egress = egress();
    for repeat in [Repeat::Safe, Repeat::Never, Repeat::Safe] {
        let asking = Asking {
            repeat,
            ..Asking::new(&egress)
        };
        // With `Never` the close may be noticed too late; upstream fails then as well.
        let answer = asking.ask(&hook.client_config("/")).await;
        assert!(answer.is_ok() || repeat == Repeat::Never, "{answer:?}");
    }
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let egress = egress();
    let asking = Asking::new(&egress);
    let authority = authority();
    let issued = serving(&authority, &["127.0.0.1"]);
    let ca = authority.certificate_pem();
    let hook = Hook::with(ca, &issued, |_| Answer::Json(json!({}))).await;
    let (config, addr) = (hook.client_config("/"), hook.addr);
    assert!(asking.ask(&config).await.is_ok());
    hook.stop().await;
    assert_eq!(
        asking.ask(&config).await.unwrap_err(),
        format!("Post \"https://{addr}/?timeout=30s\": dial tcp {addr}: connect: connection refused")
    );
    let _hook = Hook::at(addr, ca, &issued, |_| Answer::Json(json!({}))).await;
    assert!(asking.ask(&config).await.is_ok());
}

#[tokio::test]
async fn answers_are_judged_in_upstreams_words() {
    let hook = Hook::start(|seen| {
        let text = |code: u16| Answer::Reply {
            code,
            content_type: Some("text/plain"),
            body: "text of it\n".to_owned(),
        };
        let of = |code: u16, content_type: Option<&'static str>, body: &str| Answer::Reply {
            code,
            content_type,
            body: body.to_owned(),
        };
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"status msg","code":500}"#;
        let path = seen
            .path()
            .split('?')
            .next()
            .unwrap_or_default()
            .trim_start_matches('/');
        match path {
            "json500" => of(500, Some("application/json"), r#"{"a":1}"#),
            "status500" => of(500, Some("application/json"), status),
            "empty" => of(200, Some("application/json"), ""),
            "badct" => of(200, Some("; ;"), "{}"),
            "noct" => of(200, None, "{}"),
            "textct" => of(200, Some("text/plain"), " {}"),
            "yaml" => of(200, Some("application/yaml"), "a: 1\n"),
            "close" => Answer::Raw(Vec::new()),
            "half" => Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec()),
            "huge" => Answer::Raw(reply(200, None, &"x".repeat(1001))),
            "endless" => {
                let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                for _ in 0..10 {
                    bytes.extend_from_slice(format!("c8\r\n{}\r\n", "x".repeat(200)).as_bytes());
                }
                Answer::Hang(bytes)
            }
            "nonsense" => Answer::Raw(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()),
            code => text(code.parse().unwrap()),
        }
    })
    .await;
    let egress = egress();
    let asking = Asking::new(&egress);
    let url = |path: &str| format!("https://{}/{path}?timeout=30s", hook.addr);
    let body = |why: &str| format!("unexpected error when reading response body. Please retry. Original error: {why}");
    for (path, expected) in [
        ("302", Err("the server responded with the status code 302 but did not return more information".to_owned())),
        ("307", Err("the server responded with the status code 307 but did not return more information".to_owned())),
        ("400", Err("the server rejected our request for an unknown reason".to_owned())),
        ("401", Err("the server has asked for the client to provide credentials".to_owned())),
        ("403", Err("text of it".to_owned())),
        ("404", Err("the server could not find the requested resource".to_owned())),
        ("405", Err("the server does not allow this method on the requested resource".to_owned())),
        ("406", Err("text of it".to_owned())),
        ("409", Err("the server reported a conflict".to_owned())),
        ("415", Err("text of it".to_owned())),
        ("418", Err("the server responded with the status code 418 but did not return more information".to_owned())),
        ("422", Err("the server rejected our request due to an error in our request".to_owned())),
        ("429", Err("the server has received too many requests and has asked us to try again later".to_owned())),
        ("500", Err("an error on the server (\"text of it\") has prevented the request from succeeding".to_owned())),
        ("503", Err("the server is currently unable to handle the request".to_owned())),
        ("504", Err("the server was unable to return a response in the time allotted, but may still be processing the request".to_owned())),
        ("json500", Err("an error on the server (\"unknown\") has prevented the request from succeeding".to_owned())),
        ("status500", Err("status msg".to_owned())),
        ("empty", Err("0-length response with status code: 200 and content type: application/json".to_owned())),
        ("badct", Err("Internal error occurred: mime: no media type".to_owned())),
        ("noct", Ok("{}".to_owned())),
        ("textct", Ok(" {}".to_owned())),
        ("yaml", Ok(r#"{"a":1}"#.to_owned())),
        ("close", Err(format!("Post \"{}\": EOF", url("close")))),
        ("half", Err(body("unexpected EOF"))),
        ("huge", Err(body("the response is larger than 1000 bytes"))),
        ("endless", Err(body("the response is larger than 1000 bytes"))),
    ] {
        assert_eq!(asking.ask(&hook.client_config(&format!("/{path}"))).await, expected, "{path}");
    }
    let nonsense = asking.ask(&hook.client_config("/nonsense")).await.unwrap_err();
    assert!(nonsense.contains("malformed HTTP response"), "{nonsense}");
    assert!(
        !hook.seen().iter().any(|seen| seen.path() == "/elsewhere"),
        "redirects are not followed"
    );
}

#[tokio::test]
async fn silence_ends_when_the_time_is_up() {
    let hook = Hook::start(|seen| match seen.path() {
        "/body?timeout=300ms" => Answer::Hang(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec()),
        _ => Answer::Hang(Vec::new()),
    })
    .await;
    let egress = egress();
    let asking = Asking {
        timeout: HASTE,
        ..Asking::new(&egress)
    };
    assert_eq!(
        asking.ask(&hook.client_config("/head")).await.unwrap_err(),
        format!(
            "Post \"https://{}/head?timeout=300ms\": net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
            hook.addr
        )
    );
    assert_eq!(
        asking.ask(&hook.client_config("/body")).await.unwrap_err(),
        "unexpected error when reading response body. Please retry. Original error: \
         context deadline exceeded (Client.Timeout or context cancellation while reading body)"
    );
}

#[tokio::test]
async fn bad_certificates_are_named_as_go_names_them() {
    let ours = authority();
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 365 * 24 * 3600);
    let old = Authority::generate("old-ca", long_ago).unwrap();
    let expired = old.issue_serving("hook", &["127.0.0.1".to_owned()], long_ago).unwrap();
    let fine = |_: &_| Answer::Json(json!({}));
    let egress = egress();
    let asking = Asking::new(&egress);
    let said = async |ca: &str, issued: &Issued, host: &str| {
        let hook = Hook::with(ca, issued, fine).await;
        let url = format!("https://{host}:{}/", hook.addr.port());
        let text = asking.ask(&hook.client_config_at(&url)).await.unwrap_err();
        text.split_once("?timeout=30s\": ")
            .map(|(_, why)| why.to_owned())
            .unwrap_or(text)
    };
    let not_verified = "tls: failed to verify certificate: x509:";
    let other = serving(&ours, &["other.example", "third.example"]);
    let pem = ours.certificate_pem();
    assert_eq!(
        said(pem, &other, "localhost").await,
        format!("{not_verified} certificate is valid for other.example, third.example, not localhost")
    );
    assert_eq!(
        said(pem, &other, "127.0.0.1").await,
        format!("{not_verified} cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs")
    );
    let address = serving(&ours, &["10.1.2.3"]);
    assert_eq!(
        said(pem, &address, "127.0.0.1").await,
        format!("{not_verified} certificate is valid for 10.1.2.3, not 127.0.0.1")
    );
    let stranger = Authority::generate("stranger", SystemTime::now()).unwrap();
    for unknown in [
        serving(&authority(), &["127.0.0.1"]),
        serving(&stranger, &["127.0.0.1"]),
    ] {
        assert_eq!(
            said(pem, &unknown, "127.0.0.1").await,
            format!("{not_verified} certificate signed by unknown authority")
        );
    }
    let text = said(old.certificate_pem(), &expired, "127.0.0.1").await;
    let start = format!("{not_verified} certificate has expired or is not yet valid: current time ");
    assert!(text.starts_with(&start) && text.contains("Z is after 20"), "{text}");
}

#[tokio::test]
async fn without_a_bundle_only_what_the_machine_trusts_counts() {
    let (hook, egress) = (good().await, egress());
    let config = json!({"url": format!("https://{}/", hook.addr), "caBundle": STANDARD.encode(" \n")});
    let text = Asking::new(&egress).ask(&config).await.unwrap_err();
    assert!(
        text.ends_with("x509: certificate signed by unknown authority"),
        "{text}"
    );
    let config = json!({"url": format!("https://{}/", hook.addr), "caBundle": STANDARD.encode("no certificate")});
    let text = Asking::new(&egress).ask(&config).await.unwrap_err();
    assert!(text.ends_with("unable to parse bytes as PEM block"), "{text}");
}

#[tokio::test]
async fn a_self_signed_certificate_that_is_its_own_bundle_counts() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issued = Issued {
        certificate_pem: params.self_signed(&key).unwrap().pem(),
        key_pem: key.serialize_pem(),
        renew_at: SystemTime::now(),
    };
    let hook = Hook::with(&issued.certificate_pem, &issued, |_| Answer::Json(json!({}))).await;
    let egress = egress();
    assert_eq!(Asking::new(&egress).ask(&hook.client_config("/")).await.unwrap(), "{}");
    let url = format!("https://localhost:{}/", hook.addr.port());
    let text = Asking::new(&egress)
        .ask(&hook.client_config_at(&url))
        .await
        .unwrap_err();
    assert!(
        text.contains("not localhost") || text.contains("wanted to match localhost"),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_recognised() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await.unwrap();
        tcp
    });
    let egress = egress();
    let config = json!({"url": format!("https://{addr}/"), "caBundle": STANDARD.encode(authority().certificate_pem())});
    assert_eq!(
        Asking::new(&egress).ask(&config).await.unwrap_err(),
        format!("Post \"https://{addr}/?timeout=30s\": tls: first record does not look like a TLS handshake")
    );
    answering.await.unwrap();
}

#[tokio::test]
async fn planes_do_not_reach_what_only_this_machine_reaches() {
    let hook = good().await;
    let egress = egress();
    let asking = Asking {
        tenant: plane(1),
        ..Asking::new(&egress)
    };
    let port = hook.addr.port();
    // By address, by a name that leads there, and in other spellings of the same address.
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "2130706433",
        "169.254.169.254",
    ] {
        let config = hook.client_config_at(&format!("https://{host}:{port}/"));
        let text = asking.ask(&config).await.unwrap_err();
        let refused = text.ends_with("the address is not one that this control plane may call");
        assert!(refused || text.contains("no such host"), "{host}: {text}");
    }
    assert_eq!(hook.connections(), 0);
    let config = hook.client_config("/");
    assert!(Asking::new(&egress).ask(&config).await.is_ok(), "the platform may");
    let allowing = Egress::new(EgressOptions {
        allow: ["127.0.0.0/8".parse::<Network>().unwrap()].into_iter().collect(),
        ..EgressOptions::default()
    });
    let asking = Asking {
        egress: &allowing,
        ..asking
    };
    assert!(asking.ask(&config).await.is_ok(), "the operator allowed it");
}

#[tokio::test]
async fn services_are_called_where_the_operator_put_them() {
    let hook = good().await;
    let mut services = Services::default();
    services
        .insert("ns/svc:443", &format!("https://{}", hook.addr))
        .unwrap();
    let egress = Egress::new(EgressOptions {
        services,
        ..EgressOptions::default()
    });
    let asking = Asking {
        tenant: plane(1),
        ..Asking::new(&egress)
    };
    let bundle = hook.client_config("/")["caBundle"].clone();
    let service =
        |name: &str| json!({"service": {"namespace": "ns", "name": name, "path": "/convert"}, "caBundle": bundle});
    assert!(asking.ask(&service("svc")).await.is_ok());
    assert!(hook.seen()[0].head.to_lowercase().contains("host: svc.ns.svc:443\r\n"));
    assert_eq!(
        asking.ask(&service("other")).await.unwrap_err(),
        "Post \"https://other.ns.svc:443/convert?timeout=30s\": service \"other\" not found"
    );
}

#[tokio::test]
async fn a_tenant_whose_webhook_hangs_waits_alone() {
    let hook = Hook::start(|seen| match seen.path().starts_with("/hang") {
        true => Answer::Hang(Vec::new()),
        false => Answer::Json(json!({})),
    })
    .await;
    let egress = Egress::new(EgressOptions {
        allow: ["127.0.0.1".parse::<Network>().unwrap()].into_iter().collect(),
        ..EgressOptions::default()
    });
    let hanging: Vec<_> = (0..TENANT_CALLS)
        .map(|_| {
            let (egress, config) = (egress.clone(), hook.client_config("/hang"));
            tokio::spawn(async move {
                let asking = Asking {
                    tenant: plane(1),
                    ..Asking::new(&egress)
                };
                asking.ask(&config).await
            })
        })
        .collect();
    hook.saw(TENANT_CALLS).await;
    let other = Asking {
        tenant: plane(2),
        ..Asking::new(&egress)
    };
    assert!(other.ask(&hook.client_config("/fine")).await.is_ok());
    let same = Asking {
        tenant: plane(1),
        timeout: HASTE,
        ..Asking::new(&egress)
    };
    let text = same.ask(&hook.client_config("/fine")).await.unwrap_err();
    assert!(text.contains("waiting for other calls of this control plane"), "{text}");
    for call in hanging {
        call.abort();
        let _ = call.await;
    }
    assert!(
        same.ask(&hook.client_config("/fine")).await.is_ok(),
        "whoever gives up makes room"
    );
    const { assert!(MAX_REPLY > 1 << 20) };
}

/// An answer that says when to ask again.
fn later(code: u16, after: &str) -> Answer {
    let text = format!("HTTP/1.1 {code} Said\r\nRetry-After: {after}\r\nContent-Length: 0\r\n\r\n");
    Answer::Raw(text.into_bytes())
}

#[tokio::test]
async fn an_answer_that_says_when_to_ask_again_is_asked_again() {
    let answers = |code: u16, after: &'static str, refusals: usize| {
        let left = AtomicUsize::new(refusals);
        Hook::start(
            move |_| match left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
                Ok(_) => later(code, after),
                Err(_) => Answer::Json(json!({"well": 1})),
            },
        )
    };
    let egress = egress();
    for code in [429, 500, 503] {
        let hook = answers(code, "0", 3).await;
        let answer = Asking::new(&egress).ask(&hook.client_config("/x")).await;
        assert_eq!(
            (answer.unwrap().as_str(), hook.seen().len()),
            ("{\"well\":1}", 4),
            "{code}"
        );
    }
    // Ten times, and no more.
    let hook = answers(503, "0", 11).await;
    let refused = Asking::new(&egress).ask(&hook.client_config("/x")).await.unwrap_err();
    assert_eq!(
        (refused.as_str(), hook.seen().len()),
        ("the server is currently unable to handle the request", 11)
    );
    // Not for other codes, nor for what is no number of seconds.
    for (code, after) in [(400, "0"), (503, "soon"), (503, "Fri, 31 Dec 1999 23:59:59 GMT")] {
        let hook = answers(code, after, 1).await;
        Asking::new(&egress).ask(&hook.client_config("/x")).await.unwrap_err();
        assert_eq!(hook.seen().len(), 1, "{code} {after}");
    }
    // Nor when there is no time for it.
    let hook = answers(503, "3600", 1).await;
    let late = Asking::new(&egress).ask(&hook.client_config("/x")).await.unwrap_err();
    assert!(late.ends_with(": context deadline exceeded"), "{late}");
    assert_eq!(hook.seen().len(), 1);
}
