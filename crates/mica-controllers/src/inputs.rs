//! Which objects are made from which others, as far as they were looked at: who must look again when something changes.
//!
//! Whoever resolves an object notes what it is about to read, and then reads. A change that is told after the note finds its
//! dependents here, and one that was told before it is in what is read: none is missed. An entry is about a hundred bytes for
//! each object that refers to another, and nothing for what nobody refers to.

use std::collections::{BTreeSet, HashMap};

use compact_str::CompactString;
use parking_lot::Mutex;

use crate::meta::{Notice, Object, Seen};
use crate::place::Place;

/// Something that others are made from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Input {
    resource: &'static str,
    namespace: Option<CompactString>,
    name: CompactString,
}

impl Input {
    pub fn new(resource: &'static str, name: &str) -> Self {
        Self {
            resource,
            namespace: None,
            name: name.into(),
        }
    }

    pub fn within(resource: &'static str, namespace: &str, name: &str) -> Self {
        Self {
            namespace: Some(namespace.into()),
            ..Self::new(resource, name)
        }
    }

    pub fn resource(&self) -> &'static str {
        self.resource
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Dependents by what they are made from.
#[derive(Default)]
pub struct Inputs(Mutex<Maps>);

#[derive(Default)]
struct Maps {
    inputs: HashMap<CompactString, Vec<Input>>,
    dependents: HashMap<Input, BTreeSet<CompactString>>,
}

impl Inputs {
    /// The object of the management plane that a notice is about, whether it is there or went. Where everything is told again,
    /// everything is noted again.
    pub fn heard<'a>(&self, notice: &'a Notice) -> Option<&'a Object> {
        match &notice.seen {
            Seen::Present(object) | Seen::Gone(object) => (object.place == Place::root()).then_some(object),
            Seen::Restarted => {
                self.clear();
                None
            }
            Seen::PlaneGone(_) => None,
        }
    }

    /// A dependent is made from these, and from nothing else.
    pub fn set(&self, dependent: &str, inputs: Vec<Input>) {
        let mut maps = self.0.lock();
        if maps.inputs.get(dependent) == Some(&inputs) {
            return;
        }
        maps.forget(dependent);
        for input in &inputs {
            let known = maps.dependents.entry(input.clone()).or_default();
            known.insert(dependent.into());
        }
        if !inputs.is_empty() {
            maps.inputs.insert(dependent.into(), inputs);
        }
    }

    /// A dependent is gone. Returns what it was made from.
    pub fn forget(&self, dependent: &str) -> Vec<Input> {
        self.0.lock().forget(dependent)
    }

    pub fn dependents(&self, input: &Input) -> Vec<CompactString> {
        let maps = self.0.lock();
        let found = maps.dependents.get(input);
        found.map(|all| all.iter().cloned().collect()).unwrap_or_default()
    }

    /// Everything is told again, and noted again.
    pub fn clear(&self) {
        *self.0.lock() = Maps::default();
    }
}

impl Maps {
    fn forget(&mut self, dependent: &str) -> Vec<Input> {
        let before = self.inputs.remove(dependent).unwrap_or_default();
        for input in &before {
            if let Some(all) = self.dependents.get_mut(input) {
                all.remove(dependent);
                if all.is_empty() {
                    self.dependents.remove(input);
                }
            }
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependents_are_found_by_what_they_are_made_from_now() {
        let inputs = Inputs::default();
        let (a, b) = (Input::new("as", "x"), Input::within("bs", "ns", "x"));
        inputs.set("one", vec![a.clone(), b.clone()]);
        inputs.set("two", vec![a.clone()]);
        assert_eq!(inputs.dependents(&a), ["one", "two"]);
        assert_eq!(inputs.dependents(&b), ["one"]);
        assert_eq!(inputs.dependents(&Input::new("bs", "x")), [""; 0]);
        inputs.set("one", vec![b.clone()]);
        assert_eq!(inputs.dependents(&a), ["two"]);
        assert_eq!(inputs.forget("one"), std::slice::from_ref(&b));
        assert_eq!(inputs.dependents(&b), [""; 0]);
        inputs.clear();
        assert_eq!(inputs.dependents(&a), [""; 0]);
    }
}
