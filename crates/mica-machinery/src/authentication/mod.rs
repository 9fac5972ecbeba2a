//! Who a signed token of somebody else's is: `AuthenticationConfiguration`, its validation, and the way from claims to a user.
//!
//! Fields, texts and the order of steps are upstream's (`apiserver/pkg/apis/apiserver/validation`,
//! `apiserver/plugin/pkg/authenticator/token/oidc`). Whether a token is signed is not decided here: claims come in proven.

mod claims;
mod read;
mod validate;

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::cel::Program;
use crate::field::{self, ErrorList, Path};
use crate::object;

pub use claims::{Identity, Refused};
pub use read::{Unreadable, parse};

/// What one document says, compiled.
#[derive(Debug, Default)]
pub struct Configuration {
    pub issuers: Vec<Issuer>,
    /// `None`: the document does not say.
    pub anonymous: Option<Anonymous>,
}

/// Whether those who prove nothing are somebody, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anonymous {
    pub enabled: bool,
    /// Paths at which they are; all, if there are none.
    pub paths: Vec<String>,
}

/// One issuer of tokens, and whom its tokens name.
#[derive(Debug)]
pub struct Issuer {
    pub url: String,
    /// Where its document is, if it is not where its name says.
    pub discovery_url: Option<String>,
    /// PEM; empty for what the machine trusts.
    pub certificate_authority: String,
    /// A token must be for one of these.
    pub audiences: Vec<String>,
    pub(crate) username: Mapping,
    pub(crate) groups: Option<Mapping>,
    pub(crate) uid: Option<Mapping>,
    pub(crate) extra: Vec<(String, Rule)>,
    pub(crate) required: Vec<(String, String)>,
    pub(crate) claim_rules: Vec<Rule>,
    pub(crate) user_rules: Vec<Rule>,
}

/// Where a part of a user comes from.
#[derive(Debug)]
pub(crate) enum Mapping {
    Claim { name: String, prefix: String },
    Expression(Rule),
}

/// An expression, with its text, which errors quote, and what is said when it does not hold.
#[derive(Debug)]
pub(crate) struct Rule {
    pub source: String,
    pub message: String,
    pub program: Program,
}

impl Configuration {
    /// Compiles a document that [`parse`] read. Issuers that sign for others must not be among `taken`.
    pub fn compile(document: &Value, taken: &[&str]) -> Result<Self, ErrorList> {
        let compiled = compile(object::list(document, &["jwt"]), &Path::new("jwt"), taken);
        let mut errors = compiled.as_ref().err().cloned().unwrap_or_default();
        let anonymous = object::get(document, &["anonymous"])
            .filter(|value| value.is_object())
            .map(|value| Anonymous {
                enabled: object::get(value, &["enabled"]).and_then(Value::as_bool) == Some(true),
                paths: object::list(value, &["conditions"])
                    .iter()
                    .map(|condition| object::string(condition, &["path"]).to_owned())
                    .collect(),
            });
        if let Some(anonymous) = &anonymous
            && !anonymous.enabled
            && !anonymous.paths.is_empty()
        {
            let path = Path::new("anonymous").child("conditions");
            let conditions = object::get(document, &["anonymous", "conditions"]).cloned();
            errors.push(field::Error::invalid(
                &path,
                conditions.unwrap_or_default(),
                "enabled should be set to true when conditions are defined",
            ));
        }
        match compiled {
            Ok(issuers) if errors.is_empty() => Ok(Self { issuers, anonymous }),
            _ => Err(errors),
        }
    }
}

/// Compiles a list of issuers, as `jwt` has it, that stands at a path of some object.
pub fn compile(jwt: &[Value], path: &Path, taken: &[&str]) -> Result<Vec<Issuer>, ErrorList> {
    validate::issuers(jwt, path, taken)
}
