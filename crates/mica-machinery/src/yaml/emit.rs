//! Values into YAML text, as upstream's library prints them: block style, two spaces, lines folded after 80 columns.

use serde_json::{Map, Value};

use super::order;
use super::resolve::{Resolved, is_base_60, resolve};
use super::token::{is_blank, is_break};

/// Beyond this column a space becomes a line break.
const WIDTH: usize = 80;
const INDENT: isize = 2;
/// Longer keys get a `?`.
const MAX_SIMPLE_KEY: usize = 128;

pub(super) fn emit(value: &Value) -> String {
    let mut emitter = Emitter {
        out: String::new(),
        column: 0,
        whitespace: true,
        indention: true,
        indent: -1,
        indents: Vec::new(),
    };
    emitter.node(value, Place::Root);
    emitter.write_indent();
    emitter.out
}

/// A float as Go's `%g` prints it, given Rust's exponent form of it.
pub(super) fn float_text(exponent_form: &str) -> String {
    let (digits, exponent) = exponent_form.split_once('e').unwrap_or((exponent_form, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let digits = digits.replace('.', "");
    let point = exponent + 1;
    let text = match usize::try_from(point) {
        Ok(point) if point >= digits.len() => format!("{digits}{}", "0".repeat(point - digits.len())),
        Ok(point) if point > 0 => format!("{}.{}", &digits[..point], &digits[point..]),
        _ => format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)),
    };
    format!("{sign}{text}")
}

/// Where a node stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Item,
    SimpleKey,
    Key,
    Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

struct Emitter {
    out: String,
    column: usize,
    /// Whether the last character was a space, or none is needed.
    whitespace: bool,
    /// Whether the line holds nothing but indentation and `-`, `?`, `:`.
    indention: bool,
    indent: isize,
    indents: Vec<isize>,
}

impl Emitter {
    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    /// Writes a line break of the text itself.
    fn write_break(&mut self, c: char) {
        if c == '\n' {
            self.put_break();
        } else {
            self.put(c);
            self.column = 0;
        }
    }

    fn write_indent(&mut self) {
        let indent = self.indent.max(0) as usize;
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.put_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn separate(&mut self) {
        if !self.whitespace {
            self.put(' ');
        }
    }

    /// Writes an indicator; `keeps_indention` if only indentation stands before what follows.
    fn indicator(&mut self, text: &str, keeps_indention: bool) {
        text.chars().for_each(|c| self.put(c));
        self.whitespace = false;
        self.indention &= keeps_indention;
    }

    fn push_indent(&mut self, first: isize, step: isize) {
        self.indents.push(self.indent);
        self.indent = if self.indent < 0 { first } else { self.indent + step };
    }

    fn pop_indent(&mut self) {
        self.indent = self.indents.pop().unwrap_or(-1);
    }

    fn node(&mut self, value: &Value, place: Place) {
        match value {
            Value::Array(list) if list.is_empty() => self.flow("[]"),
            Value::Object(map) if map.is_empty() => self.flow("{}"),
            Value::Array(list) => self.sequence(list, place),
            Value::Object(map) => self.mapping(map),
            Value::String(text) => self.text(text, place),
            Value::Null => self.scalar("null", Style::Plain, place),
            Value::Bool(set) => self.scalar(if *set { "true" } else { "false" }, Style::Plain, place),
            Value::Number(number) => {
                let text = match number.as_f64() {
                    Some(float) if number.is_f64() => json_number(float),
                    _ => number.to_string(),
                };
                self.scalar(&text, Style::Plain, place);
            }
        }
    }

    fn flow(&mut self, text: &str) {
        self.separate();
        self.indicator(text, false);
    }

    fn sequence(&mut self, list: &[Value], place: Place) {
        // As the value of a key, a sequence is not indented.
        let indentless = matches!(place, Place::Value | Place::Key) && !self.indention;
        self.push_indent(0, if indentless { 0 } else { INDENT });
        for item in list {
            self.write_indent();
            self.separate();
            self.indicator("-", true);
            self.node(item, Place::Item);
        }
        self.pop_indent();
    }

    fn mapping(&mut self, map: &Map<String, Value>) {
        self.push_indent(0, INDENT);
        for key in order::sort(map.keys().map(String::as_str).collect()) {
            self.write_indent();
            if key.len() <= MAX_SIMPLE_KEY && !key.chars().any(is_break) {
                self.text(key, Place::SimpleKey);
                self.indicator(":", false);
            } else {
                self.separate();
                self.indicator("?", true);
                self.text(key, Place::Key);
                self.write_indent();
                self.separate();
                self.indicator(":", true);
            }
            self.node(&map[key], Place::Value);
        }
        self.pop_indent();
    }

    /// A string in the style that keeps it one when it is read again.
    fn text(&mut self, text: &str, place: Place) {
        let style = if text.contains('\n') {
            Style::Literal
        } else if resolve(text) == Resolved::Text && !is_base_60(text) {
            Style::Plain
        } else {
            Style::DoubleQuoted
        };
        self.scalar(text, style, place);
    }

    fn scalar(&mut self, text: &str, wanted: Style, place: Place) {
        let style = Allowed::of(text).choose(wanted, text, place);
        let breaks = place != Place::SimpleKey;
        self.push_indent(INDENT, INDENT);
        match style {
            Style::Plain => self.plain(text, breaks),
            Style::SingleQuoted => self.single_quoted(text, breaks),
            Style::DoubleQuoted => self.double_quoted(text, breaks),
            Style::Literal => self.literal(text),
        }
        self.pop_indent();
    }

    fn plain(&mut self, text: &str, allow_breaks: bool) {
        self.separate();
        self.lines(text, allow_breaks, Style::Plain);
        self.whitespace = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, text: &str, allow_breaks: bool) {
        self.separate();
        self.indicator("'", false);
        self.lines(text, allow_breaks, Style::SingleQuoted);
        self.indicator("'", false);
        self.indention = false;
    }

    /// Text whose long lines fold at single spaces and whose own breaks are doubled.
    fn lines(&mut self, text: &str, allow_breaks: bool, style: Style) {
        let characters: Vec<char> = text.chars().collect();
        let (mut after_space, mut after_break) = (false, false);
        for (at, c) in characters.iter().enumerate() {
            if *c == ' ' {
                let inside = style == Style::Plain || (at > 0 && at + 1 < characters.len());
                let single = characters.get(at + 1) != Some(&' ');
                if allow_breaks && !after_space && self.column > WIDTH && inside && single {
                    self.write_indent();
                } else {
                    self.put(' ');
                }
                after_space = true;
            } else if is_break(*c) {
                if !after_break && *c == '\n' {
                    self.put_break();
                }
                self.write_break(*c);
                self.indention = true;
                after_break = true;
            } else {
                if after_break {
                    self.write_indent();
                }
                if *c == '\'' && style == Style::SingleQuoted {
                    self.put('\'');
                }
                self.put(*c);
                self.indention = false;
                (after_space, after_break) = (false, false);
            }
        }
    }

    fn double_quoted(&mut self, text: &str, allow_breaks: bool) {
        self.separate();
        self.indicator("\"", false);
        let characters: Vec<char> = text.chars().collect();
        // Upstream looks for the byte order mark at the start of the text whatever character is next.
        let escape_all = text.starts_with('\u{feff}');
        let mut after_space = false;
        for (at, c) in characters.iter().enumerate() {
            if escape_all || !is_printable(*c) || is_break(*c) || matches!(c, '"' | '\\') {
                escape(*c).chars().for_each(|c| self.put(c));
                after_space = false;
            } else if *c == ' ' {
                let inside = at > 0 && at + 1 < characters.len();
                if allow_breaks && !after_space && self.column > WIDTH && inside {
                    self.write_indent();
                    if characters[at + 1] == ' ' {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                after_space = true;
            } else {
                self.put(*c);
                after_space = false;
            }
        }
        self.indicator("\"", false);
        self.indention = false;
    }

    fn literal(&mut self, text: &str) {
        self.separate();
        self.indicator("|", false);
        let mut backwards = text.chars().rev();
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("2", false);
        }
        match (backwards.next().is_some_and(is_break), backwards.next()) {
            (false, _) => self.indicator("-", false),
            (true, None) => self.indicator("+", false),
            (true, Some(c)) if is_break(c) => self.indicator("+", false),
            _ => {}
        }
        self.put_break();
        self.whitespace = true;
        self.indention = true;
        let mut after_break = true;
        for c in text.chars() {
            if is_break(c) {
                self.write_break(c);
                self.indention = true;
                after_break = true;
            } else {
                if after_break {
                    self.write_indent();
                }
                self.put(c);
                self.indention = false;
                after_break = false;
            }
        }
    }
}

/// Upstream prints what it reads in the JSON: whole floats are integers there.
fn json_number(float: f64) -> String {
    let mut json = Vec::new();
    crate::codec::text::write_float(&mut json, float);
    let json = String::from_utf8_lossy(&json).into_owned();
    match resolve(&json) {
        Resolved::Float(float) => float_text(&format!("{float:e}")),
        _ => json,
    }
}

/// Which styles a text can be written in and read back.
struct Allowed {
    plain: bool,
    single_quoted: bool,
    literal: bool,
    multiline: bool,
}

impl Allowed {
    fn of(text: &str) -> Self {
        if text.is_empty() {
            return Allowed {
                plain: true,
                single_quoted: true,
                literal: false,
                multiline: false,
            };
        }
        let characters: Vec<char> = text.chars().collect();
        let is_edge_space = |c: Option<&char>| c.is_some_and(|c| *c == ' ' || is_break(*c));
        let pairs = || characters.windows(2);
        let special = characters.iter().any(|c| !is_printable(*c));
        let space_before_break = pairs().any(|pair| pair[0] == ' ' && is_break(pair[1]));
        let break_before_space = pairs().any(|pair| is_break(pair[0]) && pair[1] == ' ');
        let multiline = characters.iter().any(|c| is_break(*c));
        let edges = is_edge_space(characters.first()) || is_edge_space(characters.last());
        let mangled = special || space_before_break;
        Allowed {
            plain: !(edges || break_before_space || mangled || multiline || has_block_indicators(&characters)),
            single_quoted: !(break_before_space || mangled),
            literal: !(mangled || characters.last() == Some(&' ')),
            multiline,
        }
    }

    fn choose(&self, wanted: Style, text: &str, place: Place) -> Style {
        let mut style = wanted;
        if place == Place::SimpleKey && self.multiline {
            style = Style::DoubleQuoted;
        }
        if style == Style::Plain && (!self.plain || (text.is_empty() && place == Place::SimpleKey)) {
            style = Style::SingleQuoted;
        }
        if style == Style::SingleQuoted && !self.single_quoted {
            style = Style::DoubleQuoted;
        }
        if style == Style::Literal && (!self.literal || place == Place::SimpleKey) {
            style = Style::DoubleQuoted;
        }
        style
    }
}

/// Whether the text would read as something else than a plain scalar.
fn has_block_indicators(characters: &[char]) -> bool {
    if characters.starts_with(&['-'; 3]) || characters.starts_with(&['.'; 3]) {
        return true;
    }
    let ends_at = |at: usize| characters.get(at + 1).is_none_or(|c| is_blank(*c));
    let first = match characters[0] {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => true,
        '?' | '-' => ends_at(0),
        _ => false,
    };
    let is_after_blank = |at: usize| at == 0 || is_blank(characters[at - 1]) || is_break(characters[at - 1]);
    let within = characters.iter().enumerate().any(|(at, c)| match c {
        ':' => ends_at(at),
        '#' => is_after_blank(at),
        _ => false,
    });
    first || within
}

/// Upstream escapes everything beyond the basic plane.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

fn escape(c: char) -> String {
    let letter = match c {
        '\0' => '0',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        '\x1b' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        ..='\u{ff}' => return format!("\\x{:02X}", u32::from(c)),
        ..='\u{ffff}' => return format!("\\u{:04X}", u32::from(c)),
        _ => return format!("\\U{:08X}", u32::from(c)),
    };
    format!("\\{letter}")
}
