//! `string.format(list)`: `%s %d %f %e %b %x %X %o`.

use super::{EvalError, Host, Outcome, convert, time};
use crate::cel::ast::{Expr, Id, Kind};
use crate::cel::check::Checked;
use crate::cel::types::Type;
use crate::cel::value::{Map, Val};
use crate::field::quote;

/// Digits after the point where none are asked for.
const DEFAULT_PRECISION: usize = 6;

/// No number has more digits after the point.
const MAX_FRACTION: usize = 1074;

/// Where upstream's reader of numbers in templates gives up: more than that, and another digit.
const TOO_LARGE: usize = 1_000_000;

pub fn format<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::String(template), Val::List(list)] = args else {
        return Err(EvalError::no_overload());
    };
    let mut out = String::with_capacity(template.len());
    let mut rest: &str = template;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Err(EvalError::failed("unexpected end of string"));
        }
        let arg = match list.get(index) {
            Some(arg) => arg?,
            None => return Err(EvalError::failed(format!("index {index} out of range"))),
        };
        let (clause, after) =
            Clause::parse(rest).map_err(|e| EvalError::failed(format!("could not parse formatting clause: {e}")))?;
        clause.write(host, &mut out, &arg)?;
        rest = after;
        index += 1;
    }
    out.push_str(rest);
    Ok(Val::string(out))
}

/// One `%` clause of a template.
#[derive(Debug, Clone, Copy)]
pub struct Clause {
    precision: Option<usize>,
    verb: char,
}

impl Clause {
    /// Reads a clause after its `%`, and what follows it.
    pub fn parse(text: &str) -> Result<(Self, &str), String> {
        let mut rest = text;
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let length = after.bytes().take_while(u8::is_ascii_digit).count();
            if length == after.len() {
                return Err("error while parsing precision: could not find end of precision specifier".to_owned());
            }
            let digits = &after[..length];
            let number = digits.parse().map_err(|_| {
                let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
                format!(
                    "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {digits:?}: {why}"
                )
            })?;
            precision = Some(number);
            rest = &after[length..];
        }
        let verb = rest.chars().next().unwrap_or_default();
        if !"sdfebxXo".contains(verb) {
            return Err(format!("unrecognized formatting clause \"{verb}\""));
        }
        Ok((Self { precision, verb }, &rest[verb.len_utf8()..]))
    }

    /// The first node of an argument that the clause cannot write: texts also write what is in lists and maps.
    fn unfit(self, arg: &Expr, checked: &Checked) -> Option<Id> {
        if !self.accepts(checked.type_of(arg.id)) {
            return Some(arg.id);
        }
        match &arg.kind {
            Kind::List(list) if self.verb == 's' => list.elements.iter().find_map(|arg| self.unfit(arg, checked)),
            Kind::Map(entries) if self.verb == 's' => {
                let mut parts = entries.iter().flat_map(|entry| [&entry.key, &entry.value]);
                parts.find_map(|arg| self.unfit(arg, checked))
            }
            _ => None,
        }
    }

    fn accepts(self, of: &Type) -> bool {
        match (self.verb, of.unwrapped()) {
            (_, Type::Dyn | Type::Error | Type::Param(_)) => true,
            ('s', Type::Struct(_) | Type::Opaque(..)) => false,
            ('s', _) | ('d' | 'b' | 'o' | 'x' | 'X', Type::Int | Type::Uint) => true,
            // Of texts only some are good, which is not known yet.
            ('f' | 'e', Type::Double | Type::String) | ('b', Type::Bool) | ('x' | 'X', Type::String | Type::Bytes) => {
                true
            }
            _ => false,
        }
    }

    fn write(self, host: &mut Host<'_>, out: &mut String, arg: &Val<'_>) -> Result<(), EvalError> {
        let failed = |e: String| EvalError::failed(format!("error during formatting: {e}"));
        match self.verb {
            's' => write_string(host, out, arg),
            'd' => out_number(out, arg).map_err(failed),
            'f' | 'e' => {
                let width = self.precision.unwrap_or_default().min(usize::from(u16::MAX));
                host.work(width as u64 / 16)?;
                self.float(out, arg).map_err(failed)
            }
            _ => self.integer(out, arg).map_err(failed),
        }
    }

    fn float(self, out: &mut String, arg: &Val<'_>) -> Result<(), String> {
        let value = match arg {
            // Zero has no sign there.
            Val::Double(0.0) => 0.0,
            Val::Double(value) => *value,
            Val::String(text) if &**text == "NaN" => f64::NAN,
            Val::String(text) if &**text == "Infinity" => f64::INFINITY,
            Val::String(text) if &**text == "-Infinity" => f64::NEG_INFINITY,
            other => return Err(refusal(self.verb, other.type_of().runtime_name())),
        };
        let precision = self.precision.unwrap_or(DEFAULT_PRECISION);
        if precision / 10 > TOO_LARGE {
            out.push_str("%!(NOVERB)");
            return Ok(());
        }
        let text = match value {
            value if value.is_nan() => "NaN".to_owned(),
            value if value.is_infinite() && value > 0.0 => "∞".to_owned(),
            value if value.is_infinite() => "-∞".to_owned(),
            value if self.verb == 'f' => fixed(value, precision),
            value => scientific(value),
        };
        // Upstream takes the precision of `%e` for a width.
        let width = if self.verb == 'e' {
            usize::from(precision as u16)
        } else {
            0
        };
        out.push_str(&format!("{text:>width$}"));
        Ok(())
    }

    fn integer(self, out: &mut String, arg: &Val<'_>) -> Result<(), String> {
        let text = match (self.verb, arg) {
            ('b', Val::Bool(value)) => u8::from(*value).to_string(),
            ('b', Val::Int(value)) => signed(*value, |value| format!("{value:b}")),
            ('b', Val::Uint(value)) => format!("{value:b}"),
            ('o', Val::Int(value)) => signed(*value, |value| format!("{value:o}")),
            ('o', Val::Uint(value)) => format!("{value:o}"),
            ('x' | 'X', Val::Int(value)) => signed(*value, |value| format!("{value:x}")),
            ('x' | 'X', Val::Uint(value)) => format!("{value:x}"),
            ('x' | 'X', Val::String(text)) => text.bytes().map(|b| format!("{b:02x}")).collect(),
            ('x' | 'X', Val::Bytes(bytes)) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
            (verb, other) => return Err(refusal(verb, other.type_of().runtime_name())),
        };
        out.push_str(&if self.verb == 'X' { text.to_uppercase() } else { text });
        Ok(())
    }
}

/// What a clause says of a type that it cannot write.
fn refusal(verb: char, name: &str) -> String {
    let allowed = match verb {
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    };
    format!("{allowed}, was given {name}")
}

/// What is wrong with a template for these arguments; the node of the argument, if it is one's fault.
pub fn check(template: &str, args: &[Expr], checked: &Checked) -> Result<(), (Option<Id>, String)> {
    let mut rest = template;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Err((None, "unexpected end of string".to_owned()));
        }
        let arg = args
            .get(index)
            .ok_or_else(|| (None, format!("index {index} out of range")))?;
        let (clause, after) =
            Clause::parse(rest).map_err(|e| (None, format!("could not parse formatting clause: {e}")))?;
        if let Some(unfit) = clause.unfit(arg, checked) {
            let why = refusal(clause.verb, checked.type_of(unfit).runtime_name());
            return Err((Some(unfit), format!("error during formatting: {why}")));
        }
        rest = after;
        index += 1;
    }
    if args.len() > index {
        let message = format!(
            "too many arguments supplied to string.format (expected {index}, got {})",
            args.len()
        );
        return Err((None, message));
    }
    Ok(())
}

/// Upstream holds the most digits after the point in 16 bits, of which one is a sign, and the fewest in 8.
fn fixed(value: f64, precision: usize) -> String {
    let rounded = match usize::try_from(precision as i16) {
        Ok(most) => format!("{value:.0$}", most.min(MAX_FRACTION)),
        Err(_) => value.to_string(),
    };
    let fewest = usize::from(precision as u8);
    let (whole, fraction) = rounded.split_once('.').unwrap_or((&rounded, ""));
    let fraction = format!("{:0<fewest$}", fraction.trim_end_matches('0'));
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}", grouped(whole))
}

fn scientific(value: f64) -> String {
    let text = format!("{value:.DEFAULT_PRECISION$e}");
    let (digits, exponent) = text.split_once('e').expect("the format writes an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let sign = if exponent < 0 { "-" } else { "" };
    let exponent = superscript(&format!("{sign}{:02}", exponent.abs()));
    format!("{digits}×10{exponent}")
}

fn signed(value: i64, digits: fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", digits(value.unsigned_abs()))
}

fn superscript(digits: &str) -> String {
    digits
        .chars()
        .map(|c| match c {
            '-' => '⁻',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            c => char::from_u32('⁰' as u32 + c.to_digit(10).unwrap_or(0)).unwrap_or(c),
        })
        .collect()
}

/// Thousands are set apart by commas, as in American English.
fn grouped(whole: &str) -> String {
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = sign.to_owned();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn out_number(out: &mut String, arg: &Val<'_>) -> Result<(), String> {
    match arg {
        Val::Int(value) => out.push_str(&value.to_string()),
        Val::Uint(value) => out.push_str(&value.to_string()),
        other => return Err(refusal('d', other.type_of().runtime_name())),
    }
    Ok(())
}

fn write_string(host: &mut Host<'_>, out: &mut String, arg: &Val<'_>) -> Result<(), EvalError> {
    host.work(1 + out.len() as u64 / 4096)?;
    match arg {
        Val::List(list) => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                match item {
                    Ok(item) => write_quoted(host, out, &item)?,
                    Err(_) => return Err(unwritten("error")),
                }
            }
            out.push(']');
        }
        Val::Map(map) => write_map(host, out, map)?,
        Val::String(text) => {
            host.work(text.len() as u64 / 4)?;
            out.push_str(text);
        }
        Val::Bool(value) => out.push_str(&value.to_string()),
        Val::Int(value) => out.push_str(&value.to_string()),
        Val::Uint(value) => out.push_str(&value.to_string()),
        Val::Double(value) => out.push_str(&convert::format_double(*value)),
        Val::Bytes(bytes) => out.push_str(text_of(bytes)?),
        Val::Null => out.push_str("null"),
        Val::Type(of) => out.push_str(of.runtime_name()),
        Val::Duration(nanos) => out.push_str(&time::format_duration(*nanos)),
        Val::Timestamp(instant) => out.push_str(&instant.to_string()),
        other => {
            let why = refusal('s', other.type_of().runtime_name());
            return Err(EvalError::failed(format!("error during formatting: {why}")));
        }
    }
    Ok(())
}

const INVALID_TEXT: &str = r#"error during formatting: could not convert argument "invalid UTF-8 in bytes, cannot convert to string" to string"#;

/// Bytes as text, if they are that.
fn text_of(bytes: &[u8]) -> Result<&str, EvalError> {
    std::str::from_utf8(bytes).map_err(|_| EvalError::failed(INVALID_TEXT))
}

fn write_quoted(host: &mut Host<'_>, out: &mut String, arg: &Val<'_>) -> Result<(), EvalError> {
    match arg {
        Val::String(text) => {
            host.work(1 + text.len() as u64 / 4)?;
            out.push_str(&quote(text));
            Ok(())
        }
        Val::Bytes(bytes) => {
            host.work(1 + bytes.len() as u64 / 4)?;
            out.push_str(&format!("b{}", quote(text_of(bytes)?)));
            Ok(())
        }
        Val::Duration(nanos) => {
            out.push_str(&format!("duration(\"{}\")", time::format_duration(*nanos)));
            Ok(())
        }
        Val::Timestamp(instant) => {
            out.push_str(&format!("timestamp(\"{instant}\")"));
            Ok(())
        }
        // Within others, a number is written as a literal: with a point, and quoted where there is no literal for it.
        Val::Double(value) => {
            out.push_str(&match *value {
                value if value.is_nan() => "\"NaN\"".to_owned(),
                value if value.is_infinite() => format!("\"{}Inf\"", if value > 0.0 { '+' } else { '-' }),
                value => format!("{value:.DEFAULT_PRECISION$}"),
            });
            Ok(())
        }
        Val::List(_) | Val::Map(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Null | Val::Type(_) => {
            write_string(host, out, arg)
        }
        other => Err(unwritten(other.type_of().runtime_name())),
    }
}

fn unwritten(what: &str) -> EvalError {
    EvalError::failed(format!("error during formatting: no formatting function for {what}"))
}

fn write_map(host: &mut Host<'_>, out: &mut String, map: &Map<'_>) -> Result<(), EvalError> {
    let mut entries = Vec::new();
    for key in map.keys() {
        // A field that no schema names.
        if map.has_schema() && matches!(key, Val::Null) {
            let why = "runtime error: invalid memory address or nil pointer dereference";
            return Err(EvalError::Broken(why.to_owned()));
        }
        if !matches!(key, Val::String(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_)) {
            return Err(unwritten(&format!("map key of type {}", key.type_of().runtime_name())));
        }
        let (mut name, mut text) = (String::new(), String::new());
        write_quoted(host, &mut name, &key)?;
        match map.find(&key) {
            Ok(Some(value)) => write_quoted(host, &mut text, &value)?,
            Ok(None) => {
                return Err(EvalError::failed(format!(
                    "error during formatting: could not find key: {name}"
                )));
            }
            Err(_) => return Err(unwritten("error")),
        }
        entries.push((name, text));
    }
    // By what keys look like, quotes included.
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    out.push('{');
    for (i, (name, text)) in entries.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(&format!("{name}:{text}"));
    }
    out.push('}');
    Ok(())
}
