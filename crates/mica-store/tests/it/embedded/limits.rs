//! Processes of their own, whose memory can be measured and whose files can be limited.
//!
//! Each is this test program itself, started for one of the two functions that are no tests by themselves.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};
use mica_store::embedded::disk::sim::SimDisk;
use mica_store::embedded::{EmbeddedStore, Options};
use mica_store::{CommitError, Key, KeyRange, PlaneKeys, RangeQuery, Store, Txn, Write};

use super::tiny;

const DIRECTORY: &str = "MICA_TEST_LIMITS_DIRECTORY";

fn key(number: u64) -> Key {
    let plane = PlaneKeys::new(PlaneId::from_random(1));
    let name = format!("an-object-with-a-name-{number:08}");
    plane.object(&GroupResource::new("", "things"), Some("some-namespace"), &name)
}

fn put(number: u64, value: &Bytes) -> Write {
    let (key, value) = (key(number), value.clone());
    Write::Put { key, value, ttl: None }
}

async fn write(store: &EmbeddedStore, writes: Vec<Write>) -> Result<(), CommitError> {
    let compares = Vec::new();
    store.commit(Txn { compares, writes }).await.map(drop)
}

/// Runs one of the functions below in a new process; returns what it printed in lines that begin with `say `.
fn run(function: &str, directory: &Path) -> Vec<String> {
    // A file that grows above its limit is an error to us, not the end: the shell says so to the kernel.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", function, "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}\n{told}");
    // The test program prints beginnings of lines of its own.
    let said = printed.lines().filter_map(|line| line.split_once("say "));
    said.map(|(_, said)| said.to_owned()).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Few keys before the first measurement, many more before the second.
const FEW: u64 = 20_000;
const MANY: u64 = 160_000;
/// What one key takes in memory if something of it stays there: its text in one table of the index, at least.
const KEPT_PER_KEY: u64 = 100;

/// Not a test by itself: writes, reads and prints how much memory that takes.
#[test]
fn filling_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let options = Options {
        checkpoint_log_bytes: 2 << 20,
        checkpoint_memory_bytes: 512 << 10,
        segment_bytes: (1 << 20, 8 << 20),
        ..tiny()
    };
    runtime().block_on(async {
        let store = EmbeddedStore::open(Path::new(&directory), options).unwrap();
        let value = Bytes::from(vec![b'x'; 64]);
        for number in 0..MANY {
            if number == FEW {
                read_all(&store).await;
                println!("say {}", resident());
            }
            if number % 500 == 0 {
                write(
                    &store,
                    (number..number + 500).map(|number| put(number, &value)).collect(),
                )
                .await
                .unwrap();
            }
        }
        read_all(&store).await;
        println!("say {}", resident());
        store.close();
    });
}

/// Lists everything, and gets some of it, so that whatever reads leave behind is there.
async fn read_all(store: &EmbeddedStore) {
    let range = PlaneKeys::new(PlaneId::from_random(1)).resource(&GroupResource::new("", "things"));
    let (mut at, mut after) = (None, None);
    loop {
        let query = RangeQuery {
            range: &range,
            at,
            after: after.as_ref(),
            limit: 500,
        };
        let page = store.range(query).await.unwrap();
        for (key, record) in page.records.iter().step_by(50) {
            assert_eq!(store.get(key).await.unwrap().as_ref(), Some(record));
        }
        at = Some(page.revision);
        after = page.records.last().map(|(key, _)| key.clone());
        if !page.more {
            return;
        }
    }
}

#[test]
fn memory_does_not_grow_with_the_number_of_keys() {
    let directory = tempfile::tempdir().unwrap();
    let said = run("embedded::limits::filling_process", directory.path());
    let measured: Vec<u64> = said.iter().map(|said| said.parse().unwrap()).collect();
    let [few, many] = measured[..] else { panic!("{said:?}") };
    let grown = many.saturating_sub(few);
    assert!(
        grown < (MANY - FEW) * KEPT_PER_KEY / 2,
        "{} more keys took {grown} bytes more ({few}, then {many})",
        MANY - FEW
    );
}

/// Bytes that a file may have while the index has no room: less than any of its tables.
const NO_ROOM: u64 = 512;

/// Not a test by itself: its log is elsewhere, so that only the index meets the limit on the size of files.
#[test]
fn crowded_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let disk = SimDisk::new(1);
    let options = || Options {
        disk: Some(Arc::new(disk.clone())),
        ..tiny()
    };
    runtime().block_on(async {
        let store = EmbeddedStore::open(Path::new(&directory), options()).unwrap();
        let value = Bytes::from(vec![b'x'; 100]);
        write(&store, (0..100).map(|number| put(number, &value)).collect())
            .await
            .unwrap();
        limit_files(Some(NO_ROOM));
        let mut written = 100;
        let refusal = loop {
            match write(&store, vec![put(written, &value)]).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(
                written < 100_000,
                "the index grows without end although it cannot be written out"
            );
        };
        assert!(matches!(refusal, CommitError::NoSpace), "{refusal:?}");
        write(&store, vec![Write::Delete { key: key(0) }])
            .await
            .expect("deletes still work");
        check(&store, written).await;
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());

        limit_files(None);
        while let Err(error) = write(&store, vec![put(written, &value)]).await {
            assert!(matches!(error, CommitError::NoSpace), "{error:?}");
            // It tries again by itself, after a while.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        check(&store, written + 1).await;
        store.close();
        drop(store);
        let store = EmbeddedStore::open(Path::new(&directory), options()).unwrap();
        check(&store, written + 1).await;
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        store.close();
        println!("say {written}");
    });
}

fn limit_files(bytes: Option<u64>) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = bytes.or(maximum);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

/// All keys but the first are there.
async fn check(store: &EmbeddedStore, written: u64) {
    assert_eq!(store.get(&key(0)).await.unwrap(), None);
    assert_eq!(store.count(&KeyRange::All, None, None).await.unwrap(), written - 1);
    assert!(store.get(&key(written - 1)).await.unwrap().is_some());
}

#[test]
fn an_index_without_room_refuses_puts_takes_deletes_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let said = run("embedded::limits::crowded_process", directory.path());
    assert_eq!(said.len(), 1, "{said:?}");
}
