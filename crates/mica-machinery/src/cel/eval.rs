//! Evaluation, with a meter running.
//!
//! Every step is charged as kube-apiserver charges it (`interpreter/runtimecost.go` and its planner's quirks), and the
//! evaluation ends as soon as more was spent than allowed. `&&`, `||` and comprehensions built on them absorb errors, but
//! never a fatal one such as that.

use std::sync::Arc;

use super::cost::call;
use super::env::Program;
use super::library::authz::Authorizer;
use super::library::compare::equal;
use super::library::{self, EvalError, Host, lists};
use super::message;
use super::plan::{Attribute, Base, Call, Fold, Made, Node, Otherwise, Qualifier, QualifierKey, Run, Wanted};
use super::refusal::{breakdown, check_qualifier, fits, go_name, no_overload};
use super::value::{Entries, Key, List, Map, Val, put};

/// Elementary steps that an evaluation may take inside functions, beyond what costs count.
const MAX_STEPS: u64 = 10_000_000;

const IDENT: u64 = 1;
const LIST: u64 = 10;
const MAP: u64 = 30;
const STRUCT: u64 = 40;

/// Where variables come from.
pub trait Activation<'a> {
    fn variable(&self, name: &str) -> Option<Val<'a>>;

    /// A field of a variable that is `Val::Lazy`.
    fn field(&self, _variable: &str, _field: &str) -> Option<Result<Val<'a>, EvalError>> {
        None
    }

    fn authorizer(&self) -> Option<&dyn Authorizer> {
        None
    }
}

/// Variables in a list.
#[derive(Debug, Clone, Default)]
pub struct Bindings<'a>(Vec<(&'a str, Val<'a>)>);

impl<'a> Bindings<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with(mut self, name: &'a str, value: Val<'a>) -> Self {
        self.0.push((name, value));
        self
    }
}

impl<'a> Activation<'a> for Bindings<'a> {
    fn variable(&self, name: &str) -> Option<Val<'a>> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.clone())
    }
}

/// What came of an evaluation, and what it cost.
#[derive(Debug, Clone)]
pub struct Outcome<'a> {
    pub result: Result<Val<'a>, EvalError>,
    pub cost: u64,
}

pub(super) fn run<'a>(program: &Program, activation: &dyn Activation<'a>, limit: u64) -> Outcome<'a> {
    let host = Host {
        steps: MAX_STEPS,
        authorizer: activation.authorizer(),
    };
    let mut machine = Machine {
        activation,
        host,
        cost: 0,
        limit,
        frames: Vec::new(),
    };
    let result = machine.eval(&program.root);
    Outcome {
        result,
        cost: machine.cost,
    }
}

type Res<'a> = Result<Val<'a>, EvalError>;

struct Machine<'m, 'a> {
    activation: &'m dyn Activation<'a>,
    host: Host<'m>,
    cost: u64,
    limit: u64,
    frames: Vec<Frame<'m, 'a>>,
}

/// A comprehension being evaluated.
struct Frame<'m, 'a> {
    fold: &'m Fold,
    /// Nothing until somebody reads it: a binding that is not used costs nothing.
    accu: Option<Res<'a>>,
    /// An element may be one that cannot be read, which shows where it is used.
    var: Res<'a>,
    var2: Res<'a>,
    /// The result is computed where the iteration variables are gone.
    finishing: bool,
}

impl<'m, 'a> Machine<'m, 'a> {
    fn charge(&mut self, amount: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(amount);
        if self.cost > self.limit {
            Err(EvalError::CostExceeded)
        } else {
            Ok(())
        }
    }

    fn eval<'n: 'm>(&mut self, node: &'n Node) -> Res<'a> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute(attribute) => self.attribute(attribute),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Equal(sides, wanted) => self.equal(sides, *wanted),
            Node::InSet(item, keys) => {
                let item = self.eval(item)?;
                if let Val::Bytes(_) = item {
                    let why = "runtime error: hash of unhashable type types.Bytes";
                    return Err(EvalError::Broken(why.to_owned()));
                }
                Ok(Val::Bool(Key::of(&item).is_some_and(|key| keys.contains(&key))))
            }
            Node::Call(call) => self.call(call),
            Node::List(elements, optional) => self.list(elements, optional),
            Node::Map(entries) => self.map(entries),
            Node::Struct(name, fields, made) => self.make_struct(name, fields, *made),
            Node::Fold(fold) => self.fold(fold),
            Node::Otherwise(sides, kind) => match self.eval(&sides[0])? {
                Val::Optional(Some(value)) if *kind == Otherwise::Value => Ok(value.taken_out()?),
                Val::Optional(None) => self.eval(&sides[1]),
                value => Ok(value),
            },
            Node::Append(list) => self.append(list),
            Node::Insert(nodes) => self.insert(nodes),
        }
    }

    fn attribute<'n: 'm>(&mut self, attribute: &'n Attribute) -> Res<'a> {
        let value = self.resolve(attribute);
        if is_fatal(&value) {
            return value;
        }
        if !attribute.test_only && !matches!(attribute.base, Base::Conditional(_)) {
            self.charge(IDENT)?;
        }
        value
    }

    /// An attribute's value, its own cost not included.
    fn resolve<'n: 'm>(&mut self, attribute: &'n Attribute) -> Res<'a> {
        // A branch that is an attribute has looked into its optional already.
        let mut looked_into = false;
        let base = match &attribute.base {
            Base::Variable(name) => self.variable(name)?,
            Base::Operand(node) => self.eval(node)?,
            Base::Conditional(parts) => {
                let branch = match self.eval(&parts[0])? {
                    Val::Bool(true) => &parts[1],
                    Val::Bool(false) => &parts[2],
                    _ => return Err(EvalError::no_overload()),
                };
                looked_into = matches!(branch, Node::Attribute(_));
                self.branch(branch)?
            }
        };
        let (mut value, mut optional) = match base {
            Val::Optional(None) => {
                return Ok(if attribute.test_only {
                    Val::Bool(false)
                } else {
                    Val::Optional(None)
                });
            }
            Val::Optional(Some(value)) if looked_into => ((*value).clone(), true),
            Val::Optional(Some(value)) => ((*value).clone().unwrapped(), true),
            value => (value, false),
        };
        let last = attribute.qualifiers.len();
        for (i, qualifier) in attribute.qualifiers.iter().enumerate() {
            optional = optional || qualifier.optional;
            let test = attribute.test_only && i + 1 == last;
            let found = self.qualify(value, qualifier, optional || test);
            let absent = matches!(found, Ok(None)) || (optional && found.is_err());
            if !is_fatal(&found) && ((test && !optional) || !absent) {
                self.charge(IDENT)?;
            }
            match found? {
                found if test => return Ok(Val::Bool(found.is_some())),
                Some(found) => value = found,
                None => return Ok(Val::Optional(None)),
            }
        }
        Ok(if optional { Val::optional(Some(value)) } else { value })
    }

    /// A branch of a conditional: an attribute there is resolved without being paid for itself.
    fn branch<'n: 'm>(&mut self, node: &'n Node) -> Res<'a> {
        match node {
            Node::Attribute(attribute) => self.resolve(attribute),
            node => self.eval(node),
        }
    }

    /// What `value` holds under the qualifier; `None` only if `test` allows it to be absent.
    fn qualify<'n: 'm>(
        &mut self,
        value: Val<'a>,
        qualifier: &'n Qualifier,
        test: bool,
    ) -> Result<Option<Val<'a>>, EvalError> {
        let key = match &qualifier.key {
            QualifierKey::Const(key) => key.clone(),
            QualifierKey::Node(node) => {
                let key = self.branch(node)?;
                check_qualifier(&key).map_err(EvalError::Failed)?;
                key
            }
        };
        let absent = |message: String| {
            if test {
                Ok(None)
            } else {
                Err(EvalError::Failed(message))
            }
        };
        let no_key = || format!("no such key: {key}");
        match &value {
            Val::Object(name, _) if **name == *message::EMPTY => {
                Err(EvalError::failed(format!("no such field '{key}'")))
            }
            Val::Map(map) | Val::Object(_, map) => match map.find(&key)? {
                Some(found) => Ok(Some(found)),
                None => absent(no_key()),
            },
            Val::List(list) => {
                let index = index(&key, list)?;
                match usize::try_from(index).ok().and_then(|index| list.get(index)) {
                    Some(found) => Ok(Some(found?)),
                    None => absent(format!("index out of bounds: {key}")),
                }
            }
            Val::Lazy(name) => match &key {
                Val::String(field) => match self.activation.field(name, field) {
                    Some(found) => found.map(Some),
                    None => absent(no_key()),
                },
                _ => absent(no_key()),
            },
            Val::Lost(why) => Err(EvalError::Failed(why.to_string())),
            _ => absent(no_key()),
        }
    }

    fn variable(&mut self, name: &str) -> Res<'a> {
        for at in (0..self.frames.len()).rev() {
            let frame = &self.frames[at];
            if frame.fold.accu == name {
                return self.accumulator(at);
            }
            if !frame.finishing {
                if frame.fold.var == name {
                    return frame.var.clone();
                }
                if frame.fold.var2.as_deref() == Some(name) {
                    return frame.var2.clone();
                }
            }
        }
        let missing = || EvalError::failed(format!("no such attribute(s): {name}"));
        self.activation.variable(name).ok_or_else(missing)
    }

    fn accumulator(&mut self, at: usize) -> Res<'a> {
        if self.frames[at].accu.is_none() {
            // The first value is computed outside the comprehension.
            let inner = self.frames.split_off(at);
            let init: &'m Node = &inner[0].fold.init;
            let value = self.eval(init);
            self.frames.extend(inner);
            self.frames[at].accu = Some(value);
        }
        self.frames[at].accu.clone().expect("set above")
    }

    fn logical<'n: 'm>(&mut self, terms: &'n [Node; 2], decisive: bool) -> Res<'a> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(Val::Bool(value)) if value == decisive => return Ok(Val::Bool(decisive)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(EvalError::no_overload())),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Val::Bool(!decisive)),
        }
    }

    fn equal<'n: 'm>(&mut self, sides: &'n [Node; 2], wanted: Wanted) -> Res<'a> {
        let sides = self.both(sides)?;
        let (function, overload) = match wanted {
            Wanted::Equal => ("_==_", "equals"),
            Wanted::NotEqual => ("_!=_", "not_equals"),
        };
        let result = match &sides {
            [Ok(a), Ok(b)] => match (equal(&mut self.host, a, b), wanted) {
                (Err(error), _) if error.is_fatal() => return Err(error),
                (result, Wanted::Equal) => result.map(Val::Bool),
                (result, Wanted::NotEqual) => Ok(Val::Bool(result != Ok(true))),
            },
            [Err(error), _] | [_, Err(error)] => Err(error.clone()),
        };
        let sizes: Vec<Val<'a>> = sides.into_iter().map(|side| side.unwrap_or(Val::Null)).collect();
        self.charge(call::runtime(function, overload, &sizes, result.as_ref().ok()))?;
        result
    }

    /// Both sides of an operator: the right one is evaluated even if the left one failed.
    fn both<'n: 'm>(&mut self, sides: &'n [Node; 2]) -> Result<[Res<'a>; 2], EvalError> {
        let mut results = [Ok(Val::Null), Ok(Val::Null)];
        for (side, result) in sides.iter().zip(&mut results) {
            *result = match self.eval(side) {
                Err(error) if error.is_fatal() => return Err(error),
                found => found,
            };
        }
        Ok(results)
    }

    fn call<'n: 'm>(&mut self, call: &'n Call) -> Res<'a> {
        let mut args = Vec::with_capacity(call.args.len());
        let mut failed = None;
        let mut failures = 0u64;
        for (i, arg) in call.args.iter().enumerate() {
            match self.eval(arg) {
                Ok(value) => args.push(value),
                // Paid for is what all arguments were evaluated for.
                Err(error) if error.is_fatal() || (call.stops_early && i + 1 < call.args.len()) => return Err(error),
                Err(error) => {
                    failed = failed.or(Some(error));
                    failures |= 1 << i.min(63);
                    args.push(Val::Null);
                }
            }
        }
        if let Some(why) = breakdown(call.overload, &args, failures) {
            return Err(EvalError::Broken(why));
        }
        let result = match (&call.run, failed) {
            (Run::NotStrictlyFalse, None) => Ok(match &args[0] {
                Val::Bool(value) => Val::Bool(*value),
                _ => Val::Bool(true),
            }),
            (Run::NotStrictlyFalse, Some(_)) => Ok(Val::Bool(true)),
            (_, Some(error)) => Err(error),
            _ if call
                .wanted
                .is_some_and(|wanted| !args.iter().zip(wanted).all(|(arg, of)| fits(arg, of))) =>
            {
                Err(no_overload(EvalError::no_overload(), &call.function, &args))
            }
            (Run::Pattern(regex), None) => {
                let size: u64 = args.iter().map(Val::size).sum();
                self.host.work(size / 64)?;
                library::regex::run(&call.function, regex, &args)
            }
            (Run::Function(run), None) => match (call.function.as_str(), args.as_slice()) {
                ("sum", [Val::List(list)]) if list.is_empty() => Ok(lists::zero_sum(call.overload)),
                _ => run(&mut self.host, &args).map_err(|error| no_overload(error, &call.function, &args)),
            },
        };
        if is_fatal(&result) {
            return result;
        }
        let cost = call::metered(
            &mut self.host,
            &call.function,
            call.overload,
            &args,
            result.as_ref().ok(),
        )?;
        self.charge(cost)?;
        result
    }

    fn list<'n: 'm>(&mut self, elements: &'n [Node], optional: &[bool]) -> Res<'a> {
        let mut items = Vec::with_capacity(elements.len());
        for (element, optional) in elements.iter().zip(optional) {
            let value = match self.eval(element) {
                Ok(value) => value,
                Err(error) => return self.constructed(LIST, Err(error)),
            };
            match (value, optional) {
                (value, false) => items.push(value),
                (Val::Optional(Some(value)), true) => items.push(value.taken_out()?),
                (Val::Optional(None), true) => {}
                (other, true) => {
                    let message = format!("cannot initialize optional list element from non-optional value {other}");
                    return self.constructed(LIST, Err(EvalError::Failed(message)));
                }
            }
        }
        self.constructed(LIST, Ok(Val::list(items)))
    }

    fn map<'n: 'm>(&mut self, nodes: &'n [(Node, Node, bool)]) -> Res<'a> {
        let made = self.entries(nodes);
        self.constructed(MAP, made.map(|entries| Val::Map(Map::owned(entries))))
    }

    fn entries<'n: 'm>(&mut self, nodes: &'n [(Node, Node, bool)]) -> Result<Entries<'a>, EvalError> {
        let mut entries = Entries::new();
        for (key, value, optional) in nodes {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            match (value, optional) {
                (value, false) => self.host.put(&mut entries, key, value)?,
                (Val::Optional(Some(value)), true) => self.host.put(&mut entries, key, value.taken_out()?)?,
                (Val::Optional(None), true) => {
                    Key::of(&key).and_then(|key| entries.shift_remove(&key));
                }
                (other, true) => {
                    let message = format!("cannot initialize optional entry '{key}' from non-optional value {other}");
                    return Err(EvalError::Failed(message));
                }
            }
        }
        Ok(entries)
    }

    fn make_struct<'n: 'm>(&mut self, name: &Arc<str>, fields: &'n [(String, Node, bool)], made: Made) -> Res<'a> {
        let mut entries = Entries::new();
        for (field, node, optional) in fields {
            let value = match self.eval(node) {
                Ok(value) => value,
                Err(error) => return self.constructed(STRUCT, Err(error)),
            };
            let key = Val::string(field.as_str());
            match (value, optional) {
                (value, false) => put(&mut entries, key, value),
                (Val::Optional(Some(value)), true) => put(&mut entries, key, value.taken_out()?),
                (Val::Optional(None), true) => {}
                (other, true) => {
                    let message = format!("cannot initialize optional entry '{field}' from non-optional value {other}");
                    return self.constructed(STRUCT, Err(EvalError::Failed(message)));
                }
            }
        }
        let made = match made {
            Made::Object => Ok(Val::Object(name.clone(), Map::owned(entries))),
            Made::Message => message::make(&mut self.host, name, &entries),
        };
        self.constructed(STRUCT, made)
    }

    fn constructed(&mut self, cost: u64, made: Res<'a>) -> Res<'a> {
        if !is_fatal(&made) {
            self.charge(cost)?;
        }
        made
    }

    fn fold<'n: 'm>(&mut self, fold: &'n Fold) -> Res<'a> {
        let range = self.eval(&fold.range)?;
        let at = self.frames.len();
        self.frames.push(Frame {
            fold,
            accu: None,
            var: Ok(Val::Null),
            var2: Ok(Val::Null),
            finishing: false,
        });
        let result = self.iterate(fold, range, at);
        self.frames.truncate(at);
        result
    }

    fn iterate<'n: 'm>(&mut self, fold: &'n Fold, range: Val<'a>, at: usize) -> Res<'a> {
        let two = fold.var2.is_some();
        match &range {
            Val::List(list) => {
                for index in 0..list.len() {
                    let item = list.get(index).unwrap_or(Ok(Val::Null)).map_err(EvalError::Failed);
                    let (var, var2) = if two {
                        (Ok(Val::Int(index as i64)), item)
                    } else {
                        (item, Ok(Val::Null))
                    };
                    if !self.once(fold, at, var, var2)? {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                for key in map.keys() {
                    let value = match two.then(|| map.find(&key)) {
                        Some(found) => found.map(|found| found.unwrap_or(Val::Null)),
                        None => Ok(Val::Null),
                    };
                    if !self.once(fold, at, Ok(key), value.map_err(EvalError::Failed))? {
                        break;
                    }
                }
            }
            other => {
                let name = go_name(other);
                return Err(EvalError::failed(match two {
                    true => format!("unsupported comprehension range type: {name}"),
                    false => format!("got '{name}', expected iterable type"),
                }));
            }
        }
        self.frames[at].finishing = true;
        self.eval(&fold.result)
    }

    /// One turn of the loop; `false` ends it.
    fn once<'n: 'm>(&mut self, fold: &'n Fold, at: usize, var: Res<'a>, var2: Res<'a>) -> Result<bool, EvalError> {
        self.host.work(1)?;
        let frame = &mut self.frames[at];
        (frame.var, frame.var2) = (var, var2);
        match self.eval(&fold.condition) {
            Ok(Val::Bool(false)) => return Ok(false),
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
        self.frames[at].accu = Some(match self.eval(&fold.step) {
            Err(error) if error.is_fatal() => return Err(error),
            step => step,
        });
        Ok(true)
    }

    /// The accumulator, taken out so that it can be changed in place. It costs what reading it costs.
    fn take_accumulator(&mut self) -> Result<Res<'a>, EvalError> {
        let at = self.frames.len() - 1;
        if self.frames[at].accu.is_none() {
            let _ = self.accumulator(at);
        }
        let taken = self.frames[at].accu.replace(Ok(Val::Null)).expect("set above");
        if !is_fatal(&taken) {
            self.charge(IDENT)?;
        }
        Ok(taken)
    }

    fn append<'n: 'm>(&mut self, list: &'n Node) -> Res<'a> {
        let taken = self.take_accumulator()?;
        let added = self.eval(list);
        if is_fatal(&added) {
            return added;
        }
        self.charge(1)?;
        match (taken?, added?) {
            (Val::List(list), Val::List(added)) => {
                let mut list = if list.is_owned() {
                    list
                } else {
                    List::owned(list.iter().collect::<Result<Vec<_>, _>>()?)
                };
                for item in added.iter() {
                    list.push(item?);
                }
                Ok(Val::List(list))
            }
            _ => Err(EvalError::no_overload()),
        }
    }

    fn insert<'n: 'm>(&mut self, nodes: &'n [Node]) -> Res<'a> {
        let mut map = self.take_accumulator()?;
        if nodes.len() > 1 {
            // With more than two arguments, the first that fails ends the call.
            map = Ok(map?);
        }
        let mut args = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            match self.eval(node) {
                Err(error) if i + 1 == nodes.len() && !error.is_fatal() => {
                    self.charge(1)?;
                    return map.and(Err(error));
                }
                found => args.push(found?),
            }
        }
        self.charge(1)?;
        let Val::Map(Map::Owned(mut entries)) = map? else {
            return Err(EvalError::no_overload());
        };
        let made = Arc::make_mut(&mut entries);
        match args.as_slice() {
            [key, value] => library::operators::insert(&mut self.host, made, key.clone(), value.clone())?,
            [Val::Map(more)] => {
                for key in more.keys() {
                    let value = more.find(&key)?.unwrap_or(Val::Null);
                    library::operators::insert(&mut self.host, made, key, value)?;
                }
            }
            _ => return Err(EvalError::no_overload()),
        }
        Ok(Val::Map(Map::Owned(entries)))
    }
}

/// Whether it is all over, which nothing absorbs.
fn is_fatal<T>(result: &Result<T, EvalError>) -> bool {
    result.as_ref().is_err_and(EvalError::is_fatal)
}

/// A list index: whole numbers of any type.
fn index(key: &Val<'_>, list: &List<'_>) -> Result<i64, EvalError> {
    let unsupported = || EvalError::failed(format!("unsupported index: {key}"));
    let is_index = |index: f64| index.fract() == 0.0 && index.abs() < 9e18;
    match key {
        Val::Int(index) => Ok(*index),
        // Lists that came with a schema know no other.
        Val::Uint(0..=0x7fff_ffff_ffff_ffff) if list.kind().is_some() => Err(unsupported()),
        Val::Double(index) if is_index(*index) && list.kind().is_some() => Err(unsupported()),
        Val::Uint(index) => {
            i64::try_from(*index).map_err(|_| EvalError::failed(format!("unsupported index value {key} in list")))
        }
        Val::Double(index) if is_index(*index) => Ok(*index as i64),
        Val::Double(_) => Err(EvalError::failed(format!("unsupported index value {key} in list"))),
        other => {
            let of = other.type_of();
            Err(EvalError::failed(format!(
                "unsupported index type '{}' in list",
                of.runtime_name()
            )))
        }
    }
}
