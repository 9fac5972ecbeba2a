//! One place of a compiled schema, and how it is read from a definition.
//!
//! Reading is lenient: a definition that was accepted has nothing here to refuse, and one that was stored before a rule
//! existed must still be served. What cannot be read is left out.

use compact_str::CompactString;
use serde_json::Value;

use super::format::Format;
use super::matcher::Pattern;

/// A place of a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) types: Types,
    pub(crate) flags: Flags,
    pub(crate) list: ListType,
    pub(crate) default: Option<Box<Value>>,
    pub(crate) properties: Properties,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) required: Box<[CompactString]>,
    /// What restricts values further; most places have nothing of it.
    pub(crate) checks: Option<Box<Checks>>,
    /// The place's number if it has rules: the key of its program.
    pub(crate) rules: Option<u32>,
    /// Whether this place or any below it has rules, so that those without are not walked.
    pub(crate) leads_to_rules: Reach,
}

/// Whether rules can be met from a place on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Reach {
    Rules,
    #[default]
    Nothing,
}

/// What a value may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Types {
    #[default]
    Any,
    One(Type),
    IntOrString,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// The yes-or-no words of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    pub(crate) atomic_map: bool,
    pub(crate) int_or_string: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Box<[CompactString]>),
}

/// What members that are no properties may be.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// The schema does not say.
    #[default]
    Unsaid,
    Any,
    None,
    Schema(Box<Node>),
}

/// The properties of a place, in the order of their names.
///
/// Not a tree: schemas are many and do not change, and a tree's nodes are half empty. Names lie apart from what they name,
/// which is large: a search reads names only.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    names: Box<[CompactString]>,
    nodes: Box<[Node]>,
}

impl Properties {
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        let at = self.names.binary_search_by(|own| own.as_str().cmp(name)).ok()?;
        Some(&self.nodes[at])
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&CompactString, &Node)> {
        self.names.iter().zip(&self.nodes)
    }
}

impl FromIterator<(CompactString, Node)> for Properties {
    fn from_iter<I: IntoIterator<Item = (CompactString, Node)>>(properties: I) -> Self {
        let mut sorted: Vec<_> = properties.into_iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (names, nodes): (Vec<_>, Vec<_>) = sorted.into_iter().unzip();
        Self {
            names: names.into(),
            nodes: nodes.into(),
        }
    }
}

/// What restricts the values of a place. What few places have is boxed: there are thousands of these.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) format: Option<(CompactString, Format)>,
    pub(crate) numbers: Option<Box<Numbers>>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Box<Pattern>>,
    pub(crate) sizes: Option<Box<Sizes>>,
    pub(crate) enumeration: Box<[Value]>,
    pub(crate) junctors: Option<Box<Junctors>>,
}

#[derive(PartialEq, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) maximum: Option<Bound>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
}

/// Of lists and objects.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) unique_items: bool,
}

/// Schemas that a value must fit beside its own.
#[derive(Debug, Default)]
pub(crate) struct Junctors {
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Node>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

impl Type {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type of a value; null has none.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.is_f64() => Self::Number,
            Value::Number(_) => Self::Integer,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        })
    }
}

impl Types {
    pub(crate) fn contains(self, ty: Type) -> bool {
        match self {
            Self::Any => false,
            Self::One(one) => one == ty,
            Self::IntOrString => matches!(ty, Type::Integer | Type::String),
        }
    }

    /// As errors print them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::One(one) => one.name(),
            Self::IntOrString => "integer,string",
        }
    }
}

impl Node {
    /// The schema of a member: its property's, else that of other members.
    pub(crate) fn member(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(match &self.additional {
            Additional::Schema(node) => Some(node),
            _ => None,
        })
    }

    /// Whether members that are no properties are known to the schema at all, so that they are not pruned.
    pub(crate) fn takes_members(&self) -> bool {
        !matches!(self.additional, Additional::Unsaid)
    }
}

/// Reads schemas, numbering the places that have rules.
#[derive(Debug, Default)]
pub(crate) struct Reader<'s> {
    /// The schemas of places with rules, by number, and whether each is the root of a resource.
    pub(crate) rules: Vec<(&'s Value, Place)>,
}

/// Where a schema stands: only the root and embedded resources have apiVersion, kind and metadata by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    ResourceRoot,
    Inside,
}

/// Whether rules of a schema are run: those under junctors other than the structure's own are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Structure,
    Junctor,
}

impl<'s> Reader<'s> {
    pub(crate) fn read(&mut self, schema: &'s Value, place: Place) -> Node {
        self.node(schema, place, Side::Structure)
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
        };
        let types = match Type::parse(text("type")) {
            _ if flags.int_or_string => Types::IntOrString,
            Some(ty) => Types::One(ty),
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
                .map(|items| Box::new(self.node(items, Place::Inside, side))),
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
            .map(|(name, property)| (name.as_str().into(), self.node(property, Place::Inside, side)));
        read.collect()
    }

    fn additional(&mut self, schema: Option<&'s Value>, side: Side) -> Additional {
        match schema {
            Some(Value::Bool(true)) => Additional::Any,
            Some(Value::Bool(false)) => Additional::None,
            Some(schema @ Value::Object(_)) => Additional::Schema(Box::new(self.node(schema, Place::Inside, side))),
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
        if !WORDS.iter().any(|word| schema.get(word).is_some()) {
            return None;
        }
        let format = Format::parse(text("format"), types);
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
