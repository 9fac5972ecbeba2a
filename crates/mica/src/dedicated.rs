//! Dedicated servers as settings say it: where they are, what they run, and what becomes of them when this one ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use clap::{Args, ValueEnum};
use mica_controllers::Selection;
use mica_controllers::dedicated::{Binary, EtcdOptions, Options, PORTS, Place, Process, Ranges, Versions};
use mica_store::etcd::{EtcdConfig, range};
use serde::Deserialize;

use crate::exit::Usage;

const DEFAULT_LISTEN: &str = "127.0.0.1";

/// Servers of their own for control planes; the names are those of the file's section `dedicated`, too.
#[derive(Args, Debug, Default, Clone, PartialEq, Eq)]
#[command(next_help_heading = "Dedicated servers")]
pub struct DedicatedArgs {
    /// Where each has a directory of its control plane's name [default of mica up: dedicated in the data directory; mica run
    /// controllers runs servers only if it is told a directory]
    #[arg(long, value_name = "DIR", env = "MICA_DEDICATED_DIR")]
    pub dedicated_dir: Option<PathBuf>,
    /// Where other versions of this program are, as VERSION or VERSION/mica
    #[arg(long, value_name = "DIR", env = "MICA_DEDICATED_VERSIONS")]
    pub dedicated_versions: Option<PathBuf>,
    /// The address that they listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", env = "MICA_DEDICATED_LISTEN")]
    pub dedicated_listen: Option<String>,
    /// The host that clients are told [default: the address]
    #[arg(long, value_name = "HOST", env = "MICA_DEDICATED_ADVERTISE")]
    pub dedicated_advertise: Option<String>,
    /// The etcd of those whose parameters name none, as --store takes it
    #[arg(long, value_name = "STORE", env = "MICA_DEDICATED_ETCD")]
    pub dedicated_etcd: Option<String>,
    /// A file of settings for all of them, as --config takes it
    #[arg(long, value_name = "FILE", env = "MICA_DEDICATED_CONFIG")]
    pub dedicated_config: Option<PathBuf>,
    /// Which controllers run in them, as --controllers takes it, beside those of control planes: -* for none, if others run
    /// them for what is registered [default: *]
    #[arg(
        long,
        value_name = "NAME",
        env = "MICA_DEDICATED_CONTROLLERS",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub dedicated_controllers: Vec<String>,
    /// What becomes of them when this server ends [default: keep]
    #[arg(long, value_enum, env = "MICA_DEDICATED_ON_EXIT")]
    pub dedicated_on_exit: Option<OnExit>,
}

/// What becomes of dedicated servers when the operator ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// They go on, and are found again
    #[default]
    Keep,
    /// They end too, and are started with the next operator
    Stop,
}

/// The section `dedicated` of the file.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DedicatedFile {
    dir: Option<PathBuf>,
    /// Further binaries by their version.
    versions: BTreeMap<String, PathBuf>,
    versions_dir: Option<PathBuf>,
    listen: Option<String>,
    advertise: Option<String>,
    /// `FIRST-LAST`.
    ports: Option<String>,
    etcd: Option<String>,
    config: Option<PathBuf>,
    controllers: Vec<String>,
    on_exit: Option<OnExit>,
}

/// What is decided about dedicated servers.
#[derive(Clone, Debug)]
pub struct DedicatedSettings {
    options: Options,
    etcd: Option<String>,
    pub on_exit: OnExit,
}

/// What of the server's own settings is handed down.
pub struct HandedDown<'a> {
    pub data_dir: &'a Path,
    pub log: &'a str,
    /// Planes that move bring what is encrypted as it is: both sides need the keys.
    pub encryption: Option<&'a Path>,
}

impl DedicatedFile {
    pub fn settings(self, flags: DedicatedArgs, own: &HandedDown<'_>) -> Result<DedicatedSettings, Usage> {
        let bad = |name: &str, text: &str, what: &str| Usage(format!("dedicated.{name}: {text:?} is not {what}"));
        let directory = flags.dedicated_dir.or(self.dir);
        let directory = directory.unwrap_or_else(|| own.data_dir.join("dedicated"));
        let listen = flags.dedicated_listen.or(self.listen);
        let listen = listen.unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
        if listen.parse::<IpAddr>().is_err() {
            return Err(bad("listen", &listen, "an IP address"));
        }
        let etcd = flags.dedicated_etcd.or(self.etcd);
        if let Some(store) = &etcd {
            EtcdConfig::from_url(store).map_err(|error| Usage(format!("dedicated.etcd: {error}")))?;
            if store.contains("prefix=") {
                return Err(Usage("dedicated.etcd: every server has a prefix of its own".to_owned()));
            }
        }
        let mut arguments: Vec<OsString> = vec!["--log".into(), own.log.into()];
        let mut hand = |flag: &str, file: &Path| -> Result<(), Usage> {
            arguments.extend([flag.into(), absolute(file)?.into_os_string()]);
            Ok(())
        };
        if let Some(file) = flags.dedicated_config.or(self.config) {
            hand("--config", &file)?;
        }
        if let Some(file) = own.encryption {
            hand("--encryption-provider-config", file)?;
        }
        let controllers = match flags.dedicated_controllers.is_empty() {
            true => self.controllers,
            false => flags.dedicated_controllers,
        };
        if !controllers.is_empty() {
            let mistake = |unknown| Usage(format!("dedicated.controllers: {unknown}"));
            Selection::parse(&controllers).map_err(mistake)?;
            arguments.push(format!("--controllers={}", controllers.join(",")).into());
        }
        let named = self.versions.into_iter();
        let named: Result<_, Usage> = named.map(|(version, path)| Ok((version, absolute(&path)?))).collect();
        let versions_dir = flags.dedicated_versions.or(self.versions_dir);
        let ports = self
            .ports
            .map(|text| ports(&text).ok_or_else(|| bad("ports", &text, "FIRST-LAST")));
        Ok(DedicatedSettings {
            options: Options {
                directory: absolute(&directory)?,
                versions: Versions {
                    own: Binary {
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                        path: own_binary(),
                    },
                    named: named?,
                    directory: versions_dir.as_deref().map(absolute).transpose()?,
                },
                listen,
                advertise: flags.dedicated_advertise.or(self.advertise),
                ports: ports.transpose()?.unwrap_or(PORTS),
                arguments,
            },
            etcd,
            on_exit: flags.dedicated_on_exit.or(self.on_exit).unwrap_or_default(),
        })
    }
}

impl DedicatedArgs {
    /// What an operator without a data directory does: there are servers only where it is told to keep them.
    pub fn by_themselves(self, log: &str) -> Result<Option<DedicatedSettings>, Usage> {
        let Some(directory) = self.dedicated_dir.clone() else {
            if self == Self::default() {
                return Ok(None);
            }
            let text = "dedicated-dir: say where the servers are to be kept that the other dedicated settings are for";
            return Err(Usage(text.to_owned()));
        };
        let own = HandedDown {
            data_dir: &directory,
            log,
            encryption: None,
        };
        DedicatedFile::default().settings(self, &own).map(Some)
    }
}

impl DedicatedSettings {
    /// The providers. They do nothing until a control plane asks for a server. `reserved` is a prefix in etcd that is taken.
    pub fn providers(&self, reserved: Option<String>) -> [Arc<Process>; 2] {
        let place = Arc::new(Place::new(self.options.clone()));
        let etcd = EtcdOptions {
            shared: self.etcd.clone(),
            reserved,
            ranges: Arc::new(EtcdRanges),
        };
        [
            Arc::new(Process::embedded(place.clone())),
            Arc::new(Process::etcd(place, etcd)),
        ]
    }
}

/// Servers do not share the directory that this one was called in.
fn absolute(path: &Path) -> Result<PathBuf, Usage> {
    std::path::absolute(path).map_err(|error| Usage(format!("{}: {error}", path.display())))
}

/// This program. If its file was exchanged meanwhile, it is still what this process runs.
fn own_binary() -> PathBuf {
    let running = || PathBuf::from("/proc/self/exe");
    std::env::current_exe()
        .ok()
        .filter(|path| path.is_file())
        .unwrap_or_else(running)
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

/// Prefixes in etcd, looked at and cleared by the store's own client.
struct EtcdRanges;

#[async_trait]
impl Ranges for EtcdRanges {
    async fn is_empty(&self, store: &str) -> Result<bool, String> {
        let config = EtcdConfig::from_url(store).map_err(|error| error.to_string())?;
        range::is_empty(&config).await.map_err(|error| error.to_string())
    }

    async fn clear(&self, store: &str) -> Result<(), String> {
        let config = EtcdConfig::from_url(store).map_err(|error| error.to_string())?;
        range::clear(&config).await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: DedicatedFile, flags: DedicatedArgs) -> Result<DedicatedSettings, String> {
        let own = HandedDown {
            data_dir: Path::new("/data"),
            log: "info",
            encryption: Some(Path::new("/keys.yaml")),
        };
        file.settings(flags, &own).map_err(|usage| usage.to_string())
    }

    #[test]
    fn flags_win_over_the_file_and_mistakes_are_named() {
        let file = || DedicatedFile {
            listen: Some("::1".to_owned()),
            ports: Some("7000-7001".to_owned()),
            config: Some("/c.yaml".into()),
            controllers: vec!["-resourcequota".to_owned()],
            ..DedicatedFile::default()
        };
        let made = settings(file(), DedicatedArgs::default()).unwrap();
        assert_eq!(made.options.directory, Path::new("/data/dedicated"));
        assert_eq!((made.options.listen.as_str(), made.options.ports), ("::1", 7000..=7001));
        let handed = [
            "--log",
            "info",
            "--config",
            "/c.yaml",
            "--encryption-provider-config",
            "/keys.yaml",
            "--controllers=-resourcequota",
        ];
        assert_eq!(made.options.arguments, handed);
        assert_eq!(made.on_exit, OnExit::Keep);
        let flags = DedicatedArgs {
            dedicated_dir: Some("/d".into()),
            dedicated_listen: Some("0.0.0.0".to_owned()),
            dedicated_controllers: vec!["-*".to_owned(), "namespace".to_owned()],
            dedicated_on_exit: Some(OnExit::Stop),
            ..DedicatedArgs::default()
        };
        let made = settings(file(), flags).unwrap();
        let chosen = made.options.arguments.last().and_then(|last| last.to_str());
        assert_eq!(chosen, Some("--controllers=-*,namespace"));
        assert_eq!(
            (made.options.directory, made.options.listen),
            ("/d".into(), "0.0.0.0".to_owned())
        );
        assert_eq!(made.on_exit, OnExit::Stop);
        let listen = |text: &str| DedicatedFile {
            listen: Some(text.to_owned()),
            ..DedicatedFile::default()
        };
        let ports = |text: &str| DedicatedFile {
            ports: Some(text.to_owned()),
            ..DedicatedFile::default()
        };
        let etcd = |text: &str| DedicatedFile {
            etcd: Some(text.to_owned()),
            ..DedicatedFile::default()
        };
        let controllers = |text: &str| DedicatedFile {
            controllers: vec![text.to_owned()],
            ..DedicatedFile::default()
        };
        let said = settings(controllers("nodes"), DedicatedArgs::default()).unwrap_err();
        assert!(
            said.starts_with("dedicated.controllers: \"nodes\" is not in the list"),
            "{said}"
        );
        let alone = |flags: DedicatedArgs| flags.by_themselves("warn").map_err(|usage| usage.to_string());
        assert!(alone(DedicatedArgs::default()).unwrap().is_none());
        let flags = |dir: Option<&str>| DedicatedArgs {
            dedicated_dir: dir.map(PathBuf::from),
            dedicated_listen: Some("::1".to_owned()),
            ..DedicatedArgs::default()
        };
        let made = alone(flags(Some("/d"))).unwrap().unwrap();
        assert_eq!(
            (made.options.directory, made.options.listen),
            ("/d".into(), "::1".to_owned())
        );
        assert!(alone(flags(None)).unwrap_err().starts_with("dedicated-dir: "));
        for (file, said) in [
            (listen("here"), "dedicated.listen: \"here\" is not an IP address"),
            (ports("9"), "dedicated.ports: \"9\" is not FIRST-LAST"),
            (ports("9-8"), "dedicated.ports: \"9-8\" is not FIRST-LAST"),
            (
                etcd("e"),
                "dedicated.etcd: \"e\" does not begin with etcd:// or etcds://",
            ),
            (
                etcd("etcd://e?prefix=/p"),
                "dedicated.etcd: every server has a prefix of its own",
            ),
        ] {
            assert_eq!(settings(file, DedicatedArgs::default()).err().as_deref(), Some(said));
        }
    }
}
