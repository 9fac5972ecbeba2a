//! What is looked at after the types: literals that can only fail, and lists and maps of mixed types.

use std::collections::HashSet;

use super::Checked;
use crate::cel::ast::{Call, Expr, Id, Kind, Literal, Positions};
use crate::cel::library::{self, formatting};
use crate::cel::source::Issue;
use crate::cel::types::Type;

pub fn validate(checked: &Checked, positions: &Positions) -> Vec<Issue> {
    let mut issues = Vec::new();
    let mut exempt = HashSet::new();
    checked.root.walk(&mut |expr| {
        if let Kind::Call(call) = &expr.kind
            && call.function == "format"
        {
            expr.walk(&mut |below| {
                exempt.insert(below.id);
            });
            template(expr.id, call, checked, positions, &mut issues);
        }
    });
    checked.root.walk(&mut |expr| {
        literal_argument(expr, positions, &mut issues);
        if !exempt.contains(&expr.id) {
            mixed(expr, checked, positions, &mut issues);
        }
    });
    issues
}

/// `'%d'.format([1])` with both written out: the clauses must fit the arguments.
fn template(id: Id, call: &Call, checked: &Checked, positions: &Positions, issues: &mut Vec<Issue>) {
    let Some(Expr {
        kind: Kind::Literal(Literal::String(template)),
        ..
    }) = &call.target
    else {
        return;
    };
    let [
        Expr {
            kind: Kind::List(list), ..
        },
    ] = call.args.as_slice()
    else {
        return;
    };
    if let Err((argument, message)) = formatting::check(template, &list.elements, checked) {
        issues.push(Issue {
            offset: positions.of(argument.unwrap_or(id)),
            message,
        });
    }
}

/// `duration('x')`, `timestamp('x')` and `matches('[')`: the first argument, if it is a literal, must be one that works.
fn literal_argument(expr: &Expr, positions: &Positions, issues: &mut Vec<Issue>) {
    let Kind::Call(call) = &expr.kind else { return };
    let Some(Expr {
        id,
        kind: Kind::Literal(literal),
    }) = call.args.first()
    else {
        return;
    };
    let valid = match (call.function.as_str(), literal) {
        ("duration", Literal::String(text)) => library::time::parse_duration(text).is_some(),
        ("timestamp", Literal::String(text)) => library::time::parse_timestamp(text).is_ok(),
        ("duration", _) => false,
        ("timestamp", Literal::Int(seconds)) => library::time::in_range(*seconds),
        ("timestamp", _) => false,
        ("matches", Literal::String(pattern)) => library::regex::compile(pattern).is_ok(),
        _ => true,
    };
    if !valid {
        issues.push(Issue {
            offset: positions.of(*id),
            message: format!("invalid {} argument", call.function),
        });
    }
}

fn mixed(expr: &Expr, checked: &Checked, positions: &Positions, issues: &mut Vec<Issue>) {
    let type_of = |expr: &Expr, optional: bool| {
        let of = checked.type_of(expr.id);
        if optional {
            of.optional_inner().unwrap_or(of)
        } else {
            of
        }
        .clone()
    };
    let mut mismatch = |expr: &Expr, wanted: &Type, found: &Type| {
        let message = format!("expected type '{wanted}' but found '{found}'");
        issues.push(Issue {
            offset: positions.of(expr.id),
            message,
        });
    };
    match &expr.kind {
        Kind::List(list) => {
            let mut first = None;
            for (i, element) in list.elements.iter().enumerate() {
                let found = type_of(element, list.optional.contains(&i));
                let wanted = first.get_or_insert_with(|| found.clone());
                if !wanted.is_equivalent(&found) {
                    return mismatch(element, wanted, &found);
                }
            }
        }
        Kind::Map(entries) => {
            let mut first = None;
            for entry in entries {
                let found = (type_of(&entry.key, false), type_of(&entry.value, entry.optional));
                let (key, value) = first.get_or_insert_with(|| found.clone());
                if !key.is_equivalent(&found.0) {
                    mismatch(&entry.key, key, &found.0);
                }
                if !value.is_equivalent(&found.1) {
                    mismatch(&entry.value, value, &found.1);
                }
            }
        }
        _ => {}
    }
}
