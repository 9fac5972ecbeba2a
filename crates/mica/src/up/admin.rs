//! The store over HTTPS, beside the API: `/mica/store/backup` and `/mica/store/check`, for administrators only.
//!
//! Here and not in the server, because only the embedded store has them and the server knows no backend.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use mica_server::error::ApiError;
use mica_server::http::{Body, Context, Lasting, RequestBody, Service, status_response};
use mica_server::serve::Server;
use mica_store::EmbeddedStore;
use mica_store::embedded::CheckReport;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};

use super::backend::OpenStore;

const PREFIX: &str = "/mica/store/";
/// Pieces of a backup that wait for the client.
const PIECES: usize = 4;
const PIECE: usize = 256 * 1024;

/// The API server with the store's own paths.
pub struct WithStore {
    pub server: Arc<Server>,
    pub store: OpenStore,
}

impl Service for WithStore {
    fn lasting(&self, request: &Request<RequestBody>) -> Lasting {
        if request.uri().path().starts_with(PREFIX) {
            Lasting::LongRunning
        } else {
            self.server.lasting(request)
        }
    }

    async fn call(&self, context: &Context, request: Request<RequestBody>) -> Response<Body> {
        match request.uri().path().strip_prefix(PREFIX) {
            None => self.server.call(context, request).await,
            Some(what) => {
                let answered = self.answer(context, &request, what).await;
                answered.unwrap_or_else(|error| status_response(&error))
            }
        }
    }
}

impl WithStore {
    async fn answer(
        &self,
        context: &Context,
        request: &Request<RequestBody>,
        what: &str,
    ) -> Result<Response<Body>, ApiError> {
        self.server.authorize_path_of_root(context, request).await?;
        if request.method() != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let OpenStore::Embedded(store) = &self.store else {
            let code = StatusCode::NOT_IMPLEMENTED;
            return Err(ApiError::new(
                code,
                "NotImplemented",
                "this server's store is etcd: use etcd's own tools",
            ));
        };
        match what {
            "backup" => Ok(backup(store.clone())),
            "check" => check(store.clone()).await,
            _ => Err(ApiError::page_not_found()),
        }
    }
}

/// Streams a backup. One that fails is cut off, so that the client does not take it for a whole one.
fn backup(store: EmbeddedStore) -> Response<Body> {
    let (sender, receiver) = channel::<io::Result<Bytes>>(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut writer = io::BufWriter::with_capacity(PIECE, Pieces(sender.clone()));
        let written = store.backup(&mut writer).map_err(io::Error::other);
        if let Err(error) = written.and_then(|_| io::Write::flush(&mut writer)) {
            tracing::warn!(%error, "a backup was not finished");
            let _ = sender.blocking_send(Err(error));
        }
    });
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let mut response = Response::new(Body::try_stream(pieces));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}

/// Hands pieces to the connection; waits while it has enough.
struct Pieces(Sender<io::Result<Bytes>>);

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn check(store: EmbeddedStore) -> Result<Response<Body>, ApiError> {
    let checked = tokio::task::spawn_blocking(move || store.check()).await;
    let report = checked.map_err(|error| ApiError::internal("the check failed").because(error))??;
    let mut response = Response::new(Body::full(to_json(&report).to_string()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// What a check found, under the names of its fields.
pub fn to_json(report: &CheckReport) -> Value {
    json!({
        "segments": report.segments,
        "logBytes": report.log_bytes,
        "logRecords": report.log_records,
        "keys": report.keys,
        "oldVersions": report.old_versions,
        "indexBytes": report.index_bytes,
        "problems": report.problems,
    })
}
