//! Untyped values as Go's `fmt` prints them: what a refused patch is shown as.

use std::fmt::Write as _;

use serde_json::Value;

use crate::object;

/// `%v`.
pub(crate) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

/// `%v` of a list of values.
pub(super) fn plain_list(items: &[Value]) -> String {
    let mut out = String::new();
    write_list(&mut out, items, write_plain);
    out
}

/// `%s`, which marks what is not text.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write_text(&mut out, value);
    out
}

/// The Go type that decoding gives a value, as `%s` prints it.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        other => object::go_type(other),
    }
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Number(number) => out.push_str(&crate::schema::go::number(number)),
        Value::String(text) => out.push_str(text),
        Value::Bool(value) => drop(write!(out, "{value}")),
        Value::Array(items) => write_list(out, items, write_plain),
        Value::Object(members) => write_map(out, members, write_plain),
    }
}

fn write_text(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("%!s(<nil>)"),
        Value::String(text) => out.push_str(text),
        Value::Bool(_) | Value::Number(_) => {
            out.push_str("%!s(");
            out.push_str(go_type(value));
            out.push('=');
            write_plain(out, value);
            out.push(')');
        }
        Value::Array(items) => write_list(out, items, write_text),
        Value::Object(members) => write_map(out, members, write_text),
    }
}

fn write_list(out: &mut String, items: &[Value], write: fn(&mut String, &Value)) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        write(out, item);
    }
    out.push(']');
}

fn write_map(out: &mut String, members: &serde_json::Map<String, Value>, write: fn(&mut String, &Value)) {
    out.push_str("map[");
    for (at, (key, value)) in members.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        out.push_str(key);
        out.push(':');
        write(out, value);
    }
    out.push(']');
}
