//! Control planes that no host is to lead to, and never was: nothing but a change of what they ask for is a reason to look at
//! them again. An entry is about fifty bytes.

use std::collections::HashMap;

use compact_str::CompactString;
use mica_api::control_plane::ControlPlaneSpec;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::meta::{Meta, Notice, Seen};

/// What a control plane asks for when nothing else was ever asked.
const FIRST_GENERATION: i64 = 1;

#[derive(Default)]
pub struct Plain(Mutex<HashMap<CompactString, u64>>);

impl Plain {
    /// Notes that a control plane is plain, if it is: it names nothing and never did, nor takes over a plane that was another's
    /// and may have hosts.
    pub fn note(&self, meta: &Meta, spec: &ControlPlaneSpec) -> Plainness {
        let names_one = |named: Option<&str>| named.is_some_and(|name| !name.is_empty());
        let names = names_one(spec.class_ref.as_ref().map(|one| one.name.as_str()))
            || names_one(spec.endpoint_ref.as_ref().map(|one| one.name.as_str()));
        let plain =
            !names && meta.generation == FIRST_GENERATION && !meta.is_deleting() && meta.annotations.adopt.is_none();
        let mut known = self.0.lock();
        match plain {
            true => {
                known.insert(meta.name.clone(), print(meta));
                Plainness::Plain
            }
            false => {
                known.remove(&meta.name);
                Plainness::Other
            }
        }
    }

    /// Whether a control plane that is told of is known to be plain, as it is told.
    pub fn is_as_known(&self, notice: &Notice, meta: &Meta) -> bool {
        let mut known = self.0.lock();
        match &notice.seen {
            Seen::Present(_) => known.get(&meta.name) == Some(&print(meta)),
            _ => {
                known.remove(&meta.name);
                false
            }
        }
    }

    /// Everything is told again.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plainness {
    Plain,
    Other,
}

/// Another number for whatever could make it something else than plain.
fn print(meta: &Meta) -> u64 {
    let said = (&meta.uid, meta.generation, meta.is_deleting(), &meta.annotations.adopt);
    xxh3_64(format!("{said:?}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mica_runtime::queue::Priority;
    use serde_json::json;

    use super::*;
    use crate::meta::{Object, What};
    use crate::place::Place;

    fn meta() -> Meta {
        Meta {
            name: "a".into(),
            uid: "u".into(),
            generation: 1,
            ..Meta::default()
        }
    }

    /// The same, when it asks for something, or did.
    fn asking() -> [Meta; 3] {
        let mut asking = [meta(), meta(), meta()];
        asking[0].generation = 2;
        asking[1].deletion_timestamp = Some("t".into());
        asking[2].annotations.adopt = Some("id".into());
        asking
    }

    fn notice(meta: &Meta, seen: fn(Arc<Object>) -> Seen) -> Notice {
        let what = What {
            api_version: "controlplane.kplane.dev/v1alpha1".into(),
            kind: "ControlPlane".into(),
            resource: "controlplanes".into(),
        };
        Notice {
            seen: seen(Arc::new(Object {
                place: Place::root(),
                what,
                meta: meta.clone(),
            })),
            priority: Priority::Normal,
        }
    }

    fn spec(value: serde_json::Value) -> ControlPlaneSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_never_asked_for_anything_is_plain() {
        let plain = Plain::default();
        let nothing = spec(json!({"deletionPolicy": "Destroy", "classRef": {"name": ""}}));
        assert_eq!(plain.note(&meta(), &nothing), Plainness::Plain);
        for named in [
            json!({"classRef": {"name": "c"}}),
            json!({"endpointRef": {"name": "e"}}),
        ] {
            assert_eq!(plain.note(&meta(), &spec(named)), Plainness::Other);
        }
        for other in asking() {
            assert_eq!(plain.note(&other, &nothing), Plainness::Other);
            assert!(!plain.is_as_known(&notice(&meta(), Seen::Present), &meta()));
        }
    }

    #[test]
    fn whatever_could_matter_is_looked_at_again() {
        let plain = Plain::default();
        let nothing = spec(json!({}));
        let known = |meta: &Meta| plain.is_as_known(&notice(meta, Seen::Present), meta);
        assert!(!known(&meta()));
        plain.note(&meta(), &nothing);
        let mut reported = meta();
        reported.resource_version = "8".into();
        reported.finalizers = vec!["f".into()];
        assert!(known(&reported));
        let mut another = meta();
        another.uid = "v".into();
        for other in asking().into_iter().chain([another]) {
            assert!(!known(&other), "{other:?}");
        }
        assert!(!plain.is_as_known(&notice(&meta(), Seen::Gone), &meta()));
        assert!(!known(&meta()), "what went is forgotten");
    }
}
