//! The checker: gives every node a type and every call its overloads, or says why not.
//!
//! The texts and places of errors are cel-go's (`checker/checker.go`). The tree is rewritten where names turn out to be
//! qualified: `sets.contains(a, b)` is parsed as a call on `sets` and becomes a call of `sets.contains`.

mod unify;
mod validate;

use super::ast::{Call, Expr, Fold, Id, Kind, List, Literal, Struct, op};
use super::env::Env;
use super::functions::{self, Function, Style};
use super::message;
use super::parser::Parsed;
use super::source::Issue;
use super::types::Type;
use unify::{Free, Mapping, most_general};

/// A tree with what the checker found out about it.
#[derive(Debug)]
pub struct Checked {
    pub root: Expr,
    types: Vec<Type>,
    overloads: Vec<Vec<&'static str>>,
    idents: Vec<bool>,
}

impl Checked {
    pub fn type_of(&self, id: Id) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }

    /// The overloads that a call may turn out to be.
    pub fn overloads(&self, id: Id) -> &[&'static str] {
        self.overloads.get(id as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the node was resolved to a declared name.
    pub fn is_reference(&self, id: Id) -> bool {
        self.idents.get(id as usize).copied().unwrap_or(false)
    }
}

pub fn check(parsed: Parsed, env: &Env) -> Result<Checked, Vec<Issue>> {
    let count = parsed.positions.len();
    let mut checker = Checker {
        env,
        positions: &parsed.positions,
        scopes: Vec::new(),
        mapping: Mapping::default(),
        variables: 0,
        issues: Vec::new(),
        types: vec![Type::Dyn; count],
        overloads: vec![Vec::new(); count],
        idents: vec![false; count],
    };
    let mut root = parsed.root;
    checker.expr(&mut root);
    for slot in &mut checker.types {
        *slot = checker.mapping.substitute(slot, Free::Dyn);
    }
    let Checker {
        issues,
        types,
        overloads,
        idents,
        ..
    } = checker;
    if !issues.is_empty() {
        return Err(issues);
    }
    let checked = Checked {
        root,
        types,
        overloads,
        idents,
    };
    let issues = validate::validate(&checked, &parsed.positions);
    if issues.is_empty() { Ok(checked) } else { Err(issues) }
}

struct Checker<'c> {
    env: &'c Env,
    positions: &'c super::ast::Positions,
    /// Names that comprehensions bind, innermost last.
    scopes: Vec<(String, Type)>,
    mapping: Mapping,
    variables: u32,
    issues: Vec<Issue>,
    types: Vec<Type>,
    overloads: Vec<Vec<&'static str>>,
    idents: Vec<bool>,
}

impl Checker<'_> {
    fn expr(&mut self, expr: &mut Expr) {
        let id = expr.id;
        match &mut expr.kind {
            Kind::Literal(literal) => {
                let literal_type = literal_type(literal);
                self.set(id, literal_type);
            }
            Kind::Ident(name) => {
                let found = self.ident(name.trim_start_matches('.'));
                match found {
                    Some(found) => {
                        *name = name.trim_start_matches('.').to_owned();
                        self.refer(id, found);
                    }
                    None => {
                        let name = name.clone();
                        self.undeclared(id, &name);
                    }
                }
            }
            Kind::Select(_) => self.select(expr),
            Kind::Call(_) => self.call(expr),
            Kind::List(list) => self.list(id, list),
            Kind::Map(_) => self.map(expr),
            Kind::Struct(_) => self.make_struct(expr),
            Kind::Fold(fold) => self.fold(id, fold),
        }
    }

    fn select(&mut self, expr: &mut Expr) {
        if let Some(name) = expr.qualified_name()
            && let Some(found) = self.ident(name.trim_start_matches('.'))
        {
            self.refer(expr.id, found);
            expr.kind = Kind::Ident(name.trim_start_matches('.').to_owned());
            return;
        }
        let id = expr.id;
        let Kind::Select(select) = &mut expr.kind else { return };
        let field = select.field.clone();
        let mut result = self.field(id, &mut select.operand, &field);
        if select.test_only {
            result = Type::Bool;
        }
        let result = self.mapping.substitute(&result, Free::Keep);
        self.set(id, result);
    }

    /// The type of `operand.field`, an optional one if the operand is.
    fn field(&mut self, id: Id, operand: &mut Expr, field: &str) -> Type {
        self.expr(operand);
        let of = self.mapping.substitute(&self.types[operand.id as usize], Free::Keep);
        let target = of.optional_inner().unwrap_or(&of);
        let result = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Struct(name) => self.env.field_type(name, field).unwrap_or_else(|| {
                let message = match self.env.has_fields(name) {
                    true => format!("undefined field '{field}'"),
                    false => format!("unexpected failed resolution of '{name}'"),
                };
                self.report(id, message);
                Type::Error
            }),
            Type::Param(_) => {
                self.mapping.assign(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.report(id, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if of.optional_inner().is_some() {
            Type::optional(result)
        } else {
            result
        }
    }

    fn call(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let Kind::Call(call) = &mut expr.kind else { return };
        if call.function == op::OPT_SELECT {
            return self.optional_select(id, call);
        }
        for arg in &mut call.args {
            self.expr(arg);
        }
        if let Some(target) = &mut call.target {
            let qualified = target
                .qualified_name()
                .map(|prefix| format!("{prefix}.{}", call.function));
            let named = qualified
                .as_deref()
                .and_then(|name| self.function(name.trim_start_matches('.')));
            if let Some(function) = named {
                call.target = None;
                call.function = function.name.to_owned();
                return self.resolve(id, function, call);
            }
            self.expr(target);
        }
        match self.function(call.function.trim_start_matches('.')) {
            Some(function) => {
                call.function = function.name.to_owned();
                self.resolve(id, function, call);
            }
            None => {
                let name = call.function.clone();
                self.undeclared(id, &name);
            }
        }
    }

    fn optional_select(&mut self, id: Id, call: &mut Call) {
        let [operand, field] = call.args.as_mut_slice() else {
            return;
        };
        let Kind::Literal(Literal::String(name)) = &field.kind else {
            return;
        };
        let name = name.clone();
        let mut result = self.field(id, operand, &name);
        if result.optional_inner().is_none() || !self.is_optional(operand.id) {
            result = Type::optional(result);
        }
        self.types[field.id as usize] = Type::String;
        let result = self.mapping.substitute(&result, Free::Keep);
        self.set(id, result);
        self.overloads[id as usize] = vec!["select_optional_field"];
    }

    fn is_optional(&self, id: Id) -> bool {
        self.mapping
            .substitute(&self.types[id as usize], Free::Keep)
            .optional_inner()
            .is_some()
    }

    fn resolve(&mut self, id: Id, function: &'static Function, call: &Call) {
        if function.name == op::AND || function.name == op::OR {
            return self.resolve_logical(id, function, call);
        }
        let operands = call.target.iter().chain(&call.args);
        let args: Vec<Type> = operands.map(|arg| self.types[arg.id as usize].clone()).collect();
        let style = if call.target.is_some() {
            Style::Member
        } else {
            Style::Global
        };
        let mut result: Option<Type> = None;
        for overload in function.overloads.iter().filter(|overload| overload.style == style) {
            let (wanted, returned) = self.instantiate(overload);
            if !self.mapping.assign_all(&args, &wanted) {
                continue;
            }
            self.overloads[id as usize].push(overload.id);
            let returned = self.mapping.substitute(&returned, Free::Keep);
            result = Some(match result {
                None => returned,
                Some(Type::Dyn) => Type::Dyn,
                Some(known) if known == returned => known,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(result) => self.set(id, result),
            None => {
                let mut shown = args
                    .iter()
                    .map(|arg| self.mapping.substitute(arg, Free::Dyn).to_string());
                let receiver = match style {
                    Style::Member => format!("{}.", shown.next().unwrap_or_default()),
                    Style::Global => String::new(),
                };
                let signature = format!("{receiver}({})", shown.collect::<Vec<_>>().join(", "));
                let name = function.name;
                self.report(
                    id,
                    format!("found no matching overload for '{name}' applied to '{signature}'"),
                );
                self.set(id, Type::Error);
            }
        }
    }

    /// The overload's argument and result types, with variables of this call's own.
    fn instantiate(&mut self, overload: &functions::Overload) -> (Vec<Type>, Type) {
        if overload.params.is_empty() {
            return (overload.args.clone(), overload.result.clone());
        }
        let mut fresh = Mapping::default();
        for param in &overload.params {
            fresh.bind(param, self.variable());
        }
        let args = overload
            .args
            .iter()
            .map(|arg| fresh.substitute(arg, Free::Keep))
            .collect();
        (args, fresh.substitute(&overload.result, Free::Keep))
    }

    fn resolve_logical(&mut self, id: Id, function: &'static Function, call: &Call) {
        let mut result = Type::Bool;
        for arg in &call.args {
            let found = self.types[arg.id as usize].clone();
            if !self.mapping.assign(&found, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, &found);
                result = Type::Error;
            }
        }
        self.overloads[id as usize].push(function.overloads[0].id);
        self.set(id, result);
    }

    fn list(&mut self, id: Id, list: &mut List) {
        let mut joined = None;
        for (i, element) in list.elements.iter_mut().enumerate() {
            self.expr(element);
            let mut found = self.types[element.id as usize].clone();
            if list.optional.contains(&i) {
                found = self.unwrap_optional(element.id, found);
            }
            joined = Some(self.join(joined, found));
        }
        let of = joined.unwrap_or_else(|| self.variable());
        self.set(id, Type::list(of));
    }

    fn map(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let Kind::Map(entries) = &mut expr.kind else { return };
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.expr(&mut entry.key);
            let key = self.types[entry.key.id as usize].clone();
            keys = Some(self.join(keys, key));
            self.expr(&mut entry.value);
            let mut value = self.types[entry.value.id as usize].clone();
            if entry.optional {
                value = self.unwrap_optional(entry.value.id, value);
            }
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.variable());
        let value = values.unwrap_or_else(|| self.variable());
        self.set(id, Type::map(key, value));
    }

    fn make_struct(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let Kind::Struct(Struct { name, fields }) = &mut expr.kind else {
            return;
        };
        let Some(declared) = self.ident(name.trim_start_matches('.')) else {
            let name = name.clone();
            return self.undeclared(id, &name);
        };
        if name.starts_with('.') {
            name.remove(0);
        }
        let made = match declared {
            Type::Type(Some(of)) => match &*of {
                // These can be called by either name here, and are unknown when they are made by the shorter one.
                Type::Struct(_) | Type::Null | Type::Duration | Type::Timestamp => (*of).clone(),
                _ if message::type_of(name).is_some() => (*of).clone(),
                other => {
                    self.report(id, format!("'{}' is not a message type", other.runtime_name()));
                    Type::Error
                }
            },
            other => {
                self.report(id, format!("'{}' is not a type", other.runtime_name()));
                Type::Error
            }
        };
        self.set(id, made.clone());
        let full = match &made {
            Type::Duration | Type::Timestamp => made.runtime_name(),
            Type::Null => "google.protobuf.NullValue",
            _ => name,
        };
        for field in fields {
            self.expr(&mut field.value);
            let known = Some(()).filter(|()| made != Type::Error);
            let wanted = known.and_then(|()| self.env.field_type(full, &field.name));
            let wanted = wanted.unwrap_or_else(|| {
                let message = match self.env.is_resolved(full) {
                    true => format!("undefined field '{}'", field.name),
                    false => format!("unexpected failed resolution of '{full}'"),
                };
                self.report(field.id, message);
                Type::Error
            });
            let mut found = self.types[field.value.id as usize].clone();
            if field.optional {
                found = self.unwrap_optional(field.value.id, found);
            }
            if !self.mapping.assign(&wanted, &found) {
                let name = &field.name;
                self.report(
                    field.id,
                    format!("expected type of field '{name}' is '{wanted}' but provided type is '{found}'"),
                );
            }
        }
    }

    fn fold(&mut self, id: Id, fold: &mut Fold) {
        self.expr(&mut fold.range);
        self.expr(&mut fold.init);
        let range = self.mapping.substitute(&self.types[fold.range.id as usize], Free::Keep);
        let accu = self.types[fold.init.id as usize].clone();
        let outer = self.scopes.len();
        self.scopes.push((fold.accu.clone(), accu.clone()));
        let two = fold.var2.is_some();
        let (first, second) = match &range {
            Type::List(of) if two => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.mapping.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                self.report(
                    fold.range.id,
                    format!("expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"),
                );
                (Type::Error, Type::Error)
            }
        };
        let inner = self.scopes.len();
        self.scopes.push((fold.var.clone(), first));
        if let Some(var2) = &fold.var2 {
            self.scopes.push((var2.clone(), second));
        }
        self.expr(&mut fold.condition);
        self.expect(fold.condition.id, &Type::Bool);
        self.expr(&mut fold.step);
        self.expect(fold.step.id, &accu);
        self.scopes.truncate(inner);
        self.expr(&mut fold.result);
        self.scopes.truncate(outer);
        let result = self
            .mapping
            .substitute(&self.types[fold.result.id as usize], Free::Keep);
        self.set(id, result);
    }

    fn expect(&mut self, id: Id, wanted: &Type) {
        let found = self.types[id as usize].clone();
        if !self.mapping.assign(wanted, &found) {
            self.mismatch(id, wanted, &found);
        }
    }

    fn unwrap_optional(&mut self, id: Id, found: Type) -> Type {
        if let Some(inner) = found.optional_inner() {
            return inner.clone();
        }
        if found != Type::Dyn {
            self.mismatch(id, &Type::optional(found.clone()), &found);
        }
        found
    }

    fn join(&mut self, known: Option<Type>, found: Type) -> Type {
        let Some(known) = known else { return found };
        if self.mapping.assign(&known, &found) {
            return most_general(&known, &found).clone();
        }
        // Mixed literals are refused later, where it is known which of them are arguments of `format`.
        Type::Dyn
    }

    fn variable(&mut self) -> Type {
        self.variables += 1;
        Type::Param(format!("_var{}", self.variables - 1).into())
    }

    fn ident(&self, name: &str) -> Option<Type> {
        let local = self.scopes.iter().rev().find(|(local, _)| local == name);
        local.map(|(_, of)| of.clone()).or_else(|| self.env.ident_type(name))
    }

    fn function(&self, name: &str) -> Option<&'static Function> {
        self.env.function(name)
    }

    fn refer(&mut self, id: Id, found: Type) {
        self.set(id, found);
        self.idents[id as usize] = true;
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        self.set(id, Type::Error);
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn mismatch(&mut self, id: Id, wanted: &Type, found: &Type) {
        self.report(id, format!("expected type '{wanted}' but found '{found}'"));
    }

    fn set(&mut self, id: Id, of: Type) {
        self.types[id as usize] = of;
    }

    fn report(&mut self, id: Id, message: String) {
        self.issues.push(Issue {
            offset: self.positions.of(id),
            message,
        });
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
