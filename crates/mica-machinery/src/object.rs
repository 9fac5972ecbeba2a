//! Reading and writing the parts that every object has.

use serde_json::{Map, Value};

/// `value.a.b`, if every step is an object that has it.
pub fn get<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |at, name| at.get(name))
}

/// The string at a path; empty if absent or of another type, as an absent Go string is.
pub fn string<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    get(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a path, if there is one.
pub fn int(value: &Value, path: &[&str]) -> Option<i64> {
    get(value, path).and_then(Value::as_i64)
}

/// The list at a path; empty if absent.
pub fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    get(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The map at a path, if there is one.
pub fn map<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Map<String, Value>> {
    get(value, path).and_then(Value::as_object)
}

/// What Go calls the type that decoding gives an untyped value: an integer that does not fit is a float.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Sets a value at a path, making the objects on the way.
pub fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = value;
    for name in parents {
        at = object_mut(at).entry(*name).or_insert_with(|| Value::Object(Map::new()));
    }
    object_mut(at).insert((*last).to_owned(), new.into());
}

/// Takes the value at a path out.
pub fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut at = value;
    for name in parents {
        at = at.get_mut(name)?;
    }
    at.as_object_mut()?.remove(*last)
}

/// Makes `to` hold at `path` what `from` holds there, or nothing.
pub fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    match get(from, path) {
        Some(value) => set(to, path, value.clone()),
        None => drop(remove(to, path)),
    }
}

pub fn name(value: &Value) -> &str {
    string(value, &["metadata", "name"])
}

pub fn namespace(value: &Value) -> &str {
    string(value, &["metadata", "namespace"])
}

/// The value as a map, made one if it is anything else.
pub fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it is an object now")
}

/// Whether two maps have the same members, these aside.
pub fn equal_without(skip: &[&str], a: Option<&Value>, b: Option<&Value>) -> bool {
    fn kept<'v>(value: Option<&'v Value>, skip: &[&str]) -> impl Iterator<Item = (&'v String, &'v Value)> {
        let members = value.and_then(Value::as_object).into_iter().flatten();
        members.filter(|(name, _)| !skip.contains(&name.as_str()))
    }
    kept(a, skip).eq(kept(b, skip))
}
