//! Macros: calls that the parser replaces by comprehensions, presence tests and conditionals.
//!
//! Only upstream's set: `cel.bind` is not in it. Nodes made here carry the position of the call's parenthesis.

use super::ast::{ACCUMULATOR, Call, Expr, Fold, Id, Kind, List, Literal, Positions, Select, op};
use super::parser::{Visitor, global};

const OVERWRITES: &str = "iteration variable overwrites accumulator variable";
const NOT_SIMPLE: &str = "argument must be a simple name";
const NOT_IDENT: &str = "argument is not an identifier";

/// An older name of the accumulator, which may not be shadowed either.
const OLD_ACCUMULATOR: &str = "__result__";

/// Nodes that an expression may have, macros expanded; no expression that fits has as many without copies.
const MAX_NODES: usize = 250_000;

/// What `sortBy` binds its input to.
const SORT_INPUT: &str = "@__sortBy_input__";

/// A call of `name(args)`, expanded if it is a macro.
pub(super) fn global_call(visitor: &mut Visitor<'_>, id: Id, name: String, mut args: Vec<Expr>) -> Expr {
    if name != "has" || args.len() != 1 {
        return Expr {
            id,
            kind: Kind::Call(Box::new(Call {
                target: None,
                function: name,
                args,
            })),
        };
    }
    let arg = args.remove(0);
    match arg.kind {
        Kind::Select(select) => {
            let select = Select {
                test_only: true,
                ..*select
            };
            Expr {
                id,
                kind: Kind::Select(Box::new(select)),
            }
        }
        _ => visitor.refuse(arg.id, "invalid argument to has() macro"),
    }
}

/// A call of `target.name(args)`, expanded if it is a macro.
pub(super) fn member_call(visitor: &mut Visitor<'_>, id: Id, name: String, target: Expr, args: Vec<Expr>) -> Expr {
    let expand: Expand = match (name.as_str(), args.len()) {
        ("all" | "exists" | "exists_one", 2) => quantifier,
        ("all" | "exists" | "exists_one" | "existsOne", 3) => quantifier,
        ("map", 2 | 3) | ("filter", 2) => transform_one,
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => transform_two,
        ("optMap" | "optFlatMap", 2) => optional_map,
        ("sortBy", 2) => sort_by,
        _ => {
            return Expr {
                id,
                kind: Kind::Call(Box::new(Call {
                    target: Some(target),
                    function: name,
                    args,
                })),
            };
        }
    };
    let mut maker = Maker {
        positions: &mut visitor.positions,
        at: id,
    };
    match expand(&mut maker, &name, target, args) {
        Ok(expr) => expr,
        Err((at, message)) => visitor.refuse(at, message),
    }
}

type Expand = fn(&mut Maker<'_>, &str, Expr, Vec<Expr>) -> Result<Expr, (Id, String)>;

/// Makes nodes at the position of the macro call.
struct Maker<'p> {
    positions: &'p mut Positions,
    at: Id,
}

impl Maker<'_> {
    fn node(&mut self, kind: Kind) -> Expr {
        let offset = self.positions.of(self.at);
        Expr {
            id: self.positions.next(offset),
            kind,
        }
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(Kind::Ident(name.to_owned()))
    }

    fn accu(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(Kind::Literal(literal))
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.node(Kind::List(List {
            elements,
            optional: Vec::new(),
        }))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        let offset = self.positions.of(self.at);
        let id = self.positions.next(offset);
        global(id, function, args)
    }

    fn member(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        let call = Call {
            target: Some(target),
            function: function.to_owned(),
            args,
        };
        self.node(Kind::Call(Box::new(call)))
    }

    fn fold(&mut self, fold: Fold) -> Expr {
        self.node(Kind::Fold(Box::new(fold)))
    }

    /// A comprehension over nothing, which only names `value` inside `result`.
    fn bind(&mut self, name: &str, value: Expr, result: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        self.fold(Fold {
            range,
            var: "#unused".to_owned(),
            var2: None,
            accu: name.to_owned(),
            init: value,
            condition,
            step,
            result,
        })
    }

    /// The same tree with ids of its own. Copies of copies double: what grows too large is refused.
    fn copy(&mut self, expr: &Expr) -> Result<Expr, (Id, String)> {
        let mut count = 0;
        expr.walk(&mut |_| count += 1);
        if self.positions.len() + count > MAX_NODES {
            return Err((expr.id, format!("expression has more than {MAX_NODES} nodes")));
        }
        let mut copy = expr.clone();
        renumber(&mut copy, self.positions);
        Ok(copy)
    }
}

fn renumber(expr: &mut Expr, positions: &mut Positions) {
    expr.id = positions.next(positions.of(expr.id));
    match &mut expr.kind {
        Kind::Literal(_) | Kind::Ident(_) => {}
        Kind::Select(select) => renumber(&mut select.operand, positions),
        Kind::Call(call) => {
            if let Some(target) = &mut call.target {
                renumber(target, positions);
            }
            for arg in &mut call.args {
                renumber(arg, positions);
            }
        }
        Kind::List(list) => {
            for element in &mut list.elements {
                renumber(element, positions);
            }
        }
        Kind::Map(entries) => {
            for entry in entries {
                entry.id = positions.next(positions.of(entry.id));
                renumber(&mut entry.key, positions);
                renumber(&mut entry.value, positions);
            }
        }
        Kind::Struct(made) => {
            for field in &mut made.fields {
                field.id = positions.next(positions.of(field.id));
                renumber(&mut field.value, positions);
            }
        }
        Kind::Fold(fold) => {
            for part in [
                &mut fold.range,
                &mut fold.init,
                &mut fold.condition,
                &mut fold.step,
                &mut fold.result,
            ] {
                renumber(part, positions);
            }
        }
    }
}

/// `all`, `exists` and `exists_one` with one variable or two.
fn quantifier(maker: &mut Maker<'_>, name: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr, (Id, String)> {
    let predicate = args.pop().expect("arity was matched");
    let (var, var2) = variables(&args, NOT_SIMPLE)?;
    let (init, condition, step, result) = match name {
        "all" => {
            let accu = maker.accu();
            let condition = maker.call(op::NOT_STRICTLY_FALSE, vec![accu]);
            let accu = maker.accu();
            let step = maker.call(op::AND, vec![accu, predicate]);
            (maker.literal(Literal::Bool(true)), condition, step, maker.accu())
        }
        "exists" => {
            let accu = maker.accu();
            let not = maker.call(op::NOT, vec![accu]);
            let condition = maker.call(op::NOT_STRICTLY_FALSE, vec![not]);
            let accu = maker.accu();
            let step = maker.call(op::OR, vec![accu, predicate]);
            (maker.literal(Literal::Bool(false)), condition, step, maker.accu())
        }
        _ => {
            let (accu, one, unchanged) = (maker.accu(), maker.literal(Literal::Int(1)), maker.accu());
            let more = maker.call(op::ADD, vec![accu, one]);
            let step = maker.call(op::CONDITIONAL, vec![predicate, more, unchanged]);
            let (accu, one) = (maker.accu(), maker.literal(Literal::Int(1)));
            let result = maker.call(op::EQUALS, vec![accu, one]);
            (
                maker.literal(Literal::Int(0)),
                maker.literal(Literal::Bool(true)),
                step,
                result,
            )
        }
    };
    Ok(maker.fold(Fold {
        range,
        var,
        var2,
        accu: ACCUMULATOR.to_owned(),
        init,
        condition,
        step,
        result,
    }))
}

/// `map` with and without a filter, and `filter`.
fn transform_one(maker: &mut Maker<'_>, name: &str, range: Expr, args: Vec<Expr>) -> Result<Expr, (Id, String)> {
    let (var, _) = variables(&args[..1], NOT_IDENT)?;
    let mut args = args.into_iter();
    let element = args.next().expect("arity was matched");
    let (filter, made) = match (name, args.next(), args.next()) {
        ("filter", filter, _) => (filter, Some(element)),
        (_, filter, Some(made)) => (filter, Some(made)),
        (_, made, None) => (None, made),
    };
    let made = maker.list(vec![made.expect("arity was matched")]);
    let accu = maker.accu();
    let mut step = maker.call(op::ADD, vec![accu, made]);
    if let Some(filter) = filter {
        let unchanged = maker.accu();
        step = maker.call(op::CONDITIONAL, vec![filter, step, unchanged]);
    }
    let init = maker.list(Vec::new());
    let condition = maker.literal(Literal::Bool(true));
    let result = maker.accu();
    Ok(maker.fold(Fold {
        range,
        var,
        var2: None,
        accu: ACCUMULATOR.to_owned(),
        init,
        condition,
        step,
        result,
    }))
}

/// `transformList`, `transformMap` and `transformMapEntry`.
fn transform_two(maker: &mut Maker<'_>, name: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr, (Id, String)> {
    let (var, var2) = variables(&args[..2], NOT_SIMPLE)?;
    let made = args.pop().expect("arity was matched");
    let filter = if args.len() == 3 { args.pop() } else { None };
    let accu = maker.accu();
    let mut step = match name {
        "transformList" => {
            let made = maker.list(vec![made]);
            maker.call(op::ADD, vec![accu, made])
        }
        "transformMap" => {
            let key = maker.ident(&var);
            maker.call("cel.@mapInsert", vec![accu, key, made])
        }
        _ => maker.call("cel.@mapInsert", vec![accu, made]),
    };
    if let Some(filter) = filter {
        let unchanged = maker.accu();
        step = maker.call(op::CONDITIONAL, vec![filter, step, unchanged]);
    }
    let init = if name == "transformList" {
        maker.list(Vec::new())
    } else {
        maker.node(Kind::Map(Vec::new()))
    };
    let condition = maker.literal(Literal::Bool(true));
    let result = maker.accu();
    Ok(maker.fold(Fold {
        range,
        var,
        var2,
        accu: ACCUMULATOR.to_owned(),
        init,
        condition,
        step,
        result,
    }))
}

/// `optMap` and `optFlatMap`.
fn optional_map(maker: &mut Maker<'_>, name: &str, target: Expr, mut args: Vec<Expr>) -> Result<Expr, (Id, String)> {
    let made = args.pop().expect("arity was matched");
    let Kind::Ident(var) = &args[0].kind else {
        return Err((
            args[0].id,
            format!("{name}() variable name must be a simple identifier"),
        ));
    };
    let again = maker.copy(&target)?;
    let has_value = maker.member("hasValue", target, Vec::new());
    let value = maker.member("value", again, Vec::new());
    let mut some = maker.bind(var, value, made);
    if name == "optMap" {
        some = maker.call("optional.of", vec![some]);
    }
    let none = maker.call("optional.none", Vec::new());
    Ok(maker.call(op::CONDITIONAL, vec![has_value, some, none]))
}

fn sort_by(maker: &mut Maker<'_>, _: &str, target: Expr, args: Vec<Expr>) -> Result<Expr, (Id, String)> {
    if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Struct(_)) {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err((target.id, message.to_owned()));
    }
    let input = maker.ident(SORT_INPUT);
    let keys = transform_one(maker, "map", input, args)?;
    let input = maker.ident(SORT_INPUT);
    let sorted = maker.member("@sortByAssociatedKeys", input, vec![keys]);
    Ok(maker.bind(SORT_INPUT, target, sorted))
}

fn variables(args: &[Expr], not_a_name: &str) -> Result<(String, Option<String>), (Id, String)> {
    let mut names = Vec::new();
    for arg in args {
        let Kind::Ident(name) = &arg.kind else {
            return Err((arg.id, not_a_name.to_owned()));
        };
        names.push(name.clone());
    }
    if names.len() == 2 && names[0] == names[1] {
        return Err((args[1].id, format!("duplicate variable name: {}", names[0])));
    }
    for (arg, name) in args.iter().zip(&names) {
        if name == ACCUMULATOR || name == OLD_ACCUMULATOR {
            return Err((arg.id, OVERWRITES.to_owned()));
        }
    }
    let mut names = names.into_iter();
    Ok((names.next().expect("a macro has a variable"), names.next()))
}
