//! From a checked tree to what is run.
//!
//! The shape follows cel-go's planner with its optimizations, because run-time costs follow the shape: what is constant
//! costs nothing, `a.b[0].c` is one attribute with three qualifiers, and a branch of `?:` that is an attribute is free
//! but for its qualifiers.

use std::collections::HashSet;
use std::sync::Arc;

use regex::Regex;

use super::ast::{self, Expr, Kind, Literal, op};
use super::check::Checked;
use super::env::Env;
use super::functions;
use super::library::{self, Host, Implementation, convert, regex as patterns};
use super::message;
use super::refusal::{check_qualifier, is_core, is_guarded, no_overload};
use super::types::Type;
use super::value::{Entries, Key, Map, Val, put};

#[derive(Debug)]
pub enum Node {
    Const(Val<'static>),
    Attribute(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Equal(Box<[Node; 2]>, Wanted),
    /// `x in [constants]`.
    InSet(Box<Node>, HashSet<Key>),
    Call(Box<Call>),
    List(Vec<Node>, Vec<bool>),
    Map(Vec<(Node, Node, bool)>),
    Struct(Arc<str>, Vec<(String, Node, bool)>, Made),
    Fold(Box<Fold>),
    /// `optional.or(optional)` and `optional.orValue(value)`.
    Otherwise(Box<[Node; 2]>, Otherwise),
    /// Adds to the accumulator of the comprehension that this is the step of, in place.
    Append(Box<Node>),
    /// Adds an entry (or a map of them) to the accumulator, in place.
    Insert(Vec<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Equal,
    NotEqual,
}

/// What `Name{…}` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// A part of a mutation.
    Object,
    Message,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    Optional,
    Value,
}

/// Something with qualifiers: a variable, a conditional, or any other operand.
#[derive(Debug)]
pub struct Attribute {
    pub base: Base,
    pub qualifiers: Vec<Qualifier>,
    /// `has(…)`: the last qualifier is only asked whether it is there.
    pub test_only: bool,
}

#[derive(Debug)]
pub enum Base {
    Variable(String),
    Operand(Node),
    Conditional(Box<[Node; 3]>),
}

#[derive(Debug)]
pub struct Qualifier {
    pub key: QualifierKey,
    pub optional: bool,
}

#[derive(Debug)]
pub enum QualifierKey {
    Const(Val<'static>),
    Node(Node),
}

#[derive(Debug)]
pub struct Call {
    pub function: String,
    /// The overload, if only one is possible.
    pub overload: &'static str,
    pub args: Vec<Node>,
    pub run: Run,
    /// What the overload takes, where upstream makes sure of it.
    pub wanted: Option<&'static [Type]>,
    /// Whether the first argument that fails ends it: the call is then not paid for.
    pub stops_early: bool,
}

#[derive(Debug)]
pub enum Run {
    Function(Implementation),
    Pattern(Regex),
    NotStrictlyFalse,
}

#[derive(Debug)]
pub struct Fold {
    pub range: Node,
    pub var: String,
    pub var2: Option<String>,
    pub accu: String,
    pub init: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
}

/// Plans a tree. The error is what a constant makes impossible.
pub fn plan(checked: &Checked, env: &Env) -> Result<Node, String> {
    Planner { checked, env }.node(&checked.root)
}

struct Planner<'p> {
    checked: &'p Checked,
    env: &'p Env,
}

impl Planner<'_> {
    fn node(&self, expr: &Expr) -> Result<Node, String> {
        match &expr.kind {
            Kind::Literal(literal) => Ok(Node::Const(constant(literal))),
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select(select) => {
                let key = QualifierKey::Const(Val::string(select.field.as_str()));
                let mut attribute = self.attribute(&select.operand)?;
                attribute.qualifiers.push(Qualifier { key, optional: false });
                attribute.test_only = select.test_only;
                Ok(Node::Attribute(Box::new(attribute)))
            }
            Kind::Call(call) => self.call(expr, call),
            Kind::List(list) => self.list(list),
            Kind::Map(entries) => self.map(entries),
            Kind::Struct(made) => {
                let mut fields = Vec::new();
                for field in &made.fields {
                    fields.push((field.name.clone(), self.node(&field.value)?, field.optional));
                }
                let made_of = match self.env.is_mutation_type(&made.name) {
                    true => Made::Object,
                    false => Made::Message,
                };
                Ok(Node::Struct(made.name.as_str().into(), fields, made_of))
            }
            Kind::Fold(fold) => Ok(Node::Fold(Box::new(Fold {
                range: self.node(&fold.range)?,
                var: fold.var.clone(),
                var2: fold.var2.clone(),
                accu: fold.accu.clone(),
                init: self.node(&fold.init)?,
                condition: self.node(&fold.condition)?,
                step: self.node(&fold.step)?,
                result: self.node(&fold.result)?,
            }))),
        }
    }

    fn ident(&self, expr: &Expr, name: &str) -> Result<Node, String> {
        if name == message::NULL_VALUE {
            return Ok(Node::Const(Val::Int(0)));
        }
        if let Type::Type(_) = self.checked.type_of(expr.id) {
            return match self.env.type_named(name) {
                Some(of) => Ok(Node::Const(Val::Type(of))),
                None => Err(format!("reference to undefined type: {name}")),
            };
        }
        Ok(Node::Attribute(Box::new(variable(name))))
    }

    /// The operand as something that qualifiers can be added to.
    fn attribute(&self, operand: &Expr) -> Result<Attribute, String> {
        Ok(match self.node(operand)? {
            Node::Attribute(attribute) if !attribute.test_only => *attribute,
            node => Attribute {
                base: Base::Operand(node),
                qualifiers: Vec::new(),
                test_only: false,
            },
        })
    }

    fn call(&self, expr: &Expr, call: &ast::Call) -> Result<Node, String> {
        let function = call.function.as_str();
        if let op::INDEX | op::OPT_INDEX | op::OPT_SELECT = function {
            let mut attribute = self.attribute(&call.args[0])?;
            let key = match self.node(&call.args[1])? {
                Node::Const(key) => {
                    check_qualifier(&key)?;
                    QualifierKey::Const(key)
                }
                node => QualifierKey::Node(node),
            };
            attribute.qualifiers.push(Qualifier {
                key,
                optional: function != op::INDEX,
            });
            return Ok(Node::Attribute(Box::new(attribute)));
        }
        if let Some(node) = self.accumulate(call)? {
            return Ok(node);
        }
        let mut args = Vec::new();
        for arg in call.target.iter().chain(&call.args) {
            args.push(self.node(arg)?);
        }
        let overload = match self.checked.overloads(expr.id) {
            [overload] => overload,
            _ => "",
        };
        match function {
            op::AND => Ok(Node::And(two(args))),
            op::OR => Ok(Node::Or(two(args))),
            op::EQUALS => Ok(Node::Equal(two(args), Wanted::Equal)),
            op::NOT_EQUALS => Ok(Node::Equal(two(args), Wanted::NotEqual)),
            op::CONDITIONAL => {
                let parts: [Node; 3] = args.try_into().expect("a conditional has three parts");
                let base = Base::Conditional(Box::new(parts));
                Ok(Node::Attribute(Box::new(Attribute {
                    base,
                    qualifiers: Vec::new(),
                    test_only: false,
                })))
            }
            "or" => Ok(Node::Otherwise(two(args), Otherwise::Optional)),
            "orValue" => Ok(Node::Otherwise(two(args), Otherwise::Value)),
            _ => self.plain_call(function, overload, args),
        }
    }

    fn plain_call(&self, function: &str, overload: &'static str, mut args: Vec<Node>) -> Result<Node, String> {
        if overload == "in_list"
            && let Node::Const(Val::List(list)) = &args[1]
        {
            if list.is_empty() {
                return Ok(Node::Const(Val::Bool(false)));
            }
            let items: Option<Vec<_>> = list.iter().map(|item| item.ok().filter(is_hashed)).collect();
            if let Some(items) = items {
                let keys = items.iter().flat_map(Key::alike).collect();
                return Ok(Node::InSet(Box::new(args.swap_remove(0)), keys));
            }
        }
        let run = self.run(function, &args)?;
        if let (true, [Node::Const(value)], Run::Function(run)) = (convert::is_folded(function), args.as_slice(), &run)
        {
            let mut host = Host {
                steps: u64::MAX,
                authorizer: None,
            };
            let args = std::slice::from_ref(value);
            let made = run(&mut host, args).map_err(|error| no_overload(error, function, args));
            return made.map(Node::Const).map_err(|e| e.to_string());
        }
        let wanted = functions::find(function)
            .filter(|_| is_guarded(function))
            .and_then(|function| function.overloads.iter().find(|known| known.id == overload))
            .map(|overload| overload.args.as_slice());
        let dispatched = overload.is_empty() && !is_core(function);
        let stops_early = args.len() > 2 || dispatched || matches!(run, Run::Pattern(_));
        Ok(Node::Call(Box::new(Call {
            function: function.to_owned(),
            overload,
            args,
            run,
            wanted,
            stops_early,
        })))
    }

    fn run(&self, function: &str, args: &[Node]) -> Result<Run, String> {
        if matches!(function, op::NOT_STRICTLY_FALSE | "__not_strictly_false__") {
            return Ok(Run::NotStrictlyFalse);
        }
        if matches!(function, "matches" | "find" | "findAll")
            && let Some(Node::Const(Val::String(pattern))) = args.get(1)
        {
            return patterns::compile(pattern).map(Run::Pattern);
        }
        library::find(function)
            .map(Run::Function)
            .ok_or_else(|| format!("no such overload: {function}"))
    }

    /// `@result + […]` and `cel.@mapInsert(@result, …)`: done in place.
    fn accumulate(&self, call: &ast::Call) -> Result<Option<Node>, String> {
        let [first, rest @ ..] = call.args.as_slice() else {
            return Ok(None);
        };
        if !matches!(&first.kind, Kind::Ident(name) if name == ast::ACCUMULATOR) {
            return Ok(None);
        }
        match (call.function.as_str(), rest) {
            (op::ADD, [list]) if matches!(list.kind, Kind::List(_)) => {
                Ok(Some(Node::Append(Box::new(self.node(list)?))))
            }
            ("cel.@mapInsert", rest) => {
                let nodes = rest.iter().map(|expr| self.node(expr)).collect::<Result<_, _>>()?;
                Ok(Some(Node::Insert(nodes)))
            }
            _ => Ok(None),
        }
    }

    fn list(&self, list: &ast::List) -> Result<Node, String> {
        let nodes = list
            .elements
            .iter()
            .map(|element| self.node(element))
            .collect::<Result<Vec<_>, _>>()?;
        let constants: Option<Vec<_>> = nodes.iter().map(as_constant).collect();
        if let Some(constants) = constants {
            return Ok(Node::Const(Val::list(constants)));
        }
        let optional = (0..nodes.len()).map(|i| list.optional.contains(&i)).collect();
        Ok(Node::List(nodes, optional))
    }

    fn map(&self, entries: &[ast::Entry]) -> Result<Node, String> {
        let mut nodes = Vec::new();
        for entry in entries {
            nodes.push((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional));
        }
        let constants: Option<Vec<_>> = nodes
            .iter()
            .map(|(key, value, _)| Some((as_constant(key)?, as_constant(value)?)))
            .collect();
        let Some(constants) = constants else {
            return Ok(Node::Map(nodes));
        };
        let mut made = Entries::new();
        for (key, value) in constants {
            put(&mut made, key, value);
        }
        Ok(Node::Const(Val::Map(Map::owned(made))))
    }
}

pub fn variable(name: &str) -> Attribute {
    Attribute {
        base: Base::Variable(name.to_owned()),
        qualifiers: Vec::new(),
        test_only: false,
    }
}

fn two(args: Vec<Node>) -> Box<[Node; 2]> {
    Box::new(args.try_into().expect("the checker counted two arguments"))
}

fn as_constant(node: &Node) -> Option<Val<'static>> {
    match node {
        Node::Const(value) => Some(value.clone()),
        _ => None,
    }
}

fn constant(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(value) => Val::Bool(*value),
        Literal::Int(value) => Val::Int(*value),
        Literal::Uint(value) => Val::Uint(*value),
        Literal::Double(value) => Val::Double(*value),
        Literal::String(text) => Val::string(text.as_str()),
        Literal::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
    }
}

/// Whether upstream looks a constant up instead of comparing with it.
fn is_hashed(value: &Val<'_>) -> bool {
    matches!(
        value,
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::String(_)
    )
}
