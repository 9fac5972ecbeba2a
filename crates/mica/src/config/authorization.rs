//! Who decides what is allowed, as flags and the file say it.

use mica_server::authz::{LegacyWebhook, Source};

use super::duration;
use crate::cli::AuthorizationArgs;
use crate::exit::Usage;

/// Refused by upstream in the same words.
const EXCLUSIVE: &str = "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined";

/// What a chain is made from. It is made once here, so that what is wrong with it is told before anything is opened.
pub(super) fn source(arguments: AuthorizationArgs) -> Result<Source, Usage> {
    let mut webhook = LegacyWebhook {
        version: "v1".to_owned(),
        ..LegacyWebhook::default()
    };
    let mut flags = !arguments.authorization_mode.is_empty();
    if let Some(file) = &arguments.authorization_webhook_config_file {
        webhook.config_file = file.display().to_string();
        flags = true;
    }
    if let Some(version) = arguments.authorization_webhook_version {
        webhook.version = version;
        flags = true;
    }
    if let Some(ttl) = &arguments.authorization_webhook_cache_authorized_ttl {
        webhook.authorized_ttl = duration("authorization-webhook-cache-authorized-ttl", ttl)?;
        flags = true;
    }
    if let Some(ttl) = &arguments.authorization_webhook_cache_unauthorized_ttl {
        webhook.unauthorized_ttl = duration("authorization-webhook-cache-unauthorized-ttl", ttl)?;
        flags = true;
    }
    let source = match arguments.authorization_config {
        Some(_) if flags => return Err(Usage(EXCLUSIVE.to_owned())),
        Some(path) => Source::File(path),
        None if flags => Source::Modes {
            modes: match &arguments.authorization_mode[..] {
                [] => vec!["RBAC".to_owned()],
                modes => modes.to_vec(),
            },
            webhook,
        },
        None => Source::Roles,
    };
    source.load().map_err(|error| Usage(error.to_string()))?;
    Ok(source)
}
