//! JSON patch, merge patch and strategic merge patch.

use mica_machinery::patch::{self, PatchError, Strictness};
use mica_machinery::{codec, strategic};
use serde_json::Value;

use crate::{SLACK, built_in, line, parts};

/// A document and a patch.
fn document_and_patch(data: &[u8]) -> Option<(&[u8], &[u8])> {
    match parts(data)[..] {
        [document, patch, ..] => Some((document, patch)),
        _ => None,
    }
}

/// Sizes stay in proportion, and what comes out of JSON is JSON.
fn check(document: &[u8], patch: &[u8], patched: &[u8]) {
    let most = 6 * (document.len() + patch.len()) + patch::MAX_COPIED_BYTES + SLACK;
    assert!(
        patched.len() <= most,
        "{} bytes of {}",
        patched.len(),
        document.len() + patch.len()
    );
    if serde_json::from_slice::<&serde_json::value::RawValue>(document).is_ok() {
        let read = serde_json::from_slice::<serde::de::IgnoredAny>(patched);
        assert!(read.is_ok(), "{}", String::from_utf8_lossy(patched));
    }
}

/// A document, then a list of operations.
pub fn json_patch(data: &[u8]) {
    let Some((document, operations)) = document_and_patch(data) else {
        return;
    };
    let strict = patch::json_patch(document, operations, Strictness::Report);
    let loose = patch::json_patch(document, operations, Strictness::Ignore);
    match (strict, loose) {
        (Ok(strict), Ok(loose)) => {
            assert_eq!(strict.document, loose.document);
            check(document, operations, &loose.document);
        }
        (Err(_), _) => {}
        (Ok(_), Err(error)) => panic!("reporting makes nothing right: {error}"),
    }
}

/// A document, then a merge patch.
pub fn merge_patch(data: &[u8]) {
    let Some((document, changes)) = document_and_patch(data) else {
        return;
    };
    let _ = patch::merge_patch(document, changes, Strictness::Report);
    let once = match patch::merge_patch(document, changes, Strictness::Ignore) {
        Ok(once) => once.document,
        Err(PatchError::BadRequest(_)) => return,
        Err(error) => panic!("a merge has no such error: {error}"),
    };
    check(document, changes, &once);
    let is_object = |data: &[u8]| data.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if is_object(&once) {
        let twice = patch::merge_patch(&once, changes, Strictness::Ignore).expect("it applied once");
        let [once, twice] = [&once, &twice.document].map(|text| codec::decode_untyped(text).ok().map(|d| d.value));
        assert_eq!(twice, once, "merging is idempotent");
    }
}

/// A kind on the first line and a document of it, then a patch.
pub fn strategic_patch(data: &[u8]) {
    let Some((document, changes)) = document_and_patch(data) else {
        return;
    };
    let (name, document) = line(document);
    let kind = built_in(name);
    let Ok(document) = codec::decode(kind.ty, document) else {
        return;
    };
    for strictness in [Strictness::Report, Strictness::Ignore] {
        let Ok(merged) = strategic::strategic_merge(kind.ty, &document.value, changes, strictness) else {
            continue;
        };
        let _ = merged.refusal();
        let mut out = Vec::new();
        codec::encode(kind.ty, &merged.value, &mut out);
        let again = codec::decode(kind.ty, &out).expect("what was merged can be read").value;
        let typed = |value: &Value| {
            let mut value = value.clone();
            let map = value.as_object_mut().expect("an object");
            map.remove("apiVersion");
            map.remove("kind");
            value
        };
        assert_eq!(typed(&again), typed(&merged.value), "a merged object is in normal form");
    }
}
