//! Checks of `get`, `commit` and `status`.

use std::collections::HashSet;

use super::*;

pub(super) async fn a_write_is_seen_by_every_later_read(bed: Bed) {
    let key = bed.key("a");
    assert_eq!(bed.get(&key).await, None, "a new key is absent");
    for value in ["one", "two", "three"] {
        let revision = bed.put(&key, value).await;
        let record = Record {
            value: Bytes::from(value),
            revision,
        };
        assert_eq!(bed.store.get_once(&key).await.unwrap(), Some(record.clone()));
        assert_eq!(bed.get(&key).await, Some(record.clone()));
        let page = bed.page(&bed.range(), None, None, 10).await.unwrap();
        assert_eq!(page.records, [(key.clone(), record)]);
        assert!(page.revision >= revision);
    }
    let revision = bed.delete(&key).await;
    assert_eq!(bed.store.get_once(&key).await.unwrap(), None);
    assert_eq!(bed.get(&key).await, None);
    let page = bed.page(&bed.range(), None, None, 10).await.unwrap();
    assert!(page.records.is_empty() && page.revision >= revision);
}

pub(super) async fn revisions_grow_and_status_names_the_newest(bed: Bed) {
    let mut last = bed.revision().await;
    for i in 0..20 {
        let key = bed.key(&format!("k{}", i % 3));
        let revision = if i % 5 == 4 {
            bed.delete(&key).await
        } else {
            bed.put(&key, "v").await
        };
        assert!(revision > last && revision.0 > 0, "{revision} follows {last}");
        last = bed.revision().await;
        assert!(last >= revision, "the status is not behind an acknowledged write");
    }
}

pub(super) async fn any_bytes_are_kept(bed: Bed) {
    let values = [
        Bytes::new(),
        Bytes::from_static(&[0, 255, 0, 10]),
        Bytes::from(vec![7; 1 << 20]),
        Bytes::from(vec![0; 4096]),
    ];
    for (i, value) in values.iter().enumerate() {
        let key = bed.key(&format!("k{i}"));
        let write = Write::Put {
            key: key.clone(),
            value: value.clone(),
            ttl: None,
        };
        let revision = bed.commit(vec![], vec![write]).await.unwrap().revision;
        assert_eq!(
            bed.get(&key).await,
            Some(Record {
                value: value.clone(),
                revision
            })
        );
    }
    let listed = bed.list(&bed.range(), None, 3).await;
    assert!(listed.iter().map(|(_, record)| &record.value).eq(&values));
}

pub(super) async fn a_comparison_that_holds_lets_the_writes_through(bed: Bed) {
    let key = bed.key("a");
    let created = bed
        .commit(vec![Compare::Absent(key.clone())], vec![put(&key, "1")])
        .await
        .unwrap()
        .revision;
    let unchanged = vec![Compare::Unchanged(key.clone(), created)];
    let updated = bed.commit(unchanged, vec![put(&key, "2")]).await.unwrap().revision;
    for since in [updated, Revision(updated.0 + 1000)] {
        let unchanged = vec![Compare::UnchangedSince(key.clone(), since)];
        bed.commit(unchanged, vec![]).await.unwrap();
    }
    let unchanged = vec![Compare::Unchanged(key.clone(), updated)];
    bed.commit(unchanged, vec![Write::Delete { key: key.clone() }])
        .await
        .unwrap();
    bed.commit(vec![Compare::Absent(key.clone())], vec![put(&key, "3")])
        .await
        .unwrap();
    assert_eq!(bed.texts(&bed.range(), None).await, ["a=3"]);
}

pub(super) async fn a_conflict_names_the_first_failure_and_writes_nothing(bed: Bed) {
    let (a, b, missing) = (bed.key("a"), bed.key("b"), bed.key("missing"));
    let old = bed.put(&a, "old").await;
    let new = bed.put(&a, "new").await;
    let b_revision = bed.put(&b, "b").await;
    let holds = Compare::Unchanged(b.clone(), b_revision);
    let newest = Some(Record {
        value: Bytes::from("new"),
        revision: new,
    });
    let cases = [
        (vec![Compare::Unchanged(a.clone(), old)], 0, newest.clone()),
        (vec![Compare::Absent(a.clone())], 0, newest.clone()),
        (vec![Compare::Unchanged(missing.clone(), old)], 0, None),
        (vec![Compare::UnchangedSince(a.clone(), old)], 0, newest.clone()),
        (vec![Compare::UnchangedSince(missing.clone(), new)], 0, None),
        (
            vec![
                holds.clone(),
                Compare::Unchanged(missing.clone(), old),
                Compare::Absent(a.clone()),
            ],
            1,
            None,
        ),
        (
            vec![
                holds.clone(),
                Compare::Absent(a.clone()),
                Compare::Unchanged(missing.clone(), old),
            ],
            1,
            newest,
        ),
    ];
    for (compares, index, found) in cases {
        let before = bed.list(&bed.range(), None, 10).await;
        let writes = vec![
            put(&missing, "x"),
            Write::Delete {
                key: bed.plane.object(&bed.others, None, "b"),
            },
        ];
        match bed.commit(compares.clone(), writes).await {
            Err(CommitError::Conflict { compare, current }) => {
                assert_eq!((compare, current), (index, found), "{compares:?}");
            }
            other => panic!("{compares:?}: expected a conflict, got {other:?}"),
        }
        assert_eq!(
            bed.list(&bed.range(), None, 10).await,
            before,
            "a conflict writes nothing"
        );
    }
}

pub(super) async fn a_transaction_over_resources_is_whole(bed: Bed) {
    let (thing, other) = (bed.key("a"), bed.plane.object(&bed.others, None, "a"));
    let elsewhere = bed.new_plane().object(&bed.things, Some("ns"), "a");
    let writes = vec![put(&thing, "1"), put(&other, "2"), put(&elsewhere, "3")];
    let committed = bed.commit(vec![Compare::Absent(other.clone())], writes).await.unwrap();
    assert_eq!(committed.revisions.len(), 3);
    assert_eq!(committed.revisions.iter().max(), Some(&committed.revision));
    for (key, revision) in [&thing, &other, &elsewhere].into_iter().zip(&committed.revisions) {
        assert_eq!(bed.get(key).await.unwrap().revision, *revision);
    }
    // The state right after the transaction has all of it, the one right before its first revision nothing.
    let before = Revision(committed.revisions[0].0 - 1);
    assert_eq!(bed.list(&bed.plane.all(), Some(before), 10).await, []);
    assert_eq!(bed.list(&bed.plane.all(), Some(committed.revision), 10).await.len(), 2);
}

pub(super) async fn deleting_what_is_missing_changes_nothing(bed: Bed) {
    let (a, missing) = (bed.key("a"), bed.plane.object(&bed.others, None, "missing"));
    let created = bed.put(&a, "1").await;
    let mut watch = bed.watch(bed.plane.all(), created).await;
    let alone = bed
        .commit(vec![], vec![Write::Delete { key: missing.clone() }])
        .await
        .unwrap();
    assert_eq!(alone.revisions, [alone.revision]);
    assert!(alone.revision >= created);
    let both = bed
        .commit(vec![], vec![Write::Delete { key: missing.clone() }, put(&a, "2")])
        .await
        .unwrap();
    assert_eq!(both.revisions, [both.revision, both.revision]);
    let seen: Vec<_> = signals_until(&mut watch, both.revision)
        .await
        .iter()
        .map(describe)
        .collect();
    assert_eq!(
        seen,
        [format!("a=2@{}", both.revision)],
        "no event for what did not happen"
    );
}

pub(super) async fn a_transaction_of_comparisons_only_changes_nothing(bed: Bed) {
    let a = bed.key("a");
    let created = bed.put(&a, "1").await;
    let committed = bed
        .commit(vec![Compare::Unchanged(a.clone(), created)], vec![])
        .await
        .unwrap();
    assert!(committed.revision >= created && committed.revisions.is_empty());
    let failed = bed.commit(vec![Compare::Absent(a.clone())], vec![]).await;
    assert!(
        matches!(
            failed,
            Err(CommitError::Conflict {
                compare: 0,
                current: Some(_)
            })
        ),
        "{failed:?}"
    );
    assert_eq!(bed.get(&a).await.unwrap().revision, created);
}

pub(super) async fn concurrent_increments_lose_nothing(bed: Bed) {
    const WRITERS: usize = 8;
    const EACH: usize = 15;
    let bed = Arc::new(bed);
    let keys = [bed.key("n"), bed.plane.object(&bed.others, None, "n")];
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (bed, keys) = (bed.clone(), keys.clone());
            tokio::spawn(async move {
                let mut revisions = Vec::new();
                while revisions.len() < EACH {
                    if let Some(revision) = increment(&bed, &keys).await {
                        revisions.push(revision);
                    }
                }
                revisions
            })
        })
        .collect();
    let mut revisions = HashSet::new();
    for writer in writers {
        revisions.extend(writer.await.expect("a writer does not panic"));
    }
    assert_eq!(revisions.len(), WRITERS * EACH, "no two writers won the same revision");
    for key in &keys {
        assert_eq!(text(&bed.get(key).await.unwrap().value), (WRITERS * EACH).to_string());
    }
}

/// Adds one to both keys if neither changed meanwhile.
async fn increment(bed: &Bed, keys: &[Key; 2]) -> Option<Revision> {
    let (mut compares, mut writes) = (Vec::new(), Vec::new());
    for key in keys {
        let current = bed.get(key).await;
        compares.push(match &current {
            Some(record) => Compare::Unchanged(key.clone(), record.revision),
            None => Compare::Absent(key.clone()),
        });
        let number = current.map_or(0, |record| {
            text(&record.value).parse::<usize>().expect("a number was put")
        });
        writes.push(put(key, &(number + 1).to_string()));
    }
    match bed.commit(compares, writes).await {
        Ok(committed) => Some(committed.revision),
        Err(CommitError::Conflict { .. }) => None,
        Err(other) => panic!("{other:?}"),
    }
}

pub(super) async fn an_abandoned_commit_is_whole_or_absent(bed: Bed) {
    let (a, b) = (bed.key("a"), bed.plane.object(&bed.others, None, "b"));
    for i in 0..30 {
        let value = i.to_string();
        let txn = Txn {
            compares: vec![],
            writes: vec![put(&a, &value), put(&b, &value)],
        };
        let store = bed.store.clone();
        let committing = tokio::spawn(async move { store.commit(txn).await });
        if i % 2 == 0 {
            tokio::task::yield_now().await;
        }
        committing.abort();
        let _ = committing.await;
    }
    // A later write of the same keys is behind all of them, whatever became of them.
    bed.put(&bed.key("barrier"), "x").await;
    let listed = bed.list(&bed.plane.all(), None, 10).await;
    let values: HashSet<_> = listed
        .iter()
        .filter(|(key, _)| key.name() != "barrier")
        .map(|(_, record)| text(&record.value))
        .collect();
    assert!(
        values.len() <= 1,
        "both keys have the value of one transaction: {listed:?}"
    );
}

pub(super) async fn a_time_to_live_ends_in_a_delete_event(bed: Bed) {
    let (short, keeps) = (bed.key("short"), bed.key("keeps"));
    bed.put(&keeps, "1").await;
    let ttl = Some(Duration::from_secs(1));
    let write = Write::Put {
        key: short.clone(),
        value: Bytes::from("2"),
        ttl,
    };
    let created = bed.commit(vec![], vec![write]).await.unwrap().revision;
    let mut watch = bed.watch(bed.range(), created).await;
    let signal = next(&mut watch).await.unwrap();
    let Signal::Event(event) = &signal else {
        panic!("{signal:?}")
    };
    assert_eq!(describe(&signal), format!("short-@{}", event.revision));
    assert_eq!(
        event.previous,
        Some(Record {
            value: Bytes::from("2"),
            revision: created
        })
    );
    assert_eq!(bed.texts(&bed.range(), None).await, ["keeps=1"]);
}

pub(super) async fn a_later_put_replaces_the_time_to_live(bed: Bed) {
    let (kept, gone) = (bed.key("kept"), bed.key("gone"));
    let ttl = Some(Duration::from_secs(1));
    for key in [&kept, &gone] {
        let write = Write::Put {
            key: key.clone(),
            value: Bytes::from("short"),
            ttl,
        };
        bed.commit(vec![], vec![write]).await.unwrap();
    }
    let after = bed.put(&kept, "for good").await;
    let mut watch = bed.watch(bed.range(), after).await;
    let signal = next(&mut watch).await.unwrap();
    assert!(describe(&signal).starts_with("gone-@"), "{signal:?}");
    assert_eq!(bed.texts(&bed.range(), None).await, ["kept=for good"]);
}
