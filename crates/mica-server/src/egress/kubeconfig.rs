//! What is called by the platform's own configuration: kubeconfig files, as upstream's webhook plugins read them.
//!
//! The current context names the far side (`cluster`) and what is shown to it (`user`). Files that it names are read at once.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use mica_machinery::{object, yaml};
use serde_json::Value;

use super::credential::{Credentials, Identity};
use super::target::{ClientConfig, To};

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct BadKubeconfig {
    path: PathBuf,
    problem: String,
}

impl ClientConfig {
    /// Reads a kubeconfig file of the platform.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, BadKubeconfig> {
        let bad = |problem: String| BadKubeconfig {
            path: path.to_owned(),
            problem,
        };
        let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
        let home = path.parent().unwrap_or(Path::new("."));
        parse(&text, home).map_err(bad)
    }
}

fn parse(text: &[u8], home: &Path) -> Result<ClientConfig, String> {
    let converted = yaml::to_json(text).map_err(|error| error.to_string())?;
    let file: Value = serde_json::from_slice(&converted.json).map_err(|error| error.to_string())?;
    let wanted = object::string(&file, &["current-context"]);
    if wanted.is_empty() {
        return Err("it has no current-context".to_owned());
    }
    let context = named(&file, "contexts", "context", wanted)?;
    let cluster = named(&file, "clusters", "cluster", object::string(context, &["cluster"]))?;
    let user = match object::string(context, &["user"]) {
        "" => &Value::Null,
        user => named(&file, "users", "user", user)?,
    };
    for unusable in ["exec", "auth-provider", "username"] {
        if object::get(user, &[unusable]).is_some() {
            return Err(format!("its user has {unusable}, which cannot be used here"));
        }
    }
    if object::get(cluster, &["insecure-skip-tls-verify"]) == Some(&Value::Bool(true)) {
        return Err("insecure-skip-tls-verify cannot be used here: name a certificate-authority".to_owned());
    }
    let server = object::string(cluster, &["server"]);
    let known = server
        .parse::<Uri>()
        .is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty()));
    if !known {
        return Err(format!("server {server:?} is not an https:// URL"));
    }
    let certificate = material(user, "client-certificate", home)?;
    let key = material(user, "client-key", home)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let identity = Identity::new(certificate, key);
            identity.key().ok_or("its client-key is no private key in PEM")?;
            Some(identity)
        }
        (None, None) => None,
        _ => return Err("its user needs both client-certificate and client-key".to_owned()),
    };
    Ok(ClientConfig {
        to: To::Url(server.to_owned()),
        ca_bundle: material(cluster, "certificate-authority", home)?
            .unwrap_or_default()
            .into(),
        credentials: Credentials {
            server_name: Some(object::string(cluster, &["tls-server-name"]).to_owned()).filter(|name| !name.is_empty()),
            identity,
            token: token(user, home)?,
        },
    })
}

/// The entry of a list by its name.
fn named<'a>(file: &'a Value, list: &str, part: &str, name: &str) -> Result<&'a Value, String> {
    let entry = object::list(file, &[list])
        .iter()
        .find(|entry| object::string(entry, &["name"]) == name);
    let entry = entry.ok_or_else(|| format!("it has no {part} {name:?}"))?;
    Ok(object::get(entry, &[part]).unwrap_or(&Value::Null))
}

/// What stands in the file itself, in base64, or in another file.
fn material(of: &Value, field: &str, home: &Path) -> Result<Option<Vec<u8>>, String> {
    let data = object::string(of, &[&format!("{field}-data")]);
    if !data.is_empty() {
        let decoded = STANDARD.decode(data.replace(char::is_whitespace, ""));
        return decoded.map(Some).map_err(|_| format!("{field}-data is not base64"));
    }
    match object::string(of, &[field]) {
        "" => Ok(None),
        file => {
            let read = std::fs::read(home.join(file));
            read.map(Some).map_err(|error| format!("{field} {file}: {error}"))
        }
    }
}

fn token(user: &Value, home: &Path) -> Result<Option<HeaderValue>, String> {
    let text = match (object::string(user, &["token"]), object::string(user, &["tokenFile"])) {
        ("", "") => return Ok(None),
        ("", file) => std::fs::read_to_string(home.join(file)).map_err(|error| format!("tokenFile {file}: {error}"))?,
        (token, _) => token.to_owned(),
    };
    let header = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut header = header.map_err(|_| "its token cannot stand in a header".to_owned())?;
    header.set_sensitive(true);
    Ok(Some(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
current-context: c
contexts: [{name: c, context: {cluster: far, user: me}}]
clusters: [{name: far, cluster: {server: 'https://h:1/x', certificate-authority-data: Y2E=, tls-server-name: other}}]
users: [{name: me, user: {token: s3cret}}]
";

    #[test]
    fn the_current_context_says_whom_to_call_and_what_to_show_without_printing_it() {
        let config = parse(GOOD.as_bytes(), Path::new(".")).unwrap();
        assert_eq!(&*config.ca_bundle, b"ca");
        assert_eq!(config.credentials.server_name.as_deref(), Some("other"));
        assert_eq!(config.credentials.authorization().unwrap(), "Bearer s3cret");
        assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (from, to, problem) in [
            ("current-context: c", "", "it has no current-context"),
            ("current-context: c", "current-context: d", "it has no context \"d\""),
            ("cluster: far", "cluster: near", "it has no cluster \"near\""),
            (
                "https://h:1/x",
                "http://h:1/x",
                "server \"http://h:1/x\" is not an https:// URL",
            ),
            ("Y2E=", "%%", "certificate-authority-data is not base64"),
            (
                "token: s3cret",
                "exec: {}",
                "its user has exec, which cannot be used here",
            ),
            (
                "token: s3cret",
                "client-key-data: Y2E=",
                "its user needs both client-certificate and client-key",
            ),
            (
                "token: s3cret",
                "tokenFile: no/such",
                "tokenFile no/such: No such file or directory (os error 2)",
            ),
        ] {
            let text = GOOD
                .replace(from, to)
                .replace("'%%'", "%%")
                .replace("-data: %%", "-data: '%%'");
            assert_eq!(parse(text.as_bytes(), Path::new(".")).unwrap_err(), problem);
        }
    }
}
