//! Each rule against values that pass and values that do not, with the sentence.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn check(errors: &[String], expected: Expect) {
    expected.assert_eq(&errors.join("\n"));
}

fn texts(errors: &ErrorList) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn subdomains_have_upstreams_sentence() {
    for good in ["a", "0", "a.b", "a--1--2--b", "1.2.3", &"a".repeat(253)] {
        assert_eq!(dns1123_subdomain(good), Vec::<String>::new(), "{good}");
    }
    for bad in ["", "A", "-a", "a-", "a..b", ".a", "a.", "a_b", "a b", "é"] {
        assert_eq!(dns1123_subdomain(bad).len(), 1, "{bad}");
    }
    check(
        &dns1123_subdomain(&"A".repeat(254)),
        expect![[r#"
        must be no more than 253 characters
        a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}

#[test]
fn labels_say_dots_when_dots_are_the_problem() {
    check(&dns1123_label("a.b"), expect!["must not contain dots"]);
    check(
        &dns1123_label("a_"),
        expect![
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ],
    );
    check(
        &dns1035_label("1a"),
        expect![
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        ],
    );
    assert!(dns1035_label("a-1").is_empty());
    assert!(wildcard_dns1123_subdomain("*.example.com").is_empty());
    assert_eq!(wildcard_dns1123_subdomain("*").len(), 1);
    assert!(dns1123_subdomain_with_underscore("_a.b_c").is_empty());
    assert_eq!(dns1123_subdomain_with_underscore("__a").len(), 1);
}

#[test]
fn a_prefix_may_end_in_a_dash_and_hides_the_character_before_it() {
    assert!(name_is_dns_subdomain("abc-", NameUse::Prefix).is_empty());
    assert!(name_is_dns_subdomain("abC-", NameUse::Prefix).is_empty());
    assert_eq!(name_is_dns_subdomain("abc-", NameUse::Name).len(), 1);
    assert_eq!(name_is_dns_subdomain("-", NameUse::Prefix).len(), 1);
    assert_eq!(name_is_dns_label("aé-", NameUse::Prefix).len(), 1);
    assert_eq!(name_is_path_segment("..", NameUse::Name), ["may not be '..'"]);
    assert!(name_is_path_segment("..", NameUse::Prefix).is_empty());
    assert_eq!(
        name_is_path_segment("a/%", NameUse::Name),
        ["may not contain '/'", "may not contain '%'"]
    );
}

#[test]
fn label_keys_name_the_bad_part() {
    for good in [
        "a",
        "A.b_c-1",
        "example.com/A",
        &format!("{}/{}", "a".repeat(253), "b".repeat(63)),
    ] {
        assert_eq!(label_key(good), Vec::<String>::new(), "{good}");
    }
    check(
        &label_key("/"),
        expect![[r#"
        prefix part must be non-empty
        name part must be non-empty
        name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
    check(
        &label_key("a/b/c"),
        expect![
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ],
    );
    check(
        &label_value(&format!("{}-", "a".repeat(63))),
        expect![[r#"
        must be no more than 63 bytes
        a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#]],
    );
    assert!(label_value("").is_empty());
}

#[test]
fn annotation_prefixes_may_be_upper_case_and_their_sum_is_bounded() {
    let path = Path::new("metadata").child("annotations");
    assert!(annotation_errors(&json!({"Example.COM/a": "x y z"}), &path).is_empty());
    assert_eq!(annotation_errors(&json!({"a b": ""}), &path).len(), 1);
    let big = json!({"a": "x".repeat(TOTAL_ANNOTATION_BYTES)});
    check(
        &texts(&annotation_errors(&big, &path)),
        expect!["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
    check(
        &texts(&label_errors(&json!({"a": "-"}), &Path::new("l"))),
        expect![[
            r#"l: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
        ]],
    );
}

#[test]
fn keys_ports_and_variables_have_their_own_rules() {
    check(
        &config_map_key("../x"),
        expect![[r#"
        a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
        must not start with '..'"#]],
    );
    check(&config_map_key(".."), expect!["must not be '..'"]);
    check(
        &port_name("-1--2-aaaaaaaaaaaaaaa"),
        expect![[r#"
        must be no more than 15 characters
        must not contain consecutive hyphens
        must not begin or end with a hyphen"#]],
    );
    check(
        &port_name(""),
        expect![[r#"
        must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
        must contain at least one letter (a-z)"#]],
    );
    check(&port_number(0), expect!["must be between 1 and 65535, inclusive"]);
    check(
        &relaxed_env_var_name("a=b"),
        expect!["a valid environment variable name must consist only of printable ASCII characters other than '='"],
    );
    assert_eq!(env_var_name("1a").len(), 1);
    assert!(percent("5%").is_empty());
    assert_eq!(percent("%").len(), 1);
    assert!(c_identifier("_a1").is_empty());
    assert_eq!(c_identifier("1a").len(), 1);
}

#[test]
fn domains_need_enough_segments() {
    let path = Path::new("f");
    check(
        &texts(&fully_qualified_name(&path, "a.b")),
        expect![[r#"f: Invalid value: "a.b": should be a domain with at least three segments separated by dots"#]],
    );
    assert!(fully_qualified_domain_name(&path, "a.b.").is_empty());
    assert_eq!(fully_qualified_domain_name(&path, "a").len(), 1);
    assert!(domain_prefixed_path(&path, "acme.io/foo/bar").is_empty());
    assert_eq!(domain_prefixed_path(&path, "acme.io/f oo").len(), 1);
    assert_eq!(domain_prefixed_key(&path, "foo").len(), 1);
}

#[test]
fn addresses_must_be_canonical_unless_legacy() {
    let path = Path::new("ip");
    for good in ["10.0.0.1", "::", "2001:db8::1", "fe80::abc"] {
        assert!(ip_errors(&path, good).is_empty(), "{good}");
    }
    let all = ["1.2.3", "010.2.3.4", "::ffff:1.2.3.4", "FE80::1", "1::2%eth0", ""]
        .map(|value| texts(&ip_errors(&path, value)).concat());
    check(
        &all,
        expect![[r#"
        ip: Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        ip: Invalid value: "010.2.3.4": must not have leading 0s
        ip: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address
        ip: Invalid value: "FE80::1": must be in canonical form ("fe80::1")
        ip: Invalid value: "1::2%eth0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        ip: Invalid value: "": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#]],
    );
    assert!(ip_errors_legacy(&path, "FE80::1", &[]).is_empty());
    assert!(ip_errors_legacy(&path, "010.2.3.4", &["010.2.3.4"]).is_empty());
    check(
        &ip_warnings(&path, "010.2.3.4"),
        expect![[r#"ip: non-standard IP address "010.2.3.4" is invalid: use "10.2.3.4""#]],
    );
}

#[test]
fn networks_must_be_canonical_unless_legacy() {
    let path = Path::new("cidr");
    for good in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/64"] {
        assert!(cidr_errors(&path, good).is_empty(), "{good}");
    }
    let all = [
        "10.0.0.0",
        "10.0.0.0/33",
        "10.0.0.0/08",
        "10.1.0.0/8",
        "::ffff:1.2.3.0/120",
        "FE80::/64",
    ]
    .map(|value| texts(&cidr_errors(&path, value)).concat());
    check(
        &all,
        expect![[r#"
        cidr: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
        cidr: Invalid value: "10.0.0.0/33": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
        cidr: Invalid value: "10.0.0.0/08": must not have leading 0s in IP or prefix length
        cidr: Invalid value: "10.1.0.0/8": must not have bits set beyond the prefix length
        cidr: Invalid value: "::ffff:1.2.3.0/120": must not have an IPv4-mapped IPv6 address
        cidr: Invalid value: "FE80::/64": must be in canonical form ("fe80::/64")"#]],
    );
    check(
        &cidr_warnings(&path, "10.1.0.0/8"),
        expect![[
            r#"cidr: CIDR value "10.1.0.0/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.1.0.0/32"?)"#
        ]],
    );
    assert!(interface_address_errors(&path, "192.168.1.5/24").is_empty());
    check(
        &texts(&interface_address_errors(&path, "::ffff:192.168.0.1/120")),
        expect![[r#"cidr: Invalid value: "::ffff:192.168.0.1/120": must be in canonical form ("192.168.0.1/24")"#]],
    );
}
