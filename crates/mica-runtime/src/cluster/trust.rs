//! What connections to servers depend on besides where those are: whom to trust, and whose certificate to show.
//!
//! Equal trust exists once in a process, so that everybody who trusts the same and goes to the same place shares
//! connections, and nobody else does: a connection that shows a certificate is never used for somebody with another one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use kube::Config;
use kube::client::ConfigExt as _;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;

use super::access::AccessError;
use super::pool::{Origin, Pool};

/// How long connecting may take where nothing else is said, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Places that a trust remembers before it forgets those without connections. More are remembered if they are in use.
const REMEMBERED_PLACES: usize = 64;

/// All trusts that are in use.
static TRUSTS: LazyLock<Mutex<HashMap<Key, Weak<Trust>>>> = LazyLock::new(Mutex::default);

/// Everything that a connection depends on. Two that are equal may share connections.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    roots: Option<Vec<Vec<u8>>>,
    roots_file: Option<PathBuf>,
    accept_any: bool,
    server_name: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    connect_timeout: Duration,
}

/// Whom to trust, whose certificate to show, and the connections that were made so.
pub(super) struct Trust {
    h2: HttpsConnector<HttpConnector>,
    h1: HttpsConnector<HttpConnector>,
    connect_timeout: Duration,
    pools: Mutex<HashMap<Origin, Arc<Pool>>>,
}

impl Trust {
    /// The trust of a configuration whose certificate and key are in it, not in files.
    pub(super) fn of(config: &Config) -> Result<Arc<Self>, AccessError> {
        use secrecy::ExposeSecret as _;
        let key = Key {
            roots: config.root_cert.clone(),
            roots_file: config.root_cert_file.clone(),
            accept_any: config.accept_invalid_certs,
            server_name: config.tls_server_name.clone(),
            certificate: config.auth_info.client_certificate_data.clone(),
            key: config
                .auth_info
                .client_key_data
                .as_ref()
                .map(|key| key.expose_secret().to_owned()),
            connect_timeout: config.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
        };
        let mut trusts = TRUSTS.lock();
        if let Some(trust) = trusts.get(&key).and_then(Weak::upgrade) {
            return Ok(trust);
        }
        let trust = Arc::new(Self::make(config, key.connect_timeout)?);
        trusts.retain(|_, trust| trust.strong_count() > 0);
        trusts.insert(key, Arc::downgrade(&trust));
        Ok(trust)
    }

    fn make(config: &Config, connect_timeout: Duration) -> Result<Self, AccessError> {
        // Whoever chose another one before keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A plugin would be run here for a certificate, and block: it is asked for tokens only, when there is a request.
        let mut without_plugins = config.clone();
        without_plugins.auth_info.exec = None;
        without_plugins.auth_info.auth_provider = None;
        let tls = without_plugins
            .rustls_client_config()
            .map_err(|error| AccessError::Trust(Box::new(error)))?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(connect_timeout));
        let name: Option<ServerName<'static>> = match &config.tls_server_name {
            Some(name) => {
                let name = name.clone().try_into();
                Some(name.map_err(|error| AccessError::Trust(Box::new(error)))?)
            }
            None => None,
        };
        let builder = || {
            let builder = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http();
            match &name {
                Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name.clone())),
                None => builder,
            }
        };
        Ok(Self {
            h1: builder().enable_http1().wrap_connector(http.clone()),
            h2: builder().enable_all_versions().wrap_connector(http),
            connect_timeout,
            pools: Mutex::default(),
        })
    }

    /// The connections to a place.
    pub(super) fn pool(&self, origin: &Origin) -> Arc<Pool> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(origin) {
            return pool.clone();
        }
        if pools.len() >= REMEMBERED_PLACES && pools.len().is_power_of_two() {
            pools.retain(|_, pool| pool.in_use());
        }
        let pool = Arc::new(Pool::new(
            origin.clone(),
            self.h2.clone(),
            self.h1.clone(),
            self.connect_timeout,
        ));
        pools.insert(origin.clone(), pool.clone());
        pool
    }
}
