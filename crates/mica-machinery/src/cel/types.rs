//! Types of expressions, and how they are written in error texts.

use std::fmt;
use std::sync::Arc;

/// The name under which `optional_type(T)` is declared.
pub const OPTIONAL: &str = "optional_type";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    Dyn,
    /// The type of what failed to check: it fits everywhere, so that one error does not cause another.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    /// An object with declared fields, or one of Kubernetes' value types.
    Struct(Arc<str>),
    /// An abstract type with parameters: `optional_type(T)`, `net.IP`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// A type parameter or an inference variable.
    Param(Arc<str>),
    /// What a message of protobuf wraps: it may be null.
    Wrapper(Arc<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
}

impl Type {
    pub fn list(of: Type) -> Self {
        Self::List(Arc::new(of))
    }

    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(of: Type) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([of]))
    }

    pub fn object(name: &str) -> Self {
        Self::Struct(name.into())
    }

    pub fn type_of(of: Type) -> Self {
        Self::Type(Some(Arc::new(of)))
    }

    /// What an optional type holds.
    pub fn optional_inner(&self) -> Option<&Type> {
        match self {
            Self::Opaque(name, params) if &**name == OPTIONAL => params.first(),
            _ => None,
        }
    }

    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// The type itself, wrapped or not.
    pub fn unwrapped(&self) -> &Type {
        match self {
            Self::Wrapper(of) => of,
            other => other,
        }
    }

    /// The name that `type(x)` has at run time.
    pub fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "error",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Struct(name) | Self::Opaque(name, _) | Self::Param(name) => name,
            Self::Wrapper(of) => of.runtime_name(),
            Self::Type(_) => "type",
        }
    }

    /// The name in refusals of a result, which say `google.protobuf.Duration` and `null_type` where the checker's errors
    /// say `duration` and `null`.
    pub fn full_name(&self) -> String {
        let name = self.runtime_name();
        let params: Vec<String> = match self {
            Self::List(of) => vec![of.full_name()],
            Self::Map(key, value) => vec![key.full_name(), value.full_name()],
            Self::Opaque(_, params) => params.iter().map(Type::full_name).collect(),
            Self::Type(Some(of)) => vec![of.full_name()],
            _ => Vec::new(),
        };
        if params.is_empty() {
            name.to_owned()
        } else {
            format!("{name}({})", params.join(", "))
        }
    }

    /// The same shape, whatever the names of type parameters.
    pub fn is_equivalent(&self, other: &Type) -> bool {
        match (self.unwrapped(), other.unwrapped()) {
            (Self::Param(_), Self::Param(_)) => true,
            (Self::List(a), Self::List(b)) => a.is_equivalent(b),
            (Self::Map(k, v), Self::Map(l, w)) => k.is_equivalent(l) && v.is_equivalent(w),
            (Self::Opaque(a, p), Self::Opaque(b, q)) => {
                a == b && p.len() == q.len() && p.iter().zip(q.iter()).all(|(p, q)| p.is_equivalent(q))
            }
            (Self::Type(Some(a)), Self::Type(Some(b))) => a.is_equivalent(b),
            (one, other) => one == other,
        }
    }

    /// Reads a type as `Display` writes it; single capital letters are parameters.
    pub fn parse(text: &str) -> Option<Type> {
        let (name, params) = match text.strip_suffix(')') {
            None => (text, Vec::new()),
            Some(rest) => {
                let (name, inner) = rest.split_once('(')?;
                (
                    name,
                    split_params(inner)
                        .into_iter()
                        .map(Type::parse)
                        .collect::<Option<Vec<_>>>()?,
                )
            }
        };
        let mut params = params.into_iter();
        Some(match name {
            "dyn" => Self::Dyn,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Timestamp,
            "list" => Self::list(params.next()?),
            "map" => Self::map(params.next()?, params.next()?),
            "type" => Self::Type(params.next().map(Arc::new)),
            OPTIONAL => Self::optional(params.next()?),
            "net.IP" | "net.CIDR" => Self::Opaque(name.into(), Arc::new([])),
            _ if name.len() == 1 && name.starts_with(|c: char| c.is_ascii_uppercase()) => Self::Param(name.into()),
            _ => Self::object(name),
        })
    }
}

/// Splits `a, map(b, c)` at its outermost commas.
fn split_params(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Opaque(name, params) if !params.is_empty() => {
                write!(f, "{name}(")?;
                for (i, param) in params.iter().enumerate() {
                    let comma = if i > 0 { ", " } else { "" };
                    write!(f, "{comma}{param}")?;
                }
                f.write_str(")")
            }
            Self::Wrapper(of) => write!(f, "wrapper({of})"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            other => f.write_str(other.runtime_name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_read_back_as_written() {
        for text in [
            "int",
            "list(map(string, dyn))",
            "optional_type(list(A))",
            "type(A)",
            "kubernetes.Quantity",
            "net.IP",
        ] {
            assert_eq!(Type::parse(text).expect("a type").to_string(), text);
        }
    }
}
