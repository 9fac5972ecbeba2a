//! Field names as identifiers: `foo-bar` is written `foo__dash__bar`, `namespace` may be written `__namespace__`.

const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// `name` as an identifier, or `None` if no expression can name it.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            '_' => out.push('_'),
            c if c.is_ascii_alphanumeric() => out.push(c),
            _ => return None,
        }
        rest = &rest[1..];
    }
    Some(out)
}

/// The field that an identifier names, or `None` if it is no escaped name.
pub fn unescape(identifier: &str) -> Option<String> {
    if !identifier.contains("__") {
        return Some(identifier.to_owned());
    }
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while !rest.is_empty() {
        let Some((word, after)) = escaped_word(rest) else {
            let c = rest.chars().next().expect("not empty");
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        match word {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if is_reserved(word) && word.len() + 4 == identifier.len() => out.push_str(word),
            _ => return None,
        }
        rest = after;
    }
    Some(out)
}

/// `__word__` at the start of `text`, with a word that has no underscore.
fn escaped_word(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix("__")?;
    let end = inner.find('_')?;
    if end == 0 {
        return None;
    }
    let after = inner[end..].strip_prefix("__")?;
    Some((&inner[..end], after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_escape_and_back() {
        let cases = [
            ("a", Some("a")),
            ("namespace", Some("__namespace__")),
            ("foo-bar", Some("foo__dash__bar")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("a_b", Some("a_b")),
            ("1a", None),
            ("é", None),
            ("", None),
        ];
        for (name, want) in cases {
            assert_eq!(escape(name).as_deref(), want, "{name}");
            if let Some(want) = want {
                assert_eq!(unescape(want).as_deref(), Some(name));
            }
        }
        assert_eq!(unescape("__other__"), None);
        assert_eq!(unescape("x__namespace__"), None);
    }
}
