//! Standing in for etcd: it takes etcd's flags, answers what a test environment asks, and says that it is the stub.
//!
//! It holds no keys. The server that it is named to asks it where data may go, and keeps a store of its own there.

mod serve;
mod table;
mod tls;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use tokio::net::TcpListener;

use self::serve::Answers;
use super::flag::{Dialect, Flags, help};
use super::handshake::Stub;
use crate::config::ListenAddress;
use crate::up::signal::Signals;
use crate::up::{DataDir, port};
use crate::{exit, output};

/// The etcd whose answers are given. Clients look at it to know what they may ask for.
const VERSION: &str = "3.6.0";
/// As Go programs end when they cannot read their flags.
const BAD_FLAGS: u8 = 2;

const HEAD: &str = "\
Mica in place of etcd: a stub that holds no keys. Mica in place of kube-apiserver keeps its data in the stub's directory.

Usage:

  etcd [flags]
";

pub fn main(arguments: &[String]) -> ExitCode {
    let flags = match Flags::parse(table::FLAGS, Dialect::Go, arguments) {
        Ok(flags) => flags,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(BAD_FLAGS);
        }
    };
    if flags.is_on("help", false) || flags.is_on("h", false) {
        let text = help(HEAD, table::FLAGS, table::MEANINGS);
        return exit::code(output::print(&text).map_err(Into::into));
    }
    if flags.is_on("version", false) {
        let text = format!("etcd Version: {VERSION}\nMica's stub: {}\n", env!("CARGO_PKG_VERSION"));
        return exit::code(output::print(&text).map_err(Into::into));
    }
    if let Some(extra) = flags.rest.first() {
        eprintln!("error: {extra:?} is not a valid flag");
        return ExitCode::FAILURE;
    }
    // One thread is enough for a few questions, and starts sooner.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime
        .context("starting")
        .and_then(|runtime| runtime.block_on(run(&flags)));
    exit::code(done)
}

async fn run(flags: &Flags) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let clients = urls(flags, "listen-client-urls", "http://localhost:2379")?;
    let peers = urls(flags, "listen-peer-urls", "http://localhost:2380")?;
    let name = flags.last("name").unwrap_or("default");
    let directory = match flags.last("data-dir") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(format!("{name}.etcd")),
    };
    refuse_real_data(&directory)?;
    let mut home = DataDir::take(&directory)?;
    let tls = tls::acceptor(flags)?;
    let mut listeners = Vec::new();
    for url in clients.iter().chain(&peers) {
        let acceptor = match url.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(tls.clone().context("https needs --cert-file and --key-file")?),
        };
        listeners.push((port::bind(&url.address).await?, acceptor));
    }
    let directory = home.path().canonicalize().context("data directory")?;
    if directory.to_str().is_none() {
        bail!("data directory {}: its name must be text", directory.display());
    }
    let shown: Vec<String> = listeners
        .iter()
        .take(clients.len())
        .map(|(tcp, _)| shown(tcp))
        .collect();
    home.note(&shown.join(", "))?;
    let stub = Stub::new(directory, !flags.is_on("unsafe-no-fsync", false));
    let answers = Arc::new(Answers::new(&stub, VERSION));
    for (tcp, acceptor) in listeners {
        tokio::spawn(serve::listen(tcp, acceptor, answers.clone()));
    }
    eprintln!(
        "Mica's stub of etcd: ready to serve client requests on {}",
        shown.join(", ")
    );
    signals.first().await;
    Ok(())
}

/// Where something listens, as people write it.
fn shown(tcp: &TcpListener) -> String {
    tcp.local_addr().map(|address| address.to_string()).unwrap_or_default()
}

/// A directory with the data of a real etcd is not ours to use.
fn refuse_real_data(directory: &Path) -> anyhow::Result<()> {
    if directory.join("member").exists() {
        bail!(
            "data directory {} holds the data of a real etcd, which this stub cannot serve",
            directory.display()
        );
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

#[derive(Debug)]
struct Url {
    scheme: Scheme,
    address: ListenAddress,
}

fn urls(flags: &Flags, flag: &str, unless_given: &str) -> anyhow::Result<Vec<Url>> {
    let mut given = flags.list(flag);
    if given.is_empty() {
        given.push(unless_given);
    }
    given
        .into_iter()
        .map(|text| url(text).ok_or_else(|| anyhow!("{flag}: {text:?} is not http://HOST:PORT or https://HOST:PORT")))
        .collect()
}

fn url(text: &str) -> Option<Url> {
    let uri: http::Uri = text.parse().ok()?;
    let scheme = match uri.scheme_str()? {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    Some(Url {
        scheme,
        address: ListenAddress {
            host: uri
                .host()
                .filter(|host| !host.is_empty())?
                .trim_matches(['[', ']'])
                .to_owned(),
            port: uri.port_u16()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_with_a_port() {
        let read = |text: &str| url(text).map(|url| (url.scheme, url.address.to_string()));
        assert_eq!(
            read("http://127.0.0.1:0"),
            Some((Scheme::Http, "127.0.0.1:0".to_owned()))
        );
        assert_eq!(
            read("https://[::1]:2379"),
            Some((Scheme::Https, "[::1]:2379".to_owned()))
        );
        for bad in ["", "localhost:2379", "http://localhost", "unix://x:1", "http://:1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_data_of_a_real_etcd_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        assert!(refuse_real_data(home.path()).is_ok());
        std::fs::create_dir(home.path().join("member")).unwrap();
        let refused = refuse_real_data(home.path()).unwrap_err().to_string();
        assert!(refused.contains("holds the data of a real etcd"), "{refused}");
    }
}
