//! Checks of `range` and `usage`.

use std::collections::BTreeMap;

use super::*;
use crate::store::Usage;

/// Names whose order by key differs from their order by name alone, in namespaces that are beginnings of each other.
const PLACES: [(Option<&str>, &str); 9] = [
    (None, "a"),
    (None, "a-b"),
    (Some("a"), "x"),
    (Some("a-b"), "x"),
    (Some("a"), "x.y"),
    (Some("ab"), "x"),
    (Some("a"), "x-y"),
    (Some("b"), "system:colon"),
    (None, "z"),
];

pub(super) async fn every_kind_of_range_holds_its_keys_in_order(bed: Bed) {
    let other_plane = bed.new_plane();
    let longer = GroupResource::new("", &format!("{}s", bed.things.resource()));
    let mut keys = Vec::new();
    for plane in [bed.plane, other_plane] {
        for resource in [&bed.things, &bed.others, &longer] {
            keys.extend(
                PLACES
                    .iter()
                    .map(|(namespace, name)| plane.object(resource, *namespace, name)),
            );
        }
    }
    for key in &keys {
        bed.put(key, key.as_str()).await;
    }
    keys.sort();
    let ranges = [
        bed.plane.all(),
        bed.plane.resource(&bed.things),
        bed.plane.resource(&bed.others),
        bed.plane.namespace(&bed.things, "a"),
        bed.plane.namespace(&bed.things, "nothing"),
        KeyRange::AllPlanes(bed.things.clone()),
        KeyRange::AllPlanes(longer),
        KeyRange::One(keys[3].clone()),
        KeyRange::One(bed.key("nothing")),
        other_plane.all(),
        bed.new_plane().all(),
    ];
    for range in &ranges {
        let expected: Vec<_> = keys.iter().filter(|key| range.contains(key)).cloned().collect();
        for limit in [1, 2, 7, 1000] {
            let listed = bed.list(range, None, limit).await;
            assert!(listed.iter().all(|(key, record)| text(&record.value) == key.as_str()));
            let listed: Vec<_> = listed.into_iter().map(|(key, _)| key).collect();
            assert_eq!(listed, expected, "{range:?} in pages of {limit}");
        }
    }
    // `All` may hold anything else besides, but between two of our plane's keys only ours.
    let ours: Vec<_> = keys.iter().filter(|key| key.plane() == bed.plane.plane()).collect();
    let page = bed
        .page(&KeyRange::All, None, Some(ours[0]), ours.len() - 1)
        .await
        .unwrap();
    assert!(page.records.iter().map(|(key, _)| key).eq(ours[1..].iter().copied()));
}

pub(super) async fn pages_follow_each_other_without_gap_or_overlap(bed: Bed) {
    for i in 0..10 {
        bed.put(&bed.key(&format!("k{i}")), &i.to_string()).await;
    }
    let range = bed.range();
    let names = |page: &Page| {
        page.records
            .iter()
            .map(|(key, _)| key.name().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let first = bed.page(&range, None, None, 4).await.unwrap();
    assert_eq!((names(&first).as_str(), first.more), ("k0 k1 k2 k3", true));
    let second = bed
        .page(&range, Some(first.revision), Some(&bed.key("k3")), 4)
        .await
        .unwrap();
    assert_eq!((names(&second).as_str(), second.more), ("k4 k5 k6 k7", true));
    let last = bed
        .page(&range, Some(first.revision), Some(&bed.key("k7")), 4)
        .await
        .unwrap();
    assert_eq!((names(&last).as_str(), last.more), ("k8 k9", false));
    let exact = bed.page(&range, None, Some(&bed.key("k5")), 4).await.unwrap();
    assert_eq!(
        (names(&exact).as_str(), exact.more),
        ("k6 k7 k8 k9", false),
        "nothing follows a page that just fits"
    );
    let between = bed.page(&range, None, Some(&bed.key("k55")), 1).await.unwrap();
    assert_eq!(
        (names(&between).as_str(), between.more),
        ("k6", true),
        "`after` need not exist"
    );
    let beyond = bed.page(&range, None, Some(&bed.key("z")), 4).await.unwrap();
    assert_eq!((names(&beyond).as_str(), beyond.more), ("", false));
    let foreign = bed.plane.object(&bed.things, None, "a");
    let from_outside = bed
        .page(&bed.plane.namespace(&bed.things, "ns"), None, Some(&foreign), 1)
        .await
        .unwrap();
    assert_eq!(names(&from_outside), "k0", "`after` may lie before the range");
}

pub(super) async fn a_page_names_the_newest_revision_even_if_the_range_is_old(bed: Bed) {
    bed.put(&bed.key("a"), "1").await;
    let elsewhere = bed.new_plane().object(&bed.others, None, "b");
    let newest = bed.put(&elsewhere, "2").await;
    let page = bed.page(&bed.range(), None, None, 10).await.unwrap();
    assert!(page.revision >= newest, "{} is behind {newest}", page.revision);
    let empty = bed.page(&bed.new_plane().all(), None, None, 10).await.unwrap();
    assert!(empty.records.is_empty() && empty.revision >= newest);
}

pub(super) async fn a_past_revision_is_read_as_it_was(bed: Bed) {
    let mut state: BTreeMap<Key, Record> = BTreeMap::new();
    let mut states = vec![(bed.revision().await, state.clone())];
    for step in 0..40_usize {
        let key = bed.key(&format!("k{}", step * 7 % 5));
        let revision = if step % 4 == 3 && state.contains_key(&key) {
            state.remove(&key);
            bed.delete(&key).await
        } else {
            let value = step.to_string();
            let revision = bed.put(&key, &value).await;
            state.insert(
                key,
                Record {
                    value: Bytes::from(value),
                    revision,
                },
            );
            revision
        };
        states.push((revision, state.clone()));
    }
    for (revision, state) in &states {
        let expected: Vec<_> = state.clone().into_iter().collect();
        for range in [bed.range(), bed.plane.all(), KeyRange::AllPlanes(bed.things.clone())] {
            assert_eq!(
                bed.list(&range, Some(*revision), 2).await,
                expected,
                "{range:?} at {revision}"
            );
        }
        let one = bed.key("k0");
        let expected: Vec<_> = state
            .get(&one)
            .map(|record| (one.clone(), record.clone()))
            .into_iter()
            .collect();
        assert_eq!(bed.list(&KeyRange::One(one), Some(*revision), 1).await, expected);
    }
}

pub(super) async fn pages_of_one_revision_do_not_see_later_writes(bed: Bed) {
    for i in 0..20 {
        bed.put(&bed.key(&format!("k{i:02}")), "old").await;
    }
    let range = bed.range();
    let before = bed.list(&range, None, 100).await;
    let first = bed.page(&range, None, None, 5).await.unwrap();
    let mut paged = first.records.clone();
    for i in 0..20 {
        let key = bed.key(&format!("k{i:02}"));
        if i % 2 == 0 {
            bed.delete(&key).await
        } else {
            bed.put(&key, "new").await
        };
        bed.put(&bed.key(&format!("k{i:02}-more")), "new").await;
        if i % 5 == 4 && paged.len() < 20 {
            let after = paged.last().expect("the first page is not empty").0.clone();
            let page = bed.page(&range, Some(first.revision), Some(&after), 5).await.unwrap();
            assert_eq!(page.more, paged.len() + page.records.len() < 20);
            paged.extend(page.records);
        }
    }
    assert_eq!(paged, before);
}

pub(super) async fn a_future_revision_cannot_be_read(bed: Bed) {
    let newest = bed.put(&bed.key("a"), "1").await;
    let far = Revision(newest.0 + 1_000_000);
    match bed.page(&bed.range(), Some(far), None, 10).await {
        Err(ReadError::Future { current }) => assert!(current >= newest && current < far),
        other => panic!("{other:?}"),
    }
    match bed.store.count(&bed.range(), Some(far), None).await {
        Err(ReadError::Future { current }) => assert!(current >= newest && current < far),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn usage_counts_records_and_bytes(bed: Bed) {
    let usage = |range: KeyRange| {
        let store = bed.store.clone();
        async move {
            within("usage", store.usage(&range))
                .await
                .expect("usage can be counted")
        }
    };
    assert_eq!(usage(bed.plane.all()).await, Usage::default());
    let (a, b, other) = (bed.key("a"), bed.key("b"), bed.plane.object(&bed.others, None, "c"));
    let bytes = |key: &Key, value: &str| (key.as_str().len() + value.len()) as u64;
    for (key, value) in [(&a, "first"), (&a, "12345678"), (&b, "gone"), (&other, "x")] {
        bed.put(key, value).await;
    }
    bed.delete(&b).await;
    let (in_a, in_other) = (bytes(&a, "12345678"), bytes(&other, "x"));
    assert_eq!(
        usage(bed.plane.all()).await,
        Usage {
            records: 2,
            bytes: in_a + in_other
        }
    );
    assert_eq!(
        usage(bed.range()).await,
        Usage {
            records: 1,
            bytes: in_a
        }
    );
    assert_eq!(
        usage(bed.plane.namespace(&bed.things, "ns")).await,
        Usage {
            records: 1,
            bytes: in_a
        }
    );
    assert_eq!(
        usage(KeyRange::AllPlanes(bed.others.clone())).await,
        Usage {
            records: 1,
            bytes: in_other
        }
    );
    assert_eq!(usage(KeyRange::One(b)).await, Usage::default());
}
