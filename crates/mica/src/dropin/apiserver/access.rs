//! Who decides, and what is asked about writes: flags of authorization and of admission plugins.

use std::path::Path;

use mica_server::admission::Plugins;
use mica_server::authz::{LegacyWebhook, Source};

use super::settings::duration;
use crate::dropin::flag::Flags;

/// Which admission plugins run.
pub(super) fn plugins(flags: &Flags) -> Result<Plugins, String> {
    let (enable, disable) = (
        flags.list("enable-admission-plugins"),
        flags.list("disable-admission-plugins"),
    );
    let plugins = Plugins::new(&enable, &disable).map_err(|problems| problems.join(", "))?;
    match flags
        .last("admission-control-config-file")
        .filter(|file| !file.is_empty())
    {
        Some(file) => plugins.configured(Path::new(file)),
        None => Ok(plugins),
    }
}

/// Flags that a configuration file stands in for.
const LEGACY: [&str; 5] = [
    "authorization-mode",
    "authorization-webhook-config-file",
    "authorization-webhook-version",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
];

/// Who decides what is allowed.
pub(super) fn authorization(flags: &Flags) -> Result<Source, String> {
    let source = match flags.last("authorization-config").filter(|file| !file.is_empty()) {
        Some(_) if flags.names().iter().any(|name| LEGACY.contains(name)) => {
            return Err(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
                    .to_owned(),
            );
        }
        Some(file) => Source::File(file.into()),
        None => {
            let mut webhook = LegacyWebhook::default();
            let text = |name: &str| flags.last(name).map(str::to_owned);
            webhook.config_file = text("authorization-webhook-config-file").unwrap_or_default();
            webhook.version = text("authorization-webhook-version").unwrap_or(webhook.version);
            let ttl = duration(flags, "authorization-webhook-cache-authorized-ttl");
            webhook.authorized_ttl = ttl.unwrap_or(webhook.authorized_ttl);
            let ttl = duration(flags, "authorization-webhook-cache-unauthorized-ttl");
            webhook.unauthorized_ttl = ttl.unwrap_or(webhook.unauthorized_ttl);
            let modes = flags.list("authorization-mode").into_iter().map(str::to_owned);
            let modes: Vec<String> = modes.collect();
            let modes = match modes.is_empty() {
                true => vec!["AlwaysAllow".to_owned()],
                false => modes,
            };
            Source::Modes { modes, webhook }
        }
    };
    source.load().map_err(|error| error.to_string())?;
    Ok(source)
}
