//! A server that answers as told, for what a real one rarely says.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use mica_server::http::{Body, Context, Envelope, EnvelopeOptions, ListenOptions, Listener, RequestBody, Service};
use mica_server::metrics::{HttpMetrics, Registry};
use mica_server::pki::{Authority, PkiDir, admin_kubeconfig, serving_names, write_private};
use mica_server::tls::{ClientRoots, ServingCertificates, certified_key};
use tokio_util::sync::CancellationToken;

/// Answers by method and path.
pub type Script = fn(&str) -> (u16, &'static str);

struct Scripted(Script);

impl Service for Scripted {
    async fn call(&self, _context: &Context, request: Request<RequestBody>) -> Response<Body> {
        let line = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
        let (code, text) = self.0(&line);
        // `CUT` ends an answer in its middle.
        let body = match text.strip_suffix("CUT") {
            None => Body::full(text),
            Some(part) => {
                let pieces = [Ok(Bytes::from(part)), Err(std::io::Error::other("cut off"))];
                Body::try_stream(futures::stream::iter(pieces))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        response
    }
}

/// Serves until the test ends, and writes a kubeconfig where `mica` looks for one.
pub async fn serve(home: &Path, script: Script) {
    serve_with(home, Scripted(script)).await;
}

/// The same with other answers; where it serves.
pub async fn serve_with(home: &Path, service: impl Service) -> String {
    let now = SystemTime::now();
    let pki = PkiDir::open(home.join("pki")).unwrap();
    let authority = Authority::generate("fake", now).unwrap();
    let serving = pki.serving(&authority, &serving_names([]), now).unwrap();
    let certificates = Arc::new(ServingCertificates::new(certified_key(&serving).unwrap()));
    let roots = Arc::new(ClientRoots::new(&[authority.certificate().clone()]).unwrap());
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::bind(any, certificates, roots, ListenOptions::default())
        .await
        .unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let admin = pki.admin(&authority, now).unwrap();
    std::fs::create_dir(home.join(".mica")).unwrap();
    let text = admin_kubeconfig(&server, authority.certificate_pem(), &admin);
    write_private(&home.join(".mica/admin.kubeconfig"), text.as_bytes()).unwrap();
    let metrics = HttpMetrics::new(&Registry::default());
    let envelope = Arc::new(Envelope::new(service, EnvelopeOptions::default(), metrics));
    tokio::spawn(listener.serve(envelope, CancellationToken::new()));
    server
}
