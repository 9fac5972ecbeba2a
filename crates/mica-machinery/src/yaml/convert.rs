//! Nodes into JSON: tags resolved, aliases expanded within bounds, mappings merged, keys made strings.
//!
//! Two steps, because YAML's mappings may have keys that JSON has not: those are refused only if they are still there
//! when all aliases are expanded and all duplicates replaced.

use std::collections::{HashMap, HashSet};

use serde_json::{Number, Value};

use super::YamlError;
use super::emit::float_text;
use super::node::{Content, Document, NodeId};
use super::resolve::{Resolved, is_binary, is_merge, resolve, resolve_tagged};
use crate::codec::base64::{self, Alphabet};
use crate::codec::text::quote;

/// The document as a value, and what is to say about duplicate keys.
pub(super) fn convert(document: &Document) -> Result<(Value, Vec<String>), YamlError> {
    let mut converter = Converter {
        document,
        open_aliases: HashSet::new(),
        duplicates: Vec::new(),
        count: 0,
        alias_count: 0,
    };
    let tree = match document.root {
        Some(root) => {
            converter.count = 1;
            converter.tree(root)?
        }
        None => Tree::Scalar(Scalar::Null),
    };
    Ok((tree.into_json()?, converter.duplicates))
}

/// A value as YAML has it.
enum Tree {
    Scalar(Scalar),
    List(Vec<Tree>),
    /// In the order of first appearance.
    Map(Vec<(Scalar, Tree)>),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Scalar {
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
    places: HashMap<Scalar, usize>,
    pairs: Vec<(Scalar, Tree)>,
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

impl Converter<'_> {
    fn tree(&mut self, id: NodeId) -> Result<Tree, YamlError> {
        self.account()?;
        match &self.document.node(id).content {
            Content::Alias { name, target } => {
                self.open_alias(id, name)?;
                let tree = self.tree(*target);
                self.open_aliases.remove(&id);
                tree
            }
            Content::Scalar { value, tag, implicit } => Ok(Tree::Scalar(scalar(value, tag, *implicit)?)),
            Content::Sequence(children) => {
                let items: Result<_, _> = children.iter().map(|child| self.tree(*child)).collect();
                Ok(Tree::List(items?))
            }
            Content::Mapping(children) => {
                let mut target = Target::default();
                self.mapping(children, &mut target)?;
                Ok(Tree::Map(target.pairs))
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
            let key = match self.tree(pair[0])? {
                Tree::Scalar(key) => key,
                other => return Err(YamlError::at(0, &format!("invalid map key: {}", other.go_syntax()))),
            };
            let value = self.tree(pair[1])?;
            self.insert(pair[1], key, value, target);
        }
        Ok(())
    }

    fn insert(&mut self, at: NodeId, key: Scalar, value: Tree, target: &mut Target) {
        if let Some(place) = target.places.get(&key) {
            let line = self.document.node(at).line + 1;
            self.duplicates
                .push(format!("line {line}: key {} already set in map", key.go_syntax()));
            target.pairs[*place].1 = value;
        } else {
            target.places.insert(key.clone(), target.pairs.len());
            target.pairs.push((key, value));
        }
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
}

fn scalar(value: &str, tag: &str, implicit: bool) -> Result<Scalar, YamlError> {
    let resolved = match (tag, implicit) {
        ("", false) => Resolved::Text,
        ("", true) => resolve(value),
        _ => resolve_tagged(tag, value)?,
    };
    Ok(match resolved {
        Resolved::Null => Scalar::Null,
        Resolved::Bool(set) => Scalar::Bool(set),
        Resolved::Int(int) => Scalar::Int(int),
        Resolved::Uint(uint) => Scalar::Uint(uint),
        Resolved::Float(float) => Scalar::Float(float.to_bits()),
        Resolved::Timestamp | Resolved::Text => Scalar::Text(text_of(value, tag)?),
    })
}

/// A string's text; under the tag for binary data it is base64.
fn text_of(value: &str, tag: &str) -> Result<String, YamlError> {
    if !is_binary(tag) {
        return Ok(value.to_owned());
    }
    let bytes = base64::decode(value, Alphabet::Standard);
    let bytes = bytes.map_err(|_| YamlError::at(0, "!!binary value contains invalid base64 data"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Tree {
    fn into_json(self) -> Result<Value, YamlError> {
        match self {
            Tree::Scalar(scalar) => scalar.into_json(),
            Tree::List(list) => list.into_iter().map(Tree::into_json).collect(),
            Tree::Map(pairs) => {
                let convert = |(key, value): (Scalar, Tree)| match key.into_text() {
                    Ok(text) => Ok((text, value.into_json()?)),
                    Err(key) => Err(unsupported_key(&key, &value)),
                };
                pairs
                    .into_iter()
                    .map(convert)
                    .collect::<Result<_, _>>()
                    .map(Value::Object)
            }
        }
    }

    /// The value as Go's `%#v` prints it.
    fn go_syntax(&self) -> String {
        match self {
            Tree::Scalar(scalar) => scalar.go_syntax(),
            Tree::List(list) => {
                let items: Vec<String> = list.iter().map(Tree::go_syntax).collect();
                format!("[]interface {{}}{{{}}}", items.join(", "))
            }
            Tree::Map(pairs) => {
                let mut pairs: Vec<&(Scalar, Tree)> = pairs.iter().collect();
                pairs.sort_by_key(|(key, _)| key);
                let pairs: Vec<String> = pairs
                    .iter()
                    .map(|(key, value)| format!("{}:{}", key.go_syntax(), value.go_syntax()))
                    .collect();
                format!("map[interface {{}}]interface {{}}{{{}}}", pairs.join(", "))
            }
        }
    }
}

impl Scalar {
    fn into_json(self) -> Result<Value, YamlError> {
        Ok(match self {
            Scalar::Null => Value::Null,
            Scalar::Bool(set) => Value::Bool(set),
            Scalar::Int(int) => int.into(),
            Scalar::Uint(uint) => uint.into(),
            Scalar::Float(bits) => {
                let float = f64::from_bits(bits);
                let number = Number::from_f64(float).map(Value::Number);
                number.ok_or_else(|| YamlError(format!("json: unsupported value: {}", go_infinite(float))))?
            }
            Scalar::Text(text) => Value::String(text),
        })
    }

    /// The key as a JSON string; given back if upstream does not convert it.
    fn into_text(self) -> Result<String, Scalar> {
        match self {
            Scalar::Text(text) => Ok(text),
            Scalar::Int(int) => Ok(int.to_string()),
            Scalar::Bool(set) => Ok(set.to_string()),
            Scalar::Float(bits) => {
                let float = f64::from_bits(bits);
                Ok(match float {
                    f64::INFINITY => ".inf".into(),
                    f64::NEG_INFINITY => "-.inf".into(),
                    _ if float.is_nan() => ".nan".into(),
                    // Upstream prints keys in single precision.
                    _ => float_text(&format!("{:e}", float as f32)),
                })
            }
            Scalar::Null | Scalar::Uint(_) => Err(self),
        }
    }

    fn go_syntax(&self) -> String {
        match self {
            Scalar::Text(text) => quote(text),
            Scalar::Int(int) => int.to_string(),
            Scalar::Bool(set) => set.to_string(),
            Scalar::Uint(uint) => format!("{uint:#x}"),
            Scalar::Float(bits) => float_text(&format!("{:e}", f64::from_bits(*bits))),
            Scalar::Null => "interface {}(nil)".into(),
        }
    }
}

fn go_infinite(float: f64) -> &'static str {
    match float {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => "NaN",
    }
}

fn unsupported_key(key: &Scalar, value: &Tree) -> YamlError {
    let (kind, key) = match key {
        Scalar::Null => ("%!s(<nil>)", "<nil>".to_owned()),
        _ => ("uint64", key.go_syntax()),
    };
    let value = match value {
        Tree::Scalar(Scalar::Null) => "<nil>".to_owned(),
        _ => value.go_syntax(),
    };
    YamlError(format!(
        "unsupported map key of type: {kind}, key: {key}, value: {value}"
    ))
}
