//! Checks of dropping a plane.

use super::*;
use crate::store::Usage;

async fn fill(bed: &Bed, plane: PlaneKeys, count: usize) -> Revision {
    let mut last = Revision(0);
    for i in 0..count {
        let (resource, namespace) = if i % 2 == 0 {
            (&bed.things, Some("ns"))
        } else {
            (&bed.others, None)
        };
        last = bed
            .put(&plane.object(resource, namespace, &format!("k{i:02}")), "v")
            .await;
    }
    last
}

async fn drop_plane(bed: &Bed, plane: PlaneKeys) -> Revision {
    let committed = bed
        .commit(vec![], vec![Write::DropPlane(plane.plane())])
        .await
        .expect("a plane can be dropped");
    assert_eq!(committed.revisions, [committed.revision]);
    committed.revision
}

pub(super) async fn a_dropped_plane_is_gone_as_one_operation(bed: Bed) {
    let doomed = bed.new_plane();
    fill(&bed, doomed, 20).await;
    fill(&bed, bed.plane, 4).await;
    let key = doomed.object(&bed.things, Some("ns"), "k00");
    let kept = bed.list(&bed.plane.all(), None, 100).await;
    let dropped = drop_plane(&bed, doomed).await;
    assert_eq!(bed.get(&key).await, None);
    for range in [doomed.all(), doomed.resource(&bed.things), KeyRange::One(key.clone())] {
        for at in [None, Some(dropped)] {
            assert_eq!(bed.list(&range, at, 3).await, [], "{range:?} at {at:?}");
        }
        assert_eq!(bed.store.usage(&range).await.unwrap(), Usage::default());
    }
    for resource in [&bed.things, &bed.others] {
        let everywhere = bed.list(&KeyRange::AllPlanes(resource.clone()), None, 1).await;
        assert_eq!(everywhere, bed.list(&bed.plane.resource(resource), None, 100).await);
        let usage = bed.store.usage(&KeyRange::AllPlanes(resource.clone())).await.unwrap();
        assert_eq!(usage, bed.store.usage(&bed.plane.resource(resource)).await.unwrap());
    }
    assert_eq!(bed.list(&bed.plane.all(), None, 100).await, kept);
    let absent = bed.commit(vec![Compare::Absent(key.clone())], vec![]).await;
    assert!(absent.is_ok(), "comparisons see it gone: {absent:?}");
    within("a compaction", bed.store.compact(dropped)).await.unwrap();
    assert_eq!(bed.list(&doomed.all(), None, 3).await, []);
    assert_eq!(bed.list(&bed.plane.all(), None, 100).await, kept);
}

pub(super) async fn a_drop_ends_inner_watches_after_their_last_event(bed: Bed) {
    let doomed = bed.new_plane();
    let start = bed.revision().await;
    let key = doomed.object(&bed.things, Some("ns"), "k00");
    let ranges = [
        doomed.all(),
        doomed.resource(&bed.things),
        doomed.namespace(&bed.things, "ns"),
        KeyRange::One(key),
    ];
    let mut watches = Vec::new();
    for range in &ranges {
        watches.push((range, bed.watch(range.clone(), start).await));
    }
    fill(&bed, doomed, 10).await;
    drop_plane(&bed, doomed).await;
    for range in &ranges {
        watches.push((range, bed.watch(range.clone(), start).await));
    }
    for (range, watch) in &mut watches {
        let mut events = 0;
        let end = loop {
            match next(watch).await {
                Ok(Signal::Event(event)) => {
                    assert!(
                        matches!(event.change, Change::Put(_)),
                        "no delete for each key: {event:?}"
                    );
                    events += 1;
                }
                Ok(signal) => panic!("{signal:?} in an inner watch"),
                Err(end) => break end,
            }
        };
        assert!(matches!(end, WatchError::Dropped), "{end:?}");
        let expected = match range {
            KeyRange::Plane(_) => 10,
            KeyRange::One(_) => 1,
            _ => 5,
        };
        assert_eq!(events, expected, "{range:?}");
    }
}

pub(super) async fn a_drop_is_one_signal_to_wider_watches(bed: Bed) {
    let doomed = bed.new_plane();
    let start = bed.revision().await;
    let ranges = [KeyRange::AllPlanes(bed.things.clone()), KeyRange::All];
    let mut watches = Vec::new();
    for range in &ranges {
        watches.push(bed.watch(range.clone(), start).await);
    }
    fill(&bed, doomed, 4).await;
    let dropped = drop_plane(&bed, doomed).await;
    let after = bed.put(&bed.key("after"), "v").await;
    for range in &ranges {
        watches.push(bed.watch(range.clone(), start).await);
    }
    for (range, watch) in ranges.iter().chain(&ranges).zip(&mut watches) {
        let ours = |signal: &Signal| match signal {
            Signal::Event(event) => [doomed.plane(), bed.plane.plane()].contains(&event.key.plane()),
            Signal::Dropped(plane, _) => *plane == doomed.plane(),
        };
        let seen: Vec<_> = signals_until(watch, after)
            .await
            .iter()
            .filter(|s| ours(s))
            .map(describe)
            .collect();
        let puts = if *range == KeyRange::All { 4 } else { 2 };
        let expected = [format!("!{}@{dropped}", doomed.plane()), format!("after=v@{after}")];
        assert_eq!(seen.len(), puts + 2, "{seen:?}");
        assert_eq!(seen[puts..], expected);
    }
}

pub(super) async fn the_state_before_a_drop_stays_readable(bed: Bed) {
    let doomed = bed.new_plane();
    let filled = fill(&bed, doomed, 6).await;
    let before = bed.list(&doomed.all(), None, 100).await;
    let everywhere = KeyRange::AllPlanes(bed.things.clone());
    let before_everywhere = bed.list(&everywhere, None, 100).await;
    drop_plane(&bed, doomed).await;
    assert_eq!(bed.list(&doomed.all(), Some(filled), 2).await, before);
    assert_eq!(bed.list(&everywhere, Some(filled), 2).await, before_everywhere);
}

pub(super) async fn a_drop_and_another_write_are_one_transaction(bed: Bed) {
    let doomed = bed.new_plane();
    fill(&bed, doomed, 3).await;
    let registration = bed.plane.object(&bed.others, None, "registered");
    let registered = bed.put(&registration, "doomed").await;
    let writes = || {
        vec![
            Write::Delete {
                key: registration.clone(),
            },
            Write::DropPlane(doomed.plane()),
        ]
    };
    let stale = vec![Compare::Unchanged(registration.clone(), Revision(registered.0 - 1))];
    assert!(matches!(
        bed.commit(stale, writes()).await,
        Err(CommitError::Conflict { .. })
    ));
    assert_eq!(
        bed.list(&doomed.all(), None, 10).await.len(),
        3,
        "a failed comparison drops nothing"
    );
    let holds = vec![Compare::Unchanged(registration.clone(), registered)];
    let committed = bed.commit(holds, writes()).await.unwrap();
    assert_eq!(committed.revisions.len(), 2);
    assert_eq!(bed.list(&doomed.all(), None, 10).await, []);
    assert_eq!(bed.get(&registration).await, None);
}
