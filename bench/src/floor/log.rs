//! A bare write-ahead log with group commit: appends, one sync for all who wait, answers. Nothing can be read back.
//!
//! The file is filled with zeros beforehand and used as a ring, because growing a file makes each sync wait for the
//! file system's journal.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::sync::oneshot;

const FILE_SIZE: u64 = 64 << 20;
const WAITING: usize = 4096;
const LARGEST_BATCH: usize = 8 << 20;

type Entry = (Bytes, oneshot::Sender<()>);

#[derive(Clone)]
pub struct WriteAheadLog {
    queue: SyncSender<Entry>,
}

impl WriteAheadLog {
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let zeros = vec![0; 1 << 20];
        for block in 0..FILE_SIZE >> 20 {
            file.write_all_at(&zeros, block << 20)?;
        }
        file.sync_all()?;
        let (queue, entries) = sync_channel(WAITING);
        std::thread::spawn(move || commit_all(&file, &entries));
        Ok(Self { queue })
    }

    /// Returns when the record is on disk.
    pub async fn append(&self, record: Bytes) -> Result<()> {
        let (done, wait) = oneshot::channel();
        self.queue
            .try_send((record, done))
            .map_err(|_| anyhow::anyhow!("the log's queue is full"))?;
        wait.await.context("the log failed")
    }
}

fn commit_all(file: &File, entries: &Receiver<Entry>) {
    let (mut at, mut batch, mut waiting) = (0, Vec::new(), Vec::new());
    while let Ok(first) = entries.recv() {
        batch.clear();
        for (record, done) in std::iter::once(first).chain(entries.try_iter()) {
            batch.extend_from_slice(&(record.len() as u32).to_le_bytes());
            batch.extend_from_slice(&record);
            waiting.push(done);
            if batch.len() > LARGEST_BATCH {
                break;
            }
        }
        if at + batch.len() as u64 > FILE_SIZE {
            at = 0;
        }
        if file.write_all_at(&batch, at).and_then(|()| file.sync_data()).is_err() {
            return; // Those who wait learn it from their dropped channel.
        }
        at += batch.len() as u64;
        for done in waiting.drain(..) {
            let _ = done.send(());
        }
    }
}
