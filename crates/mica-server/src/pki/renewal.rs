//! Renewing the serving certificate while the server runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

use super::PkiError;
use super::authority::{Authority, LOOK_INTERVAL};
use super::directory::{PkiDir, write_private};
use super::kubeconfig::admin_kubeconfig;
use crate::tls::{ServingCertificates, certified_key};

/// Keeps a running server's certificate, and the administrator's kubeconfig, from expiring.
pub struct Renewal {
    pub authority: Arc<Authority>,
    pub directory: PkiDir,
    /// What the serving certificate must name.
    pub hosts: Vec<String>,
    pub certificates: Arc<ServingCertificates>,
    /// The administrator's kubeconfig and the address it names.
    pub kubeconfig: PathBuf,
    pub server: String,
}

impl Renewal {
    /// Looks every hour until `stop`. A failure is logged and tried again an hour later: months remain.
    pub async fn run(self, stop: CancellationToken) {
        let mut last = String::new();
        loop {
            match self.renew(SystemTime::now(), &last) {
                Ok(certificate) => last = certificate,
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "certificates were not renewed"
                ),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// Renews what is due at `now`, and returns the certificate that is served. Files are written only when it changed.
    fn renew(&self, now: SystemTime, served: &str) -> Result<String, PkiError> {
        let issued = self.directory.serving(&self.authority, &self.hosts, now)?;
        if issued.certificate_pem != served {
            self.certificates.replace(certified_key(&issued)?);
            tracing::debug!("serving certificate loaded");
        }
        let admin = self.directory.admin(&self.authority, now)?;
        let text = admin_kubeconfig(&self.server, self.authority.certificate_pem(), &admin);
        if std::fs::read_to_string(&self.kubeconfig).ok().as_ref() != Some(&text) {
            write_private(&self.kubeconfig, text.as_bytes())?;
        }
        Ok(issued.certificate_pem)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pki::serving_names;

    #[test]
    fn certificates_are_replaced_in_the_last_third_of_their_life() {
        let home = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let directory = PkiDir::open(home.path().join("pki")).unwrap();
        let authority = Arc::new(Authority::generate("mica-ca", now).unwrap());
        let hosts = serving_names([]);
        let first = directory.serving(&authority, &hosts, now).unwrap();
        let renewal = Renewal {
            certificates: Arc::new(ServingCertificates::new(certified_key(&first).unwrap())),
            authority,
            directory,
            hosts,
            kubeconfig: home.path().join("admin.kubeconfig"),
            server: "https://127.0.0.1:6440".to_owned(),
        };
        let day = Duration::from_secs(24 * 3600);
        let served = renewal.renew(now, &first.certificate_pem).unwrap();
        assert_eq!(served, first.certificate_pem);
        let config = std::fs::read_to_string(&renewal.kubeconfig).unwrap();
        assert!(config.contains("server: \"https://127.0.0.1:6440\"\n"));
        assert_eq!(renewal.renew(now + 200 * day, &served).unwrap(), served);
        let later = renewal.renew(now + 250 * day, &served).unwrap();
        assert_ne!(later, served);
        assert_ne!(std::fs::read_to_string(&renewal.kubeconfig).unwrap(), config);
    }
}
