//! CEL expressions in webhook configurations and policies: that they are there and well named.
//!
//! [`compile`] is the seam for the CEL compiler: every expression that is not blank passes through it with what it may use
//! and must yield.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::invalid_each;
use crate::{names, object};

const MAX_MATCH_CONDITIONS: usize = 64;

/// What an expression is for, which decides its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    MatchCondition,
    Validation,
    Message,
    AuditAnnotation,
    Variable,
    ApplyConfiguration,
    JsonPatch,
}

/// Whether `params` may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Params {
    Declared,
    Absent,
}

/// Compiles an expression and reports what is wrong with it.
// TODO-correctness(#3): there is no CEL compiler yet, so every expression passes.
pub fn compile(_expression: &str, _purpose: Purpose, _params: Params, _path: &Path) -> Option<Error> {
    None
}

pub fn validate_match_conditions(conditions: &[Value], params: Params, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if conditions.len() > MAX_MATCH_CONDITIONS {
        errors.push(Error::too_many(path, conditions.len(), MAX_MATCH_CONDITIONS));
    }
    let mut seen = BTreeSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        let (name, expression) = (
            object::string(condition, &["name"]),
            object::string(condition, &["expression"]).trim(),
        );
        if expression.is_empty() {
            errors.push(Error::required(&path.child("expression"), ""));
        } else {
            errors.extend(compile(
                expression,
                Purpose::MatchCondition,
                params,
                &path.child("expression"),
            ));
        }
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
            continue;
        }
        errors.extend(invalid_each(&path.child("name"), name, names::qualified_name(name)));
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
    }
    errors
}

pub fn validate_variables(variables: &[Value], params: Params, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    for (i, variable) in variables.iter().enumerate() {
        let path = path.index(i);
        let name = object::string(variable, &["name"]);
        if name.trim().is_empty() {
            errors.push(Error::required(&path.child("name"), "name is not specified"));
        } else if !is_identifier(name) {
            errors.push(Error::invalid(
                &path.child("name"),
                name,
                "must be a valid CEL identifier",
            ));
        }
        let expression = object::string(variable, &["expression"]);
        if expression.trim().is_empty() {
            errors.push(Error::required(
                &path.child("expression"),
                "expression is not specified",
            ));
        } else {
            errors.extend(compile(
                expression,
                Purpose::Variable,
                params,
                &path.child("expression"),
            ));
        }
    }
    errors
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !crate::cel::escape::is_reserved(name)
}
