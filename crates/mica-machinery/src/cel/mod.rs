//! CEL: the expression language of validation rules, admission policies and match conditions.
//!
//! `Env` says which names an expression may use, `Env::compile` checks it and gives a `Program`, `Program::estimate_cost`
//! says what it may cost, and `Program::eval` runs it within a budget. Types, errors, costs and libraries are those of
//! kube-apiserver 1.36, whose limits are in `cost`. Evaluation reads JSON in place and never panics, whatever the
//! expression; what it spends is bounded by the budget it is given.

pub mod access;
pub mod admission;
pub mod ast;
pub mod cost;
pub mod decl;
pub mod escape;
pub mod eval;
pub mod library;
pub mod schema;
pub mod source;
pub mod types;
pub mod value;

mod check;
mod env;
mod functions;
mod lexer;
mod macros;
mod message;
mod native;
mod parser;
mod plan;
mod refusal;
mod unescape;

#[cfg(test)]
mod tests;

pub use decl::{DeclType, Place};
pub use env::{CompileError, Env, OldSelf, Program};
pub use eval::{Activation, Bindings, Outcome};
pub use library::EvalError;
pub use schema::Schema;
pub use source::CompileErrors;
pub use types::Type;
pub use value::Val;

/// Whether an expression selects a field of a variable: `variable.field` or `variable.?field`. One that does not parse selects
/// nothing.
pub fn selects(source: &str, variable: &str, field: &str) -> bool {
    let Ok(parsed) = parser::parse(source) else {
        return false;
    };
    let is_variable = |expr: &ast::Expr| matches!(&expr.kind, ast::Kind::Ident(name) if name == variable);
    let mut found = false;
    parsed.root.walk(&mut |expr| match &expr.kind {
        ast::Kind::Select(select) => found |= is_variable(&select.operand) && select.field == field,
        ast::Kind::Call(call) if call.function == ast::op::OPT_SELECT => {
            let named =
                |arg: &ast::Expr| matches!(&arg.kind, ast::Kind::Literal(ast::Literal::String(text)) if text == field);
            found |= matches!(&call.args[..], [of, name] if is_variable(of) && named(name));
        }
        _ => {}
    });
    found
}
