//! `mica envtest install`: a directory with the programs that a test environment looks for.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::output;

/// Links that lead to this program.
const OURS: [&str; 2] = ["kube-apiserver", "etcd"];
const KUBECTL: &str = "kubectl";

/// Fills the directory with links, and prints where it is.
pub fn install(directory: &Path, kubectl: Option<PathBuf>) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let directory = directory
        .canonicalize()
        .with_context(|| directory.display().to_string())?;
    let program = std::env::current_exe().context("finding this program")?;
    for name in OURS {
        link(&program, &directory.join(name))?;
    }
    match kubectl.or_else(|| on_path(KUBECTL)) {
        Some(kubectl) => {
            let kubectl = kubectl.canonicalize().with_context(|| kubectl.display().to_string())?;
            let place = directory.join(KUBECTL);
            if kubectl != place {
                link(&kubectl, &place)?;
            }
        }
        None => eprintln!("kubectl is not on the PATH: tests that call it need --kubectl FILE"),
    }
    output::print(&format!("{}\n", directory.display()))?;
    Ok(())
}

/// Makes a link, in place of an old one. What is no link is somebody's file and stays.
fn link(to: &Path, at: &Path) -> anyhow::Result<()> {
    match std::fs::symlink_metadata(at) {
        Ok(old) if old.is_symlink() => std::fs::remove_file(at).with_context(|| at.display().to_string())?,
        Ok(_) => bail!("{} is a file, not a link: it is not replaced", at.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| at.display().to_string()),
    }
    std::os::unix::fs::symlink(to, at).with_context(|| at.display().to_string())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}
