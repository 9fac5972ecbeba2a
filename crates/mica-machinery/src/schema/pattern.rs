//! Go's regular expressions: their syntax brought into ours, and Go's errors for those that are none.
//!
//! The two engines accept nearly the same language; this translates where they differ: `\d`, `\w`, `\s` and `\b` are ASCII in
//! Go, `{` and `[` may stand for themselves, `&&` and `--` mean nothing in a class, `\<` is a `<`, `\Q…\E` quotes.
//! Repetition counts above 1,000 are refused, as Go does.

use regex::{Regex, RegexBuilder};

/// How much memory one compiled expression may take; Go has no such bound, so larger ones match nothing.
const MAX_COMPILED_BYTES: usize = 10 * 1024 * 1024;

/// How much memory matching may cache; the default would let each expression of each schema hold 2 MiB.
const MAX_CACHE_BYTES: usize = 64 * 1024;

/// Go's bound on a repetition count.
const MAX_REPEAT: u32 = 1000;

const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Compiles an expression; the error is Go's.
pub fn compile(source: &str) -> Result<Regex, String> {
    let translated = translate(source)?;
    let built = RegexBuilder::new(&translated)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_CACHE_BYTES)
        .build();
    built.map_err(|_| go_error("expression too large", source))
}

fn go_error(what: &str, at: &str) -> String {
    format!("error parsing regexp: {what}: `{at}`")
}

/// What was read last, as far as a repetition operator cares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Nothing to repeat.
    Nothing,
    Atom,
    /// A repetition that began at this byte: another one right after it is refused.
    Repeat(usize),
}

struct Translator<'p> {
    source: &'p str,
    at: usize,
    out: String,
    /// How often each open group repeats what is in it, at most.
    open: Vec<u32>,
    /// The same outside of all groups, which nothing asks for.
    outside: u32,
    last: Last,
    /// How often what was read last repeats what is in it, at most: Go multiplies the counts of nested repetitions.
    repeats: u32,
}

fn translate(source: &str) -> Result<String, String> {
    let mut translator = Translator {
        source,
        at: 0,
        out: String::with_capacity(source.len() + 16),
        open: Vec::new(),
        outside: 1,
        last: Last::Nothing,
        repeats: 1,
    };
    while let Some(c) = translator.peek() {
        translator.step(c)?;
    }
    if !translator.open.is_empty() {
        return Err(go_error("missing closing )", source));
    }
    Ok(translator.out)
}

impl<'p> Translator<'p> {
    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn rest(&self) -> &'p str {
        &self.source[self.at..]
    }

    fn take(&mut self, c: char) {
        self.at += c.len_utf8();
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        self.last = Last::Atom;
        self.repeats = 1;
    }

    /// Notes how often what was read last repeats what is in it.
    fn note_repeats(&mut self, repeats: u32) {
        self.repeats = repeats;
        let around = self.open.last_mut().unwrap_or(&mut self.outside);
        *around = repeats.max(*around);
    }

    fn step(&mut self, c: char) -> Result<(), String> {
        match c {
            '\\' => return self.escape(),
            '[' => return self.class(),
            '(' => return self.group(),
            ')' => {
                let Some(repeats) = self.open.pop() else {
                    return Err(go_error("unexpected )", self.source));
                };
                self.take(c);
                self.atom(")");
                self.note_repeats(repeats);
            }
            '|' => {
                self.take(c);
                self.out.push('|');
                self.last = Last::Nothing;
            }
            '*' | '+' | '?' => {
                let start = self.at;
                self.take(c);
                self.repeat(start, c.encode_utf8(&mut [0; 4]))?;
            }
            '{' => return self.braces(),
            '^' | '$' => {
                self.take(c);
                self.atom(c.encode_utf8(&mut [0; 4]));
            }
            '&' | '~' | '#' | '-' | ']' | '}' => {
                self.take(c);
                self.out.push('\\');
                self.atom(c.encode_utf8(&mut [0; 4]));
            }
            _ => {
                self.take(c);
                self.atom(c.encode_utf8(&mut [0; 4]));
            }
        }
        Ok(())
    }

    /// A repetition operator that was read from `start` on.
    fn repeat(&mut self, start: usize, operator: &str) -> Result<(), String> {
        let lazy = self.rest().starts_with('?');
        self.at += usize::from(lazy);
        match self.last {
            Last::Nothing => {
                return Err(go_error(
                    "missing argument to repetition operator",
                    &self.source[start..self.at],
                ));
            }
            Last::Repeat(first) => {
                let both = &self.source[first..self.at];
                return Err(go_error("invalid nested repetition operator", both));
            }
            Last::Atom => {}
        }
        self.out.push_str(operator);
        if lazy {
            self.out.push('?');
        }
        self.last = Last::Repeat(start);
        Ok(())
    }

    /// `{2,5}` repeats; any other brace stands for itself.
    fn braces(&mut self) -> Result<(), String> {
        let start = self.at;
        let Some((min, max, length)) = count(self.rest()) else {
            self.at += 1;
            self.atom(r"\{");
            return Ok(());
        };
        self.at += length;
        let text = &self.source[start..self.at];
        let too_many = min > MAX_REPEAT || max.is_some_and(|max| max.is_some_and(|max| max > MAX_REPEAT || max < min));
        if too_many {
            return Err(go_error("invalid repeat count", text));
        }
        self.repeat(start, text)?;
        let times = match max {
            None | Some(None) => min,
            Some(Some(max)) => max,
        };
        // Nothing is repeated no times, whatever is in it.
        let repeats = if times == 0 {
            1
        } else {
            self.repeats.saturating_mul(times)
        };
        if repeats > MAX_REPEAT && times >= 2 {
            return Err(go_error("invalid repeat count", &self.source[start..self.at]));
        }
        self.note_repeats(repeats);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let start = self.at;
        let Some(c) = self.rest()[1..].chars().next() else {
            return Err("error parsing regexp: trailing backslash at end of expression: ``".to_owned());
        };
        self.at += 1 + c.len_utf8();
        let text = &self.source[start..self.at];
        match c {
            'Q' => {
                let (quoted, skipped) = match self.rest().split_once(r"\E") {
                    Some((quoted, _)) => (quoted, quoted.len() + 2),
                    None => (self.rest(), self.rest().len()),
                };
                let quoted = regex::escape(quoted);
                self.at += skipped;
                self.atom(&quoted);
            }
            'A' | 'z' => self.atom(text),
            'b' => self.atom(r"(?-u:\b)"),
            // The engine cannot have an ASCII form of this in text; the difference shows beside letters beyond ASCII.
            'B' => self.atom(r"\B"),
            'd' => self.atom("[0-9]"),
            'D' => self.atom("[^0-9]"),
            's' => self.atom(r"[\t\n\x0C\r ]"),
            'S' => self.atom(r"[^\t\n\x0C\r ]"),
            'w' => self.atom("[0-9A-Za-z_]"),
            'W' => self.atom("[^0-9A-Za-z_]"),
            _ => {
                let escaped = self.simple_escape(start, c)?;
                self.atom(&escaped);
            }
        }
        Ok(())
    }

    /// An escape that may stand in a class too; `c` is read already.
    fn simple_escape(&mut self, start: usize, c: char) -> Result<String, String> {
        let bad = |end: usize| go_error("invalid escape sequence", &self.source[start..end]);
        match c {
            'p' | 'P' => {
                let length = match self.rest().strip_prefix('{') {
                    Some(rest) => rest.find('}').map(|at| at + 2),
                    None => self.rest().chars().next().map(char::len_utf8),
                };
                let Some(length) = length else {
                    return Err(go_error("invalid character class range", &self.source[start..]));
                };
                self.at += length;
                let class = &self.source[start..self.at];
                let name = class[2..].trim_start_matches('{').trim_end_matches('}');
                unicode_class(c, name).ok_or_else(|| go_error("invalid character class range", class))
            }
            'x' => {
                let rest = self.rest();
                let length = match rest.strip_prefix('{') {
                    Some(inner) => inner.find('}').map(|at| (at + 2, &inner[..at])),
                    None => rest.get(..2).map(|digits| (2, digits)),
                };
                let code = length.and_then(|(length, digits)| {
                    let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?;
                    Some((length, code))
                });
                let Some((length, code)) = code else {
                    let digits: usize = rest.chars().take(2).map(char::len_utf8).sum();
                    return Err(bad(self.at + digits));
                };
                self.at += length;
                Ok(format!(r"\x{{{:x}}}", u32::from(code)))
            }
            '0'..='7' if c == '0' || self.rest().starts_with(|next: char| next.is_digit(8)) => {
                let digits: String = self
                    .rest()
                    .chars()
                    .take(2)
                    .take_while(|next| next.is_digit(8))
                    .collect();
                self.at += digits.len();
                let code = u32::from_str_radix(&format!("{c}{digits}"), 8).unwrap_or_default();
                Ok(format!(r"\x{{{code:x}}}"))
            }
            'a' => Ok(r"\x07".to_owned()),
            'f' => Ok(r"\x0C".to_owned()),
            'v' => Ok(r"\x0B".to_owned()),
            'n' | 'r' | 't' => Ok(format!("\\{c}")),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(regex::escape(c.encode_utf8(&mut [0; 4]))),
            _ => Err(bad(self.at)),
        }
    }

    fn group(&mut self) -> Result<(), String> {
        let rest = self.rest();
        self.open.push(1);
        if !rest.starts_with("(?") {
            self.at += 1;
            self.out.push('(');
            self.last = Last::Nothing;
            return Ok(());
        }
        let name_at = match rest {
            _ if rest.starts_with("(?P<") && rest.len() > 4 => 4,
            _ if rest.starts_with("(?<") && rest.len() > 3 => 3,
            _ => 0,
        };
        if name_at > 0 {
            let end = rest.find('>');
            let valid = end.is_some_and(|end| {
                let name = rest.get(name_at..end).unwrap_or_default();
                !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
            });
            let Some(end) = end.filter(|_| valid) else {
                let shown = end.map_or(rest, |end| &rest[..=end]);
                return Err(go_error("invalid named capture", shown));
            };
            // The name is not needed, and Go allows more of them.
            self.at += end + 1;
            self.out.push('(');
            self.last = Last::Nothing;
            return Ok(());
        }
        let (flags, end) =
            flags(rest).map_err(|shown| go_error("invalid or unsupported Perl syntax", &rest[..shown]))?;
        self.at += end + 1;
        if rest[end..].starts_with(':') {
            self.out.push_str(&format!("(?{flags}:"));
        } else {
            self.open.pop();
            if !flags.is_empty() {
                self.out.push_str(&format!("(?{flags})"));
            }
        }
        self.last = Last::Nothing;
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        let start = self.at;
        self.at += 1;
        let mut class = String::from("[");
        if self.rest().starts_with('^') {
            self.at += 1;
            class.push('^');
        }
        let mut first = true;
        let missing = |from: usize| go_error("missing closing ]", &self.source[from..]);
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return Err(missing(start));
            }
            if rest.starts_with(']') && !first {
                break;
            }
            first = false;
            if rest.starts_with("[:")
                && let Some(end) = rest.find(":]")
            {
                let name = &rest[..end + 2];
                if !POSIX_CLASSES.contains(&name.trim_matches(['[', ']', ':', '^'])) {
                    return Err(go_error("invalid character class range", name));
                }
                class.push_str(name);
                self.at += end + 2;
                continue;
            }
            self.class_item(&mut class, start)?;
        }
        self.at += 1;
        class.push(']');
        self.atom(&class);
        Ok(())
    }

    /// One character, range or named set of a class.
    fn class_item(&mut self, class: &mut String, start: usize) -> Result<(), String> {
        let from = self.at;
        if let Some(c) = self.rest().strip_prefix('\\').and_then(|rest| rest.chars().next()) {
            let named = match c {
                'd' => Some("0-9"),
                'D' => Some(r"\x00-/:-\x{10FFFF}"),
                's' => Some(r"\t\n\x0C\r "),
                'S' => Some(r"\x00-\x08\x0B\x0E-\x1F!-\x{10FFFF}"),
                'w' => Some("0-9A-Za-z_"),
                'W' => Some(r"\x00-/:-@\[-\^`\{-\x{10FFFF}"),
                _ => None,
            };
            if let Some(named) = named {
                self.at += 2;
                class.push_str(named);
                return Ok(());
            }
            if matches!(c, 'p' | 'P') {
                self.at += 2;
                let escaped = self.simple_escape(from, c)?;
                class.push_str(&escaped);
                return Ok(());
            }
        }
        let low = self.class_char(start)?;
        let rest = self.rest();
        if rest.starts_with('-') && !rest[1..].starts_with(']') && rest.len() > 1 {
            self.at += 1;
            let high = self.class_char(start)?;
            if decode(&low) > decode(&high) {
                return Err(go_error("invalid character class range", &self.source[from..self.at]));
            }
            class.push_str(&low);
            class.push('-');
            class.push_str(&high);
        } else if rest == "-" {
            return Err(go_error("missing closing ]", &self.source[start..]));
        } else {
            class.push_str(&low);
        }
        Ok(())
    }

    /// One character of a class, as a code point escape.
    fn class_char(&mut self, class_start: usize) -> Result<String, String> {
        let start = self.at;
        let missing = || go_error("missing closing ]", &self.source[class_start..]);
        let Some(c) = self.peek() else {
            return Err(missing());
        };
        self.take(c);
        if c != '\\' {
            return Ok(format!(r"\x{{{:x}}}", u32::from(c)));
        }
        let Some(c) = self.peek() else {
            return Err("error parsing regexp: trailing backslash at end of expression: ``".to_owned());
        };
        self.take(c);
        let escaped = self.simple_escape(start, c)?;
        if let Some(hex) = escaped.strip_prefix(r"\x") {
            let code = u32::from_str_radix(hex.trim_matches(['{', '}']), 16).unwrap_or_default();
            return Ok(format!(r"\x{{{code:x}}}"));
        }
        let plain = match escaped.as_str() {
            r"\n" => '\n',
            r"\r" => '\r',
            r"\t" => '\t',
            _ => c,
        };
        Ok(format!(r"\x{{{:x}}}", u32::from(plain)))
    }
}

fn decode(escape: &str) -> u32 {
    let digits = escape.trim_start_matches(r"\x").trim_matches(['{', '}']);
    u32::from_str_radix(digits, 16).unwrap_or_default()
}

/// Reads `{m}`, `{m,}` or `{m,n}`: the counts (`Some(None)`: no upper bound) and the length.
fn count(text: &str) -> Option<(u32, Option<Option<u32>>, usize)> {
    let inner = text.strip_prefix('{')?;
    let end = inner.find('}')?;
    let body = &inner[..end];
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let canonical = plain && (digits.len() == 1 || !digits.starts_with('0'));
        canonical.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (min, max) = match body.split_once(',') {
        None => (number(body)?, None),
        Some((min, "")) => (number(min)?, Some(None)),
        Some((min, max)) => (number(min)?, Some(Some(number(max)?))),
    };
    Some((min, max, end + 2))
}

/// The flags of a group that begins with `(?`, each said once, and where the `:` or `)` behind them is. If that is no
/// group of Go's, how much of it is to blame.
fn flags(group: &str) -> Result<(String, usize), usize> {
    let (mut on, mut off) = (String::new(), String::new());
    let (mut negated, mut said) = (false, false);
    for (at, c) in group.char_indices().skip(2) {
        match c {
            'i' | 'm' | 's' | 'U' => {
                said = true;
                on.retain(|flag| flag != c);
                off.retain(|flag| flag != c);
                if negated { &mut off } else { &mut on }.push(c);
            }
            '-' if !negated => (negated, said) = (true, false),
            ':' | ')' if !negated || said => {
                let minus = if off.is_empty() { "" } else { "-" };
                return Ok((format!("{on}{minus}{off}"), at));
            }
            _ => return Err(at + c.len_utf8()),
        }
    }
    Err(group.len())
}

/// A class by a Unicode category or script, which are all that Go knows: our engine also knows properties.
fn unicode_class(escape: char, name: &str) -> Option<String> {
    let (negated, name) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
    let p = if (escape == 'P') == negated { 'p' } else { 'P' };
    let plain: String = name.chars().filter(|c| !" _-".contains(*c)).collect();
    let plain = plain.to_lowercase();
    // Text has no surrogates.
    if plain == "cs" || plain == "surrogate" {
        let (none, all) = (r"[^\x00-\x{10FFFF}]", r"[\x00-\x{10FFFF}]");
        return Some(if p == 'p' { none } else { all }.to_owned());
    }
    // Our engine takes what follows an "is" for the name.
    if plain.starts_with("is") || !plain.chars().all(char::is_alphanumeric) {
        return None;
    }
    let of = |table: &str| format!(r"\{p}{{{table}={name}}}");
    ["gc", "sc"].map(of).into_iter().find(|class| Regex::new(class).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::matcher::Pattern;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let pattern = Pattern::new(pattern);
        for text in yes {
            assert_eq!(pattern.matches(text), Ok(true), "{} on {text}", pattern.source());
        }
        for text in no {
            assert_eq!(pattern.matches(text), Ok(false), "{} on {text}", pattern.source());
        }
    }

    #[test]
    fn gos_language_is_matched() {
        check(r"^[a-z]+-[0-9]{2}$", &["ab-12"], &["AB-12", "ab-1"]);
        check(r"^\d+$", &["12"], &["١٢", ""]);
        check(r"^\w+$", &["a_1"], &["é"]);
        check(r"^[\w.-]+$", &["a.b-c"], &["é"]);
        check(r"^a{$", &["a{"], &["a"]);
        check(r"^{x}$", &["{x}"], &["x"]);
        check(r"^[[&&]$", &["[", "&"], &["x"]);
        check(r"^[]a]$", &["]", "a"], &["b"]);
        check(r"^\Qa.b\E$", &["a.b"], &["axb"]);
        check(r"^\<a\>$", &["<a>"], &["a"]);
        check(r"^[^\s]+$", &["ab"], &["a b"]);
        check(r"^(?i)abc$", &["ABC"], &["abd"]);
        check(r"^(?)a(?i-i)b(?ii)c$", &["abC"], &["aBc"]);
        check(
            r"^\pL\p{^L}\P{^Greek}[\p{Lu}\p{Cs}]\P{Cs}$",
            &["a1αAb"],
            &["aaαAb", "a1aAb"],
        );
        check(r"^\p{Letter}\p{any}$", &["ab"], &["1b"]);
        check(r"^(?:a|b)?c$", &["ac", "c"], &["dc"]);
        check(r"^(a{10}b?){0}(a{2}){500}(c{3}){3}$", &[], &["a"]);
        check(r"^[-a]$", &["-", "a"], &["b"]);
        check(r"^[a-]$", &["-", "a"], &["b"]);
        check(r"^[\D]$", &["a", "é"], &["1"]);
        check(
            r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$",
            &["a", "a-b.c"],
            &["-a", "a-"],
        );
    }

    #[test]
    fn errors_are_gos() {
        let error = |pattern: &str| compile(pattern).expect_err("no expression");
        assert_eq!(error("[a-"), "error parsing regexp: missing closing ]: `[a-`");
        assert_eq!(error("(a"), "error parsing regexp: missing closing ): `(a`");
        assert_eq!(error("a)"), "error parsing regexp: unexpected ): `a)`");
        assert_eq!(
            error("*a"),
            "error parsing regexp: missing argument to repetition operator: `*`"
        );
        assert_eq!(
            error("a**"),
            "error parsing regexp: invalid nested repetition operator: `**`"
        );
        assert_eq!(error(r"\q"), r"error parsing regexp: invalid escape sequence: `\q`");
        assert_eq!(
            error("[z-a]"),
            "error parsing regexp: invalid character class range: `z-a`"
        );
        assert_eq!(
            error("(?=a)"),
            "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"
        );
        for name in [
            "Alphabetic",
            "White_Space",
            "Emoji",
            "IsGreek",
            "sc=Greek",
            "gc=Lu",
            "No such",
            "",
        ] {
            let class = format!(r"\p{{{name}}}");
            assert_eq!(
                error(&class),
                format!("error parsing regexp: invalid character class range: `{class}`")
            );
        }
        for (group, shown) in [
            ("(?i-)a", "(?i-)"),
            ("(?-)a", "(?-)"),
            ("(?i--s)", "(?i--"),
            ("(?i", "(?i"),
        ] {
            let expected = format!("error parsing regexp: invalid or unsupported Perl syntax: `{shown}`");
            assert_eq!(error(group), expected, "{group}");
        }
        assert_eq!(error(r"\xaé"), r"error parsing regexp: invalid escape sequence: `\xaé`");
        assert_eq!(error("a{1001}"), "error parsing regexp: invalid repeat count: `{1001}`");
        for (nested, shown) in [
            ("(a{1000}){1000}", "{1000}"),
            ("((a{10}b)*c{5}){101}", "{101}"),
            ("(?:(a{2,500}){2}){2,}?", "{2,}?"),
        ] {
            let expected = format!("error parsing regexp: invalid repeat count: `{shown}`");
            assert_eq!(error(nested), expected, "{nested}");
        }
        assert_eq!(
            error(r"a\"),
            "error parsing regexp: trailing backslash at end of expression: ``"
        );
    }
}
