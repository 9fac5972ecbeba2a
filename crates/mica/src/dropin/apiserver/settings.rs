//! From kube-apiserver's flags to what a server is started with.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mica_machinery::kind::network::range::{BadServiceRange, ServiceRange};
use mica_server::admission::{Plugins, PodAccounts};
use mica_server::audit::AuditOptions;
use mica_server::authn::reload::Reload;
use mica_server::authn::{Authenticator, Trust};
use mica_server::authz::Source;
use mica_server::fairness::FairnessOptions;
use mica_server::http::{parse_go_duration, strict_transport};
use mica_server::registry::ServiceOptions;
use mica_server::seal::Sealing;
use mica_server::seal::config::Table;
use mica_server::tls::TlsOptions;
use mica_store::etcd::{EtcdConfig, TlsFiles};

use super::access::{authorization, plugins};
use super::audit;
use super::authentication::{self, Accounts};
use super::table::{HARMLESS, MEANINGS};
use crate::dropin::flag::Flags;
use crate::up::running::Transport;

const DEFAULT_CERT_DIR: &str = "/var/run/kubernetes";
const DEFAULT_PORT: i64 = 6443;
const DEFAULT_PREFIX: &str = "/registry";
const DEFAULT_RANGE: &str = "10.0.0.0/24";
const DEFAULT_COMPACTION: Duration = Duration::from_secs(300);
/// The admission plugin that gives pods service accounts.
const ACCOUNTS: &str = "ServiceAccount";
/// Requests at once that read and that write, unless told.
const DEFAULT_READING: i64 = 400;
const DEFAULT_WRITING: i64 = 200;
const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// What the server works with.
pub struct Settings {
    pub listen: SocketAddr,
    /// Where `default/kubernetes` leads.
    pub advertise: IpAddr,
    pub certificate: Certificate,
    pub client_ca: Option<PathBuf>,
    pub etcd: EtcdConfig,
    /// How long etcd is waited for.
    pub wait: Duration,
    pub services: ServiceOptions,
    pub authenticator: Authenticator,
    /// Files that are read again when they change.
    pub reload: Reload,
    /// Whether new pods get a service account.
    pub accounts: PodAccounts,
    /// What root's service account tokens are.
    pub root_accounts: Accounts,
    pub fairness: FairnessOptions,
    pub transport: Transport,
    /// What of the store is hidden.
    pub encryption: Option<Arc<Sealing>>,
    /// What is written down of requests.
    pub audit: AuditOptions,
    /// Who decides what is allowed.
    pub authorization: Source,
    /// Which of the built-in admission plugins run.
    pub plugins: Plugins,
    pub log: &'static str,
    /// Flags that are given and have no effect.
    pub ignored: Vec<&'static str>,
}

/// Where the server's certificate is.
#[derive(Debug, PartialEq, Eq)]
pub enum Certificate {
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    /// In this directory, where it is made if it is not there.
    Directory(PathBuf),
}

impl Settings {
    /// Reads all flags; what is wrong is told at once, in upstream's words where it has some.
    pub fn read(flags: &Flags) -> Result<Self, String> {
        let mut problems = Vec::new();
        let mut noted = |problem: String| problems.push(problem);
        let etcd = etcd(flags).unwrap_or_else(|problem| {
            noted(problem);
            EtcdConfig::new(Vec::<String>::new())
        });
        let port = flags.last("secure-port").map_or(DEFAULT_PORT, number);
        let port = u16::try_from(port).ok().filter(|port| *port > 0).unwrap_or_else(|| {
            noted(format!(
                "--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
            ));
            0
        });
        let range = service_range(flags.last("service-cluster-ip-range").unwrap_or_default());
        let range = range.unwrap_or_else(|problem| {
            noted(problem);
            ServiceRange::default()
        });
        let mut services = ServiceOptions {
            range,
            ..ServiceOptions::default()
        };
        match flags.last("service-node-port-range").map(port_range) {
            None => {}
            Some(Some(ports)) => services.node_ports = ports,
            Some(None) => noted("--service-node-port-range is no range of ports such as 30000-32767".to_owned()),
        }
        let root_accounts = Accounts::of(flags).unwrap_or_else(|problem| {
            noted(problem);
            Accounts::default()
        });
        let reload = Reload::default();
        let authenticator = authenticator(flags, &reload, &root_accounts).unwrap_or_else(|problem| {
            noted(problem);
            Authenticator::default()
        });
        let transport = transport(flags).unwrap_or_else(|problem| {
            noted(problem);
            Transport::default()
        });
        let encryption = encryption(flags).unwrap_or_else(|problem| {
            noted(problem);
            None
        });
        let audit = audit::options(flags).unwrap_or_else(|problem| {
            noted(problem);
            AuditOptions::default()
        });
        let authorization = authorization(flags).unwrap_or_else(|problem| {
            noted(problem);
            Source::default()
        });
        let plugins = plugins(flags).unwrap_or_else(|problem| {
            noted(problem);
            Plugins::default()
        });
        let bind = flags.last("bind-address").and_then(|text| text.trim().parse().ok());
        let bind = bind.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let advertise = flags
            .last("advertise-address")
            .and_then(|text| text.trim().parse().ok());
        if !problems.is_empty() {
            return Err(several(&problems));
        }
        let meant = |name: &&str| {
            let known = MEANINGS.iter().any(|(one, _)| one == name) || HARMLESS.contains(name);
            known || name.starts_with("audit-")
        };
        Ok(Self {
            listen: SocketAddr::new(bind, port),
            advertise: advertise.unwrap_or_else(|| reachable(bind)),
            certificate: certificate(flags)?,
            client_ca: flags
                .last("client-ca-file")
                .filter(|file| !file.is_empty())
                .map(Into::into),
            etcd,
            wait: duration(flags, "storage-initialization-timeout").unwrap_or(DEFAULT_WAIT),
            services,
            authenticator,
            reload,
            fairness: fairness(flags),
            audit,
            authorization,
            accounts: if flags.list("disable-admission-plugins").contains(&ACCOUNTS) {
                PodAccounts::Unasked
            } else {
                PodAccounts::Required
            },
            root_accounts,
            transport,
            encryption,
            plugins,
            log: match flags.last("v").map_or(0, number) {
                0..4 => "info",
                4..8 => "debug",
                _ => "trace",
            },
            ignored: flags.names().into_iter().filter(|name| !meant(name)).collect(),
        })
    }
}

fn transport(flags: &Flags) -> Result<Transport, String> {
    let version = flags.last("tls-min-version").unwrap_or_default();
    Ok(Transport {
        tls: TlsOptions::new(version, &flags.list("tls-cipher-suites")).map_err(|error| error.to_string())?,
        hsts: strict_transport(&flags.list("strict-transport-security-directives"))?,
    })
}

fn encryption(flags: &Flags) -> Result<Option<Arc<Sealing>>, String> {
    let reload = flags.is_on("encryption-provider-config-automatic-reload", false);
    let file = flags.last("encryption-provider-config").filter(|file| !file.is_empty());
    let Some(file) = file else {
        return match reload {
            true => Err(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
                    .to_owned(),
            ),
            false => Ok(None),
        };
    };
    let loaded = match reload {
        true => Sealing::from_file(file.into()),
        false => Table::read(Path::new(file)).map(|(table, _)| Sealing::new(table)),
    };
    loaded
        .map(|sealing| Some(Arc::new(sealing)))
        .map_err(|error| error.to_string())
}

/// All problems in one line, as upstream puts them.
fn several(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// A number that was checked when the flags were read.
fn number(text: &str) -> i64 {
    text.parse().unwrap_or_default()
}

pub(super) fn duration(flags: &Flags, name: &str) -> Option<Duration> {
    parse_go_duration(flags.last(name)?).ok()
}

fn read(flag: &str, file: &str) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("--{flag}: {file}: {error}"))
}

fn etcd(flags: &Flags) -> Result<EtcdConfig, String> {
    let servers = flags.list("etcd-servers");
    if servers.is_empty() {
        return Err("--etcd-servers must be specified".to_owned());
    }
    let mut config = EtcdConfig::new(servers.iter().map(|url| url.trim_end_matches('/')));
    config.prefix = flags.last("etcd-prefix").unwrap_or(DEFAULT_PREFIX).to_owned();
    config.compaction = Some(duration(flags, "etcd-compaction-interval").unwrap_or(DEFAULT_COMPACTION))
        .filter(|interval| !interval.is_zero());
    let file = |name: &str| match flags.last(name) {
        Some(file) if !file.is_empty() => read(name, file).map(Some),
        _ => Ok(None),
    };
    let identity = file("etcd-certfile")?.zip(file("etcd-keyfile")?);
    config.tls = file("etcd-cafile")?.map(|ca| TlsFiles {
        ca,
        identity,
        server_name: None,
    });
    Ok(config)
}

/// As upstream divides it: what may read and what may write together, shared by whoever asks. Nothing bounds if both are zero.
fn fairness(flags: &Flags) -> FairnessOptions {
    let reading = flags.last("max-requests-inflight").map_or(DEFAULT_READING, number);
    let writing = flags
        .last("max-mutating-requests-inflight")
        .map_or(DEFAULT_WRITING, number);
    FairnessOptions {
        seats: u32::try_from(reading.max(0).saturating_add(writing.max(0))).unwrap_or(u32::MAX),
        ..FairnessOptions::default()
    }
}

fn service_range(text: &str) -> Result<ServiceRange, String> {
    let text = if text.is_empty() { DEFAULT_RANGE } else { text };
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 2 {
        return Err("--service-cluster-ip-range must not contain more than two entries".to_owned());
    }
    let mut first = None;
    for (i, part) in parts.iter().enumerate() {
        match ServiceRange::parse(part.trim()) {
            Ok(range) if first.is_none() => first = Some(range),
            Ok(_) => {
                return Err(
                    "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"
                        .to_owned(),
                );
            }
            // Of two families the one that services get addresses of counts.
            Err(BadServiceRange::NotIpv4) => {}
            Err(BadServiceRange::NotARange) => {
                return Err(format!("service-cluster-ip-range[{i}] is not a valid cidr"));
            }
            Err(BadServiceRange::TooSmall) => return Err(BadServiceRange::TooSmall.to_string()),
        }
    }
    first.ok_or_else(|| "--service-cluster-ip-range: services get IPv4 addresses only".to_owned())
}

/// `30000-32767`, or `30000+100`.
fn port_range(text: &str) -> Option<(u16, u16)> {
    let port = |text: &str| text.trim().parse::<u16>().ok();
    let (first, last) = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => (port(first)?, port(last)?),
        (_, Some((first, more))) => (port(first)?, port(first)?.checked_add(port(more)?)?),
        _ => (port(text)?, port(text)?),
    };
    (first <= last && first > 0).then_some((first, last))
}

fn authenticator(flags: &Flags, reload: &Reload, accounts: &Accounts) -> Result<Authenticator, String> {
    let modes = flags.list("authorization-mode");
    // Upstream's default, too. A webhook may come before it and refuse, so that only the chain can tell then.
    let configured = flags.last("authorization-config").is_some_and(|file| !file.is_empty());
    let everything = !configured && (modes.is_empty() || modes.contains(&"AlwaysAllow")) && !modes.contains(&"Webhook");
    let trust = match everything {
        true => Trust::Everything,
        false => Trust::Authorized,
    };
    let taken: Vec<&str> = accounts.issuer.iter().map(String::as_str).collect();
    authentication::authentication(flags, trust)?.open(reload, &taken)
}

fn certificate(flags: &Flags) -> Result<Certificate, String> {
    let file = |name| flags.last(name).filter(|file| !file.is_empty()).map(PathBuf::from);
    match (file("tls-cert-file"), file("tls-private-key-file")) {
        (Some(certificate), Some(key)) => Ok(Certificate::Files { certificate, key }),
        (None, None) => Ok(Certificate::Directory(
            flags.last("cert-dir").unwrap_or(DEFAULT_CERT_DIR).into(),
        )),
        _ => Err("--tls-cert-file and --tls-private-key-file must be specified together".to_owned()),
    }
}

/// The address at which others reach who listens there: a loopback or unspecified address is of no use to them.
fn reachable(bind: IpAddr) -> IpAddr {
    if !bind.is_loopback() && !bind.is_unspecified() {
        return bind;
    }
    // Connecting a datagram socket sends nothing: it only makes the system choose the address to send from.
    let chosen = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    match chosen {
        Ok(address) if !address.ip().is_unspecified() => address.ip(),
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropin::apiserver::table::FLAGS;
    use crate::dropin::flag::Dialect;

    fn read(line: &str) -> Result<Settings, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Settings::read(&Flags::parse(FLAGS, Dialect::Pflag, &arguments).unwrap())
    }

    #[test]
    fn the_flags_of_a_test_environment_are_understood() {
        let settings = read(
            "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 --cert-dir=/c \
             --client-ca-file=/c/ca.crt --disable-admission-plugins=ServiceAccount --etcd-servers=http://127.0.0.1:1234 \
             --secure-port=4321 --service-account-issuer=https://127.0.0.1:4321/ --service-account-key-file=/c/sa.crt \
             --service-account-signing-key-file=/c/sa.key --service-cluster-ip-range=10.0.0.0/24",
        )
        .unwrap();
        assert_eq!(settings.listen, "127.0.0.1:4321".parse().unwrap());
        assert_eq!(settings.certificate, Certificate::Directory("/c".into()));
        assert_eq!(settings.client_ca, Some("/c/ca.crt".into()));
        assert_eq!(settings.etcd.endpoints, ["http://127.0.0.1:1234"]);
        assert_eq!(settings.etcd.prefix, "/registry");
        assert_eq!(settings.services.range.to_string(), "10.0.0.0/24");
        assert_eq!(settings.authenticator.trust, Trust::Authorized);
        assert_eq!(
            settings.root_accounts.issuer.as_deref(),
            Some("https://127.0.0.1:4321/")
        );
        assert_eq!(settings.ignored, Vec::<&str>::new());
        assert_eq!(settings.log, "info");
    }

    #[test]
    fn defaults_are_upstreams_and_what_has_no_effect_is_named() {
        let settings = read("--etcd-servers=http://a:1/,http://b:1 --feature-gates=A=true --event-ttl 1h -v5").unwrap();
        assert_eq!(settings.listen, "0.0.0.0:6443".parse().unwrap());
        assert_eq!(settings.etcd.endpoints, ["http://a:1", "http://b:1"]);
        assert_eq!(settings.certificate, Certificate::Directory(DEFAULT_CERT_DIR.into()));
        assert_eq!(settings.authenticator.trust, Trust::Everything);
        assert_eq!(settings.ignored, ["feature-gates", "event-ttl"]);
        assert_eq!(settings.log, "debug");
        assert!(!settings.advertise.is_unspecified());
        let settings = read("--etcd-servers=http://a:1 --advertise-address=10.1.2.3 --service-node-port-range=1000+5");
        let settings = settings.unwrap();
        assert_eq!(settings.advertise.to_string(), "10.1.2.3");
        assert_eq!(settings.services.node_ports, (1000, 1005));
    }

    #[test]
    fn what_is_wrong_is_said_in_upstreams_words() {
        for (line, words) in [
            ("", "--etcd-servers must be specified"),
            (
                "--etcd-servers=http://a:1 --secure-port=0",
                "--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
            ),
            (
                "--etcd-servers=http://a:1 --service-cluster-ip-range=bad",
                "service-cluster-ip-range[0] is not a valid cidr",
            ),
            (
                "--etcd-servers=http://a:1 --service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24",
                "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family",
            ),
            (
                "--etcd-servers=http://a:1 --authorization-mode=RBAC,Any",
                "authorization-mode \"Any\" is not a valid mode",
            ),
            (
                "--etcd-servers=http://a:1 --enable-admission-plugins=None",
                "enable-admission-plugins plugin \"None\" is unknown",
            ),
            (
                "--service-cluster-ip-range=10.0.0.0/24,fd00::/108 --secure-port=70000",
                "[--etcd-servers must be specified, --secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0]",
            ),
            (
                "--etcd-servers=http://a:1 --token-auth-file=/no/such/file",
                "/no/such/file: No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(read(line).err().as_deref(), Some(words), "{line}");
        }
    }
}
