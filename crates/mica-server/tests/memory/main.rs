//! What answers cost in memory, counted by the allocator: a binary of its own, because it counts for the whole process.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../it/client.rs"]
mod client;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../it/fixture.rs"]
mod fixture;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../it/world.rs"]
mod world;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mica_store::{PlaneKeys, Txn, Write};
use peak_alloc::PeakAlloc;
use serde_json::json;

use world::{Api, MAPS, World, map};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// How much more was live at the worst moment of some work than when it began.
async fn growth<T>(work: impl Future<Output = T>) -> (usize, T) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let done = work.await;
    let grown = ALLOCATOR.peak_usage().saturating_sub(before);
    eprintln!("{grown} bytes more");
    (grown, done)
}

/// Copies a stored ConfigMap `m-000000`, with a data value of this size, under as many names.
async fn fill(world: &World, api: &Api, copies: usize, size: usize) {
    let mut first = map("m-000000");
    first["data"] = json!({"k": "x".repeat(size)});
    api.post(MAPS, &first).await.expect(201);
    let resource = mica_api::GroupResource::new("", "configmaps");
    let key = PlaneKeys::ROOT.object(&resource, Some("default"), "m-000000");
    let record = world.store.get(&key).await.unwrap().unwrap();
    let name = b"m-000000";
    let at = record
        .value
        .windows(name.len())
        .position(|window| window == name)
        .unwrap();
    let batch = (4_000_000 / size).clamp(1, 100);
    for batch in (1..copies).collect::<Vec<_>>().chunks(batch) {
        let writes = batch.iter().map(|number| {
            let name = format!("m-{number:06}");
            let mut value = record.value.to_vec();
            value[at..at + name.len()].copy_from_slice(name.as_bytes());
            Write::Put {
                key: PlaneKeys::ROOT.object(&resource, Some("default"), &name),
                value: value.into(),
                ttl: None,
            }
        });
        let txn = Txn {
            compares: Vec::new(),
            writes: writes.collect(),
        };
        world.store.commit(txn).await.unwrap();
    }
}

/// Reads a body piece by piece and keeps none. Before each of the first pieces it does something else, so that a server
/// that ran ahead would have the time to.
async fn skim(api: &Api, mut body: Incoming) -> usize {
    let (mut bytes, mut pieces) = (0, 0);
    loop {
        if pieces < 50 {
            api.get("/api/v1/namespaces/default").await.expect(200);
        }
        pieces += 1;
        match body.frame().await {
            Some(frame) => bytes += frame.unwrap().into_data().map_or(0, |data| data.len()),
            None => return bytes,
        }
    }
}

async fn list(api: &Api, path: &str) -> Incoming {
    let answer = api.send(Method::GET, path, &[], Bytes::new()).await;
    assert_eq!(answer.status(), 200);
    answer.into_body()
}

/// One test, because others in this process would be counted too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_100_000_objects_never_sits_in_memory_twice() {
    let world = World::start().await;
    let api = world.root().await;
    fill(&world, &api, 100_000, 200).await;
    // What is made on first use is not the list's.
    list(&api, &format!("{MAPS}?limit=10")).await.collect().await.unwrap();

    let (grown, body) = growth(async { skim(&api, list(&api, MAPS).await).await }).await;
    assert!(body > 40_000_000, "{body}");
    assert!(grown < body / 8, "a list of {body} bytes took {grown} bytes more");

    // The measure is one: who holds the whole list is seen to.
    let (grown, held) = growth(async { list(&api, MAPS).await.collect().await.unwrap().to_bytes() }).await;
    assert_eq!(held.len(), body);
    assert!(grown >= body, "a held list of {body} bytes took {grown} bytes more");
    drop(held);

    world.stop().await;

    // Large objects, of which a page by number would be most of the list, read from a disk.
    let directory = tempfile::tempdir().unwrap();
    let store = mica_store::EmbeddedStore::open(directory.path(), mica_store::embedded::Options::default()).unwrap();
    let world = World::on(Arc::new(store)).await;
    let api = world.root().await;
    fill(&world, &api, 160, 400_000).await;
    let (grown, body) = growth(async { skim(&api, list(&api, MAPS).await).await }).await;
    assert!(body > 60_000_000, "{body}");
    assert!(grown < body / 3, "a list of {body} bytes took {grown} bytes more");
    world.stop().await;
}
