//! Running `kubectl` as people do, with a kubeconfig of the test's own.

use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The `kubectl` on the PATH, for one address and user.
pub struct Kubectl {
    /// Holds the kubeconfig and kubectl's caches, so that tests do not meet in those of whoever runs them.
    home: TempDir,
}

/// What a command did.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &str) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::write(home.path().join("kubeconfig"), kubeconfig).expect("a kubeconfig");
        Self { home }
    }

    /// Runs a command, with this on its standard input.
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = Command::new("kubectl")
            .args(arguments)
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl is on the PATH");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A command that does not read its input closes it.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.expect("kubectl runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    pub async fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "").await
    }

    /// Applies a manifest, which must work.
    pub async fn apply(&self, manifest: &str) -> String {
        self.run_with(&["apply", "-f", "-"], manifest).await.good()
    }
}

impl Ran {
    /// What a command that worked printed.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }
}
