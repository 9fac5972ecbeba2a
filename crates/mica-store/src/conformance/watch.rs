//! Checks of `watch`.

use super::*;

pub(super) async fn a_watch_yields_every_change_once_and_in_order(bed: Bed) {
    let start = bed.revision().await;
    let mut live = bed.watch(bed.range(), start).await;
    assert!(live.try_next().is_none(), "nothing has happened yet");
    let (mut expected, mut last) = (Vec::new(), start);
    for step in 0..30 {
        let name = format!("k{}", step % 4);
        if step % 7 == 6 && bed.get(&bed.key(&name)).await.is_some() {
            last = bed.delete(&bed.key(&name)).await;
            expected.push(format!("{name}-@{last}"));
        } else {
            last = bed.put(&bed.key(&name), &step.to_string()).await;
            expected.push(format!("{name}={step}@{last}"));
        }
    }
    let seen: Vec<_> = signals_until(&mut live, last).await.iter().map(describe).collect();
    assert_eq!(seen, expected, "as it happened");
    let mut again = bed.watch(bed.range(), start).await;
    let seen: Vec<_> = signals_until(&mut again, last).await.iter().map(describe).collect();
    assert_eq!(seen, expected, "from the past");
    assert!(again.try_next().is_none());
}

pub(super) async fn events_carry_what_was_there_before(bed: Bed) {
    let a = bed.key("a");
    let start = bed.revision().await;
    let mut live = bed.watch(bed.range(), start).await;
    let created = bed.put(&a, "1").await;
    let updated = bed.put(&a, "2").await;
    let deleted = bed.delete(&a).await;
    let recreated = bed.put(&a, "3").await;
    let record = |value: &'static str, revision| {
        Some(Record {
            value: Bytes::from(value),
            revision,
        })
    };
    let expected = [
        (created, None),
        (updated, record("1", created)),
        (deleted, record("2", updated)),
        (recreated, None),
    ];
    let mut past = bed.watch(bed.range(), start).await;
    for watch in [&mut live, &mut past] {
        for (signal, (revision, previous)) in signals_until(watch, recreated).await.iter().zip(&expected) {
            let Signal::Event(event) = signal else {
                panic!("{signal:?}")
            };
            assert_eq!((event.revision, &event.previous), (*revision, previous));
        }
    }
}

pub(super) async fn a_watch_can_start_at_every_revision(bed: Bed) {
    let start = bed.revision().await;
    let mut revisions = Vec::new();
    for step in 0..40 {
        let key = if step % 3 == 0 {
            bed.plane.object(&bed.others, None, "x")
        } else {
            bed.key(&format!("k{step}"))
        };
        revisions.push((bed.put(&key, "v").await, key));
    }
    let last = bed.put(&bed.key("last"), "v").await;
    for after in (start.0..last.0).map(Revision) {
        let mut watch = bed.watch(bed.range(), after).await;
        let seen: Vec<_> = signals_until(&mut watch, last).await.iter().map(revision_of).collect();
        let wanted = |(revision, key): &&(Revision, Key)| *revision > after && bed.range().contains(key);
        let mut expected: Vec<_> = revisions.iter().filter(wanted).map(|(revision, _)| *revision).collect();
        expected.push(last);
        assert_eq!(seen, expected, "after {after}");
    }
}

pub(super) async fn a_watch_in_the_future_is_silent_up_to_there(bed: Bed) {
    let start = bed.revision().await;
    let future = Revision(start.0 + 3);
    let mut watch = bed.watch(bed.range(), future).await;
    let mut revisions = Vec::new();
    for i in 0..8 {
        revisions.push(bed.put(&bed.key("a"), &i.to_string()).await);
    }
    let expected: Vec<_> = revisions
        .iter()
        .copied()
        .filter(|revision| *revision > future)
        .collect();
    let last = *expected.last().expect("eight writes pass the third next revision");
    let seen: Vec<_> = signals_until(&mut watch, last).await.iter().map(revision_of).collect();
    assert_eq!(seen, expected);
}

pub(super) async fn each_kind_of_watch_sees_its_keys_only(bed: Bed) {
    let elsewhere = bed.new_plane();
    let keys = [
        bed.key("a"),
        bed.plane.object(&bed.things, Some("n"), "a"),
        bed.plane.object(&bed.things, None, "ns"),
        bed.plane.object(&bed.others, Some("ns"), "a"),
        elsewhere.object(&bed.things, Some("ns"), "a"),
        elsewhere.object(&bed.others, None, "a"),
        bed.key("a-b"),
    ];
    let ranges = [
        KeyRange::All,
        bed.plane.all(),
        bed.plane.resource(&bed.things),
        bed.plane.namespace(&bed.things, "ns"),
        KeyRange::AllPlanes(bed.things.clone()),
        KeyRange::AllPlanes(bed.others.clone()),
        KeyRange::One(keys[0].clone()),
        elsewhere.all(),
    ];
    let start = bed.revision().await;
    let mut watches = Vec::new();
    for range in &ranges {
        watches.push(bed.watch(range.clone(), start).await);
    }
    let mut changes = Vec::new();
    for key in keys.iter().chain(&keys) {
        changes.push((bed.put(key, "v").await, key));
    }
    for range in &ranges {
        watches.push(bed.watch(range.clone(), start).await);
    }
    for (range, watch) in ranges.iter().chain(&ranges).zip(&mut watches) {
        let expected: Vec<_> = changes
            .iter()
            .filter(|(_, key)| range.contains(key))
            .map(|(r, _)| *r)
            .collect();
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            let signal = next(watch).await.unwrap();
            // Others may write to a shared store; only a watch of everything sees that.
            if matches!(&signal, Signal::Event(event) if keys.contains(&event.key)) {
                seen.push(revision_of(&signal));
            } else {
                assert_eq!(*range, KeyRange::All, "{signal:?}");
            }
        }
        assert_eq!(seen, expected, "{range:?}");
    }
}

pub(super) async fn no_gap_and_no_duplicate_under_concurrent_writers(bed: Bed) {
    const WRITERS: usize = 6;
    const EACH: usize = 60;
    const READERS: usize = 12;
    let bed = Arc::new(bed);
    let start = bed.revision().await;
    let end_key = bed.key("end");
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let bed = bed.clone();
            tokio::spawn(async move {
                let mut revisions = Vec::new();
                for i in 0..EACH {
                    let key = bed.key(&format!("k{}", (writer + i) % 5));
                    let other = bed.plane.object(&bed.others, None, &writer.to_string());
                    let writes = vec![put(&key, &i.to_string()), put(&other, "x")];
                    let committed = bed
                        .commit(vec![], writes)
                        .await
                        .expect("a put without comparisons succeeds");
                    revisions.push(committed.revisions[0]);
                }
                revisions
            })
        })
        .collect();
    let (opened, mut all_open) = tokio::sync::mpsc::channel::<()>(1);
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let (bed, end_key, opened) = (bed.clone(), end_key.clone(), opened.clone());
            tokio::spawn(async move {
                // From the beginning, from the middle of the rush, from its newest moment.
                let newest = bed.revision().await;
                let after = Revision(start.0 + (newest.0 - start.0) * (reader as u64 % 3) / 2);
                let mut watch = bed.watch(bed.range(), after).await;
                drop(opened);
                (after, read_to(&mut watch, &end_key).await)
            })
        })
        .collect();
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.expect("a writer does not panic"));
    }
    // The end has to come after every reader's beginning. The channel closes when the last of them has let go of it.
    drop(opened);
    within("opening watches", all_open.recv()).await;
    written.push(bed.put(&end_key, "end").await);
    written.sort();
    for reader in readers {
        let (after, seen) = reader.await.expect("a reader does not panic");
        let expected: Vec<_> = written.iter().copied().filter(|revision| *revision > after).collect();
        assert_eq!(seen, expected, "after {after}");
    }
}

/// Reads revisions up to the event of a key, and checks what `caught_up` says on the way.
async fn read_to(watch: &mut Watch, end: &Key) -> Vec<Revision> {
    let mut seen = Vec::new();
    let mut complete = Revision(0);
    loop {
        let signal = next(watch).await.expect("a watch that is read goes on");
        let revision = revision_of(&signal);
        assert!(
            revision > complete,
            "{revision} came after the watch said it was complete up to {complete}"
        );
        seen.push(revision);
        if let Some(caught_up) = watch.caught_up() {
            assert!(caught_up >= revision, "caught up to {caught_up} behind {revision}");
            complete = caught_up;
        }
        if matches!(&signal, Signal::Event(event) if event.key == *end) {
            return seen;
        }
    }
}

pub(super) async fn a_reader_that_stops_does_not_stop_others(bed: Bed) {
    const EVENTS: usize = 3_000;
    let start = bed.revision().await;
    let mut stuck = bed.watch(bed.range(), start).await;
    let mut reader = bed.watch(bed.range(), start).await;
    let bed = Arc::new(bed);
    let writing = {
        let bed = bed.clone();
        tokio::spawn(async move {
            for i in 0..EVENTS / 10 {
                let keys: Vec<_> = (0..10).map(|n| bed.key(&format!("k{n}"))).collect();
                let value = i.to_string();
                futures::future::join_all(keys.iter().map(|key| bed.put(key, &value))).await;
            }
        })
    };
    let mut seen = Vec::with_capacity(EVENTS);
    while seen.len() < EVENTS {
        seen.push(revision_of(
            &next(&mut reader).await.expect("a reader that keeps up is not cut off"),
        ));
    }
    writing.await.expect("the writer does not panic");
    assert!(seen.is_sorted() && seen.windows(2).all(|pair| pair[0] != pair[1]));
    // The other one gets a beginning of the same, and either the rest or the news that it lost it.
    for revision in seen {
        match next(&mut stuck).await {
            Ok(signal) => assert_eq!(revision_of(&signal), revision),
            Err(WatchError::Lagged) => return,
            Err(other) => panic!("{other:?}"),
        }
    }
}

pub(super) async fn caught_up_moves_on_without_events_and_can_be_resumed_from(bed: Bed) {
    let start = bed.put(&bed.key("a"), "1").await;
    let mut watch = bed.watch(bed.range(), start).await;
    let elsewhere = bed.new_plane().object(&bed.others, None, "busy");
    let mut newest = start;
    for i in 0..5 {
        newest = bed.put(&elsewhere, &i.to_string()).await;
    }
    let caught_up = within("catching up", async {
        loop {
            match watch.caught_up() {
                Some(revision) if revision >= newest => break revision,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    assert!(watch.try_next().is_none(), "events elsewhere are not seen");
    let next_change = bed.put(&bed.key("a"), "2").await;
    assert!(next_change > caught_up);
    let mut resumed = bed.watch(bed.range(), caught_up).await;
    for watch in [&mut watch, &mut resumed] {
        assert_eq!(describe(&next(watch).await.unwrap()), format!("a=2@{next_change}"));
    }
}

pub(super) async fn watches_that_are_ended_can_be_resumed(bed: Bed) {
    let (a, elsewhere) = (bed.key("a"), bed.new_plane());
    let b = elsewhere.object(&bed.things, Some("ns"), "b");
    let start = bed.revision().await;
    let mut inner = bed.watch(bed.range(), start).await;
    let mut wider = bed.watch(KeyRange::AllPlanes(bed.things.clone()), start).await;
    let mut other = bed.watch(elsewhere.all(), start).await;
    let first = bed.put(&a, "1").await;
    assert_eq!(signals_until(&mut inner, first).await.len(), 1);
    bed.store.end_watches(bed.plane.plane());
    let Err(WatchError::Ended(at)) = next(&mut inner).await else {
        panic!("a watch inside the plane ends")
    };
    assert!(at >= first, "{at} is before {first}");
    let (second, last) = (bed.put(&a, "2").await, bed.put(&b, "1").await);
    assert_eq!(signals_until(&mut wider, last).await.len(), 3);
    assert_eq!(signals_until(&mut other, last).await.len(), 1);
    let mut resumed = bed.watch(bed.range(), at).await;
    let said: Vec<_> = signals_until(&mut resumed, second).await.iter().map(describe).collect();
    assert_eq!(said, [format!("a=2@{second}")]);
}
