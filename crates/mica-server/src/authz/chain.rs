//! The chain of authorizers: who is asked, in which order, and how their opinions become one decision.
//!
//! What `system:masters` do is decided before the chain, and so is that an identity of one plane is nobody in another: no
//! webhook is asked about either. The chain of a file is read again when the file changes; one that is bad changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use mica_machinery::access::{self, AuthorizerKind, Configured, LegacyWebhook};
use parking_lot::Mutex;

use super::metric::AuthzMetrics;
use super::webhook::Webhook;

/// How often a file is looked at again.
const RELOAD: Duration = Duration::from_secs(5);

/// Why there is no chain.
#[derive(Debug, thiserror::Error)]
pub enum BadChain {
    #[error("{path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{0}")]
    Configuration(String),
}

/// What a chain is made from.
#[derive(Clone, Debug, Default)]
pub enum Source {
    /// Roles and bindings alone.
    #[default]
    Roles,
    /// An `AuthorizationConfiguration`.
    File(PathBuf),
    /// Flags.
    Modes { modes: Vec<String>, webhook: LegacyWebhook },
}

impl Source {
    pub fn load(&self) -> Result<Chain, BadChain> {
        match self {
            Self::Roles => Ok(Chain::default()),
            Self::File(path) => Chain::from_file(path),
            Self::Modes { modes, webhook } => {
                let modes: Vec<&str> = modes.iter().map(String::as_str).collect();
                Chain::from_modes(&modes, webhook)
            }
        }
    }
}

/// One authorizer.
#[derive(Debug)]
pub(super) struct Link {
    pub name: String,
    pub kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Roles,
    AlwaysAllow,
    AlwaysDeny,
    Webhook(Box<Webhook>),
}

impl Kind {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Roles => "RBAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Webhook(_) => "Webhook",
        }
    }
}

/// Who decides.
#[derive(Debug)]
pub struct Chain {
    links: ArcSwap<Vec<Link>>,
    file: Option<File>,
}

/// Where a chain comes from.
#[derive(Debug)]
struct File {
    path: PathBuf,
    every: Duration,
    /// What was read last, good or bad.
    last: Mutex<Vec<u8>>,
    /// Types that stay for as long as the server runs, as upstream has it: a slip in a file takes no authorizer away.
    required: Vec<&'static str>,
}

impl Default for Chain {
    /// Roles and bindings alone.
    fn default() -> Self {
        Self::of(vec![Link {
            name: "rbac".to_owned(),
            kind: Kind::Roles,
        }])
    }
}

impl Chain {
    fn of(links: Vec<Link>) -> Self {
        Self {
            links: ArcSwap::from_pointee(links),
            file: None,
        }
    }

    /// The chain of an `AuthorizationConfiguration` file.
    pub fn from_file(path: &Path) -> Result<Self, BadChain> {
        let text = std::fs::read(path).map_err(|source| BadChain::Unreadable {
            path: path.display().to_string(),
            source,
        })?;
        let links = links(read(&text)?)?;
        Ok(Self {
            file: Some(File {
                path: path.to_owned(),
                every: RELOAD,
                last: Mutex::new(text),
                required: plain_kinds(&links),
            }),
            ..Self::of(links)
        })
    }

    /// The chain that flags ask for.
    pub fn from_modes(modes: &[&str], webhook: &LegacyWebhook) -> Result<Self, BadChain> {
        let configured =
            access::from_modes(modes, webhook).map_err(|error| BadChain::Configuration(error.to_string()))?;
        Ok(Self::of(links(configured)?))
    }

    /// Looks at the file more often, or less.
    #[must_use]
    pub fn reloading_every(mut self, every: Duration) -> Self {
        if let Some(file) = &mut self.file {
            file.every = every;
        }
        self
    }

    pub(super) fn links(&self) -> Arc<Vec<Link>> {
        self.links.load_full()
    }

    /// Whether anybody in it looks at selectors.
    pub(super) fn has_webhooks(&self) -> bool {
        self.links
            .load()
            .iter()
            .any(|link| matches!(link.kind, Kind::Webhook(_)))
    }

    /// Reads the file again as it changes. Ends at once if there is none.
    pub(super) async fn follow(&self, metrics: &AuthzMetrics) {
        let Some(file) = &self.file else { return };
        loop {
            tokio::time::sleep(file.every).await;
            match self.reload(file) {
                Ok(false) => {}
                Ok(true) => {
                    metrics.reloaded("success");
                    tracing::info!(path = %file.path.display(), "the authorization configuration was read anew");
                }
                Err(error) => {
                    metrics.reloaded("failure");
                    tracing::error!(path = %file.path.display(), %error, "the authorization configuration stays as it was");
                }
            }
        }
    }

    /// Whether there was something new.
    fn reload(&self, file: &File) -> Result<bool, BadChain> {
        let unreadable = |source| BadChain::Unreadable {
            path: file.path.display().to_string(),
            source,
        };
        let text = std::fs::read(&file.path).map_err(unreadable)?;
        {
            let mut last = file.last.lock();
            if *last == text {
                return Ok(false);
            }
            last.clone_from(&text);
        }
        let links = links(read(&text)?)?;
        let kinds = plain_kinds(&links);
        let missing: Vec<&str> = (file.required.iter().copied())
            .filter(|kind| !kinds.contains(kind))
            .collect();
        if !missing.is_empty() {
            let all = missing.join(" ");
            return Err(BadChain::Configuration(format!("missing required types: [{all}]")));
        }
        self.links.store(Arc::new(links));
        Ok(true)
    }
}

fn plain_kinds(links: &[Link]) -> Vec<&'static str> {
    let kinds = links.iter().map(|link| link.kind.as_str());
    kinds.filter(|kind| *kind != "Webhook").collect()
}

fn read(text: &[u8]) -> Result<Vec<Configured>, BadChain> {
    access::read(text, &check_file).map_err(|error| BadChain::Configuration(error.to_string()))
}

/// What is wrong with a file that a configuration names.
fn check_file(path: &str) -> Result<(), String> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("error loading file: stat {path}: no such file or directory"))
        }
        Err(error) => Err(format!("error loading file: stat {path}: {error}")),
        Ok(found) if !found.is_file() => Err("must be a regular file".to_owned()),
        Ok(_) => Ok(()),
    }
}

fn links(configured: Vec<Configured>) -> Result<Vec<Link>, BadChain> {
    let mut links = Vec::new();
    for Configured { name, kind } in configured {
        let kind = match kind {
            AuthorizerKind::Rbac => Kind::Roles,
            AuthorizerKind::AlwaysAllow => Kind::AlwaysAllow,
            AuthorizerKind::AlwaysDeny => Kind::AlwaysDeny,
            AuthorizerKind::Node => {
                tracing::warn!("authorizer Node is not supported: nodes may do what roles and webhooks let them");
                continue;
            }
            AuthorizerKind::Webhook(settings) => {
                let webhook = Webhook::new(&name, *settings);
                Kind::Webhook(Box::new(
                    webhook.map_err(|error| BadChain::Configuration(error.to_string()))?,
                ))
            }
        };
        links.push(Link { name, kind });
    }
    Ok(links)
}
