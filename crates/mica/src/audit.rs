//! What is written down of requests: the section `audit` of the file, and what is done where nothing is said.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mica_machinery::audit::Policy;
use mica_server::audit::{AuditOptions, Format, LogOptions, Throttle, Truncate, WebhookOptions};
use mica_server::egress::ClientConfig;
use serde::Deserialize;

use crate::config::duration;
use crate::exit::Usage;

/// Where nobody names a policy: writes of everybody but the server itself, without what was written. Events and leases are
/// written all the time and tell nobody anything.
const DEFAULT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ['system:apiserver']}
- {level: None, verbs: [get, list, watch, head, options]}
- level: None
  resources:
  - {group: '', resources: [events]}
  - {group: events.k8s.io}
  - {group: coordination.k8s.io, resources: [leases]}
- {level: Metadata}
";

/// Upstream's largest event where it is told to cut them.
pub const MAX_EVENT: usize = 100 << 10;

#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AuditFile {
    /// A Policy of audit.k8s.io/v1.
    pub policy: Option<PathBuf>,
    pub log: LogFile,
    pub webhook: Option<WebhookFile>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LogFile {
    /// `-` for the standard output, empty for none.
    pub path: Option<PathBuf>,
    max_age: Option<u32>,
    max_backups: Option<usize>,
    max_size: Option<u64>,
    compress: Option<bool>,
    format: Option<FileFormat>,
}

#[derive(Deserialize, Debug, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum FileFormat {
    Json,
    Legacy,
}

#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct WebhookFile {
    /// A kubeconfig.
    pub config_file: PathBuf,
    batch_max_size: Option<usize>,
    batch_max_wait: Option<String>,
    buffer_size: Option<usize>,
    throttle_qps: Option<f64>,
    throttle_burst: Option<u32>,
    initial_backoff: Option<String>,
    truncate_max_event_size: Option<usize>,
}

impl AuditFile {
    pub fn options(self, data_dir: &Path) -> Result<AuditOptions, Usage> {
        let policy = match &self.policy {
            Some(file) => read_policy(file).map_err(|problem| Usage(format!("audit.policy: {problem}")))?,
            None => Policy::parse(DEFAULT_POLICY.as_bytes()).expect("it is tested").0,
        };
        Ok(AuditOptions {
            policy: Some(Arc::new(policy)),
            log: self.log.options(data_dir),
            webhook: self.webhook.map(WebhookFile::options).transpose()?,
            ..AuditOptions::default()
        })
    }
}

/// Reads a policy file; what is wrong with it is said in upstream's words.
pub fn read_policy(file: &Path) -> Result<Policy, String> {
    let shown = file.display();
    let text = std::fs::read(file).map_err(|error| format!("failed to read file path \"{shown}\": {error}"))?;
    let (policy, unknown) = Policy::parse(&text).map_err(|error| format!("{error}: from file {shown}"))?;
    if !unknown.is_empty() {
        tracing::warn!(file = %shown, unknown = unknown.join(", "), "the audit policy has fields that mean nothing");
    }
    Ok(policy)
}

impl LogFile {
    /// Unless told otherwise a few hundred megabytes at most, in the data directory.
    fn options(self, data_dir: &Path) -> Option<LogOptions> {
        let path = self.path.unwrap_or_else(|| data_dir.join("audit").join("audit.log"));
        if path.as_os_str().is_empty() {
            return None;
        }
        Some(LogOptions {
            path,
            max_age: self.max_age.unwrap_or(30),
            max_backups: self.max_backups.unwrap_or(10),
            max_size: self.max_size.unwrap_or(50),
            compress: self.compress.unwrap_or(true),
            format: match self.format {
                Some(FileFormat::Legacy) => Format::Legacy,
                _ => Format::Json,
            },
        })
    }
}

impl WebhookFile {
    fn options(self) -> Result<WebhookOptions, Usage> {
        let bad = |field: &str, problem: &dyn std::fmt::Display| Usage(format!("audit.webhook.{field}: {problem}"));
        let to = ClientConfig::from_kubeconfig(&self.config_file).map_err(|error| bad("config-file", &error))?;
        let mut options = WebhookOptions::to(to);
        let positive = |field, size: usize| match size {
            0 => Err(bad(field, &"must be a positive number")),
            size => Ok(size),
        };
        if let Some(size) = self.batch_max_size {
            options.batch.max_events = positive("batch-max-size", size)?;
        }
        if let Some(size) = self.buffer_size {
            options.buffer = positive("buffer-size", size)?;
        }
        if let Some(text) = &self.batch_max_wait {
            options.batch.max_wait = duration("audit.webhook.batch-max-wait", text)?;
        }
        if let Some(text) = &self.initial_backoff {
            options.initial_backoff = duration("audit.webhook.initial-backoff", text)?;
        }
        if self.throttle_qps.is_some() || self.throttle_burst.is_some() {
            let usual = options.throttle.expect("upstream throttles");
            let throttle = Throttle {
                per_second: self.throttle_qps.unwrap_or(usual.per_second),
                burst: self.throttle_burst.unwrap_or(usual.burst),
            };
            if throttle.per_second <= 0.0 || throttle.burst == 0 {
                return Err(bad("throttle-qps", &"must be a positive number, as throttle-burst"));
            }
            options.throttle = Some(throttle);
        }
        options.truncate = self.truncate_max_event_size.map(|max_event| Truncate { max_event });
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use mica_machinery::audit::{About, Level, Request};

    use super::*;

    #[test]
    fn where_nothing_is_said_writes_are_told_of_and_reads_are_not() {
        let options = AuditFile::default().options(Path::new("/d")).unwrap();
        assert_eq!(options.log.unwrap().path, Path::new("/d/audit/audit.log"));
        let policy = options.policy.unwrap();
        let level = |name: &str, verb: &str, group: &str, resource: &str| {
            let about = About::Resource {
                group,
                resource,
                subresource: "",
                namespace: "n",
                name: "",
            };
            let user = Some((name, &[][..]));
            policy.plan(&Request { user, verb, about }).level
        };
        assert_eq!(level("ann", "create", "", "secrets"), Level::Metadata);
        assert_eq!(level("ann", "delete", "g", "things"), Level::Metadata);
        assert_eq!(level("ann", "list", "", "secrets"), Level::None);
        assert_eq!(level("ann", "create", "", "events"), Level::None);
        assert_eq!(level("system:apiserver", "create", "", "secrets"), Level::None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("policy.yaml");
        std::fs::write(&file, "apiVersion: audit.k8s.io/v1\nkind: Policy\n").unwrap();
        let refused = |file: AuditFile| file.options(Path::new("/d")).unwrap_err().to_string();
        let with_policy = |policy: &Path| AuditFile {
            policy: Some(policy.to_owned()),
            ..AuditFile::default()
        };
        assert_eq!(
            refused(with_policy(&file)),
            format!(
                "audit.policy: loaded illegal policy with 0 rules: from file {}",
                file.display()
            )
        );
        assert_eq!(
            refused(with_policy(Path::new("no/such"))),
            "audit.policy: failed to read file path \"no/such\": No such file or directory (os error 2)"
        );
        let webhook = AuditFile {
            webhook: Some(WebhookFile {
                config_file: "no/such".into(),
                ..WebhookFile::default()
            }),
            ..AuditFile::default()
        };
        assert_eq!(
            refused(webhook),
            "audit.webhook.config-file: no/such: No such file or directory (os error 2)"
        );
        let none = LogFile {
            path: Some(PathBuf::new()),
            ..LogFile::default()
        };
        assert_eq!(none.options(Path::new("/d")), None);
    }
}
