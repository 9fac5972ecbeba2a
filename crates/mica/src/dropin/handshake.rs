//! What the stub tells a server that asks: that it is the stub, and where the data goes.
//!
//! A server asks whatever it finds at the address it was given. A real etcd has nothing at this path and says so; only an
//! answer that names the stub counts as one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a server asks.
pub const PATH: &str = "/mica/stub";

/// What the stub calls itself.
const STUB: &str = "mica-etcd-stub";

/// The stub's answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stub {
    stub: String,
    /// The directory that servers may use.
    pub directory: PathBuf,
    /// Whether acknowledged writes must survive the loss of power.
    pub durable: bool,
}

impl Stub {
    pub fn new(directory: PathBuf, durable: bool) -> Self {
        Self {
            stub: STUB.to_owned(),
            directory,
            durable,
        }
    }

    /// Reads an answer; `None` if whoever gave it is no stub.
    pub fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(body)
            .ok()
            .filter(|answer| answer.stub == STUB)
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a path of a stub is text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stub_is_taken_for_the_stub() {
        let stub = Stub::new("/tmp/data".into(), false);
        assert_eq!(Stub::read(stub.to_json().as_bytes()), Some(stub));
        for other in [
            "",
            "404 page not found",
            "{}",
            r#"{"health":"true"}"#,
            r#"{"stub":"other","directory":"/","durable":true}"#,
        ] {
            assert_eq!(Stub::read(other.as_bytes()), None, "{other}");
        }
    }
}
