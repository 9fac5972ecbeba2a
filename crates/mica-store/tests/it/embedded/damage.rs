//! Files that are not as they were left: what the store says, and that it never serves them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use expect_test::expect;
use mica_api::{GroupResource, PlaneId};
use mica_store::embedded::disk::sim::SimDisk;
use mica_store::embedded::{EmbeddedStore, OpenError, Options, RestoreError, restore};
use mica_store::{Key, KeyRange, PlaneKeys, RangeQuery, ReadError, Revision, Store, Txn, Write};

use super::tiny;

fn key(name: &str) -> Key {
    PlaneKeys::new(PlaneId::ROOT).object(&GroupResource::new("", "things"), Some("ns"), name)
}

async fn put(store: &EmbeddedStore, name: &str, value: &[u8]) -> Revision {
    let writes = vec![Write::Put {
        key: key(name),
        value: Bytes::copy_from_slice(value),
        ttl: None,
    }];
    store
        .commit(Txn {
            compares: vec![],
            writes,
        })
        .await
        .unwrap()
        .revision
}

/// A closed store of some segments.
async fn filled(directory: &Path) {
    let store = EmbeddedStore::open(directory, tiny()).unwrap();
    for i in 0..100 {
        put(
            &store,
            &format!("k{i:03}"),
            format!("value {i} {}", "x".repeat(400)).as_bytes(),
        )
        .await;
    }
    store.close();
}

#[tokio::test]
async fn a_check_right_after_opening_reads_the_whole_log() {
    let home = tempfile::tempdir().unwrap();
    filled(home.path()).await;
    for _ in 0..20 {
        let store = EmbeddedStore::open(home.path(), tiny()).unwrap();
        let report = store.check().unwrap();
        store.close();
        assert_eq!(report.segments, segments(home.path()).len() as u64);
        assert!(report.log_records >= 100, "{report:?}");
    }
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(directory.join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = names
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    found.sort();
    found
}

fn refusal(directory: &Path) -> String {
    match EmbeddedStore::open(directory, tiny()) {
        Ok(_) => panic!("a damaged store opened"),
        Err(error) => error.to_string().replace(&directory.display().to_string(), "DIR"),
    }
}

fn damage(path: &Path, needle: &[u8]) -> u64 {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes
        .windows(needle.len())
        .position(|window| window == needle)
        .expect("the bytes to damage are there");
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
    at as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_value_is_reported_with_its_place_and_not_served() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await;
    let first = segments(directory.path())[0].clone();
    damage(&first, b"value 3 ");
    // The index is whole, so the store opens without reading the old part of the log.
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    let read = store.get(&key("k003")).await.unwrap_err();
    let said = read.to_string();
    assert!(matches!(read, ReadError::Corrupt(_)), "{said}");
    assert!(
        said.contains("00000001.seg at offset ") && said.contains("checksum"),
        "{said}"
    );
    let range = KeyRange::All;
    let listed = store
        .range(RangeQuery {
            range: &range,
            at: None,
            after: None,
            limit: 1000,
        })
        .await;
    assert!(matches!(listed, Err(ReadError::Corrupt(_))), "{listed:?}");
    assert!(store.get(&key("k004")).await.unwrap().is_some(), "the rest is served");
    let report = store.check().unwrap();
    assert!(
        report.problems.iter().any(|problem| problem.contains("k003")),
        "{report:?}"
    );
    assert!(
        report
            .problems
            .iter()
            .any(|problem| problem.contains("00000001.seg at offset ")),
        "{report:?}"
    );
    let writes = vec![Write::Delete { key: key("k003") }];
    let deleted = store
        .commit(Txn {
            compares: vec![],
            writes,
        })
        .await;
    assert!(
        matches!(deleted, Err(mica_store::CommitError::Corrupt(_))),
        "{deleted:?}"
    );
    store.close();
    fs::remove_dir_all(directory.path().join("index")).unwrap();
    let said = refusal(directory.path());
    assert!(
        said.starts_with("stored data is damaged: DIR/log/00000001.seg at offset "),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_last_segment_is_not_taken_for_a_torn_end() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await;
    fs::remove_dir_all(directory.path().join("index")).unwrap();
    let last = segments(directory.path()).pop().unwrap();
    damage(&last, b"value 98 ");
    let said = refusal(directory.path());
    assert!(
        said.contains("a frame's checksum does not match, and valid ones follow"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_end_is_dropped_and_the_store_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await;
    let last = segments(directory.path()).pop().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    let at = bytes.windows(9).position(|window| window == b"value 99 ").unwrap();
    bytes[at + 20..].fill(0);
    fs::write(&last, bytes).unwrap();
    fs::remove_dir_all(directory.path().join("index")).unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    assert_eq!(store.get(&key("k099")).await.unwrap(), None);
    assert!(store.get(&key("k098")).await.unwrap().is_some());
    put(&store, "k100", b"next").await;
    store.close();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    assert!(store.get(&key("k100")).await.unwrap().is_some());
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_format_a_missing_segment_and_a_foreign_file_are_refused_clearly() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await;
    let first = segments(directory.path())[0].clone();
    let whole = fs::read(&first).unwrap();
    let mut newer = whole.clone();
    newer[8] = 7;
    fs::write(&first, &newer).unwrap();
    expect!["DIR/log/00000001.seg has format version 7, and this program knows versions up to 1: use a newer program"]
        .assert_eq(&refusal(directory.path()));
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    fs::write(&first, &damaged).unwrap();
    expect!["stored data is damaged: DIR/log/00000001.seg at offset 0: the header's checksum does not match"]
        .assert_eq(&refusal(directory.path()));
    fs::write(&first, b"something else").unwrap();
    expect!["stored data is damaged: DIR/log/00000001.seg at offset 0: this is not a log segment"]
        .assert_eq(&refusal(directory.path()));
    fs::write(&first, &whole).unwrap();
    fs::remove_file(&segments(directory.path())[1]).unwrap();
    expect!["stored data is damaged: DIR/log/00000003.seg: segments before it are missing"]
        .assert_eq(&refusal(directory.path()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_opening_is_told_who_holds_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    let said = refusal(directory.path());
    assert_eq!(said, format!("DIR is in use: process {} holds it", std::process::id()));
    store.close();
    assert!(EmbeddedStore::open(directory.path(), tiny()).is_ok());
    let disk = SimDisk::new(1);
    let options = || Options {
        disk: Some(Arc::new(disk.clone())),
        ..tiny()
    };
    let _held = EmbeddedStore::open(directory.path(), options());
    assert!(matches!(
        EmbeddedStore::open(directory.path(), options()),
        Err(OpenError::Locked { .. })
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_under_writes_restores_to_one_revision() {
    let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(original.path()).await;
    let store = EmbeddedStore::open(original.path(), tiny()).unwrap();
    put(&store, "k001", b"changed").await;
    let ttl = Some(std::time::Duration::from_secs(3600));
    let writes = vec![
        Write::Put {
            key: key("short-lived"),
            value: Bytes::from("x"),
            ttl,
        },
        Write::Delete { key: key("k002") },
    ];
    store
        .commit(Txn {
            compares: vec![],
            writes,
        })
        .await
        .unwrap();
    let writing = {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0..200 {
                put(&store, &format!("later-{i}"), b"x").await;
            }
        })
    };
    let backing_up = store.clone();
    let (summary, bytes) = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let summary = backing_up.backup(&mut bytes).unwrap();
        (summary, bytes)
    })
    .await
    .unwrap();
    writing.await.unwrap();
    let range = KeyRange::All;
    let query = RangeQuery {
        range: &range,
        at: Some(summary.revision),
        after: None,
        limit: 10_000,
    };
    let expected = store.range(query.clone()).await.unwrap().records;
    assert_eq!(expected.len() as u64, summary.records);
    let restored = restore(&copy.path().join("new"), &mut bytes.as_slice(), &tiny()).unwrap();
    assert_eq!(restored, summary);
    let copied = EmbeddedStore::open(&copy.path().join("new"), tiny()).unwrap();
    assert_eq!(
        copied.range(query).await.unwrap().records,
        expected,
        "values and revisions"
    );
    let status = copied.status().await.unwrap();
    assert_eq!(
        (status.revision, status.compacted),
        (summary.revision, summary.revision)
    );
    assert!(put(&copied, "next", b"x").await > summary.revision);
    assert_eq!(copied.check().unwrap().problems, Vec::<String>::new());
    check_refusals(copy.path(), &bytes);
}

/// Cut or damaged backups leave nothing behind, and nothing is overwritten.
fn check_refusals(root: &Path, bytes: &[u8]) {
    let full = restore(&root.join("new"), &mut &*bytes, &tiny());
    assert!(matches!(full, Err(RestoreError::NotEmpty(_))), "{full:?}");
    for length in [0, 10, 30, bytes.len() / 2, bytes.len() - 1] {
        let directory = root.join(format!("cut-{length}"));
        let cut = restore(&directory, &mut &bytes[..length], &tiny());
        assert!(
            matches!(cut, Err(RestoreError::Damaged(_) | RestoreError::NotABackup)),
            "{length}: {cut:?}"
        );
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing is left");
    }
    let mut damaged = bytes.to_vec();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let result = restore(&root.join("damaged"), &mut damaged.as_slice(), &tiny());
    assert!(matches!(result, Err(RestoreError::Damaged(_))), "{result:?}");
}
