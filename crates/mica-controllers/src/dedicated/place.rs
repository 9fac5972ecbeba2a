//! The directory of dedicated servers on this machine: one operator at a time, a port for each server, and the binaries.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::broadcast;
use xxhash_rust::xxh3::xxh3_64;

use super::Refused;
use super::record::{Paths, Record, make_private};
use super::version::{Binary, Formats, Versions};

/// Ports that servers get unless told otherwise: below those that the kernel gives to outgoing connections, so that none of
/// them has a server's port while it is being exchanged.
pub const PORTS: RangeInclusive<u16> = 20_000..=29_999;
/// Names of changed servers that a listener may be behind with. One that is further behind is told that it missed some.
const CHANGES: usize = 1024;
/// The longest name of a server: that of a file.
const LONGEST_NAME: usize = 200;
/// How long a binary may take to say its version.
const ANSWER: Duration = Duration::from_secs(60);

/// How servers of their own are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Every server has a directory of its name in here.
    pub directory: PathBuf,
    pub versions: Versions,
    /// The address that servers listen on.
    pub listen: String,
    /// The host that clients are told, if it is another.
    pub advertise: Option<String>,
    pub ports: RangeInclusive<u16>,
    /// Further arguments of every server.
    pub arguments: Vec<OsString>,
}

/// What all providers of a machine share.
pub struct Place {
    pub options: Options,
    pub changes: broadcast::Sender<String>,
    held: Mutex<Option<File>>,
    formats: Mutex<HashMap<PathBuf, (Option<SystemTime>, Formats)>>,
    /// Ports are given one after the other.
    ports: Mutex<BTreeSet<u16>>,
}

impl Place {
    pub fn new(options: Options) -> Self {
        Self {
            options,
            changes: broadcast::Sender::new(CHANGES),
            held: Mutex::default(),
            formats: Mutex::default(),
            ports: Mutex::default(),
        }
    }

    /// Where the server of a name is, or would be.
    pub fn paths(&self, name: &str) -> Result<Paths, Refused> {
        if !is_name(name) {
            return Err(Refused::name(format!("{name:?} cannot be the name of a server")));
        }
        Ok(Paths::new(&self.options.directory, name))
    }

    /// Makes sure that nobody else runs servers in the directory. It stays ours until the process ends.
    pub fn hold(&self) -> Result<(), Refused> {
        let mut held = self.held.lock();
        if held.is_some() {
            return Ok(());
        }
        let directory = &self.options.directory;
        let failed = |error: io::Error| Refused::failed(format!("{}: {error}", directory.display()));
        make_private(directory).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(directory.join(".operator")).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let by = std::fs::read_to_string(directory.join(".operator")).unwrap_or_default();
                let by = by.trim();
                return Err(Refused::failed(format!(
                    "{} is in use by another operator (process {by})",
                    directory.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        *held = Some(file);
        Ok(())
    }

    /// A port that nobody has: no server of ours, whether it runs or not, and nobody else now.
    pub fn pick_port(&self, name: &str) -> Result<u16, Refused> {
        let mut given = self.ports.lock();
        let records = Record::all(&self.options.directory);
        let mine = self.options.directory.join(name);
        let others = records.into_iter().filter(|(home, _)| *home != mine);
        let taken: BTreeSet<u16> = others
            .map(|(_, record)| record.port)
            .chain(given.iter().copied())
            .collect();
        let listen = self.options.listen.as_str();
        let free = |port: &u16| !taken.contains(port) && TcpListener::bind((listen, *port)).is_ok();
        let port = ports(name, &self.options.ports).find(free);
        let port = port.ok_or_else(|| {
            let (first, last) = (self.options.ports.start(), self.options.ports.end());
            Refused::failed(format!("no port of {listen} from {first} to {last} is free"))
        })?;
        given.insert(port);
        Ok(port)
    }

    /// The port is in the server's record now, or it was no good.
    pub fn port_is_settled(&self, port: u16) {
        self.ports.lock().remove(&port);
    }

    pub fn binary(&self, version: Option<&str>) -> Result<Binary, Refused> {
        self.options.versions.find(version).map_err(|known| {
            Refused::version(format!(
                "there is no version {:?} here: there is {}",
                version.unwrap_or_default(),
                known.join(", ")
            ))
        })
    }

    /// Which formats of stores a binary knows. It is asked once, and again when the file is another.
    pub async fn formats(&self, binary: &Binary) -> Result<Formats, Refused> {
        let modified = std::fs::metadata(&binary.path).and_then(|found| found.modified()).ok();
        if let Some((of, formats)) = self.formats.lock().get(&binary.path)
            && *of == modified
        {
            return Ok(*formats);
        }
        let formats = ask(&binary.path).await.map_err(|why| {
            let (version, path) = (&binary.version, binary.path.display());
            Refused::failed(format!(
                "the binary of version {version:?}, {path}, does not say its version: {why}"
            ))
        })?;
        self.formats.lock().insert(binary.path.clone(), (modified, formats));
        Ok(formats)
    }

    /// Tells that a server came, went or changed.
    pub fn tell(&self, name: &str) {
        // Nobody may be listening yet: whoever comes asks first.
        let _ = self.changes.send(name.to_owned());
    }
}

#[derive(Deserialize)]
struct Answer {
    store: Formats,
}

async fn ask(binary: &Path) -> Result<Formats, String> {
    let mut command = Command::new(binary);
    command.arg0("mica").args(["version", "--output", "json"]);
    command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ANSWER, command.output()).await;
    let output = output.map_err(|_| "it does not answer".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    let answer: Answer = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(answer.store)
}

/// Ports in the order in which the server of a name looks for one. Servers that are made together do not meet.
fn ports(name: &str, range: &RangeInclusive<u16>) -> impl Iterator<Item = u16> + use<> {
    let (first, count) = (
        *range.start(),
        u64::from(range.end().saturating_sub(*range.start())) + 1,
    );
    let begin = xxh3_64(name.as_bytes()) % count;
    (0..count).map(move |step| first + u16::try_from((begin + step) % count).expect("it is within the range"))
}

/// Names of objects are names of files; nothing else is, whoever asks.
fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= LONGEST_NAME && bytes.iter().copied().all(inner) && outer(bytes.first()) && outer(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_names_of_directories_and_nothing_else_is() {
        for (name, good) in [
            ("a", true),
            ("team-a.example", true),
            ("", false),
            (".", false),
            ("..", false),
            (".operator", false),
            ("a/b", false),
            ("A", false),
            ("a-", false),
        ] {
            assert_eq!(is_name(name), good, "{name:?}");
        }
        assert!(is_name(&"a".repeat(LONGEST_NAME)) && !is_name(&"a".repeat(LONGEST_NAME + 1)));
    }

    #[test]
    fn every_port_of_the_range_is_tried_once() {
        let mut tried: Vec<u16> = ports("a", &(65_530..=65_535)).collect();
        tried.sort_unstable();
        assert_eq!(tried, [65_530, 65_531, 65_532, 65_533, 65_534, 65_535]);
        assert_eq!(ports("a", &(7..=7)).collect::<Vec<_>>(), [7]);
    }
}
