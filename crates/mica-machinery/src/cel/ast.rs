//! The syntax tree of an expression: what the parser makes and the checker, the cost model and the planner read.
//!
//! Every node has an id; `Positions` says where each id came from. Nodes that a macro makes carry the position of the call.

/// A node's number, unique in its tree.
pub type Id = u32;

#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub id: Id,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Literal(Literal),
    Ident(String),
    Select(Box<Select>),
    Call(Box<Call>),
    List(List),
    Map(Vec<Entry>),
    Struct(Struct),
    Fold(Box<Fold>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    pub operand: Expr,
    pub field: String,
    /// `has(operand.field)`.
    pub test_only: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub target: Option<Expr>,
    pub function: String,
    pub args: Vec<Expr>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct List {
    pub elements: Vec<Expr>,
    /// Indexes of elements written `?element`.
    pub optional: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub id: Id,
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<FieldInit>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FieldInit {
    pub id: Id,
    pub name: String,
    pub value: Expr,
    pub optional: bool,
}

/// A comprehension: what `all`, `map` and the other macros become.
#[derive(Debug, Clone, PartialEq)]
pub struct Fold {
    pub range: Expr,
    pub var: String,
    pub var2: Option<String>,
    pub accu: String,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

/// The names that the parser gives to operators, as upstream spells them.
pub mod op {
    pub const CONDITIONAL: &str = "_?_:_";
    pub const AND: &str = "_&&_";
    pub const OR: &str = "_||_";
    pub const NOT: &str = "!_";
    pub const NEGATE: &str = "-_";
    pub const EQUALS: &str = "_==_";
    pub const NOT_EQUALS: &str = "_!=_";
    pub const ADD: &str = "_+_";
    pub const INDEX: &str = "_[_]";
    pub const OPT_INDEX: &str = "_[?_]";
    pub const OPT_SELECT: &str = "_?._";
    pub const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub const IN: &str = "@in";
}

/// The hidden name of a comprehension's accumulator.
pub const ACCUMULATOR: &str = "@result";

impl Expr {
    /// `a.b.c` as text, when the tree is only names.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select(select) if !select.test_only => {
                let mut name = select.operand.qualified_name()?;
                name.push('.');
                name.push_str(&select.field);
                Some(name)
            }
            _ => None,
        }
    }

    /// Calls `visit` with this node and every node below it, parents first.
    pub fn walk<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        visit(self);
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select(select) => select.operand.walk(visit),
            Kind::Call(call) => {
                if let Some(target) = &call.target {
                    target.walk(visit);
                }
                for arg in &call.args {
                    arg.walk(visit);
                }
            }
            Kind::List(list) => {
                for element in &list.elements {
                    element.walk(visit);
                }
            }
            Kind::Map(entries) => {
                for entry in entries {
                    entry.key.walk(visit);
                    entry.value.walk(visit);
                }
            }
            Kind::Struct(made) => {
                for field in &made.fields {
                    field.value.walk(visit);
                }
            }
            Kind::Fold(fold) => {
                for part in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    part.walk(visit);
                }
            }
        }
    }
}

/// Where each id stands in the source, as an offset in characters.
#[derive(Debug, Clone, Default)]
pub struct Positions(Vec<i32>);

impl Positions {
    pub fn next(&mut self, offset: i32) -> Id {
        if self.0.is_empty() {
            self.0.push(-1);
        }
        self.0.push(offset);
        (self.0.len() - 1) as Id
    }

    pub fn of(&self, id: Id) -> i32 {
        self.0.get(id as usize).copied().unwrap_or(-1)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
