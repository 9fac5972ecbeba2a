//! Signing what others ask for: certificates for the keys of signing requests.
//!
//! What goes in is as upstream's signers have it (`pkg/controller/certificates/authority`): the request's subject, key and
//! alternative names, the usages that were approved, nothing else of the request, and never an authority.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, SigningKey as _};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::PkiError;
use super::authority::{Authority, Identity, named};
use super::der::{self, Critical, SEQUENCE};

/// Certificates are valid from a little before they are made.
const BACKDATED: Duration = Duration::from_secs(5 * 60);
/// Those that live no longer than this are not shortened by it.
const SHORT: Duration = Duration::from_secs(8 * 3600);

const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
const ALTERNATIVE_NAMES: &[u64] = &[2, 5, 29, 17];
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const AUTHORITY_KEY: &[u64] = &[2, 5, 29, 35];
const EXTENDED_USAGE: &[u64] = &[2, 5, 29, 37];

/// A new key and a request for a client's certificate for it, both in PEM.
pub fn ask(identity: &Identity) -> Result<(String, String), PkiError> {
    let key = KeyPair::generate().map_err(PkiError::NotMade)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&identity.name, identity.group.as_deref());
    let request = params.serialize_request(&key).map_err(PkiError::NotMade)?;
    Ok((key.serialize_pem(), request.pem().map_err(PkiError::NotMade)?))
}

/// Names of usages, and their bits.
const BITS: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Names of further usages, and their ids, in the order in which certificates have them.
const PURPOSES: [(&str, &[u64]); 13] = [
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113_730, 4, 1]),
];

/// A signing request, read and found to be signed with the key that it is for.
pub struct SigningRequest {
    subject: Vec<u8>,
    key: Vec<u8>,
    pub common_name: String,
    pub organizations: Vec<String>,
    pub names: AlternativeNames,
}

/// The alternative names of a request, by their sort, as bytes.
#[derive(Default)]
pub struct AlternativeNames {
    pub dns: Vec<Vec<u8>>,
    pub emails: Vec<Vec<u8>>,
    pub addresses: Vec<Vec<u8>>,
    pub uris: Vec<Vec<u8>>,
}

impl SigningRequest {
    pub fn from_der(request: &[u8]) -> Result<Self, PkiError> {
        let (_, request) = X509CertificationRequest::from_der(request).map_err(PkiError::unreadable)?;
        request.verify_signature().map_err(PkiError::unreadable)?;
        let info = &request.certification_request_info;
        let text = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| part.as_str().ok().map(str::to_owned);
        let mut names = AlternativeNames::default();
        let asked = request.requested_extensions().into_iter().flatten();
        for extension in asked {
            if let ParsedExtension::SubjectAlternativeName(list) = extension {
                list.general_names.iter().for_each(|name| names.add(name));
            }
        }
        Ok(Self {
            subject: info.subject.as_raw().to_vec(),
            key: info.subject_pki.raw.to_vec(),
            common_name: info.subject.iter_common_name().find_map(text).unwrap_or_default(),
            organizations: info.subject.iter_organization().filter_map(text).collect(),
            names,
        })
    }
}

impl AlternativeNames {
    fn add(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns.push(name.as_bytes().to_vec()),
            GeneralName::RFC822Name(name) => self.emails.push(name.as_bytes().to_vec()),
            GeneralName::IPAddress(bytes) => self.addresses.push(bytes.to_vec()),
            GeneralName::URI(uri) => self.uris.push(uri.as_bytes().to_vec()),
            _ => {}
        }
    }

    /// The content of the extension, in the order of Go's library; empty where there are none.
    fn encoded(&self) -> Vec<u8> {
        let sorts = [(2, &self.dns), (1, &self.emails), (7, &self.addresses), (6, &self.uris)];
        let each = |(tag, names): (u8, &Vec<Vec<u8>>)| -> Vec<u8> {
            names
                .iter()
                .flat_map(|name| der::tlv(der::context(tag), name))
                .collect()
        };
        sorts.into_iter().flat_map(each).collect()
    }
}

impl Authority {
    /// The certificate that a request asks for, in PEM, good for some time from now but no longer than this authority.
    pub fn sign(
        &self,
        request: &SigningRequest,
        usages: &[&str],
        life: Duration,
        now: jiff::Timestamp,
    ) -> Result<String, PkiError> {
        let (_, issuer) = X509Certificate::from_der(self.certificate()).map_err(PkiError::unreadable)?;
        let until =
            jiff::Timestamp::from_second(issuer.validity().not_after.timestamp()).map_err(PkiError::unreadable)?;
        if now >= until {
            return Err(PkiError::unreadable("the signer has expired"));
        }
        let backdated = if life < SHORT { Duration::ZERO } else { BACKDATED };
        let ends = (now + (life - backdated.min(life))).min(until);
        let validity = der::nest(SEQUENCE, &[&der::time(now - BACKDATED), &der::time(ends)]);
        let algorithm = self.algorithm()?;
        let serial: [u8; 16] = rand::random();
        let extensions = extensions(request, usages, &issuer)?;
        let to_sign = der::nest(
            SEQUENCE,
            &[
                // Version 3.
                &der::tlv(der::explicit(0), &der::integer(&[2])),
                &der::integer(&serial),
                &algorithm,
                issuer.subject().as_raw(),
                &validity,
                &request.subject,
                &request.key,
                &der::tlv(der::explicit(3), &der::tlv(SEQUENCE, &extensions)),
            ],
        );
        let signature = self.key().sign(&to_sign).map_err(PkiError::NotMade)?;
        let certificate = der::nest(SEQUENCE, &[&to_sign, &algorithm, &der::bit_string(0, &signature)]);
        Ok(pem(&certificate))
    }

    /// How this authority signs, as certificates say it.
    fn algorithm(&self) -> Result<Vec<u8>, PkiError> {
        let key = self.key();
        let (arcs, parameters): (&[u64], &[u8]) = if key.is_compatible(&PKCS_ECDSA_P256_SHA256) {
            (&[1, 2, 840, 10045, 4, 3, 2], &[])
        } else if key.is_compatible(&PKCS_ECDSA_P384_SHA384) {
            (&[1, 2, 840, 10045, 4, 3, 3], &[])
        } else if key.is_compatible(&PKCS_ED25519) {
            (&[1, 3, 101, 112], &[])
        } else if key.is_compatible(&PKCS_RSA_SHA256) {
            (&[1, 2, 840, 113_549, 1, 1, 11], &[5, 0])
        } else {
            return Err(PkiError::unreadable("the authority's key is of an unknown sort"));
        };
        Ok(der::nest(SEQUENCE, &[&der::object_id(arcs), parameters]))
    }
}

/// The extensions of a certificate for a request, in the order of Go's library.
fn extensions(request: &SigningRequest, usages: &[&str], issuer: &X509Certificate<'_>) -> Result<Vec<u8>, PkiError> {
    let mut bits = 0_u16;
    let mut purposes: Vec<(usize, &[u64])> = Vec::new();
    for usage in usages {
        if let Some((_, bit)) = BITS.iter().find(|(name, _)| name == usage) {
            bits |= 0x8000 >> bit;
        } else if let Some(at) = PURPOSES.iter().position(|(name, _)| name == usage) {
            purposes.push((at, PURPOSES[at].1));
        } else {
            return Err(PkiError::unreadable(format!("unrecognized usage values: [{usage:?}]")));
        }
    }
    let mut out = Vec::new();
    if bits != 0 {
        let unused = bits.trailing_zeros();
        let bytes = if unused >= 8 { 1 } else { 2 };
        let value = der::bit_string(
            u8::try_from(unused % 8).expect("less than eight"),
            &bits.to_be_bytes()[..bytes],
        );
        out.extend(der::extension(KEY_USAGE, Critical::Yes, &value));
    }
    if !purposes.is_empty() {
        purposes.sort_unstable();
        purposes.dedup_by_key(|(_, arcs)| *arcs);
        let ids: Vec<u8> = purposes.iter().flat_map(|(_, arcs)| der::object_id(arcs)).collect();
        out.extend(der::extension(EXTENDED_USAGE, Critical::No, &der::tlv(SEQUENCE, &ids)));
    }
    out.extend(der::extension(
        BASIC_CONSTRAINTS,
        Critical::Yes,
        &der::tlv(SEQUENCE, &[]),
    ));
    let key_id = issuer
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
    if let Some(id) = key_id {
        let value = der::tlv(SEQUENCE, &der::tlv(der::context(0), id));
        out.extend(der::extension(AUTHORITY_KEY, Critical::No, &value));
    }
    let names = request.names.encoded();
    if !names.is_empty() {
        // Without a subject the names are all there is.
        let critical = if request.subject == [SEQUENCE, 0] {
            Critical::Yes
        } else {
            Critical::No
        };
        out.extend(der::extension(ALTERNATIVE_NAMES, critical, &der::tlv(SEQUENCE, &names)));
    }
    Ok(out)
}

fn pem(certificate: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rcgen::{DnType, SanType};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn request() -> SigningRequest {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.subject_alt_names = vec![
            SanType::DnsName("a.example".try_into().unwrap()),
            SanType::IpAddress("10.0.0.7".parse().unwrap()),
        ];
        SigningRequest::from_der(params.serialize_request(&key).unwrap().der()).unwrap()
    }

    #[test]
    fn a_certificate_holds_what_was_asked_and_approved() {
        let authority = Authority::generate("ca", SystemTime::now()).unwrap();
        let request = request();
        assert_eq!(
            (request.common_name.as_str(), request.organizations.as_slice()),
            ("system:node:a", &["system:nodes".to_owned()][..])
        );
        let now = jiff::Timestamp::now();
        let usages = ["digital signature", "key encipherment", "server auth"];
        let pem = authority
            .sign(&request, &usages, Duration::from_secs(3600), now)
            .unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (rest, leaf) = X509Certificate::from_der(&der).unwrap();
        assert!(rest.is_empty());
        let (_, ca) = X509Certificate::from_der(authority.certificate()).unwrap();
        leaf.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(leaf.subject().to_string(), "O=system:nodes, CN=system:node:a");
        assert_eq!(leaf.issuer(), ca.subject());
        assert!(!leaf.is_ca());
        let usage = leaf.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign());
        let purposes = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.server_auth && !purposes.client_auth && !purposes.any);
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 2);
        let validity = leaf.validity();
        assert_eq!(validity.not_after.timestamp(), now.as_second() + 3600);
        assert_eq!(validity.not_before.timestamp(), now.as_second() - 300);
        let long = authority.sign(&request, &usages, Duration::from_secs(400 * 24 * 3600 * 365), now);
        let der = CertificateDer::from_pem_slice(long.unwrap().as_bytes()).unwrap();
        let (_, long) = X509Certificate::from_der(&der).unwrap();
        assert_eq!(
            long.validity().not_after,
            ca.validity().not_after,
            "no longer than its signer"
        );
        assert!(
            authority
                .sign(&request, &["nonsense"], Duration::from_secs(600), now)
                .is_err()
        );
    }
}
