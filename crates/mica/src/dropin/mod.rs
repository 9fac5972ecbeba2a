//! Standing in for `kube-apiserver` and `etcd`, the pair of programs that test environments start.
//!
//! Which one this is, is told by the name it is called by, or by a command. The stand-in for etcd holds no keys: it says that
//! it is the stub, and where, and a server that is told so keeps its data in the stub's directory. A real etcd is used as one.

mod apiserver;
mod etcd;
mod flag;
mod handshake;
mod install;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

pub use install::install;

/// A program that is stood in for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    KubeApiserver,
    Etcd,
}

impl Program {
    /// The program that the name of a file means.
    pub fn called(path: &Path) -> Option<Self> {
        match path.file_name()?.to_str()? {
            "kube-apiserver" => Some(Self::KubeApiserver),
            "etcd" => Some(Self::Etcd),
            _ => None,
        }
    }

    /// Runs it to its end with these flags.
    pub fn run(self, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        // What is no text is no flag either; it is named as well as it can be.
        let arguments: Vec<String> = arguments
            .into_iter()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        match self {
            Self::KubeApiserver => apiserver::main(&arguments),
            Self::Etcd => etcd::main(&arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_program() {
        let called = |path: &str| Program::called(Path::new(path));
        assert_eq!(called("/a/b/kube-apiserver"), Some(Program::KubeApiserver));
        assert_eq!(called("etcd"), Some(Program::Etcd));
        for other in ["mica", "/etcd/mica", "etcd2", ""] {
            assert_eq!(called(other), None, "{other}");
        }
    }
}
