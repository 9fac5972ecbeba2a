//! A bare TLS server on the same libraries: answers GET and LIST from memory, POST and PUT after one append to the log.
//!
//! It knows no objects and checks nobody: what is left is the cost of TLS, HTTP and the disk.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::log::WriteAheadLog;
use crate::pki::{Authority, write_kubeconfig};
use crate::scenario::requests::LISTED;

/// A stored 1-KiB configmap with the metadata that servers add.
const OBJECT: usize = 1300;

struct Floor {
    object: Bytes,
    list: Bytes,
    log: WriteAheadLog,
}

/// Serves until the process is ended; prints one line when ready.
pub async fn serve(directory: &Path) -> Result<()> {
    let authority = Authority::new("floor")?;
    let serving = authority.serving()?;
    let chain = CertificateDer::pem_slice_iter(serving.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(serving.key.as_bytes())?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    write_kubeconfig(
        &directory.join("admin.kubeconfig"),
        port,
        &authority.certificate,
        &authority.admin()?,
    )?;

    let floor = Arc::new(Floor {
        object: vec![b'x'; OBJECT].into(),
        list: vec![b'x'; OBJECT * LISTED as usize].into(),
        log: WriteAheadLog::create(&directory.join("wal"))?,
    });
    let acceptor = TlsAcceptor::from(Arc::new(config));
    println!("ready on 127.0.0.1:{port}");
    loop {
        let (tcp, _) = listener.accept().await?;
        let (acceptor, floor) = (acceptor.clone(), floor.clone());
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let service = service_fn(move |request| answer(floor.clone(), request));
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(tls), service)
                .await;
        });
    }
}

async fn answer(floor: Arc<Floor>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_list = request.uri().path().ends_with("/configmaps");
    let (status, body) = if request.method() == Method::GET {
        (
            StatusCode::OK,
            if is_list {
                floor.list.clone()
            } else {
                floor.object.clone()
            },
        )
    } else {
        let body = request
            .into_body()
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        match floor.log.append(body.clone()).await {
            Ok(()) => (StatusCode::CREATED, body),
            Err(_) => (StatusCode::SERVICE_UNAVAILABLE, Bytes::new()),
        }
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}
