//! Running `mica` and looking at it from outside.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// The binary, with an environment that does not depend on who runs the tests.
pub fn mica(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mica"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MICA_") || name == "KUBECONFIG" {
            command.env_remove(name);
        }
    }
    command.current_dir(home).stdin(Stdio::null());
    command
}

/// Runs a command to its end: exit code, standard output, standard error.
pub fn run(home: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = mica(home).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// A server that has said it is ready. Killed if a test drops it.
pub struct Up {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub ready: String,
}

impl Up {
    pub fn start(home: &Path, arguments: &[&str]) -> Self {
        let mut command = mica(home);
        command
            .args(["up", "--listen", "127.0.0.1:0", "--log", "warn"])
            .args(arguments);
        Self::run(command)
    }

    /// Starts a command that is a server, and waits until it is ready.
    pub fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        assert!(ready.starts_with("Mica is ready at https://"), "{ready}");
        Self { child, stdout, ready }
    }

    pub fn url(&self) -> &str {
        let address = self.ready.strip_prefix("Mica is ready at ").unwrap();
        address.split(". Try").next().unwrap()
    }

    pub fn port(&self) -> u16 {
        self.url().rsplit(':').next().unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Waits for the end; the exit code and what else was printed.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that was empty, and a shell in it that finds `mica`.
pub struct Shell {
    pub home: tempfile::TempDir,
}

impl Shell {
    /// Runs commands as somebody would type them. What they print, both ways; they must all work unless one says that it
    /// is refused.
    pub fn run(&self, commands: &str) -> String {
        let binary = PathBuf::from(mica(self.home.path()).get_program());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::iter::once(binary.parent().unwrap().to_owned()).chain(std::env::split_paths(&path));
        let ran = Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(self.home.path())
            .env("PATH", std::env::join_paths(found).unwrap())
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .output()
            .unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(ran.status.success(), "{commands}\n{text}");
        text
    }
}
