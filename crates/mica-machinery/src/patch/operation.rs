//! The operations of a JSON patch, one after the other.
//!
//! Every failure ends the patch; clients are not told which one it was.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::node::{Container, Node};
use super::{MAX_COPIED_BYTES, strict};
use crate::codec::{MAX_DEPTH, decode_untyped};

/// How many list items insertions and removals of one patch may shift: keeps 10,000 insertions into a long list cheap.
const MAX_SHIFTED: usize = 32 * 1024 * 1024;

/// One operation: its members, as text.
pub(super) type Operation<'a> = BTreeMap<String, &'a RawValue>;

/// Reads the list of operations; the error is Go's.
pub(super) fn decode(patch: &str) -> Result<Vec<Operation<'_>>, String> {
    let texts = strict::list(patch, "jsonpatch.Patch")?;
    let mut operations = Vec::with_capacity(texts.len());
    for text in texts {
        operations.push(match strict::describe(text.get()) {
            "object" => serde_json::from_str(text.get()).map_err(|error| error.to_string())?,
            // Go reads a null as an operation without members.
            "null" => Operation::new(),
            other => {
                return Err(format!(
                    "json: cannot unmarshal {other} into Go value of type jsonpatch.Operation"
                ));
            }
        });
    }
    Ok(operations)
}

pub(super) fn apply<'a>(document: &'a str, operations: &[Operation<'a>]) -> Result<Vec<u8>, String> {
    let mut state = State {
        root: Node::from_text(document),
        copied: 0,
        shifted: 0,
    };
    for operation in operations {
        state.apply(operation)?;
    }
    // Go parses and prints the document even if there is nothing to do: its top level comes out sorted.
    state.root.open();
    let mut out = Vec::with_capacity(document.len());
    state.root.write(&mut out);
    Ok(out)
}

struct State<'a> {
    root: Node<'a>,
    copied: usize,
    shifted: usize,
}

impl<'a> State<'a> {
    fn apply(&mut self, operation: &Operation<'a>) -> Result<(), String> {
        match text(operation, "op").as_deref() {
            Some("add") => self.add(&path(operation, "path")?, value(operation)),
            Some("remove") => self.remove(&path(operation, "path")?).map(drop),
            Some("replace") => self.replace(&path(operation, "path")?, value(operation)),
            Some("move") => {
                let value = self.remove(&path(operation, "from")?)?;
                self.add(&path(operation, "path")?, value)
            }
            Some("test") => self.test(&path(operation, "path")?, value(operation)),
            Some("copy") => self.copy(&path(operation, "from")?, &path(operation, "path")?),
            other => Err(format!("unknown operation {other:?}")),
        }
    }

    fn add(&mut self, path: &str, value: Node<'a>) -> Result<(), String> {
        let place = Place::find(&mut self.root, path)?;
        if place.depth + value.open_levels() > MAX_DEPTH {
            return Err(format!("{path}: nested too deeply"));
        }
        match place.container {
            Container::Object(members) => drop(members.insert(place.key, value)),
            Container::Array(items) => {
                let at = if place.key == "-" {
                    items.len()
                } else {
                    index(&place.key, items.len() + 1)?
                };
                self.shifted += items.len() - at;
                items.insert(at, value);
            }
        }
        self.check_shifted()
    }

    fn remove(&mut self, path: &str) -> Result<Node<'a>, String> {
        let place = Place::find(&mut self.root, path)?;
        let removed = match place.container {
            Container::Object(members) => members.remove(&place.key).ok_or_else(|| missing(path))?,
            Container::Array(items) => {
                let at = index(&place.key, items.len())?;
                self.shifted += items.len() - at;
                items.remove(at)
            }
        };
        self.check_shifted()?;
        Ok(removed)
    }

    fn replace(&mut self, path: &str, mut value: Node<'a>) -> Result<(), String> {
        if path.is_empty() {
            if value.open().is_none() {
                return Err("the whole document can only be replaced by an object or a list".to_owned());
            }
            self.root = value;
            return Ok(());
        }
        let place = Place::find(&mut self.root, path)?;
        match place.container {
            Container::Object(members) => drop(members.insert(place.key, value)),
            Container::Array(items) => {
                let at = index(&place.key, items.len())?;
                items[at] = value;
            }
        }
        Ok(())
    }

    fn test(&mut self, path: &str, mut wanted: Node<'a>) -> Result<(), String> {
        let failed = || format!("testing value {path} failed");
        if path.is_empty() {
            return if self.root.equals(&mut wanted) {
                Ok(())
            } else {
                Err(failed())
            };
        }
        let place = Place::find(&mut self.root, path)?;
        let equal = match place.get()? {
            Some(node) => node.equals(&mut wanted),
            None => matches!(wanted, Node::Null),
        };
        if equal { Ok(()) } else { Err(failed()) }
    }

    /// A copy of what is not there is null, as upstream has it.
    fn copy(&mut self, from: &str, path: &str) -> Result<(), String> {
        let mut text = Vec::new();
        Place::find(&mut self.root, from)?
            .get()?
            .unwrap_or(&mut Node::Null)
            .write(&mut text);
        self.copied += text.len();
        if self.copied > MAX_COPIED_BYTES {
            return Err(format!("copies add more than {MAX_COPIED_BYTES} bytes"));
        }
        let text = String::from_utf8(text).expect("written from text");
        self.add(path, Node::from_text(text))
    }

    fn check_shifted(&self) -> Result<(), String> {
        if self.shifted > MAX_SHIFTED {
            Err("too many list items shifted".to_owned())
        } else {
            Ok(())
        }
    }
}

/// A container and the member or index in it that a path names.
struct Place<'n, 'a> {
    container: Container<'n, 'a>,
    key: String,
    /// How deep the container is.
    depth: usize,
}

impl<'n, 'a> Place<'n, 'a> {
    /// What stands before the first slash is ignored, as upstream ignores it.
    fn find(root: &'n mut Node<'a>, path: &str) -> Result<Self, String> {
        let (_, path) = path.split_once('/').ok_or_else(|| missing(path))?;
        let (parents, key) = match path.rsplit_once('/') {
            Some((parents, key)) => (Some(parents), key),
            None => (None, path),
        };
        let mut node = root;
        let mut depth = 1;
        for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
            let part = unescape(part);
            depth += 1;
            if depth > MAX_DEPTH {
                return Err("the path is too deep".to_owned());
            }
            node = match node.open().ok_or_else(|| missing(path))? {
                Container::Object(members) => members.get_mut(&*part).ok_or_else(|| missing(path))?,
                Container::Array(items) => {
                    let at = index(&part, items.len())?;
                    &mut items[at]
                }
            };
        }
        let container = node.open().ok_or_else(|| missing(path))?;
        Ok(Self {
            container,
            key: unescape(key).into_owned(),
            depth,
        })
    }

    /// The value, `None` for a member that is not there.
    fn get(self) -> Result<Option<&'n mut Node<'a>>, String> {
        match self.container {
            Container::Object(members) => Ok(members.get_mut(&self.key)),
            Container::Array(items) => {
                let at = index(&self.key, items.len())?;
                Ok(Some(&mut items[at]))
            }
        }
    }
}

/// An index below `length`; negative ones count from the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let bad = || format!("{key} is no index into a list of {length}");
    let at: i64 = key.parse().map_err(|_| bad())?;
    let length = i64::try_from(length).expect("lists fit memory");
    let at = if at < 0 { at + length } else { at };
    if (0..length).contains(&at) {
        Ok(at as usize)
    } else {
        Err(bad())
    }
}

fn unescape(part: &str) -> Cow<'_, str> {
    if !part.contains('~') {
        return part.into();
    }
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        let (plain, escaped) = rest.split_at(at);
        out.push_str(plain);
        rest = if let Some(rest) = escaped.strip_prefix("~1") {
            out.push('/');
            rest
        } else if let Some(rest) = escaped.strip_prefix("~0") {
            out.push('~');
            rest
        } else {
            out.push('~');
            &escaped[1..]
        };
    }
    out.push_str(rest);
    out.into()
}

fn missing(path: &str) -> String {
    format!("the document has no {path}")
}

/// A member that is a string; Go's reading of strings, so that broken escapes do not matter.
fn text(operation: &Operation<'_>, member: &str) -> Option<String> {
    let raw = operation.get(member)?;
    decode_untyped(raw.get().as_bytes())
        .ok()?
        .value
        .as_str()
        .map(str::to_owned)
}

fn path(operation: &Operation<'_>, member: &str) -> Result<String, String> {
    text(operation, member).ok_or_else(|| format!("the operation has no {member}"))
}

fn value<'a>(operation: &Operation<'a>) -> Node<'a> {
    operation
        .get("value")
        .map_or(Node::Null, |raw| Node::from_text(raw.get()))
}
