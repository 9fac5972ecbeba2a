//! Where a dedicated server keeps its data: what the providers differ in.

use std::path::Path;

use async_trait::async_trait;

use super::record::Paths;
use super::version::Formats;
use super::{Refused, Wanted};

/// A store as a server is told of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Address {
    /// For its command line; none is its own directory.
    pub store: Option<String>,
    /// What tells this from another: the address, and secrets by their hash.
    pub identity: String,
}

#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// What the provider is called.
    fn kind(&self) -> &'static str;

    /// The store that is asked for. Writes the files that its address names. `kept` is the address that the data is at.
    fn address(&self, wanted: &Wanted, paths: &Paths, kept: Option<&str>) -> Result<Address, Refused>;

    /// Whether a new server may begin there.
    async fn claim(&self, address: &Address, directory: &Path, paths: &Paths) -> Result<(), Refused>;

    /// Removes what is not in the server's directory.
    async fn destroy(&self, store: Option<&str>) -> Result<(), Refused>;

    /// The format of it that a binary writes.
    fn format(&self, formats: Formats) -> u32;
}

/// The server's own directory.
pub struct Embedded;

#[async_trait]
impl Storage for Embedded {
    fn kind(&self) -> &'static str {
        "Process"
    }

    fn address(&self, wanted: &Wanted, _paths: &Paths, _kept: Option<&str>) -> Result<Address, Refused> {
        match wanted.parameters.keys().next() {
            Some(unknown) => Err(Refused::parameters(format!("there is no parameter {unknown:?}"))),
            None => Ok(Address::default()),
        }
    }

    async fn claim(&self, _address: &Address, _directory: &Path, _paths: &Paths) -> Result<(), Refused> {
        Ok(())
    }

    async fn destroy(&self, _store: Option<&str>) -> Result<(), Refused> {
        Ok(())
    }

    fn format(&self, formats: Formats) -> u32 {
        formats.embedded
    }
}
