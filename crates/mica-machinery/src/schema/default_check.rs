//! Whether the defaults of a schema are values that it accepts.
//!
//! A default for the metadata of an embedded resource is judged as part of such a resource; any other on its own.

use serde_json::{Value, json};

use super::embedded::{self, Malformed};
use super::failure::show_as_go;
use super::node::{Node, Place};
use super::read::Reader;
use super::rule::{self, RuleCompiler, RuleSet, RuleSite};
use super::{prune, validate};
use crate::cel::cost::RUNTIME_BUDGET;
use crate::field::{Error, ErrorList, Path, aggregate};

/// Whether defaults with unknown fields are refused: not if the definition had such before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unpruned {
    Refused,
    Tolerated,
}

/// What is wrong with the defaults of a resource's schema.
pub fn errors(schema: &Value, path: &Path, unpruned: Unpruned, compiler: &dyn RuleCompiler) -> ErrorList {
    let mut checker = Checker {
        unpruned,
        compiler,
        budget: RUNTIME_BUDGET,
        errors: ErrorList::new(),
    };
    let around = Around {
        root: schema,
        steps: Vec::new(),
        in_meta: false,
    };
    checker.visit(schema, Place::ResourceRoot, &around, path);
    checker.errors
}

/// Whether a schema has a default that pruning would change.
pub fn has_unpruned(schema: &Value) -> bool {
    let own = schema
        .get("default")
        .filter(|default| !default.is_null())
        .is_some_and(|default| {
            let node = Reader::default().read(schema, Place::Inside);
            let mut pruned = default.clone();
            prune::prune_value(&node, &mut pruned);
            pruned != *default
        });
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let inside = properties.map(|(_, property)| property);
    let inside = inside.chain(
        ["items", "additionalProperties"]
            .iter()
            .filter_map(|word| schema.get(word)),
    );
    own || inside.filter(|schema| schema.is_object()).any(has_unpruned)
}

/// Brings the metadata of resources in defaults into form. Upstream's check of a default does so along the way.
pub fn coerce(schema: &mut Value) {
    coerce_below(schema, Place::ResourceRoot, Metadata::No);
}

/// Whether a schema is that of a resource's apiVersion, kind or metadata, or below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Metadata {
    Yes,
    No,
}

fn coerce_below(schema: &mut Value, place: Place, metadata: Metadata) {
    let is_resource = is_resource(schema, place);
    let metadata = if is_resource { Metadata::No } else { metadata };
    if metadata == Metadata::No && schema.get("default").is_some_and(|default| !default.is_null()) {
        let node = read(&mut Reader::for_defaults(), schema, is_resource);
        let mut coerced = schema["default"].clone();
        // What is refused has been, when the default was checked.
        if embedded::coerce(
            &node,
            &mut coerced,
            &Path::default(),
            Malformed::Refuse,
            &mut Vec::new(),
        )
        .is_ok()
        {
            schema["default"] = coerced;
        }
    }
    if let Some(items) = schema.get_mut("items").filter(|items| items.is_object()) {
        coerce_below(items, Place::Inside, metadata);
    }
    for (name, property) in schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
    {
        let is_metadata = is_resource && prune::META.contains(&name.as_str());
        let metadata = if is_metadata { Metadata::Yes } else { metadata };
        coerce_below(property, Place::Inside, metadata);
    }
}

fn is_resource(schema: &Value, place: Place) -> bool {
    place == Place::ResourceRoot || schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true))
}

/// The schema of a default. Upstream takes the root for an embedded resource here, so that its default needs an
/// apiVersion and a kind.
fn read<'s>(reader: &mut Reader<'s>, schema: &'s Value, is_resource: bool) -> Node {
    let place = if is_resource {
        Place::ResourceRoot
    } else {
        Place::Inside
    };
    let mut node = reader.read(schema, place);
    node.flags.embedded |= is_resource;
    node
}

/// The resource that a default is in, and the way to it.
#[derive(Clone)]
struct Around<'s> {
    root: &'s Value,
    steps: Vec<Step<'s>>,
    in_meta: bool,
}

#[derive(Clone, Copy)]
enum Step<'s> {
    Member(&'s str),
    Item,
}

impl<'s> Around<'s> {
    fn inner(&self, step: Step<'s>) -> Self {
        let mut inner = self.clone();
        inner.steps.push(step);
        inner
    }

    /// A resource that holds just the default.
    fn resource(&self, default: &Value) -> Value {
        let mut value = default.clone();
        for step in self.steps.iter().rev() {
            value = match step {
                Step::Member(name) => json!({ *name: value }),
                Step::Item => json!([value]),
            };
        }
        if let Some(members) = value.as_object_mut() {
            members.entry("kind").or_insert_with(|| "Validation".into());
            members.entry("apiVersion").or_insert_with(|| "validation/v1".into());
        }
        value
    }
}

struct Checker<'c> {
    unpruned: Unpruned,
    compiler: &'c dyn RuleCompiler,
    budget: i64,
    errors: ErrorList,
}

impl Checker<'_> {
    fn visit<'s>(&mut self, schema: &'s Value, place: Place, around: &Around<'s>, path: &Path) {
        let is_resource = is_resource(schema, place);
        let own;
        let around = if is_resource {
            own = Around {
                root: schema,
                steps: Vec::new(),
                in_meta: false,
            };
            &own
        } else {
            around
        };
        if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
            self.check(schema, default, is_resource, around, &path.child("default"));
        }
        if self.budget < 0 {
            return;
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            self.visit(items, Place::Inside, &around.inner(Step::Item), &path.child("items"));
        }
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let mut inner = around.inner(Step::Member(name));
            inner.in_meta |= is_resource && prune::META.contains(&name.as_str());
            self.visit(property, Place::Inside, &inner, &path.child("properties").key(name));
        }
    }

    fn check(&mut self, schema: &Value, default: &Value, is_resource: bool, around: &Around<'_>, path: &Path) {
        let mut reader = Reader::for_defaults();
        let node = read(&mut reader, schema, is_resource);
        let mut coerced = default.clone();
        let invalid = |detail: String| show_as_go(Error::invalid(path, default.clone(), detail));
        if around.in_meta {
            if let Err(why) = check_in_resource(around, default) {
                self.errors
                    .push(invalid(format!("must result in valid metadata: {why}")));
                return;
            }
        } else {
            if self.unpruned == Unpruned::Refused {
                let mut pruned = default.clone();
                prune::prune_value(&node, &mut pruned);
                if pruned != *default {
                    self.errors.push(invalid("must not have unknown fields".to_owned()));
                }
            }
            if let Err(error) = embedded::coerce(&node, &mut coerced, path, Malformed::Refuse, &mut Vec::new()) {
                self.errors.push(error);
                return;
            }
            let mut errors = ErrorList::new();
            embedded::check(&node, &coerced, path, &mut errors);
            if !errors.is_empty() {
                self.errors.append(&mut errors);
                return;
            }
        }
        let mut errors = validate::check(&node, &coerced, None).into_errors(path);
        if !errors.is_empty() {
            self.errors.append(&mut errors);
            return;
        }
        let sites = reader.rules.iter();
        let sets: Vec<RuleSet> = sites
            .map(|(schema, place)| RuleSet::compile(self.compiler, RuleSite { schema, place: *place }))
            .collect();
        self.run_rules(&node, &sets, &coerced, path);
    }

    /// Rules are run as on an update that changes nothing and as on a create, of which the dearer counts.
    fn run_rules(&mut self, node: &Node, sets: &[RuleSet], default: &Value, path: &Path) {
        if sets.is_empty() {
            return;
        }
        let (kept, left) = rule::run_unforgiving(node, sets, default, Some(default), path, self.budget);
        let mut lowest = left;
        let failed = !kept.is_empty();
        self.errors.extend(kept);
        if !failed {
            let (fresh, left) = rule::run_unforgiving(node, sets, default, None, path, self.budget);
            self.errors.extend(fresh);
            lowest = lowest.min(left);
        }
        self.budget = lowest;
    }
}

fn check_in_resource(around: &Around<'_>, default: &Value) -> Result<(), String> {
    let mut root = Reader::default().read(around.root, Place::ResourceRoot);
    root.flags.embedded = true;
    let mut resource = around.resource(default);
    embedded::coerce(
        &root,
        &mut resource,
        &Path::default(),
        Malformed::Refuse,
        &mut Vec::new(),
    )
    .map_err(|error| error.to_string())?;
    let mut errors = ErrorList::new();
    embedded::check(&root, &resource, &Path::default(), &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(aggregate(&errors))
    }
}
