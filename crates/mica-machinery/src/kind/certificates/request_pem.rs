//! The PEM in a signing request: what is asked to be signed, and what was.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::prelude::FromDer;

use crate::kind::pem;
use crate::object;

/// The DER of the request's PEM.
pub fn parse(object: &Value) -> Result<Vec<u8>, String> {
    let pem = STANDARD
        .decode(object::string(object, &["spec", "request"]))
        .unwrap_or_default();
    match pem::blocks(&pem).into_iter().next() {
        Some(block) if block.label == "CERTIFICATE REQUEST" => Ok(block.bytes),
        _ => Err("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

pub(super) fn validate_request(object: &Value) -> Result<(), String> {
    let der = parse(object)?;
    let (_, request) =
        X509CertificationRequest::from_der(&der).map_err(|_| "asn1: syntax error: data truncated".to_owned())?;
    match request.verify_signature() {
        // Curves that we cannot verify, upstream can.
        Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => Ok(()),
        Err(_) => Err(mismatch(&request.signature_algorithm.algorithm.to_id_string()).to_owned()),
    }
}

/// Go's words for a signature that is of something else, by the algorithm's family.
fn mismatch(algorithm: &str) -> &'static str {
    if algorithm.starts_with("1.2.840.10045.") {
        "x509: ECDSA verification failure"
    } else if algorithm.starts_with("1.2.840.113549.") {
        "crypto/rsa: verification error"
    } else {
        "x509: Ed25519 verification failure"
    }
}

pub(super) fn validate_certificate(encoded: &str) -> Result<(), String> {
    if encoded.is_empty() {
        return Ok(());
    }
    let blocks = pem::blocks(&STANDARD.decode(encoded).unwrap_or_default());
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    for block in blocks {
        if block.label != "CERTIFICATE" {
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {}",
                crate::field::quote(&block.label)
            ));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.bytes.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        if pem::certificate(&block.bytes).is_none() {
            return Err("x509: malformed certificate".to_owned());
        }
    }
    Ok(())
}
