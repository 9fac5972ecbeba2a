//! Signing requests as rows of a table.

use serde_json::Value;

use super::request::of_type;
use crate::kind::Column;
use crate::kind::column::{AGE, NAME, text};
use crate::object;

/// The request's conditions in short.
pub(super) fn state(object: &Value) -> String {
    let has = |r#type| !of_type(object, r#type).is_empty();
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !object::string(object, &["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

const SIGNER: &str = "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers happens out of band. You can select on this field using `spec.signerName`.";
const DURATION: &str = "expirationSeconds is the requested duration of validity of the issued certificate. The certificate signer may issue a certificate with a different validity duration so a client must check the delta between the notBefore and and notAfter fields in the issued certificate to determine the actual duration.\n\nThe v1.22+ in-tree implementations of the well-known Kubernetes signers will honor this field as long as the requested duration is not greater than the maximum duration they will honor per the --cluster-signing-duration CLI flag to the Kubernetes controller manager.\n\nCertificate signers may not honor this field for various reasons:\n\n  1. Old signer that is unaware of the field (such as the in-tree\n     implementations prior to v1.22)\n  2. Signer whose configured maximum is shorter than the requested duration\n  3. Signer whose configured minimum is longer than the requested duration\n\nThe minimum valid value for expirationSeconds is 600, i.e. 10 minutes.";

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    AGE,
    text("SignerName", SIGNER),
    text("Requestor", "Base64-encoded PKCS#10 CSR data"),
    text("RequestedDuration", DURATION),
    text(
        "Condition",
        "Conditions applied to the request, such as approval or denial.",
    ),
];
