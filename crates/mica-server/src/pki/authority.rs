//! The authority: makes and signs.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::PkiError;

const DAY: Duration = Duration::from_secs(24 * 3600);
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Certificates are valid from a little before they are made: clocks differ.
const BACKDATED: Duration = Duration::from_secs(300);

/// The user of the certificate made at first start.
pub const ADMIN_NAME: &str = "kubernetes-admin";
/// The group that authorization lets do everything.
pub const ADMIN_GROUP: &str = "system:masters";

/// A certificate authority that can sign.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

/// Who a client certificate speaks for.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The common name: the user.
    pub name: String,
    /// The organization: a group. Only one, because rcgen's names hold one value of a kind.
    pub group: Option<String>,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Issued {
    pub certificate_pem: String,
    pub key_pem: String,
    /// When a third of its life remains: the time to issue another.
    pub renew_at: SystemTime,
}

impl Authority {
    pub fn generate(name: &str, now: SystemTime) -> Result<Self, PkiError> {
        let key = KeyPair::generate().map_err(PkiError::NotMade)?;
        let mut params = params(named(name, None), now, AUTHORITY_LIFE);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key).map_err(PkiError::NotMade)?;
        Self::from_pem(&certificate.pem(), &key.serialize_pem())
    }

    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(PkiError::unreadable)?;
        let key = KeyPair::from_pem(key_pem).map_err(PkiError::unreadable)?;
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(PkiError::unreadable)?;
        if parsed.public_key().subject_public_key.data != key.der_bytes() {
            return Err(PkiError::Mismatch);
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(PkiError::unreadable)?;
        Ok(Self {
            issuer,
            certificate: certificate.into_owned(),
            certificate_pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
        })
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The private key, for whoever keeps the authority.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    pub(super) fn key(&self) -> &KeyPair {
        self.issuer.key()
    }

    /// A certificate of this authority for another's key, in PEM.
    pub(super) fn certify(&self, mut params: CertificateParams, key: &KeyPair) -> Result<String, PkiError> {
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, &self.issuer).map_err(PkiError::NotMade)?;
        Ok(certificate.pem())
    }

    /// A certificate that a server shows, for DNS names and IP addresses.
    pub fn issue_serving(&self, name: &str, hosts: &[String], now: SystemTime) -> Result<Issued, PkiError> {
        // A common name holds 64 characters; clients look at the alternative names only.
        let short: String = name.chars().take(64).collect();
        let mut params = params(named(&short, None), now, LEAF_LIFE);
        params.subject_alt_names = hosts
            .iter()
            .map(|host| alternative_name(host))
            .collect::<Result<_, _>>()?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params, now)
    }

    /// A certificate that a client shows.
    pub fn issue_client(&self, identity: &Identity, now: SystemTime) -> Result<Issued, PkiError> {
        let mut params = params(named(&identity.name, identity.group.as_deref()), now, LEAF_LIFE);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params, now)
    }

    fn issue(&self, mut params: CertificateParams, now: SystemTime) -> Result<Issued, PkiError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(PkiError::NotMade)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(PkiError::NotMade)?;
        Ok(Issued {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            renew_at: now + LEAF_LIFE * 2 / 3,
        })
    }

    /// Takes up a leaf issued before, if it is still right: ours, with its key, for all of `hosts`, not due for renewal.
    pub fn readopt(&self, certificate_pem: &str, key_pem: &str, hosts: &[String], now: SystemTime) -> Option<Issued> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
        let (_, leaf) = X509Certificate::from_der(&der).ok()?;
        let (_, authority) = X509Certificate::from_der(&self.certificate).ok()?;
        leaf.verify_signature(Some(authority.public_key())).ok()?;
        let key = KeyPair::from_pem(key_pem).ok()?;
        if leaf.public_key().subject_public_key.data != key.der_bytes() || !covers(&leaf, hosts) {
            return None;
        }
        let seconds = |at: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(at).unwrap_or(0));
        let (from, until) = (
            seconds(leaf.validity().not_before.timestamp()),
            seconds(leaf.validity().not_after.timestamp()),
        );
        let renew_at = until - until.duration_since(from).ok()? / 3;
        let due = now < from || now >= renew_at;
        (!due).then(|| Issued {
            certificate_pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
            renew_at,
        })
    }
}

/// Names and addresses that the server's own certificate must hold: what every Kubernetes server has, plus `more`.
pub fn serving_names(more: impl IntoIterator<Item = String>) -> Vec<String> {
    let fixed = [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut names: Vec<String> = fixed.into_iter().map(str::to_owned).collect();
    for name in more {
        let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
        // The unspecified address is listened on, never asked for.
        let unspecified = name.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
        if !name.is_empty() && !unspecified && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn params(subject: DistinguishedName, now: SystemTime, life: Duration) -> CertificateParams {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let date = |at: SystemTime| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds(at));
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.not_before = date(now - BACKDATED);
    params.not_after = date(now + life);
    // Positive and never empty, as RFC 5280 wants it.
    let mut serial: [u8; 16] = rand::random();
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params
}

pub(super) fn named(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common);
    name
}

fn alternative_name(host: &str) -> Result<SanType, PkiError> {
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ia5String::try_from(host)
            .map(SanType::DnsName)
            .map_err(PkiError::NotMade),
    }
}

fn covers(leaf: &X509Certificate<'_>, hosts: &[String]) -> bool {
    let Ok(Some(names)) = leaf.subject_alternative_name() else {
        return hosts.is_empty();
    };
    let held = |host: &String| {
        names
            .value
            .general_names
            .iter()
            .any(|name| match (name, host.parse::<IpAddr>()) {
                (GeneralName::IPAddress(bytes), Ok(IpAddr::V4(address))) => *bytes == address.octets(),
                (GeneralName::IPAddress(bytes), Ok(IpAddr::V6(address))) => *bytes == address.octets(),
                (GeneralName::DNSName(name), Err(_)) => name == host,
                _ => false,
            })
    };
    hosts.iter().all(held)
}

/// The DNS names of a certificate.
pub(crate) fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(dns).collect()
}

/// How often certificates are looked at: far more often than a third of their life needs.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(DAY.as_secs() / 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_readopted_only_while_it_is_right() {
        let now = SystemTime::now();
        let authority = Authority::generate("ca", now).unwrap();
        let hosts = serving_names(["mica.example".to_owned(), "[fd00::5]".to_owned(), "0.0.0.0".to_owned()]);
        assert!(!hosts.contains(&"0.0.0.0".to_owned()));
        let leaf = authority.issue_serving("mica", &hosts, now).unwrap();
        let readopt = |authority: &Authority, hosts: &[String], now| {
            authority
                .readopt(&leaf.certificate_pem, &leaf.key_pem, hosts, now)
                .is_some()
        };
        assert!(readopt(&authority, &hosts, now));
        assert!(readopt(&authority, &hosts[..2], now), "fewer names are covered");
        assert!(
            !readopt(&authority, &["other.example".to_owned()], now),
            "a new name needs a new certificate"
        );
        assert!(!readopt(&authority, &["10.0.0.1".to_owned()], now));
        assert!(readopt(&authority, &hosts, now + LEAF_LIFE * 60 / 100));
        assert!(
            !readopt(&authority, &hosts, now + LEAF_LIFE * 70 / 100),
            "a third of its life remains"
        );
        let other = Authority::generate("ca", now).unwrap();
        assert!(!readopt(&other, &hosts, now), "same name, other key");
    }

    #[test]
    fn an_authority_survives_its_pem_and_a_wrong_key_is_refused() {
        let now = SystemTime::now();
        let authority = Authority::generate("ca", now).unwrap();
        let again = Authority::from_pem(authority.certificate_pem(), authority.key_pem()).unwrap();
        let identity = Identity {
            name: "a".into(),
            group: Some("g".into()),
        };
        let leaf = again.issue_client(&identity, now).unwrap();
        assert!(
            authority
                .readopt(&leaf.certificate_pem, &leaf.key_pem, &[], now)
                .is_some()
        );
        let other = Authority::generate("ca", now).unwrap();
        assert!(matches!(
            Authority::from_pem(authority.certificate_pem(), other.key_pem()),
            Err(PkiError::Mismatch)
        ));
        let der = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).unwrap();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        assert_eq!(parsed.subject().to_string(), "O=g, CN=a");
    }
}
