//! What all walkers over typed values share: choosing the form a value has, and naming the items of lists.

use compact_str::CompactString;
use serde_json::Value;

use super::path::PathElement;
use super::schema::{Atom, List, Relation, Scalar};
use super::value;
use crate::object::go_type;

/// What is wrong with a value of a type, with upstream's texts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TypeErrors(Vec<(String, String)>);

impl TypeErrors {
    pub(super) fn one(text: impl Into<String>) -> Self {
        Self(vec![(String::new(), text.into())])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The same errors one level further out.
    #[must_use]
    pub(super) fn under(mut self, element: &PathElement) -> Self {
        if !self.0.is_empty() {
            let prefix = element.to_string();
            for (path, _) in &mut self.0 {
                path.insert_str(0, &prefix);
            }
        }
        self
    }

    pub(super) fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl std::fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |(path, text): &(String, String)| {
            if path.is_empty() {
                text.clone()
            } else {
                format!("{path}: {text}")
            }
        };
        match &self.0[..] {
            [only] => f.write_str(&text(only)),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|error| write!(f, "\n  {}", text(error)))
            }
        }
    }
}

impl std::error::Error for TypeErrors {}

/// The forms that a value may have; one of them for a value that fits its type.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Forms {
    map: bool,
    scalar: bool,
    list: bool,
}

/// The form a walker treats a value as.
#[derive(Clone, Copy)]
pub(super) enum Form<'s> {
    Map(super::schema::Map<'s>),
    Scalar(Scalar),
    List(List<'s>),
}

/// The form for one value.
pub(super) fn form<'s>(atom: &Atom<'s>, value: &Value) -> Result<Form<'s>, TypeErrors> {
    pick(atom, forms(atom, value))
}

/// The forms for two values: two if they differ, as after a change of type where the schema does not mind.
pub(super) fn forms_of_both<'s>(
    atom: &Atom<'s>,
    a: &Value,
    b: &Value,
) -> Result<(Option<Form<'s>>, Form<'s>), TypeErrors> {
    let (a, b) = (forms(atom, a), forms(atom, b));
    let first = if a == b { None } else { Some(pick(atom, a)?) };
    Ok((first, pick(atom, b)?))
}

/// All that the type allows, or the one form that the value has. Null, and what does not fit, leave it open.
fn forms(atom: &Atom<'_>, value: &Value) -> Forms {
    let all = Forms {
        map: atom.map.is_some(),
        scalar: atom.scalar.is_some(),
        list: atom.list.is_some(),
    };
    let none = Forms {
        map: false,
        scalar: false,
        list: false,
    };
    match value {
        Value::Null => all,
        Value::Array(_) if all.list => Forms { list: true, ..none },
        Value::Object(_) if all.map => Forms { map: true, ..none },
        Value::Bool(_) | Value::Number(_) | Value::String(_) if all.scalar => Forms { scalar: true, ..none },
        _ => all,
    }
}

fn pick<'s>(atom: &Atom<'s>, forms: Forms) -> Result<Form<'s>, TypeErrors> {
    match (atom.map, atom.scalar, atom.list) {
        (Some(map), _, _) if forms.map => Ok(Form::Map(map)),
        (_, Some(scalar), _) if forms.scalar => Ok(Form::Scalar(scalar)),
        (_, _, Some(list)) if forms.list => Ok(Form::List(list)),
        _ => Err(TypeErrors::one("schema error: invalid atom: inlined")),
    }
}

/// Refuses a scalar of the wrong type; null fits all.
pub(super) fn check_scalar(scalar: Scalar, value: &Value, prefix: &str) -> Result<(), TypeErrors> {
    let fits = match (scalar, value) {
        (_, Value::Null) => true,
        (Scalar::Numeric, value) => value.is_number(),
        (Scalar::String, value) => value.is_string(),
        (Scalar::Boolean, value) => value.is_boolean(),
        (Scalar::Untyped, value) => !value.is_array() && !value.is_object(),
    };
    if fits {
        return Ok(());
    }
    let text = match scalar {
        Scalar::Numeric => format!("{prefix}expected numeric (int or float), got {}", go_type(value)),
        Scalar::String => format!("{prefix}expected string, got {}", go_syntax(value)),
        Scalar::Boolean => format!("{prefix}expected boolean, got {}", go_value(value)),
        Scalar::Untyped => format!("{prefix}expected any scalar, got {}", go_value(value)),
    };
    Err(TypeErrors::one(text))
}

/// A value as Go's `%#v` prints the library's wrapper of it.
fn go_syntax(value: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", go_literal(value))
}

fn go_literal(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => crate::field::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_literal).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let members: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}:{}", crate::field::quote(key), go_literal(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
    }
}

/// A value as Go's `%v` prints the library's wrapper of it: a pointer to a struct with one field.
pub(super) fn go_value(value: &Value) -> String {
    format!("&{{{}}}", go_plain(value))
}

fn go_plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_plain).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let members: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_plain(value)))
                .collect();
            format!("map[{}]", members.join(" "))
        }
    }
}

/// The path element of an item of an associative list.
pub(super) fn item_element(list: &List<'_>, item: &Value) -> Result<PathElement, String> {
    match list.relation {
        Relation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        Relation::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(PathElement::Value(scalar.clone())),
        },
        Relation::Keys(keys) => {
            let item = match item {
                Value::Object(item) => item,
                Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
                _ => return Err("associative list with keys may not have non-map elements".to_owned()),
            };
            let mut fields: Vec<(CompactString, Value)> = Vec::new();
            for key in keys.iter() {
                let default = || {
                    let element = list.element.resolve().map;
                    element.map(|map| map.default(key)).ok_or_else(|| {
                        format!("couldn't find default value for {key}: associative list may not have non-map types")
                    })
                };
                match item.get(key) {
                    Some(value) => fields.push((key.into(), value.clone())),
                    None => fields.extend(default()?.map(|value| (key.into(), value))),
                }
            }
            if fields.is_empty() {
                let keys: Vec<String> = keys.iter().map(crate::field::quote).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    keys.join(" ")
                ));
            }
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(PathElement::Key(fields))
        }
    }
}

/// The items of a list under their elements, sorted; items of one element stay together, in their order.
pub(super) fn index_items<'v>(
    list: &List<'_>,
    items: &'v [Value],
) -> Result<Vec<(PathElement, Vec<&'v Value>)>, TypeErrors> {
    let mut errors = TypeErrors::default();
    let mut named: Vec<(PathElement, &Value)> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        match item_element(list, item) {
            Ok(element) => named.push((element, item)),
            Err(text) => errors.extend(TypeErrors::one(format!("element {at}: {text}"))),
        }
    }
    errors.into_result()?;
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let mut groups: Vec<(PathElement, Vec<&Value>)> = Vec::with_capacity(named.len());
    for (element, item) in named {
        match groups.last_mut().filter(|group| group.0 == element) {
            Some(group) => group.1.push(item),
            None => groups.push((element, vec![item])),
        }
    }
    Ok(groups)
}

/// The members of a value that a map is expected for; what is no map has none.
pub(super) fn members(value: &Value) -> Option<&serde_json::Map<String, Value>> {
    value.as_object()
}

/// The items of a value that a list is expected for; what is no list has none.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn equal_all(a: &[&Value], b: &[&Value]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| value::equal(a, b))
}
