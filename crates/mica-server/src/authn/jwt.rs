//! Signed tokens in compact form: three parts of base64, of which the last signs the first two.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mica_machinery::object;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use ring::hkdf;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::key::PublicKey;

/// Longer tokens are not looked at.
const MAX_TOKEN: usize = 16 * 1024;

const ALGORITHM: &str = "ES256";

/// A key that signs with ES256.
pub struct Key {
    secret: SigningKey,
    /// The public point, uncompressed.
    public: [u8; 65],
    id: String,
}

impl Key {
    /// The key that a secret gives for a purpose: always the same.
    pub fn derive(secret: &[u8; 32], purpose: &str) -> Self {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, b"mica").extract(secret);
        // All but one in 2^32 of these numbers are keys.
        for attempt in 0_u8..=u8::MAX {
            let mut bytes = [0; 32];
            let info = [purpose.as_bytes(), &[attempt]];
            let filled = root
                .expand(&info, hkdf::HKDF_SHA256)
                .and_then(|okm| okm.fill(&mut bytes));
            filled.expect("32 bytes are the length of one hash");
            if let Ok(secret) = SigningKey::from_slice(&bytes) {
                return Self::new(secret);
            }
        }
        unreachable!("256 numbers in a row that are no keys")
    }

    fn new(secret: SigningKey) -> Self {
        let point = secret.verifying_key().to_sec1_point(false);
        let public: [u8; 65] = point.as_bytes().try_into().expect("an uncompressed point has 65 bytes");
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(public));
        Self { secret, public, id }
    }

    /// The public half, as documents of keys have it.
    pub fn shown(&self) -> Value {
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&self.public[range]);
        json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": ALGORITHM, "x": part(1..33), "y": part(33..65)})
    }

    /// The whole key, in the form that makers of certificates read.
    pub fn to_pkcs8(&self) -> Vec<u8> {
        const HEAD: &[u8] = b"\x30\x81\x87\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x04\x6d\x30\x6b\x02\x01\x01\x04\x20";
        const MIDDLE: &[u8] = b"\xa1\x44\x03\x42\x00";
        [HEAD, &self.secret.to_bytes(), MIDDLE, &self.public].concat()
    }

    pub fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": ALGORITHM, "kid": self.id});
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
        let signature: Signature = self.secret.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.to_bytes(), &mut token);
        token
    }
}

/// A token taken apart. Nothing in it is proven before [`Token::is_signed_by`] or [`Token::is_signed_with`] says so.
pub struct Token<'a> {
    pub algorithm: String,
    /// Which key the token says that it is signed with; empty if it does not.
    pub key: String,
    pub claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        if text.len() > MAX_TOKEN {
            return None;
        }
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let read = |part: &str| -> Option<Value> { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok() };
        let header = read(header)?;
        // Nothing that a header may demand beyond these is known here, so that what demands it is refused.
        if header.get("crit").is_some() {
            return None;
        }
        Some(Self {
            algorithm: header.get("alg")?.as_str()?.to_owned(),
            key: object::string(&header, &["kid"]).to_owned(),
            claims: read(claims).filter(Value::is_object)?,
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }

    pub fn is_signed_by(&self, key: &Key) -> bool {
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public);
        self.algorithm == ALGORITHM && public.verify(self.signed.as_bytes(), &self.signature).is_ok()
    }

    /// Whether a public key of somebody else's signed it, by an algorithm that such a key may be used with.
    pub fn is_signed_with(&self, key: &PublicKey) -> bool {
        key.verify(&self.algorithm, self.signed.as_bytes(), &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_keys_and_nobody_elses() {
        let (one, two) = (Key::derive(&[1; 32], "a"), Key::derive(&[1; 32], "b"));
        assert_eq!(one.id, Key::derive(&[1; 32], "a").id);
        assert!(one.id != two.id && one.id != Key::derive(&[2; 32], "a").id);
        let text = one.sign(&json!({"sub": "x"}));
        let token = Token::parse(&text).unwrap();
        assert_eq!(token.claims["sub"], "x");
        assert!(token.is_signed_by(&one) && !token.is_signed_by(&two));
    }

    #[test]
    fn what_was_changed_is_not_signed() {
        let key = Key::derive(&[1; 32], "a");
        let text = key.sign(&json!({"sub": "x"}));
        let parts: Vec<&str> = text.split('.').collect();
        let other = URL_SAFE_NO_PAD.encode(r#"{"sub":"y"}"#);
        let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        for forged in [
            format!("{}.{other}.{}", parts[0], parts[2]),
            format!("{unsigned}.{}.", parts[1]),
            format!("{unsigned}.{}.{}", parts[1], parts[2]),
        ] {
            assert!(!Token::parse(&forged).unwrap().is_signed_by(&key), "{forged}");
        }
        for broken in ["", "a", "a.b", "a.b.c", "..", &"x".repeat(MAX_TOKEN + 1)] {
            assert!(Token::parse(broken).is_none(), "{broken}");
        }
    }
}
