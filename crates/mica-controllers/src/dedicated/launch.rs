//! Starting a server's process: its command line, its environment, and how it is reached when it is up.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;

use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::process::Command;

use super::pid::Process;
use super::place::Options;
use super::record::{Paths, make_private};
use crate::api::Api;
use crate::control_plane::Home;

/// How long requests may take to finish when a server is exchanged.
pub const DRAIN: &str = "10s";
/// How much is read of what a server said at its end.
const LAST_WORDS: u64 = 4096;
/// What of the operator's environment is for the operator.
const OWN_VARIABLES: &str = "MICA_";

/// The arguments of a server.
pub fn arguments(options: &Options, paths: &Paths, port: u16, store: Option<&str>) -> Vec<OsString> {
    let listen = match options.listen.contains(':') {
        true => format!("[{}]:{port}", options.listen),
        false => format!("{}:{port}", options.listen),
    };
    let mut all: Vec<OsString> = vec!["up".into()];
    let mut say = |flag: &str, value: OsString| all.extend([flag.into(), value]);
    say("--data-dir", paths.data().into());
    say("--listen", listen.into());
    if let Some(host) = &options.advertise {
        say("--advertise", format!("https://{host}:{port}").into());
    }
    if let Some(store) = store {
        say("--store", store.into());
    }
    say("--log-file", paths.log().into());
    say("--drain-timeout", DRAIN.into());
    // Organizations, projects and control planes are the shared server's. Further arguments may choose among the rest: the
    // last word about all counts.
    say("--tenancy", "absent".into());
    say("--controllers", "*,-control-plane".into());
    all.extend(options.arguments.iter().cloned());
    all
}

/// Starts a process that goes on when this one ends: it has a process group of its own and holds nothing of ours.
pub fn spawn(binary: &Path, arguments: &[OsString], paths: &Paths) -> io::Result<Process> {
    make_private(&paths.home)?;
    let mut file = OpenOptions::new();
    file.write(true).create(true).truncate(true).mode(0o600);
    let last_words = file.open(paths.last_words())?;
    let mut command = Command::new(binary);
    command.arg0("mica").args(arguments).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(last_words);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(OWN_VARIABLES) {
            command.env_remove(name);
        }
    }
    Process::of_child(command.spawn()?)
}

/// The last line that a server said when it could not go on.
pub fn last_words(paths: &Paths) -> Option<String> {
    let mut file = std::fs::File::open(paths.last_words()).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS))).ok()?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim().trim_start_matches("error: ").to_owned())
}

/// The server as its administrator reaches it, from the kubeconfig that it writes when it starts.
pub async fn home(paths: &Paths) -> Result<Home, String> {
    let kubeconfig = Kubeconfig::read_from(paths.kubeconfig()).map_err(|error| error.to_string())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| error.to_string())?;
    // Requests have deadlines of their own, and watches last.
    config.read_timeout = None;
    config.write_timeout = None;
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let ca = std::fs::read_to_string(paths.authority()).map_err(|error| error.to_string())?;
    let client = kube::Client::try_from(config).map_err(|error| error.to_string())?;
    Ok(Home {
        api: Api::new(client),
        url,
        ca: Some(ca),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::version::{Binary, Versions};
    use super::*;

    fn options(listen: &str, advertise: Option<&str>) -> Options {
        Options {
            directory: "/d".into(),
            versions: Versions {
                own: Binary {
                    version: "1.0".to_owned(),
                    path: "/mica".into(),
                },
                named: BTreeMap::new(),
                directory: None,
            },
            listen: listen.to_owned(),
            advertise: advertise.map(str::to_owned),
            ports: super::super::place::PORTS,
            arguments: vec!["--log".into(), "warn".into()],
        }
    }

    #[test]
    fn a_command_line_says_everything_that_is_the_servers_own() {
        let said = |options: Options, store: Option<&str>| {
            let all = arguments(&options, &Paths::new(Path::new("/d"), "a"), 20_001, store);
            let all: Vec<String> = all.into_iter().map(|one| one.to_string_lossy().into_owned()).collect();
            all.join(" ")
        };
        assert_eq!(
            said(options("127.0.0.1", None), None),
            "up --data-dir /d/a/data --listen 127.0.0.1:20001 --log-file /d/a/server.log --drain-timeout 10s --tenancy absent --controllers *,-control-plane --log warn"
        );
        let other = said(options("::", Some("mica.example")), Some("etcd://e:1?prefix=/a"));
        assert!(other.contains(
            " --listen [::]:20001 --advertise https://mica.example:20001 --store etcd://e:1?prefix=/a --log-file "
        ));
    }

    #[test]
    fn the_last_line_is_what_a_server_said_at_its_end() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::new(home.path(), "a");
        assert_eq!(last_words(&paths), None);
        make_private(&paths.home).unwrap();
        for (text, line) in [
            ("", None),
            ("warning\nerror: the port is in use\n\n", Some("the port is in use")),
            (&format!("{}\nlast\n", "x".repeat(9000)), Some("last")),
        ] {
            std::fs::write(paths.last_words(), text).unwrap();
            assert_eq!(last_words(&paths).as_deref(), line);
        }
    }
}
