//! Kubeconfig files with credentials inline.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::authority::Issued;

/// What a kubeconfig with one context says.
#[derive(Clone, Copy, Debug)]
pub struct Kubeconfig<'a> {
    /// The name of its cluster entry and context.
    pub context: &'a str,
    pub user: &'a str,
    pub server: &'a str,
    pub authority_pem: &'a str,
    pub certificate_pem: &'a str,
    pub key_pem: &'a str,
}

/// The kubeconfig of the administrator at root.
pub fn admin_kubeconfig(server: &str, authority_pem: &str, admin: &Issued) -> String {
    Kubeconfig {
        context: "root",
        user: "admin",
        server,
        authority_pem,
        certificate_pem: &admin.certificate_pem,
        key_pem: &admin.key_pem,
    }
    .to_yaml()
}

impl Kubeconfig<'_> {
    pub fn to_yaml(&self) -> String {
        // JSON strings are YAML strings, whatever is in them.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (context, user, server) = (quoted(self.context), quoted(self.user), quoted(self.server));
        let authority = STANDARD.encode(self.authority_pem);
        let certificate = STANDARD.encode(self.certificate_pem);
        let key = STANDARD.encode(self.key_pem);
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: {context}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {context}
  context:
    cluster: {context}
    user: {user}
current-context: {context}
"
        )
    }
}
