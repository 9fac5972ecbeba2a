//! The kinds of certificates.k8s.io.

pub mod request;
mod request_pem;
mod request_print;
pub mod trust;

use crate::field::{Error, ErrorList, Path, quote};
use crate::names;

const MAX_DOMAIN_BYTES: usize = 253;
const MAX_SIGNER_BYTES: usize = MAX_DOMAIN_BYTES + 1 + MAX_DOMAIN_BYTES + 63 + 1;

/// A signer's name: `example.com/signer-name`.
pub(super) fn validate_signer(name: &str, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if name.is_empty() {
        errors.push(Error::required(path, ""));
        return errors;
    }
    let Some((domain, signer)) = name.split_once('/').filter(|(_, signer)| !signer.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(Error::invalid(path, name, detail));
        return errors;
    };
    if domain.len() > MAX_DOMAIN_BYTES {
        errors.push(Error::too_long(path, MAX_DOMAIN_BYTES));
    }
    first_bad_label(domain, names::dns1123_label, path, &mut errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(Error::invalid(path, domain, detail));
    }
    first_bad_label(signer, names::dns1123_subdomain, path, &mut errors);
    if name.len() > MAX_SIGNER_BYTES {
        errors.push(Error::too_long(path, MAX_SIGNER_BYTES));
    }
    errors
}

/// The errors of the first bad label between dots; those of later ones would read the same.
fn first_bad_label(part: &str, check: fn(&str) -> Vec<String>, path: &Path, errors: &mut ErrorList) {
    for label in part.split('.') {
        let texts = check(label);
        if !texts.is_empty() {
            let said = |text| Error::invalid(path, part, format!("validating label {}: {text}", quote(label)));
            errors.extend(texts.into_iter().map(said));
            return;
        }
    }
}
