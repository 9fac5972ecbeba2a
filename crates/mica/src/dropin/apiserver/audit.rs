//! kube-apiserver's flags about audit, with its defaults and its words.

use std::path::Path;
use std::sync::Arc;

use mica_server::audit::{AuditOptions, Format, LogOptions, Throttle, Truncate, WebhookOptions};
use mica_server::egress::ClientConfig;
use mica_server::http::parse_go_duration;

use crate::audit::{MAX_EVENT, read_policy};
use crate::dropin::flag::Flags;

const MODES: [&str; 3] = ["batch", "blocking", "blocking-strict"];
const FORMATS: [&str; 2] = ["legacy", "json"];
const VERSION: &str = "audit.k8s.io/v1";
/// Upstream's largest batch where it is told to cut events.
const MAX_BATCH: i64 = 10 << 20;

/// What is written down of requests. Modes are checked and are all one here: nobody who serves waits for a log.
pub fn options(flags: &Flags) -> Result<AuditOptions, String> {
    let file = |name: &str| flags.last(name).filter(|file| !file.is_empty());
    let policy = match file("audit-policy-file") {
        Some(file) => {
            let policy = read_policy(Path::new(file));
            Some(Arc::new(
                policy.map_err(|problem| format!("loading audit policy file: {problem}"))?,
            ))
        }
        None => None,
    };
    Ok(AuditOptions {
        policy,
        log: file("audit-log-path").map(|path| log(flags, path)).transpose()?,
        webhook: file("audit-webhook-config-file")
            .map(|file| webhook(flags, file))
            .transpose()?,
        ..AuditOptions::default()
    })
}

fn log(flags: &Flags, path: &str) -> Result<LogOptions, String> {
    let usual = LogOptions::at(path);
    check_batch(flags, "log", "blocking")?;
    let format = flags.last("audit-log-format").unwrap_or("json");
    if !FORMATS.contains(&format) {
        let known = FORMATS.join(",");
        return Err(format!(
            "invalid audit log format {format}, allowed formats are {known:?}"
        ));
    }
    let count = |name: &str, usual: i64| match number(flags, name, usual) {
        count if count < 0 => Err(format!("--{name} {count} can't be a negative number")),
        count => Ok(count.unsigned_abs()),
    };
    Ok(LogOptions {
        max_age: u32::try_from(count("audit-log-maxage", usual.max_age.into())?).unwrap_or(u32::MAX),
        max_backups: usize::try_from(count("audit-log-maxbackup", 100)?).unwrap_or(usize::MAX),
        max_size: count("audit-log-maxsize", 100)?,
        compress: flags.is_on("audit-log-compress", false),
        format: if format == "json" { Format::Json } else { Format::Legacy },
        ..usual
    })
}

fn webhook(flags: &Flags, file: &str) -> Result<WebhookOptions, String> {
    check_batch(flags, "webhook", "batch")?;
    let to = ClientConfig::from_kubeconfig(Path::new(file));
    let mut options = WebhookOptions::to(to.map_err(|error| format!("initializing audit webhook: {error}"))?);
    let size = |name: &str, usual: usize| {
        let usual = i64::try_from(usual).unwrap_or(i64::MAX);
        usize::try_from(number(flags, name, usual)).unwrap_or_default()
    };
    options.batch.max_events = size("audit-webhook-batch-max-size", options.batch.max_events);
    options.buffer = size("audit-webhook-batch-buffer-size", options.buffer);
    let time = |name: &str| flags.last(name).and_then(|text| parse_go_duration(text).ok());
    options.batch.max_wait = time("audit-webhook-batch-max-wait").unwrap_or(options.batch.max_wait);
    options.initial_backoff = time("audit-webhook-initial-backoff")
        .or_else(|| time("audit-webhook-batch-initial-backoff"))
        .unwrap_or(options.initial_backoff);
    let usual = options.throttle;
    options.throttle = usual.filter(|_| flags.is_on("audit-webhook-batch-throttle-enable", true));
    if let Some(throttle) = &mut options.throttle {
        *throttle = Throttle {
            per_second: float(flags, "audit-webhook-batch-throttle-qps").unwrap_or(throttle.per_second),
            burst: u32::try_from(number(
                flags,
                "audit-webhook-batch-throttle-burst",
                throttle.burst.into(),
            ))
            .unwrap_or(throttle.burst),
        };
    }
    if flags.is_on("audit-webhook-truncate-enabled", false) {
        options.truncate = Some(Truncate {
            max_event: size("audit-webhook-truncate-max-event-size", MAX_EVENT),
        });
        options.batch.max_bytes = size("audit-webhook-truncate-max-batch-size", options.batch.max_bytes);
    }
    Ok(options)
}

fn number(flags: &Flags, name: &str, usual: i64) -> i64 {
    flags.last(name).and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn float(flags: &Flags, name: &str) -> Option<f64> {
    flags.last(name)?.parse().ok()
}

/// Refuses what upstream refuses about batches of a plugin.
fn check_batch(flags: &Flags, plugin: &str, usual: &str) -> Result<(), String> {
    let named = |part: &str| format!("audit-{plugin}-{part}");
    let mode = flags.last(&named("mode")).unwrap_or(usual);
    if !MODES.contains(&mode) {
        let known = MODES.join(",");
        return Err(format!(
            "invalid audit {plugin} mode {mode}, allowed modes are {known:?}"
        ));
    }
    let positive = |part: &str, what: &str| match number(flags, &named(part), 1) {
        size if size <= 0 => Err(format!(
            "invalid audit batch {plugin} {what} {size}, must be a positive number"
        )),
        _ => Ok(()),
    };
    if mode == "batch" {
        positive("batch-buffer-size", "buffer size")?;
        positive("batch-max-size", "max batch size")?;
        if flags.is_on(&named("batch-throttle-enable"), plugin == "webhook") {
            if let Some(qps) = float(flags, &named("batch-throttle-qps")).filter(|qps| *qps <= 0.0) {
                return Err(format!(
                    "invalid audit batch {plugin} throttle QPS {qps}, must be a positive number"
                ));
            }
            positive("batch-throttle-burst", "throttle burst")?;
        }
    }
    let event = number(flags, &named("truncate-max-event-size"), MAX_EVENT as i64);
    let batch = number(flags, &named("truncate-max-batch-size"), MAX_BATCH);
    if event <= 0 {
        return Err(format!(
            "invalid audit truncate {plugin} max event size {event}, must be a positive number"
        ));
    }
    if batch < event {
        return Err(format!(
            "invalid audit truncate {plugin} max batch size {batch}, must be greater than max event size ({event})"
        ));
    }
    match flags.last(&named("version")) {
        Some(version) if version != VERSION => {
            Err(format!("invalid group version, allowed versions are [\"{VERSION}\"]"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropin::apiserver::table::FLAGS;
    use crate::dropin::flag::Dialect;

    fn read(line: &str) -> Result<AuditOptions, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        options(&Flags::parse(FLAGS, Dialect::Pflag, &arguments).unwrap())
    }

    #[test]
    fn flags_mean_what_they_mean_upstream() {
        let options = read("--audit-log-path=/l --audit-log-maxage 3 --audit-log-compress --audit-log-format=legacy");
        let log = options.unwrap().log.unwrap();
        assert_eq!((log.max_age, log.max_backups, log.max_size), (3, 100, 100));
        assert!(log.compress && log.format == Format::Legacy);
        assert!(read("").unwrap().log.is_none());
    }

    #[test]
    fn what_is_wrong_is_said_in_upstreams_words() {
        for (line, words) in [
            (
                "--audit-log-path=/l --audit-log-mode=fast",
                "invalid audit log mode fast, allowed modes are \"batch,blocking,blocking-strict\"",
            ),
            (
                "--audit-log-path=/l --audit-log-format=xml",
                "invalid audit log format xml, allowed formats are \"legacy,json\"",
            ),
            (
                "--audit-log-path=/l --audit-log-maxage=-1",
                "--audit-log-maxage -1 can't be a negative number",
            ),
            (
                "--audit-log-path=/l --audit-log-mode=batch --audit-log-batch-buffer-size=0",
                "invalid audit batch log buffer size 0, must be a positive number",
            ),
            (
                "--audit-log-path=/l --audit-log-truncate-max-event-size=20000000",
                "invalid audit truncate log max batch size 10485760, must be greater than max event size (20000000)",
            ),
            (
                "--audit-policy-file=/no/such",
                "loading audit policy file: failed to read file path \"/no/such\": No such file or directory (os error 2)",
            ),
            (
                "--audit-webhook-config-file=/no/such",
                "initializing audit webhook: /no/such: No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(read(line).err().as_deref(), Some(words), "{line}");
        }
    }
}
