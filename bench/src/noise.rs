//! The noise: one plane driven by as many clients as can be, in a process of its own that yields the processors.
//!
//! It runs only when nobody else wants to, because it stands for machines elsewhere: what it takes from the server it shall
//! take by what the server does for it, and not by competing with it for this machine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

use crate::endpoint::Endpoint;
use crate::scenario::Template;
use crate::scenario::requests::{configmap, configmaps, object_path};
use crate::watching::Watches;
use crate::wire::{Body, Connection};

/// Objects that are read and written in turn, and listed.
pub const OBJECTS: u64 = 1_000;

/// How much noise there is.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Volume {
    /// Clients that send their next request as soon as the last is answered.
    #[arg(long)]
    pub clients: usize,
    /// Watches that get an event for each write.
    #[arg(long)]
    pub watches: usize,
}

/// Starts the noise; it ends when the child is dropped.
pub fn start(kubeconfig: &Path, prefix: &str, volume: Volume) -> Result<Child> {
    let own = std::env::current_exe()?;
    let mut command = Command::new("chrt");
    command.args(["--idle", "0"]).arg(own).arg("noise");
    command.arg("--kubeconfig").arg(kubeconfig).args(["--prefix", prefix]);
    command.args(["--clients", &volume.clients.to_string()]);
    command.args(["--watches", &volume.watches.to_string()]);
    command.stdout(std::process::Stdio::piped()).kill_on_drop(true);
    command.spawn().context("the noise cannot be started")
}

/// Makes noise until it is killed. Says how much there was once a second.
pub async fn make(kubeconfig: &Path, prefix: &str, volume: Volume) -> Result<()> {
    let endpoint = Endpoint::from_kubeconfig(kubeconfig)?.at(prefix);
    let path = format!("{}?watch=true&resourceVersion=0", configmaps("default"));
    let _watches = Watches::open(&endpoint, &path, volume.watches, None).await?;
    let (answered, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for client in 0..volume.clients {
        let (endpoint, answered, refused) = (endpoint.clone(), answered.clone(), refused.clone());
        tokio::spawn(async move {
            // A connection that ends is opened anew, as clients do.
            loop {
                let _ = one(&endpoint, client as u64, &answered, &refused).await;
            }
        });
    }
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let count = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        println!("{} answered, {} refused", count(&answered), count(&refused));
    }
}

/// One client: of ten requests one lists everything, three write and the rest read.
async fn one(endpoint: &Endpoint, client: u64, answered: &AtomicU64, refused: &AtomicU64) -> Result<()> {
    let get = Template::new(endpoint.request("GET", &object_path("default"), b""));
    let put = Template::new(endpoint.request("PUT", &object_path("default"), &configmap()));
    let list = endpoint.request("GET", &configmaps("default"), b"");
    let mut connection = Connection::open(endpoint).await?;
    let mut request = Vec::new();
    for n in client.. {
        let object = n.wrapping_mul(7919) % OBJECTS;
        match n % 10 {
            0 => list.clone_into(&mut request),
            1..=3 => put.write(object, n, &mut request),
            _ => get.write(object, n, &mut request),
        }
        let reply = connection.exchange(&request, Body::Skip).await?;
        let counter = if reply.status == 429 { refused } else { answered };
        counter.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
