//! Text into steps.

use serde_json::Value;

use super::{Filter, Slice, Step};

/// How deep filters and unions may nest; each level is a recursion.
const MAX_NESTING: usize = 16;
/// How many actions one text may have; each may walk the whole document.
const MAX_ACTIONS: usize = 16;

/// Why a text is no expression, in client-go's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

fn fail<T>(text: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError(text.into()))
}

/// The actions of a text that is put between braces: `.a}{.b` makes two. What stands outside of them is skipped.
pub(super) fn parse(text: &str) -> Result<Vec<Vec<Step>>, ParseError> {
    parse_actions(text, 0)
}

fn parse_actions(text: &str, depth: usize) -> Result<Vec<Vec<Step>>, ParseError> {
    if depth > MAX_NESTING {
        return fail("too deeply nested");
    }
    let mut parser = Parser {
        text,
        at: 0,
        depth,
        steps: Vec::new(),
    };
    let mut actions = Vec::new();
    loop {
        while parser.step()? {}
        if actions.len() == MAX_ACTIONS {
            return fail("too many actions");
        }
        actions.push(std::mem::take(&mut parser.steps));
        let Some(open) = parser.rest().find('{') else {
            return Ok(actions);
        };
        parser.at += open + 1;
    }
}

/// Of an expression inside another the first action counts, and the others must be actions.
fn parse_nested(text: &str, depth: usize) -> Result<Vec<Step>, ParseError> {
    Ok(parse_actions(text, depth)?.swap_remove(0))
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    steps: Vec<Step>,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Reads one step; false at the end, which a closing brace is as well.
    fn step(&mut self) -> Result<bool, ParseError> {
        let rest = self.rest();
        if rest.starts_with("[?(") {
            self.filter()?;
            return Ok(true);
        }
        if rest.starts_with("..") {
            if self.steps.last() == Some(&Step::Recursive) {
                return fail("invalid multiple recursive descent");
            }
            self.at += 2;
            self.steps.push(Step::Recursive);
            if self.rest().starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                self.field()?;
            }
            return Ok(true);
        }
        let Some(c) = rest.chars().next() else {
            return Ok(false);
        };
        match c {
            '}' => return Ok(false),
            '\r' | '\n' => return fail("unclosed action"),
            ' ' | '@' | '$' => self.at += 1,
            '[' => self.array()?,
            '"' | '\'' => self.quote(c)?,
            '.' => {
                self.at += 1;
                self.field()?;
            }
            '+' | '-' => self.number()?,
            c if c.is_numeric() => self.number()?,
            c if c == '_' || c.is_alphabetic() => self.identifier(),
            c => {
                return fail(format!(
                    "unrecognized character in action: U+{:04X} '{c}'",
                    u32::from(c)
                ));
            }
        }
        Ok(true)
    }

    /// A field's name, up to what ends it; a backslash takes the next character as it is.
    fn field(&mut self) -> Result<(), ParseError> {
        let mut name = String::new();
        let mut chars = self.rest().chars();
        while let Some(c) = chars.next() {
            if c == '\\' {
                // The last one takes the brace that is put behind the text.
                let Some(next) = chars.next() else {
                    return fail("unclosed action");
                };
                self.at += 1 + next.len_utf8();
                name.push(next);
            } else if is_end(c) {
                break;
            } else {
                self.at += c.len_utf8();
                name.push(c);
            }
        }
        self.steps.push(if name == "*" {
            Step::Wildcard
        } else {
            Step::Field(name.replace('\\', ""))
        });
        Ok(())
    }

    fn identifier(&mut self) {
        let length = self.rest().find(is_end).unwrap_or(self.rest().len());
        let word = &self.rest()[..length];
        self.at += length;
        self.steps.push(match word {
            "true" => Step::Constant(Value::Bool(true)),
            "false" => Step::Constant(Value::Bool(false)),
            _ => Step::Identifier(word.to_owned()),
        });
    }

    fn number(&mut self) -> Result<(), ParseError> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with(['+', '-']));
        let digits = rest[sign..].find(|c: char| c != '.' && !c.is_numeric());
        let length = digits.map_or(rest.len(), |at| at + sign);
        let text = &rest[..length];
        self.at += length;
        let value = match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(integer), _) => Value::from(integer),
            (_, Ok(float)) => Value::from(float),
            _ => return fail(format!("cannot parse number {text}")),
        };
        self.steps.push(Step::Constant(value));
        Ok(())
    }

    fn quote(&mut self, end: char) -> Result<(), ParseError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let is_end = |at: &usize| bytes[*at] == end as u8 && bytes[at - 1] != b'\\';
        let newline = rest.find('\n').unwrap_or(usize::MAX);
        let Some(close) = (1..bytes.len()).find(is_end).filter(|close| *close < newline) else {
            return fail("unterminated quoted string");
        };
        let inner = &rest[1..close];
        let Some(text) = unquote(inner) else {
            return fail(format!("unquote string {} error invalid syntax", &rest[..=close]));
        };
        self.at += close + 1;
        self.steps.push(Step::Constant(Value::String(text)));
        Ok(())
    }

    fn array(&mut self) -> Result<(), ParseError> {
        let rest = self.rest();
        let end = rest.find([']', '\n']).filter(|end| rest[*end..].starts_with(']'));
        let Some(end) = end else {
            return fail("unterminated array");
        };
        let inner = &rest[1..end];
        self.at += end + 1;
        let inner = if inner == "*" { ":" } else { inner };
        if inner.contains(',') {
            let parts = inner
                .split(',')
                .map(|part| parse_nested(&format!("[{}]", part.trim_matches(' ')), self.depth + 1));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            self.steps.push(Step::Union(parts));
            return Ok(());
        }
        let quoted = inner.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        if let Some(name) = quoted.filter(|name| !name.contains('\'') && inner.len() >= 2) {
            let steps = parse_nested(&format!(".{name}"), self.depth + 1)?;
            self.steps.extend(steps);
            return Ok(());
        }
        let slice = slice(inner).ok_or_else(|| ParseError(format!("invalid array index {inner}")))?;
        self.steps.push(Step::Slice(slice));
        Ok(())
    }

    fn filter(&mut self) -> Result<(), ParseError> {
        self.at += "[?(".len();
        let rest = self.rest();
        let Some(end) = filter_end(rest) else {
            return fail("unterminated filter");
        };
        let inner = &rest[..end];
        if !rest[end + 1..].starts_with(']') {
            return fail("unclosed array expect ]");
        }
        self.at += end + 2;
        let compares = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let start = inner.find(compares).filter(|start| *start > 0);
        let parts = start.map(|start| {
            let after = &inner[start..];
            let length = after.find(|c| !compares(c)).unwrap_or(after.len());
            (&inner[..start], &after[..length], &after[length..])
        });
        let filter = match parts.filter(|(_, _, right)| !right.is_empty()) {
            Some((left, operator, right)) => Filter {
                left: parse_nested(left, self.depth + 1)?,
                right: parse_nested(right, self.depth + 1)?,
                operator: operator.to_owned(),
            },
            None => Filter {
                left: parse_nested(inner, self.depth + 1)?,
                right: Vec::new(),
                operator: "exists".to_owned(),
            },
        };
        self.steps.push(Step::Filter(Box::new(filter)));
        Ok(())
    }
}

/// Where a filter's closing parenthesis is, not counting those in its one quoted text.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut closed = false;
    let mut last = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '\n' => return None,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            '"' | '\'' if last != '\\' && quote == Some(c) => closed = true,
            ')' if quote.is_some() == closed => return Some(at),
            _ => {}
        }
        last = c;
    }
    None
}

/// `a`, `a:b` or `a:b:c`, each an integer or nothing.
fn slice(text: &str) -> Option<Slice> {
    let parts: Vec<&str> = text.split(':').collect();
    let number = |at: usize| match parts.get(at) {
        None | Some(&"") => Some(None),
        Some(digits) => {
            let plain = digits.strip_prefix('-').unwrap_or(digits);
            let valid = !plain.is_empty() && plain.bytes().all(|b| b.is_ascii_digit());
            valid.then(|| digits.parse::<i64>().ok()).flatten().map(Some)
        }
    };
    if parts.len() > 3 {
        return None;
    }
    let (start, end, step) = (number(0)?, number(1)?, number(2)?);
    let derived = parts.len() == 1;
    Some(Slice {
        start,
        end: if derived {
            Some(start.unwrap_or_default().wrapping_add(1))
        } else {
            end
        },
        derived,
        step,
    })
}

fn is_end(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

/// Go's escapes in a quoted text.
fn unquote(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let hex = |chars: &mut std::str::Chars<'_>, length: usize| {
            let digits: String = chars.by_ref().take(length).collect();
            (digits.len() == length)
                .then(|| u32::from_str_radix(&digits, 16).ok())
                .flatten()
                .and_then(char::from_u32)
        };
        out.push(match chars.next()? {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'x' => hex(&mut chars, 2)?,
            'u' => hex(&mut chars, 4)?,
            'U' => hex(&mut chars, 8)?,
            c @ ('\\' | '\'' | '"') => c,
            _ => return None,
        });
    }
    Some(out)
}
