//! Reading a kubeconfig: as much of the format as our own files and kubectl's usual ones have.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_server::pki::write_private;
use serde::Deserialize;
use serde_json::Value;

/// One context of a kubeconfig, with every file in it read.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    pub server: String,
    pub tls_server_name: Option<String>,
    pub trust: Trust,
    /// PEM of the certificate and of its key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    pub token: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Trust {
    /// PEM.
    Authority(Vec<u8>),
    Anybody,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    current_context: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    tls_server_name: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

impl Kubeconfig {
    /// The file given, or else the one that a server here would have written, or else `$KUBECONFIG`.
    pub fn path(path: Option<&Path>) -> anyhow::Result<PathBuf> {
        match path {
            Some(path) => Ok(path.to_owned()),
            None => default_path(),
        }
    }

    /// Reads the file given, or else the one that a server here would have written, or else `$KUBECONFIG`.
    pub fn load(path: Option<&Path>, context: Option<&str>) -> anyhow::Result<Self> {
        let path = Self::path(path)?;
        let named = || format!("kubeconfig {}", path.display());
        let text = std::fs::read_to_string(&path).with_context(named)?;
        Self::parse(&text, path.parent().unwrap_or(Path::new(".")), context).with_context(named)
    }

    fn parse(text: &str, home: &Path, context: Option<&str>) -> anyhow::Result<Self> {
        let options = serde_saphyr::options! { with_snippet: false };
        let file: File = serde_saphyr::from_str_with_options(text, options)?;
        let wanted = context.unwrap_or(&file.current_context);
        let context = file.contexts.iter().find(|context| context.name == wanted);
        let context = &context
            .with_context(|| format!("it has no context {wanted:?}"))?
            .context;
        let cluster = file.clusters.iter().find(|cluster| cluster.name == context.cluster);
        let cluster = &cluster
            .with_context(|| format!("it has no cluster {:?}", context.cluster))?
            .cluster;
        let empty = User::default();
        let user = file
            .users
            .iter()
            .find(|user| user.name == context.user)
            .map_or(&empty, |user| &user.user);
        if user.exec.is_some() {
            bail!("its user runs a program for credentials, which mica does not");
        }
        let read = |what: &str, data: &Option<String>, file: &Option<PathBuf>| material(home, what, data, file);
        let trust = match read(
            "certificate authority",
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        )? {
            _ if cluster.insecure_skip_tls_verify => Trust::Anybody,
            Some(pem) => Trust::Authority(pem),
            None => bail!("its cluster names no certificate authority"),
        };
        let certificate = read(
            "client certificate",
            &user.client_certificate_data,
            &user.client_certificate,
        )?;
        let key = read("client key", &user.client_key_data, &user.client_key)?;
        let token = match &user.token_file {
            Some(file) => Some(
                std::fs::read_to_string(home.join(file))
                    .context("token file")?
                    .trim()
                    .to_owned(),
            ),
            None => user.token.clone(),
        };
        Ok(Self {
            server: cluster.server.trim_end_matches('/').to_owned(),
            tls_server_name: cluster.tls_server_name.clone(),
            trust,
            certificate: certificate.zip(key),
            token,
        })
    }

    /// The same server at its root, whatever part of it the context is at.
    #[must_use]
    pub fn at_root(mut self) -> Self {
        let start = self.server.find("://").map_or(0, |at| at + 3);
        if let Some(at) = self.server[start..].find('/') {
            self.server.truncate(start + at);
        }
        self
    }

    /// A kubeconfig for another address on the same server, with the same credentials.
    pub fn at(&self, context: &str, server: &str) -> serde_json::Value {
        const USER: &str = "mica-user";
        let (certificate, key) = self.certificate.clone().unwrap_or_default();
        let mut config = self.for_user(context, server, USER, &certificate, &key);
        if self.certificate.is_none() {
            config["users"][0]["user"] = serde_json::json!({});
        }
        if let Some(token) = &self.token {
            config["users"][0]["user"]["token"] = token.as_str().into();
        }
        config
    }

    /// Writes a context for another address of the same server into a kubeconfig, with the user of one that is there, and
    /// makes it the current one.
    pub fn switch(path: &Path, from: Option<&str>, name: &str, server: &str) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let changed = switched(&text, from, name, server).with_context(|| path.display().to_string())?;
        Ok(write_private(path, changed.as_bytes())?)
    }

    /// A kubeconfig for another address on the same server, and for somebody with a certificate.
    pub fn for_user(
        &self,
        context: &str,
        server: &str,
        name: &str,
        certificate: &[u8],
        key: &[u8],
    ) -> serde_json::Value {
        let encode = |bytes: &[u8]| STANDARD.encode(bytes);
        let mut cluster = serde_json::json!({ "server": server });
        match &self.trust {
            Trust::Authority(pem) => cluster["certificate-authority-data"] = encode(pem).into(),
            Trust::Anybody => cluster["insecure-skip-tls-verify"] = true.into(),
        }
        if let Some(name) = &self.tls_server_name {
            cluster["tls-server-name"] = name.as_str().into();
        }
        let user = serde_json::json!({"client-certificate-data": encode(certificate), "client-key-data": encode(key)});
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": name}}],
            "current-context": context,
        })
    }
}

/// The text of a kubeconfig with one more context, which is the current one.
fn switched(text: &str, from: Option<&str>, name: &str, server: &str) -> anyhow::Result<String> {
    let json = mica_machinery::yaml::to_json(text.as_bytes())?.json;
    let mut file: Value = serde_json::from_slice(&json)?;
    let from = match from {
        Some(from) => from.to_owned(),
        None => file["current-context"].as_str().unwrap_or_default().to_owned(),
    };
    let context = named(&file["contexts"], &from).with_context(|| format!("it has no context {from:?}"))?;
    let mut context = context["context"].clone();
    let cluster = context["cluster"].as_str().unwrap_or_default();
    let cluster = named(&file["clusters"], cluster).with_context(|| format!("it has no cluster {cluster:?}"))?;
    let mut cluster = cluster["cluster"].clone();
    cluster["server"] = server.into();
    context["cluster"] = name.into();
    if let Some(context) = context.as_object_mut() {
        // It was that of another place.
        context.remove("namespace");
    }
    put(&mut file["clusters"], name, "cluster", cluster);
    put(&mut file["contexts"], name, "context", context);
    file["current-context"] = name.into();
    Ok(mica_machinery::yaml::from_json(&file))
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|entry| entry["name"] == name)
}

fn put(list: &mut Value, name: &str, field: &str, value: Value) {
    let mut all = list.as_array().cloned().unwrap_or_default();
    all.retain(|entry| entry["name"] != name);
    all.push(serde_json::json!({"name": name, field: value}));
    *list = all.into();
}

fn default_path() -> anyhow::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = set("MICA_DATA_DIR").map_or_else(|| PathBuf::from("./.mica"), PathBuf::from);
    let ours = home.join("admin.kubeconfig");
    if ours.exists() {
        return Ok(ours);
    }
    match set("KUBECONFIG") {
        Some(path) => Ok(path.into()),
        None => bail!(
            "no kubeconfig: {} is not there, and neither --kubeconfig nor $KUBECONFIG is given",
            ours.display()
        ),
    }
}

/// Inline data wins over a file, as in kubectl. Files are relative to the kubeconfig.
fn material(home: &Path, what: &str, data: &Option<String>, file: &Option<PathBuf>) -> anyhow::Result<Option<Vec<u8>>> {
    match (data, file) {
        (Some(data), _) if !data.is_empty() => STANDARD
            .decode(data)
            .map(Some)
            .with_context(|| format!("its {what} is not base64")),
        (_, Some(file)) => {
            let path = home.join(file);
            std::fs::read(&path)
                .map(Some)
                .with_context(|| format!("its {what} {}", path.display()))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
apiVersion: v1
kind: Config
clusters:
- name: a
  cluster: {server: "https://a:1/", certificate-authority-data: Q0E=}
- name: b
  cluster: {server: "https://b:2", certificate-authority: ca.crt}
users:
- name: admin
  user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ}
- name: helper
  user: {exec: {command: x}}
contexts:
- name: one
  context: {cluster: a, user: admin, namespace: default}
- name: two
  context: {cluster: b, user: nobody}
- name: three
  context: {cluster: a, user: helper}
current-context: one
"#;

    #[test]
    fn going_elsewhere_adds_a_context_with_the_same_user() {
        let home = tempfile::tempdir().unwrap();
        let web = "https://a:1/projects/web/control-plane";
        let text = switched(FILE, None, "mica-project-web", web).unwrap();
        let there = Kubeconfig::parse(&text, home.path(), None).unwrap();
        assert_eq!((there.server.as_str(), there.certificate.is_some()), (web, true));
        assert_eq!(there.at_root().server, "https://a:1");
        // Once more, and from there.
        let again = switched(&text, None, "mica-project-web", web).unwrap();
        assert_eq!(again, text);
        assert_eq!(
            Kubeconfig::parse(&text, home.path(), Some("one")).unwrap().server,
            "https://a:1"
        );
        let refused = switched(FILE, Some("nine"), "x", web).unwrap_err().to_string();
        assert_eq!(refused, "it has no context \"nine\"");
    }

    #[test]
    fn a_context_is_read_with_its_files() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("ca.crt"), "other CA").unwrap();
        let one = Kubeconfig::parse(FILE, home.path(), None).unwrap();
        assert_eq!(one.server, "https://a:1");
        assert_eq!(one.certificate, Some((b"CERT".to_vec(), b"KEY".to_vec())));
        let two = Kubeconfig::parse(FILE, home.path(), Some("two")).unwrap();
        assert!(matches!(two.trust, Trust::Authority(pem) if pem == b"other CA"));
        assert_eq!(two.certificate, None);
        let refused = |context| format!("{:#}", Kubeconfig::parse(FILE, home.path(), Some(context)).unwrap_err());
        assert_eq!(refused("nine"), "it has no context \"nine\"");
        assert_eq!(
            refused("three"),
            "its user runs a program for credentials, which mica does not"
        );
        let address = "https://a:1/clusters/p1/control-plane";
        let plane = one.for_user("p1", address, "x", b"C2", b"K2").to_string();
        let again = Kubeconfig::parse(&plane, home.path(), None).unwrap();
        assert_eq!(
            (again.server.as_str(), again.certificate),
            (address, Some((b"C2".to_vec(), b"K2".to_vec())))
        );
    }
}
