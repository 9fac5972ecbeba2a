//! Which type fits where, and what that says about the type variables in them.
//!
//! The rules are cel-go's (`checker/types.go`): anything fits `dyn`, null fits what may be absent, and a variable takes the
//! most general type that it meets.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cel::types::Type;

/// What is known of each type variable.
#[derive(Debug, Clone, Default)]
pub struct Mapping(HashMap<Arc<str>, Type>);

impl Mapping {
    pub fn bind(&mut self, name: &str, to: Type) {
        self.0.insert(name.into(), to);
    }

    fn get(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Param(name) => self.0.get(name),
            _ => None,
        }
    }

    /// Whether every type of `from` fits its place in `to`; if so, what was learnt is kept.
    pub fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut learnt = self.clone();
        let fits = learnt.all(from, to);
        if fits {
            *self = learnt;
        }
        fits
    }

    pub fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn all(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to))
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if matches!(to, Type::Param(_)) {
            match self.substitutes(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(from, Type::Param(_)) {
            return self.substitutes(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, _) => may_be_null(to),
            (_, Type::Null) => may_be_null(from),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.fits(a, b),
            (Type::Map(k, v), Type::Map(l, w)) => self.fits(k, l) && self.fits(v, w),
            (Type::Opaque(a, p), Type::Opaque(b, q)) => a == b && self.all(p, q),
            _ => from.unwrapped() == to.unwrapped(),
        }
    }

    /// Whether the variable `var` may stand for `of`, and whether it already stood for something.
    fn substitutes(&mut self, of: &Type, var: &Type) -> (bool, bool) {
        if of == var {
            return (true, true);
        }
        let Type::Param(name) = var else { return (false, false) };
        if let Some(known) = self.0.get(name).cloned() {
            if of.unwrapped() == known.unwrapped() {
                return (true, true);
            }
            if self.fits(of, &known) {
                let general = most_general(of, &known);
                if self.is_free_of(var, general) {
                    let general = general.clone();
                    self.0.insert(name.clone(), general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.is_free_of(var, of) {
            self.0.insert(name.clone(), of.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether `var` does not occur in `within`, by way of other variables or not.
    fn is_free_of(&self, var: &Type, within: &Type) -> bool {
        if var == within {
            return false;
        }
        match within {
            Type::Param(_) => self.get(within).is_none_or(|known| self.is_free_of(var, known)),
            Type::List(of) => self.is_free_of(var, of),
            Type::Map(key, value) => self.is_free_of(var, key) && self.is_free_of(var, value),
            Type::Opaque(_, params) => params.iter().all(|param| self.is_free_of(var, param)),
            Type::Type(Some(of)) => self.is_free_of(var, of),
            _ => true,
        }
    }

    /// `of` with its variables replaced by what is known; the unknown ones by `dyn` if `free` says so.
    pub fn substitute(&self, of: &Type, free: Free) -> Type {
        if let Some(known) = self.get(of) {
            return self.substitute(known, free);
        }
        match of {
            Type::Param(_) if free == Free::Dyn => Type::Dyn,
            Type::List(of) => Type::list(self.substitute(of, free)),
            Type::Map(key, value) => Type::map(self.substitute(key, free), self.substitute(value, free)),
            Type::Opaque(name, params) => Type::Opaque(
                name.clone(),
                params.iter().map(|param| self.substitute(param, free)).collect(),
            ),
            Type::Type(Some(of)) => Type::type_of(self.substitute(of, free)),
            other => other.clone(),
        }
    }
}

/// What becomes of a variable that nothing is known about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    Keep,
    Dyn,
}

fn may_be_null(of: &Type) -> bool {
    matches!(
        of,
        Type::Null | Type::Opaque(..) | Type::Struct(_) | Type::Duration | Type::Timestamp | Type::Wrapper(_)
    )
}

/// The more general of two types that fit each other.
pub fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if is_less_specific(a, b) { a } else { b }
}

fn is_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::Opaque(a, p), Type::Opaque(b, q)) => {
            a == b && p.len() == q.len() && p.iter().zip(q.iter()).all(|(p, q)| is_less_specific(p, q))
        }
        (Type::List(a), Type::List(b)) => is_less_specific(a, b),
        (Type::Map(k, v), Type::Map(l, w)) => is_less_specific(k, l) && is_less_specific(v, w),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a.unwrapped() == b.unwrapped(),
    }
}
