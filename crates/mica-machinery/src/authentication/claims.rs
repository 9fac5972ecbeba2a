//! From the claims of a proven token to the user it names.

use serde_json::{Map, Value, json};

use super::validate::USER;
use super::{Issuer, Mapping, Rule};
use crate::cel::cost::PER_CALL_LIMIT;
use crate::cel::{Bindings, Val};
use crate::object;

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Whom claims name. Groups that everybody has are not among these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

/// Why claims name nobody. It may repeat what claims hold, so it is for reviews and logs of operators, not for strangers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("oidc: {0}")]
pub struct Refused(String);

type Result<T> = std::result::Result<T, Refused>;

fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(Refused(why.into()))
}

impl Issuer {
    /// The user that claims of this issuer name, if all rules hold.
    pub fn identify(&self, claims: &Value) -> Result<Identity> {
        // Go reads every number of a document as a floating one, and expressions were written for that.
        let mut seen = claims.clone();
        float(&mut seen);
        let mut identity = Identity {
            name: self.username(claims, &seen)?,
            groups: self.groups(claims, &seen)?,
            uid: self.uid(claims, &seen)?,
            extra: self.extra(claims, &seen)?,
        };
        identity.extra.sort();
        for (claim, wanted) in &self.required {
            let Some(found) = claims.get(claim) else {
                return refused(format!("required claim {claim} not present in ID token"));
            };
            match found.as_str() {
                None => return refused(format!("parse claim {claim}: {}", not_a_string(found))),
                Some(found) if found != wanted => {
                    return refused(format!(
                        "required claim {claim} value does not match. Got = {found}, want = {wanted}"
                    ));
                }
                Some(_) => {}
            }
        }
        hold(&self.claim_rules, "claims", &seen, "claim validation expression")?;
        if !self.user_rules.is_empty() {
            let extra: Map<String, Value> = identity
                .extra
                .iter()
                .map(|(key, values)| (key.clone(), values.clone().into()))
                .collect();
            let user = json!({
                "username": identity.name, "uid": identity.uid, "groups": identity.groups, "extra": extra,
            });
            hold(&self.user_rules, USER, &user, "user info validation rule")?;
        }
        Ok(identity)
    }

    fn username(&self, claims: &Value, seen: &Value) -> Result<String> {
        match &self.username {
            Mapping::Expression(rule) => match text_of(rule, seen, "username")? {
                name if name.is_empty() => refused("empty username via CEL expression is not allowed"),
                name => Ok(name),
            },
            Mapping::Claim { name, prefix } => {
                let text =
                    claim(claims, name).map_err(|why| Refused(format!("parse username claims {name:?}: {why}")))?;
                if name == "email" {
                    match claims.get("email_verified") {
                        None | Some(Value::Bool(true)) => {}
                        Some(Value::Bool(false)) => return refused("email not verified"),
                        Some(_) => return refused("parse 'email_verified' claim: it is no bool"),
                    }
                }
                Ok(format!("{prefix}{text}"))
            }
        }
    }

    fn groups(&self, claims: &Value, seen: &Value) -> Result<Vec<String>> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Mapping::Claim { name, prefix }) => {
                let Some(found) = claims.get(name) else {
                    return Ok(Vec::new());
                };
                let groups = match found {
                    Value::Null => Some(Vec::new()),
                    Value::String(one) => Some(vec![one.clone()]),
                    Value::Array(items) => items.iter().map(|item| item.as_str().map(ToOwned::to_owned)).collect(),
                    _ => None,
                };
                let groups =
                    groups.ok_or_else(|| Refused(format!("parse groups claim {name:?}: {}", not_a_string(found))))?;
                Ok(groups.iter().map(|group| format!("{prefix}{group}")).collect())
            }
            Some(Mapping::Expression(rule)) => {
                let failed = |why: &str| Refused(format!("error evaluating group claim expression: {why}"));
                let value = eval(rule, "claims", seen).map_err(|why| failed(&why))?;
                list_of(&value).map_err(failed)
            }
        }
    }

    fn uid(&self, claims: &Value, seen: &Value) -> Result<String> {
        match &self.uid {
            None => Ok(String::new()),
            Some(Mapping::Expression(rule)) => text_of(rule, seen, "uid"),
            Some(Mapping::Claim { name, .. }) => {
                claim(claims, name).map_err(|why| Refused(format!("parse uid claim {name:?}: {why}")))
            }
        }
    }

    fn extra(&self, claims: &Value, seen: &Value) -> Result<Vec<(String, Vec<String>)>> {
        let mut extra = Vec::new();
        let jti = object::string(claims, &["jti"]);
        if !jti.is_empty() {
            extra.push((CREDENTIAL_ID.to_owned(), vec![format!("JTI={jti}")]));
        }
        for (key, rule) in &self.extra {
            let value = eval(rule, "claims", seen).map_err(Refused)?;
            let values = list_of(&value).map_err(|why| {
                Refused(format!(
                    "error evaluating extra claim expression: {}: {why}",
                    rule.source
                ))
            })?;
            if !values.is_empty() {
                extra.push((key.clone(), values));
            }
        }
        Ok(extra)
    }
}

fn not_a_string(value: &Value) -> String {
    let of = match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Array(_) => "array",
        _ => "object",
    };
    format!("json: cannot unmarshal {of} into Go value of type string")
}

fn claim(claims: &Value, name: &str) -> std::result::Result<String, String> {
    match claims.get(name) {
        None => Err("claim not present".to_owned()),
        Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(not_a_string(other)),
    }
}

fn float(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().and_then(serde_json::Number::from_f64);
            *value = float.map_or(Value::Null, Value::Number);
        }
        Value::Array(items) => items.iter_mut().for_each(float),
        Value::Object(map) => map.values_mut().for_each(float),
        _ => {}
    }
}

fn eval<'a>(rule: &Rule, name: &'a str, of: &'a Value) -> std::result::Result<Val<'a>, String> {
    let outcome = rule
        .program
        .eval(&Bindings::new().with(name, Val::dynamic(of)), PER_CALL_LIMIT);
    outcome
        .result
        .map_err(|why| format!("expression '{}' resulted in error: {why}", rule.source))
}

fn text_of(rule: &Rule, claims: &Value, what: &str) -> Result<String> {
    let failed = |why: String| Refused(format!("error evaluating {what} claim expression: {why}"));
    match eval(rule, "claims", claims).map_err(failed)? {
        Val::String(text) => Ok(text.to_string()),
        _ => Err(failed(format!("{what} claim expression must return a string"))),
    }
}

/// A string or a list of strings. Those that are empty are not there.
fn list_of(value: &Val<'_>) -> std::result::Result<Vec<String>, &'static str> {
    const WRONG: &str = "expression must return a string or a list of strings";
    let full = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    match value {
        Val::Null => Ok(Vec::new()),
        Val::String(text) => Ok(full(text).into_iter().collect()),
        Val::List(list) => {
            let mut all = Vec::new();
            for item in list.iter() {
                match item {
                    Ok(Val::String(text)) => all.extend(full(&text)),
                    _ => return Err(WRONG),
                }
            }
            Ok(all)
        }
        _ => Err(WRONG),
    }
}

fn hold(rules: &[Rule], name: &str, of: &Value, what: &str) -> Result<()> {
    for rule in rules {
        let why = match eval(rule, name, of) {
            Ok(Val::Bool(true)) => continue,
            Ok(Val::Bool(false)) => format!("validation expression '{}' failed: {}", rule.source, rule.message),
            Ok(_) => "validation expression must return a boolean".to_owned(),
            Err(why) => why,
        };
        return refused(format!("error evaluating {what}: {why}"));
    }
    Ok(())
}
