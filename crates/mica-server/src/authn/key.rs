//! Public keys of others, as their documents (JWK sets) have them, and what each verifies.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mica_machinery::object;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::Value;

use super::jwt::Token;

/// The algorithms of signatures that count, as upstream has them; ES512 is not among those that can be checked here.
pub const ALGORITHMS: [&str; 9] = [
    "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
];

/// Keys of one set that are looked at. A token without a key's name is tried with each.
const MAX_KEYS: usize = 128;

/// A public key. Which algorithms it verifies is decided by what it is, never by what a token says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Points are uncompressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

impl PublicKey {
    pub fn verify(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let verified = match (self, algorithm) {
            (Self::Rsa { modulus, exponent }, algorithm) => {
                let parameters = match algorithm {
                    "RS256" => &RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &RSA_PSS_2048_8192_SHA256,
                    "PS384" => &RSA_PSS_2048_8192_SHA384,
                    "PS512" => &RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                let components = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                components.verify(parameters, message, signature)
            }
            (Self::P256(point), "ES256") => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Self::P384(point), "ES384") => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }

    /// The key that a JWK is, if it is one of those that sign tokens.
    fn from_jwk(jwk: &Value) -> Option<Self> {
        let text = |field: &str| object::string(jwk, &[field]);
        let number = |field: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(text(field)).ok()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            Some(bytes[zeros..].to_vec()).filter(|number| !number.is_empty())
        };
        let point = |size: usize| {
            let mut point = vec![4];
            for field in ["x", "y"] {
                let coordinate = URL_SAFE_NO_PAD.decode(text(field)).ok()?;
                if coordinate.len() != size {
                    return None;
                }
                point.extend(coordinate);
            }
            Some(point)
        };
        if text("use") == "enc" {
            return None;
        }
        match (text("kty"), text("crv")) {
            ("RSA", _) => Some(Self::Rsa {
                modulus: number("n")?,
                exponent: number("e")?,
            }),
            ("EC", "P-256") => point(32).map(Self::P256),
            ("EC", "P-384") => point(48).map(Self::P384),
            _ => None,
        }
    }
}

/// The keys of an issuer by their names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeySet(Vec<(String, PublicKey)>);

impl KeySet {
    /// Reads a set. Keys of a sort that is not known are left out, as upstream does.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        let document: Value =
            serde_json::from_slice(document).map_err(|error| format!("failed to decode keys: {error}"))?;
        let keys = object::list(&document, &["keys"]).iter().filter_map(|jwk| {
            let id = object::string(jwk, &["kid"]).to_owned();
            PublicKey::from_jwk(jwk).map(|key| (id, key))
        });
        Ok(Self(keys.take(MAX_KEYS).collect()))
    }

    /// Whether one of the keys that the token may mean signed it.
    pub fn signed(&self, token: &Token<'_>) -> bool {
        let meant = |id: &String| token.key.is_empty() || *id == token.key;
        self.0.iter().any(|(id, key)| meant(id) && token.is_signed_with(key))
    }
}

/// Whether one of the keys of a document signed a token, by whatever the token says about it.
pub fn is_signed(keys: &[u8], token: &str) -> bool {
    let keys = KeySet::parse(keys).unwrap_or_default();
    Token::parse(token).is_some_and(|token| keys.signed(&token))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7515, A.2 and A.3: somebody else's keys and signatures.
    #[test]
    fn signatures_of_others_are_understood() {
        let rsa = br#"{"keys":[{"kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}]}"#;
        let claims = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let token = format!(
            "eyJhbGciOiJSUzI1NiJ9.{claims}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
        );
        assert!(is_signed(rsa, &token));
        let ec = br#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
        let token = format!(
            "eyJhbGciOiJFUzI1NiJ9.{claims}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
        );
        assert!(is_signed(ec, &token));
        assert!(!is_signed(rsa, &token) && !is_signed(ec, &token.replace("DtEh", "DtEi")));
    }
}
