//! A process that writes and is killed, again and again.
//!
//! The writer is this test program itself, started with a directory in its environment. It prints what was acknowledged,
//! line by line, only after it was; the test kills it and looks whether the store has all of it.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};
use mica_store::embedded::{EmbeddedStore, Options};
use mica_store::{Key, KeyRange, PlaneKeys, RangeQuery, Store, Txn, Write, conformance};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::forgetful;

const DIRECTORY: &str = "MICA_TEST_WRITER_DIRECTORY";
/// The number that the process's writers begin with: later processes use greater ones.
const FROM: &str = "MICA_TEST_WRITER_FROM";
const NUMBERS: u64 = 1_000_000;
const WRITERS: u64 = 4;

fn keys(writer: u64, number: u64) -> [Key; 2] {
    let plane = PlaneKeys::new(PlaneId::from_random(writer));
    let name = format!("k{}", number % 20);
    [
        plane.object(&GroupResource::new("", "things"), Some("ns"), &name),
        plane.object(&GroupResource::new("g", "others"), None, &name),
    ]
}

/// Not a test by itself: the process that is killed.
#[test]
fn writer_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let from: u64 = std::env::var(FROM).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Arc::new(EmbeddedStore::open(Path::new(&directory), options()).unwrap());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let store = store.clone();
            writers.spawn(async move {
                for number in from.. {
                    let value = Bytes::from(format!("{number} {}", "x".repeat(number as usize % 900)));
                    let put = |key: Key| Write::Put {
                        key,
                        value: value.clone(),
                        ttl: None,
                    };
                    let writes = keys(writer, number).map(put).to_vec();
                    let committed = store
                        .commit(Txn {
                            compares: vec![],
                            writes,
                        })
                        .await
                        .unwrap();
                    // One write to a pipe, so that a line is there whole or not at all.
                    let line = format!("ack {writer} {number} {}\n", committed.revision);
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
        writers.join_all().await;
    });
}

fn options() -> Options {
    Options {
        segment_bytes: (64 << 10, 1 << 20),
        ..forgetful()
    }
}

struct Writer {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Writer {
    fn start(directory: &Path, number: usize) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "embedded::kill::writer_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(DIRECTORY, directory)
            .env(FROM, (number as u64 * NUMBERS).to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Reads acknowledgements, kills the process after some of them, and reads what it still said.
    fn kill_after(mut self, count: usize) -> Vec<(u64, u64, u64)> {
        let mut acknowledged = Vec::new();
        while let Some(Ok(line)) = self.lines.next() {
            let words: Vec<_> = line.split(' ').collect();
            // The test program prints lines of its own.
            if let ["ack", writer, number, revision] = words[..] {
                acknowledged.push(
                    [writer, number, revision]
                        .map(|text| text.parse::<u64>().unwrap())
                        .into(),
                );
            }
            if acknowledged.len() == count {
                self.process.kill().unwrap();
            }
        }
        self.process.wait().unwrap();
        assert!(
            acknowledged.len() >= count,
            "the writer stopped by itself after {}",
            acknowledged.len()
        );
        acknowledged
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let rounds = super::soak_rounds().unwrap_or(8);
    let directory = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(conformance::seed(
        "nothing_acknowledged_is_lost_when_the_process_is_killed",
    ));
    let mut newest = 0;
    for round in 0..rounds {
        let writer = Writer::start(directory.path(), 2 * round);
        let count = random.random_range(1..2_000);
        let acknowledged = tokio::task::spawn_blocking(move || writer.kill_after(count))
            .await
            .unwrap();
        // Every third round without a look in between: killed while it recovers what was killed.
        if round % 3 == 2 {
            let mut again = Writer::start(directory.path(), 2 * round + 1);
            tokio::time::sleep(Duration::from_millis(random.random_range(0..30))).await;
            again.process.kill().unwrap();
            again.process.wait().unwrap();
        }
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        newest = check(&store, &acknowledged, newest).await;
        store.close();
    }
}

async fn check(store: &EmbeddedStore, acknowledged: &[(u64, u64, u64)], before: u64) -> u64 {
    let status = store.status().await.unwrap();
    let told = acknowledged.iter().map(|(_, _, revision)| *revision).max().unwrap_or(0);
    assert!(
        status.revision.0 >= told.max(before),
        "revisions went back from {} to {}",
        told.max(before),
        status.revision
    );
    for writer in 0..WRITERS {
        let mine = || acknowledged.iter().filter(|(by, ..)| *by == writer);
        let Some(last) = mine().map(|(_, number, _)| *number).max() else {
            continue;
        };
        let first = mine().map(|(_, number, _)| *number).min().unwrap_or(last);
        for number in last.saturating_sub(19).max(first)..=last {
            let mut held = Vec::new();
            for key in keys(writer, number) {
                let record = store.get(&key).await.unwrap().expect("an acknowledged key is there");
                held.push(String::from_utf8(record.value.to_vec()).unwrap());
            }
            assert_eq!(held[0], held[1], "a transaction is half there");
            let found: u64 = held[0].split(' ').next().unwrap().parse().unwrap();
            // It may hold a later write that was killed before its acknowledgement, but no earlier one.
            assert!(
                found >= number && found % 20 == number % 20,
                "{number} was acknowledged, {found} is there"
            );
        }
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    let range = KeyRange::All;
    let page = store
        .range(RangeQuery {
            range: &range,
            at: None,
            after: None,
            limit: 10_000,
        })
        .await
        .unwrap();
    assert!(page.records.len() <= (WRITERS * 40) as usize);
    status.revision.0
}
