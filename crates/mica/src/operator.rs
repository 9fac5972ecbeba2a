//! How control planes are run, as settings say it: the same for `mica up` and for `mica run controllers`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mica_controllers::control_plane::{Home, LIFETIME, SHORTEST_LIFETIME, Settings};
use mica_controllers::dedicated::Provider;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config;
use crate::dedicated::{DedicatedArgs, DedicatedSettings, OnExit};
use crate::exit::Usage;

/// The longest that credentials are good for: as with `mica plane kubeconfig`, a year.
const LONGEST_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Control planes, and servers of their own for them; the names are those of the file's section `control-planes`, too.
#[derive(Args, Debug, Default, Clone)]
#[command(next_help_heading = "Control planes")]
pub struct OperatorArgs {
    /// Addons on this machine, a folder of manifests each or a file; what changes there reaches control planes in seconds
    #[arg(long, value_name = "DIR", env = "MICA_CONTROL_PLANE_ADDONS")]
    pub control_plane_addons: Option<PathBuf>,
    /// How long credentials of control planes are good for, from 10m to 8760h; they are renewed after two thirds of it [default: 24h]
    #[arg(long, value_name = "DURATION", env = "MICA_CONTROL_PLANE_TOKEN_LIFETIME")]
    pub control_plane_token_lifetime: Option<String>,
    #[command(flatten)]
    pub dedicated: DedicatedArgs,
}

/// The section `control-planes` of the file.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct OperatorFile {
    addons: Option<PathBuf>,
    token_lifetime: Option<String>,
}

/// What is decided about control planes.
#[derive(Clone, Debug)]
pub struct OperatorSettings {
    addons: Option<PathBuf>,
    lifetime: Duration,
    /// None if there are no servers of their own.
    dedicated: Option<DedicatedSettings>,
}

impl OperatorFile {
    /// What flags and the file say together.
    pub fn settings(
        self,
        flags: OperatorArgs,
        dedicated: Option<DedicatedSettings>,
    ) -> Result<OperatorSettings, Usage> {
        let addons = flags.control_plane_addons.or(self.addons);
        if let Some(directory) = addons.as_ref().filter(|directory| !directory.is_dir()) {
            let text = format!("control-plane-addons: {} is not a directory", directory.display());
            return Err(Usage(text));
        }
        let lifetime = match flags.control_plane_token_lifetime.or(self.token_lifetime) {
            Some(text) => lifetime(&text)?,
            None => LIFETIME,
        };
        Ok(OperatorSettings {
            addons,
            lifetime,
            dedicated,
        })
    }
}

fn lifetime(text: &str) -> Result<Duration, Usage> {
    const NAME: &str = "control-plane-token-lifetime";
    let lifetime = config::duration(NAME, text)?;
    if (SHORTEST_LIFETIME..=LONGEST_LIFETIME).contains(&lifetime) {
        return Ok(lifetime);
    }
    Err(Usage(format!("{NAME}: {text:?} is not between 10m and 8760h")))
}

impl OperatorSettings {
    /// How control planes are run on a server. `reserved` is a prefix in etcd that is taken. Servers of their own end with
    /// this process only if that is wanted, and then before it does.
    pub fn on(&self, home: Home, reserved: Option<String>, tasks: &TaskTracker, stop: &CancellationToken) -> Settings {
        let mut settings = Settings::new(home);
        settings.addons.clone_from(&self.addons);
        settings.lifetime = self.lifetime;
        let Some(dedicated) = &self.dedicated else {
            return settings;
        };
        let providers = dedicated.providers(reserved);
        if dedicated.on_exit == OnExit::Stop {
            let (ending, stop) = (providers.clone(), stop.clone());
            tasks.spawn(async move {
                stop.cancelled().await;
                for provider in ending {
                    provider.halt().await;
                }
            });
        }
        settings.providers = providers.map(|provider| provider as Arc<dyn Provider>).to_vec();
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(file: &str, addons: Option<&str>, lifetime: Option<&str>) -> Result<OperatorSettings, String> {
        let json = mica_machinery::yaml::to_json(file.as_bytes()).unwrap().json;
        let file: OperatorFile = serde_json::from_slice(&json).unwrap();
        let flags = OperatorArgs {
            control_plane_addons: addons.map(PathBuf::from),
            control_plane_token_lifetime: lifetime.map(str::to_owned),
            ..OperatorArgs::default()
        };
        file.settings(flags, None).map_err(|usage| usage.to_string())
    }

    #[test]
    fn flags_win_over_the_file_and_mistakes_are_named() {
        let settings = made("{}", None, None).unwrap();
        assert_eq!((settings.addons, settings.lifetime), (None, LIFETIME));
        let file = "{addons: /, token-lifetime: 30m}";
        let settings = made(file, None, None).unwrap();
        assert_eq!(settings.addons, Some("/".into()));
        assert_eq!(settings.lifetime, Duration::from_secs(1800));
        let settings = made(file, Some("/proc"), Some("2h")).unwrap();
        assert_eq!(settings.addons, Some("/proc".into()));
        assert_eq!(settings.lifetime, Duration::from_secs(7200));
        for (addons, lifetime, said) in [
            (
                Some("/no/such"),
                None,
                "control-plane-addons: /no/such is not a directory",
            ),
            (
                None,
                Some("5m"),
                "control-plane-token-lifetime: \"5m\" is not between 10m and 8760h",
            ),
            (
                None,
                Some("9000h"),
                "control-plane-token-lifetime: \"9000h\" is not between 10m and 8760h",
            ),
            (
                None,
                Some("long"),
                "control-plane-token-lifetime: \"long\" is not a duration such as 30s or 2m",
            ),
        ] {
            assert_eq!(made("{}", addons, lifetime).err().as_deref(), Some(said));
        }
    }
}
