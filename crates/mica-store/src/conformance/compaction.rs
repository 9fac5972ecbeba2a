//! Checks of `compact`, and of what stays readable after it.

use super::*;

async fn compact(bed: &Bed, revision: Revision) -> Result<(), ReadError> {
    within("a compaction", bed.store.compact(revision)).await
}

fn expired(result: &Result<Page, ReadError>, by: Revision) -> bool {
    matches!(result, Err(ReadError::Expired { compacted }) if *compacted >= by)
}

pub(super) async fn states_before_a_compaction_expire_and_its_own_stays(bed: Bed) {
    let (a, b, c) = (bed.key("a"), bed.key("b"), bed.key("c"));
    let first = bed.put(&a, "1").await;
    bed.put(&b, "1").await;
    bed.put(&c, "1").await;
    bed.delete(&b).await;
    let middle = bed.put(&a, "2").await;
    bed.put(&a, "3").await;
    let last = bed.delete(&c).await;
    compact(&bed, middle).await.unwrap();
    assert!(within("the status", bed.store.status()).await.unwrap().compacted >= middle);
    for old in [first, Revision(middle.0 - 1)] {
        for range in [
            bed.range(),
            bed.plane.all(),
            KeyRange::AllPlanes(bed.things.clone()),
            KeyRange::One(a.clone()),
        ] {
            let page = bed.page(&range, Some(old), None, 10).await;
            assert!(expired(&page, middle), "{range:?} at {old}: {page:?}");
        }
    }
    assert_eq!(bed.texts(&bed.range(), Some(middle)).await, ["a=2", "c=1"]);
    assert_eq!(
        bed.texts(&bed.range(), Some(Revision(middle.0 + 1))).await,
        ["a=3", "c=1"]
    );
    assert_eq!(bed.texts(&bed.range(), Some(last)).await, ["a=3"]);
    assert_eq!(bed.texts(&bed.range(), None).await, ["a=3"]);
    compact(&bed, last).await.unwrap();
    assert!(expired(&bed.page(&bed.range(), Some(middle), None, 10).await, last));
    assert_eq!(bed.texts(&bed.range(), Some(last)).await, ["a=3"]);
    assert_eq!(
        bed.texts(&KeyRange::AllPlanes(bed.things.clone()), Some(last)).await,
        ["a=3"]
    );
}

pub(super) async fn compacting_twice_or_backwards_changes_nothing(bed: Bed) {
    let a = bed.key("a");
    let old = bed.put(&a, "1").await;
    let new = bed.put(&a, "2").await;
    compact(&bed, new).await.unwrap();
    for revision in [new, old, Revision(1)] {
        compact(&bed, revision).await.unwrap();
        assert!(within("the status", bed.store.status()).await.unwrap().compacted >= new);
    }
    assert_eq!(bed.texts(&bed.range(), Some(new)).await, ["a=2"]);
}

pub(super) async fn the_future_cannot_be_compacted(bed: Bed) {
    let newest = bed.put(&bed.key("a"), "1").await;
    let far = Revision(newest.0 + 1_000_000);
    match compact(&bed, far).await {
        Err(ReadError::Future { current }) => assert!(current >= newest && current < far),
        other => panic!("{other:?}"),
    }
    assert_eq!(bed.texts(&bed.range(), Some(newest)).await, ["a=1"]);
}

pub(super) async fn a_watch_from_before_a_compaction_expires(bed: Bed) {
    let a = bed.key("a");
    let first = bed.put(&a, "1").await;
    let mut revisions = vec![first];
    for i in 2..10 {
        revisions.push(bed.put(&a, &i.to_string()).await);
    }
    let (compacted, last) = (revisions[5], revisions[8]);
    compact(&bed, compacted).await.unwrap();
    for range in [bed.range(), KeyRange::AllPlanes(bed.things.clone())] {
        match within("a watch", bed.store.watch(range.clone(), first)).await {
            Err(ReadError::Expired { compacted: by }) => assert!(by >= compacted),
            Ok(_) => panic!("{range:?}: a watch from before the compaction opened"),
            Err(other) => panic!("{other:?}"),
        }
        let mut watch = bed.watch(range, compacted).await;
        assert_eq!(signals_until(&mut watch, last).await.len(), 3);
    }
}

pub(super) async fn a_quiet_plane_does_not_expire_because_others_write(bed: Bed) {
    let quiet = bed.new_plane();
    let key = quiet.object(&bed.things, Some("ns"), "quiet");
    bed.put(&key, "0").await;
    let changed = bed.put(&key, "1").await;
    let never_used = bed.new_plane();
    for i in 0..10 {
        bed.put(&bed.key("busy"), &i.to_string()).await;
    }
    let compacted = bed.revision().await;
    compact(&bed, compacted).await.unwrap();
    let inside = [quiet.all(), quiet.resource(&bed.things), KeyRange::One(key.clone())];
    for at in [changed, Revision(changed.0 + 1), Revision(changed.0 + 5)] {
        for range in &inside {
            assert_eq!(bed.texts(range, Some(at)).await, ["quiet=1"], "{range:?} at {at}");
        }
        assert!(bed.texts(&never_used.all(), Some(at)).await.is_empty());
    }
    let before = Revision(changed.0 - 1);
    assert!(
        expired(&bed.page(&quiet.all(), Some(before), None, 10).await, compacted),
        "it did change since then"
    );
    assert!(expired(
        &bed.page(&bed.plane.all(), Some(changed), None, 10).await,
        compacted
    ));
    let everywhere = KeyRange::AllPlanes(bed.things.clone());
    assert!(expired(
        &bed.page(&everywhere, Some(changed), None, 10).await,
        compacted
    ));
    let mut watches = Vec::new();
    for range in inside {
        watches.push(bed.watch(range, changed).await);
    }
    let next_change = bed.put(&key, "2").await;
    for mut watch in watches {
        let signal = next(&mut watch).await.unwrap();
        assert_eq!(describe(&signal), format!("quiet=2@{next_change}"));
    }
    // Now it has changed since: it expires like others, or the backend knows better and skips nothing.
    match within("a watch", bed.store.watch(quiet.all(), changed)).await {
        Err(ReadError::Expired { .. }) => {}
        Ok(mut watch) => {
            assert_eq!(
                describe(&next(&mut watch).await.unwrap()),
                format!("quiet=2@{next_change}")
            );
        }
        Err(other) => panic!("{other:?}"),
    }
}
