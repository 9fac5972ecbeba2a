//! The ciphers of upstream's providers, byte for byte: what one server wrote, a kube-apiserver's transformer could read.

use aes::cipher::block_padding::{NoPadding, Pkcs7};
use aes::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::array::typenum::U12;
use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::{Aead as _, KeyInit as _};

const GCM_NONCE: usize = 12;
const BLOCK: usize = 16;
const BOX_NONCE: usize = 24;
const BOX_TAG: usize = 16;

/// Why a value cannot be opened, in upstream's words. Never says anything of the key or the value.
pub type Why = &'static str;

const SHORT: Why = "the stored data was shorter than the required size";
const FORGED: Why = "cipher: message authentication failed";
const NOT_BLOCKS: Why = "the stored data is not a multiple of the block size";
const BAD_PADDING: Why = "invalid padding on input";
const BAD_BOX: Why = "output array was not large enough for encryption";

/// One key, ready to be used.
pub enum Cipher {
    Gcm128(Box<Aes128Gcm>),
    Gcm192(Box<AesGcm<Aes192, U12>>),
    Gcm256(Box<Aes256Gcm>),
    Cbc(CbcKey),
    Secretbox(Box<XSalsa20Poly1305>),
}

/// A key of the mode that proves nothing about its values.
pub struct CbcKey(Vec<u8>);

impl Cipher {
    /// AES-GCM with a key of 16, 24 or 32 bytes.
    pub fn gcm(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Aes128Gcm::new_from_slice(key)
                .ok()
                .map(|key| Self::Gcm128(Box::new(key))),
            24 => AesGcm::new_from_slice(key).ok().map(|key| Self::Gcm192(Box::new(key))),
            32 => Aes256Gcm::new_from_slice(key)
                .ok()
                .map(|key| Self::Gcm256(Box::new(key))),
            _ => None,
        }
    }

    /// AES-CBC with a key of 16, 24 or 32 bytes.
    pub fn cbc(key: &[u8]) -> Option<Self> {
        matches!(key.len(), 16 | 24 | 32).then(|| Self::Cbc(CbcKey(key.to_vec())))
    }

    pub fn secretbox(key: &[u8]) -> Option<Self> {
        let key = XSalsa20Poly1305::new_from_slice(key).ok()?;
        Some(Self::Secretbox(Box::new(key)))
    }

    /// Hides a value. Where the cipher proves anything, it proves that the value is at this place.
    pub fn seal(&self, value: &[u8], place: &[u8]) -> Vec<u8> {
        match self {
            Self::Gcm128(_) | Self::Gcm192(_) | Self::Gcm256(_) => {
                let nonce: [u8; GCM_NONCE] = rand::random();
                let sealed = self.gcm_seal(nonce, value, place);
                [&nonce[..], &sealed].concat()
            }
            Self::Cbc(key) => {
                let nonce: [u8; BLOCK] = rand::random();
                [&nonce[..], &key.encrypt(&nonce, value)].concat()
            }
            Self::Secretbox(cipher) => {
                let nonce: [u8; BOX_NONCE] = rand::random();
                let sealed = cipher.encrypt(&nonce.into(), value);
                [&nonce[..], &sealed.expect("values fit into memory twice")].concat()
            }
        }
    }

    pub fn open(&self, sealed: &[u8], place: &[u8]) -> Result<Vec<u8>, Why> {
        match self {
            Self::Gcm128(_) | Self::Gcm192(_) | Self::Gcm256(_) => {
                let (nonce, sealed) = sealed.split_first_chunk::<GCM_NONCE>().ok_or(SHORT)?;
                let payload = Payload {
                    msg: sealed,
                    aad: place,
                };
                let nonce = (*nonce).into();
                let opened = match self {
                    Self::Gcm128(cipher) => cipher.decrypt(&nonce, payload),
                    Self::Gcm192(cipher) => cipher.decrypt(&nonce, payload),
                    Self::Gcm256(cipher) => cipher.decrypt(&nonce, payload),
                    _ => return Err(FORGED),
                };
                opened.map_err(|_| FORGED)
            }
            Self::Cbc(key) => {
                let (nonce, sealed) = sealed.split_first_chunk::<BLOCK>().ok_or(SHORT)?;
                key.decrypt(nonce, sealed)
            }
            Self::Secretbox(cipher) => {
                if sealed.len() < BOX_NONCE + BOX_TAG {
                    return Err(SHORT);
                }
                let (nonce, sealed) = sealed.split_first_chunk::<BOX_NONCE>().ok_or(SHORT)?;
                cipher.decrypt(&(*nonce).into(), sealed).map_err(|_| BAD_BOX)
            }
        }
    }

    fn gcm_seal(&self, nonce: [u8; GCM_NONCE], value: &[u8], place: &[u8]) -> Vec<u8> {
        let payload = Payload { msg: value, aad: place };
        let nonce = nonce.into();
        let sealed = match self {
            Self::Gcm128(cipher) => cipher.encrypt(&nonce, payload),
            Self::Gcm192(cipher) => cipher.encrypt(&nonce, payload),
            Self::Gcm256(cipher) => cipher.encrypt(&nonce, payload),
            _ => unreachable!("asked of keys of this mode only"),
        };
        sealed.expect("values are far smaller than this mode can take")
    }
}

impl CbcKey {
    fn encrypt(&self, nonce: &[u8; BLOCK], value: &[u8]) -> Vec<u8> {
        macro_rules! with {
            ($cipher:ty) => {
                cbc::Encryptor::<$cipher>::new_from_slices(&self.0, nonce)
                    .expect("the length was looked at")
                    .encrypt_padded_vec::<Pkcs7>(value)
            };
        }
        match self.0.len() {
            16 => with!(Aes128),
            24 => with!(Aes192),
            _ => with!(Aes256),
        }
    }

    fn decrypt(&self, nonce: &[u8; BLOCK], sealed: &[u8]) -> Result<Vec<u8>, Why> {
        if !sealed.len().is_multiple_of(BLOCK) || sealed.is_empty() {
            return Err(NOT_BLOCKS);
        }
        macro_rules! with {
            ($cipher:ty) => {
                cbc::Decryptor::<$cipher>::new_from_slices(&self.0, nonce)
                    .expect("the length was looked at")
                    .decrypt_padded_vec::<NoPadding>(sealed)
            };
        }
        let mut opened = match self.0.len() {
            16 => with!(Aes128),
            24 => with!(Aes192),
            _ => with!(Aes256),
        }
        .map_err(|_| BAD_PADDING)?;
        let last = opened.last().copied().unwrap_or_default();
        let padding = usize::from(last);
        if padding == 0 || padding > opened.len() {
            return Err("invalid PKCS7 data (empty or not padded)");
        }
        let rest = opened.split_off(opened.len() - padding);
        if rest.iter().any(|byte| *byte != last) {
            return Err(BAD_PADDING);
        }
        Ok(opened)
    }
}

/// Shows that there is a key, and nothing of it.
impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Cipher> {
        let mut all = vec![Cipher::secretbox(&[3; 32]).unwrap()];
        for length in [16, 24, 32] {
            all.push(Cipher::gcm(&vec![1; length]).unwrap());
            all.push(Cipher::cbc(&vec![2; length]).unwrap());
        }
        all
    }

    #[test]
    fn what_was_sealed_opens_and_what_was_changed_does_not() {
        for cipher in all() {
            for value in [&b""[..], b"x", &[7; 16], &[8; 1000]] {
                let sealed = cipher.seal(value, b"place");
                assert_ne!(sealed, cipher.seal(value, b"place"), "a nonce is used once");
                assert_eq!(cipher.open(&sealed, b"place").unwrap(), value);
                let proves = !matches!(cipher, Cipher::Cbc(_));
                if proves {
                    for at in 0..sealed.len() {
                        let mut forged = sealed.clone();
                        forged[at] ^= 1;
                        assert!(cipher.open(&forged, b"place").is_err());
                    }
                }
                for cut in 0..sealed.len().min(40) {
                    assert!(cipher.open(&sealed[..cut], b"place").is_err() || !proves);
                }
            }
        }
        let gcm = Cipher::gcm(&[1; 32]).unwrap();
        let sealed = gcm.seal(b"v", b"here");
        assert_eq!(
            gcm.open(&sealed, b"there"),
            Err(FORGED),
            "a value counts at its place only"
        );
        assert!(Cipher::gcm(&[1; 31]).is_none() && Cipher::secretbox(&[1; 16]).is_none());
    }

    /// Vectors of the standards: NIST's test case 16 and NaCl's own.
    #[test]
    fn the_ciphers_are_the_standard_ones() {
        let hex = |text: &str| -> Vec<u8> {
            let pairs = text.as_bytes().chunks(2);
            pairs
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
        let text = hex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        let sealed = hex(
            "cafebabefacedbaddecaf888522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
        );
        let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        assert_eq!(Cipher::gcm(&key).unwrap().open(&sealed, &aad).unwrap(), text);
        let key = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let sealed = hex(
            "69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5",
        );
        let text = hex(
            "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705",
        );
        assert_eq!(Cipher::secretbox(&key).unwrap().open(&sealed, b"").unwrap(), text);
    }
}
