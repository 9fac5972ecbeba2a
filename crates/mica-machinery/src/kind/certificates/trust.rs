//! ClusterTrustBundles: sets of trust anchors, named after their signer.

use std::collections::BTreeMap;

use serde_json::Value;

use super::validate_signer;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{immutable_string, invalid_each};
use crate::kind::column::{NAME, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext, pem};
use crate::{names, object};

const MAX_BUNDLE_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub struct TrustBundle;

impl Strategy for TrustBundle {
    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let mut errors = validate_names(object);
        errors.extend(validate_anchors(object::string(object, &["spec", "trustBundle"])));
        errors
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = validate_names(new);
        let bundle = |object| object::string(object, &["spec", "trustBundle"]);
        if bundle(new) != bundle(old) {
            errors.extend(validate_anchors(bundle(new)));
        }
        let path = Path::new("spec").child("signerName");
        immutable_string(new, old, &["spec", "signerName"], &path, &mut errors);
        errors
    }

    // The rule depends on the signer, so validation checks the name.
    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::Both
    }

    fn name_errors(&self, _name: &str, _name_use: NameUse) -> Vec<String> {
        Vec::new()
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![(
            "spec.signerName",
            object::string(object, &["spec", "signerName"]).to_owned(),
        )]
    }

    fn selectable_labels(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }

    fn selector_error(&self, label: &str) -> Option<String> {
        let known = ["spec.signerName", "metadata.name"].contains(&label);
        (!known).then(|| format!("field label not supported: {label}"))
    }

    fn columns(&self) -> &'static [Column] {
        const SIGNER: &str = "signerName indicates the associated signer, if any.\n\nIn order to create or update a ClusterTrustBundle that sets signerName, you must have the following cluster-scoped permission: group=certificates.k8s.io resource=signers resourceName=<the signer name> verb=attest.\n\nIf signerName is not empty, then the ClusterTrustBundle object must be named with the signer name as a prefix (translating slashes to colons). For example, for the signer name `example.com/foo`, valid ClusterTrustBundle object names include `example.com:foo:abc` and `example.com:foo:v1`.\n\nIf signerName is empty, then the ClusterTrustBundle object's name must not have such a prefix.\n\nList/watch requests for ClusterTrustBundles can filter on this field using a `spec.signerName=NAME` field selector.";
        const COLUMNS: &[Column] = &[NAME, text("SignerName", SIGNER)];
        COLUMNS
    }

    fn cells(&self, object: &Value, _now: jiff::Timestamp) -> Vec<Value> {
        let signer = match object::string(object, &["spec", "signerName"]) {
            "" => "<none>",
            signer => signer,
        };
        vec![object::name(object).into(), signer.into()]
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}

fn validate_names(object: &Value) -> ErrorList {
    let (name, signer) = (object::name(object), object::string(object, &["spec", "signerName"]));
    let path = Path::new("metadata").child("name");
    let prefix = format!("{}:", signer.replace('/', ":"));
    let texts = if signer.is_empty() {
        if name.contains(':') {
            vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()]
        } else {
            names::name_is_dns_subdomain(name, NameUse::Name)
        }
    } else {
        match name.strip_prefix(&prefix) {
            Some(rest) => names::name_is_dns_subdomain(rest, NameUse::Name),
            None => vec![format!(
                "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
            )],
        }
    };
    let mut errors: ErrorList = invalid_each(&path, name, texts).collect();
    if !signer.is_empty() {
        errors.extend(validate_signer(signer, &Path::new("spec").child("signerName")));
    }
    errors
}

fn validate_anchors(bundle: &str) -> ErrorList {
    let path = Path::new("spec").child("trustBundle");
    if bundle.len() > MAX_BUNDLE_BYTES {
        return vec![Error::too_long(&path, MAX_BUNDLE_BYTES)];
    }
    let invalid = |detail: String| Error::invalid(&path, "<value omitted>", detail);
    let mut errors = ErrorList::new();
    let mut places: BTreeMap<Vec<u8>, Vec<String>> = BTreeMap::new();
    for (i, block) in pem::blocks(bundle.as_bytes()).into_iter().enumerate() {
        match anchor_error(&block) {
            Some(detail) => errors.push(invalid(format!("entry {i} {detail}"))),
            None => places.entry(block.bytes).or_default().push(i.to_string()),
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    if places.is_empty() {
        errors.push(invalid("at least one trust anchor must be provided".to_owned()));
    }
    let repeated = places.values().filter(|places| places.len() > 1);
    errors.extend(repeated.map(|places| invalid(format!("duplicate trust anchor (indices [{}])", places.join(" ")))));
    errors
}

fn anchor_error(block: &pem::Block) -> Option<String> {
    if block.label != "CERTIFICATE" {
        return Some(format!("has bad block type: {}", block.label));
    }
    if block.has_headers {
        return Some("has PEM block headers".to_owned());
    }
    let Some(certificate) = pem::certificate(&block.bytes) else {
        return Some("does not parse as X.509".to_owned());
    };
    (!certificate.is_ca()).then(|| "does not have the CA bit set".to_owned())
}
