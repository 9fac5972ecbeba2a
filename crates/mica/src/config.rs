//! Settings: flags and variables over the file over defaults, checked as a whole.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mica_controllers::Selection;
use mica_server::admission::{Plugins, PodAccounts};
use mica_server::audit::AuditOptions;
use mica_server::authn::reload::Reload;
use mica_server::authn::{Authenticator, BootstrapTokens, Headers, ReviewVersion};
use mica_server::authz::Source;
use mica_server::egress::{EgressOptions, Network, Services};
use mica_server::http::{parse_go_duration, strict_transport};
use mica_server::seal::Sealing;
use mica_server::start::DEFAULT_ISSUER;
use mica_server::tls::TlsOptions;
use mica_store::etcd::EtcdConfig;
use serde::Deserialize;

use crate::audit::AuditFile;
use crate::authentication::{Authentication, ProxyFiles, WEBHOOK_TTL, Webhook};
use crate::cli::{AuthorizationArgs, LogFormat, Profile, Tenancy, UpArgs};
use crate::dedicated::{DedicatedFile, HandedDown};
use crate::exit::Usage;
use crate::limits::{LimitSettings, LimitsFile};
use crate::operator::{OperatorFile, OperatorSettings};
use crate::up::running::Transport;

mod authorization;

const DEFAULT_DATA_DIR: &str = "./.mica";
const DEFAULT_LISTEN: &str = "127.0.0.1:6440";
const DEFAULT_DRAIN: Duration = Duration::from_secs(60);
const DEFAULT_SAMPLING: f64 = 0.01;

/// What `mica up` works with.
#[derive(Clone)]
pub struct Settings {
    pub data_dir: PathBuf,
    pub listen: ListenAddress,
    /// `https://HOST[:PORT]`, without a slash at its end; none means the listening address.
    pub advertise: Option<String>,
    pub san: Vec<String>,
    pub store: StoreAddress,
    pub profile: Profile,
    pub tenancy: Tenancy,
    pub log: String,
    pub log_format: LogFormat,
    pub log_file: Option<PathBuf>,
    pub otlp: Option<Otlp>,
    pub drain_timeout: Duration,
    /// Where webhooks may be.
    pub egress: EgressOptions,
    /// Whether new pods get a service account.
    pub accounts: PodAccounts,
    /// Who is let in by what, beside certificates.
    pub authenticator: Authenticator,
    /// Files that are read again when they change.
    pub reload: Reload,
    /// How much there is, and how much of it a plane may have.
    pub limits: LimitSettings,
    pub transport: Transport,
    /// What of the store is hidden.
    pub encryption: Option<Arc<Sealing>>,
    /// What is written down of requests, and where.
    pub audit: AuditOptions,
    /// Which of the built-in admission plugins run.
    pub plugins: Plugins,
    /// Who decides what is allowed.
    pub authorization: Source,
    /// Which controllers run in this process.
    pub controllers: Selection,
    /// How control planes are run.
    pub operator: OperatorSettings,
}

/// Where traces go.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    pub endpoint: String,
    pub sampling: f64,
}

#[derive(Clone)]
pub enum StoreAddress {
    Embedded,
    Etcd(Box<EtcdConfig>),
}

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    pub host: String,
    pub port: u16,
}

/// The file: every setting by its flag's name.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct File {
    data_dir: Option<PathBuf>,
    listen: Option<String>,
    advertise: Option<String>,
    san: Vec<String>,
    store: Option<String>,
    profile: Option<Profile>,
    tenancy: Option<Tenancy>,
    log: Option<String>,
    log_format: Option<LogFormat>,
    log_file: Option<PathBuf>,
    otlp_endpoint: Option<String>,
    otlp_sampling: Option<f64>,
    drain_timeout: Option<String>,
    controllers: Vec<String>,
    authorization_config: Option<PathBuf>,
    authorization_mode: Vec<String>,
    authorization_webhook_config_file: Option<PathBuf>,
    authorization_webhook_version: Option<String>,
    authorization_webhook_cache_authorized_ttl: Option<String>,
    authorization_webhook_cache_unauthorized_ttl: Option<String>,
    egress: EgressFile,
    admission: AdmissionFile,
    audit: AuditFile,
    limits: LimitsFile,
    authentication: AuthenticationFile,
    encryption: EncryptionFile,
    control_planes: OperatorFile,
    dedicated: DedicatedFile,
    tls_min_version: Option<String>,
    tls_cipher_suites: Vec<String>,
    strict_transport_security_directives: Vec<String>,
}

/// Who is let in by what, beside certificates and service accounts.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct AuthenticationFile {
    /// An AuthenticationConfiguration, as kube-apiserver takes it.
    config: Option<PathBuf>,
    /// Lines of token,user,uid[,"group,group"].
    token_file: Option<PathBuf>,
    /// Whether bootstrap-token-* Secrets of a plane's kube-system let into that plane.
    bootstrap_tokens: bool,
    webhook: Option<WebhookFile>,
    front_proxy: Option<FrontProxyFile>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WebhookFile {
    /// A kubeconfig.
    config_file: PathBuf,
    version: Option<String>,
    cache_ttl: Option<String>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FrontProxyFile {
    client_ca_file: PathBuf,
    #[serde(default)]
    allowed_names: Vec<String>,
    #[serde(default)]
    username_headers: Vec<String>,
    #[serde(default)]
    uid_headers: Vec<String>,
    #[serde(default)]
    group_headers: Vec<String>,
    #[serde(default)]
    extra_headers_prefix: Vec<String>,
}

/// What is hidden in the store.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct EncryptionFile {
    /// A file with an EncryptionConfiguration, which may change while the server runs.
    provider_config: Option<PathBuf>,
}

/// What is asked about writes beside what planes configure.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct AdmissionFile {
    /// Whether new pods get a service account of their namespace, which must be there, and its token mounted.
    service_accounts: bool,
    /// Plugins that run beside those that do by default, and those that do not run, by kube-apiserver's names.
    enable_plugins: Vec<String>,
    disable_plugins: Vec<String>,
    /// An AdmissionConfiguration, for PodSecurity.
    config_file: Option<PathBuf>,
}

impl AdmissionFile {
    fn plugins(&self) -> Result<Plugins, Usage> {
        let enable: Vec<&str> = self.enable_plugins.iter().map(String::as_str).collect();
        let disable: Vec<&str> = self.disable_plugins.iter().map(String::as_str).collect();
        let told = |why: String| Usage(format!("admission: {why}"));
        if let [first, ..] = Plugins::without_effect(&enable, &disable)[..] {
            return Err(told(format!("plugin {first} cannot be switched here")));
        }
        let plugins = Plugins::new(&enable, &disable).map_err(|problems| told(problems.join(", ")))?;
        match &self.config_file {
            Some(path) => plugins.configured(path).map_err(told),
            None => Ok(plugins),
        }
    }
}

/// What the server may call because an object says so. Only the file says this: it is a decision, not an option of the day.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct EgressFile {
    /// Address ranges that planes may reach beside public ones.
    allow: Vec<String>,
    /// `NAMESPACE/NAME:PORT` of a service to the `https://HOST[:PORT]` where it is.
    services: BTreeMap<String, String>,
}

impl Settings {
    pub fn load(arguments: UpArgs) -> Result<Self, Usage> {
        let file = match &arguments.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let authorization = authorization::source(arguments.authorization.over(&file))?;
        let transport = file.transport()?;
        let endpoint = arguments.otlp_endpoint.or(file.otlp_endpoint);
        let sampling = arguments
            .otlp_sampling
            .or(file.otlp_sampling)
            .unwrap_or(DEFAULT_SAMPLING);
        if !(0.0..=1.0).contains(&sampling) {
            return Err(Usage(format!("otlp-sampling: {sampling} is not between 0 and 1")));
        }
        let drain_timeout = match arguments.drain_timeout.or(file.drain_timeout) {
            Some(text) => duration("drain-timeout", &text)?,
            None => DEFAULT_DRAIN,
        };
        let advertise = arguments.advertise.or(file.advertise);
        let advertise = advertise.map(|url| advertised(&url)).transpose()?;
        let reload = Reload::default();
        let taken = [advertise.as_deref().unwrap_or(DEFAULT_ISSUER)];
        let authenticator = file.authentication.settings()?.open(&reload, &taken);
        let data_dir = arguments.data_dir.or(file.data_dir);
        let data_dir = data_dir.unwrap_or_else(|| DEFAULT_DATA_DIR.into());
        let mut audit = file.audit;
        audit.policy = arguments.audit_policy_file.or(audit.policy);
        audit.log.path = arguments.audit_log_path.or(audit.log.path);
        if let Some(file) = arguments.audit_webhook_config_file {
            audit.webhook.get_or_insert_default().config_file = file;
        }
        let mut encryption = file.encryption;
        encryption.provider_config = arguments.encryption_provider_config.or(encryption.provider_config);
        let log = arguments.log.or(file.log).unwrap_or_else(|| "info".to_owned());
        let handed_down = HandedDown {
            data_dir: &data_dir,
            log: &log,
            encryption: encryption.provider_config.as_deref(),
        };
        let flags = arguments.operator;
        let dedicated = file.dedicated.settings(flags.dedicated.clone(), &handed_down)?;
        Ok(Self {
            audit: audit.options(&data_dir)?,
            operator: file.control_planes.settings(flags, Some(dedicated))?,
            data_dir,
            authenticator: authenticator.map_err(|problem| Usage(format!("authentication: {problem}")))?,
            reload,
            listen: ListenAddress::parse(arguments.listen.or(file.listen).as_deref().unwrap_or(DEFAULT_LISTEN))?,
            advertise,
            san: names(if arguments.san.is_empty() {
                file.san
            } else {
                arguments.san
            })?,
            store: StoreAddress::parse(arguments.store.or(file.store).as_deref().unwrap_or("embedded"))?,
            profile: arguments.profile.or(file.profile).unwrap_or_default(),
            tenancy: arguments.tenancy.or(file.tenancy).unwrap_or_default(),
            log,
            log_format: arguments.log_format.or(file.log_format).unwrap_or_default(),
            log_file: arguments.log_file.or(file.log_file),
            otlp: endpoint.map(|endpoint| otlp(&endpoint, sampling)).transpose()?,
            drain_timeout,
            egress: file.egress.options()?,
            limits: file.limits.settings()?,
            transport,
            encryption: encryption.load()?,
            accounts: if file.admission.service_accounts {
                PodAccounts::Required
            } else {
                PodAccounts::Unasked
            },
            plugins: file.admission.plugins()?,
            authorization,
            controllers: match arguments.controllers.is_empty() {
                true => controllers(&file.controllers)?,
                false => controllers(&arguments.controllers)?,
            },
        })
    }
}

/// The controllers of a list; all of them if it is empty.
pub fn controllers(words: &[String]) -> Result<Selection, Usage> {
    if words.is_empty() {
        return Ok(Selection::default());
    }
    Selection::parse(words).map_err(|unknown| Usage(format!("controllers: {unknown}")))
}

impl AuthenticationFile {
    fn settings(self) -> Result<Authentication, Usage> {
        let webhook = match self.webhook {
            None => None,
            Some(webhook) => {
                let version = webhook.version.as_deref().unwrap_or("v1");
                Some(Webhook {
                    file: webhook.config_file,
                    version: ReviewVersion::parse(version).ok_or_else(|| {
                        Usage(format!(
                            "authentication.webhook.version: {version:?} is neither v1 nor v1beta1"
                        ))
                    })?,
                    ttl: match webhook.cache_ttl {
                        Some(text) => duration("authentication.webhook.cache-ttl", &text)?,
                        None => WEBHOOK_TTL,
                    },
                })
            }
        };
        let or = |given: Vec<String>, usual: &str| match given.is_empty() {
            true => vec![usual.to_owned()],
            false => given,
        };
        let front_proxy = self.front_proxy.map(|proxy| ProxyFiles {
            ca_file: proxy.client_ca_file,
            names: proxy.allowed_names,
            headers: Headers {
                username: or(proxy.username_headers, "X-Remote-User"),
                uid: or(proxy.uid_headers, "X-Remote-Uid"),
                group: or(proxy.group_headers, "X-Remote-Group"),
                extra_prefixes: or(proxy.extra_headers_prefix, "X-Remote-Extra-"),
            },
        });
        Ok(Authentication {
            config: self.config,
            token_file: self.token_file,
            webhook,
            bootstrap: match self.bootstrap_tokens {
                true => BootstrapTokens::Accepted,
                false => BootstrapTokens::Refused,
            },
            front_proxy,
            ..Authentication::default()
        })
    }
}

impl EncryptionFile {
    fn load(&self) -> Result<Option<Arc<Sealing>>, Usage> {
        let file = self.provider_config.clone();
        let loaded = file.map(Sealing::from_file).transpose();
        let loaded = loaded.map_err(|error| Usage(format!("encryption.provider-config: {error}")))?;
        Ok(loaded.map(Arc::new))
    }
}

impl AuthorizationArgs {
    /// Flags, and the file where there are none.
    fn over(self, file: &File) -> Self {
        Self {
            authorization_config: self.authorization_config.or_else(|| file.authorization_config.clone()),
            authorization_mode: if self.authorization_mode.is_empty() {
                file.authorization_mode.clone()
            } else {
                self.authorization_mode
            },
            authorization_webhook_config_file: self
                .authorization_webhook_config_file
                .or_else(|| file.authorization_webhook_config_file.clone()),
            authorization_webhook_version: self
                .authorization_webhook_version
                .or_else(|| file.authorization_webhook_version.clone()),
            authorization_webhook_cache_authorized_ttl: self
                .authorization_webhook_cache_authorized_ttl
                .or_else(|| file.authorization_webhook_cache_authorized_ttl.clone()),
            authorization_webhook_cache_unauthorized_ttl: self
                .authorization_webhook_cache_unauthorized_ttl
                .or_else(|| file.authorization_webhook_cache_unauthorized_ttl.clone()),
        }
    }
}

impl EgressFile {
    fn options(&self) -> Result<EgressOptions, Usage> {
        let allow = self
            .allow
            .iter()
            .map(|text| {
                text.parse::<Network>()
                    .map_err(|error| Usage(format!("egress.allow: {error}")))
            })
            .collect::<Result<_, _>>()?;
        let mut services = Services::default();
        for (service, url) in &self.services {
            services
                .insert(service, url)
                .map_err(|error| Usage(format!("egress.services: {error}")))?;
        }
        Ok(EgressOptions { allow, services })
    }
}

impl File {
    fn transport(&self) -> Result<Transport, Usage> {
        let suites: Vec<&str> = self.tls_cipher_suites.iter().map(String::as_str).collect();
        let directives = self.strict_transport_security_directives.iter();
        let directives: Vec<&str> = directives.map(String::as_str).collect();
        let version = self.tls_min_version.as_deref().unwrap_or_default();
        Ok(Transport {
            tls: TlsOptions::new(version, &suites).map_err(|error| Usage(format!("tls: {error}")))?,
            hsts: strict_transport(&directives).map_err(Usage)?,
        })
    }

    fn read(path: &Path) -> Result<Self, Usage> {
        let named = |problem: String| Usage(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        Self::parse(&text).map_err(named)
    }

    fn parse(text: &str) -> Result<Self, String> {
        // An empty file, or one of comments, is a mapping without entries.
        if text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
        {
            return Ok(Self::default());
        }
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let text = error.to_string();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        })
    }
}

impl ListenAddress {
    fn parse(text: &str) -> Result<Self, Usage> {
        let bad = || {
            Usage(format!(
                "listen: {text:?} is not HOST:PORT, such as 127.0.0.1:6440 or [::]:6440"
            ))
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let port: u16 = port.parse().map_err(|_| bad())?;
        let host = match host.strip_prefix('[').map(|inner| inner.strip_suffix(']')) {
            Some(Some(inner)) if inner.parse::<Ipv6Addr>().is_ok() => inner,
            Some(_) => return Err(bad()),
            None if host.contains(':') || host.is_empty() => return Err(bad()),
            None => host,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// The host that a client on this machine can use: an address that means every address is no destination.
    pub fn reachable_host(&self) -> &str {
        match self.host.parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() => "127.0.0.1",
            _ => &self.host,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl StoreAddress {
    fn parse(text: &str) -> Result<Self, Usage> {
        if text == "embedded" {
            return Ok(Self::Embedded);
        }
        if text.starts_with("etcd://") || text.starts_with("etcds://") {
            let config = EtcdConfig::from_url(text).map_err(|error| Usage(format!("store: {error}")))?;
            return Ok(Self::Etcd(Box::new(config)));
        }
        Err(Usage(format!(
            "store: {text:?} is neither embedded nor etcd://HOST:PORT"
        )))
    }
}

/// `https://HOST[:PORT]` as it stands in kubeconfigs.
fn advertised(url: &str) -> Result<String, Usage> {
    let bad = || Usage(format!("advertise: {url:?} is not https://HOST[:PORT]"));
    let parsed: http::Uri = url.parse().map_err(|_| bad())?;
    let plain = parsed.scheme_str() == Some("https") && matches!(parsed.path(), "" | "/") && parsed.query().is_none();
    if !plain || parsed.host().is_none_or(str::is_empty) {
        return Err(bad());
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Names and addresses that a certificate can hold.
fn names(san: Vec<String>) -> Result<Vec<String>, Usage> {
    let label = |label: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.chars().all(plain)
    };
    let is_name = |name: &str| name.strip_prefix("*.").unwrap_or(name).split('.').all(label);
    match san
        .iter()
        .find(|name| name.parse::<IpAddr>().is_err() && !is_name(name))
    {
        Some(bad) => Err(Usage(format!("san: {bad:?} is neither a DNS name nor an IP address"))),
        None => Ok(san),
    }
}

fn otlp(endpoint: &str, sampling: f64) -> Result<Otlp, Usage> {
    let parsed = endpoint
        .parse::<http::Uri>()
        .ok()
        .filter(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
    if parsed.is_none() {
        return Err(Usage(format!("otlp-endpoint: {endpoint:?} is not http://HOST:PORT")));
    }
    Ok(Otlp {
        endpoint: endpoint.trim_end_matches('/').to_owned(),
        sampling,
    })
}

/// A duration setting such as `30s`.
pub fn duration(name: &str, text: &str) -> Result<Duration, Usage> {
    parse_go_duration(text).map_err(|_| Usage(format!("{name}: {text:?} is not a duration such as 30s or 2m")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(arguments: UpArgs) -> String {
        Settings::load(arguments).err().expect("it is refused").to_string()
    }

    fn in_file(text: &str) -> (tempfile::TempDir, UpArgs) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("mica.yaml");
        std::fs::write(&path, text).unwrap();
        (
            home,
            UpArgs {
                config: Some(path),
                ..UpArgs::default()
            },
        )
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let (_home, mut arguments) = in_file("listen: 0.0.0.0:7000\nsan: [a.example, 10.0.0.1]\nprofile: kubernetes\n");
        arguments.listen = Some("[::1]:8000".to_owned());
        let settings = Settings::load(arguments).unwrap();
        assert_eq!(settings.listen.to_string(), "[::1]:8000");
        assert_eq!(settings.san, ["a.example", "10.0.0.1"]);
        assert_eq!(settings.profile, Profile::Kubernetes);
        assert_eq!(settings.log, "info");
        assert_eq!(settings.data_dir, Path::new("./.mica"));
        let (_home, empty) = in_file("# nothing said\n");
        assert_eq!(Settings::load(empty).unwrap().listen.to_string(), DEFAULT_LISTEN);
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_named() {
        let (_home, arguments) = in_file("listen: 127.0.0.1:1\nlisten-port: 5\n");
        let message = refused(arguments);
        assert!(
            message.contains("mica.yaml: ") && message.contains("listen-port"),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1);
        for (text, part) in [
            ("listen: [a, b]\n", "mica.yaml"),
            ("listen: localhost\n", "listen: \"localhost\" is not HOST:PORT"),
            ("listen: 1.2.3.4:99999\n", "is not HOST:PORT"),
            ("listen: ::1:6440\n", "is not HOST:PORT"),
            (
                "store: etcd\n",
                "store: \"etcd\" is neither embedded nor etcd://HOST:PORT",
            ),
            (
                "advertise: http://x\n",
                "advertise: \"http://x\" is not https://HOST[:PORT]",
            ),
            ("advertise: https://x/y\n", "is not https://HOST[:PORT]"),
            ("drain-timeout: soon\n", "drain-timeout: \"soon\" is not a duration"),
            ("otlp-sampling: 2\n", "otlp-sampling: 2 is not between 0 and 1"),
            ("otlp-endpoint: localhost\n", "is not http://HOST:PORT"),
            ("profile: other\n", "other"),
            (
                "san: [a.example, \"*.b.example\", \"::1\", \"a b\"]\n",
                "san: \"a b\" is neither a DNS name nor an IP address",
            ),
            (
                "egress: {allow: [10.0.0.1/8]}\n",
                "egress.allow: \"10.0.0.1/8\" is not an address range",
            ),
            (
                "egress: {services: {svc: 'https://h'}}\n",
                "egress.services: \"svc\" is not NAMESPACE/NAME:PORT",
            ),
            (
                "egress: {services: {'a/b:1': 'http://h'}}\n",
                "egress.services: \"http://h\" is not https://HOST[:PORT]",
            ),
            ("egress: {deny: []}\n", "deny"),
            ("authentication: {oidc: x}\n", "oidc"),
            (
                "authentication: {token-file: no/such}\n",
                "authentication: no/such: No such file or directory",
            ),
            (
                "authentication: {webhook: {config-file: f, version: v2}}\n",
                "authentication.webhook.version: \"v2\" is neither v1 nor v1beta1",
            ),
            ("tls-min-version: '1.3'\n", "tls: unknown tls version \"1.3\""),
            (
                "strict-transport-security-directives: [forever]\n",
                "allowed values: max-age=expireTime",
            ),
            (
                "encryption: {provider-config: /no/such/file}\n",
                "encryption.provider-config: error reading encryption provider configuration file",
            ),
            ("audit: {log: {max-size: many}}\n", "mica.yaml"),
            (
                "audit: {policy: no/such}\n",
                "audit.policy: failed to read file path \"no/such\"",
            ),
            (
                "audit: {webhook: {config-file: no/such}}\n",
                "audit.webhook.config-file: no/such: ",
            ),
            (
                "admission: {enable-plugins: [Nothing]}\n",
                "admission: enable-admission-plugins plugin \"Nothing\" is unknown",
            ),
            (
                "admission: {enable-plugins: [NodeRestriction]}\n",
                "admission: plugin NodeRestriction cannot be switched here",
            ),
            (
                "authorization-mode: [RBAC, ABAC]\n",
                "authorization mode ABAC is not supported",
            ),
            (
                "authorization-config: /no/such\n",
                "/no/such: No such file or directory",
            ),
            (
                "authorization-config: /no/such\nauthorization-mode: [RBAC]\n",
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
            ),
            (
                "authorization-mode: [RBAC]\nauthorization-webhook-cache-authorized-ttl: long\n",
                "authorization-webhook-cache-authorized-ttl: \"long\" is not a duration",
            ),
        ] {
            let (_home, arguments) = in_file(text);
            let message = refused(arguments);
            assert!(message.contains(part), "{text}: {message}");
        }
        let missing = UpArgs {
            config: Some("no/such/file".into()),
            ..UpArgs::default()
        };
        assert!(refused(missing).starts_with("no/such/file: "));
    }

    #[test]
    fn an_address_that_means_all_is_reached_at_this_machine() {
        for (text, host) in [
            ("0.0.0.0:1", "127.0.0.1"),
            ("[::]:1", "127.0.0.1"),
            ("mica.example:1", "mica.example"),
        ] {
            assert_eq!(ListenAddress::parse(text).unwrap().reachable_host(), host);
        }
    }
}
