//! How operations, tags and paths are named after groups, versions and kinds, by upstream's rules.

/// The parts of names that a group and version decide.
pub struct Names {
    /// `CoreV1`.
    pub id: String,
    /// `core_v1`.
    pub tag: String,
}

impl Names {
    pub fn new(group: &str, version: &str) -> Self {
        let group = group_name(group);
        Self {
            id: format!("{}{}", identifier(group, Case::Upper), identifier(version, Case::Upper)),
            tag: format!("{}_{}", identifier(group, Case::AsIs), identifier(version, Case::AsIs)),
        }
    }

    pub fn of_group(group: &str) -> Self {
        let group = group_name(group);
        Self {
            id: identifier(group, Case::Upper),
            tag: identifier(group, Case::AsIs),
        }
    }
}

fn group_name(group: &str) -> &str {
    if group.is_empty() {
        "core"
    } else {
        group.strip_suffix(".k8s.io").unwrap_or(group)
    }
}

/// `/api/v1` or `/apis/{group}/{version}`.
pub fn root_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    Upper,
    AsIs,
}

/// Letters and digits only, with a capital after what was left out.
pub fn identifier(text: &str, first: Case) -> String {
    let mut out = String::with_capacity(text.len());
    let mut capital = first == Case::Upper;
    for (i, c) in text.char_indices() {
        if c.is_alphabetic() || c == '_' || (i != 0 && c.is_numeric()) {
            if capital {
                out.extend(c.to_uppercase());
            } else {
                out.push(c);
            }
            capital = false;
        } else {
            capital = true;
        }
    }
    out
}

/// ` a `, ` an `, or a space before what looks like a plural.
pub fn article(noun: &str) -> &'static str {
    if noun.ends_with('s') && !noun.ends_with("ss") {
        return " ";
    }
    match noun.chars().next().map(|c| c.to_ascii_lowercase()) {
        Some('a' | 'e' | 'i' | 'o' | 'u') => " an ",
        _ => " a ",
    }
}
