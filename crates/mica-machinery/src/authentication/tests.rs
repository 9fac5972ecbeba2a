//! Documents and claims, in tables.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn issuer() -> Value {
    json!({
        "issuer": {"url": "https://a.example", "audiences": ["mica"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": "a:"}},
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut issuer = issuer();
    let path: Vec<&str> = pointer.split('.').collect();
    object::set(&mut issuer, &path, value);
    issuer
}

#[track_caller]
fn check_document(jwt: Vec<Value>, expected: Expect) {
    let shown = match compile(&jwt, &Path::new("jwt"), &["https://taken.example"]) {
        Ok(issuers) => format!("{} issuers", issuers.len()),
        Err(errors) => errors.iter().map(|error| format!("{error}\n")).collect(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn documents_are_checked_with_upstreams_texts() {
    check_document(vec![], expect!["0 issuers"]);
    check_document(vec![issuer()], expect!["1 issuers"]);
    check_document(
        vec![json!({}), with("issuer.url", json!("https://taken.example"))],
        expect![[r#"
            jwt[0].issuer.url: Required value
            jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required
            jwt[0].claimMappings.username: Required value: claim or expression is required
            jwt[1].issuer.url: Invalid value: "https://taken.example": URL must not overlap with disallowed issuers: [https://taken.example]
        "#]],
    );
    check_document(
        vec![
            with("issuer.url", json!("http://u:p@a.example?q#f")),
            with("issuer.discoveryURL", json!("https://a.example/")),
            issuer(),
        ],
        expect![[r#"
            jwt[0].issuer.url: Invalid value: "http://u:p@a.example?q#f": URL scheme must be https
            jwt[0].issuer.url: Invalid value: "http://u:p@a.example?q#f": URL must not contain a username or password
            jwt[0].issuer.url: Invalid value: "http://u:p@a.example?q#f": URL must not contain a query
            jwt[0].issuer.url: Invalid value: "http://u:p@a.example?q#f": URL must not contain a fragment
            jwt[1].issuer.discoveryURL: Invalid value: "https://a.example/": discoveryURL must be different from URL
            jwt[2].issuer.url: Duplicate value: "https://a.example"
        "#]],
    );
    check_document(
        vec![
            with("issuer.audiences", json!(["a", "a", ""])),
            with("issuer.certificateAuthority", json!("nothing")),
        ],
        expect![[r#"
            jwt[0].issuer.audiences[1]: Duplicate value: "a"
            jwt[0].issuer.audiences[2]: Required value
            jwt[0].issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple audiences
            jwt[1].issuer.certificateAuthority: Invalid value: "<omitted>": data does not contain any valid RSA or ECDSA certificates
            jwt[1].issuer.url: Duplicate value: "https://a.example"
        "#]],
    );
    check_document(
        vec![with(
            "claimValidationRules",
            json!([{}, {"claim": "a", "expression": "true"}, {"claim": "b", "message": "m"}, {"claim": "b"},
                {"expression": "claims.a"}, {"expression": "user.a == ''"}, {"expression": "true", "requiredValue": "x"}]),
        )],
        expect![[r#"
            jwt[0].claimValidationRules[0]: Required value: claim or expression is required
            jwt[0].claimValidationRules[1]: Invalid value: "a": claim and expression can't both be set
            jwt[0].claimValidationRules[2].message: Invalid value: "m": may not be specified when claim is set
            jwt[0].claimValidationRules[3].claim: Duplicate value: "b"
            jwt[0].claimValidationRules[4].expression: Invalid value: "claims.a": must evaluate to bool
            jwt[0].claimValidationRules[5].expression: Invalid value: "user.a == ''": compilation failed: ERROR: <input>:1:1: undeclared reference to 'user' (in container '')
             | user.a == ''
             | ^
            jwt[0].claimValidationRules[6].requiredValue: Invalid value: "x": may not be specified when expression is set
        "#]],
    );
    check_document(
        vec![with(
            "claimMappings",
            json!({"username": {"claim": "sub"}, "groups": {"expression": "claims.g", "prefix": "x"},
                "uid": {"claim": "a", "expression": "b"},
                "extra": [{"key": "a"}, {"key": "x.k8s.io/A", "valueExpression": "1"}, {"key": "e.example/a", "valueExpression": ""}]}),
        )],
        expect![[r#"
            jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing
            jwt[0].claimMappings.groups.prefix: Invalid value: "x": may not be specified when expression is set
            jwt[0].claimMappings.uid: Invalid value: "": claim and expression can't both be set
            jwt[0].claimMappings.extra[0].key: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")
            jwt[0].claimMappings.extra[0].valueExpression: Required value
            jwt[0].claimMappings.extra[1].key: Invalid value: "x.k8s.io/A": must be lowercase
            jwt[0].claimMappings.extra[1].key: Invalid value: "x.k8s.io/A": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use
            jwt[0].claimMappings.extra[2].valueExpression: Required value
        "#]],
    );
    check_document(
        vec![
            with("claimMappings.username", json!({"expression": "claims.email"})),
            with("userValidationRules", json!([{}, {"expression": "user.name == ''"}])),
        ],
        expect![[r#"
            jwt[0].claimMappings.username.expression: Invalid value: "claims.email": claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression
            jwt[1].userValidationRules[0].expression: Required value
            jwt[1].userValidationRules[1].expression: Invalid value: "user.name == ''": compilation failed: ERROR: <input>:1:5: undefined field 'name'
             | user.name == ''
             | ....^
            jwt[1].issuer.url: Duplicate value: "https://a.example"
        "#]],
    );
    let many = vec![issuer(); 65];
    check_document(
        many,
        expect![[r#"
        jwt: Too many: 65: must have at most 64 items
    "#]],
    );
}

#[test]
fn files_are_read_strictly() {
    let read = |text: &str| {
        parse(text.as_bytes())
            .err()
            .map_or("read".to_owned(), |error| error.to_string())
    };
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    assert_eq!(read(head), "read");
    assert_eq!(read(""), "empty config data");
    assert_eq!(
        read("apiVersion: v1\nkind: Pod\n"),
        "no kind \"Pod\" is registered for version \"v1\""
    );
    assert_eq!(
        read(&format!("{head}jwt:\n- issuer: {{urls: x}}\n  name: a\n")),
        "strict decoding error: unknown field \"jwt[0].issuer.urls\", unknown field \"jwt[0].name\""
    );
    let document = format!("{head}anonymous: {{enabled: false, conditions: [{{path: /livez}}]}}\n");
    let document = parse(document.as_bytes()).unwrap();
    let errors = Configuration::compile(&document, &[]).unwrap_err();
    assert!(
        errors[0]
            .to_string()
            .ends_with("enabled should be set to true when conditions are defined"),
        "{errors:?}"
    );
    let document = format!("{head}anonymous: {{enabled: true, conditions: [{{path: /livez}}]}}\n");
    let anonymous = Configuration::compile(&parse(document.as_bytes()).unwrap(), &[])
        .unwrap()
        .anonymous;
    assert_eq!(anonymous.unwrap().paths, ["/livez"]);
}

#[track_caller]
fn check_claims(issuer: &Value, claims: &Value, expected: Expect) {
    let issuers = compile(std::slice::from_ref(issuer), &Path::new("jwt"), &[]).expect("a good issuer");
    let shown = match issuers[0].identify(claims) {
        Ok(Identity {
            name,
            uid,
            groups,
            extra,
        }) => format!("{name} {uid:?} {groups:?} {extra:?}"),
        Err(refused) => refused.to_string(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn claims_name_users() {
    let plain = with("claimMappings.groups", json!({"claim": "groups", "prefix": "g:"}));
    check_claims(
        &plain,
        &json!({"sub": "x", "groups": ["p", "q"], "jti": "7"}),
        expect![[r#"a:x "" ["g:p", "g:q"] [("authentication.kubernetes.io/credential-id", ["JTI=7"])]"#]],
    );
    check_claims(
        &plain,
        &json!({"sub": "x", "groups": "p"}),
        expect![[r#"a:x "" ["g:p"] []"#]],
    );
    check_claims(
        &plain,
        &json!({}),
        expect![[r#"oidc: parse username claims "sub": claim not present"#]],
    );
    check_claims(
        &plain,
        &json!({"sub": "x", "groups": [1]}),
        expect![[r#"oidc: parse groups claim "groups": json: cannot unmarshal array into Go value of type string"#]],
    );
    let mail = with("claimMappings.username", json!({"claim": "email", "prefix": ""}));
    check_claims(
        &mail,
        &json!({"email": "x@a", "email_verified": false}),
        expect!["oidc: email not verified"],
    );
    check_claims(&mail, &json!({"email": "x@a"}), expect![[r#"x@a "" [] []"#]]);
    let mut expressions = with(
        "claimMappings",
        json!({
            "username": {"expression": "claims.name + ':e'"},
            "groups": {"expression": "claims.roles.split(',')"},
            "uid": {"claim": "sub"},
            "extra": [{"key": "e.example/team", "valueExpression": "claims.?team.orValue('')"}],
        }),
    );
    expressions["claimValidationRules"] = json!([
        {"claim": "hd", "requiredValue": "e.example"},
        {"expression": "claims.exp - claims.nbf <= 86400", "message": "it lives too long"},
    ]);
    expressions["userValidationRules"] =
        json!([{"expression": "!user.username.startsWith('system:')", "message": "reserved"}]);
    let claims = |name: &str, exp: i64| json!({"name": name, "roles": "p,,q", "sub": "1", "hd": "e.example", "team": "t", "exp": exp, "nbf": 0});
    check_claims(
        &expressions,
        &claims("x", 86400),
        expect![[r#"x:e "1" ["p", "q"] [("e.example/team", ["t"])]"#]],
    );
    check_claims(
        &expressions,
        &claims("x", 86401),
        expect![
            "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.nbf <= 86400' failed: it lives too long"
        ],
    );
    check_claims(
        &expressions,
        &claims("system:x", 1),
        expect![
            "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('system:')' failed: reserved"
        ],
    );
    check_claims(
        &expressions,
        &json!({"name": "x", "roles": "", "sub": "1", "hd": "f.example"}),
        expect!["oidc: required claim hd value does not match. Got = f.example, want = e.example"],
    );
    check_claims(
        &expressions,
        &json!({"roles": ""}),
        expect![
            "oidc: error evaluating username claim expression: expression 'claims.name + ':e'' resulted in error: no such key: name"
        ],
    );
}
