//! Files that hold snapshots and backups: read from, or written whole or not at all; `-` is the standard stream.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncWrite};

/// Opens what a snapshot or backup is read from.
pub async fn source(path: &Path) -> anyhow::Result<Box<dyn AsyncRead + Send + Unpin>> {
    if path == Path::new("-") {
        return Ok(Box::new(tokio::io::stdin()));
    }
    let file = File::open(path).await.with_context(|| path.display().to_string())?;
    Ok(Box::new(file))
}

/// Where a snapshot or backup is written: a file appears under its name only when it is complete.
pub struct Sink {
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The name to be, the name until then, and the file for its last sync.
    pending: Option<(PathBuf, PathBuf, File)>,
}

impl Sink {
    pub async fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self {
                writer: Box::new(tokio::io::stdout()),
                pending: None,
            });
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.part", std::process::id()));
        let beside = PathBuf::from(beside);
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let file = options
            .open(&beside)
            .await
            .with_context(|| path.display().to_string())?;
        let writer = Box::new(file.try_clone().await?);
        Ok(Self {
            writer,
            pending: Some((path.to_owned(), beside, file)),
        })
    }

    pub fn writer(&mut self) -> &mut (impl AsyncWrite + Unpin + use<>) {
        &mut self.writer
    }

    /// Gives the file its name. Returns it, unless the standard output was written to.
    pub async fn keep(mut self) -> anyhow::Result<Option<PathBuf>> {
        let Some((path, beside, file)) = self.pending.take() else {
            return Ok(None);
        };
        let kept = async {
            file.sync_all().await?;
            tokio::fs::rename(&beside, &path).await
        };
        if let Err(error) = kept.await {
            let _ = std::fs::remove_file(&beside);
            return Err(error).with_context(|| path.display().to_string());
        }
        Ok(Some(path))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some((_, beside, _)) = &self.pending {
            let _ = std::fs::remove_file(beside);
        }
    }
}
