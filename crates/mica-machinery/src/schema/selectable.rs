//! Paths of named fields into a schema: selectable fields, and where rules report their failures.
//!
//! A path is `.a.b` or `['a']['b']`; it must lead along the schema. It is neither kubectl's JSONPath nor a field path.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};

/// How many fields of a version may be selectable.
const MAX_SELECTABLE: usize = 8;

/// Whether `['name']` may stand for `.name`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Brackets {
    Allowed,
    Refused,
}

/// Where a path leads.
struct Found<'s> {
    /// The path as errors print it: `spec.a`, `spec.labels[a]`.
    path: Path,
    /// The first name.
    root: String,
    schema: &'s Value,
}

/// A path in the form that is appended to a field's: `.a.b[c]`.
pub(crate) fn field_path(text: &str, schema: &Value) -> Result<String, String> {
    let found = follow(text, schema, Brackets::Allowed)?;
    let path = found.path.as_str();
    Ok(if path.starts_with('[') {
        path.to_owned()
    } else {
        format!(".{path}")
    })
}

/// What is wrong with the selectable fields of a version.
pub(crate) fn check(fields: &[Value], schema: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen: Vec<String> = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        let path = path.index(at).child("jsonPath");
        let text = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() {
            errors.push(Error::required(&path, ""));
            continue;
        }
        let found = match follow(text, schema, Brackets::Refused) {
            Ok(found) => found,
            Err(why) => {
                errors.push(Error::invalid(&path, text, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if found.root == "metadata" {
            errors.push(Error::invalid(&path, text, "must not point to fields in metadata"));
        }
        let ty = found.schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if !matches!(ty, "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(Error::invalid(&path, text, detail));
        }
        let canonical = found.path.as_str().to_owned();
        if seen.contains(&canonical) {
            errors.push(Error::duplicate(&path, text));
        } else {
            seen.push(canonical);
        }
    }
    if seen.len() > MAX_SELECTABLE {
        errors.push(Error::too_many(path, seen.len(), MAX_SELECTABLE));
    }
    errors
}

fn follow<'s>(text: &str, schema: &'s Value, brackets: Brackets) -> Result<Found<'s>, String> {
    let mut found = Found {
        path: Path::default(),
        root: String::new(),
        schema,
    };
    let mut tokens = Tokens(text);
    const END: &str = "unexpected end of JSON path";
    while let Some(token) = tokens.next() {
        match token {
            "." => {
                let name = tokens.next().ok_or(END)?;
                found.enter(name)?;
            }
            "[" if brackets == Brackets::Refused => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or(END)?;
                let name = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let name = name.filter(|_| quoted.len() >= 2);
                let name = name.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unescape(name).map_err(|why| format!("invalid string literal: {why}"))?;
                found.enter(&name)?;
                match tokens.next().ok_or(END)? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

impl Found<'_> {
    fn enter(&mut self, name: &str) -> Result<(), String> {
        const MISSING: &str = "does not refer to a valid field";
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let properties = properties.filter(|properties| !properties.is_empty());
        if self.path.as_str().is_empty() {
            name.clone_into(&mut self.root);
        }
        match (properties, self.schema.get("additionalProperties")) {
            (Some(properties), _) => {
                self.path = self.path.child(name);
                self.schema = properties.get(name).ok_or(MISSING)?;
            }
            (None, Some(additional @ (Value::Object(_) | Value::Bool(_)))) => {
                self.path = self.path.key(name);
                self.schema = additional;
            }
            _ => return Err(MISSING.to_owned()),
        }
        Ok(())
    }
}

/// Dots, brackets, quoted texts, and what stands between them.
struct Tokens<'t>(&'t str);

impl<'t> Tokens<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let text = self.0;
        let length = match text.chars().next()? {
            '.' | '[' | ']' => 1,
            '\'' => {
                let bytes = text.as_bytes();
                let end = (1..bytes.len()).find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\');
                end.map_or(text.len(), |end| end + 1)
            }
            _ => text.find(['.', '[', ']']).unwrap_or(text.len()),
        };
        let (token, rest) = text.split_at(length);
        self.0 = rest;
        Some(token)
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('a') => out.push('\x07'),
            Some('b') => out.push('\x08'),
            Some('f') => out.push('\x0c'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\x0b'),
            Some(c @ ('\'' | '\\')) => out.push(c),
            Some(c) => return Err(format!("unsupported escape sequence \\{c}")),
            None => out.push('\\'),
        }
    }
    Ok(out)
}
