//! How the places of a compiled schema are read from a definition.
//!
//! Reading is lenient: a definition that was accepted has nothing here to refuse, and one that was stored before a rule
//! existed must still be served. What cannot be read is left out.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use compact_str::CompactString;
use serde_json::Value;

use super::format::Format;
use super::matcher::Pattern;
use super::node::{
    Additional, Bound, Checks, Flags, Junctors, ListType, Node, Numbers, Place, Properties, Reach, Sizes, Type, Types,
};

/// Reads schemas, numbering the places that have rules.
#[derive(Debug, Default)]
pub(crate) struct Reader<'s> {
    /// The schemas of places with rules, by number, and whether each is the root of a resource.
    pub(crate) rules: Vec<(&'s Value, Place)>,
    /// Places that were read, by what their schemas say.
    alike: HashMap<Vec<u8>, Arc<Node>>,
    judged: Judged,
}

/// What a schema is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Judged {
    #[default]
    Values,
    /// Upstream judges defaults by a schema of its own making: an int-or-string may be anything, a format counts whatever
    /// the type is, known or not, and nothing is of a type that does not exist.
    Defaults,
}

/// Whether rules of a schema are run: those under junctors other than the structure's own are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Structure,
    Junctor,
}

impl<'s> Reader<'s> {
    /// A reader of schemas that defaults are judged by.
    pub(crate) fn for_defaults() -> Self {
        Self {
            judged: Judged::Defaults,
            ..Self::default()
        }
    }

    pub(crate) fn read(&mut self, schema: &'s Value, place: Place) -> Node {
        self.node(schema, place, Side::Structure)
    }

    /// A place below another. What says the same is there once: definitions repeat themselves, and most of their places
    /// are a text of some length or a number from a range.
    fn below(&mut self, schema: &'s Value, side: Side) -> Arc<Node> {
        let mut said = Vec::new();
        let alike = says(schema, &mut said).is_ok();
        if alike && let Some(known) = self.alike.get(&said) {
            return known.clone();
        }
        let node = Arc::new(self.node(schema, Place::Inside, side));
        if alike {
            self.alike.insert(said, node.clone());
        }
        node
    }

    fn node(&mut self, schema: &'s Value, place: Place, side: Side) -> Node {
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let flags = Flags {
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            atomic_map: text("x-kubernetes-map-type") == "atomic",
            int_or_string: flag("x-kubernetes-int-or-string"),
            formatted: !matches!(text("format"), "" | "byte"),
        };
        let types = match Type::parse(text("type")) {
            _ if flags.int_or_string && self.judged == Judged::Values => Types::IntOrString,
            Some(ty) => Types::One(ty),
            None if self.judged == Judged::Defaults && !text("type").is_empty() => Types::Unknown,
            None => Types::Any,
        };
        let place = if flags.embedded { Place::ResourceRoot } else { place };
        let has_rules = schema
            .get("x-kubernetes-validations")
            .is_some_and(|rules| !is_empty(rules));
        let rules = (has_rules && side == Side::Structure).then(|| {
            self.rules.push((schema, place));
            u32::try_from(self.rules.len() - 1).unwrap_or(u32::MAX)
        });
        let mut node = Node {
            types,
            flags,
            list: list_type(schema),
            default: schema
                .get("default")
                .filter(|value| !value.is_null())
                .map(|value| Box::new(value.clone())),
            properties: self.properties(schema, side),
            additional: self.additional(schema.get("additionalProperties"), side),
            items: schema
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| self.below(items, side)),
            required: strings(schema.get("required")),
            checks: self.checks(schema, types).map(Box::new),
            rules,
            leads_to_rules: Reach::Nothing,
        };
        let properties = node.properties.iter().map(|(_, property)| property);
        let below = properties.chain(node.items.as_deref());
        let below = below.chain(match &node.additional {
            Additional::Schema(node) => Some(&**node),
            _ => None,
        });
        let inside = below
            .map(|child| child.leads_to_rules)
            .any(|reach| reach == Reach::Rules);
        if node.rules.is_some() || inside {
            node.leads_to_rules = Reach::Rules;
        }
        node
    }

    fn properties(&mut self, schema: &'s Value, side: Side) -> Properties {
        let properties = schema.get("properties").and_then(Value::as_object);
        let read = properties
            .into_iter()
            .flatten()
            .map(|(name, property)| (name.as_str().into(), self.below(property, side)));
        read.collect()
    }

    fn additional(&mut self, schema: Option<&'s Value>, side: Side) -> Additional {
        match schema {
            Some(Value::Bool(true)) => Additional::Any,
            Some(Value::Bool(false)) => Additional::None,
            Some(schema @ Value::Object(_)) => Additional::Schema(self.below(schema, side)),
            _ => Additional::Unsaid,
        }
    }

    fn checks(&mut self, schema: &'s Value, types: Types) -> Option<Checks> {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| schema.get(name).and_then(Value::as_i64);
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let bound = |name: &str, exclusive: &str| {
            number(name).map(|value| Bound {
                value,
                exclusive: flag(exclusive),
            })
        };
        const WORDS: [&str; 17] = [
            "format",
            "maximum",
            "minimum",
            "multipleOf",
            "maxLength",
            "minLength",
            "maxItems",
            "minItems",
            "maxProperties",
            "minProperties",
            "uniqueItems",
            "pattern",
            "enum",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if types != Types::Unknown && !WORDS.iter().any(|word| schema.get(word).is_some()) {
            return None;
        }
        let format = match self.judged {
            Judged::Values => Format::parse(text("format"), types),
            Judged::Defaults => Format::of_any(text("format")),
        };
        let numbers = Numbers {
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
        };
        let sizes = Sizes {
            max_items: count("maxItems"),
            min_items: count("minItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            unique_items: flag("uniqueItems"),
        };
        let pattern = Some(text("pattern")).filter(|text| !text.is_empty());
        let enumeration = schema.get("enum").and_then(Value::as_array);
        Some(Checks {
            unknown_type: (types == Types::Unknown).then(|| text("type").into()),
            format: format.map(|format| (text("format").into(), format)),
            numbers: (numbers != Numbers::default()).then(|| Box::new(numbers)),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: pattern.map(|source| Box::new(Pattern::new(source))),
            sizes: (sizes != Sizes::default()).then(|| Box::new(sizes)),
            enumeration: enumeration.cloned().unwrap_or_default().into(),
            junctors: self.junctors(schema),
        })
    }

    fn junctors(&mut self, schema: &'s Value) -> Option<Box<Junctors>> {
        if !["allOf", "anyOf", "oneOf", "not"]
            .iter()
            .any(|word| schema.get(word).is_some())
        {
            return None;
        }
        Some(Box::new(Junctors {
            all_of: self.junctor(schema.get("allOf")),
            any_of: self.junctor(schema.get("anyOf")),
            one_of: self.junctor(schema.get("oneOf")),
            not: schema
                .get("not")
                .filter(|schema| schema.is_object())
                .map(|schema| self.node(schema, Place::Inside, Side::Junctor)),
        }))
    }

    fn junctor(&mut self, schemas: Option<&'s Value>) -> Vec<Node> {
        let schemas = schemas.and_then(Value::as_array).into_iter().flatten();
        schemas
            .map(|schema| self.node(schema, Place::Inside, Side::Junctor))
            .collect()
    }
}

/// A place whose schema takes more is kept by itself: looking for its like at every level would cost more than it saves.
const MAX_ALIKE_BYTES: usize = 512;

/// A schema has rules, which are numbered by place, or is too large to look for its like.
struct Singular;

/// Writes what a schema says, without what only people read.
fn says(schema: &Value, out: &mut Vec<u8>) -> Result<(), Singular> {
    let words = schema.as_object().into_iter().flatten();
    for (word, value) in words.filter(|(word, _)| *word != "description") {
        write!(out, "{word}=").expect("memory takes what is written");
        match (word.as_str(), value) {
            ("x-kubernetes-validations", _) => return Err(Singular),
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    // As JSON, which ends where it seems to.
                    write!(out, "{}:", Value::from(name.as_str())).expect("memory takes what is written");
                    says(property, out)?;
                }
            }
            ("items" | "additionalProperties", Value::Object(_)) => says(value, out)?,
            _ => write!(out, "{value}").expect("memory takes what is written"),
        }
        out.push(b';');
        if out.len() > MAX_ALIKE_BYTES {
            return Err(Singular);
        }
    }
    out.push(b'.');
    Ok(())
}

fn list_type(schema: &Value) -> ListType {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(schema.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn strings(value: Option<&Value>) -> Box<[CompactString]> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(CompactString::from).collect()
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(schema: &Value) -> Node {
        Reader::default().read(schema, Place::ResourceRoot)
    }

    #[test]
    fn places_that_say_the_same_are_there_once() {
        let text = |about: &str| json!({"type": "string", "maxLength": 8, "description": about});
        let schema = json!({"properties": {
            "a": text("one"),
            "b": text("other"),
            "c": {"type": "array", "items": text("third")},
            "d": {"type": "object", "additionalProperties": text("fourth")},
        }});
        let root = read(&schema);
        let at = |name: &str| root.properties.get(name).unwrap();
        let first = std::ptr::from_ref(at("a"));
        assert!(std::ptr::eq(first, at("b")));
        assert!(std::ptr::eq(first, at("c").items.as_deref().unwrap()));
        assert!(std::ptr::eq(first, at("d").member("any").unwrap()));
    }

    #[test]
    fn places_that_differ_in_anything_but_a_description_are_apart() {
        let rule = |rule: &str| json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]});
        let pairs = [
            (json!({"type": "string"}), json!({"type": "string", "nullable": true})),
            (
                json!({"default": {"description": "a"}}),
                json!({"default": {"description": "b"}}),
            ),
            (json!({"enum": ["a;enum=b"]}), json!({"enum": ["a", "b"]})),
            (
                json!({"properties": {"description": {"type": "string"}}}),
                json!({"properties": {"description": {"type": "integer"}}}),
            ),
            (
                json!({"properties": {"a": {}}, "type": "object"}),
                json!({"properties": {"a": {"type": "object"}}}),
            ),
            (json!({"items": {"maxLength": 1}}), json!({"items": {}, "maxLength": 1})),
            (rule("true"), rule("true")),
        ];
        for (one, other) in pairs {
            let root = read(&json!({"properties": {"a": one, "b": other}}));
            let at = |name: &str| std::ptr::from_ref(root.properties.get(name).unwrap());
            assert!(!std::ptr::eq(at("a"), at("b")), "{one} and {other}");
        }
    }
}
