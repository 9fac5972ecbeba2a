//! Checks of `advance`. A store that cannot skip revisions says so, and is as it was.

use super::*;
use crate::store::FARTHEST;

/// Far enough that no check which shares the store gets there by writing.
const JUMP: u64 = 1_000_000;

/// `None` if the store cannot skip revisions: then its revisions go on one by one.
async fn advance(bed: &Bed, to: Revision) -> Option<Revision> {
    match within("an advance", bed.store.advance(to)).await {
        Ok(newest) => {
            assert!(newest >= to, "{newest} is before {to}");
            assert!(bed.revision().await >= newest, "what was said is so");
            Some(newest)
        }
        Err(AdvanceError::Unsupported) => {
            assert!(bed.revision().await < to, "nothing was skipped");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub(super) async fn advancing_skips_revisions_and_changes_nothing(bed: Bed) {
    let (a, b) = (bed.key("a"), bed.key("b"));
    bed.put(&a, "1").await;
    let before = bed.put(&b, "1").await;
    let to = Revision(before.0 + JUMP);
    let Some(newest) = advance(&bed, to).await else { return };
    assert_eq!(bed.get(&b).await.map(|record| record.revision), Some(before));
    for at in [
        before,
        Revision(before.0 + 1),
        Revision(before.0 + JUMP / 2),
        to,
        newest,
    ] {
        assert_eq!(bed.texts(&bed.range(), Some(at)).await, ["a=1", "b=1"], "at {at}");
    }
    let page = bed.page(&bed.range(), None, None, 10).await.unwrap();
    assert!(page.revision >= to, "a page names the newest revision");
    let held = Compare::Unchanged(b.clone(), before);
    let after = bed.commit(vec![held], vec![put(&b, "2")]).await.unwrap().revision;
    assert!(after > newest, "{after} is not after {newest}");
    assert_eq!(bed.texts(&bed.range(), Some(to)).await, ["a=1", "b=1"]);
    assert_eq!(bed.texts(&bed.range(), Some(after)).await, ["a=1", "b=2"]);
}

pub(super) async fn advancing_twice_or_backwards_changes_nothing(bed: Bed) {
    let first = bed.put(&bed.key("a"), "1").await;
    let to = Revision(first.0 + JUMP);
    let Some(newest) = advance(&bed, to).await else { return };
    for again in [to, first, Revision(1), newest] {
        let newest = advance(&bed, again).await.expect("it could before");
        assert!(newest.0 < to.0 + JUMP, "{newest} is far beyond {to}");
    }
    let next = bed.put(&bed.key("a"), "2").await;
    assert!(next > newest && next.0 < to.0 + JUMP, "{next} follows {newest}");
}

pub(super) async fn a_watch_goes_on_over_skipped_revisions(bed: Bed) {
    let a = bed.key("a");
    let start = bed.revision().await;
    let mut open = bed.watch(bed.range(), start).await;
    let first = bed.put(&a, "1").await;
    let Some(newest) = advance(&bed, Revision(first.0 + JUMP)).await else {
        return;
    };
    let mut between = bed.watch(bed.range(), Revision(first.0 + JUMP / 2)).await;
    let last = bed.put(&a, "2").await;
    let expected = [format!("a=1@{first}"), format!("a=2@{last}")];
    let mut resumed = bed.watch(bed.range(), start).await;
    for watch in [&mut open, &mut resumed] {
        let said: Vec<_> = signals_until(watch, last).await.iter().map(describe).collect();
        assert_eq!(said, expected);
    }
    let said: Vec<_> = signals_until(&mut between, last).await.iter().map(describe).collect();
    assert_eq!(said, expected[1..]);
    let mut after = bed.watch(bed.range(), newest).await;
    assert_eq!(signals_until(&mut after, last).await.len(), 1);
}

pub(super) async fn no_revision_is_too_far_to_be_refused(bed: Bed) {
    let before = bed.put(&bed.key("a"), "1").await;
    for to in [Revision(FARTHEST.0 + 1), Revision(u64::MAX)] {
        let refused = within("an advance", bed.store.advance(to)).await;
        assert!(
            matches!(refused, Err(AdvanceError::TooFar | AdvanceError::Unsupported)),
            "{refused:?}"
        );
    }
    let after = bed.put(&bed.key("a"), "2").await;
    assert!(after > before && after < FARTHEST);
}
