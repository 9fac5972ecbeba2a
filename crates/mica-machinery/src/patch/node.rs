//! A JSON document that is taken apart only where a patch reaches.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::codec::write_string;

/// A value: its text as long as nobody looked inside.
#[derive(Clone, Debug)]
pub(super) enum Node<'a> {
    Null,
    Raw(Cow<'a, str>),
    Object(BTreeMap<String, Node<'a>>),
    Array(Vec<Node<'a>>),
}

/// What a node turned out to be when it was opened.
pub(super) enum Container<'n, 'a> {
    Object(&'n mut BTreeMap<String, Node<'a>>),
    Array(&'n mut Vec<Node<'a>>),
}

impl<'a> Node<'a> {
    /// The value of well-formed JSON text.
    pub(super) fn from_text(text: impl Into<Cow<'a, str>>) -> Self {
        let text = text.into();
        if text.trim() == "null" {
            Self::Null
        } else {
            Self::Raw(text)
        }
    }

    /// Takes the node apart one level, if it is an object or an array.
    pub(super) fn open(&mut self) -> Option<Container<'_, 'a>> {
        if let Self::Raw(text) = self
            && let Some(opened) = open_text(text)
        {
            *self = opened;
        }
        match self {
            Self::Object(members) => Some(Container::Object(members)),
            Self::Array(items) => Some(Container::Array(items)),
            _ => None,
        }
    }

    pub(super) fn open_object(&mut self) -> Option<&mut BTreeMap<String, Node<'a>>> {
        match self.open() {
            Some(Container::Object(members)) => Some(members),
            _ => None,
        }
    }

    /// How many levels of this node are open.
    pub(super) fn open_levels(&self) -> usize {
        let deepest = |levels: Option<usize>| 1 + levels.unwrap_or_default();
        match self {
            Self::Null | Self::Raw(_) => 0,
            Self::Object(members) => deepest(members.values().map(Self::open_levels).max()),
            Self::Array(items) => deepest(items.iter().map(Self::open_levels).max()),
        }
    }

    /// Whether two values are equal as upstream compares them: scalars by their text, so `1` is not `1.0`.
    pub(super) fn equals(&mut self, other: &mut Node<'a>) -> bool {
        match (self.open(), other.open()) {
            (Some(Container::Object(a)), Some(Container::Object(b))) => {
                a.len() == b.len()
                    && a.iter_mut()
                        .all(|(key, value)| b.get_mut(key).is_some_and(|other| value.equals(other)))
            }
            (Some(Container::Array(a)), Some(Container::Array(b))) => {
                a.len() == b.len() && a.iter_mut().zip(b).all(|(value, other)| value.equals(other))
            }
            (None, None) => match (&*self, &*other) {
                (Self::Null, Self::Null) => true,
                (Self::Raw(a), Self::Raw(b)) => a.trim() == b.trim(),
                _ => false,
            },
            _ => false,
        }
    }

    /// Appends the value as Go prints it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Raw(text) => write_compact(text, out),
            Self::Object(members) => {
                out.push(b'{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    write_string(key, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
            Self::Array(items) => {
                out.push(b'[');
                for (at, value) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    value.write(out);
                }
                out.push(b']');
            }
        }
    }
}

fn open_text<'a>(text: &Cow<'a, str>) -> Option<Node<'a>> {
    let object = match text.trim_start().as_bytes().first() {
        Some(b'{') => true,
        Some(b'[') => false,
        _ => return None,
    };
    match (object, text) {
        (true, Cow::Borrowed(text)) => {
            let members: BTreeMap<String, &'a RawValue> = serde_json::from_str(text).ok()?;
            Some(Node::Object(
                members
                    .into_iter()
                    .map(|(key, raw)| (key, Node::from_text(raw.get())))
                    .collect(),
            ))
        }
        (true, Cow::Owned(text)) => {
            let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
            let node = |raw: Box<RawValue>| Node::from_text(String::from(Box::<str>::from(raw)));
            Some(Node::Object(
                members.into_iter().map(|(key, raw)| (key, node(raw))).collect(),
            ))
        }
        (false, Cow::Borrowed(text)) => {
            let items: Vec<&'a RawValue> = serde_json::from_str(text).ok()?;
            Some(Node::Array(
                items.into_iter().map(|raw| Node::from_text(raw.get())).collect(),
            ))
        }
        (false, Cow::Owned(text)) => {
            let items: Vec<Box<RawValue>> = serde_json::from_str(text).ok()?;
            let node = |raw: Box<RawValue>| Node::from_text(String::from(Box::<str>::from(raw)));
            Some(Node::Array(items.into_iter().map(node).collect()))
        }
    }
}

/// Well-formed JSON without its white space, and with what browsers could mistake for markup escaped, as Go does.
fn write_compact(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let (mut in_string, mut escaped) = (false, false);
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        at += 1;
        if !in_string {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                out.push(byte);
            }
            in_string = byte == b'"';
            continue;
        }
        match byte {
            b'<' => out.extend_from_slice(b"\\u003c"),
            b'>' => out.extend_from_slice(b"\\u003e"),
            b'&' => out.extend_from_slice(b"\\u0026"),
            0xe2 if bytes[at..].starts_with(&[0x80, 0xa8]) || bytes[at..].starts_with(&[0x80, 0xa9]) => {
                out.extend_from_slice(if bytes[at + 1] == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                at += 2;
            }
            _ => out.push(byte),
        }
        in_string = escaped || byte != b'"';
        escaped = !escaped && byte == b'\\';
    }
}
