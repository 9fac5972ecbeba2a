//! Semantic versions, with upstream's refusals.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{EvalError, Implementation, Outcome};
use crate::cel::value::Val;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    major: u64,
    minor: u64,
    patch: u64,
    pre: Vec<Pre>,
    build: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Pre {
    // A number is less than a word: the order of the variants says so.
    Number(u64),
    Word(String),
}

impl Version {
    /// Precedence: build metadata does not count, a version with a pre-release comes before the one without.
    pub fn precedence(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre.cmp(&other.pre),
            })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (i, pre) in self.pre.iter().enumerate() {
            let mark = if i == 0 { '-' } else { '.' };
            match pre {
                Pre::Number(number) => write!(f, "{mark}{number}")?,
                Pre::Word(word) => write!(f, "{mark}{word}")?,
            }
        }
        for (i, build) in self.build.iter().enumerate() {
            write!(f, "{}{build}", if i == 0 { '+' } else { '.' })?;
        }
        Ok(())
    }
}

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "semver" => |_, args| Ok(Val::Semver(Arc::new(read(args)?.map_err(EvalError::Failed)?))),
        "isSemver" => |_, args| Ok(Val::Bool(read(args)?.is_ok())),
        "major" => |_, args| part(args, |version| version.major),
        "minor" => |_, args| part(args, |version| version.minor),
        "patch" => |_, args| part(args, |version| version.patch),
        _ => return None,
    })
}

fn read(args: &[Val<'_>]) -> Result<Result<Version, String>, EvalError> {
    match args {
        [Val::String(text)] | [Val::String(text), Val::Bool(false)] => Ok(parse(text)),
        [Val::String(text), Val::Bool(true)] => Ok(normalized(text).and_then(|text| parse(&text))),
        _ => Err(EvalError::no_overload()),
    }
}

fn part<'a>(args: &[Val<'a>], of: fn(&Version) -> u64) -> Outcome<'a> {
    match args {
        [Val::Semver(version)] => Ok(Val::Int(of(version) as i64)),
        _ => Err(EvalError::no_overload()),
    }
}

/// Drops a `v` and leading zeros, and fills missing parts with zeros.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}

fn parse(text: &str) -> Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts.as_slice() else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let (major, minor) = (number("major", "Major", major)?, number("minor", "Minor", minor)?);
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (*rest, None),
    };
    let (patch, pre) = match rest.split_once('-') {
        Some((patch, pre)) => (patch, Some(pre)),
        None => (rest, None),
    };
    let patch = number("patch", "Patch", patch)?;
    let pre = pre
        .map(|pre| pre.split('.').map(pre_release).collect())
        .transpose()?
        .unwrap_or_default();
    let mut metadata = Vec::new();
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !is_word(part) {
            return Err(format!("Invalid character(s) found in build meta data {part:?}"));
        }
        metadata.push(part.to_owned());
    }
    Ok(Version {
        major,
        minor,
        patch,
        pre,
        build: metadata,
    })
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn has_leading_zero(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

fn number(name: &str, title: &str, text: &str) -> Result<u64, String> {
    if !is_number(text) {
        return Err(format!("Invalid character(s) found in {name} number {text:?}"));
    }
    if has_leading_zero(text) {
        return Err(format!("{title} number must not contain leading zeroes {text:?}"));
    }
    integer(text)
}

fn integer(text: &str) -> Result<u64, String> {
    let why = if text.is_empty() {
        "invalid syntax"
    } else {
        "value out of range"
    };
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {text:?}: {why}"))
}

fn pre_release(text: &str) -> Result<Pre, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if is_number(text) {
        if has_leading_zero(text) {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {text:?}"
            ));
        }
        return integer(text).map(Pre::Number);
    }
    if !is_word(text) {
        return Err(format!("Invalid character(s) found in prerelease {text:?}"));
    }
    Ok(Pre::Word(text.to_owned()))
}
