//! Nodes into JSON: tags resolved, aliases expanded within bounds, mappings merged, keys made strings.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::YamlError;
use super::emit::float_text;
use super::node::{Content, Document, NodeId};
use super::resolve::{Resolved, is_binary, is_merge, resolve, resolve_tagged};
use crate::codec::text::{decode_base64, quote};

/// The document as a value, and what is to say about duplicate keys.
pub(super) fn convert(document: &Document) -> Result<(Value, Vec<String>), YamlError> {
    let mut converter = Converter {
        document,
        open_aliases: HashSet::new(),
        duplicates: Vec::new(),
        count: 0,
        alias_count: 0,
    };
    let value = match document.root {
        Some(root) => {
            converter.count = 1;
            converter.value(root)?
        }
        None => Value::Null,
    };
    Ok((value, converter.duplicates))
}

struct Converter<'a> {
    document: &'a Document,
    /// Aliases being expanded: meeting one again means that it contains itself.
    open_aliases: HashSet<NodeId>,
    duplicates: Vec<String>,
    /// Nodes converted, and how many of them inside aliases.
    count: usize,
    alias_count: usize,
}

/// A key as YAML has it; JSON has only strings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    /// The bits, because floats have no equality to hash by.
    Float(u64),
    Text(String),
}

/// A mapping being filled, possibly from several nodes.
#[derive(Default)]
struct Target {
    seen: HashSet<Key>,
    map: Map<String, Value>,
}

impl Converter<'_> {
    fn value(&mut self, id: NodeId) -> Result<Value, YamlError> {
        self.account()?;
        match &self.document.node(id).content {
            Content::Alias { name, target } => {
                self.open_alias(id, name)?;
                let value = self.value(*target);
                self.open_aliases.remove(&id);
                value
            }
            Content::Scalar { value, tag, implicit } => scalar_value(value, tag, *implicit),
            Content::Sequence(children) => children.iter().map(|child| self.value(*child)).collect(),
            Content::Mapping(children) => {
                let mut target = Target::default();
                self.mapping(children, &mut target)?;
                Ok(Value::Object(target.map))
            }
        }
    }

    /// Upstream's bound on expansion: the larger the document, the smaller the part that may come from aliases.
    fn account(&mut self) -> Result<(), YamlError> {
        const LOW: f64 = 400_000.0;
        const HIGH: f64 = 4_000_000.0;
        self.count += 1;
        if !self.open_aliases.is_empty() {
            self.alias_count += 1;
        }
        let allowed = match self.count as f64 {
            ..=LOW => 0.99,
            HIGH.. => 0.10,
            count => 0.99 - 0.89 * ((count - LOW) / (HIGH - LOW)),
        };
        let ratio = self.alias_count as f64 / self.count as f64;
        if self.alias_count > 100 && self.count > 1000 && ratio > allowed {
            return Err(YamlError::at(0, "document contains excessive aliasing"));
        }
        Ok(())
    }

    fn open_alias(&mut self, id: NodeId, name: &str) -> Result<(), YamlError> {
        if self.open_aliases.insert(id) {
            Ok(())
        } else {
            Err(YamlError::at(0, &format!("anchor '{name}' value contains itself")))
        }
    }

    fn mapping(&mut self, children: &[NodeId], target: &mut Target) -> Result<(), YamlError> {
        for pair in children.chunks_exact(2) {
            if let Content::Scalar { value, tag, implicit } = &self.document.node(pair[0]).content
                && is_merge(value, tag, *implicit)
            {
                self.merge(pair[1], target)?;
                continue;
            }
            let key = self.key(pair[0])?;
            let value = self.value(pair[1])?;
            self.insert(pair[1], key, value, target)?;
        }
        Ok(())
    }

    fn insert(&mut self, at: NodeId, key: Key, value: Value, target: &mut Target) -> Result<(), YamlError> {
        let text = key_text(&key).ok_or_else(|| unsupported_key(&key, &value))?;
        if target.seen.contains(&key) {
            let line = self.document.node(at).line + 1;
            self.duplicates
                .push(format!("line {line}: key {} already set in map", key_syntax(&key)));
        } else {
            target.seen.insert(key);
        }
        target.map.insert(text, value);
        Ok(())
    }

    /// Takes the pairs of a mapping, or of several, into another.
    fn merge(&mut self, id: NodeId, target: &mut Target) -> Result<(), YamlError> {
        match &self.document.node(id).content {
            // Earlier ones take precedence, so they come last.
            Content::Sequence(children) => children
                .iter()
                .rev()
                .try_for_each(|child| self.merge_one(*child, target)),
            _ => self.merge_one(id, target),
        }
    }

    fn merge_one(&mut self, id: NodeId, target: &mut Target) -> Result<(), YamlError> {
        let refused = || YamlError::at(0, "map merge requires map or sequence of maps as the value");
        self.account()?;
        match &self.document.node(id).content {
            Content::Mapping(children) => self.mapping(children, target),
            Content::Alias { name, target: aliased } => {
                let Content::Mapping(children) = &self.document.node(*aliased).content else {
                    return Err(refused());
                };
                self.open_alias(id, name)?;
                self.account()?;
                let merged = self.mapping(children, target);
                self.open_aliases.remove(&id);
                merged
            }
            _ => Err(refused()),
        }
    }

    fn key(&mut self, id: NodeId) -> Result<Key, YamlError> {
        let mut node = self.document.node(id);
        while let Content::Alias { target, .. } = &node.content {
            self.account()?;
            node = self.document.node(*target);
        }
        let Content::Scalar { value, tag, implicit } = &node.content else {
            let value = self.value(id)?;
            return Err(YamlError::at(0, &format!("invalid map key: {}", go_syntax(&value))));
        };
        self.account()?;
        Ok(match resolved(value, tag, *implicit)? {
            Resolved::Null => Key::Null,
            Resolved::Bool(set) => Key::Bool(set),
            Resolved::Int(int) => Key::Int(int),
            Resolved::Uint(uint) => Key::Uint(uint),
            Resolved::Float(float) => Key::Float(float.to_bits()),
            Resolved::Timestamp | Resolved::Text => Key::Text(text_of(value, tag)?),
        })
    }
}

fn resolved(value: &str, tag: &str, implicit: bool) -> Result<Resolved, YamlError> {
    match (tag, implicit) {
        ("", false) => Ok(Resolved::Text),
        ("", true) => Ok(resolve(value)),
        _ => resolve_tagged(tag, value),
    }
}

fn scalar_value(value: &str, tag: &str, implicit: bool) -> Result<Value, YamlError> {
    Ok(match resolved(value, tag, implicit)? {
        Resolved::Null => Value::Null,
        Resolved::Bool(set) => Value::Bool(set),
        Resolved::Int(int) => int.into(),
        Resolved::Uint(uint) => uint.into(),
        Resolved::Float(float) => match Number::from_f64(float) {
            Some(number) => Value::Number(number),
            None => return Err(YamlError(format!("json: unsupported value: {}", go_infinite(float)))),
        },
        Resolved::Timestamp | Resolved::Text => Value::String(text_of(value, tag)?),
    })
}

/// A string's text; under the tag for binary data it is base64.
fn text_of(value: &str, tag: &str) -> Result<String, YamlError> {
    if !is_binary(tag) {
        return Ok(value.to_owned());
    }
    let bytes = decode_base64(value.as_bytes());
    let bytes = bytes.map_err(|_| YamlError::at(0, "!!binary value contains invalid base64 data"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn go_infinite(float: f64) -> &'static str {
    match float {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => "NaN",
    }
}

/// The key as a JSON string; `None` for those that upstream does not convert.
fn key_text(key: &Key) -> Option<String> {
    match key {
        Key::Text(text) => Some(text.clone()),
        Key::Int(int) => Some(int.to_string()),
        Key::Bool(set) => Some(set.to_string()),
        Key::Float(bits) => {
            let float = f64::from_bits(*bits);
            Some(match float {
                f64::INFINITY => ".inf".into(),
                f64::NEG_INFINITY => "-.inf".into(),
                _ if float.is_nan() => ".nan".into(),
                // Upstream prints keys in single precision.
                _ => float_text(&format!("{:e}", float as f32)),
            })
        }
        Key::Null | Key::Uint(_) => None,
    }
}

/// The key as Go prints a value of its type.
fn key_syntax(key: &Key) -> String {
    match key {
        Key::Text(text) => quote(text),
        Key::Int(int) => int.to_string(),
        Key::Bool(set) => set.to_string(),
        Key::Uint(uint) => format!("{uint:#x}"),
        Key::Float(bits) => float_text(&format!("{:e}", f64::from_bits(*bits))),
        Key::Null => "interface {}(nil)".into(),
    }
}

fn unsupported_key(key: &Key, value: &Value) -> YamlError {
    let (kind, key) = match key {
        Key::Null => ("%!s(<nil>)", "<nil>".to_owned()),
        _ => ("uint64", key_syntax(key)),
    };
    let value = if value.is_null() {
        "<nil>".to_owned()
    } else {
        go_syntax(value)
    };
    YamlError(format!(
        "unsupported map key of type: {kind}, key: {key}, value: {value}"
    ))
}

/// A value as Go's `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::Bool(set) => set.to_string(),
        Value::Number(number) if number.is_f64() => float_text(&format!("{:e}", number.as_f64().unwrap_or_default())),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quote(text),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{}:{}", quote(k), go_syntax(v)))
                .collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", pairs.join(", "))
        }
    }
}
