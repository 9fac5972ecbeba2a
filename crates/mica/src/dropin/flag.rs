//! Command lines as Go programs read them, with their words for what is wrong.
//!
//! kube-apiserver has the `pflag` dialect (`--name=value`, `--name value`, `-v2`), etcd that of Go's own package (`-name` and
//! `--name` are the same). In both a flag without a value of its own takes the next argument, unless it is boolean.

use std::net::IpAddr;

use mica_machinery::field::quote;
use mica_server::http::parse_go_duration;

/// What a flag's value must look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// Anything; one that has a form of its own is read where it is used.
    Text,
    Bool,
    /// Anything, but only behind `=`: alone it is `true`.
    Switch,
    Int,
    Float,
    Duration,
    Ip,
}

/// A flag that a program takes.
pub type Flag = (&'static str, Type);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    Pflag,
    Go,
}

/// The flags of a command line, in order, each with its value.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Flags {
    given: Vec<(&'static str, String)>,
    /// What is no flag.
    pub rest: Vec<String>,
}

/// The help of a program: what its flags mean here, and which others it takes.
pub fn help(head: &str, table: &[Flag], meanings: &[(&str, &str)]) -> String {
    let width = meanings.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = format!("{head}\nFlags:\n");
    for (name, meaning) in meanings {
        text.push_str(&format!("      --{name:<width$}  {meaning}\n"));
    }
    text.push_str("\nThese are taken too, and change nothing:\n");
    for (name, _) in table
        .iter()
        .filter(|(name, _)| !meanings.iter().any(|(one, _)| one == name))
    {
        text.push_str(&format!("      --{name}\n"));
    }
    text
}

/// What is wrong with a command line, in the program's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadFlags(pub String);

impl Flags {
    pub fn parse(table: &'static [Flag], dialect: Dialect, arguments: &[String]) -> Result<Self, BadFlags> {
        let mut flags = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let bare = match argument.as_str() {
                "--" => {
                    flags.rest.extend(arguments.cloned());
                    break;
                }
                "-" => "",
                text => text.trim_start_matches('-'),
            };
            let dashes = argument.len() - bare.len();
            if bare.is_empty() || dashes == 0 {
                flags.rest.push(argument.clone());
                // Go's own package stops at what is no flag.
                if dialect == Dialect::Go {
                    flags.rest.extend(arguments.cloned());
                    break;
                }
                continue;
            }
            if dashes > 2 || bare.starts_with('=') {
                return Err(BadFlags(format!("bad flag syntax: {argument}")));
            }
            if dialect == Dialect::Pflag && dashes == 1 {
                flags.short(bare, &mut arguments)?;
                continue;
            }
            let (name, value) = match bare.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (bare, None),
            };
            let (name, r#type) = find(table, dialect, name)?;
            let value = match (value, r#type) {
                (Some(value), _) => value,
                (None, Type::Bool | Type::Switch) => "true".to_owned(),
                (None, _) => arguments.next().cloned().ok_or_else(|| needs(dialect, name))?,
            };
            check(name, r#type, dialect, &value)?;
            flags.given.push((name, value));
        }
        Ok(flags)
    }

    /// One dash, as `pflag` reads it. kube-apiserver has two letters: `h` and `v`.
    fn short<'a>(&mut self, bare: &str, arguments: &mut impl Iterator<Item = &'a String>) -> Result<(), BadFlags> {
        let Some(rest) = bare.strip_prefix('v') else {
            if bare == "h" {
                self.given.push(("help", "true".to_owned()));
                return Ok(());
            }
            let letter: String = bare.chars().take(1).collect();
            return Err(BadFlags(format!("unknown shorthand flag: '{letter}' in -{bare}")));
        };
        let value = match rest.strip_prefix('=').unwrap_or(rest) {
            "" => arguments
                .next()
                .ok_or_else(|| BadFlags("flag needs an argument: 'v' in -v".to_owned()))?,
            value => value,
        };
        check("v", Type::Int, Dialect::Pflag, value)?;
        self.given.push(("v", value.to_owned()));
        Ok(())
    }

    /// The value of a flag: the last one, if it is given more than once.
    pub fn last(&self, name: &str) -> Option<&str> {
        let mut given = self.given.iter().rev();
        given.find(|(one, _)| *one == name).map(|(_, value)| value.as_str())
    }

    /// The values of a flag that may be given more than once, each with commas in it.
    pub fn list(&self, name: &str) -> Vec<&str> {
        let given = self.given.iter().filter(|(one, _)| *one == name);
        given
            .flat_map(|(_, value)| value.split(','))
            .filter(|value| !value.is_empty())
            .collect()
    }

    /// Every value of a flag that may be given more than once, as it stands.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let given = self.given.iter().filter(|(one, _)| *one == name);
        given
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
            .collect()
    }

    pub fn is_on(&self, name: &str, unless_given: bool) -> bool {
        self.last(name)
            .map_or(unless_given, |value| parse_bool(value) == Some(true))
    }

    /// Every flag that is given, once, in order.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for (name, _) in &self.given {
            if !names.contains(name) {
                names.push(name);
            }
        }
        names
    }
}

fn find(table: &'static [Flag], dialect: Dialect, name: &str) -> Result<Flag, BadFlags> {
    // kube-apiserver takes underscores for dashes.
    let wanted = match dialect {
        Dialect::Pflag => name.replace('_', "-"),
        Dialect::Go => name.to_owned(),
    };
    let found = table.iter().find(|(one, _)| *one == wanted).copied();
    found.ok_or_else(|| {
        BadFlags(match dialect {
            Dialect::Pflag => format!("unknown flag: --{name}"),
            Dialect::Go => format!("flag provided but not defined: -{name}"),
        })
    })
}

fn needs(dialect: Dialect, name: &str) -> BadFlags {
    BadFlags(match dialect {
        Dialect::Pflag => format!("flag needs an argument: --{name}"),
        Dialect::Go => format!("flag needs an argument: -{name}"),
    })
}

fn check(name: &str, r#type: Type, dialect: Dialect, value: &str) -> Result<(), BadFlags> {
    let quoted = quote(value);
    let strconv = |function: &str| format!("strconv.{function}: parsing {quoted}: invalid syntax");
    let problem = match r#type {
        Type::Text | Type::Switch => None,
        Type::Bool => parse_bool(value).is_none().then(|| strconv("ParseBool")),
        Type::Int => value.parse::<i64>().is_err().then(|| strconv("ParseInt")),
        Type::Float => value.parse::<f64>().is_err().then(|| strconv("ParseFloat")),
        Type::Duration => parse_go_duration(value).err(),
        Type::Ip => {
            let bad = value.trim().parse::<IpAddr>().is_err();
            (bad && !value.is_empty()).then(|| format!("failed to parse IP: {quoted}"))
        }
    };
    let Some(problem) = problem else { return Ok(()) };
    let shown = if name == "v" {
        "-v, --v".to_owned()
    } else {
        format!("--{name}")
    };
    Err(BadFlags(match (dialect, r#type) {
        (Dialect::Pflag, _) => format!("invalid argument {quoted} for \"{shown}\" flag: {problem}"),
        (Dialect::Go, Type::Bool) => format!("invalid boolean value {quoted} for -{name}: parse error"),
        (Dialect::Go, _) => format!("invalid value {quoted} for flag -{name}: parse error"),
    }))
}

/// The words that Go takes for true and false.
fn parse_bool(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Flag] = &[
        ("port", Type::Int),
        ("on", Type::Bool),
        ("name", Type::Text),
        ("ip", Type::Ip),
        ("for", Type::Duration),
        ("v", Type::Int),
    ];

    fn parse(dialect: Dialect, line: &str) -> Result<Flags, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Flags::parse(TABLE, dialect, &arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn values_come_with_the_flag_or_after_it_and_the_last_counts() {
        let flags = parse(Dialect::Pflag, "--port=1 --port 2 --on --name a,b --name=c -v4 x").unwrap();
        assert_eq!(flags.last("port"), Some("2"));
        assert_eq!(flags.list("name"), ["a", "b", "c"]);
        assert!(flags.is_on("on", false) && flags.is_on("off", true));
        assert_eq!((flags.last("v"), &flags.rest[..]), (Some("4"), &["x".to_owned()][..]));
        assert_eq!(flags.names(), ["port", "on", "name", "v"]);
        assert!(!parse(Dialect::Pflag, "--on=false").unwrap().is_on("on", true));
        assert_eq!(parse(Dialect::Pflag, "-v 3").unwrap().last("v"), Some("3"));
        assert_eq!(parse(Dialect::Pflag, "-- --port").unwrap().rest, ["--port"]);
        assert_eq!(parse(Dialect::Go, "-port 1 --name=x").unwrap().last("port"), Some("1"));
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_the_program() {
        for (dialect, line, words) in [
            (Dialect::Pflag, "--foo", "unknown flag: --foo"),
            (Dialect::Pflag, "-foo", "unknown shorthand flag: 'f' in -foo"),
            (Dialect::Pflag, "--port", "flag needs an argument: --port"),
            (
                Dialect::Pflag,
                "--port=abc",
                "invalid argument \"abc\" for \"--port\" flag: strconv.ParseInt: parsing \"abc\": invalid syntax",
            ),
            (
                Dialect::Pflag,
                "--on=maybe",
                "invalid argument \"maybe\" for \"--on\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
            (
                Dialect::Pflag,
                "--for=soon",
                "invalid argument \"soon\" for \"--for\" flag: time: invalid duration \"soon\"",
            ),
            (
                Dialect::Pflag,
                "--ip=1.2.3",
                "invalid argument \"1.2.3\" for \"--ip\" flag: failed to parse IP: \"1.2.3\"",
            ),
            (
                Dialect::Pflag,
                "-v=x",
                "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            (Dialect::Go, "--foo", "flag provided but not defined: -foo"),
            (Dialect::Go, "--name", "flag needs an argument: -name"),
            (
                Dialect::Go,
                "-on=maybe",
                "invalid boolean value \"maybe\" for -on: parse error",
            ),
        ] {
            assert_eq!(parse(dialect, line), Err(words.to_owned()), "{line}");
        }
    }
}
