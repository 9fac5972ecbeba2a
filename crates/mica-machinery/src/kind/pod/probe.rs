//! What is asked of a running container: probes and lifecycle hooks.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, is_set, present};
use crate::kind::workload::{non_negative, number};
use crate::{names, object};

const SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];
const WINDOWS_SIGNALS: [&str; 2] = ["SIGKILL", "SIGTERM"];
/// Signals of Linux by name, sorted, real-time ones aside.
const SIGNALS: [&str; 34] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// What the pod says that probes and hooks depend on.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub grace: Option<i64>,
    pub os: Option<&'a str>,
}

/// Probes of a container that runs on.
pub fn validate_probes(container: &Value, setting: Setting<'_>, path: &Path, errors: &mut ErrorList) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = present(container, &[field]) else {
            continue;
        };
        let path = path.child(field);
        validate_probe(probe, setting, &path, errors);
        let successes = number(probe, &["successThreshold"]);
        if field == "readinessProbe" {
            if let Some(seconds) = present(probe, &["terminationGracePeriodSeconds"]) {
                let path = path.child("terminationGracePeriodSeconds");
                let detail = "must not be set for readinessProbes";
                errors.push(Error::invalid(&path, seconds.clone(), detail));
            }
        } else if successes != 1 {
            errors.push(Error::invalid(&path.child("successThreshold"), successes, "must be 1"));
        }
    }
}

fn validate_probe(probe: &Value, setting: Setting<'_>, path: &Path, errors: &mut ErrorList) {
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
    validate_handler(probe, &handlers, setting, path, errors);
    let counts = [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ];
    non_negative(probe, &[], &counts, path, errors);
    if let Some(seconds) = object::int(probe, &["terminationGracePeriodSeconds"]).filter(|seconds| *seconds <= 0) {
        let path = path.child("terminationGracePeriodSeconds");
        errors.push(Error::invalid(&path, seconds, "must be greater than 0"));
    }
}

pub fn validate_lifecycle(container: &Value, setting: Setting<'_>, path: &Path, errors: &mut ErrorList) {
    let Some(lifecycle) = present(container, &["lifecycle"]) else {
        return;
    };
    let path = path.child("lifecycle");
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = present(lifecycle, &[hook]) {
            let handlers = ["exec", "httpGet", "tcpSocket", "sleep"];
            validate_handler(handler, &handlers, setting, &path.child(hook), errors);
        }
    }
    if let Some(signal) = present(lifecycle, &["stopSignal"]).and_then(Value::as_str) {
        validate_signal(signal, setting.os, &path.child("stopSignal"), errors);
    }
}

fn validate_signal(signal: &str, os: Option<&str>, path: &Path, errors: &mut ErrorList) {
    match os {
        None => {
            let detail = "may not be set for containers with empty `spec.os.name`";
            errors.push(Error::forbidden(path, detail));
        }
        Some("windows") if !WINDOWS_SIGNALS.contains(&signal) => {
            errors.push(Error::not_supported(path, signal, &WINDOWS_SIGNALS));
        }
        Some("linux") => {
            let mut known: Vec<String> = SIGNALS.iter().map(|name| (*name).to_owned()).collect();
            known.extend(["SIGRTMAX".to_owned(), "SIGRTMIN".to_owned()]);
            known.extend((1..=14).map(|n| format!("SIGRTMAX-{n}")));
            known.extend((1..=15).map(|n| format!("SIGRTMIN+{n}")));
            known.sort();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            if !known.contains(&signal) {
                errors.push(Error::not_supported(path, signal, &known));
            }
        }
        _ => {}
    }
}

/// Exactly one way to ask.
fn validate_handler(handler: &Value, known: &[&str], setting: Setting<'_>, path: &Path, errors: &mut ErrorList) {
    let mut found = 0;
    for field in known.iter().filter(|field| is_set(handler, &[field])) {
        found += 1;
        let (path, action) = (path.child(field), &handler[*field]);
        if found > 1 {
            errors.push(Error::forbidden(&path, "may not specify more than 1 handler type"));
            continue;
        }
        match *field {
            "exec" => {
                if object::list(action, &["command"]).is_empty() {
                    errors.push(Error::required(&path.child("command"), ""));
                }
            }
            "httpGet" => validate_http(action, &path, errors),
            "sleep" => {
                let seconds = number(action, &["seconds"]);
                if let Some(grace) = setting.grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.push(Error::invalid(&path, seconds, detail));
                }
            }
            _ => validate_port(action.get("port"), &path.child("port"), errors),
        }
    }
    if found == 0 {
        errors.push(Error::required(path, "must specify a handler type"));
    }
}

fn validate_http(action: &Value, path: &Path, errors: &mut ErrorList) {
    if object::string(action, &["path"]).is_empty() {
        errors.push(Error::required(&path.child("path"), ""));
    }
    validate_port(action.get("port"), &path.child("port"), errors);
    let scheme = object::string(action, &["scheme"]);
    if !SCHEMES.contains(&scheme) {
        errors.push(Error::not_supported(&path.child("scheme"), scheme, &SCHEMES));
    }
    for header in object::list(action, &["httpHeaders"]) {
        let name = object::string(header, &["name"]);
        errors.extend(invalid_each(
            &path.child("httpHeaders"),
            name,
            names::http_header_name(name),
        ));
    }
}

/// A port by number or by name.
pub fn validate_port(port: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    match port {
        Some(Value::String(name)) => errors.extend(invalid_each(path, name, names::port_name(name))),
        port => {
            let port = port.and_then(Value::as_i64).unwrap_or_default();
            let texts = names::port_number(port).into_iter();
            errors.extend(texts.map(|text| Error::invalid(path, port, text)));
        }
    }
}
