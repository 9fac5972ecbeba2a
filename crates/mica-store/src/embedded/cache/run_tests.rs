//! Tests of runs: what is found, and that a change leaves nothing stale.

use mica_api::GroupResource;

use super::*;
use crate::key::PlaneKeys;

const KEYS: PlaneKeys = PlaneKeys::ROOT;

fn things() -> GroupResource {
    GroupResource::new("", "things")
}

fn key(namespace: &str, name: &str) -> Key {
    KEYS.object(&things(), Some(namespace), name)
}

fn records(keys: &[Key]) -> Vec<(Key, Record)> {
    let record = Record {
        value: bytes::Bytes::from_static(b"value"),
        revision: Revision(1),
    };
    keys.iter().map(|key| (key.clone(), record.clone())).collect()
}

fn resource() -> KeyRange {
    KEYS.resource(&things())
}

fn namespace(name: &str) -> KeyRange {
    KEYS.namespace(&things(), name)
}

/// Keeps a page of a range as if it had been read at `seen`.
fn keep(runs: &mut Runs, range: &KeyRange, after: Option<&Key>, keys: &[Key], next: Option<&Key>, seen: u64) {
    let records = records(keys);
    let read = Read {
        records: &records,
        next: next.cloned(),
        value_bytes: 5 * keys.len(),
    };
    runs.keep(&Span::of(range, after).unwrap(), &read, Revision(seen));
}

fn page(runs: &mut Runs, range: &KeyRange, after: Option<&Key>, at: u64, limit: usize) -> Option<(String, bool)> {
    let (records, more) = runs.page(&Span::of(range, after)?, Revision(at), limit)?;
    let names: Vec<_> = records.iter().map(|(key, _)| key.rest().to_owned()).collect();
    Some((names.join(" "), more))
}

fn found(names: &str, more: bool) -> Option<(String, bool)> {
    Some((names.to_owned(), more))
}

/// Two runs of one collection: a/1 a/2 | b/1 c/1.
fn two_runs() -> (Runs, [Key; 4]) {
    let keys = [key("a", "1"), key("a", "2"), key("b", "1"), key("c", "1")];
    let mut runs = Runs::new(1 << 20);
    keep(&mut runs, &resource(), None, &keys[..2], Some(&keys[2]), 10);
    keep(&mut runs, &resource(), Some(&keys[1]), &keys[2..], None, 10);
    (runs, keys)
}

#[test]
fn pages_of_any_size_and_of_narrower_ranges_come_from_runs() {
    let (mut runs, keys) = two_runs();
    let mut check = |range: &KeyRange, after: Option<&Key>, limit: usize, expected: Option<(String, bool)>| {
        assert_eq!(
            page(&mut runs, range, after, 10, limit),
            expected,
            "{range:?} {after:?} {limit}"
        );
    };
    check(&resource(), None, 1, found("a/1", true));
    check(&resource(), None, 9, found("a/1 a/2", true));
    check(&resource(), Some(&keys[0]), 9, found("a/2", true));
    check(&resource(), Some(&keys[1]), 9, found("b/1 c/1", false));
    check(&resource(), Some(&keys[1]), 1, found("b/1", true));
    check(&resource(), Some(&keys[3]), 1, found("", false));
    check(&namespace("a"), None, 1, found("a/1", true));
    check(&namespace("a"), None, 2, found("a/1 a/2", false));
    check(&namespace("b"), None, 2, found("b/1", false));
    check(&namespace("bb"), None, 2, found("", false));
    check(&namespace("z"), None, 2, found("", false));
    check(&KEYS.all(), None, 2, None);
    let span = |range: &KeyRange, after| Span::of(range, after).unwrap();
    assert_eq!(runs.count(&span(&resource(), None), Revision(10)), Some(4));
    assert_eq!(runs.count(&span(&resource(), Some(&keys[0])), Revision(10)), Some(3));
    assert_eq!(runs.count(&span(&namespace("a"), None), Revision(10)), Some(2));
    assert_eq!(runs.count(&span(&namespace("a"), None), Revision(9)), None);
}

#[test]
fn a_run_does_not_answer_for_revisions_before_it_was_read() {
    let (mut runs, _) = two_runs();
    assert_eq!(page(&mut runs, &resource(), None, 9, 9), None);
    assert_eq!(page(&mut runs, &resource(), None, 99, 1), found("a/1", true));
}

#[test]
fn a_change_takes_out_its_run_and_no_other() {
    let (mut runs, keys) = two_runs();
    runs.forget(&key("c", "0"), Revision(11));
    assert_eq!(page(&mut runs, &resource(), None, 11, 9), found("a/1 a/2", true));
    assert_eq!(page(&mut runs, &resource(), Some(&keys[1]), 11, 9), None);
    runs.forget(&keys[0], Revision(12));
    assert_eq!(page(&mut runs, &resource(), None, 12, 9), None);
    assert_eq!(runs.bytes(), 0);
}

#[test]
fn whether_more_follows_is_never_stale() {
    let (mut runs, keys) = two_runs();
    runs.forget(&keys[2], Revision(11));
    assert_eq!(
        page(&mut runs, &resource(), None, 11, 9),
        None,
        "b/1 may be gone, and nothing else follow"
    );
}

#[test]
fn what_was_touched_while_it_was_read_is_not_kept() {
    let keys = [key("a", "1"), key("a", "2")];
    let next = key("b", "1");
    for (touched, kept) in [
        (keys[0].clone(), false),
        (key("a", "15"), false),
        (next.clone(), false),
        (key("b", "2"), true),
    ] {
        let mut runs = Runs::new(1 << 20);
        runs.forget(&touched, Revision(11));
        keep(&mut runs, &resource(), None, &keys, Some(&next), 10);
        assert_eq!(page(&mut runs, &resource(), None, 11, 9).is_some(), kept, "{touched:?}");
    }
    let mut runs = Runs::new(1 << 20);
    runs.forget_plane(KEYS.plane(), Revision(11));
    keep(&mut runs, &resource(), None, &keys, Some(&next), 10);
    assert_eq!(page(&mut runs, &resource(), None, 11, 9), None);
    for i in 0..=RECENT {
        runs.forget(&key("z", "z"), Revision(20 + i as u64));
    }
    keep(&mut runs, &resource(), None, &keys, Some(&next), 19);
    assert_eq!(
        page(&mut runs, &resource(), None, 9999, 9),
        None,
        "nobody knows what happened since"
    );
}

#[test]
fn a_dropped_plane_takes_its_runs_along() {
    let (mut runs, _) = two_runs();
    runs.forget_plane(PlaneId::from_random(5), Revision(11));
    assert!(page(&mut runs, &resource(), None, 11, 9).is_some());
    runs.forget_plane(KEYS.plane(), Revision(12));
    assert_eq!((page(&mut runs, &resource(), None, 12, 9), runs.bytes()), (None, 0));
}

#[test]
fn runs_never_overlap() {
    let (mut runs, keys) = two_runs();
    keep(&mut runs, &resource(), Some(&keys[0]), &keys[1..3], Some(&keys[3]), 12);
    assert_eq!(page(&mut runs, &resource(), None, 12, 9), None);
    assert_eq!(
        page(&mut runs, &resource(), Some(&keys[0]), 12, 9),
        found("a/2 b/1", true)
    );
    assert_eq!(page(&mut runs, &resource(), Some(&keys[2]), 12, 9), None);
    assert_eq!(runs.runs.len(), 1);
}

#[test]
fn memory_stays_within_the_budget_and_what_is_used_stays() {
    let budget = 1 << 20;
    let mut runs = Runs::new(budget);
    let used = [key("used", "1")];
    keep(&mut runs, &namespace("used"), None, &used, None, 1);
    for i in 0..5000 {
        let name = format!("n{i}");
        let keys: Vec<_> = (0..10).map(|j| key(&name, &format!("{j:02}"))).collect();
        keep(&mut runs, &namespace(&name), None, &keys, None, 1);
        assert!(
            page(&mut runs, &namespace("used"), None, 1, 9).is_some(),
            "lost after {i}"
        );
        if i % 3 == 0 {
            runs.forget(&keys[3], Revision(1));
        }
        assert!(runs.bytes() <= budget && runs.queue.len() <= 2 * runs.runs.len() + 65);
    }
    assert!(runs.bytes() > budget / 2);
    assert_eq!(runs.runs.values().map(|run| run.bytes).sum::<usize>(), runs.bytes());
}
