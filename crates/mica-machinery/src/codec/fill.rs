//! Fills every field of a kind by the rules of `facts/fill.go`, so that the two sides can compare hashes.

use serde_json::{Map, Value};

use super::{base64, zero};
use crate::facts::{Field, Shape, TypeId, facts};
use crate::quantity::Quantity;

/// A value of this type with every field set.
pub(crate) fn filled(ty: TypeId) -> Value {
    Filler {
        count: 0,
        open: Vec::new(),
    }
    .shape(&Shape::Struct(ty))
}

struct Filler {
    count: i64,
    open: Vec<TypeId>,
}

impl Filler {
    fn next(&mut self) -> i64 {
        self.count += 1;
        self.count
    }

    fn shape(&mut self, shape: &Shape) -> Value {
        match shape {
            Shape::String => self.text(),
            Shape::Bool | Shape::SchemaOrBool(_) => {
                self.next();
                true.into()
            }
            Shape::Int32 | Shape::Int64 => {
                let n = self.next();
                if n % 5 == 0 { -n } else { n }.into()
            }
            Shape::Uint8 | Shape::Uint16 | Shape::Uint32 | Shape::Uint64 => (self.next() % 200).into(),
            Shape::Float32 | Shape::Float64 => (self.next() as f64 + 0.25).into(),
            Shape::Bytes => base64::encode(format!("b{}", self.next()).as_bytes()).into(),
            Shape::Time => self.time("").into(),
            Shape::MicroTime => {
                let micros = format!(".{:06}", self.count + 1);
                self.time(&micros).into()
            }
            Shape::Duration => crate::duration::format_go(self.next() * 1_500_000_001).into(),
            Shape::Quantity => self.quantity(),
            Shape::IntOrString => match self.next() {
                n if n % 2 == 0 => n.into(),
                n => format!("{n}%").into(),
            },
            Shape::Raw => serde_json::json!({"raw": self.next()}),
            Shape::FieldsV1 => serde_json::json!({format!("f:{}", self.next()): {}}),
            Shape::Json => format!("json{}", self.next()).into(),
            Shape::SchemaOrArray(_) => {
                self.next();
                Value::Object(Map::new())
            }
            Shape::SchemaOrStringArray(_) => vec![format!("p{}", self.next())].into(),
            Shape::StringList => vec![self.text(), self.text()].into(),
            Shape::List(element) => {
                let length = if matches!(**element, Shape::Struct(_)) { 1 } else { 2 };
                (0..length).map(|_| self.shape(element)).collect::<Vec<_>>().into()
            }
            Shape::Map(element) => {
                let entries = (0..2).map(|_| (format!("k{}", self.next()), self.shape(element)));
                entries.collect::<Map<_, _>>().into()
            }
            Shape::Struct(id) => self.object(*id),
        }
    }

    fn object(&mut self, id: TypeId) -> Value {
        self.open.push(id);
        let mut map = Map::new();
        for field in &facts().ty(id).fields {
            if !self.is_open(&field.shape) {
                map.insert(field.json.to_owned(), self.field(field));
            } else if super::is_always_printed(field) {
                map.insert(field.json.to_owned(), zero(&field.shape));
            }
        }
        self.open.pop();
        Value::Object(map)
    }

    fn field(&mut self, field: &Field) -> Value {
        // Table cells are the one place where JSON stands for Go's empty interface.
        if field.json == "cells" {
            return vec![format!("any{}", self.next()), format!("any{}", self.next())].into();
        }
        self.shape(&field.shape)
    }

    /// Whether the field holds a type that is just being filled; such fields stay unset.
    fn is_open(&self, shape: &Shape) -> bool {
        match shape {
            Shape::Struct(id) => self.open.contains(id),
            Shape::List(element) | Shape::Map(element) => {
                matches!(**element, Shape::Struct(_)) && self.is_open(element)
            }
            _ => false,
        }
    }

    fn text(&mut self) -> Value {
        let n = self.next();
        let text = match n % 7 {
            0 => format!("s{n}"),
            1 => format!("<{n}>&\u{2028}"),
            2 => format!("é{n}\"\\"),
            3 => n.to_string(),
            4 => format!("true{n}"),
            5 => format!("a: {n}"),
            _ => format!("line {n}\nand\tmore\n"),
        };
        text.into()
    }

    fn time(&mut self, fraction: &str) -> String {
        let timestamp = jiff::Timestamp::from_second(1_000_000_000 + self.next() * 61).expect("in range");
        format!("{}{fraction}Z", timestamp.to_string().trim_end_matches('Z'))
    }

    fn quantity(&mut self) -> Value {
        let n = self.next();
        let suffix = ["m", "Mi", "k", "e3", ".5", "Gi"][(n % 6) as usize];
        Quantity::parse(&format!("{n}{suffix}"))
            .expect("a quantity")
            .to_string()
            .into()
    }
}
