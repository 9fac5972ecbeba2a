//! Where etcd is and how to get in: the configuration, read from a struct or from an `etcd://` address.
//!
//! Files named in an address are read here, once, so that nothing below touches the file system.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;

/// Where everything of Mica lives in etcd unless told otherwise.
pub const DEFAULT_PREFIX: &str = "/mica";
const DEFAULT_PORT: u16 = 2379;
/// How long [`super::EtcdStore::connect`] tries. Long enough for an etcd that starts at the same time, short enough to be
/// told of a mistyped port before one's patience ends.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// kube-apiserver's interval: history reaches back at least this long and at most twice as long.
const DEFAULT_COMPACTION: Duration = Duration::from_secs(300);

/// How to reach an etcd and what to do there.
#[derive(Clone)]
pub struct EtcdConfig {
    /// `http://host:port` or `https://host:port`, all of one etcd.
    pub endpoints: Vec<String>,
    /// For `https`; without it no https endpoint is trusted.
    pub tls: Option<TlsFiles>,
    pub credentials: Option<Credentials>,
    /// Keys begin with this and a slash. Two Micas with different prefixes can share an etcd.
    pub prefix: String,
    /// How long connecting may take, all endpoints and attempts together.
    pub connect_timeout: Duration,
    /// How often history is compacted; `None` leaves that to others.
    pub compaction: Option<Duration>,
}

/// PEM texts, not paths.
#[derive(Clone)]
pub struct TlsFiles {
    /// Certificates that may have signed etcd's.
    pub ca: Vec<u8>,
    /// Our certificate and its key, where etcd asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in etcd's certificate, if it is not the host of the endpoint.
    pub server_name: Option<String>,
}

#[derive(Clone)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

/// One sentence that says what is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfig(String);

impl InvalidConfig {
    pub(super) fn new(message: String) -> Self {
        Self(message)
    }
}

impl EtcdConfig {
    /// The defaults with these endpoints.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            credentials: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            compaction: Some(DEFAULT_COMPACTION),
        }
    }

    /// Reads `etcd://HOST[:PORT][,HOST[:PORT]…][?NAME=VALUE&…]`; with `etcds://` the endpoints speak TLS.
    ///
    /// Names: `prefix`, `username`, `password-file`; and for TLS `ca`, `cert`, `key` (files) and `server-name`. There is
    /// no parameter for the password itself: command lines are seen by everybody on a machine.
    pub fn from_url(url: &str) -> Result<Self, InvalidConfig> {
        let (scheme, rest) = match (url.strip_prefix("etcd://"), url.strip_prefix("etcds://")) {
            (Some(rest), _) => ("http", rest),
            (_, Some(rest)) => ("https", rest),
            _ => return Err(invalid(format!("{url:?} does not begin with etcd:// or etcds://"))),
        };
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let endpoints: Result<Vec<_>, _> = hosts
            .trim_end_matches('/')
            .split(',')
            .map(|host| endpoint(scheme, host))
            .collect();
        let mut config = Self::new(endpoints?);
        let parameters = Parameters::parse(query)?;
        if let Some(prefix) = parameters.prefix {
            config.prefix = prefix;
        }
        config.credentials = match (parameters.username, parameters.password_file) {
            (Some(username), Some(file)) => {
                let password = String::from_utf8_lossy(&read("password-file", &file)?)
                    .trim_end_matches(['\r', '\n'])
                    .into();
                Some(Credentials { username, password })
            }
            (None, None) => None,
            _ => return Err(invalid("username and password-file come together".into())),
        };
        config.tls = match (scheme, parameters.ca) {
            ("https", Some(ca)) => Some(TlsFiles {
                ca: read("ca", &ca)?,
                identity: match (parameters.cert, parameters.key) {
                    (Some(cert), Some(key)) => Some((read("cert", &cert)?, read("key", &key)?)),
                    (None, None) => None,
                    _ => return Err(invalid("cert and key come together".into())),
                },
                server_name: parameters.server_name,
            }),
            ("https", None) => return Err(invalid("etcds:// needs ca=FILE, the certificate to trust".into())),
            (_, None) if parameters.cert.is_none() && parameters.key.is_none() => None,
            _ => return Err(invalid("ca, cert and key are for etcds://".into())),
        };
        config.check()?;
        Ok(config)
    }

    /// What [`super::EtcdStore::connect`] checks before it dials.
    pub(super) fn check(&self) -> Result<(), InvalidConfig> {
        if self.endpoints.is_empty() {
            return Err(invalid("no etcd endpoint is given".into()));
        }
        let prefix = &self.prefix;
        if !prefix.starts_with('/') || prefix.ends_with('/') {
            return Err(invalid(format!(
                "the etcd prefix {prefix:?} must begin with a slash and end with none"
            )));
        }
        for endpoint in &self.endpoints {
            match endpoint.split_once("://") {
                Some(("http", host)) if !host.is_empty() => {}
                Some(("https", host)) if !host.is_empty() && self.tls.is_some() => {}
                Some(("https", _)) => return Err(invalid(format!("{endpoint} needs a CA certificate to trust"))),
                _ => return Err(invalid(format!("{endpoint:?} is not an http:// or https:// address"))),
            }
        }
        Ok(())
    }
}

/// Secrets stay out of logs.
impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("username", &self.credentials.as_ref().map(|c| &c.username))
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Parameters {
    prefix: Option<String>,
    username: Option<String>,
    password_file: Option<String>,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    server_name: Option<String>,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, InvalidConfig> {
        let mut all = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| invalid(format!("{pair:?} is not NAME=VALUE")))?;
            let slot = match name {
                "prefix" => &mut all.prefix,
                "username" => &mut all.username,
                "password-file" => &mut all.password_file,
                "ca" => &mut all.ca,
                "cert" => &mut all.cert,
                "key" => &mut all.key,
                "server-name" => &mut all.server_name,
                _ => return Err(invalid(format!("an etcd address has no parameter {name:?}"))),
            };
            *slot = Some(percent_decode_str(value).decode_utf8_lossy().into_owned());
        }
        Ok(all)
    }
}

fn endpoint(scheme: &str, host: &str) -> Result<String, InvalidConfig> {
    let bad = || invalid(format!("{host:?} is not HOST or HOST:PORT"));
    // In `[::1]:2379` only the colon after the bracket begins a port.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().map_err(|_| bad())?),
        _ => (host, DEFAULT_PORT),
    };
    let bracketed = name.starts_with('[') && name.ends_with(']');
    if name.is_empty() || name.contains(['/', '@', ' ']) || (name.contains(':') && !bracketed) {
        return Err(bad());
    }
    Ok(format!("{scheme}://{name}:{port}"))
}

fn read(parameter: &str, file: &str) -> Result<Vec<u8>, InvalidConfig> {
    std::fs::read(file).map_err(|err| invalid(format!("cannot read {parameter}={file}: {err}")))
}

fn invalid(message: String) -> InvalidConfig {
    InvalidConfig::new(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_one_or_many_endpoints() {
        let endpoints = |url| EtcdConfig::from_url(url).unwrap().endpoints;
        assert_eq!(endpoints("etcd://127.0.0.1:2379"), ["http://127.0.0.1:2379"]);
        assert_eq!(
            endpoints("etcd://a:1,b:2,c/"),
            ["http://a:1", "http://b:2", "http://c:2379"]
        );
        assert_eq!(
            endpoints("etcd://[::1]:7,[::2]"),
            ["http://[::1]:7", "http://[::2]:2379"]
        );
    }

    #[test]
    fn parameters_are_decoded_and_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        for (name, text) in [("ca", "CA"), ("cert", "CERT"), ("key", "KEY"), ("pw", "secret\n")] {
            std::fs::write(path(name), text).unwrap();
        }
        let url = format!(
            "etcds://h?ca={}&cert={}&key={}&server-name=etcd&prefix=%2Fother&username=m&password-file={}",
            path("ca"),
            path("cert"),
            path("key"),
            path("pw")
        );
        let config = EtcdConfig::from_url(&url).unwrap();
        assert_eq!(config.endpoints, ["https://h:2379"]);
        assert_eq!(config.prefix, "/other");
        let tls = config.tls.clone().unwrap();
        assert_eq!(
            (tls.ca, tls.identity.unwrap()),
            (b"CA".to_vec(), (b"CERT".to_vec(), b"KEY".to_vec()))
        );
        assert_eq!(tls.server_name.as_deref(), Some("etcd"));
        let credentials = config.credentials.clone().unwrap();
        assert_eq!(
            (credentials.username.as_str(), credentials.password.as_str()),
            ("m", "secret")
        );
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn mistakes_are_named_in_one_sentence() {
        let message = |url| EtcdConfig::from_url(url).unwrap_err().to_string();
        assert_eq!(
            message("http://h"),
            "\"http://h\" does not begin with etcd:// or etcds://"
        );
        assert_eq!(message("etcd://h:x"), "\"h:x\" is not HOST or HOST:PORT");
        assert_eq!(message("etcd://"), "\"\" is not HOST or HOST:PORT");
        assert_eq!(message("etcd://h?nope=1"), "an etcd address has no parameter \"nope\"");
        assert_eq!(message("etcds://h"), "etcds:// needs ca=FILE, the certificate to trust");
        assert_eq!(
            message("etcd://h?username=a"),
            "username and password-file come together"
        );
        assert_eq!(message("etcd://h?ca=x"), "ca, cert and key are for etcds://");
        assert_eq!(
            message("etcd://h?prefix=mica"),
            "the etcd prefix \"mica\" must begin with a slash and end with none"
        );
        assert!(message("etcds://h?ca=/no/such/file").starts_with("cannot read ca=/no/such/file: "));
    }
}
