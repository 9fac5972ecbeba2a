//! What an expression may cost, reckoned before it runs.
//!
//! The estimate walks the checked tree and multiplies by the sizes that the schema allows, as cel-go's `checker/cost.go`
//! does with Kubernetes' estimator. It decides which CRDs are accepted, so it must be the same to the unit.

pub mod call;
mod size;

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::{self, Expr, Fold, Id, Kind, Literal};
use super::check::Checked;
use super::decl::DeclType;
use super::types::Type;
pub use size::{Estimate, Size};

/// What one call may spend.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// What the rules of one object, or one policy binding, may spend together.
pub const RUNTIME_BUDGET: i64 = 10_000_000;
/// What one rule in a CRD may be estimated at, times how often it may run.
pub const STATIC_RULE_LIMIT: u64 = 10_000_000;
/// What all rules in a CRD may be estimated at together.
pub const STATIC_CRD_LIMIT: u64 = 100_000_000;

const ZERO: Estimate = Estimate { min: 0, max: 0 };
const IDENT: Estimate = Estimate { min: 1, max: 1 };
const LIST: Estimate = Estimate { min: 10, max: 10 };
const MAP: Estimate = Estimate { min: 30, max: 30 };
const STRUCT: Estimate = Estimate { min: 40, max: 40 };

pub fn estimate(checked: &Checked, declared: &HashMap<String, Arc<DeclType>>) -> Estimate {
    let mut coster = Coster {
        checked,
        declared,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(&checked.root)
}

/// Sizes of the keys (or indexes) and values of a list or map that an expression makes.
#[derive(Debug, Clone, Copy)]
struct EntrySize {
    is_list: bool,
    key: Size,
    value: Size,
}

struct Local {
    name: String,
    path: Path,
    size: Option<Size>,
    entry: Option<EntrySize>,
}

/// A way through the declared types: a variable, then fields, `@items`, `@keys` or `@values`. Empty if there is none.
type Path = Vec<String>;

struct Coster<'c> {
    checked: &'c Checked,
    declared: &'c HashMap<String, Arc<DeclType>>,
    paths: HashMap<Id, Path>,
    locals: Vec<Local>,
    sizes: HashMap<Id, Size>,
    entries: HashMap<Id, EntrySize>,
}

/// What a call's estimate needs to know about an operand.
pub(super) struct Operand<'c> {
    of: Type,
    expr: &'c Expr,
    path: Path,
    computed: Option<Size>,
}

impl Coster<'_> {
    fn cost(&mut self, expr: &Expr) -> Estimate {
        match &expr.kind {
            Kind::Literal(_) => ZERO,
            Kind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.clone()],
                };
                self.paths.insert(expr.id, path);
                IDENT
            }
            Kind::Select(select) => {
                let operand = self.cost(&select.operand);
                if select.test_only {
                    return operand;
                }
                let mut path = self.path(&select.operand);
                path.push(select.field.clone());
                self.paths.insert(expr.id, path);
                match self.checked.type_of(select.operand.id) {
                    Type::Map(..) | Type::Struct(_) | Type::Param(_) => operand.plus(IDENT),
                    _ => operand,
                }
            }
            Kind::Call(call) => self.call(expr, call),
            Kind::List(list) => self.list(expr.id, &list.elements),
            Kind::Map(entries) => self.map(expr.id, entries),
            Kind::Struct(made) => made
                .fields
                .iter()
                .fold(STRUCT, |sum, field| sum.plus(self.cost(&field.value))),
            Kind::Fold(fold) if is_bind(fold) => self.bind(expr.id, fold),
            Kind::Fold(fold) => self.fold(expr.id, fold),
        }
    }

    fn list(&mut self, id: Id, elements: &[Expr]) -> Estimate {
        let mut sum = LIST;
        let mut item = Size {
            min: if elements.is_empty() { 0 } else { u64::MAX },
            max: 0,
        };
        for element in elements {
            sum = sum.plus(self.cost(element));
            item = item.union(self.size_or_unknown(element));
        }
        self.entries.insert(
            id,
            EntrySize {
                is_list: true,
                key: Size::fixed(1),
                value: item,
            },
        );
        sum
    }

    fn map(&mut self, id: Id, entries: &[ast::Entry]) -> Estimate {
        let mut sum = MAP;
        let least = if entries.is_empty() { 0 } else { u64::MAX };
        let (mut key, mut value) = (Size { min: least, max: 0 }, Size { min: least, max: 0 });
        for entry in entries {
            sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
            key = key.union(self.size_or_unknown(&entry.key));
            value = value.union(self.size_or_unknown(&entry.value));
        }
        self.entries.insert(
            id,
            EntrySize {
                is_list: false,
                key,
                value,
            },
        );
        sum
    }

    fn call(&mut self, expr: &Expr, call: &ast::Call) -> Estimate {
        if call.function == "dyn" {
            let arg = &call.args[0];
            let cost = self.cost(arg).plus(Estimate::fixed(1));
            self.copy_sizes(expr.id, arg);
            return cost;
        }
        let mut costs = Vec::new();
        let mut args = Vec::new();
        for arg in &call.args {
            costs.push(self.cost(arg));
            args.push(self.operand(arg));
        }
        let overloads = self.checked.overloads(expr.id);
        if overloads.is_empty() {
            return ZERO;
        }
        let mut sum = ZERO;
        let target = call.target.as_ref().map(|target| {
            sum = sum.plus(self.cost(target));
            self.operand(target)
        });
        let mut cost = Estimate { min: u64::MAX, max: 0 };
        let mut result: Option<Size> = None;
        for overload in overloads {
            let (one, size) = self.overload(expr, &call.function, overload, target.as_ref(), &args, &costs);
            cost = cost.union(one);
            if let Some(size) = size {
                result = Some(result.map_or(size, |known| known.union(size)));
            }
            if let ("index_list" | "index_map", Some(operand)) = (*overload, call.args.first()) {
                result = self.entry_size(operand).map(|entry| entry.value);
                let mut path = self.path(operand);
                path.push(if *overload == "index_list" { "@items" } else { "@values" }.to_owned());
                self.paths.insert(expr.id, path);
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        if let Some(size) = result {
            self.sizes.insert(expr.id, size);
        }
        sum.plus(cost)
    }

    fn overload(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Operand<'_>>,
        args: &[Operand<'_>],
        costs: &[Estimate],
    ) -> (Estimate, Option<Size>) {
        let all = costs.iter().fold(ZERO, |sum, cost| sum.plus(*cost));
        if let Some((cost, size)) = call::estimate(self, function, overload, target, args) {
            return (cost.plus(all), size);
        }
        match overload {
            "logical_and" | "logical_or" => {
                let (left, right) = (costs[0], costs[1]);
                (
                    Estimate {
                        min: left.min,
                        max: left.plus(right).max,
                    },
                    None,
                )
            }
            "conditional" => {
                let size = args[1].size_or_unknown().union(args[2].size_or_unknown());
                let (yes, no) = (self.entry_size(args[1].expr), self.entry_size(args[2].expr));
                self.join_entries(expr.id, yes, no);
                (costs[0].plus(costs[1].union(costs[2])), Some(size))
            }
            "add_string" | "add_bytes" | "add_list" if args.len() == 2 => {
                let size = args[0].size_or_unknown().plus(args[1].size_or_unknown());
                let (left, right) = (self.entry_size(args[0].expr), self.entry_size(args[1].expr));
                self.join_entries(expr.id, left, right);
                let cost = if overload == "add_list" {
                    Estimate::fixed(1)
                } else {
                    size.times_factor(call::STRING_FACTOR)
                };
                (cost.plus(all), Some(size))
            }
            _ => {
                let (cost, size) = call::estimate_standard(overload, target, args);
                (cost.plus(all), size)
            }
        }
    }

    fn join_entries(&mut self, id: Id, a: Option<EntrySize>, b: Option<EntrySize>) {
        if let (Some(a), Some(b)) = (a, b) {
            let joined = EntrySize {
                is_list: a.is_list,
                key: a.key.union(b.key),
                value: a.value.union(b.value),
            };
            self.entries.insert(id, joined);
        }
    }

    fn fold(&mut self, id: Id, fold: &Fold) -> Estimate {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accu, &fold.init);
        let entry = self.entry_size(&fold.range);
        let is_list = match entry {
            Some(entry) => entry.is_list,
            None => matches!(self.checked.type_of(fold.range.id), Type::List(_)),
        };
        let (keys, values) = if is_list {
            ("@indices", "@items")
        } else {
            ("@keys", "@values")
        };
        let (key, value) = (entry.map(|entry| entry.key), entry.map(|entry| entry.value));
        let mut variables = 1;
        match &fold.var2 {
            Some(var2) => {
                self.push_iterator(&fold.var, &fold.range, keys, key);
                self.push_iterator(var2, &fold.range, values, value);
                variables = 2;
            }
            None if is_list => self.push_iterator(&fold.var, &fold.range, values, value),
            None => self.push_iterator(&fold.var, &fold.range, "@keys", key),
        }
        let condition = self.cost(&fold.condition);
        let step = self.cost(&fold.step);
        self.locals.truncate(self.locals.len() - variables);
        sum = sum.plus(self.cost(&fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(&fold.range);
        sum = sum.plus(count.times(step.plus(condition)));
        match &fold.init.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(id, size);
                }
            }
            Kind::List(_) | Kind::Map(_) => {
                self.sizes.insert(id, count);
                if let Some(entry) = self.entry_size(&fold.step) {
                    self.entries.insert(id, entry);
                }
            }
            _ => {}
        }
        sum
    }

    /// A comprehension that only names a value.
    fn bind(&mut self, id: Id, fold: &Fold) -> Estimate {
        let sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accu, &fold.init);
        let sum = sum.plus(self.cost(&fold.result));
        self.locals.pop();
        self.copy_sizes(id, &fold.result);
        sum
    }

    fn push_value(&mut self, name: &str, value: &Expr) {
        let local = Local {
            name: name.to_owned(),
            path: self.path(value),
            size: self.size(value),
            entry: self.entry_size(value),
        };
        self.locals.push(local);
    }

    fn push_iterator(&mut self, name: &str, range: &Expr, below: &str, size: Option<Size>) {
        let mut path = self.path(range);
        path.push(below.to_owned());
        self.locals.push(Local {
            name: name.to_owned(),
            path,
            size,
            entry: None,
        });
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expr: &Expr) -> Path {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn operand<'e>(&mut self, expr: &'e Expr) -> Operand<'e> {
        let mut path = self.path(expr);
        if path
            .first()
            .is_some_and(|name| name == ast::ACCUMULATOR || name == "__result__")
        {
            path.clear();
        }
        let computed = self.size(expr);
        Operand {
            of: self.checked.type_of(expr.id).clone(),
            expr,
            path,
            computed,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Size {
        self.size(expr).unwrap_or(Size::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Size> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = written_size(expr) {
            return Some(size);
        }
        let path = self.path(expr);
        if let Some(size) = self.declared_size(&path) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expr.id)) {
            return Some(Size::fixed(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    /// The size that the schema gives to what stands at `path`.
    fn declared_size(&self, path: &[String]) -> Option<Size> {
        let (root, rest) = path.split_first()?;
        let mut at: &DeclType = self.declared.get(root).or_else(|| self.declared.get("self"))?;
        for name in rest {
            at = at.step(name)?;
        }
        Some(Size {
            min: 0,
            max: at.max_elements as u64,
        })
    }

    fn entry_size(&self, expr: &Expr) -> Option<EntrySize> {
        if let Some(entry) = self.entries.get(&expr.id) {
            return Some(*entry);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.entry),
            _ => None,
        }
    }

    fn copy_sizes(&mut self, to: Id, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to, size);
        }
        if let Some(entry) = self.entry_size(from) {
            self.entries.insert(to, entry);
        }
    }
}

fn is_bind(fold: &Fold) -> bool {
    matches!(&fold.range.kind, Kind::List(list) if list.elements.is_empty())
        && matches!(fold.condition.kind, Kind::Literal(Literal::Bool(false)))
        && fold.accu != "__result__"
}

/// The size of what is written out.
fn written_size(expr: &Expr) -> Option<Size> {
    Some(Size::fixed(match &expr.kind {
        Kind::Literal(Literal::String(text)) => text.chars().count() as u64,
        Kind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        Kind::Literal(_) => 1,
        Kind::List(list) => list.elements.len() as u64,
        Kind::Map(entries) => entries.len() as u64,
        _ => return None,
    }))
}

fn is_scalar(of: &Type) -> bool {
    match of.unwrapped() {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        other => other.optional_inner().is_some_and(is_scalar),
    }
}

impl Operand<'_> {
    pub(super) fn size_or_unknown(&self) -> Size {
        self.computed.unwrap_or(Size::UNKNOWN)
    }
}
