//! Strings. Indexes count characters, not bytes.

use super::{EvalError, Host, Implementation, Outcome, formatting};
use crate::cel::value::{List, Val};

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "contains" => |host, args| test(host, args, |text, part| text.contains(part)),
        "startsWith" => |host, args| test(host, args, |text, part| text.starts_with(part)),
        "endsWith" => |host, args| test(host, args, |text, part| text.ends_with(part)),
        "charAt" => char_at,
        "lowerAscii" => |_, args| map(args, str::to_ascii_lowercase),
        "upperAscii" => |_, args| map(args, str::to_ascii_uppercase),
        "trim" => |_, args| map(args, |text| text.trim_matches(is_space).to_owned()),
        "strings.quote" => |_, args| map(args, quote),
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "format" => formatting::format,
        _ => return None,
    })
}

fn test<'a>(_: &mut Host<'_>, args: &[Val<'a>], holds: fn(&str, &str) -> bool) -> Outcome<'a> {
    match args {
        [Val::String(text), Val::String(part)] => Ok(Val::Bool(holds(text, part))),
        _ => Err(EvalError::no_overload()),
    }
}

fn map<'a>(args: &[Val<'a>], with: fn(&str) -> String) -> Outcome<'a> {
    match args {
        [Val::String(text)] => Ok(Val::string(with(text))),
        _ => Err(EvalError::no_overload()),
    }
}

/// Unicode's white space, as Go's `TrimSpace` sees it.
fn is_space(c: char) -> bool {
    c.is_whitespace()
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::failed(format!("index out of range: {index}"))
}

/// The byte at which character `index` starts; the end counts as one.
fn offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn char_at<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::String(text), Val::Int(index)] = args else {
        return Err(EvalError::no_overload());
    };
    let at = offset(text, *index).ok_or_else(|| out_of_range(*index))?;
    Ok(Val::string(
        text[at..].chars().next().map(String::from).unwrap_or_default(),
    ))
}

/// `text.indexOf(part)` and with a start; lists have their own.
pub(super) fn index_of<'a>(args: &[Val<'a>]) -> Outcome<'a> {
    let (text, part, start) = match args {
        [Val::String(text), Val::String(part)] => (text, part, 0),
        [Val::String(text), Val::String(part), Val::Int(start)] => (text, part, *start),
        _ => return Err(EvalError::no_overload()),
    };
    if part.is_empty() {
        return Ok(Val::Int(start));
    }
    if start < 0 {
        return Err(out_of_range(start));
    }
    let Some(from) = offset(text, start) else {
        return Ok(Val::Int(-1));
    };
    let found = text[from..]
        .find(&**part)
        .map(|at| start + text[from..from + at].chars().count() as i64);
    Ok(Val::Int(found.unwrap_or(-1)))
}

pub(super) fn last_index_of<'a>(args: &[Val<'a>]) -> Outcome<'a> {
    let (text, part, start) = match args {
        [Val::String(text), Val::String(part)] => (text, part, None),
        [Val::String(text), Val::String(part), Val::Int(start)] => (text, part, Some(*start)),
        _ => return Err(EvalError::no_overload()),
    };
    let length = text.chars().count() as i64;
    if part.is_empty() {
        return Ok(Val::Int(start.unwrap_or(length)));
    }
    if start.is_none() && text.len() < part.len() {
        return Ok(Val::Int(-1));
    }
    let start = start.unwrap_or(length - 1);
    if start < 0 {
        return Err(out_of_range(start));
    }
    if start >= length {
        return Ok(Val::Int(-1));
    }
    let last = start.min(length - part.chars().count() as i64);
    let Some(end) = offset(text, last)
        .map(|at| at + part.len())
        .filter(|end| *end <= text.len())
    else {
        // The part may have more bytes a character than the text at that place: search what there is.
        let found = text
            .rmatch_indices(&**part)
            .map(|(at, _)| text[..at].chars().count() as i64)
            .find(|at| *at <= start);
        return Ok(Val::Int(found.unwrap_or(-1)));
    };
    let found = text.rmatch_indices(&**part).find(|(at, _)| at + part.len() <= end);
    Ok(Val::Int(found.map_or(-1, |(at, _)| text[..at].chars().count() as i64)))
}

fn substring<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, start, end) = match args {
        [Val::String(text), Val::Int(start)] => (text, *start, None),
        [Val::String(text), Val::Int(start), Val::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(EvalError::no_overload()),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(EvalError::failed(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    let from = offset(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        None => text.len(),
        Some(end) => offset(text, end).ok_or_else(|| out_of_range(end))?,
    };
    Ok(Val::string(&text[from..to]))
}

fn replace<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, old, new, limit) = match args {
        [Val::String(text), Val::String(old), Val::String(new)] => (text, old, new, -1),
        [Val::String(text), Val::String(old), Val::String(new), Val::Int(limit)] => (text, old, new, *limit),
        _ => return Err(EvalError::no_overload()),
    };
    // The result may be far longer than the text, which is all that the cost counts.
    let hits = if old.is_empty() {
        text.len() + 1
    } else {
        text.len() / old.len()
    };
    host.work((hits as u64).saturating_mul(new.len() as u64 / 4 + 1))?;
    Ok(Val::string(match usize::try_from(limit) {
        Ok(limit) => text.replacen(&**old, new, limit),
        Err(_) => text.replace(&**old, new),
    }))
}

fn split<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, separator, limit) = match args {
        [Val::String(text), Val::String(separator)] => (text, separator, -1),
        [Val::String(text), Val::String(separator), Val::Int(limit)] => (text, separator, *limit),
        _ => return Err(EvalError::no_overload()),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Val<'a>> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        split_characters(text, limit)
    } else {
        text.splitn(limit, &**separator).map(Val::string).collect()
    };
    Ok(Val::list(parts))
}

fn split_characters<'a>(text: &str, limit: usize) -> Vec<Val<'a>> {
    let count = text.chars().count().min(limit);
    let mut parts = Vec::with_capacity(count);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(Val::string(rest));
            break;
        }
        parts.push(Val::string(&rest[..c.len_utf8()]));
        rest = &rest[c.len_utf8()..];
    }
    parts
}

fn join<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (list, separator): (&List<'_>, &str) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::String(separator)] => (list, separator),
        _ => return Err(EvalError::no_overload()),
    };
    if !matches!(list.get(0), None | Some(Ok(Val::String(_)))) {
        return Err(EvalError::no_overload());
    }
    let mut out = String::new();
    for (i, item) in list.iter().enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        match item? {
            Val::String(text) => {
                host.work((text.len() + separator.len()) as u64 / 4 + 1)?;
                out.push_str(&text);
            }
            other => return Err(EvalError::failed(format!("join: invalid input: {other}"))),
        }
    }
    Ok(Val::string(out))
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
