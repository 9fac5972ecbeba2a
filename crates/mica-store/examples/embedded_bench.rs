//! Measures the embedded store: `cargo run --release -p mica-store --example embedded_bench -- [DIR] [KEYS]`.
//!
//! Durable puts (creates, then updates) with several numbers of writers, gets, lists, watches of everything, and how long
//! opening takes with all that in the directory. One line each; load from neighbours shows in all of them.
#![allow(clippy::unwrap_used, reason = "a measurement that fails should stop")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};
use mica_store::embedded::{EmbeddedStore, Options};
use mica_store::{Key, KeyRange, PlaneKeys, RangeQuery, Revision, Store, Txn, Write};

const VALUE: usize = 1024;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments
        .next()
        .map_or_else(|| std::env::temp_dir().join("mica-embedded-bench"), PathBuf::from);
    let keys: u64 = arguments.next().map_or(500_000, |text| text.parse().unwrap());
    let _ = std::fs::remove_dir_all(&directory);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run(&directory, keys));
    let _ = std::fs::remove_dir_all(&directory);
}

fn key(number: u64) -> Key {
    let plane = PlaneKeys::new(PlaneId::from_random((number / 5).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    plane.object(
        &GroupResource::new("", "configmaps"),
        Some("default"),
        &format!("object-{}", number % 5),
    )
}

async fn run(directory: &std::path::Path, keys: u64) {
    let began = Instant::now();
    let store = EmbeddedStore::open(directory, Options::default()).unwrap();
    println!("open, empty: {:?}", began.elapsed());
    let mut next = 0;
    for (writers, seconds) in [(1, 2), (32, 5), (256, 3)] {
        next = puts(&store, "create", writers, next, u64::MAX, Duration::from_secs(seconds)).await;
    }
    while next < keys {
        next = puts(&store, "fill", 256, next, keys, Duration::from_secs(3600)).await;
    }
    puts(&store, "update", 32, 0, next, Duration::from_secs(5)).await;
    gets(&store, next, 1, "any key").await;
    gets(&store, next, 2, "any key").await;
    gets(&store, 1000, 1, "hot keys").await;
    gets(&store, 1000, 2, "hot keys").await;
    lists(&store).await;
    let status = store.status().await.unwrap();
    println!("{status:?}, {} of memory", resident());
    let began = Instant::now();
    store.close();
    println!("close: {:?}", began.elapsed());
    let began = Instant::now();
    let store = EmbeddedStore::open(directory, Options::default()).unwrap();
    println!(
        "open with {next} keys, clean: {:?}, {} (it includes what the last store left)",
        began.elapsed(),
        resident()
    );
    let copy = directory.join("copy");
    let began = Instant::now();
    puts(&store, "update", 32, 0, next, Duration::from_secs(1)).await;
    copy_directory(directory, &copy);
    println!("(copied in {:?})", began.elapsed());
    let began = Instant::now();
    let crashed = EmbeddedStore::open(&copy, Options::default()).unwrap();
    println!("open with {next} keys, after a crash: {:?}", began.elapsed());
    crashed.close();
    std::fs::remove_dir_all(copy.join("index")).unwrap();
    let began = Instant::now();
    let rebuilt = EmbeddedStore::open(&copy, Options::default()).unwrap();
    println!("open with {next} keys, without its index: {:?}", began.elapsed());
    rebuilt.close();
    println!(
        "disk: {} MiB for {} MiB of values",
        size(&copy) >> 20,
        (next * VALUE as u64) >> 20
    );
}

async fn puts(store: &EmbeddedStore, what: &str, writers: u64, from: u64, to: u64, limit: Duration) -> u64 {
    let next = Arc::new(AtomicU64::new(from));
    let slowest = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (store, next, slowest) = (store.clone(), next.clone(), slowest.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while began.elapsed() < limit {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= to {
                        break;
                    }
                    let value = Bytes::from(vec![b'x'; VALUE]);
                    let writes = vec![Write::Put {
                        key: key(number),
                        value,
                        ttl: None,
                    }];
                    let started = Instant::now();
                    store
                        .commit(Txn {
                            compares: vec![],
                            writes,
                        })
                        .await
                        .unwrap();
                    times.push(started.elapsed());
                    slowest.fetch_max(started.elapsed().as_micros() as u64, Ordering::Relaxed);
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let elapsed = began.elapsed();
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let rate = times.len() as f64 / elapsed.as_secs_f64();
    println!(
        "{what}, {writers} writers: {rate:.0}/s, p50 {:?}, p99 {:?}, worst {:?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    next.load(Ordering::Relaxed).min(to)
}

async fn gets(store: &EmbeddedStore, keys: u64, readers: u64, what: &str) {
    const LIMIT: Duration = Duration::from_secs(2);
    let began = Instant::now();
    let tasks: Vec<_> = (0..readers)
        .map(|reader| {
            let store = store.clone();
            tokio::spawn(async move {
                let wanted: Vec<_> = (0..20_000).map(|i| key((i * 7919 + reader) % keys)).collect();
                let mut done = 0_u64;
                while began.elapsed() < LIMIT {
                    for key in &wanted {
                        assert!(store.get(key).await.unwrap().is_some());
                        done += 1;
                    }
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    println!(
        "get, {what}, {readers} readers: {:.0}/s",
        done as f64 / began.elapsed().as_secs_f64()
    );
}

async fn lists(store: &EmbeddedStore) {
    let plane = PlaneKeys::new(PlaneId::ROOT);
    let resource = GroupResource::new("", "secrets");
    let key = |i: u64| plane.object(&resource, Some("default"), &format!("object-{i:05}"));
    for i in 0..10_000 {
        let writes = vec![Write::Put {
            key: key(i),
            value: Bytes::from(vec![b'y'; VALUE]),
            ttl: None,
        }];
        store
            .commit(Txn {
                compares: vec![],
                writes,
            })
            .await
            .unwrap();
    }
    let range = plane.resource(&resource);
    for (what, range) in [
        ("10,000 of a plane", range),
        ("all planes", KeyRange::AllPlanes(resource.clone())),
    ] {
        for at in [None, Some(store.status().await.unwrap().revision)] {
            let mut best = Duration::MAX;
            for _ in 0..5 {
                let began = Instant::now();
                let page = store
                    .range(RangeQuery {
                        range: &range,
                        at,
                        after: None,
                        limit: 10_000,
                    })
                    .await
                    .unwrap();
                assert_eq!(page.records.len(), 10_000);
                best = best.min(began.elapsed());
            }
            println!("list, {what}, at {at:?}: {best:?}");
        }
    }
    let old = store.status().await.unwrap().revision;
    for i in 0..5_000 {
        let writes = vec![Write::Put {
            key: key(i),
            value: Bytes::from(vec![b'z'; VALUE]),
            ttl: None,
        }];
        store
            .commit(Txn {
                compares: vec![],
                writes,
            })
            .await
            .unwrap();
    }
    let range = plane.resource(&resource);
    let began = Instant::now();
    let page = store
        .range(RangeQuery {
            range: &range,
            at: Some(old),
            after: None,
            limit: 10_000,
        })
        .await
        .unwrap();
    println!(
        "list, 10,000 of a plane, half of them changed since: {:?}",
        began.elapsed()
    );
    assert_eq!(page.records.len(), 10_000);
    let began = Instant::now();
    let mut watch = store.watch(range, Revision(page.revision.0 - 5_000)).await.unwrap();
    for _ in 0..10_000 {
        watch.next().await.unwrap();
    }
    println!("watch, 10,000 past events: {:?}", began.elapsed());
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path() == *to {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn size(directory: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                size(&entry.path())
            } else {
                entry.metadata().unwrap().len()
            }
        })
        .sum()
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap_or("unknown")
        .to_owned()
}
