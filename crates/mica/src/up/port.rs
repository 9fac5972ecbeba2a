//! Taking the port, and finding out who has it if it is taken.

use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use tokio::net::TcpListener;

use crate::config::ListenAddress;

pub async fn bind(address: &ListenAddress) -> anyhow::Result<TcpListener> {
    match TcpListener::bind((address.host.as_str(), address.port)).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let owner = owner(address.port)
                .map(|owner| format!(" by {owner}"))
                .unwrap_or_default();
            Err(anyhow!("cannot listen on {address}: the port is in use{owner}"))
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {address}")),
    }
}

/// The process that listens on a port: `process 12 (nginx)`. None if it is not ours to see, or not Linux.
fn owner(port: u16) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let sockets: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if holds(&process.path(), &sockets) {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("process {pid} ({})", name.trim()));
        }
    }
    None
}

fn holds(process: &Path, sockets: &[String]) -> bool {
    let Ok(files) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    files.flatten().any(|file| {
        std::fs::read_link(file.path())
            .is_ok_and(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    })
}

/// The inodes of sockets that listen on a port, from a table of `/proc/net`.
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let local = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() > 9 && fields[1].ends_with(&local) && fields[3] == LISTEN)
        .map(|fields| fields[9].to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_names_its_owner() {
        let any = ListenAddress {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let first = bind(&any).await.unwrap();
        let taken = ListenAddress {
            port: first.local_addr().unwrap().port(),
            ..any
        };
        let refused = bind(&taken).await.unwrap_err().to_string();
        let expected = format!("cannot listen on {taken}: the port is in use");
        assert!(refused.starts_with(&expected), "{refused}");
        if Path::new("/proc/net/tcp").exists() {
            assert!(
                refused.contains(&format!("by process {} (", std::process::id())),
                "{refused}"
            );
        }
    }
}
