//! Versions of the binary: which there are, and which may follow which on the same data.
//!
//! The rule: one minor step at a time, up or down; the first of the next major counts as the next minor; and never back to a
//! binary that cannot read what the data has become. Versions that are no numbers are held to the last part alone.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The binary's name in a folder of its version.
const BINARY: &str = "mica";

/// A binary that can be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binary {
    pub version: String,
    pub path: PathBuf,
}

/// Where binaries are.
#[derive(Clone, Debug)]
pub struct Versions {
    /// What runs where no version is asked for: the operator's own.
    pub own: Binary,
    /// Further ones by their version.
    pub named: BTreeMap<String, PathBuf>,
    /// `VERSION` or `VERSION/mica` in this directory are further ones. It is looked at whenever one is asked for.
    pub directory: Option<PathBuf>,
}

impl Versions {
    /// The binary of a version, or what versions there are.
    pub fn find(&self, version: Option<&str>) -> Result<Binary, Vec<String>> {
        let Some(version) = version else {
            return Ok(self.own.clone());
        };
        let found = self.named.get(version).cloned().or_else(|| self.in_directory(version));
        match found {
            Some(path) => Ok(Binary {
                version: version.to_owned(),
                path,
            }),
            None if version == self.own.version => Ok(self.own.clone()),
            None => Err(self.known()),
        }
    }

    fn in_directory(&self, version: &str) -> Option<PathBuf> {
        // A version is a name in the directory and nothing else.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
        if version.starts_with('.') || !version.chars().all(plain) {
            return None;
        }
        let at = self.directory.as_ref()?.join(version);
        [at.join(BINARY), at].into_iter().find(|path| path.is_file())
    }

    fn known(&self) -> Vec<String> {
        let listed = self.directory.as_ref().and_then(|at| std::fs::read_dir(at).ok());
        let listed = listed.into_iter().flatten().flatten();
        let listed = listed.filter_map(|entry| entry.file_name().into_string().ok());
        let mut all: Vec<String> = listed.filter(|name| self.in_directory(name).is_some()).collect();
        all.extend(self.named.keys().cloned());
        all.push(self.own.version.clone());
        all.sort();
        all.dedup();
        all
    }
}

/// What a binary says of itself: the format of stores that it writes. It reads that and older ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Formats {
    pub embedded: u32,
    pub etcd: u32,
}

/// A binary as it matters to data: what ran on it last, or is to run next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Build {
    pub version: String,
    /// Of the store that is used.
    pub format: u32,
}

/// Why a version may not follow another.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Skew {
    #[error(
        "version {to} reads stores up to format {reads}, and version {from} has made this one format {has}: data does not go back"
    )]
    Format {
        from: String,
        to: String,
        has: u32,
        reads: u32,
    },
    #[error("from version {from} to {to} is more than one minor step: go to {by} first")]
    Step { from: String, to: String, by: String },
    #[error("from version {from} to {to} is a step back over a major version, which cannot be taken")]
    Back { from: String, to: String },
}

/// Whether a binary may run on data on which another ran last.
pub fn may_follow(last: Option<&Build>, next: &Build) -> Result<(), Skew> {
    let Some(last) = last else { return Ok(()) };
    let (from, to) = (last.version.clone(), next.version.clone());
    if next.format < last.format {
        let (has, reads) = (last.format, next.format);
        return Err(Skew::Format { from, to, has, reads });
    }
    let (Some(old), Some(new)) = (Number::parse(&from), Number::parse(&to)) else {
        return Ok(());
    };
    let minor = |minor| Number { minor, ..old };
    let by = match new.major.cmp(&old.major) {
        std::cmp::Ordering::Equal if new.minor.abs_diff(old.minor) <= 1 => return Ok(()),
        std::cmp::Ordering::Equal if new.minor > old.minor => minor(old.minor + 1),
        std::cmp::Ordering::Equal => minor(old.minor - 1),
        std::cmp::Ordering::Greater if new.major == old.major + 1 && new.minor == 0 => return Ok(()),
        std::cmp::Ordering::Greater => Number {
            major: old.major + 1,
            minor: 0,
        },
        std::cmp::Ordering::Less => return Err(Skew::Back { from, to }),
    };
    let by = by.to_string();
    Err(Skew::Step { from, to, by })
}

/// The part of a version that steps are counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Number {
    major: u32,
    minor: u32,
}

impl Number {
    /// `1`, `1.2`, `v1.2.3`, `1.2.3-rc.1`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let plain = text.split(['-', '+']).next().unwrap_or_default();
        let mut parts = plain.split('.').map(|part| part.parse::<u32>().ok());
        let major = parts.next()??;
        let minor = parts.next().unwrap_or(Some(0))?;
        // A patch may be there, and must be a number too.
        let rest = (parts.next().unwrap_or(Some(0)), parts.next());
        matches!(rest, (Some(_), None)).then_some(Self { major, minor })
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(version: &str, format: u32) -> Build {
        Build {
            version: version.to_owned(),
            format,
        }
    }

    #[test]
    fn versions_go_one_minor_step_at_a_time_and_never_behind_their_data() {
        for (from, to, said) in [
            (("1.2", 1), ("1.2", 1), ""),
            (("1.2.0", 1), ("1.2.7", 1), ""),
            (("1.2.7", 1), ("1.2.0", 1), ""),
            (("1.2", 1), ("1.3", 2), ""),
            (("v1.3", 1), ("v1.2.9", 1), ""),
            (
                ("1.3", 2),
                ("1.2", 1),
                "version 1.2 reads stores up to format 1, and version 1.3 has made this one format 2: data does not go back",
            ),
            (
                ("1.2", 1),
                ("1.4", 1),
                "from version 1.2 to 1.4 is more than one minor step: go to 1.3 first",
            ),
            (
                ("1.4", 1),
                ("1.2", 1),
                "from version 1.4 to 1.2 is more than one minor step: go to 1.3 first",
            ),
            (("1.9", 1), ("2.0.3", 1), ""),
            (
                ("1.9", 1),
                ("2.1", 1),
                "from version 1.9 to 2.1 is more than one minor step: go to 2.0 first",
            ),
            (
                ("2.0", 1),
                ("1.9", 1),
                "from version 2.0 to 1.9 is a step back over a major version, which cannot be taken",
            ),
            (("blue", 1), ("green", 1), ""),
            (
                ("blue", 2),
                ("green", 1),
                "version green reads stores up to format 1, and version blue has made this one format 2: data does not go back",
            ),
        ] {
            let answer = may_follow(Some(&build(from.0, from.1)), &build(to.0, to.1));
            let answer = answer.err().map(|skew| skew.to_string()).unwrap_or_default();
            assert_eq!(answer, said, "{from:?} {to:?}");
        }
        assert_eq!(may_follow(None, &build("9.9", 1)), Ok(()));
    }

    #[test]
    fn binaries_are_found_by_name_in_a_directory_or_as_our_own() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("1.1")).unwrap();
        for file in ["1.0", "1.1/mica"] {
            std::fs::write(home.path().join(file), "").unwrap();
        }
        let own = Binary {
            version: "0.9".to_owned(),
            path: "/own".into(),
        };
        let versions = Versions {
            own: own.clone(),
            named: [("blue".to_owned(), PathBuf::from("/blue"))].into(),
            directory: Some(home.path().to_owned()),
        };
        let path = |version: &str| versions.find(Some(version)).map(|found| found.path);
        assert_eq!(versions.find(None), Ok(own));
        assert_eq!(path("0.9"), Ok("/own".into()));
        assert_eq!(path("blue"), Ok("/blue".into()));
        assert_eq!(path("1.0"), Ok(home.path().join("1.0")));
        assert_eq!(path("1.1"), Ok(home.path().join("1.1/mica")));
        let known = ["0.9", "1.0", "1.1", "blue"].map(str::to_owned).to_vec();
        for unknown in ["2.0", "../1.0", ".", "..", "1.1/mica", ""] {
            assert_eq!(path(unknown), Err(known.clone()), "{unknown}");
        }
    }
}
