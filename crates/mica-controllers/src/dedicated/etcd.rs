//! Dedicated servers whose data is in etcd: under a prefix of their own, in an etcd that all of them share or in one that the
//! parameters name.
//!
//! A prefix belongs to one server. It has to be empty when the server is new, and may not lie in another's or around it,
//! because destroying a server removes everything below its prefix.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use xxhash_rust::xxh3::xxh3_64;

use super::record::{Paths, Record, make_private, write_private};
use super::storage::{Address, Storage};
use super::version::Formats;
use super::{Refused, Wanted};

/// Below which prefixes lie that nobody chose.
const PREFIXES: &str = "/mica-dedicated";
/// What has a meaning in the query of an address.
const QUERY: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'&')
    .add(b'=')
    .add(b'%')
    .add(b'#')
    .add(b'+')
    .add(b'?');

/// Parameters that are files to the server, and what its address calls them.
const FILES: [(&str, &str); 4] = [
    ("ca.crt", "ca"),
    ("tls.crt", "cert"),
    ("tls.key", "key"),
    ("password", "password-file"),
];
const TEXTS: [&str; 4] = ["endpoints", "prefix", "username", "server-name"];

/// What is done in an etcd beside serving from it. Addresses are as `mica up --store` takes them.
#[async_trait]
pub trait Ranges: Send + Sync + 'static {
    /// Whether there is nothing below the prefix of an address.
    async fn is_empty(&self, store: &str) -> Result<bool, String>;

    /// Removes everything below the prefix of an address.
    async fn clear(&self, store: &str) -> Result<(), String>;
}

/// How servers on etcd are run.
pub struct EtcdOptions {
    /// The etcd of servers whose parameters name none, as `mica up --store` takes it, without a prefix.
    pub shared: Option<String>,
    /// A prefix that is somebody else's: the shared server's own, if that is on etcd.
    pub reserved: Option<String>,
    pub ranges: Arc<dyn Ranges>,
}

pub struct Etcd {
    options: EtcdOptions,
}

impl Etcd {
    pub fn new(options: EtcdOptions) -> Self {
        Self { options }
    }
}

#[async_trait]
impl Storage for Etcd {
    fn kind(&self) -> &'static str {
        "Etcd"
    }

    fn address(&self, wanted: &Wanted, paths: &Paths, kept: Option<&str>) -> Result<Address, Refused> {
        let known = |name: &&String| TEXTS.contains(&name.as_str()) || FILES.iter().any(|(file, _)| file == name);
        if let Some(unknown) = wanted.parameters.keys().find(|name| !known(name)) {
            let known = TEXTS.iter().chain(FILES.iter().map(|(file, _)| file));
            let known: Vec<&str> = known.copied().collect();
            return Err(Refused::parameters(format!(
                "there is no parameter {unknown:?}: there is {}",
                known.join(", ")
            )));
        }
        let (old, shared) = (kept.map(prefix_of), self.options.shared.as_deref());
        let store = address(wanted, &paths.secrets(), shared, old.as_deref()).map_err(Refused::parameters)?;
        let new = prefix_of(&store);
        if let Some(old) = old.filter(|old| *old != new) {
            return Err(Refused::parameters(format!(
                "the data is below {old:?} and stays there: prefix cannot become {new:?}"
            )));
        }
        let mut secrets = String::new();
        for (name, _) in FILES {
            let Some(content) = wanted.parameters.get(name) else {
                continue;
            };
            secrets.push_str(&format!("{name} {:x} ", xxh3_64(content.as_bytes())));
            let path = paths.secrets().join(name);
            if std::fs::read(&path).ok().as_deref() != Some(content.as_bytes()) {
                let written = make_private(&paths.secrets()).and_then(|()| write_private(&path, content.as_bytes()));
                written.map_err(|error| Refused::failed(format!("{}: {error}", path.display())))?;
            }
        }
        Ok(Address {
            identity: format!("{store} {secrets}").trim_end().to_owned(),
            store: Some(store),
        })
    }

    async fn claim(&self, address: &Address, directory: &Path, paths: &Paths) -> Result<(), Refused> {
        let Some(store) = &address.store else { return Ok(()) };
        let mine = prefix_of(store);
        let records = Record::all(directory).into_iter();
        let others = records.filter(|(home, _)| *home != paths.home);
        let others = others.filter_map(|(_, record)| Some((record.wanted.name, prefix_of(record.store.as_deref()?))));
        let reserved = self.options.reserved.clone();
        let reserved = reserved.map(|prefix| ("the shared server".to_owned(), prefix));
        if let Some((holder, theirs)) = others.chain(reserved).find(|(_, theirs)| overlap(&mine, theirs)) {
            return Err(Refused::parameters(format!(
                "the prefix {mine:?} and {theirs:?} of {holder} lie in one another: choose another"
            )));
        }
        match self.options.ranges.is_empty(store).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refused::parameters(format!(
                "something is below the prefix {mine:?} already: choose another, or remove it"
            ))),
            Err(why) => Err(Refused::failed(why)),
        }
    }

    async fn destroy(&self, store: Option<&str>) -> Result<(), Refused> {
        match store {
            Some(store) => self.options.ranges.clear(store).await.map_err(Refused::failed),
            None => Ok(()),
        }
    }

    fn format(&self, formats: Formats) -> u32 {
        formats.etcd
    }
}

/// The address of the store that parameters ask for; secrets are files of the directory.
/// `old` is the prefix that data is below already.
fn address(wanted: &Wanted, secrets: &Path, shared: Option<&str>, old: Option<&str>) -> Result<String, String> {
    let parameter = |name: &str| wanted.parameters.get(name).map(String::as_str);
    let prefix = match (parameter("prefix"), old) {
        (Some(prefix), _) => prefix.trim_end_matches('/').to_owned(),
        (None, Some(old)) => old.to_owned(),
        (None, None) => format!("{PREFIXES}/{}", wanted.name),
    };
    if !prefix.starts_with('/') || prefix.split('/').skip(1).any(str::is_empty) {
        return Err(format!("prefix {prefix:?} is not a path such as /team-a"));
    }
    let mut query = vec![format!("prefix={}", utf8_percent_encode(&prefix, QUERY))];
    let Some(endpoints) = parameter("endpoints") else {
        let given = TEXTS.iter().filter(|name| **name != "prefix");
        let given = given.chain(FILES.iter().map(|(file, _)| file));
        if let Some(alone) = given.copied().find(|name| parameter(name).is_some()) {
            return Err(format!("{alone} is of no use without endpoints"));
        }
        let shared = shared.ok_or("endpoints are not said, and there is no etcd for those who say none")?;
        let joint = if shared.contains('?') { '&' } else { '?' };
        return Ok(format!("{shared}{joint}{}", query[0]));
    };
    let (mut hosts, mut schemes) = (Vec::new(), Vec::new());
    for endpoint in endpoints.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let (scheme, host) = endpoint.split_once("://").unwrap_or(("http", endpoint));
        let host = host.trim_end_matches('/');
        if !matches!(scheme, "http" | "https") || host.is_empty() || host.contains(['/', '?', '@', ' ']) {
            return Err(format!(
                "endpoint {endpoint:?} is not http://HOST:PORT or https://HOST:PORT"
            ));
        }
        hosts.push(host);
        schemes.push(scheme);
    }
    schemes.dedup();
    let scheme = match schemes[..] {
        ["http"] => "etcd",
        ["https"] => "etcds",
        [] => return Err("endpoints names none".to_owned()),
        _ => return Err("endpoints are either all http or all https".to_owned()),
    };
    for name in ["username", "server-name"] {
        if let Some(value) = parameter(name) {
            query.push(format!("{name}={}", utf8_percent_encode(value, QUERY)));
        }
    }
    for (file, name) in FILES {
        if parameter(file).is_some() {
            let path = secrets.join(file).to_string_lossy().into_owned();
            query.push(format!("{name}={}", utf8_percent_encode(&path, QUERY)));
        }
    }
    Ok(format!("{scheme}://{}?{}", hosts.join(","), query.join("&")))
}

/// The prefix in an address.
fn prefix_of(store: &str) -> String {
    let query = store.split_once('?').map_or("", |(_, query)| query);
    // The last one counts, as it does for whoever reads the address.
    let prefix = query.split('&').rev().find_map(|pair| pair.strip_prefix("prefix="));
    let decoded = percent_encoding::percent_decode_str(prefix.unwrap_or_default()).decode_utf8_lossy();
    decoded.into_owned()
}

/// Whether one prefix lies in the other.
fn overlap(one: &str, other: &str) -> bool {
    let within = |inner: &str, outer: &str| format!("{inner}/").starts_with(&format!("{outer}/"));
    within(one, other) || within(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(parameters: &[(&str, &str)]) -> Wanted {
        Wanted {
            name: "a".to_owned(),
            cluster_path: "a".to_owned(),
            version: None,
            parameters: parameters
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
            adopts: None,
        }
    }

    #[test]
    fn parameters_become_an_address() {
        let all = [
            ("endpoints", "https://e1:2379, https://e2:2379/"),
            ("prefix", "/x/y/"),
            ("ca.crt", "CA"),
            ("tls.crt", "C"),
            ("tls.key", "K"),
            ("username", "m&m"),
            ("password", "P"),
        ];
        let shared = Some("etcd://s:1");
        for (parameters, shared, expected) in [
            (&[][..], shared, "etcd://s:1?prefix=/mica-dedicated/a"),
            (
                &[],
                Some("etcds://s?ca=/ca"),
                "etcds://s?ca=/ca&prefix=/mica-dedicated/a",
            ),
            (&[("prefix", "/p")], shared, "etcd://s:1?prefix=/p"),
            (
                &[("endpoints", "http://e:1")],
                shared,
                "etcd://e:1?prefix=/mica-dedicated/a",
            ),
            (
                &all,
                None,
                "etcds://e1:2379,e2:2379?prefix=/x/y&username=m%26m&ca=/s/ca.crt&cert=/s/tls.crt&key=/s/tls.key&password-file=/s/password",
            ),
            (
                &[],
                None,
                "endpoints are not said, and there is no etcd for those who say none",
            ),
            (&[("ca.crt", "CA")], shared, "ca.crt is of no use without endpoints"),
            (
                &[("endpoints", "http://a,https://b")],
                None,
                "endpoints are either all http or all https",
            ),
            (&[("endpoints", " , ")], None, "endpoints names none"),
            (
                &[("endpoints", "ftp://a")],
                None,
                "endpoint \"ftp://a\" is not http://HOST:PORT or https://HOST:PORT",
            ),
            (&[("prefix", "p")], shared, "prefix \"p\" is not a path such as /team-a"),
            (&[("prefix", "/")], shared, "prefix \"\" is not a path such as /team-a"),
            (
                &[("prefix", "/a//b")],
                shared,
                "prefix \"/a//b\" is not a path such as /team-a",
            ),
        ] {
            let made = address(&wanted(parameters), Path::new("/s"), shared, None);
            assert_eq!(made.unwrap_or_else(|why| why), expected, "{parameters:?}");
        }
        // Who took data over under another name has it where it is.
        let made = address(
            &wanted(&[]),
            Path::new("/s"),
            Some("etcd://e"),
            Some("/mica-dedicated/old"),
        );
        assert_eq!(made.unwrap(), "etcd://e?prefix=/mica-dedicated/old");
        assert_eq!(prefix_of("etcds://e?prefix=%2Fx%26&ca=/c"), "/x&");
        assert_eq!(prefix_of("etcds://e"), "");
    }

    #[test]
    fn prefixes_that_lie_in_one_another_are_told() {
        for (one, other, expected) in [
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a/b", "/a", true),
            ("/a", "/ab", false),
            ("/a/b", "/a/c", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
        }
    }
}
