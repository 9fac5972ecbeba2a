//! Keys of service account tokens that somebody gave to root: one that signs, and those that verify.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents};
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::jwt::Token;
use super::key::PublicKey;

/// The keys that root's tokens are signed and verified with.
#[derive(Default)]
pub struct GivenKeys {
    signs: Option<(String, Private)>,
    verify: Vec<(String, PublicKey)>,
}

enum Private {
    Rsa(Box<RsaKeyPair>),
    P256(Box<SigningKey>),
}

impl fmt::Debug for GivenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.verify.iter().map(|(id, _)| id)).finish()
    }
}

impl GivenKeys {
    /// Takes the key that signs, from a file in PEM. It verifies, too.
    pub fn sign_with(&mut self, pem: &[u8]) -> Result<(), String> {
        let found = sections(pem).into_iter().find_map(|(kind, der)| private(kind, &der));
        let (public, private) = found.ok_or("data does not contain a valid RSA or ECDSA private key")?;
        let id = key_id(&public);
        self.add(id.clone(), public);
        self.signs = Some((id, private));
        Ok(())
    }

    /// Takes keys that verify, from a file in PEM: public ones, certificates, or private ones.
    pub fn verify_with(&mut self, pem: &[u8]) -> Result<(), String> {
        let mut found = false;
        for (kind, der) in sections(pem) {
            let key = public(kind, &der).or_else(|| private(kind, &der).map(|(public, _)| public));
            if let Some(key) = key {
                found = true;
                self.add(key_id(&key), key);
            }
        }
        match found {
            true => Ok(()),
            false => Err("data does not contain any valid RSA or ECDSA public keys".to_owned()),
        }
    }

    fn add(&mut self, id: String, key: PublicKey) {
        if !self.verify.iter().any(|(known, _)| *known == id) {
            self.verify.push((id, key));
        }
    }

    pub(super) fn signs(&self) -> bool {
        self.signs.is_some()
    }

    /// Signs, if there is a key that does.
    pub(super) fn sign(&self, claims: &Value) -> Option<String> {
        let (id, key) = self.signs.as_ref()?;
        let algorithm = match key {
            Private::Rsa(_) => "RS256",
            Private::P256(_) => "ES256",
        };
        let header = json!({"alg": algorithm, "kid": id});
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
        let signature = match key {
            Private::P256(key) => {
                let signature: Signature = key.sign(token.as_bytes());
                signature.to_bytes().to_vec()
            }
            Private::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let random = SystemRandom::new();
                key.sign(&RSA_PKCS1_SHA256, &random, token.as_bytes(), &mut signature)
                    .ok()?;
                signature
            }
        };
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Some(token)
    }

    pub(super) fn signed(&self, token: &Token<'_>) -> bool {
        let meant = |id: &String| token.key.is_empty() || *id == token.key;
        let mut keys = self.verify.iter();
        keys.any(|(id, key)| meant(id) && token.is_signed_with(key))
    }

    /// The algorithms that tokens may be signed by.
    pub(super) fn algorithms(&self) -> Vec<&'static str> {
        let mut algorithms: Vec<&str> = self.verify.iter().map(|(_, key)| algorithm(key)).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        algorithms
    }

    /// The public halves, as documents of keys have them.
    pub(super) fn shown(&self) -> Vec<Value> {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let shown = self.verify.iter().map(|(id, key)| {
            let mut shown = json!({"use": "sig", "kid": id, "alg": algorithm(key)});
            let more = match key {
                PublicKey::Rsa { modulus, exponent } => json!({"kty": "RSA", "n": text(modulus), "e": text(exponent)}),
                PublicKey::P256(point) | PublicKey::P384(point) => {
                    let (x, y) = point[1..].split_at(point.len() / 2);
                    let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                    json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y)})
                }
            };
            let more = more.as_object().cloned().unwrap_or_default();
            shown.as_object_mut().expect("it was made as an object").extend(more);
            shown
        });
        shown.collect()
    }
}

fn algorithm(key: &PublicKey) -> &'static str {
    match key {
        PublicKey::Rsa { .. } => "RS256",
        PublicKey::P256(_) => "ES256",
        PublicKey::P384(_) => "ES384",
    }
}

fn sections(pem: &[u8]) -> Vec<(SectionKind, Vec<u8>)> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect()
}

fn public(kind: SectionKind, der: &[u8]) -> Option<PublicKey> {
    match kind {
        SectionKind::Certificate => from_info(&X509Certificate::from_der(der).ok()?.1.tbs_certificate.subject_pki),
        SectionKind::PublicKey => from_info(&SubjectPublicKeyInfo::from_der(der).ok()?.1),
        _ => None,
    }
}

fn from_info(info: &SubjectPublicKeyInfo<'_>) -> Option<PublicKey> {
    match info.parsed().ok()? {
        Parsed::RSA(key) => Some(PublicKey::Rsa {
            modulus: trimmed(key.modulus),
            exponent: trimmed(key.exponent),
        }),
        Parsed::EC(point) => match point.data().len() {
            65 => Some(PublicKey::P256(point.data().to_vec())),
            97 => Some(PublicKey::P384(point.data().to_vec())),
            _ => None,
        },
        _ => None,
    }
}

fn trimmed(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number[zeros..].to_vec()
}

fn private(kind: SectionKind, der: &[u8]) -> Option<(PublicKey, Private)> {
    let rsa = match kind {
        SectionKind::RsaPrivateKey => RsaKeyPair::from_der(der).ok(),
        SectionKind::PrivateKey => RsaKeyPair::from_pkcs8(der).ok(),
        SectionKind::EcPrivateKey => None,
        _ => return None,
    };
    if let Some(pair) = rsa {
        let parts = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
        let public = PublicKey::Rsa {
            modulus: trimmed(&parts.n),
            exponent: trimmed(&parts.e),
        };
        return Some((public, Private::Rsa(Box::new(pair))));
    }
    // Both forms of a P-256 key hold the structure of RFC 5915: version 1, then the number in 32 bytes.
    const HEAD: &[u8] = b"\x02\x01\x01\x04\x20";
    let at = der.windows(HEAD.len()).position(|window| window == HEAD)? + HEAD.len();
    let key = SigningKey::from_slice(der.get(at..at + 32)?).ok()?;
    let point = key.verifying_key().to_sec1_point(false);
    let public = PublicKey::P256(point.as_bytes().to_vec());
    Some((public, Private::P256(Box::new(key))))
}

/// The name of a key: the hash of its whole public form, as upstream has it (`serviceaccount/jwt.go`).
fn key_id(key: &PublicKey) -> String {
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len().to_be_bytes();
        let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
        let mut out = vec![tag];
        match content.len() {
            0..128 => out.push(content.len() as u8),
            _ => {
                out.push(0x80 | length.len() as u8);
                out.extend(length);
            }
        }
        out.extend(content);
        out
    }
    fn number(bytes: &[u8]) -> Vec<u8> {
        let sign: &[u8] = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) {
            &[0]
        } else {
            &[]
        };
        der(2, &[sign, bytes].concat())
    }
    const EC: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01";
    let (algorithm, key) = match key {
        PublicKey::Rsa { modulus, exponent } => (
            b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00".to_vec(),
            der(0x30, &[number(modulus), number(exponent)].concat()),
        ),
        PublicKey::P256(point) => (
            [EC, b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"].concat(),
            point.clone(),
        ),
        PublicKey::P384(point) => ([EC, b"\x06\x05\x2b\x81\x04\x00\x22"].concat(), point.clone()),
    };
    let bits = der(3, &[&[0], &key[..]].concat());
    let info = der(0x30, &[der(0x30, &algorithm), bits].concat());
    URL_SAFE_NO_PAD.encode(Sha256::digest(info))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole public form of a P-256 key, and of a certificate, gives one name for one key.
    #[test]
    fn a_key_has_one_name_in_every_form_and_verifies_what_it_signed() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&pair).unwrap();
        let mut keys = GivenKeys::default();
        keys.sign_with(pair.serialize_pem().as_bytes()).unwrap();
        keys.verify_with(pair.public_key_pem().as_bytes()).unwrap();
        keys.verify_with(certificate.pem().as_bytes()).unwrap();
        assert_eq!(keys.verify.len(), 1, "one key, whatever it came in");
        assert_eq!(
            keys.verify[0].0,
            URL_SAFE_NO_PAD.encode(Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&pair)))
        );
        let text = keys.sign(&json!({"sub": "x"})).unwrap();
        assert!(keys.signed(&Token::parse(&text).unwrap()));
        let mut others = GivenKeys::default();
        let other = rcgen::KeyPair::generate().unwrap();
        others.verify_with(other.public_key_pem().as_bytes()).unwrap();
        assert!(!others.signed(&Token::parse(&text).unwrap()));
        assert!(keys.sign_with(b"nothing").is_err() && keys.verify_with(&certificate.pem().as_bytes()[..50]).is_err());
    }
}
