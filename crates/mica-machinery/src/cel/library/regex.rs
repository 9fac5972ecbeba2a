//! Regular expressions, in Go's syntax.
//!
//! Patterns are translated for the `regex` crate: Go's `\d`, `\w`, `\s` and `\b` are ASCII, a brace that is no repetition is
//! a brace, and what Go refuses is refused with Go's words. Both engines run in time linear in the text.

use regex::Regex;

use super::{EvalError, Implementation, Outcome};
use crate::cel::value::Val;

/// The most repetitions that Go allows.
const MAX_REPEAT: u32 = 1000;

/// Bytes that a compiled pattern may take.
const MAX_SIZE: usize = 1 << 20;

/// Compiles a pattern; the error is Go's.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = Translator::new(pattern)
        .translate()
        .map_err(|e| format!("error parsing regexp: {e}"))?;
    regex::RegexBuilder::new(&translated)
        .size_limit(MAX_SIZE)
        .build()
        .map_err(|_| format!("error parsing regexp: expression too large: `{pattern}`"))
}

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "matches" => |host, args| match args {
            [Val::String(text), Val::String(pattern)] => {
                host.work(pattern.len() as u64)?;
                let regex = compile(pattern).map_err(EvalError::failed)?;
                Ok(Val::Bool(regex.is_match(text)))
            }
            _ => Err(EvalError::no_overload()),
        },
        "find" => |_, args| match args {
            [Val::String(text), Val::String(pattern)] => Ok(find_first(&illegal(pattern)?, text)),
            _ => Err(EvalError::no_overload()),
        },
        "findAll" => |_, args| match args {
            [Val::String(text), Val::String(pattern)] => find_all(&illegal(pattern)?, text, -1),
            [Val::String(text), Val::String(pattern), Val::Int(limit)] => find_all(&illegal(pattern)?, text, *limit),
            _ => Err(EvalError::no_overload()),
        },
        _ => return None,
    })
}

/// Runs `name` with a pattern that was compiled when the program was made.
pub fn run<'a>(name: &str, regex: &Regex, args: &[Val<'a>]) -> Outcome<'a> {
    match (name, args) {
        ("matches", [Val::String(text), _]) => Ok(Val::Bool(regex.is_match(text))),
        ("find", [Val::String(text), _]) => Ok(find_first(regex, text)),
        ("findAll", [Val::String(text), _]) => find_all(regex, text, -1),
        ("findAll", [Val::String(text), _, Val::Int(limit)]) => find_all(regex, text, *limit),
        _ => Err(EvalError::no_overload()),
    }
}

fn illegal(pattern: &str) -> Result<Regex, EvalError> {
    compile(pattern).map_err(|e| EvalError::failed(format!("Illegal regex: {e}")))
}

fn find_first<'a>(regex: &Regex, text: &str) -> Val<'a> {
    Val::string(regex.find(text).map_or("", |found| found.as_str()))
}

fn find_all<'a>(regex: &Regex, text: &str, limit: i64) -> Outcome<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Val::list(
        regex
            .find_iter(text)
            .take(limit)
            .map(|found| Val::string(found.as_str()))
            .collect(),
    ))
}

struct Translator<'p> {
    pattern: &'p str,
    rest: &'p str,
    out: String,
    depth: u32,
    /// What the last thing repeated was, if a repetition came last.
    repeated: Option<&'p str>,
    /// Whether something precedes that can be repeated.
    repeatable: bool,
}

impl<'p> Translator<'p> {
    fn new(pattern: &'p str) -> Self {
        Self {
            pattern,
            rest: pattern,
            out: String::new(),
            depth: 0,
            repeated: None,
            repeatable: false,
        }
    }

    fn translate(mut self) -> Result<String, String> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.open()?,
                ')' if self.depth == 0 => return Err(format!("unexpected ): `{}`", self.pattern)),
                ')' => {
                    self.depth -= 1;
                    self.atom(1);
                }
                '|' => {
                    self.copy(1);
                    self.repeatable = false;
                    self.repeated = None;
                }
                '*' | '+' | '?' => self.repeat(1)?,
                '{' => match repetition(self.rest) {
                    None => {
                        self.out.push_str("\\{");
                        self.rest = &self.rest[1..];
                        self.repeatable = true;
                        self.repeated = None;
                    }
                    Some((_, _, true)) => {
                        let end = self.rest.find('}').expect("a repetition ends");
                        return Err(format!("invalid repeat count: `{}`", &self.rest[..=end]));
                    }
                    Some((length, _, false)) => self.repeat(length)?,
                },
                '}' => {
                    self.out.push_str("\\}");
                    self.rest = &self.rest[1..];
                    self.repeatable = true;
                    self.repeated = None;
                }
                c => self.atom(c.len_utf8()),
            }
        }
        if self.depth > 0 {
            return Err(format!("missing closing ): `{}`", self.pattern));
        }
        Ok(self.out)
    }

    fn copy(&mut self, length: usize) {
        self.out.push_str(&self.rest[..length]);
        self.rest = &self.rest[length..];
    }

    fn atom(&mut self, length: usize) {
        self.copy(length);
        self.repeatable = true;
        self.repeated = None;
    }

    fn literal(&mut self, text: &str, length: usize) {
        self.out.push_str(text);
        self.rest = &self.rest[length..];
        self.repeatable = true;
        self.repeated = None;
    }

    fn repeat(&mut self, length: usize) -> Result<(), String> {
        let start = self.rest;
        let lazy = usize::from(self.rest[length..].starts_with('?'));
        if !self.repeatable {
            return Err(format!(
                "missing argument to repetition operator: `{}`",
                &start[..length]
            ));
        }
        if let Some(before) = self.repeated {
            let nested = before.len() - start.len() + length + lazy;
            return Err(format!(
                "invalid nested repetition operator: `{}`",
                &before[..nested.min(before.len())]
            ));
        }
        self.copy(length + lazy);
        self.repeated = Some(start);
        Ok(())
    }

    fn open(&mut self) -> Result<(), String> {
        let Some(flags) = self.rest.strip_prefix("(?") else {
            self.depth += 1;
            self.copy(1);
            self.repeatable = false;
            self.repeated = None;
            return Ok(());
        };
        if flags.starts_with("P<") || (flags.starts_with('<') && !flags.starts_with("<=") && !flags.starts_with("<!")) {
            let Some(end) = flags.find('>') else {
                return Err(format!("invalid named capture: `{}`", self.rest));
            };
            self.depth += 1;
            self.copy(2 + end + 1);
        } else {
            let end = flags
                .find(|c: char| !matches!(c, 'i' | 'm' | 's' | 'U' | '-'))
                .unwrap_or(flags.len());
            match flags[end..].chars().next() {
                Some(':') => self.depth += 1,
                Some(')') if end > 0 => {}
                Some(c) => {
                    let shown = &self.rest[..2 + end + c.len_utf8()];
                    return Err(format!("invalid or unsupported Perl syntax: `{shown}`"));
                }
                None => return Err(format!("missing closing ): `{}`", self.pattern)),
            }
            self.copy(2 + end + 1);
        }
        self.repeatable = false;
        self.repeated = None;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        if let Some(quoted) = self.rest.strip_prefix("\\Q") {
            let (text, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            self.out.push_str(&regex::escape(text));
            self.rest = after;
            self.repeatable = !text.is_empty();
            self.repeated = None;
            return Ok(());
        }
        match self.rest[1..].chars().next() {
            Some('b') => self.literal("(?-u:\\b)", 2),
            Some('B') => self.literal("(?-u:\\B)", 2),
            Some(c @ ('A' | 'z')) => self.literal(&format!("\\{c}"), 2),
            Some(c @ ('d' | 'w' | 's' | 'D' | 'W' | 'S')) => self.literal(&format!("[{}]", perl(c)), 2),
            _ => {
                let (text, length) = escape(self.rest)?;
                self.literal(&text, length);
            }
        }
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        let missing = || format!("missing closing ]: `{whole}`");
        self.out.push('[');
        self.rest = &self.rest[1..];
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.out.push('^');
            self.rest = rest;
        }
        let mut first = true;
        loop {
            let c = self.rest.chars().next().ok_or_else(missing)?;
            if c == ']' && !first {
                break;
            }
            first = false;
            if let Some(end) = self.rest.strip_prefix("[:").and_then(|inner| inner.find(":]")) {
                let name = &self.rest[..end + 4];
                if !POSIX.contains(&name[2..name.len() - 2].trim_start_matches('^')) {
                    return Err(format!("invalid character class range: `{name}`"));
                }
                self.copy(end + 4);
                continue;
            }
            if c == '\\' {
                match self.rest[1..].chars().next() {
                    Some(c @ ('d' | 'w' | 's' | 'D' | 'W' | 'S')) => {
                        self.out.push_str(&format!("[{}]", perl(c)));
                        self.rest = &self.rest[2..];
                    }
                    _ => {
                        let (text, length) = escape(self.rest)?;
                        self.out.push_str(&text);
                        self.rest = &self.rest[length..];
                    }
                }
                continue;
            }
            // The crate gives these a meaning inside classes that Go does not.
            if matches!(c, '[' | '&' | '~') {
                self.out.push('\\');
            }
            self.copy(c.len_utf8());
        }
        self.atom(1);
        Ok(())
    }
}

const POSIX: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

fn perl(c: char) -> &'static str {
    match c {
        'd' => "0-9",
        'D' => "^0-9",
        'w' => "0-9A-Za-z_",
        'W' => "^0-9A-Za-z_",
        's' => "\\t\\n\\x0C\\r ",
        _ => "^\\t\\n\\x0C\\r ",
    }
}

/// An escape that means one character or a Unicode class, and its length in the pattern.
fn escape(rest: &str) -> Result<(String, usize), String> {
    let mut chars = rest[1..].chars();
    let Some(c) = chars.next() else {
        return Err("trailing backslash at end of expression: ``".to_owned());
    };
    let invalid = |length: usize| {
        Err(format!(
            "invalid escape sequence: `{}`",
            &rest[..length.min(rest.len())]
        ))
    };
    match c {
        'a' | 'f' | 'n' | 'r' | 't' | 'v' => Ok((format!("\\{c}"), 2)),
        'x' => {
            let digits = &rest[2..];
            if let Some(inner) = digits.strip_prefix('{') {
                let Some((hex, _)) = inner.split_once('}') else {
                    return invalid(rest.len());
                };
                let valid = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32).is_some();
                return if valid {
                    Ok((format!("\\x{{{hex}}}"), hex.len() + 4))
                } else {
                    invalid(hex.len() + 4)
                };
            }
            match digits.get(..2).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit())) {
                Some(hex) => Ok((format!("\\x{hex}"), 4)),
                None => invalid(4),
            }
        }
        'p' | 'P' => {
            let name = &rest[2..];
            let length = match name.strip_prefix('{') {
                Some(inner) => inner.find('}').map(|end| end + 2),
                None => name.chars().next().map(char::len_utf8),
            };
            let Some(length) = length else {
                return Err(format!("invalid character class range: `{rest}`"));
            };
            let text = rest[..2 + length].replace("{^", "{");
            let negated = rest[..2 + length].contains("{^");
            let text = if negated {
                text.replacen(['p', 'P'], if c == 'p' { "P" } else { "p" }, 1)
            } else {
                text
            };
            if Regex::new(&text).is_err() {
                return Err(format!("invalid character class range: `{}`", &rest[..2 + length]));
            }
            Ok((text, 2 + length))
        }
        '0'..='7' => {
            let length = rest[1..]
                .bytes()
                .take(3)
                .take_while(|b| (b'0'..=b'7').contains(b))
                .count();
            if c != '0' && length == 1 {
                return invalid(2);
            }
            let code = u32::from_str_radix(&rest[1..=length], 8).unwrap_or(0);
            Ok((format!("\\x{{{code:x}}}"), length + 1))
        }
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => {
            let text = if c == '_' || c.is_ascii_control() || c == ' ' {
                c.to_string()
            } else {
                format!("\\{c}")
            };
            Ok((text, 2))
        }
        c => invalid(1 + c.len_utf8()),
    }
}

/// `{n}`, `{n,}` or `{n,m}` at the start: its length, its least count, and whether it asks for too many.
fn repetition(rest: &str) -> Option<(usize, u32, bool)> {
    let inner = rest.strip_prefix('{')?;
    let end = inner.find('}')?;
    let (low, high) = match inner[..end].split_once(',') {
        Some((low, high)) => (low, Some(high)),
        None => (&inner[..end], None),
    };
    let number = |text: &str| {
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().unwrap_or(u32::MAX))
    };
    let low = number(low)?;
    let high = match high {
        None => low,
        Some("") => low,
        Some(high) => number(high)?,
    };
    Some((end + 2, low, low > MAX_REPEAT || high > MAX_REPEAT || low > high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_patterns_match_what_go_matches() {
        let cases = [
            (r"^\d+$", "٣", false),
            (r"^\d+$", "3", true),
            (r"a{,2}", "a{,2}", true),
            (r"[[:alpha:]]+[a&&b]", "x&", true),
            (r"\Q.*\E", "a.*", true),
            (r"^[\w.-]+$", "a.b-c_1", true),
            (r"(?i)ABC", "abc", true),
            (r"\x41\101", "AA", true),
        ];
        for (pattern, text, want) in cases {
            assert_eq!(compile(pattern).expect(pattern).is_match(text), want, "{pattern}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_in_its_words() {
        let cases = [
            ("[", "missing closing ]: `[`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("\\y", "invalid escape sequence: `\\y`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a\\", "trailing backslash at end of expression: ``"),
        ];
        for (pattern, want) in cases {
            assert_eq!(
                compile(pattern).expect_err(pattern),
                format!("error parsing regexp: {want}")
            );
        }
    }
}
