//! Files that count as they are now: looked at every few seconds, and taken over when they changed and are good.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

/// How often files are looked at. They are few and small.
const EVERY: Duration = Duration::from_secs(2);

/// Takes what a file holds now; the error says what is wrong with it, and then what it held before counts on.
type Take = Box<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// The files that are followed.
#[derive(Clone, Default)]
pub struct Reload(Arc<Mutex<Vec<Followed>>>);

struct Followed {
    path: PathBuf,
    seen: Option<[u8; 32]>,
    take: Take,
}

impl Reload {
    /// Follows a file that was read as `content`.
    pub fn follow(
        &self,
        path: impl Into<PathBuf>,
        content: &[u8],
        take: impl Fn(&[u8]) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.0.lock().push(Followed {
            path: path.into(),
            seen: Some(Sha256::digest(content).into()),
            take: Box::new(take),
        });
    }

    /// Looks at the files until stopped.
    pub async fn run(self, stop: CancellationToken) {
        if self.0.lock().is_empty() {
            return;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            let files = self.clone();
            // Reading may block, on a file system that is far away.
            let looked = tokio::task::spawn_blocking(move || files.look()).await;
            if looked.is_err() {
                tracing::warn!("a file that changed could not be taken over");
            }
        }
    }

    /// Looks at every file once.
    pub fn look(&self) {
        for file in self.0.lock().iter_mut() {
            let path = file.path.display();
            let content = match std::fs::read(&file.path) {
                Ok(content) => content,
                Err(error) => {
                    if file.seen.take().is_some() {
                        tracing::warn!("{path}: {error}; what it held before counts on");
                    }
                    continue;
                }
            };
            let hash: [u8; 32] = Sha256::digest(&content).into();
            if file.seen.replace(hash) == Some(hash) {
                continue;
            }
            match (file.take)(&content) {
                Ok(()) => tracing::info!("{path} has changed and counts from now on"),
                Err(why) => tracing::warn!("{path} has changed, but what it held before counts on: {why}"),
            }
        }
    }
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.lock().iter().map(|file| &file.path))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_once_it_changed_and_a_bad_one_is_left() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("f");
        std::fs::write(&path, "a").unwrap();
        let (reload, taken) = (Reload::default(), Arc::new(Mutex::new(Vec::new())));
        let log = taken.clone();
        reload.follow(&path, b"a", move |content| {
            log.lock().push(String::from_utf8_lossy(content).into_owned());
            if content == b"bad" {
                Err("it is bad".to_owned())
            } else {
                Ok(())
            }
        });
        for content in ["a", "b", "b", "bad", "bad"] {
            std::fs::write(&path, content).unwrap();
            reload.look();
        }
        std::fs::remove_file(&path).unwrap();
        reload.look();
        std::fs::write(&path, "c").unwrap();
        reload.look();
        assert_eq!(*taken.lock(), ["b", "bad", "c"]);
    }
}
