//! Security contexts of pods and containers, and what they must agree with: annotations of old, and the operating system.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, invalid_as, invalid_each, is_set, present};
use crate::kind::internal;
use crate::{names, object};

const SECCOMP_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const MAX_SYSCTL: usize = 253;
const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
pub const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const MAX_PROFILE: usize = 4095;
const MAX_CREDENTIAL: usize = 64 * 1024;
const MAX_USER: usize = 104;
const MAX_DOMAIN: usize = 256;

static SYSCTLS: LazyLock<Regex> = LazyLock::new(|| Regex::new(SYSCTL).expect("a valid pattern"));
static DOMAINS: LazyLock<Regex> = LazyLock::new(|| {
    let label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
    let net_bios = r#"[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}"#;
    Regex::new(&format!(r"^(?:{net_bios}|{label}(?:\.{label})*)$")).expect("a valid pattern")
});

fn unix_id(context: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(id) = object::int(context, &[field]) {
        let texts = names::unix_id(id).into_iter();
        errors.extend(texts.map(|text| Error::invalid(&path.child(field), id, text)));
    }
}

fn known(context: &Value, field: &str, values: &[&str], path: &Path, errors: &mut ErrorList) {
    let found = present(context, &[field]).and_then(Value::as_str);
    if let Some(found) = found.filter(|found| !values.contains(found)) {
        errors.push(Error::not_supported(&path.child(field), found, values));
    }
}

pub fn validate_pod(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(context) = present(spec, &["securityContext"]) else {
        return;
    };
    let flag = |field| spec.get(field) == Some(&json!(true));
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        unix_id(context, field, path, errors);
    }
    for (i, group) in object::list(context, &["supplementalGroups"]).iter().enumerate() {
        let group = group.as_i64().unwrap_or_default();
        let at = path.child("supplementalGroups").index(i);
        let texts = names::unix_id(group).into_iter();
        errors.extend(texts.map(|text| Error::invalid(&at, group, text)));
    }
    if flag("shareProcessNamespace") && flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(Error::invalid(&path.child("shareProcessNamespace"), true, detail));
    }
    validate_sysctls(
        context,
        flag("hostNetwork"),
        flag("hostIPC"),
        &path.child("sysctls"),
        errors,
    );
    known(
        context,
        "fsGroupChangePolicy",
        &["Always", "OnRootMismatch"],
        path,
        errors,
    );
    validate_profiles(context, path, errors);
    known(context, "supplementalGroupsPolicy", &["Merge", "Strict"], path, errors);
    known(
        context,
        "seLinuxChangePolicy",
        &["MountOption", "Recursive"],
        path,
        errors,
    );
}

fn validate_sysctls(context: &Value, network: bool, ipc: bool, path: &Path, errors: &mut ErrorList) {
    let mut seen = Vec::new();
    for (i, sysctl) in object::list(context, &["sysctls"]).iter().enumerate() {
        let (path, name) = (path.index(i).child("name"), object::string(sysctl, &["name"]));
        if name.is_empty() {
            errors.push(Error::required(&path, ""));
        } else if name.len() > MAX_SYSCTL || !SYSCTLS.is_match(name) {
            let detail = format!("must have at most {MAX_SYSCTL} characters and match regex {SYSCTL}");
            errors.push(Error::invalid(&path, name, detail));
        } else if seen.contains(&name) {
            errors.push(Error::duplicate(&path, name));
        }
        let plain = name.replace('/', ".");
        let of_ipc = plain.starts_with("fs.mqueue.")
            || plain.starts_with("kernel.shm")
            || plain.starts_with("kernel.msg")
            || plain == "kernel.sem";
        if network && plain.starts_with("net.") {
            let detail = "may not be specified when 'hostNetwork' is true";
            errors.push(Error::invalid(&path, name, detail));
        } else if ipc && of_ipc {
            let detail = "may not be specified when 'hostIPC' is true";
            errors.push(Error::invalid(&path, name, detail));
        }
        seen.push(name);
    }
}

pub fn validate_container(context: &Value, host_users: bool, path: &Path, errors: &mut ErrorList) {
    for field in ["runAsUser", "runAsGroup"] {
        unix_id(context, field, path, errors);
    }
    known(context, "procMount", &["Default", "Unmasked"], path, errors);
    if host_users && object::string(context, &["procMount"]) == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(Error::invalid(&path.child("procMount"), "Unmasked", detail));
    }
    validate_seccomp(context, &path.child("seccompProfile"), errors);
    if context.get("allowPrivilegeEscalation") == Some(&json!(false)) {
        let shown = || internal::shown(context, "io.k8s.api.core.v1.SecurityContext");
        if context.get("privileged") == Some(&json!(true)) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(invalid_as(path, &shown(), detail));
        }
        for _ in object::list(context, &["capabilities", "add"])
            .iter()
            .filter(|capability| *capability == "CAP_SYS_ADMIN")
        {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(invalid_as(path, &shown(), detail));
        }
    }
    validate_windows_options(context, &path.child("windowsOptions"), errors);
    validate_app_armor(context, &path.child("appArmorProfile"), errors);
}

fn validate_profiles(context: &Value, path: &Path, errors: &mut ErrorList) {
    validate_seccomp(context, &path.child("seccompProfile"), errors);
    validate_windows_options(context, &path.child("windowsOptions"), errors);
    validate_app_armor(context, &path.child("appArmorProfile"), errors);
}

fn validate_seccomp(context: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(profile) = present(context, &["seccompProfile"]) else {
        return;
    };
    let r#type = object::string(profile, &["type"]);
    if r#type.is_empty() {
        let detail = "type is required when seccompProfile is set";
        errors.push(Error::required(&path.child("type"), detail));
    } else if !SECCOMP_TYPES.contains(&r#type) {
        errors.push(Error::not_supported(&path.child("type"), r#type, &SECCOMP_TYPES));
    }
    let (at, local) = (
        path.child("localhostProfile"),
        present(profile, &["localhostProfile"]).and_then(Value::as_str),
    );
    match (r#type, local) {
        ("Localhost", None) => {
            let detail = "must be set when seccomp type is Localhost";
            errors.push(Error::required(&at, detail));
        }
        ("Localhost", Some(local)) => local_descending(local, &at, errors),
        (_, Some(_)) => {
            let shown = internal::shown(profile, "io.k8s.api.core.v1.SeccompProfile");
            errors.push(invalid_as(
                &at,
                &shown,
                "can only be set when seccomp type is Localhost",
            ));
        }
        (_, None) => {}
    }
}

fn local_descending(path: &str, at: &Path, errors: &mut ErrorList) {
    if path.starts_with('/') {
        errors.push(Error::invalid(at, path, "must be a relative path"));
    }
    if path.split('/').any(|part| part == "..") {
        errors.push(Error::invalid(at, path, "must not contain '..'"));
    }
}

pub fn validate_app_armor(context: &Value, path: &Path, errors: &mut ErrorList) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    let Some(profile) = present(context, &["appArmorProfile"]) else {
        return;
    };
    let (at, local) = (
        path.child("localhostProfile"),
        present(profile, &["localhostProfile"]).and_then(Value::as_str),
    );
    let r#type = object::string(profile, &["type"]);
    match (r#type, local) {
        ("Localhost", None | Some("")) => errors.push(Error::required(&at, MISSING)),
        ("Localhost", Some(local)) => {
            if local.trim() != local {
                let detail = "must not be padded with whitespace";
                errors.push(Error::invalid(&at, local, detail));
            }
            if local.len() > MAX_PROFILE {
                errors.push(Error::too_long(&at, MAX_PROFILE));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(local)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.push(Error::invalid(&at, local, detail));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            errors.push(Error::required(&path.child("type"), detail));
        }
        (other, _) => errors.push(Error::not_supported(&path.child("type"), other, &SECCOMP_TYPES)),
    }
}

fn validate_windows_options(context: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(options) = present(context, &["windowsOptions"]) else {
        return;
    };
    let text = |field| present(options, &[field]).and_then(Value::as_str);
    if let Some(name) = text("gmsaCredentialSpecName") {
        let texts = names::dns1123_subdomain(name);
        errors.extend(invalid_each(&path.child("gmsaCredentialSpecName"), name, texts));
    }
    if let Some(credential) = text("gmsaCredentialSpec") {
        let path = path.child("gmsaCredentialSpec");
        if credential.is_empty() {
            let detail = "gmsaCredentialSpec cannot be an empty string";
            errors.push(Error::invalid(&path, "", detail));
        } else if credential.len() > MAX_CREDENTIAL {
            let detail = "gmsaCredentialSpec size must be under 64 KiB";
            errors.push(Error::invalid(&path, credential, detail));
        }
    }
    if let Some(name) = text("runAsUserName") {
        let path = path.child("runAsUserName");
        let details = user_name_errors(name).into_iter();
        errors.extend(details.map(|detail| Error::invalid(&path, name, format!("runAsUserName{detail}"))));
    }
}

fn user_name_errors(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec![" cannot be an empty string"];
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return vec![" cannot contain control characters"];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return vec![" cannot contain more than one backslash"],
    };
    let mut found = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= MAX_DOMAIN) {
        found.push("'s Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !DOMAINS.is_match(domain)) {
        found.push("'s Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        found.push("'s User cannot be empty");
    } else if user.len() > MAX_USER {
        found.push("'s User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        found.push("'s User cannot contain only periods or spaces");
    }
    if user.chars().any(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        found.push(r#"'s User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
    found
}

/// Every container of a pod, with its path, in upstream's order.
pub fn containers<'a>(spec: &'a Value, path: &Path) -> Vec<(Path, &'a Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| {
            let path = path.child(list);
            let all = object::list(spec, &[list]).iter().enumerate();
            all.map(move |(i, container)| (path.index(i), container))
        })
        .collect()
}

/// Containers that are processes of a Windows host come alone and on its network.
pub fn validate_host_process(spec: &Value, path: &Path, errors: &mut ErrorList) {
    const AT: [&str; 3] = ["securityContext", "windowsOptions", "hostProcess"];
    let of_pod = object::get(spec, &AT).and_then(Value::as_bool);
    let all = containers(spec, path);
    let mut count = 0;
    for (path, container) in &all {
        let own = object::get(container, &AT).and_then(Value::as_bool);
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let path = path
                .child("securityContext")
                .child("windowsOptions")
                .child("hostProcess");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.push(Error::invalid(&path, own, detail));
        }
        count += usize::from(own.or(of_pod) == Some(true));
    }
    if count == 0 {
        return;
    }
    if count != all.len() {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(Error::invalid(path, "", detail));
    }
    if spec.get("hostNetwork") != Some(&json!(true)) {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(Error::invalid(&path.child("hostNetwork"), false, detail));
    }
}

/// What pods with users of their own cannot have from the host.
pub fn validate_host_users(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if spec.get("hostUsers") != Some(&json!(false)) {
        return;
    }
    let detail = "when `hostUsers` is false";
    for (field, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.get(field) == Some(&json!(true)) {
            errors.push(Error::forbidden(&path.child(shown), detail));
        }
    }
    for (path, container) in containers(spec, path) {
        if !object::list(container, &["volumeDevices"]).is_empty() {
            errors.push(Error::forbidden(&path.child("volumeDevices"), detail));
        }
    }
}

/// What a pod of one operating system cannot say.
pub fn validate_os(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if !is_set(spec, &["os"]) {
        return;
    }
    match object::string(spec, &["os", "name"]) {
        "" => errors.push(Error::required(&path.child("os").child("name"), "")),
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            let mut refuse = |holder: &Value, path: &Path| {
                if is_set(holder, &["securityContext", "windowsOptions"]) {
                    let path = path.child("securityContext").child("windowsOptions");
                    errors.push(Error::forbidden(&path, detail));
                }
            };
            refuse(spec, path);
            for (path, container) in containers(spec, path) {
                refuse(container, &path);
            }
        }
        "windows" => validate_windows(spec, path, errors),
        other => errors.push(Error::not_supported(&path.child("os"), other, &["linux", "windows"])),
    }
}

fn validate_windows(spec: &Value, path: &Path, errors: &mut ErrorList) {
    const NO: &str = "cannot be set for a windows pod";
    const OF_POD: [&str; 15] = [
        "securityContext.appArmorProfile",
        "securityContext.seLinuxOptions",
        "hostUsers",
        "hostPID",
        "hostIPC",
        "securityContext.seccompProfile",
        "securityContext.fsGroup",
        "securityContext.fsGroupChangePolicy",
        "securityContext.sysctls",
        "shareProcessNamespace",
        "securityContext.runAsUser",
        "securityContext.runAsGroup",
        "securityContext.supplementalGroups",
        "securityContext.supplementalGroupsPolicy",
        "securityContext.seLinuxChangePolicy",
    ];
    const OF_CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    for field in OF_POD {
        let at: Vec<&str> = field.split('.').collect();
        let found = present(spec, &at);
        let plain = ["hostPID", "hostIPC"].contains(&field);
        if found.is_some_and(|value| !plain || *value == json!(true)) {
            errors.push(Error::forbidden(&path.child(field), NO));
        }
    }
    for (path, container) in containers(spec, path) {
        for field in OF_CONTAINER {
            if is_set(container, &["securityContext", field]) {
                errors.push(Error::forbidden(&path.child("securityContext").child(field), NO));
            }
        }
    }
}

/// Annotations that were how profiles were once told.
pub fn validate_annotations(metadata: &Value, path: &Path, errors: &mut ErrorList) {
    for (key, value) in entries(metadata, &["annotations"]) {
        if key != SECCOMP_POD && !key.starts_with(SECCOMP_CONTAINER) {
            continue;
        }
        let value = value.as_str().unwrap_or_default();
        let path = path.child(key);
        match value.strip_prefix("localhost/") {
            Some(file) => local_descending(file, &path, errors),
            None if ["runtime/default", "docker/default", "unconfined"].contains(&value) => {}
            None => errors.push(Error::invalid(&path, value, "must be a valid seccomp profile")),
        }
    }
}

/// Where both are there, annotations and fields say the same.
pub fn validate_agreement(metadata: &Value, spec: &Value, path: &Path, errors: &mut ErrorList) {
    let annotation = |key: &str| object::get(metadata, &["annotations", key]).and_then(Value::as_str);
    let mut check = |holder: &Value, key: &str, path: &Path| {
        let Some(profile) = present(holder, &["securityContext", "seccompProfile"]) else {
            return;
        };
        let Some(told) = annotation(key) else { return };
        let path = path.child("securityContext").child("seccompProfile");
        let agrees = match object::string(profile, &["type"]) {
            "Unconfined" => told == "unconfined",
            "RuntimeDefault" => ["runtime/default", "docker/default"].contains(&told),
            "Localhost" => match told.strip_prefix("localhost/") {
                None => false,
                Some(file) => {
                    if file != object::string(profile, &["localhostProfile"]) {
                        let detail = "seccomp profile in annotation and field must match";
                        errors.push(Error::forbidden(&path.child("localhostProfile"), detail));
                    }
                    true
                }
            },
            _ => true,
        };
        if !agrees {
            let detail = "seccomp type in annotation and field must match";
            errors.push(Error::forbidden(&path.child("type"), detail));
        }
    };
    check(spec, SECCOMP_POD, path);
    for (path, container) in containers(spec, path) {
        let key = format!("{SECCOMP_CONTAINER}{}", object::string(container, &["name"]));
        check(container, &key, &path);
    }
}
