//! PEM blocks, and what may be wrong with the certificates and keys in them, in Go's words.
//!
//! Like Go's decoder, text around blocks is skipped, and so is a block that does not decode.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::prelude::{FromDer, X509Certificate};

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";

/// One decoded block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    pub label: String,
    pub has_headers: bool,
    pub bytes: Vec<u8>,
}

/// All blocks of a text.
pub fn blocks(data: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(data);
    let mut blocks = Vec::new();
    let mut rest: &str = &text;
    while let Some(start) = find_begin(rest) {
        let after = &rest[start + BEGIN.len()..];
        match block(after) {
            Some((block, end)) => {
                blocks.push(block);
                rest = &after[end..];
            }
            None => rest = after,
        }
    }
    blocks
}

/// Where a begin mark stands at the start of a line.
fn find_begin(text: &str) -> Option<usize> {
    if text.starts_with(BEGIN) {
        return Some(0);
    }
    text.find("\n-----BEGIN ").map(|at| at + 1)
}

/// The block whose begin mark has just been read, and where it ends.
fn block(text: &str) -> Option<(Block, usize)> {
    let line = text.lines().next()?;
    let label = line.trim_end().strip_suffix(DASHES)?;
    let end_mark = format!("-----END {label}-----");
    let end = text.find(&end_mark)?;
    let mut body = &text[line.len()..end];
    let mut has_headers = false;
    while let Some((header, rest)) = body
        .trim_start()
        .split_once('\n')
        .filter(|(line, _)| line.contains(':'))
    {
        has_headers |= !header.is_empty();
        body = rest;
    }
    let encoded: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(encoded).ok()?;
    Some((
        Block {
            label: label.to_owned(),
            has_headers,
            bytes,
        },
        end + end_mark.len(),
    ))
}

/// A parsed certificate, if the bytes are one and nothing else.
pub fn certificate(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der)
        .ok()
        .filter(|(rest, _)| rest.is_empty())
        .map(|(_, certificate)| certificate)
}

/// Why a certificate and a key are no pair, as Go's `tls.X509KeyPair` says it.
///
/// Whether the key belongs to the certificate is not checked: warnings only help those who mixed up files.
pub fn key_pair_error(certificate_pem: &[u8], key_pem: &[u8]) -> Option<String> {
    let certificates = blocks(certificate_pem);
    let labels: Vec<&str> = certificates.iter().map(|block| block.label.as_str()).collect();
    let Some(leaf) = certificates.iter().find(|block| block.label == "CERTIFICATE") else {
        return Some(match &labels[..] {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [only] if only.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
            _ => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", labels.join(" ")),
        });
    };
    let keys = blocks(key_pem);
    let is_key = |block: &&Block| block.label == "PRIVATE KEY" || block.label.ends_with(" PRIVATE KEY");
    let Some(_) = keys.iter().find(is_key) else {
        let labels: Vec<&str> = keys.iter().map(|block| block.label.as_str()).collect();
        return Some(match &labels[..] {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            ["CERTIFICATE"] => "tls: found a certificate rather than a key in the PEM for the private key".to_owned(),
            _ => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
                labels.join(" ")
            ),
        });
    };
    certificate(&leaf.bytes)
        .is_none()
        .then(|| "x509: malformed certificate".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_other_text() {
        let text = "junk\n-----BEGIN A-----\nb: c\n\naGk=\n-----END A-----\n-----BEGIN B-----\n***\n-----END B-----\n-----BEGIN C-----\naG\nk=\n-----END C-----";
        let found: Vec<_> = blocks(text.as_bytes())
            .into_iter()
            .map(|b| (b.label, b.has_headers, b.bytes))
            .collect();
        assert_eq!(
            found,
            [
                ("A".to_owned(), true, b"hi".to_vec()),
                ("C".to_owned(), false, b"hi".to_vec())
            ]
        );
    }

    #[test]
    fn a_key_pair_tells_what_is_missing() {
        let key = b"-----BEGIN RSA PRIVATE KEY-----\naGk=\n-----END RSA PRIVATE KEY-----\n";
        let certificate = b"-----BEGIN CERTIFICATE-----\naGk=\n-----END CERTIFICATE-----\n";
        let cases: [(&[u8], &[u8], &str); 5] = [
            (b"x", b"y", "tls: failed to find any PEM data in certificate input"),
            (
                key,
                key,
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
            ),
            (certificate, b"", "tls: failed to find any PEM data in key input"),
            (
                certificate,
                certificate,
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
            (certificate, key, "x509: malformed certificate"),
        ];
        for (certificate, key, text) in cases {
            assert_eq!(key_pair_error(certificate, key).as_deref(), Some(text));
        }
    }
}
