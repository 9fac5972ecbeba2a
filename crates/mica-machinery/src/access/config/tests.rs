//! What a configuration may say, and upstream's words about what it may not.

use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";

fn refused(authorizers: &str) -> String {
    let check = |file: &str| match file {
        "/good" => Ok(()),
        _ => Err("error loading file: stat /bad: no such file or directory".to_owned()),
    };
    let text = format!("{HEAD}{authorizers}");
    read(text.as_bytes(), &check).map_or_else(|bad| bad.to_string(), |_| "good".to_owned())
}

const WEBHOOK: &str = "authorizers: [{type: Webhook, name: w, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, \
     matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: KubeConfigFile, \
     kubeConfigFile: /good}, matchConditions: [{expression: request.user != 'ann'}]}}, {type: RBAC, name: rbac}]";

#[test]
fn a_good_configuration_has_upstreams_defaults() {
    let read = read(format!("{HEAD}{WEBHOOK}").as_bytes(), &|_| Ok(())).unwrap();
    let [first, second] = &read[..] else { panic!("{read:?}") };
    assert_eq!((second.name.as_str(), second.kind.as_str()), ("rbac", "RBAC"));
    let AuthorizerKind::Webhook(webhook) = &first.kind else {
        panic!("{first:?}")
    };
    assert_eq!(webhook.authorized_ttl, Duration::from_secs(300));
    assert_eq!(webhook.unauthorized_ttl, Duration::from_secs(30));
    assert_eq!(webhook.timeout, Duration::from_secs(3));
    assert_eq!(webhook.failure_policy, FailurePolicy::Deny);
    assert_eq!(
        (webhook.planes, webhook.identities),
        (Planes::All, Identities::Platform)
    );
}

#[test]
fn what_is_wrong_is_said_in_upstreams_words() {
    let load = "failed to load AuthorizationConfiguration from file: ";
    for (text, expected) in [
        (
            "authorizers: []",
            "authorizers: Required value: at least one authorization mode must be defined",
        ),
        ("authorizers: [{name: x}]", "authorizers[0].type: Required value"),
        (
            "authorizers: [{type: Foo}]",
            "authorizers[0].type: Unsupported value: \"Foo\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
        ),
        (
            "authorizers: [{type: RBAC, name: rbac}, {type: RBAC, name: rbac2}]",
            "authorizers[1].type: Duplicate value: \"RBAC\"",
        ),
        (
            "authorizers: [{type: RBAC, name: other}]",
            "expected name rbac for authorizer RBAC instead of other",
        ),
        (
            "authorizers: [{type: Webhook, name: w}]",
            "authorizers[0].webhook: Required value: required when type=Webhook",
        ),
        (
            "authorizers: [{type: RBAC, name: rbac, webhook: {}}]",
            "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
        ),
        (
            "authorizers: [{type: RBAC, name: rbac, more: 1}]\nother: 2",
            &format!("{load}strict decoding error: unknown field \"authorizers[0].more\", unknown field \"other\""),
        ),
        (
            "authorizers: [{type: ABAC, name: abac}]",
            "authorizers[0].type: Invalid value: \"ABAC\": authorization mode ABAC is not supported: use RBAC, or a Webhook",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
    assert_eq!(
        read(b"kind: Other\napiVersion: v1", &|_| Ok(()))
            .unwrap_err()
            .to_string(),
        format!("{load}no kind \"Other\" is registered for version \"v1\"")
    );
}

#[test]
fn every_setting_of_a_webhook_is_checked() {
    assert_eq!(refused(WEBHOOK), "good");
    for (from, to, expected) in [
        (
            "timeout: 3s",
            "timeout: 31s",
            "timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
        ),
        ("timeout: 3s", "timeout: 0s", "timeout: Required value"),
        (
            "timeout: 3s",
            "timeout: 3s, authorizedTTL: -1s",
            "authorizedTTL: Invalid value: \"-1s\": must be > 0s",
        ),
        (
            "subjectAccessReviewVersion: v1,",
            "subjectAccessReviewVersion: v2,",
            "subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\"",
        ),
        (
            "matchConditionSubjectAccessReviewVersion: v1,",
            "",
            "matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
        ),
        (
            "failurePolicy: Deny",
            "failurePolicy: Allow",
            "failurePolicy: Unsupported value: \"Allow\": supported values: \"NoOpinion\", \"Deny\"",
        ),
        ("type: KubeConfigFile, ", "", "connectionInfo.type: Required value"),
        (
            "/good",
            "good",
            "connectionInfo.kubeConfigFile: Invalid value: \"good\": must be an absolute path",
        ),
        (
            "/good",
            "/bad",
            "connectionInfo.kubeConfigFile: Invalid value: \"/bad\": error loading file: stat /bad: no such file or directory",
        ),
        (
            "request.user != 'ann'",
            "request.user",
            "matchConditions[0].expression: Invalid value: \"request.user\": must evaluate to bool but got string",
        ),
        (
            "request.user != 'ann'",
            "' '",
            "matchConditions[0].expression: Required value",
        ),
        (
            "failurePolicy: Deny",
            "failurePolicy: Deny, scope: {planes: Some}",
            "scope.planes: Unsupported value: \"Some\": supported values: \"All\", \"Root\", \"Others\"",
        ),
    ] {
        let text = WEBHOOK.replace(from, to);
        assert_eq!(refused(&text), format!("authorizers[0].{expected}"), "{to}");
    }
}

#[test]
fn flags_make_a_chain_in_their_order() {
    let webhook = LegacyWebhook {
        config_file: "/good".to_owned(),
        ..LegacyWebhook::default()
    };
    let chain = from_modes(&["Node", "Webhook", "RBAC"], &webhook).unwrap();
    let names: Vec<&str> = chain.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["node", "default", "rbac"]);
    let refused = |modes: &[&str], webhook: &LegacyWebhook| from_modes(modes, webhook).unwrap_err().to_string();
    let none = LegacyWebhook::default();
    assert_eq!(
        refused(&["RBAC", "Any"], &none),
        "authorization-mode \"Any\" is not a valid mode"
    );
    assert_eq!(
        refused(&["RBAC", "RBAC"], &none),
        "authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once"
    );
    assert_eq!(
        refused(&["Webhook"], &none),
        "authorization-mode Webhook's authorization config file not passed"
    );
    assert_eq!(
        refused(&["RBAC"], &webhook),
        "cannot specify --authorization-webhook-config-file without mode Webhook"
    );
}
