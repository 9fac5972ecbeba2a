//! What is called: a URL or a service, as objects say it, and where that is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Method, Uri};
use mica_machinery::{duration, object};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustls::pki_types::ServerName;
use serde_json::Value;

use super::Tenant;
use super::address::Networks;
use super::credential::{Credentials, Identity};
use super::failure::{CallError, Cause};

const DEFAULT_PORT: u16 = 443;
/// What Go leaves as it is in a path.
const PATH: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// How a webhook is called: `clientConfig` of the objects that name one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    pub(super) to: To,
    /// PEM. Empty: the certificates that this machine trusts.
    pub(super) ca_bundle: Arc<[u8]>,
    /// What is shown to the far side; only the platform's own files name any.
    pub(super) credentials: Credentials,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum To {
    Url(String),
    Service { service: ServiceReference, path: String },
}

/// A service of a namespace, and one of its ports.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

impl ClientConfig {
    /// A document at a URL, for who trusts these authorities (PEM), or those of the machine if there are none.
    pub fn at_url(url: &str, authorities: &str) -> Self {
        Self {
            to: To::Url(url.to_owned()),
            ca_bundle: authorities.as_bytes().into(),
            credentials: Credentials::default(),
        }
    }

    /// The same, showing a certificate (all in PEM) to the far side.
    #[must_use]
    pub(crate) fn showing(mut self, certificate: &str, key: &str) -> Self {
        let identity = Identity::new(certificate.as_bytes().to_vec(), key.as_bytes().to_vec());
        self.credentials.identity = Some(identity);
        self
    }

    /// Reads a `clientConfig` that was validated when it was stored.
    pub fn from_value(config: &Value) -> Result<Self, CallError> {
        let bundle = STANDARD.decode(object::string(config, &["caBundle"]));
        let mut bundle = bundle.map_err(|_| CallError::Config("caBundle is not base64".to_owned()))?;
        // As upstream: nothing but white space is nothing.
        if bundle.iter().all(u8::is_ascii_whitespace) {
            bundle.clear();
        }
        let to = match object::get(config, &["service"]) {
            Some(service) if service.is_object() => To::Service {
                service: ServiceReference {
                    namespace: object::string(service, &["namespace"]).to_owned(),
                    name: object::string(service, &["name"]).to_owned(),
                    port: object::int(service, &["port"])
                        .and_then(|port| u16::try_from(port).ok())
                        .filter(|port| *port != 0)
                        .unwrap_or(DEFAULT_PORT),
                },
                path: object::string(service, &["path"]).to_owned(),
            },
            _ => To::Url(object::string(config, &["url"]).to_owned()),
        };
        Ok(Self {
            to,
            ca_bundle: bundle.into(),
            credentials: Credentials::default(),
        })
    }
}

/// Where services are: planes have no network of their own, so the operator says it.
#[derive(Clone, Debug, Default)]
pub struct Services(HashMap<ServiceReference, Endpoint>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Endpoint {
    host: String,
    port: u16,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadService {
    #[error("{0:?} is not NAMESPACE/NAME:PORT")]
    Name(String),
    #[error("{0:?} is not https://HOST[:PORT]")]
    Url(String),
}

impl Services {
    /// Says that `NAMESPACE/NAME:PORT` is served at `https://HOST[:PORT]`.
    pub fn insert(&mut self, service: &str, url: &str) -> Result<(), BadService> {
        let named = || {
            let (namespace, rest) = service.split_once('/')?;
            let (name, port) = rest.rsplit_once(':')?;
            let port = port.parse().ok().filter(|port: &u16| *port != 0)?;
            let plain = |text: &str| !text.is_empty() && !text.contains(['/', ':']);
            (plain(namespace) && plain(name)).then(|| ServiceReference {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port,
            })
        };
        let service = named().ok_or_else(|| BadService::Name(service.to_owned()))?;
        let bad = || BadService::Url(url.to_owned());
        let parsed: Uri = url.parse().map_err(|_| bad())?;
        let plain =
            parsed.scheme_str() == Some("https") && matches!(parsed.path(), "" | "/") && parsed.query().is_none();
        let endpoint = endpoint(&parsed).filter(|_| plain).ok_or_else(bad)?;
        self.0.insert(service, endpoint);
        Ok(())
    }
}

fn endpoint(url: &Uri) -> Option<Endpoint> {
    let authority = url.authority()?;
    if authority.as_str().contains('@') {
        return None;
    }
    let host = authority.host().trim_matches(['[', ']']);
    (!host.is_empty()).then(|| Endpoint {
        host: host.to_owned(),
        port: authority.port_u16().unwrap_or(DEFAULT_PORT),
    })
}

/// A place to connect to. Connections are kept and found again by it, so nothing that matters to trust may be left out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub tenant: Tenant,
    pub host: String,
    pub port: u16,
    pub server_name: ServerName<'static>,
    pub ca_bundle: Arc<[u8]>,
    pub identity: Option<Identity>,
    pub chosen_by: ChosenBy,
    /// Where the tenant may go beside what all may.
    pub reach: Networks,
}

/// Who chose an address: what operators wrote down needs no check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ChosenBy {
    Operator,
    Tenant,
}

/// A call's destination, ready to be asked.
pub(super) struct Target<'c> {
    config: &'c ClientConfig,
    /// As in the URL.
    authority: String,
    path_and_query: String,
    endpoint: Endpoint,
    method: Method,
}

impl<'c> Target<'c> {
    /// A document to be read at its URL, which is sent as it stands.
    pub(super) fn document(config: &'c ClientConfig) -> Result<Self, CallError> {
        let To::Url(url) = &config.to else {
            return Err(CallError::Config("a document is read from a URL".to_owned()));
        };
        let bad = || CallError::Config(format!("Unparsable URL: {url}"));
        let parsed: Uri = url.parse().map_err(|_| bad())?;
        if parsed.scheme_str() != Some("https") {
            return Err(bad());
        }
        Ok(Self {
            config,
            authority: parsed.authority().ok_or_else(bad)?.as_str().to_owned(),
            path_and_query: parsed.path_and_query().ok_or_else(bad)?.as_str().to_owned(),
            endpoint: endpoint(&parsed).ok_or_else(bad)?,
            method: Method::GET,
        })
    }

    pub(super) fn method(&self) -> Method {
        self.method.clone()
    }

    pub(super) fn new(config: &'c ClientConfig, timeout: Duration) -> Result<Self, CallError> {
        let (authority, path, endpoint) = match &config.to {
            To::Service { service, path } => {
                let host = format!("{}.{}.svc", service.name, service.namespace);
                let port = service.port;
                (format!("{host}:{port}"), path.as_str(), Endpoint { host, port })
            }
            To::Url(url) if url.is_empty() => {
                let message = "webhook configuration must have either service or URL";
                return Err(CallError::Config(message.to_owned()));
            }
            To::Url(url) => {
                let bad = || CallError::Config(format!("Unparsable URL: {url}"));
                let rest = url.strip_prefix("https://").ok_or_else(bad)?;
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let parsed: Uri = format!("https://{}/", &rest[..end]).parse().map_err(|_| bad())?;
                let endpoint = endpoint(&parsed).ok_or_else(bad)?;
                let path = rest[end..].split(['?', '#']).next().unwrap_or_default();
                (rest[..end].to_owned(), path, endpoint)
            }
        };
        let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
        let path_and_query = format!("{}?timeout={}", clean_path(path), duration::format_go(nanos));
        Ok(Self {
            config,
            authority,
            path_and_query,
            endpoint,
            method: Method::POST,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}{}", self.authority, self.path_and_query)
    }

    pub(super) fn request_uri(&self) -> Uri {
        self.path_and_query.parse().expect("every odd character was escaped")
    }

    /// The header that proves who calls.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        self.config.credentials.authorization()
    }

    pub(super) fn host_header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.authority).expect("an authority is plain text")
    }

    /// Where that is, for a tenant.
    pub(super) fn place(&self, tenant: Tenant, services: &Services) -> Result<Place, Cause> {
        let (endpoint, chosen_by) = match &self.config.to {
            To::Url(_) => (&self.endpoint, ChosenBy::Tenant),
            To::Service { service, .. } => match services.0.get(service) {
                Some(endpoint) => (endpoint, ChosenBy::Operator),
                None => return Err(Cause::NoService(service.name.clone())),
            },
        };
        // A service is known by its own name, wherever it is.
        let named = self.config.credentials.server_name.as_ref();
        let name = named.unwrap_or(&self.endpoint.host).clone();
        let server_name = ServerName::try_from(name.clone()).map_err(|_| Cause::NoHost(name))?;
        Ok(Place {
            tenant,
            host: endpoint.host.clone(),
            port: endpoint.port,
            server_name,
            ca_bundle: self.config.ca_bundle.clone(),
            identity: self.config.credentials.identity.clone(),
            chosen_by,
            reach: Networks::default(),
        })
    }
}

/// The path as upstream sends it: decoded, without empty, `.` and `..` segments, and escaped again.
fn clean_path(path: &str) -> String {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let joined = format!("/{}", segments.join("/"));
    utf8_percent_encode(&joined, &PATH).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn url_of(config: Value, seconds: u64) -> String {
        let config = ClientConfig::from_value(&config).unwrap();
        match Target::new(&config, Duration::from_secs(seconds)) {
            Ok(target) => {
                target.request_uri();
                target.host_header();
                target.url()
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn urls_are_as_upstream_sends_them() {
        for (url, expected) in [
            ("https://h:1/x/ok", "https://h:1/x/ok?timeout=30s"),
            ("https://h//x//ok/", "https://h/x/ok?timeout=30s"),
            ("https://h/x%2Fy/../z b", "https://h/x/z%20b?timeout=30s"),
            ("https://h", "https://h/?timeout=30s"),
            ("https://[::1]:8443/a", "https://[::1]:8443/a?timeout=30s"),
            ("https://h/../../etc", "https://h/etc?timeout=30s"),
            ("https://h/\u{e9}*", "https://h/%C3%A9%2A?timeout=30s"),
            ("http://h/", "Unparsable URL: http://h/"),
            ("https:///x", "Unparsable URL: https:///x"),
            ("https://u@h/x", "Unparsable URL: https://u@h/x"),
            ("", "webhook configuration must have either service or URL"),
        ] {
            assert_eq!(url_of(json!({"url": url}), 30), expected, "{url}");
        }
        let service = json!({"service": {"namespace": "ns", "name": "svc", "path": "/convert"}});
        assert_eq!(url_of(service, 10), "https://svc.ns.svc:443/convert?timeout=10s");
        let service = json!({"service": {"namespace": "ns", "name": "svc", "port": 8443}});
        assert_eq!(url_of(service, 90), "https://svc.ns.svc:8443/?timeout=1m30s");
    }

    #[test]
    fn services_are_where_the_operator_says_under_their_own_names() {
        let mut services = Services::default();
        services.insert("ns/svc:443", "https://10.0.0.5:9443").unwrap();
        let place = |name: &str, port: u16| {
            let config = json!({"service": {"namespace": "ns", "name": name, "port": port}});
            let config = ClientConfig::from_value(&config).unwrap();
            let target = Target::new(&config, Duration::from_secs(1)).unwrap();
            target
                .place(Tenant::Platform, &services)
                .map_err(|cause| cause.to_string())
        };
        let found = place("svc", 443).unwrap();
        assert_eq!((found.host.as_str(), found.port), ("10.0.0.5", 9443));
        assert_eq!(found.server_name.to_str(), "svc.ns.svc");
        assert_eq!(found.chosen_by, ChosenBy::Operator);
        assert_eq!(place("svc", 8443).unwrap_err(), "service \"svc\" not found");
        assert_eq!(place("other", 443).unwrap_err(), "service \"other\" not found");
        for bad in ["svc", "ns/svc", "ns/svc:0", "ns/svc:x", "/svc:1", "a/b/c:1"] {
            assert_eq!(services.insert(bad, "https://h"), Err(BadService::Name(bad.to_owned())));
        }
        for bad in ["h", "http://h", "https://", "https://h/x", "https://u@h"] {
            assert_eq!(services.insert("a/b:1", bad), Err(BadService::Url(bad.to_owned())));
        }
    }
}
