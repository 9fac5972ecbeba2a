//! Bytes that no server sent.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::super::world::{MAPS, PLANES, map};
use super::{Move, furnish, reached};

/// A snapshot with another header, and a checksum that fits.
fn with_header(snapshot: &[u8], change: impl Fn(&mut serde_json::Value)) -> Bytes {
    let end = snapshot.iter().position(|byte| *byte == b'\n').unwrap();
    let mut header: serde_json::Value = serde_json::from_slice(&snapshot[..end]).unwrap();
    change(&mut header);
    let mut made = header.to_string().into_bytes();
    made.extend_from_slice(&snapshot[end..snapshot.len() - 8]);
    made.extend_from_slice(&xxh3_64(&made).to_le_bytes());
    made.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_server_sent_is_refused_and_changes_nothing() {
    let moving = Move::start().await;
    let here = moving.here();
    furnish(&here).await;
    let whole = moving.taken("revisions=true").await;
    let plain = moving.taken("").await;
    let mut broken = vec![
        Bytes::new(),
        "{}\n".into(),
        plain,
        whole.slice(..whole.len() - 1),
        whole.slice(..whole.len() / 2),
        with_header(&whole, |header| header["version"] = 3.into()),
        with_header(&whole, |header| header["revision"] = (1_u64 << 62).into()),
        // Its records would be of revisions that it does not tell of.
        with_header(&whole, |header| header["revision"] = 3.into()),
        with_header(&whole, |header| header["birth"]["base"] = "0a1b".into()),
        with_header(&whole, |header| header["birth"]["profile"] = "Generic".into()),
    ];
    for at in [whole.len() / 4, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        let mut flipped = whole.to_vec();
        flipped[at] ^= 0x20;
        broken.push(flipped.into());
    }
    for (number, body) in broken.into_iter().enumerate() {
        let refused = moving.arrive(body).await;
        assert_eq!(refused.code(), 400, "{number}: {}", refused.json());
        assert_eq!(moving.open().await.code(), 409, "{number}");
    }
    let copied = reached(&moving.arrive(whole).await.expect(200));
    here.post(MAPS, &map("a")).await.expect(201);
    here.post(MAPS, &map("b")).await.expect(201);
    let changes = moving.taken(&format!("since={copied}")).await;
    let mut flipped = changes.to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let unfit = [
        flipped.into(),
        changes.slice(..changes.len() - 3),
        with_header(&changes, |header| header["revision"] = (copied + 1).into()),
    ];
    for (number, body) in unfit.into_iter().enumerate() {
        let refused = moving.arrive(body).await;
        assert_eq!(refused.code(), 400, "{number}: {}", refused.json());
    }
    moving.finish(copied).await;
    let refused = moving.from.get(&format!("{PLANES}/p/snapshot?since=soon")).await;
    assert_eq!(refused.code(), 400);
    moving.stop().await;
}
