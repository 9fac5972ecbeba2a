//! What roles, bindings, reviews and certificates refuse.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use expect_test::{Expect, expect};

use super::*;

fn check(plural: &str, body: Value, expected: Expect) {
    expected.assert_eq(&refusals(plural, body));
}

#[test]
fn rules_need_verbs_and_something_to_allow() {
    check(
        "roles",
        json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["x"]}]}),
        expect![""],
    );
    check(
        "roles",
        json!({"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["y"]}]}),
        expect![[r#"
            rules[0].verbs: Required value: verbs must contain at least one value
            rules[0].apiGroups: Required value: resource rules must supply at least one api group
            rules[0].resources: Required value: resource rules must supply at least one resource
            rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs
            rules[1].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs
        "#]],
    );
    check(
        "clusterroles",
        json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b c"}}]}}),
        expect![[r#"
            aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.
        "#]],
    );
}

#[test]
fn bindings_need_a_role_and_good_subjects() {
    check(
        "clusterrolebindings",
        json!({"roleRef": {"kind": "Role", "name": "a/b"}, "subjects": [
            {"kind": "User", "name": "u"},
            {"kind": "User", "name": "u", "apiGroup": "x"},
            {"kind": "ServiceAccount", "name": "Bad_", "apiGroup": "y"},
            {"kind": "Robot"},
        ]}),
        expect![[r#"
            roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"
            roleRef.name: Invalid value: "a/b": may not contain '/'
            subjects[1].apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io"
            subjects[2].name: Invalid value: "Bad_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            subjects[2].apiGroup: Unsupported value: "y": supported values: ""
            subjects[2].namespace: Required value
            subjects[3].name: Required value
            subjects[3].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"
        "#]],
    );
}

#[test]
fn access_reviews_ask_one_thing_of_somebody() {
    check(
        "subjectaccessreviews",
        json!({"metadata": {"name": "x"}, "spec": {}}),
        expect![[r#"
            spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified
            spec.user: Invalid value: "": at least one of user or group must be specified
            metadata: Invalid value: {"name":"x"}: must be empty
        "#]],
    );
    check(
        "selfsubjectaccessreviews",
        json!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}, "resourceAttributes": {
            "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "", "operator": "In"}]},
            "labelSelector": {},
        }}}),
        expect![[r#"
            spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be specified in combination with resourceAttributes
            spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements
            spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified
            spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
            spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required
        "#]],
    );
    check(
        "localsubjectaccessreviews",
        json!({"spec": {"user": "u", "resourceAttributes": {"namespace": "other"}}}),
        expect![[r#"
            spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace
        "#]],
    );
}

#[test]
fn reviews_without_a_question_are_bad_requests() {
    use crate::kind::review::refusal;
    assert_eq!(
        refusal("TokenReview", &json!({"spec": {}})),
        Some("token is required for TokenReview in authentication")
    );
    assert_eq!(
        refusal("SelfSubjectRulesReview", &json!({"spec": {}})),
        Some("no namespace on request")
    );
    assert_eq!(refusal("TokenReview", &json!({"spec": {"token": "t"}})), None);
}

/// A request of the given subject, signed by its own key.
const REQUEST: &str = include_str!("../../../testdata/kind/request.pem");
const MASTERS: &str = include_str!("../../../testdata/kind/masters.pem");
const AUTHORITY: &str = include_str!("../../../testdata/kind/authority.pem");
const LEAF: &str = include_str!("../../../testdata/kind/leaf.pem");

fn signing_request(pem: &str) -> Value {
    json!({"spec": {"request": STANDARD.encode(pem), "signerName": "example.com/x", "usages": ["client auth"]}})
}

#[test]
fn signing_requests_are_pem_that_verifies() {
    check("certificatesigningrequests", signing_request(REQUEST), expect![""]);
    let errors = refusals("certificatesigningrequests", signing_request(LEAF));
    assert!(
        errors.ends_with(": PEM block type must be CERTIFICATE REQUEST\n"),
        "{errors}"
    );
    // One letter in the middle of the key, and the signature is of something else.
    let at = REQUEST.len() / 2;
    let other = if &REQUEST[at..=at] == "A" { "B" } else { "A" };
    let errors = refusals(
        "certificatesigningrequests",
        signing_request(&format!("{}{other}{}", &REQUEST[..at], &REQUEST[at + 1..])),
    );
    assert!(errors.starts_with("spec.request: Invalid value: "), "{errors}");
}

#[test]
fn signing_requests_have_a_signer_and_known_usages() {
    let mut body = signing_request(REQUEST);
    body["spec"]["signerName"] = json!("Bad_Domain/x");
    body["spec"]["usages"] = json!(["client auth", "client auth", "flying"]);
    body["spec"]["expirationSeconds"] = json!(599);
    check(
        "certificatesigningrequests",
        body,
        expect![[r#"
            spec.usages[2]: Unsupported value: "flying": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"
            spec.usages[1]: Duplicate value: "client auth"
            spec.signerName: Invalid value: "Bad_Domain": validating label "Bad_Domain": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec.signerName: Invalid value: "Bad_Domain": should be a domain with at least two segments separated by dots
            spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)
        "#]],
    );
}

#[test]
fn nobody_asks_for_a_certificate_of_the_admins_group() {
    use crate::kind::certificates::request::forbidden_subject;
    let mut body = signing_request(MASTERS);
    assert_eq!(forbidden_subject(&body), None);
    body["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client");
    assert_eq!(
        forbidden_subject(&body).as_deref(),
        Some("use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed")
    );
    body["spec"]["request"] = json!(STANDARD.encode(REQUEST));
    assert_eq!(forbidden_subject(&body), None);
}

#[test]
fn trust_bundles_hold_authorities_under_their_signers_name() {
    let bundle = |name: &str, signer: &str, pem: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": pem}});
    check("clustertrustbundles", bundle("a", "", AUTHORITY), expect![""]);
    check(
        "clustertrustbundles",
        bundle("example.com:x:a", "example.com/x", AUTHORITY),
        expect![""],
    );
    check(
        "clustertrustbundles",
        bundle("a", "example.com/x", LEAF),
        expect![[r#"
            metadata.name: Invalid value: "a": ClusterTrustBundle for signerName example.com/x must be named with prefix example.com:x:
            spec.trustBundle: Invalid value: "<value omitted>": entry 0 does not have the CA bit set
        "#]],
    );
    check(
        "clustertrustbundles",
        bundle("a:b", "", &format!("{AUTHORITY}{AUTHORITY}")),
        expect![[r#"
            metadata.name: Invalid value: "a:b": ClusterTrustBundle without signer name must not have ":" in its name
            spec.trustBundle: Invalid value: "<value omitted>": duplicate trust anchor (indices [0 1])
        "#]],
    );
}
