//! The functions that expressions may call: names, overloads, argument and result types.
//!
//! `functions.tsv` lists what kube-apiserver 1.36 declares, printed by a program that asks its environment: function,
//! overload, style, argument types, result type. Order matters: it is the order in which overloads are tried.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::types::Type;

/// One way to call a function.
#[derive(Debug)]
pub struct Overload {
    pub id: &'static str,
    pub style: Style,
    pub args: Vec<Type>,
    pub result: Type,
    /// The type parameters that occur.
    pub params: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Global,
    Member,
}

/// A function and its overloads.
#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    pub overloads: Vec<Overload>,
}

pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| load(include_str!("functions.tsv")));

fn load(table: &'static str) -> HashMap<&'static str, Function> {
    let mut functions = HashMap::new();
    for line in table.lines() {
        let mut columns = line.split('\t');
        let mut column = || columns.next().expect("the table has five columns");
        let (name, id, style, args, result) = (column(), column(), column(), column(), column());
        let style = if style == "member" {
            Style::Member
        } else {
            Style::Global
        };
        let read = |text: &str| Type::parse(text).expect("the table's types are known");
        let args: Vec<Type> = args.split(';').filter(|arg| !arg.is_empty()).map(read).collect();
        let result = read(result);
        let mut params = Vec::new();
        for letter in ["A", "B", "K", "T", "V"] {
            if args.iter().chain([&result]).any(|t| mentions(t, letter)) {
                params.push(letter);
            }
        }
        let function = functions.entry(name).or_insert_with(|| Function {
            name,
            overloads: Vec::new(),
        });
        function.overloads.push(Overload {
            id,
            style,
            args,
            result,
            params,
        });
    }
    functions
}

fn mentions(of: &Type, param: &str) -> bool {
    match of {
        Type::Param(name) => &**name == param,
        Type::List(of) => mentions(of, param),
        Type::Map(key, value) => mentions(key, param) || mentions(value, param),
        Type::Opaque(_, params) => params.iter().any(|p| mentions(p, param)),
        Type::Type(Some(of)) => mentions(of, param),
        _ => false,
    }
}
