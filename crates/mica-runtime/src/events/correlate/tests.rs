//! The rules of correlation, by a clock that the tests move.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;

use super::super::Event;
use super::*;

fn client() -> kube::Client {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is there"))
    });
    kube::Client::new(service, "default")
}

fn said(client: &kube::Client, object: &str, note: &str) -> Said {
    Said {
        cluster: ClusterName::new("a"),
        client: client.clone(),
        controller: "demo".into(),
        instance: "demo-0".into(),
        regarding: Arc::new(ObjectReference {
            name: Some(object.to_owned()),
            ..ObjectReference::default()
        }),
        event: Event::new(Severity::Normal, "Synced", note),
    }
}

fn hear(correlator: &mut Correlator, said: &Said, now: Instant) -> &'static str {
    match correlator.hear(said, || "x.1".to_owned(), now) {
        Verdict::Create { key, .. } => {
            correlator.wrote(&key, Ok(()));
            "create"
        }
        Verdict::Repeat { key, .. } => {
            correlator.wrote(&key, Ok(()));
            "repeat"
        }
        Verdict::Fold => "fold",
        Verdict::Drop => "drop",
    }
}

#[tokio::test]
async fn what_repeats_becomes_a_series_that_is_written_now_and_then() {
    let (client, start, mut correlator) = (client(), Instant::now(), Correlator::default());
    let one = said(&client, "x", "Copied.");
    for (second, verdict) in [
        (0, "create"),
        (1, "repeat"),
        (2, "fold"),
        (10, "fold"),
        (11, "repeat"),
        (12, "fold"),
        (12 + 360, "create"),
    ] {
        let now = start + Duration::from_secs(second);
        assert_eq!(hear(&mut correlator, &one, now), verdict, "at {second} s");
    }
}

#[tokio::test]
async fn a_series_counts_what_was_folded_and_is_written_one_at_a_time() {
    let (client, start, mut correlator) = (client(), Instant::now(), Correlator::default());
    let one = said(&client, "x", "Copied.");
    let Verdict::Create { key, .. } = correlator.hear(&one, || "x.1".to_owned(), start) else {
        panic!("the first is new");
    };
    let second = correlator.hear(&one, || "x.2".to_owned(), start);
    assert_eq!(second, Verdict::Fold, "the first is not written yet");
    correlator.wrote(&key, Ok(()));
    let later = start + SERIES_WRITTEN;
    let third = correlator.hear(&one, || "x.3".to_owned(), later);
    let repeat = Verdict::Repeat {
        key: key.clone(),
        name: "x.1".to_owned(),
        count: 3,
    };
    assert_eq!(third, repeat);
    correlator.wrote(&key, Err(()));
    assert_eq!(hear(&mut correlator, &one, later), "create", "what failed is forgotten");
}

#[tokio::test]
async fn many_notes_under_one_reason_are_combined() {
    let (client, now, mut correlator) = (client(), Instant::now(), Correlator::default());
    for i in 0..NOTES_APART {
        assert_eq!(
            hear(&mut correlator, &said(&client, "x", &format!("Copied {i}.")), now),
            "create"
        );
    }
    let combined = correlator.hear(&said(&client, "x", "Copied on."), || "x.1".to_owned(), now);
    let Verdict::Create { key, note, .. } = combined else {
        panic!("{combined:?} begins a series");
    };
    assert_eq!(note, "(combined from similar events): Copied on.");
    correlator.wrote(&key, Ok(()));
    assert_eq!(hear(&mut correlator, &said(&client, "x", "And on."), now), "repeat");
    let known = said(&client, "x", "Copied 3.");
    assert_eq!(
        hear(&mut correlator, &known, now),
        "repeat",
        "one that was told apart stays apart"
    );
    assert_eq!(
        hear(&mut correlator, &said(&client, "y", "Copied on."), now),
        "create",
        "another object"
    );
}

#[tokio::test]
async fn an_object_about_which_too_much_is_said_is_heard_less() {
    let (client, start, mut correlator) = (client(), Instant::now(), Correlator::default());
    let reason = |i: u32| {
        let mut said = said(&client, "x", "Copied.");
        said.event.reason = format!("Reason{i}");
        said
    };
    for i in 0..BURST {
        assert_eq!(hear(&mut correlator, &reason(i), start), "create");
    }
    assert_eq!(hear(&mut correlator, &reason(BURST), start), "drop");
    assert_eq!(
        hear(&mut correlator, &said(&client, "y", "Copied."), start),
        "create",
        "others are heard"
    );
    let later = start + REFILL;
    assert_eq!(hear(&mut correlator, &reason(BURST), later), "create");
    assert_eq!(hear(&mut correlator, &reason(BURST + 1), later), "drop");
}

#[tokio::test]
async fn what_is_remembered_is_bounded() {
    let (client, start, mut correlator) = (client(), Instant::now(), Correlator::default());
    for i in 0..MOST_KNOWN * 2 {
        let now = start + Duration::from_millis(i as u64);
        hear(&mut correlator, &said(&client, &format!("x-{i}"), "Copied."), now);
    }
    for known in [
        correlator.series.len(),
        correlator.notes.len(),
        correlator.buckets.len(),
    ] {
        assert!(known <= MOST_KNOWN, "{known}");
    }
    let last = said(&client, &format!("x-{}", MOST_KNOWN * 2 - 1), "Copied.");
    let now = start + Duration::from_secs(60);
    assert_eq!(
        hear(&mut correlator, &last, now),
        "repeat",
        "what is recent is remembered"
    );
}
