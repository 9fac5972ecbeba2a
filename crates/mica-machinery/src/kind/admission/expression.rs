//! CEL expressions in webhook configurations and policies: that they are there, well named, and compile.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cel::admission::{Compiler, Params, Purpose, Refusal};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::invalid_each;
use crate::{names, object};

const MAX_MATCH_CONDITIONS: usize = 64;

/// The error that a refused expression is reported as. `shown` is the expression as it is quoted there.
pub fn error(refusal: &Refusal, shown: &str, path: &Path) -> Error {
    match refusal {
        Refusal::Instantiation(_) => Error::internal(path, refusal.to_string()),
        Refusal::Compilation(_) | Refusal::Type { .. } => Error::invalid(path, shown, refusal.to_string()),
    }
}

/// Compiles an expression and reports what is wrong with it.
pub fn compile(compiler: &Compiler, expression: &str, purpose: Purpose, path: &Path) -> Option<Error> {
    let refusal = compiler.compile(expression, purpose).err()?;
    Some(error(&refusal, expression, path))
}

pub fn validate_match_conditions(conditions: &[Value], params: Params, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let compiler = Compiler::new(params);
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
                &compiler,
                expression,
                Purpose::MatchCondition,
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

pub fn validate_variables(variables: &[Value], compiler: &mut Compiler, path: &Path) -> ErrorList {
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
        } else if let Err(refusal) = compiler.compile_variable(name, expression) {
            errors.push(error(&refusal, expression, &path.child("expression")));
        }
    }
    errors
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !crate::cel::escape::is_reserved(name)
}
