//! What a request shows besides a certificate: a token or a password, and where it comes from.
//!
//! Tokens in files are read again now and then, and when the server refuses one; so is what plugins say.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, Uri};
use kube::Config;
use kube::client::middleware::AuthLayer;
use kube::client::{Body, ConfigExt as _};
use kube::config::AuthInfo;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

use super::access::AccessError;

/// How old a token may be before its file is read again.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// How often a plugin is run at most because a server refused what it gave.
const RUN_AGAIN: Duration = Duration::from_secs(10);

/// Where the Authorization header comes from.
pub(super) enum Credentials {
    None,
    Fixed(HeaderValue),
    File(TokenFile),
    Plugin(Box<Plugin>),
}

impl Credentials {
    /// In kube's order: plugins of the old sort, passwords, tokens, files, plugins.
    pub(super) fn of(info: &AuthInfo) -> Result<Self, AccessError> {
        if info.auth_provider.is_some() {
            return Ok(Self::Plugin(Box::new(Plugin::new(info))));
        }
        if let (Some(user), Some(password)) = (&info.username, &info.password) {
            let text = STANDARD.encode(format!("{user}:{}", password.expose_secret()));
            return Ok(Self::Fixed(sensitive(&format!("Basic {text}"))?));
        }
        if let Some(token) = &info.token {
            return Ok(Self::Fixed(bearer(token.expose_secret())?));
        }
        if let Some(path) = &info.token_file {
            return Ok(Self::File(TokenFile {
                path: path.into(),
                last: tokio::sync::Mutex::default(),
            }));
        }
        if info.exec.is_some() {
            return Ok(Self::Plugin(Box::new(Plugin::new(info))));
        }
        Ok(Self::None)
    }

    /// The header for the next request.
    pub(super) async fn header(&self) -> Result<Option<HeaderValue>, BoxError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(header) => Ok(Some(header.clone())),
            Self::File(file) => file.header().await.map(Some),
            Self::Plugin(plugin) => plugin.header().await.map(Some),
        }
    }

    /// The server refused the last one: whatever can be asked again is.
    pub(super) async fn refused(&self) {
        match self {
            Self::None | Self::Fixed(_) => {}
            Self::File(file) => {
                if let Some((_, read)) = &mut *file.last.lock().await {
                    *read = None;
                }
            }
            Self::Plugin(plugin) => {
                let mut last = plugin.last.lock().await;
                if last.as_ref().is_some_and(|(_, made)| made.elapsed() >= RUN_AGAIN) {
                    *last = None;
                }
            }
        }
    }

    /// Whether another request may show something else.
    pub(super) fn may_change(&self) -> bool {
        matches!(self, Self::File(_) | Self::Plugin(_))
    }
}

/// A token in a file. The last one is kept if the file cannot be read: some delete it after a start.
pub(super) struct TokenFile {
    path: PathBuf,
    /// The token, and when it was read; `None` if it was refused since.
    last: tokio::sync::Mutex<Option<(HeaderValue, Option<Instant>)>>,
}

impl TokenFile {
    async fn header(&self) -> Result<HeaderValue, BoxError> {
        let mut last = self.last.lock().await;
        if let Some((header, Some(read))) = &*last
            && read.elapsed() < READ_AGAIN
        {
            return Ok(header.clone());
        }
        let read = tokio::fs::read_to_string(&self.path).await;
        let header = match (read, &*last) {
            (Ok(token), _) => bearer(token.trim())?,
            (Err(_), Some((header, _))) => header.clone(),
            (Err(error), None) => return Err(format!("cannot read the token in {:?}: {error}", self.path).into()),
        };
        *last = Some((header.clone(), Some(Instant::now())));
        Ok(header)
    }
}

/// What kube's own layer gets from a plugin, and keeps until it expires.
pub(super) struct Plugin {
    info: AuthInfo,
    last: tokio::sync::Mutex<Option<(Arc<AuthLayer>, Instant)>>,
}

impl Plugin {
    fn new(info: &AuthInfo) -> Self {
        Self {
            info: info.clone(),
            last: tokio::sync::Mutex::default(),
        }
    }

    async fn header(&self) -> Result<HeaderValue, BoxError> {
        let layer = {
            let mut last = self.last.lock().await;
            match &*last {
                Some((layer, _)) => layer.clone(),
                None => {
                    let mut config = Config::new(Uri::from_static("https://any"));
                    config.auth_info = self.info.clone();
                    // It waits for the plugin's process.
                    let layer = tokio::task::spawn_blocking(move || config.auth_layer()).await??;
                    let layer = Arc::new(layer.ok_or("the plugin gave no token; its certificates are not supported")?);
                    *last = Some((layer.clone(), Instant::now()));
                    layer
                }
            }
        };
        // The layer only knows how to decorate a request: one that goes nowhere shows what it adds.
        let echo = service_fn(|request: Request<Body>| async move {
            let mut response = Response::new(Body::empty());
            *response.headers_mut() = request.headers().clone();
            Ok::<_, BoxError>(response)
        });
        let decorated: BoxFuture<'static, _> = layer.layer(echo).oneshot(Request::new(Body::empty())).boxed();
        let header = decorated
            .await
            .map(|response| response.headers().get(AUTHORIZATION).cloned());
        header.and_then(|header| header.ok_or_else(|| "the plugin gave no token".into()))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, AccessError> {
    sensitive(&format!("Bearer {token}"))
}

fn sensitive(text: &str) -> Result<HeaderValue, AccessError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| AccessError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}
