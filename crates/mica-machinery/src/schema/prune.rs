//! Dropping what a schema does not know.

use serde_json::Value;

use super::node::{Additional, Node};

/// Members of a resource that no schema has to name.
pub(crate) const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops unknown members of a resource and returns their paths, sorted.
pub(crate) fn prune(node: &Node, object: &mut Value) -> Vec<String> {
    let mut pruner = Pruner {
        path: String::new(),
        unknown: Vec::new(),
    };
    pruner.prune(Some(node), object, Root::Resource);
    pruner.unknown.sort_unstable();
    pruner.unknown
}

/// Drops unknown members of a value inside a resource: a default.
pub(crate) fn prune_value(node: &Node, value: &mut Value) {
    let mut pruner = Pruner {
        path: String::new(),
        unknown: Vec::new(),
    };
    pruner.prune(Some(node), value, Root::Value);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    Resource,
    Value,
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    /// Without a schema nothing is known, so that everything goes.
    fn prune(&mut self, node: Option<&Node>, value: &mut Value, root: Root) {
        if let Some(node) = node.filter(|node| node.flags.preserve) {
            self.keep(node, value, root);
            return;
        }
        let length = self.path.len();
        match value {
            Value::Object(members) => {
                let embedded = root == Root::Resource || node.is_some_and(|node| node.flags.embedded);
                members.retain(|name, value| {
                    let Some(node) = node else {
                        self.report(name);
                        return false;
                    };
                    if embedded && META.contains(&name.as_str()) {
                        return true;
                    }
                    let property = node.properties.get(name);
                    if property.is_none() && !node.takes_members() {
                        if !META.contains(&name.as_str()) || length > 0 {
                            self.report(name);
                        }
                        return false;
                    }
                    self.push(name);
                    self.prune(property.or_else(|| additional(node)), value, Root::Value);
                    self.path.truncate(length);
                    true
                });
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{at}]"));
                    self.prune(node.and_then(|node| node.items.as_deref()), item, Root::Value);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Keeps all members, but prunes inside those that the schema names.
    fn keep(&mut self, node: &Node, value: &mut Value, root: Root) {
        let length = self.path.len();
        match value {
            Value::Object(members) => {
                let embedded = root == Root::Resource || node.flags.embedded;
                for (name, value) in members {
                    if embedded && META.contains(&name.as_str()) {
                        continue;
                    }
                    let property = node.properties.get(name);
                    if property.is_some() || node.takes_members() {
                        self.push(name);
                        self.prune(property.or_else(|| additional(node)), value, Root::Value);
                        self.path.truncate(length);
                    }
                }
            }
            Value::Array(items) => {
                let Some(element) = &node.items else { return };
                for (at, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{at}]"));
                    self.keep(element, item, Root::Value);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }

    fn report(&mut self, name: &str) {
        let path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        };
        self.unknown.push(path);
    }
}

fn additional(node: &Node) -> Option<&Node> {
    match &node.additional {
        Additional::Schema(node) => Some(node),
        _ => None,
    }
}

/// Drops nulls that may not be, unless a default stands in for them.
pub(crate) fn drop_nulls(node: Option<&Node>, value: &mut Value) {
    match value {
        Value::Object(members) => members.retain(|name, value| {
            let member = node.and_then(|node| node.member(name));
            let goes = value.is_null() && member.is_some_and(|node| !node.flags.nullable && node.default.is_none());
            if !goes {
                drop_nulls(member, value);
            }
            !goes
        }),
        Value::Array(items) => {
            let element = node.and_then(|node| node.items.as_deref());
            items.iter_mut().for_each(|item| drop_nulls(element, item));
        }
        _ => {}
    }
}
