//! Which changes are worth a reconcile.
//!
//! Predicates cut reconciles, not memory: what is kept, [`Select`](crate::source::Select) says. What was deleted, and what is
//! seen for the first time, passes all of those here.

use kube::Resource;
use kube::api::ObjectMeta;

use crate::store::Change;

/// Decides on a change. Any `Fn(&Change<K>) -> bool` is one.
pub trait Predicate<K>: Send + Sync + 'static {
    fn passes(&self, change: &Change<K>) -> bool;

    /// Passes what passes this one, or the other.
    fn or<P: Predicate<K>>(self, other: P) -> impl Predicate<K>
    where
        Self: Sized,
        K: 'static,
    {
        move |change: &Change<K>| self.passes(change) || other.passes(change)
    }

    /// Passes what passes both.
    fn and<P: Predicate<K>>(self, other: P) -> impl Predicate<K>
    where
        Self: Sized,
        K: 'static,
    {
        move |change: &Change<K>| self.passes(change) && other.passes(change)
    }
}

impl<K, F: Fn(&Change<K>) -> bool + Send + Sync + 'static> Predicate<K> for F {
    fn passes(&self, change: &Change<K>) -> bool {
        self(change)
    }
}

/// Not changes of the status alone, nor of metadata: those leave the generation as it is. The beginning of a deletion
/// passes.
pub fn generation_changed<K: Resource + 'static>() -> impl Predicate<K> {
    differs(|meta| (meta.generation, meta.deletion_timestamp.is_some()))
}

pub fn labels_changed<K: Resource + 'static>() -> impl Predicate<K> {
    differs(|meta| meta.labels.clone().unwrap_or_default())
}

pub fn annotations_changed<K: Resource + 'static>() -> impl Predicate<K> {
    differs(|meta| meta.annotations.clone().unwrap_or_default())
}

pub fn finalizers_changed<K: Resource + 'static>() -> impl Predicate<K> {
    differs(|meta| meta.finalizers.clone().unwrap_or_default())
}

/// Objects with this label, or that had it until now.
pub fn has_label<K: Resource + 'static>(key: impl Into<String>, value: impl Into<String>) -> impl Predicate<K> {
    let (key, value) = (key.into(), value.into());
    move |change: &Change<K>| {
        let mut versions = change.old().into_iter().chain(change.new());
        versions.any(|object| {
            let labels = object.meta().labels.as_ref();
            labels.and_then(|labels| labels.get(&key)) == Some(&value)
        })
    }
}

/// Passes if a part of the metadata is another one, or the object is.
fn differs<K: Resource + 'static, T: PartialEq>(
    part: impl Fn(&ObjectMeta) -> T + Send + Sync + 'static,
) -> impl Predicate<K> {
    move |change: &Change<K>| match change {
        Change::Added(_) | Change::Deleted(_) => true,
        Change::Updated { old, new } => old.meta().uid != new.meta().uid || part(old.meta()) != part(new.meta()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(generation: i64, label: &str, uid: &str) -> Arc<ConfigMap> {
        Arc::new(ConfigMap {
            metadata: ObjectMeta {
                generation: Some(generation),
                labels: Some([("app".to_owned(), label.to_owned())].into()),
                uid: Some(uid.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        })
    }

    fn became(new: Arc<ConfigMap>) -> Change<ConfigMap> {
        Change::Updated {
            old: object(1, "a", "u"),
            new,
        }
    }

    #[test]
    fn each_predicate_passes_its_changes_and_what_comes_and_goes() {
        let mut deleting = (*object(1, "a", "u")).clone();
        deleting.metadata.deletion_timestamp = Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").expect("a time"));
        let changes = [
            became(object(1, "a", "u")),
            became(object(2, "a", "u")),
            became(object(1, "b", "u")),
            became(object(1, "a", "another")),
            became(Arc::new(deleting)),
            Change::Added(object(1, "c", "u")),
            Change::Deleted(object(1, "c", "u")),
        ];
        let verdicts = |predicate: &dyn Fn(&Change<ConfigMap>) -> bool| -> String {
            changes
                .iter()
                .map(|change| if predicate(change) { 'x' } else { '.' })
                .collect()
        };
        let (generation, labels) = (generation_changed(), labels_changed());
        assert_eq!(verdicts(&|change| generation.passes(change)), ".x.xxxx");
        assert_eq!(verdicts(&|change| labels.passes(change)), "..xx.xx");
        let either = generation_changed().or(labels_changed());
        assert_eq!(verdicts(&|change| either.passes(change)), ".xxxxxx");
        let both = generation_changed().and(labels_changed());
        assert_eq!(verdicts(&|change| both.passes(change)), "...x.xx");
        let had = has_label("app", "a");
        assert_eq!(verdicts(&|change| had.passes(change)), "xxxxx..");
    }
}
