//! Certificates and kubeconfigs for the servers that the bench starts itself: the reference and the floor.

use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// A fresh authority that lives as long as one run.
pub struct Authority {
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = named(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// A pair for a server on this machine.
    pub fn serving(&self) -> Result<Pair> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.distinguished_name = named("server", None);
        self.sign(&params)
    }

    /// A pair for a client that may do everything.
    pub fn admin(&self) -> Result<Pair> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = named("admin", Some("system:masters"));
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn named(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

/// Writes a kubeconfig with its credentials inside.
pub fn write_kubeconfig(path: &Path, port: u16, ca: &str, admin: &Pair) -> Result<()> {
    let [ca, certificate, key] = [ca, &admin.certificate, &admin.key].map(|pem| STANDARD.encode(pem));
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: root\n\
         contexts:\n- name: root\n  context: {{cluster: root, user: admin}}\n\
         clusters:\n- name: root\n  cluster:\n    server: https://127.0.0.1:{port}\n    certificate-authority-data: {ca}\n\
         users:\n- name: admin\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
    );
    Ok(std::fs::write(path, text)?)
}
