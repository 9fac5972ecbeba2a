//! Validation and compilation of issuers, in one pass, with upstream's texts.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::{Issuer, Mapping, Rule};
use crate::cel::{self, CompileError, DeclType, Env, Type};
use crate::field::{Error, ErrorList, Path};
use crate::kind::pem;
use crate::kind::webhook::parse_url;
use crate::{names, object};

/// Issuers of one document. Upstream's number.
const MAX_ISSUERS: usize = 64;

const CLAIMS: &str = "claims";
pub(super) const USER: &str = "user";

static CLAIMS_ENV: LazyLock<Env> =
    LazyLock::new(|| Env::new().with_variable(CLAIMS, Type::map(Type::String, Type::Dyn)));

static USER_ENV: LazyLock<Env> = LazyLock::new(|| {
    let of = |of: Type| Arc::new(DeclType::opaque(of));
    let fields = [
        ("username", of(Type::String)),
        ("uid", of(Type::String)),
        ("groups", of(Type::list(Type::String))),
        ("extra", of(Type::map(Type::String, Type::list(Type::String)))),
    ];
    let fields = fields.map(|(name, of)| (name.to_owned(), of)).into_iter().collect();
    Env::new().with_declared(USER, Arc::new(DeclType::fields_of("kubernetes.UserInfo", fields)))
});

/// What an expression must yield.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Yields {
    Bool,
    /// Looked at when it is run.
    Anything,
}

/// What expressions say about the address of mail, which must not be believed before it was verified.
#[derive(Default)]
struct Mail {
    used: bool,
    verified: bool,
}

pub(super) fn issuers(jwt: &[Value], path: &Path, taken: &[&str]) -> Result<Vec<Issuer>, ErrorList> {
    if jwt.len() > MAX_ISSUERS {
        return Err(vec![Error::too_many(path, jwt.len(), MAX_ISSUERS)]);
    }
    let mut errors = ErrorList::new();
    let mut issuers = Vec::new();
    let (mut urls, mut discovered) = (HashSet::new(), HashSet::new());
    for (i, one) in jwt.iter().enumerate() {
        let path = path.index(i);
        issuers.extend(issuer(one, &path, taken, &mut errors));
        let text = |field: &str| object::string(one, &["issuer", field]);
        let url = text("url");
        if !urls.insert(url) {
            errors.push(Error::duplicate(&path.child("issuer").child("url"), url));
        }
        let discovery = text("discoveryURL");
        if !discovery.is_empty() && !discovered.insert(discovery) {
            errors.push(Error::duplicate(&path.child("issuer").child("discoveryURL"), discovery));
        }
    }
    if errors.is_empty() { Ok(issuers) } else { Err(errors) }
}

/// One issuer; `None` if something is wrong with it.
fn issuer(of: &Value, path: &Path, taken: &[&str], errors: &mut ErrorList) -> Option<Issuer> {
    let before = errors.len();
    validate_issuer(of, &path.child("issuer"), taken, errors);
    let mut mail = Mail::default();
    let (required, claim_rules) = claim_rules(of, &path.child("claimValidationRules"), &mut mail, errors);
    let mappings = path.child("claimMappings");
    let username = prefixed(of, "username", &mappings, errors);
    if let Some(Mapping::Expression(rule)) = &username {
        mail.used |= cel::selects(&rule.source, CLAIMS, "email");
        mail.verified |= is_verified(rule);
    }
    if username.is_none() && !is_set(of, &["claimMappings", "username"]) {
        errors.push(Error::required(
            &mappings.child("username"),
            "claim or expression is required",
        ));
    }
    let groups = prefixed(of, "groups", &mappings, errors);
    let uid = uid(of, &mappings.child("uid"), errors);
    let extra = extra(of, &mappings.child("extra"), &mut mail, errors);
    if mail.used && !mail.verified {
        let source = object::string(of, &["claimMappings", "username", "expression"]);
        errors.push(Error::invalid(
            &mappings.child("username").child("expression"),
            source,
            "claims.email_verified must be used in claimMappings.username.expression or \
             claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
             claimMappings.username.expression",
        ));
    }
    let user_rules = user_rules(of, &path.child("userValidationRules"), errors);
    if errors.len() > before {
        return None;
    }
    let text = |field: &str| object::string(of, &["issuer", field]).to_owned();
    Some(Issuer {
        url: text("url"),
        discovery_url: Some(text("discoveryURL")).filter(|url| !url.is_empty()),
        certificate_authority: text("certificateAuthority"),
        audiences: texts(of, &["issuer", "audiences"]),
        username: username?,
        groups,
        uid,
        extra,
        required,
        claim_rules,
        user_rules,
    })
}

fn texts(of: &Value, path: &[&str]) -> Vec<String> {
    let texts = object::list(of, path).iter();
    texts.map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

fn is_set(of: &Value, path: &[&str]) -> bool {
    let text = |field: &str| {
        let path: Vec<&str> = path.iter().copied().chain([field]).collect();
        !object::string(of, &path).is_empty()
    };
    text("claim") || text("expression")
}

fn is_verified(rule: &Rule) -> bool {
    cel::selects(&rule.source, CLAIMS, "email_verified")
}

fn validate_issuer(of: &Value, path: &Path, taken: &[&str], errors: &mut ErrorList) {
    let text = |field: &str| object::string(of, &["issuer", field]);
    let (url, discovery) = (text("url"), text("discoveryURL"));
    if url.is_empty() {
        errors.push(Error::required(&path.child("url"), ""));
    } else {
        validate_url(url, &path.child("url"), taken, errors);
    }
    if !discovery.is_empty() {
        let path = path.child("discoveryURL");
        if !url.is_empty() && url.trim_end_matches('/') == discovery.trim_end_matches('/') {
            errors.push(Error::invalid(
                &path,
                discovery,
                "discoveryURL must be different from URL",
            ));
        }
        validate_url(discovery, &path, &[], errors);
    }
    validate_audiences(of, path, errors);
    errors.extend(validate_certificates(
        text("certificateAuthority"),
        &path.child("certificateAuthority"),
    ));
    let selector = text("egressSelectorType");
    if !matches!(selector, "" | "controlplane" | "cluster") {
        errors.push(Error::invalid(
            &path.child("egressSelectorType"),
            selector,
            "egress selector must be either controlplane or cluster",
        ));
    }
}

fn validate_url(url: &str, path: &Path, taken: &[&str], errors: &mut ErrorList) {
    if taken.contains(&url) {
        let mut taken = taken.to_vec();
        taken.sort_unstable();
        let detail = format!("URL must not overlap with disallowed issuers: [{}]", taken.join(" "));
        errors.push(Error::invalid(path, url, detail));
    }
    let parsed = match parse_url(url) {
        Ok(parsed) => parsed,
        Err(why) => {
            errors.push(Error::invalid(path, url, why));
            return;
        }
    };
    let mut wrong = |is: bool, what: &str| {
        if is {
            errors.push(Error::invalid(path, url, what));
        }
    };
    wrong(parsed.scheme != "https", "URL scheme must be https");
    wrong(parsed.user.is_some(), "URL must not contain a username or password");
    wrong(!parsed.query.is_empty(), "URL must not contain a query");
    wrong(!parsed.fragment.is_empty(), "URL must not contain a fragment");
}

fn validate_audiences(of: &Value, path: &Path, errors: &mut ErrorList) {
    let audiences = texts(of, &["issuer", "audiences"]);
    let policy = object::string(of, &["issuer", "audienceMatchPolicy"]);
    let (path, policy_path) = (path.child("audiences"), path.child("audienceMatchPolicy"));
    if audiences.is_empty() {
        let detail = format!("at least one {path} is required");
        errors.push(Error::required(&path, detail));
        return;
    }
    let mut seen = HashSet::new();
    for (i, audience) in audiences.iter().enumerate() {
        if audience.is_empty() {
            errors.push(Error::required(&path.index(i), ""));
        }
        if !seen.insert(audience) {
            errors.push(Error::duplicate(&path.index(i), audience.as_str()));
        }
    }
    let detail = match (audiences.len(), policy) {
        (_, "MatchAny") | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.push(Error::invalid(&policy_path, policy, detail));
}

/// What is wrong with a bundle of certificates.
fn validate_certificates(bundle: &str, path: &Path) -> ErrorList {
    if bundle.is_empty() {
        return ErrorList::new();
    }
    let mut found = false;
    for block in pem::blocks(bundle.as_bytes()) {
        if block.label != "CERTIFICATE" || block.has_headers {
            continue;
        }
        if pem::certificate(&block.bytes).is_none() {
            return vec![Error::invalid(path, "<omitted>", "x509: malformed certificate")];
        }
        found = true;
    }
    if found {
        return ErrorList::new();
    }
    let detail = "data does not contain any valid RSA or ECDSA certificates";
    vec![Error::invalid(path, "<omitted>", detail)]
}

type Required = Vec<(String, String)>;

fn claim_rules(of: &Value, path: &Path, mail: &mut Mail, errors: &mut ErrorList) -> (Required, Vec<Rule>) {
    let (mut required, mut rules) = (Vec::new(), Vec::new());
    let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
    for (i, rule) in object::list(of, &["claimValidationRules"]).iter().enumerate() {
        let path = path.index(i);
        let text = |field: &str| object::string(rule, &[field]);
        let (claim, source) = (text("claim"), text("expression"));
        match (claim.is_empty(), source.is_empty()) {
            (false, false) => errors.push(Error::invalid(&path, claim, "claim and expression can't both be set")),
            (true, true) => errors.push(Error::required(&path, "claim or expression is required")),
            (false, true) => {
                if !text("message").is_empty() {
                    let detail = "may not be specified when claim is set";
                    errors.push(Error::invalid(&path.child("message"), text("message"), detail));
                }
                if !claims.insert(claim) {
                    errors.push(Error::duplicate(&path.child("claim"), claim));
                }
                required.push((claim.to_owned(), text("requiredValue").to_owned()));
            }
            (true, false) => {
                if !text("requiredValue").is_empty() {
                    let detail = "may not be specified when expression is set";
                    errors.push(Error::invalid(
                        &path.child("requiredValue"),
                        text("requiredValue"),
                        detail,
                    ));
                }
                let path = path.child("expression");
                if !expressions.insert(source) {
                    errors.push(Error::duplicate(&path, source));
                    continue;
                }
                if let Some(rule) = rule_of(&CLAIMS_ENV, source, text("message"), Yields::Bool, &path, errors) {
                    mail.verified |= is_verified(&rule);
                    rules.push(rule);
                }
            }
        }
    }
    (required, rules)
}

/// The mapping of the username or the groups; `None` where there is none, or where it is wrong.
fn prefixed(of: &Value, name: &str, path: &Path, errors: &mut ErrorList) -> Option<Mapping> {
    let mapping = object::get(of, &["claimMappings", name])?;
    let path = path.child(name);
    let text = |field: &str| object::string(mapping, &[field]);
    let prefix = object::get(mapping, &["prefix"]).and_then(Value::as_str);
    let (claim, source) = (text("claim"), text("expression"));
    match (claim.is_empty(), source.is_empty()) {
        (false, false) => {
            errors.push(Error::invalid(&path, "", "claim and expression can't both be set"));
            None
        }
        (true, true) => None,
        (true, false) => {
            if let Some(prefix) = prefix {
                let detail = "may not be specified when expression is set";
                errors.push(Error::invalid(&path.child("prefix"), prefix, detail));
            }
            let path = path.child("expression");
            rule_of(&CLAIMS_ENV, source, "", Yields::Anything, &path, errors).map(Mapping::Expression)
        }
        (false, true) => {
            let Some(prefix) = prefix else {
                errors.push(Error::required(
                    &path.child("prefix"),
                    "prefix is required when claim is set. It can be set to an empty string to disable prefixing",
                ));
                return None;
            };
            Some(Mapping::Claim {
                name: claim.to_owned(),
                prefix: prefix.to_owned(),
            })
        }
    }
}

fn uid(of: &Value, path: &Path, errors: &mut ErrorList) -> Option<Mapping> {
    let text = |field: &str| object::string(of, &["claimMappings", "uid", field]);
    match (text("claim"), text("expression")) {
        ("", "") => None,
        ("", source) => {
            let path = path.child("expression");
            rule_of(&CLAIMS_ENV, source, "", Yields::Anything, &path, errors).map(Mapping::Expression)
        }
        (name, "") => Some(Mapping::Claim {
            name: name.to_owned(),
            prefix: String::new(),
        }),
        _ => {
            errors.push(Error::invalid(path, "", "claim and expression can't both be set"));
            None
        }
    }
}

fn extra(of: &Value, path: &Path, mail: &mut Mail, errors: &mut ErrorList) -> Vec<(String, Rule)> {
    let mut extra = Vec::new();
    let mut seen = HashSet::new();
    for (i, mapping) in object::list(of, &["claimMappings", "extra"]).iter().enumerate() {
        let path = path.index(i);
        let (key_path, value_path) = (path.child("key"), path.child("valueExpression"));
        let key = object::string(mapping, &["key"]);
        errors.extend(names::domain_prefixed_path(&key_path, key));
        if key != key.to_lowercase() {
            errors.push(Error::invalid(&key_path, key, "must be lowercase"));
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let reserved = |of: &str| domain == of || domain.ends_with(&format!(".{of}"));
        if reserved("kubernetes.io") || reserved("k8s.io") {
            let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            errors.push(Error::invalid(&key_path, key, detail));
        }
        if !seen.insert(key) {
            errors.push(Error::duplicate(&key_path, key));
            continue;
        }
        let source = object::string(mapping, &["valueExpression"]);
        if source.is_empty() {
            errors.push(Error::required(&value_path, ""));
            continue;
        }
        if let Some(rule) = rule_of(&CLAIMS_ENV, source, "", Yields::Anything, &value_path, errors) {
            mail.verified |= is_verified(&rule);
            extra.push((key.to_owned(), rule));
        }
    }
    extra
}

fn user_rules(of: &Value, path: &Path, errors: &mut ErrorList) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut seen = HashSet::new();
    for (i, rule) in object::list(of, &["userValidationRules"]).iter().enumerate() {
        let path = path.index(i).child("expression");
        let source = object::string(rule, &["expression"]);
        if source.is_empty() {
            errors.push(Error::required(&path, ""));
        } else if !seen.insert(source) {
            errors.push(Error::duplicate(&path, source));
        } else {
            let message = object::string(rule, &["message"]);
            rules.extend(rule_of(&USER_ENV, source, message, Yields::Bool, &path, errors));
        }
    }
    rules
}

fn rule_of(
    env: &Env,
    source: &str,
    message: &str,
    yields: Yields,
    path: &Path,
    errors: &mut ErrorList,
) -> Option<Rule> {
    let not_bool = |found: &Type| yields == Yields::Bool && *found != Type::Bool;
    let program = match env.compile(source) {
        Ok(program) if !not_bool(program.result_type()) => program,
        Err(CompileError::Issues(issues)) => {
            errors.push(Error::invalid(path, source, format!("compilation failed: {issues}")));
            return None;
        }
        Err(CompileError::Instantiation { why, result_type }) if !not_bool(&result_type) => {
            errors.push(Error::internal(path, format!("program instantiation failed: {why}")));
            return None;
        }
        Ok(_) | Err(_) => {
            errors.push(Error::invalid(path, source, "must evaluate to bool"));
            return None;
        }
    };
    Some(Rule {
        source: source.to_owned(),
        message: message.to_owned(),
        program,
    })
}
